//! The modules of one crate, and which of them uses which.
//!
//! - [`source`] reads what a module declares, imports and names out of its text.
//! - [`crate_tree`] puts the modules of a crate together and finds what each name means.
//! - [`graph`] finds circles.
//! - [`structs`] reads which fields of structs others see, and what has methods that change it.
//! - [`tokens`] reads tokens one after the other.

pub(crate) mod crate_tree;
pub(crate) mod graph;
mod source;
mod structs;
mod tokens;
