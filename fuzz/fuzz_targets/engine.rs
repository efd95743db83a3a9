//! A whole image under the engine: a golden one that the input patches, all checksums right.

#![no_main]

use std::sync::LazyLock;

use dendro_images::forge::Forge;
use dendro_images::{golden, hostile};

static FORGE: LazyLock<Forge> = LazyLock::new(|| {
    let crashed = golden::all().expect("the golden images are there").pop();
    Forge::new(&crashed.expect("there is one").image).expect("it is sound")
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let image = FORGE.patched(bytes);
    hostile::exercise(&image);
});
