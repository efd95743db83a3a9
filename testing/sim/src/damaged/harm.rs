//! What happens to an image: bits flip, sectors become zeros or are what they were once, segments
//! change places, the end is missing; or what structures say changes, with right checksums.

use std::ops::Range;

use dendro_base::{Rng, Uuid};
use dendro_format::node::MAX_NODE_LEN_BYTES;
use dendro_format::testing::mutate;
use dendro_format::{Entries, Value, node};
use dendro_images::forge::{Forge, fit, mutate_one};

use super::anatomy::Anatomy;

/// What a device writes whole.
const SECTOR_LEN_BYTES: usize = 512;

/// A leaf may become longer while it is changed, and longer ones than any are not made.
const MAX_CHANGED_LEN_BYTES: usize = MAX_NODE_LEN_BYTES / 2;

/// Damage that was done.
#[derive(Debug)]
#[allow(dead_code, reason = "a failure prints them")]
pub(super) enum Harm {
    /// A bit, at this byte.
    Flip(usize),
    /// Random bytes.
    Noise(Range<usize>),
    Zeros(Range<usize>),
    /// Sectors are as an earlier moment of the work had them.
    Replay(Range<usize>),
    /// Two places changed their contents.
    Swap {
        a: usize,
        b: usize,
        len_bytes: usize,
    },
    /// The image ends here.
    Cut(usize),
    /// Nodes of the map, so many, in all their places.
    Nodes(usize),
}

/// Damages an image; `other` is that of an earlier moment of the same work.
pub(super) fn harm(rng: &mut Rng, image: &mut Vec<u8>, other: &[u8], anatomy: &Anatomy) -> Harm {
    let place = place(rng, image, anatomy);
    match rng.below(22) {
        0..5 => {
            image[place] ^= 1 << rng.below(8);
            Harm::Flip(place)
        }
        5..7 => {
            let range = sectors(rng, place, image.len());
            rng.fill(&mut image[range.clone()]);
            Harm::Noise(range)
        }
        7..11 => {
            let range = sectors(rng, place, image.len());
            image[range.clone()].fill(0);
            Harm::Zeros(range)
        }
        11..16 => {
            let range = sectors(rng, place, image.len().min(other.len()));
            image[range.clone()].copy_from_slice(&other[range.clone()]);
            Harm::Replay(range)
        }
        16..19 => {
            let range = sectors(rng, place, image.len());
            let len_bytes = range.len();
            let (a, unit) = (range.start, len_bytes.next_power_of_two());
            let b = rng.below((image.len() / unit).max(1) as u64) as usize * unit;
            if a.abs_diff(b) >= len_bytes && b + len_bytes <= image.len() {
                let (first, second) = (a.min(b), a.max(b));
                let (left, right) = image.split_at_mut(second);
                left[first..first + len_bytes].swap_with_slice(&mut right[..len_bytes]);
            }
            Harm::Swap { a, b, len_bytes }
        }
        19 => {
            let len = rng.below(image.len() as u64) as usize / SECTOR_LEN_BYTES * SECTOR_LEN_BYTES;
            image.truncate(len.max(SECTOR_LEN_BYTES));
            Harm::Cut(len)
        }
        _ => {
            let percent = [2, 10, 50][rng.below(3) as usize];
            let lost: Vec<_> = anatomy.nodes().iter().filter(|_| rng.chance(percent)).collect();
            for place in lost.iter().copied().flatten() {
                let len = image.len();
                image[place.start.min(len)..place.end.min(len)].fill(0);
            }
            Harm::Nodes(lost.len())
        }
    }
}

/// Damages what the structures say, where checksums are made right again.
pub(super) fn forge(rng: &mut Rng, forge: &Forge) -> Vec<u8> {
    if rng.chance(30) {
        let mut lies = [0; 32];
        rng.fill(&mut lies);
        return forge.lying(&lies);
    }
    let targets = forge.targets();
    let nodes: Vec<_> = forge.nodes().collect();
    let by_structure = rng.chance(60);
    forge.forge(|image| {
        for _ in 0..=rng.below(3) {
            if by_structure && !nodes.is_empty() {
                let place = nodes[rng.below(nodes.len() as u64) as usize].clone();
                change_leaf(rng, &mut image[place]);
                continue;
            }
            mutate_one(rng, &targets, image);
        }
    })
}

/// Changes what entries of a leaf say, so that the leaf stays one.
fn change_leaf(rng: &mut Rng, bytes: &mut [u8]) {
    let uuid = Uuid(bytes[24..40].try_into().unwrap_or_default());
    let Ok((info, Entries::Leaf(mut entries))) = node::decode(bytes, &uuid) else { return };
    let at = rng.below(entries.len() as u64) as usize;
    let other = rng.below(entries.len() as u64) as usize;
    let may_exchange = entries[at].0.space == entries[other].0.space;
    if !may_exchange || bytes.len() > MAX_CHANGED_LEN_BYTES {
        return;
    }
    match rng.below(10) {
        0..4 => {
            if let Value::Record(value) = &entries[at].1 {
                let (mut changed, len) = (value.to_vec(), value.len());
                mutate(rng, &mut changed);
                changed.resize(len, 0);
                entries[at].1 = Value::Record(changed.into());
            }
        }
        4 | 5 => {
            let (first, second) = (entries[at].1.clone(), entries[other].1.clone());
            (entries[at].1, entries[other].1) = (second, first);
        }
        6 => {
            entries[at].0.index = entries[at].0.index.wrapping_add(1 << rng.below(40));
            entries.sort_by_key(|(key, _)| *key);
            entries.dedup_by_key(|(key, _)| *key);
        }
        7 => {
            let value = entries[other].1.clone();
            entries[at].1 = value;
        }
        what => {
            let list = entries[at].0.list;
            if what == 8 {
                entries.remove(at);
            } else {
                entries.retain(|(key, _)| key.list != list);
            }
            fit(&info, &mut entries, bytes.len());
        }
    }
    if entries.is_empty() {
        return;
    }
    let (changed, _) = node::encode(&info, &Entries::Leaf(entries));
    if changed.len() == bytes.len() {
        bytes.copy_from_slice(&changed);
    }
}

/// A byte of a structure that much depends on, or of a block that some version has, or any that is
/// no zero, or any at all.
fn place(rng: &mut Rng, image: &[u8], anatomy: &Anatomy) -> usize {
    let any = |rng: &mut Rng| rng.below(image.len() as u64) as usize;
    let found: Vec<&Range<usize>> = match rng.below(10) {
        0..3 => anatomy.structures().collect(),
        3..7 => anatomy.blocks().collect(),
        7..9 => {
            let tries: Vec<usize> = (0..64).map(|_| any(rng)).collect();
            return tries.iter().copied().find(|&at| image[at] != 0).unwrap_or(tries[0]);
        }
        _ => Vec::new(),
    };
    if found.is_empty() {
        return any(rng);
    }
    let target = found[rng.below(found.len() as u64) as usize];
    let at = target.start + rng.below(target.len().max(1) as u64) as usize;
    at.min(image.len() - 1)
}

/// Sectors around a place: mostly few, sometimes a segment, or many.
fn sectors(rng: &mut Rng, place: usize, end: usize) -> Range<usize> {
    let len = SECTOR_LEN_BYTES << [0, 0, 1, 3, 3, 5, 8, 9, 11][rng.below(9) as usize];
    let start = if rng.chance(70) {
        place / len * len
    } else {
        place / SECTOR_LEN_BYTES * SECTOR_LEN_BYTES
    };
    start.min(end)..(start + len).min(end)
}
