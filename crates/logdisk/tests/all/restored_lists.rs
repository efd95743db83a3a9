//! A list that a version has lost or deleted is made again, with a number that other versions may
//! have. What was deleted of it stays away, also when the log is applied again.

use std::sync::Arc;

use dendro_check::{Options, verify};
use dendro_device::Device;
use dendro_disk::{
    Aru, CommitSeq, Error, Lid, ListHints, Locality, LogicalDisk, Op, Result, Versions, View,
};
use dendro_logdisk::LogDisk;

use crate::common::{delete, drain, formatted, list_of, open};

/// So few entries that a deletion takes them out at once, and more than that.
const COUNTS: [u64; 2] = [10, 2_000];

/// Makes a list again, with one record.
fn restore(disk: &LogDisk, view: View, list: Lid) -> Result<CommitSeq> {
    let mut aru = Aru::new(view);
    aru.restore_list(list, ListHints::default()).put_record(list, 7, &b"new"[..]);
    disk.commit(aru)
}

/// Takes out what no version has, without a checkpoint.
fn take_out(disk: &LogDisk) {
    let step = || Ok::<_, Error>(disk.removal_step()? || disk.collection_step()?);
    while step().expect("the device works") {}
}

/// Leaves the disk as a crash does, with all of the log.
fn crash(device: &Arc<dyn Device>, disk: LogDisk) -> LogDisk {
    disk.flush(CommitSeq::LATEST).expect("the device works");
    drop(disk);
    open(device)
}

/// Asserts that a list has what [`restore`] has put in it and nothing else, also after a crash.
fn assert_restored(device: &Arc<dyn Device>, disk: LogDisk, view: View, list: Lid, what: &str) {
    let assert_new = |disk: &LogDisk| {
        let records = disk.records(view, list, 0, 3).expect("the list is there");
        assert_eq!(records, [(7, b"new"[..].into())], "{what}");
        assert_eq!(disk.count_pages(view, list, 0..1 << 40), Ok(0), "{what}");
    };
    assert_new(&disk);
    let disk = crash(device, disk);
    assert_new(&disk);
    drain(&disk);
    assert_new(&disk);
    disk.shut_down().expect("the device works");
    assert_eq!(verify(&**device, &Options { data: true }).findings, [], "{what}");
}

#[test]
fn a_list_is_restored_empty_when_all_of_it_was_taken_out() {
    for count in COUNTS {
        let (device, disk) = formatted(64 << 20);
        let list = list_of(&disk, View::HEAD, count);
        disk.checkpoint().expect("the device works");
        delete(&disk, View::HEAD, list);
        take_out(&disk);
        restore(&disk, View::HEAD, list).expect("no version has it");
        assert_restored(&device, disk, View::HEAD, list, &format!("{count} records"));
    }
}

#[test]
fn a_list_is_restored_empty_when_the_last_version_that_had_it_was_deleted() {
    for count in COUNTS {
        let (device, disk) = formatted(64 << 20);
        let list = list_of(&disk, View::HEAD, count);
        let snapshot = disk.snapshot(0, None).expect("there is room").view();
        disk.checkpoint().expect("the device works");
        delete(&disk, View::HEAD, list);
        assert_eq!(restore(&disk, View::HEAD, list), Err(Error::ListExists(list)));
        disk.delete(snapshot).expect("it is there");
        take_out(&disk);
        restore(&disk, View::HEAD, list).expect("no version has it");
        assert_restored(&device, disk, View::HEAD, list, &format!("{count} records"));
    }
}

#[test]
fn a_branch_that_has_deleted_an_inherited_list_does_not_see_it_again() {
    for count in COUNTS {
        for crashes in [false, true] {
            let (device, mut disk) = formatted(64 << 20);
            let list = list_of(&disk, View::HEAD, count);
            let branch = disk.branch_off(View::HEAD, "branch").expect("there is room").head();
            disk.checkpoint().expect("the device works");
            let mut aru = Aru::new(branch);
            aru.delete_record(list, 3);
            disk.commit(aru).expect("there is room");
            delete(&disk, branch, list);
            // Its parent still has the list.
            assert_eq!(restore(&disk, branch, list), Err(Error::ListExists(list)));
            delete(&disk, View::HEAD, list);
            if crashes {
                disk = crash(&device, disk);
            }
            take_out(&disk);
            restore(&disk, branch, list).expect("no version has it");
            let what = format!("{count} records, {crashes}");
            assert_restored(&device, disk, branch, list, &what);
        }
    }
}

#[test]
fn a_branch_does_not_see_a_deleted_list_again_whose_entry_its_parent_has_replaced() {
    for count in COUNTS {
        for crashes in [false, true] {
            let (device, mut disk) = formatted(64 << 20);
            let list = list_of(&disk, View::HEAD, count);
            let branch = disk.branch_off(View::HEAD, "branch").expect("there is room").head();
            delete(&disk, branch, list);
            let snapshot = disk.snapshot(0, None).expect("there is room").view();
            let mut aru = Aru::new(View::HEAD);
            let hints = ListHints { locality: Locality::Clustered, ..ListHints::default() };
            aru.push(Op::SetHints { list, hints });
            disk.commit(aru).expect("there is room");
            disk.delete(snapshot).expect("it is there");
            take_out(&disk);
            if crashes {
                disk = crash(&device, disk);
                take_out(&disk);
            }
            assert_eq!(restore(&disk, branch, list), Err(Error::ListExists(list)));
            assert_eq!(disk.record(branch, list, 3), Ok(None));
            delete(&disk, View::HEAD, list);
            take_out(&disk);
            restore(&disk, branch, list).expect("no version has it");
            assert_restored(&device, disk, branch, list, &format!("{count} records, {crashes}"));
        }
    }
}
