//! The library, as programs use it.

mod devices;
mod examples;
mod files;
mod streams;
mod volumes;
