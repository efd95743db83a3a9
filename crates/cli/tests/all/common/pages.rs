//! Files whose pages can be found in the image, and damaged there.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use super::Scratch;

pub(crate) const PAGE: usize = 4096;

/// Bytes that no other page has.
pub(crate) fn page(name: &str, number: usize) -> Vec<u8> {
    let mut bytes = format!("{name} {number} ").repeat(PAGE / (name.len() + 3)).into_bytes();
    bytes.resize(PAGE, b'.');
    bytes
}

/// Changes a bit of that page, wherever the image has it.
pub(crate) fn damage(scratch: &Scratch, name: &str, number: usize) {
    let image = fs::read(scratch.image()).unwrap();
    let wanted = page(name, number);
    let found = image.chunks(PAGE).enumerate().filter(|(_, bytes)| **bytes == wanted);
    let places: Vec<_> = found.map(|(at, _)| at * PAGE).collect();
    assert!(!places.is_empty());
    let file = File::options().write(true).open(scratch.image()).unwrap();
    for at in places {
        file.write_all_at(&[wanted[100] ^ 1], at as u64 + 100).unwrap();
    }
}
