//! Damaged images are read without a panic, and where it can be known, damage is found.

use std::collections::HashSet;

use crate::support::*;
use dendro_base::Rng;
use dendro_check::testing;
use dendro_format::testing::mutate;

/// A small volume with a log behind its checkpoint, without the empty segments at its end.
fn image() -> Vec<u8> {
    let mut image = sound();
    let device = dendro_device::MemoryDevice::from_bytes(&image);
    let volume = dendro_check::Volume::open(&device).expect("it is sound");
    let checkpoint = volume.checkpoint().expect("it is sound");
    let at = checkpoint.log.offset_bytes as usize;
    let mut part = Part::new(
        dendro_format::Head::Main,
        LOG_SEGMENT,
        at,
        checkpoint.log_seq,
        checkpoint.log_prev_crc32c,
    );
    part.push_block(1, 3, &[3; 200]);
    part.write(&mut image);
    image
}

/// The parts of an image that are not zeros.
fn used(image: &[u8]) -> Vec<usize> {
    let blocks = image.chunks(4096).enumerate();
    blocks.filter(|(_, block)| block.iter().any(|&byte| byte != 0)).map(|(at, _)| at).collect()
}

#[test]
fn damaged_images_are_read_without_a_panic() {
    let image = image();
    let used = used(&image);
    let rng = &mut Rng::new(11);
    for _ in 0..1500 {
        let mut image = image.clone();
        for _ in 0..=rng.below(3) {
            let block = used[rng.below(used.len() as u64) as usize] * 4096;
            let mut bytes = image[block..block + 4096].to_vec();
            mutate(rng, &mut bytes);
            bytes.resize(4096, 0);
            image[block..block + 4096].copy_from_slice(&bytes);
        }
        testing::image(&image);
    }
}

#[test]
fn images_cut_off_anywhere_are_read_without_a_panic() {
    let image = image();
    for len in (0..image.len()).step_by(SEGMENT_SIZE / 2 + 512) {
        testing::image(&image[..len]);
    }
}

#[test]
fn every_flipped_bit_of_what_is_reachable_is_found() {
    // All bytes that the checkpoint reaches: the pages, the nodes, the checkpoint itself.
    let image = sound();
    let healthy = report(&image);
    let page = LOG_SEGMENT as usize * SEGMENT_SIZE + 4096;
    let node = MAP_SEGMENT as usize * SEGMENT_SIZE + 4096;
    let checkpoint = image.windows(4).position(|window| window == b"DCP1").unwrap();
    let reachable: HashSet<usize> = (page..page + 4096)
        .step_by(97)
        .chain(node..node + 64)
        .chain(checkpoint..checkpoint + 192)
        .collect();
    for at in reachable {
        let mut image = image.clone();
        image[at] ^= 1 << (at % 8);
        assert_ne!(report(&image).findings, healthy.findings, "byte {at}");
    }
}
