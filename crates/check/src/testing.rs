//! A whole image as a fuzzer's input: every reader runs over it and returns.

use dendro_device::MemoryDevice;
use dendro_format::checkpoint::CHECKPOINT_FIXED_LEN_BYTES;
use dendro_format::{Entries, Superblock, Value};

use crate::{Options, Volume, find_superblocks, info, verify};

/// The most bytes that are looked at.
const MAX_IMAGE_LEN_BYTES: usize = 8 << 20;

/// Reads all of an image.
///
/// # Panics
/// When a reader is wrong.
pub fn image(bytes: &[u8]) {
    let device = MemoryDevice::from_bytes(&bytes[..bytes.len().min(MAX_IMAGE_LEN_BYTES)]);
    let report = verify(&device, &Options { data: true });
    let _ = report.to_string();
    if let Ok(superblocks) = find_superblocks(&device) {
        for found in superblocks.all() {
            let _ = info::SuperblockInfo::from(found).to_string();
            assert_eq!(
                Superblock::decode(found.superblock.encode().as_slot()).map(|again| again.seq),
                Ok(found.superblock.seq)
            );
        }
    }
    let Ok(volume) = Volume::open(&device) else { return };
    for segment in volume.layout().log_segments() {
        let mut partials = volume.partials(segment);
        for partial in &mut partials {
            let _ = partial.to_string();
            for record in partial.records().flatten() {
                let _ = info::PartialRecordInfo::from(record).to_string();
            }
        }
        let _ = partials.end().map(ToString::to_string);
    }
    let Ok(checkpoint) = volume.checkpoint() else { return };
    assert!(volume.superblock().checkpoint_len_bytes as usize >= CHECKPOINT_FIXED_LEN_BYTES);
    let _ = info::CheckpointInfo::from(&checkpoint).to_string();
    let _ = volume.log_summary(&checkpoint).to_string();
    let mut entries = 0;
    for node in volume.nodes(&checkpoint).flatten() {
        let _ = node.to_string();
        let Entries::Leaf(leaf) = &node.entries else { continue };
        for (key, value) in leaf {
            entries += 1;
            let _ = info::EntryInfo::from((key, value)).to_string();
            if let Value::Chunk(chunk) = value {
                assert!(chunk.len() <= 32);
            }
        }
    }
    assert_eq!(volume.entries(&checkpoint, None, None).flatten().count(), entries);
    let _ = volume.usage(&checkpoint).map(|usage| usage.live_bytes());
}
