//! The library, as programs use it.

mod examples;
mod files;
mod streams;
mod volumes;
