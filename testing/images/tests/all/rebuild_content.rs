//! What a rebuild takes from the log where the map is lost.

use dendro_check::{Options, verify};
use dendro_device::MemoryDevice;
use dendro_disk::{
    Aru, CommitSeq, Lid, ListCompression, ListHints, LogicalDisk, Op, PAGE_SIZE, Versions, View,
};
use dendro_logdisk::{LogDisk, OpenOptions};

use crate::common::new_disk;
use crate::rebuild::{
    SEGMENT_LEN_BYTES, assert_sound, contents, destroy, destroy_older_checkpoints, difference,
    nodes, open, rebuilt,
};
use crate::rebuild_log::log_of;

/// Commits operations at the head of the first branch, in a partial segment of their own.
fn commit<'a>(disk: &LogDisk, ops: impl IntoIterator<Item = Op<'a>>) {
    let mut aru = Aru::new(View::HEAD);
    for op in ops {
        aru.push(op);
    }
    disk.commit(aru).expect("there is room");
    disk.flush(CommitSeq::LATEST).expect("it works");
}

/// A volume without its map and its older checkpoints.
fn without_map(whole: &[u8]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    destroy_older_checkpoints(&mut bytes);
    nodes(whole).iter().for_each(|(node, _)| destroy(&mut bytes, node));
    bytes
}

#[test]
fn compressed_pages_are_taken_from_the_log() {
    let len_bytes = 32 * SEGMENT_LEN_BYTES as u64;
    let (disk, device) = new_disk(len_bytes, SEGMENT_LEN_BYTES as u64, OpenOptions::default());
    for compression in [ListCompression::Lz4, ListCompression::Zstd] {
        let list = disk.allocate_list().expect("it works");
        let hints = ListHints { compression, ..ListHints::default() };
        let data = b"compressed well ".repeat(20 * PAGE_SIZE / 16).into();
        commit(
            &disk,
            [Op::CreateList { list, hints }, Op::WritePages { list, first_page: 3, data }],
        );
    }
    disk.shut_down().expect("it works");
    let whole = device.to_bytes();
    let compressed = |bytes: &[u8]| {
        let report = verify(&MemoryDevice::from_bytes(bytes), &Options { data: true });
        assert!(report.is_sound(), "{report}");
        report.counts.compressed_page_count
    };
    assert_eq!(compressed(&whole), 40);
    let mut bytes = without_map(&whole);
    let report = rebuilt(&mut bytes);
    assert!(report.is_complete(), "{report:?}");
    assert_sound(&bytes, "compressed");
    assert_eq!(compressed(&bytes), 40);
    assert_eq!(difference(&contents(&whole), &contents(&bytes)), None);
}

#[test]
fn a_snapshot_has_a_list_again_whose_creation_is_lost_and_whose_hints_were_changed_since() {
    let len_bytes = 32 * SEGMENT_LEN_BYTES as u64;
    let (disk, device) = new_disk(len_bytes, SEGMENT_LEN_BYTES as u64, OpenOptions::default());
    let list = disk.allocate_list().expect("it works");
    let hints = ListHints::default();
    commit(&disk, [Op::CreateList { list, hints }]);
    let page =
        |byte: u8| Op::WritePages { list, first_page: 0, data: vec![byte; PAGE_SIZE].into() };
    let record = |value: &'static [u8]| Op::PutRecord { list, index: 5, value: value.into() };
    commit(&disk, [page(1), record(b"old")]);
    let snapshot = disk.snapshot(0, None).expect("it works").view();
    let hints = ListHints { compression: ListCompression::Never, ..hints };
    commit(&disk, [page(2), record(b"new"), Op::SetHints { list, hints }]);
    disk.shut_down().expect("it works");
    let whole = device.to_bytes();
    let mut bytes = without_map(&whole);
    let created_at = log_of(&whole)[0] as usize;
    bytes[created_at..created_at + 64].fill(0xa5);
    let report = rebuilt(&mut bytes);
    assert!(!report.is_complete(), "the log begins too late: {report:?}");
    assert_sound(&bytes, "rebuilt");
    let (disk, _) = open(&bytes).expect("it was rebuilt");
    for (view, byte, value) in [(snapshot, 1, b"old"), (View::HEAD, 2, b"new")] {
        assert_eq!(disk.lists(view, Lid(0), 9).expect("it can be read"), [list], "{view}");
        let mut found = vec![0; PAGE_SIZE];
        disk.read_pages(view, list, 0, &mut found).expect("it can be read");
        assert!(found == vec![byte; PAGE_SIZE], "{view}");
        let record = disk.record(view, list, 5).expect("it can be read");
        assert_eq!(record.as_deref(), Some(&value[..]), "{view}");
    }
}
