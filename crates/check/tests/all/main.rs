//! The integration tests of the crate, in one program: each program takes time to link.

mod findings;
mod hostile_images;
mod metadata_copies;
mod readers;
mod support;
