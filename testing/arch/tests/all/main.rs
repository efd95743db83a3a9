//! The integration tests of the crate, in one program: each program takes time to link.

mod circles;
mod documents;
mod fields;
mod layers;
mod modules;
mod publishing;
mod tidy;
mod workspace;
