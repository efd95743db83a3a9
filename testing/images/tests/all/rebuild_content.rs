//! What a rebuild takes from the log where the map is lost.

use dendro_check::{Options, verify};
use dendro_device::MemoryDevice;
use dendro_disk::{Aru, CommitSeq, ListCompression, ListHints, LogicalDisk, Op, PAGE_SIZE, View};
use dendro_logdisk::{LogDisk, OpenOptions};

use crate::common::new_disk;
use crate::rebuild::{
    SEGMENT_LEN_BYTES, assert_sound, contents, destroy, destroy_older_checkpoints, difference,
    nodes, rebuilt,
};

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
