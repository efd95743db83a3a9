//! Volumes whose accounts are forged: usage that is wrong, heads that stand in what lives, lists
//! without an end. The engine may lose what such a volume holds, but it answers, and comes to an
//! end.

use std::ops::Range;

use dendro_base::Rng;
use dendro_format::checkpoint::CHECKPOINT_FIXED_LEN_BYTES;
use dendro_format::usage::USAGE_LEN_BYTES;
use dendro_images::forge::Forge;
use dendro_images::golden::all;
use dendro_images::hostile;

/// Whatever `damage` does to the checkpoint of a golden image, it is answered.
fn check(damage: impl Fn(&mut [u8])) {
    for golden in all().expect("they are there") {
        let forge = Forge::new(&golden.image).expect("it is sound");
        let at = forge.checkpoint();
        let image = forge.forge(|image| damage(&mut image[at]));
        dendro_check::testing::image(&image);
        hostile::exercise(&image);
    }
}

fn put(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Where the live bytes of each usage override stand in a checkpoint.
fn live_bytes(checkpoint: &[u8]) -> impl Iterator<Item = usize> + use<> {
    let all: Range<usize> = CHECKPOINT_FIXED_LEN_BYTES..checkpoint.len();
    all.step_by(4 + USAGE_LEN_BYTES).map(|at| at + 4)
}

#[test]
fn usage_that_is_too_low_or_too_high_is_lived_with() {
    for live in [0, 1, 64, 4096, 1 << 20, u32::MAX] {
        check(|checkpoint| live_bytes(checkpoint).for_each(|at| put(checkpoint, at, live)));
    }
    // Of one segment each.
    for nth in 0..6 {
        check(|checkpoint| {
            let at = live_bytes(checkpoint).nth(nth);
            at.into_iter().for_each(|at| put(checkpoint, at, 0));
        });
    }
    // Of all of them together, and the count of short blocks.
    check(|checkpoint| checkpoint[112..120].fill(0xff));
    check(|checkpoint| checkpoint[136..144].fill(0xff));
}

#[test]
fn heads_that_stand_in_what_lives_end_in_no_panic() {
    const LOG_SEGMENT: usize = 56;
    const LOG_OFFSET: usize = 60;
    const NEXT_SEGMENT: usize = 76;
    const MAP_SEGMENT: usize = 80;
    const MAP_OFFSET: usize = 84;
    check(|checkpoint| put(checkpoint, LOG_OFFSET, 0));
    check(|checkpoint| put(checkpoint, MAP_OFFSET, 0));
    for (one, other) in [
        (LOG_SEGMENT, MAP_SEGMENT),
        (MAP_SEGMENT, LOG_SEGMENT),
        (NEXT_SEGMENT, LOG_SEGMENT),
        (NEXT_SEGMENT, MAP_SEGMENT),
        (MAP_SEGMENT, NEXT_SEGMENT),
    ] {
        check(|checkpoint| {
            let segment = number(checkpoint, other);
            put(checkpoint, one, segment);
        });
    }
    for segment in 2..12 {
        check(|checkpoint| put(checkpoint, NEXT_SEGMENT, segment));
        check(|checkpoint| {
            put(checkpoint, MAP_SEGMENT, segment);
            put(checkpoint, MAP_OFFSET, 0);
        });
    }
}

#[test]
fn lists_without_an_end_come_to_one() {
    let rng = &mut Rng::new(9);
    for golden in all().unwrap() {
        let forge = Forge::new(&golden.image).unwrap();
        for records in forge.records().filter(|records| records.len() >= 28) {
            for kind in [8, 9] {
                for count in [1 << 20, 1 << 26, 1 << 40, (1 << 51) - 1] {
                    let image = forge.forge(|image| {
                        let first_page = [0, rng.below(1 << 50)][rng.below(2) as usize];
                        let record = &mut image[records.clone()][..28];
                        record.fill(0);
                        record[0] = kind;
                        record[4..12].copy_from_slice(&rng.below(20).to_le_bytes());
                        record[12..20].copy_from_slice(&first_page.to_le_bytes());
                        record[20..28].copy_from_slice(&u64::to_le_bytes(count));
                    });
                    dendro_check::testing::image(&image);
                    hostile::exercise(&image);
                }
            }
        }
    }
}
