//! Golden images: a small volume of each version of the format, as the engine of that version left
//! it, which every later version must read.
//!
//! - [`golden`]: the images and the manifests of their contents, in `golden/`.
//! - [`sets`]: a volume on several devices, with the image of each.
//! - [`pack`], [`unpack`]: how an image is kept: without its zeros.
//! - [`contents`]: how a volume of known contents is made.
//! - [`forge`]: damage that no checksum tells.
//! - [`hostile`]: damaged images under the engine.
//! - [`manifest`]: what a volume holds, as text.
//!
//! `cargo run -p dendro-images` makes those of the current version, once, when the version is
//! fixed; an image that exists is never made anew.

#![forbid(unsafe_code)]

pub mod contents;
pub mod forge;
pub mod golden;
pub mod hostile;
pub mod manifest;
mod pack;
pub mod sets;

pub use pack::{pack, unpack};
