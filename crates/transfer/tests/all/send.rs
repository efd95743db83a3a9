//! What a stream has, put on what its base has, gives what its version has; and it has no more.

use std::ops::ControlFlow;

use crate::common::{VOLUME, commit, formatted, list_of, log_disk, sent, state, version};
use dendro_base::sync::Arc;
use dendro_base::{Rng, Timestamp};
use dendro_device::Device;
use dendro_device::sim::{Call, Fault, SimDevice};
use dendro_disk::model::{ModelDisk, ModelState, apply};
use dendro_disk::{
    CommitSeq, Lid, ListHints, LogicalDisk, Op, PAGE_SIZE, Snapshot, Versions, View,
};
use dendro_stream::{Counts, Decoder, Encoder, Header, Item, ListChange, Position, Version};
use dendro_transfer::{SendError, SendRange, send};

/// What `state` becomes with the changes of a stream.
fn received(stream: &[u8], mut state: ModelState) -> ModelState {
    let mut decoder = Decoder::begin(stream).expect("it was encoded just now");
    let mut list = Lid(0);
    while let Some(item) = decoder.next_item().expect("it was encoded just now") {
        let op = match item {
            Item::List { list: number, change, hints, near } => {
                list = Lid(number);
                let hints = ListHints::from_parts(hints, near);
                match change {
                    ListChange::Made => Op::CreateList { list, hints },
                    ListChange::Changed => Op::SetHints { list, hints },
                    ListChange::Deleted => Op::DeleteList { list },
                }
            }
            Item::Record { index, value: Some(value) } => {
                Op::PutRecord { list, index, value: value.into() }
            }
            Item::Record { index, value: None } => Op::DeleteRecord { list, index },
            Item::Page { page_index, bytes } => {
                Op::WritePages { list, first_page: page_index, data: bytes.into() }
            }
            Item::Zeros(pages) => {
                // A unit is bounded; a stream's range is not.
                for first_page in pages.clone().step_by(1024) {
                    let count = (pages.end - first_page).min(1024);
                    let zeros = Op::ZeroPages { list, first_page, count };
                    apply(&mut state, &[zeros]).expect("the stream fits its base");
                }
                continue;
            }
            Item::Holes(pages) => {
                let count = pages.end - pages.start;
                Op::PunchPages { list, first_page: pages.start, count }
            }
        };
        apply(&mut state, &[op]).expect("the stream fits its base");
    }
    decoder.finish().expect("it was encoded just now");
    state
}

fn check(disk: &dyn Versions, of: &Snapshot, base: Option<&Snapshot>, what: &str) {
    let before = base.map(|base| state(disk, base.view()));
    let expected = state(disk, of.view());
    let (stream, _) = sent(disk, of, base);
    let found = received(&stream, before.unwrap_or_default());
    if let Some(difference) = found.diff(&expected) {
        panic!("{what}: {difference} (received left, sent right)");
    }
}

/// Any snapshot is sent, whole and from any other one.
fn random_versions(disk: &dyn Versions, seed: u64, background: &mut dyn FnMut()) {
    let snapshots = crate::common::random_versions(disk, seed, 250, background);
    let mut rng = Rng::new(seed);
    for of in &snapshots {
        check(disk, of, None, &format!("seed {seed}, {}", of.view()));
        let base = &snapshots[rng.below(snapshots.len() as u64) as usize];
        check(disk, of, Some(base), &format!("seed {seed}, {} from {}", of.view(), base.view()));
    }
}

#[test]
fn any_version_is_sent_whole_and_from_any_other_by_the_model() {
    for seed in 0..6 {
        random_versions(&ModelDisk::new(None), seed, &mut || ());
    }
}

#[test]
fn any_version_is_sent_whole_and_from_any_other_by_the_log_structured_disk() {
    for seed in 10..16 {
        let disk = log_disk();
        let mut background = || drop(disk.background_step());
        random_versions(&disk, seed, &mut background);
    }
}

#[test]
fn a_stream_with_a_base_has_what_changed_and_little_more() {
    let disk = log_disk();
    let lists: Vec<Lid> = (0..20).map(|_| list_of(&disk, 200)).collect();
    let base = disk.snapshot(0, Some("a")).expect("there is room");
    for list in &lists[..5] {
        commit(&disk, View::HEAD, |aru| {
            aru.write_pages(*list, 100, vec![0xee; 3 * PAGE_SIZE]);
            aru.put_record(*list, 7, vec![0xee; 100]);
            aru.delete_record(*list, 8);
            aru.punch_pages(*list, 10, 2);
        });
    }
    commit(&disk, View::HEAD, |aru| {
        aru.delete_list(lists[6]);
    });
    let of = disk.snapshot(0, Some("b")).expect("there is room");
    // What comes later is not in it.
    commit(&disk, View::HEAD, |aru| {
        aru.write_pages(lists[9], 0, vec![1; PAGE_SIZE]);
    });
    disk.checkpoint().expect("the device works");
    let reads = disk.activity();
    let (stream, counts) = sent(&disk, &of, Some(&base));
    let changed_bytes = 5 * (3 * PAGE_SIZE as u64 + 100);
    assert_eq!(
        counts,
        Counts {
            changed_lists: 5,
            deleted_lists: 1,
            put_records: 5,
            deleted_records: 5,
            pages: 15,
            content_bytes: changed_bytes,
            ..Counts::default()
        }
    );
    assert!((stream.len() as u64) < changed_bytes * 105 / 100, "{}", stream.len());
    // Of the 15 pages, those of one list lie together.
    assert!(disk.activity() - reads <= 5);
    check(&disk, &of, Some(&base), "forward");
    check(&disk, &base, Some(&of), "backward");
}

#[test]
fn a_stream_of_the_same_version_is_empty() {
    let disk = log_disk();
    list_of(&disk, 10);
    let of = disk.snapshot(0, None).expect("there is room");
    let again = disk.snapshot(0, None).expect("there is room");
    assert_eq!(sent(&disk, &again, Some(&of)).1, Counts::default());
}

fn header(of: &Snapshot) -> Header {
    Header {
        stream: VOLUME,
        source: VOLUME,
        version: Version { time: Timestamp(0), ..version(of) },
        base: None,
        is_compressed: false,
        kind: None,
        head_of: None,
        is_followed: false,
        rest: None,
    }
}

#[test]
fn a_version_that_is_deleted_or_not_wanted_any_more_is_not_sent_to_the_end() {
    let disk = log_disk();
    list_of(&disk, 2000);
    let of = disk.snapshot(0, None).expect("there is room");
    let range = SendRange { of: of.view(), base: None, from: Position::START };
    let mut asked = 0;
    let encoder = Encoder::begin(Vec::new(), &header(&of), None).expect("a vector grows");
    let error = send(&disk, range, encoder, &mut |_| {
        asked += 1;
        if asked > 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(error, Err(SendError::Interrupted)));
    let encoder = Encoder::begin(Vec::new(), &header(&of), None).expect("a vector grows");
    let error = send(&disk, range, encoder, &mut |_| {
        drop(disk.delete(of.view()));
        ControlFlow::Continue(())
    });
    assert!(matches!(error, Err(SendError::List { .. })), "{error:?}");
}

#[test]
fn what_cannot_be_read_is_named_though_many_lists_are_read_together() {
    let device = Arc::new(SimDevice::new(64 << 20, 1));
    let disk = formatted(&(Arc::clone(&device) as Arc<dyn Device>), 1 << 20);
    let lists: Vec<Lid> = (0..20).map(|_| list_of(&disk, 3)).collect();
    let of = disk.snapshot(0, None).expect("there is room");
    disk.flush(CommitSeq::LATEST).expect("the device works");
    let (whole, _) = sent(&disk, &of, None);
    let unreadable =
        disk.page_addr(of.view(), lists[13], 1).expect("readable").expect("it has data");
    let block = unreadable..unreadable + PAGE_SIZE as u64;
    device.inject(Fault::fail(Call::Read).within(block).forever());
    let range = SendRange { of: of.view(), base: None, from: Position::START };
    let go_on = &mut |_| ControlFlow::Continue(());
    let encoder = Encoder::begin(Vec::new(), &header(&of), None).expect("a vector grows");
    let error = send(&disk, range, encoder, go_on);
    let Err(SendError::List { list, .. }) = error else { panic!("{error:?}") };
    assert_eq!(list, lists[13]);
    device.clear_faults();
    assert_eq!(sent(&disk, &of, None).0, whole);
}
