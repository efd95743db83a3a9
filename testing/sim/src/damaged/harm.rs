//! What happens to an image: bits flip, sectors become zeros or are what they were once, segments
//! change places, the end is missing.

use std::ops::Range;

use dendro_base::Rng;
use dendro_check::Volume;
use dendro_device::MemoryDevice;
use dendro_format::testing::mutate;
use dendro_format::{PageRef, Value};

/// What a device writes whole.
const SECTOR_LEN_BYTES: usize = 512;

/// Damage that was done.
#[derive(Debug)]
#[allow(dead_code, reason = "a failure prints them")]
pub(super) enum Harm {
    /// A bit, at this byte.
    Flip(usize),
    /// Random bytes.
    Noise(Range<usize>),
    Zeros(Range<usize>),
    /// Sectors are as another moment of the work had them.
    Replay(Range<usize>),
    /// Two places changed their contents.
    Swap {
        a: usize,
        b: usize,
        len_bytes: usize,
    },
    /// The image ends here.
    Cut(usize),
}

/// Damages an image; `other` is that of another moment of the same work.
pub(super) fn harm(rng: &mut Rng, image: &mut Vec<u8>, other: &[u8]) -> Harm {
    let place = place(rng, image);
    match rng.below(20) {
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
            let b = rng.below((image.len() / unit) as u64) as usize * unit;
            if a.abs_diff(b) >= len_bytes && b + len_bytes <= image.len() {
                let (first, second) = (a.min(b), a.max(b));
                let (left, right) = image.split_at_mut(second);
                left[first..first + len_bytes].swap_with_slice(&mut right[..len_bytes]);
            }
            Harm::Swap { a, b, len_bytes }
        }
        _ => {
            let len = rng.below(image.len() as u64) as usize / SECTOR_LEN_BYTES * SECTOR_LEN_BYTES;
            image.truncate(len.max(SECTOR_LEN_BYTES));
            Harm::Cut(len)
        }
    }
}

/// Damages what the structures say, where checksums are made right again.
pub(super) fn forge(rng: &mut Rng, targets: &[Range<usize>], image: &mut [u8]) {
    for _ in 0..=rng.below(3) {
        let target = targets[rng.below(targets.len() as u64) as usize].clone();
        let mut bytes = image[target.clone()].to_vec();
        let len = bytes.len();
        mutate(rng, &mut bytes);
        bytes.resize(len, 0);
        image[target].copy_from_slice(&bytes);
    }
}

/// A byte of a structure that much depends on, or of a block that some version has, or any that is
/// no zero, or any at all.
fn place(rng: &mut Rng, image: &[u8]) -> usize {
    let any = |rng: &mut Rng| rng.below(image.len() as u64) as usize;
    let found = match rng.below(10) {
        0..3 => targets(image),
        3..7 => blocks(image),
        7..9 => {
            let tries: Vec<usize> = (0..64).map(|_| any(rng)).collect();
            return tries.iter().copied().find(|&at| image[at] != 0).unwrap_or(tries[0]);
        }
        _ => Vec::new(),
    };
    if found.is_empty() {
        return any(rng);
    }
    let target = found[rng.below(found.len() as u64) as usize].clone();
    let at = target.start + rng.below(target.len().max(1) as u64) as usize;
    at.min(image.len() - 1)
}

/// The blocks that the map names.
fn blocks(image: &[u8]) -> Vec<Range<usize>> {
    let device = MemoryDevice::from_bytes(image);
    let Ok(volume) = Volume::open(&device) else { return Vec::new() };
    let Ok(checkpoint) = volume.checkpoint() else { return Vec::new() };
    let chunks = volume
        .entries(&checkpoint, None, None)
        .flatten()
        .filter_map(|(_, value)| if let Value::Chunk(chunk) = value { Some(chunk) } else { None });
    let pages = chunks.flat_map(|chunk| chunk.iter().map(|(_, page)| page).collect::<Vec<_>>());
    let range = |page: PageRef| {
        let start = page.addr.bytes() as usize;
        start..start + usize::from(page.len_bytes)
    };
    pages.filter(|page| page.len_bytes > 0).map(range).collect()
}

/// Superblocks, the checkpoint, nodes, and the log's headers and records.
fn targets(image: &[u8]) -> Vec<Range<usize>> {
    let device = MemoryDevice::from_bytes(image);
    let Ok(volume) = Volume::open(&device) else { return Vec::new() };
    let range = |start: u64, len: u64| start as usize..(start + len) as usize;
    let newest = volume.superblocks().all().iter().rev().take(3);
    let mut targets: Vec<_> = newest.map(|found| range(found.offset, 256)).collect();
    let Ok(checkpoint) = volume.checkpoint() else { return targets };
    let superblock = volume.superblock();
    targets.push(range(superblock.checkpoint_addr.bytes(), superblock.checkpoint_len_bytes.into()));
    let nodes = volume.nodes(&checkpoint).flatten();
    targets.extend(nodes.map(|node| range(node.place.addr.bytes(), node.place.len_bytes.into())));
    for partial in volume.log(&checkpoint) {
        let header = &partial.header;
        let start = volume.layout().segment_offset(header.segment) + u64::from(header.offset_bytes);
        targets.push(range(start, 128));
        let records = start + u64::from(header.records_offset_bytes);
        targets.push(range(records, header.records_len_bytes.into()));
    }
    targets
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
