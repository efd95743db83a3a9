//! A whole image under the engine: one of several that the input patches, or makes tell lies, all
//! checksums right.

#![no_main]

use std::sync::LazyLock;

use dendro_images::forge::{Forge, by_input};
use dendro_images::hostile;

static FORGES: LazyLock<Vec<Forge>> = LazyLock::new(hostile::forges);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    hostile::exercise(&by_input(&FORGES, bytes));
});
