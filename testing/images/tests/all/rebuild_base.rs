//! Which checkpoint a rebuild starts from.

use std::sync::Arc;

use dendro_base::{ManualClock, Rng};
use dendro_check::Volume;
use dendro_device::MemoryDevice;
use dendro_disk::{Aru, CommitSeq, Lid, ListHints, LogicalDisk, Op, Versions, View};
use dendro_format::{Head, Record, Superblock};
use dendro_logdisk::{LogDisk, OnLoss, OpenOptions};

use crate::common::new_disk;
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
    let (disk, device) = new_disk(8 << 20, 128 << 10, OpenOptions::default());
    let list = disk.allocate_list().expect("it works");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    aru.put_record(list, 0, &b"old"[..]);
    disk.commit(aru).expect("there is room");
    disk.checkpoint().expect("it works");
    let mut page = vec![0; 4096];
    Rng::new(1).fill(&mut page);
    let mut aru = Aru::new(View::HEAD);
    aru.put_record(list, 0, &b"new"[..]);
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
    aru.put_record(list, 1, &b"last"[..]);
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

/// The log behind the checkpoint begins epochs and makes branches. What it takes to be there was
/// there before.
#[test]
fn a_map_that_is_lost_is_made_anew_as_of_the_epoch_of_its_checkpoint() {
    let (disk, device, _, list) = with_unit_between_checkpoints();
    let put = |view: View, index: u64| {
        let mut aru = Aru::new(view);
        aru.put_record(list, index, index.to_le_bytes().to_vec());
        disk.commit(aru).expect("there is room");
    };
    disk.snapshot(0, None).expect("there is room");
    let branch = disk.branch_off(View::HEAD, "branch").expect("there is room").head();
    put(branch, 7);
    let deeper = disk.branch_off(branch, "deeper").expect("there is room").head();
    put(deeper, 8);
    put(View::HEAD, 9);
    disk.flush(CommitSeq::LATEST).expect("it works");
    let mut bytes = device.to_bytes();
    nodes(&bytes).iter().for_each(|(node, _)| destroy(&mut bytes, node));
    let report = rebuilt(&mut bytes);
    let (disk, _) = open(&bytes).unwrap_or_else(|error| panic!("{error}: {report:?}"));
    for (view, indices) in [(View::HEAD, vec![9]), (branch, vec![7]), (deeper, vec![7, 8])] {
        for index in [7_u64, 8, 9] {
            let found = disk.record(view, list, index).expect("it can be read");
            let expected = indices.contains(&index).then(|| index.to_le_bytes().to_vec());
            assert_eq!(found.map(|it| it.to_vec()), expected, "{view}, {index}: {report:?}");
        }
    }
}

#[test]
fn a_rebuilt_volume_opens_if_nothing_from_before_its_checkpoint_is_left() {
    let (disk, device, _, list) = with_unit_between_checkpoints();
    let before = device.to_bytes();
    disk.snapshot(0, None).expect("there is room");
    let mut aru = Aru::new(View::HEAD);
    aru.put_record(list, 0, &b"newest"[..]);
    disk.commit(aru).expect("there is room");
    disk.flush(CommitSeq::LATEST).expect("it works");
    let mut bytes = device.to_bytes();
    nodes(&before).iter().for_each(|(node, _)| destroy(&mut bytes, node));
    let volume = Volume::open(&*device).expect("it works");
    let checkpoint = volume.checkpoint().expect("it works");
    for segment in volume.layout().log_segments() {
        for partial in volume.partials(segment) {
            let header = &partial.header;
            let start = volume.layout().segment_offset(segment) as usize;
            let at = start + header.offset_bytes as usize;
            if header.head == Head::Main && header.seq < checkpoint.log_seq {
                bytes[at..at + 64].fill(0xa5);
            }
            for record in partial.records().flatten() {
                if let Record::Node { place, .. } = record.record {
                    destroy(&mut bytes, &place);
                }
            }
        }
    }
    let report = rebuilt(&mut bytes);
    let (disk, _) = open(&bytes).unwrap_or_else(|error| panic!("{error}: {report:?}"));
    let found = disk.record(View::HEAD, list, 0).expect("it can be read");
    assert_eq!(found.as_deref(), Some(&b"newest"[..]), "{report:?}");
}
