//! The integration tests of the crate, in one program: each program takes time to link.

mod common;
mod forged;
mod receive;
mod resume;
mod send;
mod trees;
