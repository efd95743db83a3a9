//! Clients beside the first, and what a crash leaves of them.

use std::sync::Arc;

use dendro_device::{Device, MemoryDevice};
use dendro_disk::model::{ModelState, ModelVersions};
use dendro_disk::{
    Aru, ClientKind, CommitSeq, Lid, ListHints, LogicalDisk, Op, Record, Versions, View,
};
use dendro_format::superblock::INCOMPATIBLE_CLIENTS;
use dendro_logdisk::LogDisk;

use crate::common::{formatted, list_of, open};

/// The number of a list that the first client has too.
const LIST: Lid = Lid::FIRST;

fn push(disk: &LogDisk, view: View, op: Op<'_>) {
    let mut aru = Aru::new(view);
    aru.push(op);
    disk.commit(aru).expect("there is room");
}

fn create(disk: &LogDisk, view: View, list: Lid) {
    push(disk, view, Op::CreateList { list, hints: ListHints::default() });
}

/// Puts as many records as cannot be removed at once.
fn fill(disk: &LogDisk, view: View, list: Lid) {
    let mut aru = Aru::new(view);
    for index in 0..600 {
        aru.put_record(list, index, b"of the client".to_vec());
    }
    disk.commit(aru).expect("there is room");
}

/// A volume with two clients that both have [`LIST`], and the head of the second.
fn with_client() -> (Arc<dyn Device>, LogDisk, View) {
    let (device, disk) = formatted(16 << 20);
    assert_eq!(list_of(&disk, View::HEAD, 700), LIST);
    let head = disk.new_client("client", ClientKind::Application).expect("there is room").head();
    disk.checkpoint().expect("the device works");
    (device, disk, head)
}

/// The disk as it is found after a crash, without a checkpoint since, which must be as it was.
fn crash(device: &Arc<dyn Device>, disk: LogDisk) -> LogDisk {
    disk.flush(CommitSeq::LATEST).expect("the device works");
    let before = ModelVersions::read_from(&disk).expect("readable");
    drop(disk);
    let disk = open(device);
    let after = ModelVersions::read_from(&disk).expect("readable");
    assert_eq!(after.diff(&before), None, "after the crash, and before it");
    disk
}

#[test]
fn what_was_removed_before_a_list_was_made_again_does_not_come_back() {
    let (device, disk, head) = with_client();
    fill(&disk, head, LIST);
    push(&disk, head, Op::DeleteList { list: LIST });
    // The removal of the list is finished for it; the log does not tell.
    create(&disk, head, LIST);
    push(&disk, head, Op::PutRecord { list: LIST, index: 9, value: Record::from(*b"new") });
    let disk = crash(&device, disk);
    assert_eq!(disk.records(head, LIST, 0, 10).expect("readable").len(), 1);
    assert_eq!(disk.records(View::HEAD, LIST, 0, 1000).expect("readable").len(), 700);
}

#[test]
fn what_a_deleted_snapshot_had_does_not_come_back() {
    let (device, disk, head) = with_client();
    fill(&disk, head, LIST);
    let kept = disk.snapshot(head.branch, None).expect("there is room").view();
    push(&disk, head, Op::DeleteList { list: LIST });
    disk.delete(kept).expect("it is not held");
    while disk.background_step().expect("the device works") {}
    // What the snapshot had was collected; the log does not tell that either.
    create(&disk, head, LIST);
    let disk = crash(&device, disk);
    assert_eq!(disk.records(head, LIST, 0, 10).expect("readable"), []);
}

#[test]
fn a_list_that_the_first_client_makes_leaves_those_of_others_alone() {
    let (device, disk, head) = with_client();
    let list = Lid(77);
    create(&disk, head, list);
    fill(&disk, head, list);
    create(&disk, View::HEAD, list);
    fill(&disk, View::HEAD, list);
    push(&disk, View::HEAD, Op::DeleteList { list });
    create(&disk, View::HEAD, list);
    let disk = crash(&device, disk);
    assert_eq!(disk.records(head, list, 0, 1000).expect("readable").len(), 600);
    assert_eq!(disk.records(View::HEAD, list, 0, 10).expect("readable"), []);
}

#[test]
fn a_client_is_there_whole_or_not_at_all() {
    let memory = Arc::new(MemoryDevice::new(16 << 20));
    let device: Arc<dyn Device> = Arc::clone(&memory) as _;
    let options = dendro_logdisk::FormatOptions {
        segment_size_bytes: 256 << 10,
        ..dendro_logdisk::FormatOptions::default()
    };
    dendro_logdisk::format(&device, &options, &crate::common::clock()).expect("large enough");
    let disk = open(&device);
    assert_eq!(disk.superblock().incompatible & INCOMPATIBLE_CLIENTS, 0);
    disk.new_client("a/b", ClientKind::Block).expect_err("it is no name");
    assert_eq!(disk.superblock().incompatible & INCOMPATIBLE_CLIENTS, 0);
    let begun = disk.begin_receive(None, Some(ClientKind::Block)).expect("there is room");
    create(&disk, begun.head(), LIST);
    let disk = crash(&device, disk);
    assert_ne!(disk.superblock().incompatible & INCOMPATIBLE_CLIENTS, 0);
    assert_eq!(disk.versions().clients().len(), 1);
    let head = disk.name_client(begun.branch, "client").expect("it was begun").head();
    let disk = crash(&device, disk);
    let clients = disk.versions().clients();
    assert_eq!((clients[1].kind, clients[1].head), (Some(ClientKind::Block), Some(begun.branch)));
    let state = ModelState::read_view(&disk, head).expect("readable");
    assert_eq!(state.last_list(), Some(LIST));
    disk.delete(head).expect("nothing protects it");
    let disk = crash(&device, disk);
    assert_eq!(disk.versions().clients().len(), 1);
}
