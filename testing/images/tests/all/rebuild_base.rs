//! Which checkpoint a rebuild starts from.

use std::sync::Arc;

use dendro_base::{Clock, ManualClock, Rng};
use dendro_check::Volume;
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Aru, CommitSeq, Lid, ListHints, LogicalDisk, Op, View};
use dendro_format::Superblock;
use dendro_logdisk::{FormatOptions, LogDisk, OnLoss, OpenOptions, format};

use crate::rebuild::{
    SEGMENT_LEN_BYTES, Whole, destroy, nodes, open, rebuilt, superblock, volumes,
};

#[test]
fn a_volume_opens_again_after_the_checkpoints_segment_was_exchanged_with_another_one() {
    for Whole { name, bytes: whole, .. } in volumes() {
        let own = superblock(whole).checkpoint_addr.bytes() as usize / SEGMENT_LEN_BYTES;
        let others = (1..whole.len() / SEGMENT_LEN_BYTES).step_by(3);
        for other in others.filter(|other| *other != own) {
            let mut bytes = whole.clone();
            let (front, back) = bytes.split_at_mut(own.max(other) * SEGMENT_LEN_BYTES);
            let first = &mut front[own.min(other) * SEGMENT_LEN_BYTES..][..SEGMENT_LEN_BYTES];
            first.swap_with_slice(&mut back[..SEGMENT_LEN_BYTES]);
            let report = rebuilt(&mut bytes);
            let device = Arc::new(MemoryDevice::from_bytes(&bytes));
            let options = OpenOptions { on_loss: OnLoss::Truncate, ..OpenOptions::default() };
            let opened = LogDisk::open(device, options, Arc::new(ManualClock::default()));
            assert!(opened.is_ok(), "{name}, {own} and {other}: {opened:?}\n{report:?}");
        }
    }
}

/// Two checkpoints, and between them a unit that changes a record and writes a page. Returns the
/// page too, and the list.
fn with_unit_between_checkpoints() -> (LogDisk, Arc<MemoryDevice>, Vec<u8>, Lid) {
    let device = Arc::new(MemoryDevice::new(8 << 20));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: 128 << 10, ..FormatOptions::default() };
    format(&(Arc::clone(&device) as Arc<dyn Device>), &options, &clock).expect("there is room");
    let disk =
        LogDisk::open(Arc::clone(&device) as _, OpenOptions::default(), clock).expect("it works");
    let list = disk.allocate_list().expect("it works");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    aru.put_record(list, 0, b"old");
    disk.commit(aru).expect("there is room");
    disk.checkpoint().expect("it works");
    let mut page = vec![0; 4096];
    Rng::new(1).fill(&mut page);
    let mut aru = Aru::new(View::HEAD);
    aru.put_record(list, 0, b"new");
    aru.push(Op::WritePages { list, first_page: 0, data: page.clone().into() });
    disk.commit(aru).expect("there is room");
    disk.checkpoint().expect("it works");
    (disk, device, page, list)
}

#[test]
fn an_older_checkpoint_does_not_count_if_the_log_behind_it_has_a_damaged_block() {
    let (_, device, page, _) = with_unit_between_checkpoints();
    let mut whole = device.to_bytes();
    let block = whole.windows(page.len()).position(|bytes| bytes == page).expect("it is there");
    whole[block + 7] ^= 1;
    for (node, _) in nodes(&whole) {
        let mut bytes = whole.clone();
        destroy(&mut bytes, &node);
        let report = rebuilt(&mut bytes);
        let (disk, _) = open(&bytes).expect("it was rebuilt");
        let list = disk.lists(View::HEAD, Lid(1), 1).expect("it can be read")[0];
        let record = disk.record(View::HEAD, list, 0).expect("it can be read");
        let is_lost = report.lost_pages.iter().any(|of| of.list == list.0);
        assert!(record.is_some_and(|it| *it == *b"new"), "{node:?}: {report:?}");
        let mut found = vec![0; page.len()];
        let answer = disk.read_pages(View::HEAD, list, 0, &mut found);
        assert!(is_lost || answer.is_err(), "{node:?}: {answer:?}, {report:?}");
    }
}

/// Looking for the log behind the damage in each of four billion segments would take hours.
#[test]
fn no_segment_is_read_that_only_a_forged_superblock_says_to_be_there() {
    let (disk, device, _, list) = with_unit_between_checkpoints();
    let mut aru = Aru::new(View::HEAD);
    aru.put_record(list, 1, b"last");
    disk.commit(aru).expect("there is room");
    disk.flush(CommitSeq::LATEST).expect("it works");
    let mut bytes = device.to_bytes();
    let volume = Volume::open(&*device).expect("it works");
    let last = volume.log(&volume.checkpoint().expect("it works")).last().expect("it is there");
    let at = volume.layout().segment_offset(last.header.segment) as usize;
    let at = at + (last.header.offset_bytes + last.header.records_offset_bytes) as usize;
    bytes[at] ^= 1;
    nodes(&bytes).iter().for_each(|(node, _)| destroy(&mut bytes, node));
    let forged = superblock(&bytes);
    let forged = Superblock { layout: forged.layout.with_segment_count(u32::MAX), ..forged };
    let place = forged.layout.superblock_offset(forged.seq) as usize;
    let encoded = forged.encode();
    let slot = encoded.as_slot();
    bytes[place..place + slot.len()].copy_from_slice(slot);
    let report = rebuilt(&mut bytes);
    assert!(report.lost_end_bytes > 1 << 40, "{report:?}");
}
