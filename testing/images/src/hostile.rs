//! Damaged images under the engine: whatever is there, it answers.

use std::collections::HashMap;
use std::sync::Arc;

use dendro_base::units::GRAIN_SIZE;
use dendro_base::{Clock, ManualClock, Rng};
use dendro_check::{Finding, FindingKind, Options, Volume, verify};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Aru, CommitSeq, Lid, LogicalDisk, PAGE_SIZE, View};
use dendro_format::checkpoint::HeadPosition;
use dendro_format::{Entries, Record, SegmentNo, Value};
use dendro_logdisk::{LogDisk, OpenOptions};

use crate::manifest;

/// Lists whose contents are read; a damaged volume may claim to have any number.
const MAX_LISTS: usize = 64;

/// Opens an image, reads from it, writes to it and shuts it down, as far as it lets itself.
/// Returns what was read, if all could be.
///
/// # Panics
/// When the engine does.
pub fn exercise(image: &[u8]) -> Option<String> {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(image));
    let disk = LogDisk::open(device, OpenOptions::default(), clock).ok()?;
    let before = manifest::of_first(&disk, View::HEAD, MAX_LISTS).ok();
    let _ = write(&disk);
    let _ = disk.background_step();
    let _ = disk.shut_down();
    let _ = (disk.stats(), disk.space(), disk.read_only_reason());
    before
}

fn write(disk: &LogDisk) -> dendro_disk::Result<()> {
    for list in disk.lists(View::HEAD, Lid(0), 8)? {
        let mut aru = Aru::new(View::HEAD);
        let page = [7; PAGE_SIZE];
        aru.put_record(list, 1, b"new").write_pages(list, 2, &page).punch_pages(list, 0, 2);
        let _ = disk.commit(aru);
    }
    let list = disk.allocate_list()?;
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, Default::default()).delete_list(Lid::FIRST);
    disk.commit(aru)?;
    disk.flush(CommitSeq::LATEST)
}

/// Whether a volume, read as it lies there, would contradict the accounts that the engine keeps, or
/// keep it busy without end: forged usage, live data where the log goes
/// on, ranges of zeros as long as the address space. Only the verifier tells such a volume from a
/// sound one.
#[must_use]
pub fn deceives(image: &[u8]) -> bool {
    let device = MemoryDevice::from_bytes(image);
    let Ok(volume) = Volume::open(&device) else { return false };
    let Ok(checkpoint) = volume.checkpoint() else { return false };
    let Ok(usage) = volume.usage(&checkpoint) else { return false };
    let report = verify(&device, &Options { data: false });
    let is_false_account = |finding: &Finding| {
        use FindingKind::*;
        let kinds = [Overlap, BehindLog, UsageWrong, UsageOutside, UsageUnreadable, LiveBytesWrong];
        kinds.contains(&finding.kind)
    };
    if report.findings.iter().any(is_false_account) {
        return true;
    }
    let mut live: HashMap<SegmentNo, u64> = HashMap::new();
    let mut add = |addr, len_bytes: u32| {
        let len_bytes = u64::from(len_bytes).next_multiple_of(GRAIN_SIZE as u64);
        *live.entry(volume.layout().segment_of(addr)).or_default() += len_bytes;
    };
    for node in volume.nodes(&checkpoint).flatten() {
        add(node.place.addr, node.place.len_bytes);
        let Entries::Leaf(entries) = &node.entries else { continue };
        for (_, value) in entries {
            if let Value::Chunk(chunk) = value {
                chunk.iter().for_each(|(_, page)| add(page.addr, page.len_bytes.into()));
            }
        }
    }
    let recorded = |segment| usage.get(segment).map_or(0, |row| u64::from(row.usage.live_bytes));
    let is_endless =
        |record: Record<'_>| matches!(record, Record::ZeroPages { count, .. } if count > 1 << 20);
    // A head fills what lies behind its position; the segment it is to go on in is empty.
    let next = HeadPosition { segment: checkpoint.next_segment, offset_bytes: 0 };
    [checkpoint.log, checkpoint.map, next]
        .iter()
        .any(|head| recorded(head.segment) > head.offset_bytes.into())
        || live.iter().any(|(&segment, &live)| live > recorded(segment))
        || volume
            .log(&checkpoint)
            .any(|partial| partial.records().flatten().any(|at| is_endless(at.record)))
}

/// Damages a random part of what an image holds.
pub fn damage(rng: &mut Rng, image: &mut [u8]) {
    let blocks: Vec<usize> = (0..image.len())
        .step_by(PAGE_SIZE)
        .filter(|&at| image[at..at + PAGE_SIZE].iter().any(|&byte| byte != 0))
        .collect();
    for _ in 0..=rng.below(4) {
        let at = blocks[rng.below(blocks.len() as u64) as usize];
        let mut bytes = image[at..at + PAGE_SIZE].to_vec();
        dendro_format::testing::mutate(rng, &mut bytes);
        bytes.resize(PAGE_SIZE, 0);
        image[at..at + PAGE_SIZE].copy_from_slice(&bytes);
    }
}
