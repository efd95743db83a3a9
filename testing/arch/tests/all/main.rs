//! The integration tests of the crate, in one program: each program takes time to link.

mod circles;
mod documents;
mod fields;
mod layers;
mod modules;
mod tidy;
mod workspace;
