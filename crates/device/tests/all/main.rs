//! The integration tests of the crate, in one program: each program takes time to link.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod block_device;
mod every_device;
mod image_file;
