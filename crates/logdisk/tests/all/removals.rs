//! Deleting a list is a bounded change, whatever the list holds. The rest is removed afterwards.

use std::sync::Arc;
use std::time::Duration;

use dendro_base::priority;
use dendro_check::{FindingKind, Options, verify};
use dendro_device::Device;
use dendro_disk::{Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, PAGE_SIZE, Versions, View};
use dendro_logdisk::{CLEANER_NICENESS, LockHolder, LogDisk};

use crate::common::{delete, drain, formatted, list_of, open};

/// Returns how much deleting a list of `count` records changes in memory at once.
fn dirtied_by_deleting(count: u64, has_snapshot: bool) -> u64 {
    let (_, disk) = formatted(64 << 20);
    let list = list_of(&disk, View::HEAD, count);
    if has_snapshot {
        disk.snapshot(0, Some("kept")).expect("there is room");
    }
    disk.checkpoint().expect("the device works");
    let before = disk.stats();
    delete(&disk, View::HEAD, list);
    assert_eq!(disk.stats().commit_seq, before.commit_seq + 1);
    disk.stats().dirty_node_bytes
}

#[test]
fn deleting_a_list_changes_equally_little_of_the_map_whatever_it_holds() {
    for has_snapshot in [false, true] {
        let (few, many) =
            (dirtied_by_deleting(1_000, has_snapshot), dirtied_by_deleting(50_000, has_snapshot));
        assert!(many <= few + (64 << 10), "{few} bytes, and {many} of fifty times as many records");
    }
}

#[test]
fn the_remains_of_a_deleted_list_are_invisible_and_are_removed() {
    let (device, disk) = formatted(64 << 20);
    let before = disk.stats().live_bytes;
    let list = list_of(&disk, View::HEAD, 20_000);
    disk.checkpoint().expect("the device works");
    delete(&disk, View::HEAD, list);
    let check = |disk: &LogDisk| {
        assert_eq!(disk.hints(View::HEAD, list), Ok(None));
        assert_eq!(disk.lists(View::HEAD, Lid(0), 9), Ok(vec![]));
        assert_eq!(disk.record(View::HEAD, list, 3), Ok(None));
        assert_eq!(disk.records(View::HEAD, list, 0, 9), Ok(vec![]));
        assert_eq!(disk.next_data(View::HEAD, list, 0), Ok(None));
        assert_eq!(disk.count_pages(View::HEAD, list, 0..1 << 40), Ok(0));
        let mut page = [1; PAGE_SIZE];
        disk.read_pages(View::HEAD, list, 32, &mut page).expect("it is a hole");
        assert_eq!(page, [0; PAGE_SIZE]);
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(list, 3, b"x".to_vec());
        assert_eq!(disk.commit(aru), Err(Error::NoSuchList(list)));
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, 32, vec![1; PAGE_SIZE]);
        assert_eq!(disk.commit(aru), Err(Error::NoSuchList(list)));
    };
    check(&disk);
    assert!(disk.removal_step().expect("the device works"), "something is left");
    check(&disk);
    // A snapshot does not keep what was deleted before it.
    let snapshot = disk.snapshot(0, None).expect("there is room").view();
    assert_eq!(disk.record(snapshot, list, 3), Ok(None));
    check(&disk);
    drain(&disk);
    check(&disk);
    let left = disk.stats().live_bytes - before;
    assert!(left < 64 << 10, "{left} bytes are left");
    disk.shut_down().expect("the device works");
    drop(disk);
    assert_eq!(verify(&*device, &Options { data: true }).findings, []);
}

#[test]
fn it_is_known_how_long_each_kind_of_work_held_the_lock() {
    let (_, disk) = formatted(64 << 20);
    // The clock goes on whenever it is read.
    let held = |disk: &LogDisk, holder: LockHolder| {
        let at = LockHolder::ALL.iter().position(|one| *one == holder).expect("it is one of them");
        !disk.stats().longest_holds[at].is_zero()
    };
    let list = list_of(&disk, View::HEAD, 20_000);
    assert!(!held(&disk, LockHolder::Removal) && !held(&disk, LockHolder::Versions));
    disk.records(View::HEAD, list, 0, 20_000).expect("the device works");
    assert!(held(&disk, LockHolder::Walk));
    disk.snapshot(0, None).expect("there is room");
    assert!(held(&disk, LockHolder::Versions));
    disk.checkpoint().expect("the device works");
    assert!(held(&disk, LockHolder::Checkpoint));
    let other = list_of(&disk, View::HEAD, 1_000);
    delete(&disk, View::HEAD, other);
    assert!(disk.removal_step().expect("the device works"));
    assert!(held(&disk, LockHolder::Removal));
}

/// How often this thread has given up its CPU, and for how long it has had one.
fn switches_and_time() -> (u64, Duration) {
    let [status, times] = ["status", "schedstat"].map(|name| {
        std::fs::read_to_string(format!("/proc/thread-self/{name}")).expect("Linux has it")
    });
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    let nanoseconds = times.split(' ').next().and_then(|time| time.parse().ok());
    let count = count.and_then(|count| count.trim().parse().ok());
    (count.expect("a number"), Duration::from_nanos(nanoseconds.expect("a number")))
}

#[test]
fn a_thread_of_low_priority_gives_way_while_it_removes_what_a_snapshot_has_of_a_list() {
    let (_, disk) = formatted(64 << 20);
    let list = list_of(&disk, View::HEAD, 200_000);
    disk.snapshot(0, Some("kept")).expect("there is room");
    disk.checkpoint().expect("the device works");
    delete(&disk, View::HEAD, list);
    let remove = || {
        priority::lower_thread(CLEANER_NICENESS);
        let (switches, time) = switches_and_time();
        while disk.removal_step().expect("the device works") {}
        let now = switches_and_time();
        // Without the privilege the thread keeps its priority.
        priority::is_low().then(|| (now.0 - switches, now.1 - time))
    };
    let given_way = std::thread::scope(|scope| scope.spawn(remove).join().expect("it ends"));
    assert!(
        given_way.is_none_or(|(switches, time)| Duration::from_millis(switches) >= time),
        "{given_way:?}"
    );
}

#[test]
fn a_mount_continues_a_removal_that_a_crash_interrupted() {
    // The remains are in the log alone or in a checkpoint, and a part of them was removed or none.
    for (has_checkpoint, step_count) in [(false, 0), (false, 5), (true, 0), (true, 5)] {
        let (device, disk) = formatted(64 << 20);
        let before = disk.stats().live_bytes;
        let list = list_of(&disk, View::HEAD, 20_000);
        disk.checkpoint().expect("the device works");
        delete(&disk, View::HEAD, list);
        for _ in 0..step_count {
            assert!(disk.removal_step().expect("the device works"));
        }
        if has_checkpoint {
            disk.checkpoint().expect("the device works");
        }
        disk.flush(CommitSeq::LATEST).expect("the device works");
        drop(disk);
        let kinds = |device: &dyn Device| -> Vec<_> {
            verify(device, &Options { data: true }).findings.iter().map(|f| f.kind).collect()
        };
        let expected: &[_] = if has_checkpoint { &[] } else { &[FindingKind::LogGoesOn] };
        assert_eq!(kinds(&*device), expected);
        let disk = open(&device);
        assert_eq!(disk.record(View::HEAD, list, 3), Ok(None));
        assert!(disk.removal_step().expect("the device works"), "something is left");
        drain(&disk);
        let left = disk.stats().live_bytes - before;
        assert!(left < 64 << 10, "{left} bytes are left");
        disk.shut_down().expect("the device works");
        assert_eq!(kinds(&*device), []);
    }
}

#[test]
fn a_snapshot_keeps_what_it_has_of_a_deleted_list() {
    let (device, disk) = formatted(64 << 20);
    let list = list_of(&disk, View::HEAD, 5_000);
    let snapshot = disk.snapshot(0, None).expect("there is room").view();
    // Half of the records are deleted one by one, as the entries of a directory are.
    for from in (0..2_500).step_by(500) {
        let mut aru = Aru::new(View::HEAD);
        (from..from + 500).for_each(|index| {
            aru.delete_record(list, index);
        });
        disk.commit(aru).expect("there is room");
    }
    delete(&disk, View::HEAD, list);
    drain(&disk);
    assert_eq!(disk.records(snapshot, list, 0, 10_000).map(|found| found.len()), Ok(5_000));
    assert_eq!(disk.count_pages(snapshot, list, 0..10_000), Ok(5_000_u64.div_ceil(32)));
    assert_eq!(disk.hints(View::HEAD, list), Ok(None));
    disk.delete(snapshot).expect("it is there");
    drain(&disk);
    assert!(disk.stats().live_bytes < 64 << 10, "{} bytes are left", disk.stats().live_bytes);
    disk.shut_down().expect("the device works");
    assert_eq!(verify(&*device, &Options { data: true }).findings, []);
}

#[test]
fn a_list_can_be_recreated_before_or_after_its_removal() {
    for (is_one_unit, count) in [(false, 20_000), (true, 900)] {
        let (_, disk) = formatted(64 << 20);
        let list = list_of(&disk, View::HEAD, count);
        let mut aru = Aru::new(View::HEAD);
        aru.delete_list(list);
        if !is_one_unit {
            disk.commit(aru).expect("a list can be deleted");
            aru = Aru::new(View::HEAD);
        }
        aru.create_list(list, ListHints::default()).put_record(list, 9, b"new".to_vec());
        disk.commit(aru).expect("the number is free");
        drain(&disk);
        let new: Arc<[u8]> = Arc::from(&b"new"[..]);
        assert_eq!(disk.records(View::HEAD, list, 0, 9), Ok(vec![(9, new)]));
        assert_eq!(disk.count_pages(View::HEAD, list, 0..1 << 40), Ok(0));
    }
}

#[test]
fn a_long_list_that_only_a_deleted_version_had_can_be_recreated_at_once() {
    let (device, disk) = formatted(64 << 20);
    let branch = disk.branch_off(View::HEAD, "branch").expect("there is room").head();
    let list = list_of(&disk, branch, 20_000);
    disk.delete(branch).expect("it is not held");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default()).put_record(list, 9, b"new".to_vec());
    disk.commit(aru).expect("the number is free");
    let new: Arc<[u8]> = Arc::from(&b"new"[..]);
    assert_eq!(disk.records(View::HEAD, list, 0, 9), Ok(vec![(9, new)]));
    assert_eq!(disk.count_pages(View::HEAD, list, 0..1 << 40), Ok(0));
    drain(&disk);
    disk.shut_down().expect("the device works");
    assert_eq!(verify(&*device, &Options { data: true }).findings, []);
}

/// Deletes a list that another version `keeps`. After each of several numbers of removal steps,
/// `release` makes that version release the list. Asserts that nothing of the list is left.
fn remove_while_another_version_releases(
    keeps: impl Fn(&LogDisk) -> View,
    release: impl Fn(&LogDisk, View, Lid),
) {
    for step_count in 1..6 {
        let (device, disk) = formatted(64 << 20);
        let list = list_of(&disk, View::HEAD, 3_000);
        let other = keeps(&disk);
        delete(&disk, View::HEAD, list);
        for _ in 0..step_count {
            assert!(disk.removal_step().expect("the device works"), "more than {step_count} steps");
        }
        release(&disk, other, list);
        while disk.removal_step().expect("the device works") {}
        drain(&disk);
        disk.shut_down().expect("the device works");
        drop(disk);
        let report = verify(&*device, &Options { data: true });
        assert_eq!(report.findings, []);
        assert_eq!(report.counts.page_count, 0, "after {step_count} steps");
    }
}

#[test]
fn removal_finds_what_a_version_deleted_meanwhile_saw() {
    remove_while_another_version_releases(
        |disk| disk.snapshot(0, Some("kept")).expect("there is room").view(),
        |disk, kept, _| disk.delete(kept).expect("it is not held"),
    );
}

#[test]
fn removal_finds_what_a_clone_deletes_meanwhile() {
    remove_while_another_version_releases(
        |disk| disk.branch_off(View::HEAD, "clone").expect("there is room").head(),
        delete,
    );
}

#[test]
fn free_space_includes_what_a_deletion_will_free() {
    let (_, disk) = formatted(64 << 20);
    let before = disk.space();
    let list = list_of(&disk, View::HEAD, 20_000);
    let used = disk.space();
    delete(&disk, View::HEAD, list);
    let after = disk.space();
    assert!(used.available_bytes + (1 << 20) < before.available_bytes, "{used:?}");
    assert!(after.available_bytes + (256 << 10) > before.available_bytes, "{after:?}");
}
