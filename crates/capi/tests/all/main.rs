//! The C interface, as C programs use it.

mod cc;
mod header;
mod programs;
mod sources;
