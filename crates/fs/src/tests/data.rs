//! The contents of files.

use dendro_base::Rng;
use dendro_disk::model::ModelDisk;
use dendro_disk::{
    Chore as _, ChoreStep, GROUP_PAGES, Lid, LogicalDisk, MAX_UNIT_GROUPS, PAGE_SIZE, View,
};

use super::{Fixture, USER, errno, noatime};
use crate::layout::format::{ORPHAN_LIST, ORPHAN_PUNCH};
use crate::layout::inode::InodeState;
use crate::layout::orphan_list;
use crate::types::MAX_PAGES_FREED;
use crate::{
    AtimePolicy, FallocateFlags, FileSystem, FileTime, FreeingLimits, Ino, LongChange, OpenOptions,
    Options, Seek, SetAttr, SetTime,
};

const PAGE: u64 = PAGE_SIZE as u64;
const TIB: u64 = 1 << 40;

#[test]
fn a_short_file_costs_no_page_and_gets_one_when_it_grows() {
    let mut fixture = Fixture::new();
    let ino = fixture.file_with("f", b"hello");
    let lid = Lid(ino.0);
    assert_eq!(fixture.disk.next_data(View::HEAD, lid, 0), Ok(None));
    assert_eq!(fixture.attr(ino).blocks_512, 1);
    fixture.fs.write(ino, 5, b" world", false).unwrap();
    fixture.truncate(ino, 8);
    assert_eq!(fixture.contents(ino), b"hello wo");
    assert_eq!(fixture.disk.next_data(View::HEAD, lid, 0), Ok(None));
    fixture.fs.write(ino, 198, b"xyz", false).unwrap();
    assert_eq!(fixture.disk.next_data(View::HEAD, lid, 0), Ok(Some(0)));
    assert_eq!(fixture.attr(ino).blocks_512, 8);
    fixture.remount();
    let contents = fixture.contents(ino);
    assert!(contents.starts_with(b"hello wo\0\0") && contents.ends_with(b"\0xyz"));
    assert_eq!(contents.len(), 201);
    fixture.assert_sound();
}

#[test]
fn an_aligned_overwrite_is_one_commit_of_a_page_and_an_inode() {
    let fixture =
        Fixture::with(dendro_disk::model::ModelDisk::new(None).recording(), noatime(), u64::MAX);
    let ino = fixture.file_with("f", &[1; 8 * PAGE_SIZE]);
    let before = fixture.disk.history().len();
    fixture.fs.write(ino, PAGE, &[2; PAGE_SIZE], false).unwrap();
    assert_eq!(fixture.disk.history().len(), before + 1);
    assert_eq!(fixture.attr(ino).blocks_512, 64);
}

#[test]
fn reading_past_the_end_is_short_and_never_shows_what_was_cut_off() {
    let fixture = Fixture::new();
    let ino = fixture.file_with("f", &[7; 10_000]);
    let mut buf = [0xee; 20_000];
    assert_eq!(fixture.fs.read(ino, 9_000, &mut buf), Ok(1_000));
    assert_eq!(fixture.fs.read(ino, 10_000, &mut buf), Ok(0));
    assert_eq!(fixture.fs.read(ino, u64::MAX, &mut buf), Ok(0));
    fixture.truncate(ino, 4_100);
    fixture.truncate(ino, 10_000);
    let contents = fixture.contents(ino);
    assert_eq!((&contents[..4_100], &contents[4_100..]), (&[7; 4_100][..], &[0; 5_900][..]));
    assert_eq!(fixture.attr(ino).blocks_512, 16);
    fixture.assert_sound();
}

#[test]
fn files_reach_the_largest_offset_and_no_further() {
    let fixture = Fixture::new();
    let ino = fixture.file("f");
    let far = 20 * TIB + 5;
    fixture.fs.write(ino, far, b"far", false).unwrap();
    assert_eq!(fixture.attr(ino).size_bytes, far + 3);
    assert_eq!(fixture.attr(ino).blocks_512, 8);
    let mut buf = [0; 3];
    fixture.fs.read(ino, far, &mut buf).unwrap();
    assert_eq!(&buf, b"far");
    let last = i64::MAX as u64;
    assert_eq!(fixture.fs.write(ino, last - 2, b"abcdef", false), Ok(2));
    assert_eq!(errno(fixture.fs.write(ino, last, b"a", false)), 27);
    assert_eq!(fixture.attr(ino).size_bytes, last);
    let too_large = SetAttr { size_bytes: Some(last + 1), ..SetAttr::default() };
    assert_eq!(errno(fixture.fs.setattr(&USER, ino, &too_large)), 27);
    fixture.truncate(ino, 0);
    assert_eq!(fixture.attr(ino).blocks_512, 0);
    fixture.assert_sound();
}

#[test]
fn holes_and_data_are_found_where_they_are() {
    let fixture = Fixture::new();
    let ino = fixture.file("f");
    fixture.fs.write(ino, 2 * PAGE + 10, &[1; 10], false).unwrap();
    fixture.fs.write(ino, 5 * PAGE, &[2; 10], false).unwrap();
    fixture.truncate(ino, 8 * PAGE);
    let seek = |offset, what| fixture.fs.lseek(ino, offset, what);
    assert_eq!(seek(0, Seek::Data), Ok(2 * PAGE));
    assert_eq!(seek(2 * PAGE + 5, Seek::Data), Ok(2 * PAGE + 5));
    assert_eq!(seek(0, Seek::Hole), Ok(0));
    assert_eq!(seek(2 * PAGE + 5, Seek::Hole), Ok(3 * PAGE));
    assert_eq!(seek(3 * PAGE, Seek::Data), Ok(5 * PAGE));
    assert_eq!(errno(seek(6 * PAGE, Seek::Data)), 6);
    assert_eq!(seek(6 * PAGE, Seek::Hole), Ok(6 * PAGE));
    assert_eq!(errno(seek(8 * PAGE, Seek::Hole)), 6);
    fixture.truncate(ino, 5 * PAGE + 3);
    assert_eq!(seek(5 * PAGE, Seek::Hole), Ok(5 * PAGE + 3));
    let short = fixture.file_with("short", b"abc");
    assert_eq!(fixture.fs.lseek(short, 1, Seek::Data), Ok(1));
    assert_eq!(fixture.fs.lseek(short, 1, Seek::Hole), Ok(3));
}

#[test]
fn preallocation_counts_blocks_and_is_given_back_by_truncation() {
    let fixture = Fixture::new();
    let ino = fixture.file_with("f", b"abc");
    let allocate = |offset, len, flags| {
        fixture.fs.fallocate(ino, offset, len, flags, &LongChange::uncancelled(false))
    };
    allocate(0, 10 * PAGE, FallocateFlags::KEEP_SIZE).unwrap();
    assert_eq!((fixture.attr(ino).size_bytes, fixture.attr(ino).blocks_512), (3, 80));
    fixture.assert_sound();
    fixture.fs.write(ino, 3 * PAGE, &[1; 100], false).unwrap();
    assert_eq!(fixture.attr(ino).blocks_512, 80);
    fixture.truncate(ino, 5 * PAGE);
    assert_eq!(fixture.attr(ino).blocks_512, 80, "what lies behind a longer file stays");
    fixture.assert_sound();
    fixture.truncate(ino, 3 * PAGE + 100);
    assert_eq!(fixture.attr(ino).blocks_512, 32);
    allocate(0, 10 * PAGE, FallocateFlags::KEEP_SIZE).unwrap();
    fixture.truncate(ino, 3 * PAGE + 100);
    assert_eq!(fixture.attr(ino).blocks_512, 32, "cut off where it ends, it keeps nothing behind");
    allocate(20 * PAGE, 1, FallocateFlags::empty()).unwrap();
    assert_eq!(fixture.attr(ino).size_bytes, 20 * PAGE + 1);
    fixture.assert_sound();
    assert_eq!(errno(allocate(0, 0, FallocateFlags::empty())), 22);
    assert_eq!(errno(allocate(1, i64::MAX as u64, FallocateFlags::empty())), 27);
    assert_eq!(errno(allocate(0, 5, FallocateFlags::PUNCH_HOLE)), 95);
    assert_eq!(errno(allocate(1, PAGE, FallocateFlags::COLLAPSE_RANGE)), 22);
    assert_eq!(errno(allocate(20 * PAGE, PAGE, FallocateFlags::COLLAPSE_RANGE)), 22);
}

#[test]
fn a_large_truncation_goes_in_steps_that_a_crash_may_interrupt_and_a_removal_is_one_unit() {
    let disk = dendro_disk::model::ModelDisk::new(None).recording();
    let fixture = Fixture::with(disk, noatime(), u64::MAX);
    let make = |name| {
        let ino = fixture.file(name);
        // The model disk does not charge allocated pages.
        let len = (3 * MAX_PAGES_FREED + 5) * PAGE;
        fixture
            .fs
            .fallocate(ino, 0, len, FallocateFlags::empty(), &LongChange::uncancelled(false))
            .unwrap();
        fixture.fs.write(ino, 0, &[1; 2 * PAGE_SIZE], false).unwrap();
        ino
    };
    let (cut, gone) = (make("cut"), make("gone"));
    let before = fixture.disk.history().len();
    fixture.truncate(cut, PAGE + 1);
    let between = fixture.disk.history().len();
    assert!(between - before >= 4, "{}", between - before);
    fixture.fs.unlink(Ino::ROOT, b"gone").unwrap();
    let history = fixture.disk.history();
    assert_eq!(history.len() - between, 1);
    assert_eq!(fixture.attr(cut).blocks_512, 16);
    assert_eq!(fixture.attr(gone).nlink, 0);
    fixture.assert_sound();
    for (_, state) in history.into_iter().skip(before) {
        let disk = dendro_disk::model::ModelDisk::from_state(state, None);
        let mut crashed = Fixture {
            disk: std::sync::Arc::new(disk),
            clock: fixture.clock.clone(),
            fs: fixture.fs.clone(),
            options: noatime(),
            hash_mask: u64::MAX,
        };
        crashed.assert_sound();
        crashed.remount();
        crashed.assert_sound();
        assert_eq!(crashed.attr(cut).size_bytes, PAGE + 1);
        assert_eq!(crashed.attr(cut).blocks_512, 16);
        crashed.truncate(cut, 10 * PAGE);
        assert!(crashed.contents(cut)[PAGE_SIZE + 1..].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn a_file_with_a_page_here_and_there_is_cut_off_in_units_that_are_short() {
    let fixture = Fixture::new();
    let ino = fixture.file("f");
    let count = 2 * MAX_UNIT_GROUPS;
    for index in 0..count {
        let at = index * GROUP_PAGES * PAGE;
        fixture.fs.write(ino, at, &[1; 10], false).unwrap();
    }
    fixture.truncate(ino, (count - 5) * GROUP_PAGES * PAGE);
    assert_eq!(fixture.attr(ino).blocks_512, (count - 5) * 8);
    fixture.assert_sound();
    fixture.truncate(ino, 3);
    assert_eq!(fixture.attr(ino).blocks_512, 8);
    fixture.assert_sound();
    // Pages that were allocated behind the end are freed, too.
    let (flags, patron) = (FallocateFlags::KEEP_SIZE, LongChange::uncancelled(false));
    for index in [1 << 12, 1 << 20, 1 << 30] {
        fixture.fs.fallocate(ino, index * PAGE, PAGE, flags, &patron).unwrap();
    }
    fixture.truncate(ino, 3);
    assert_eq!(fixture.attr(ino).blocks_512, 8);
    fixture.assert_sound();
}

#[test]
fn copies_keep_holes_and_stop_at_the_end() {
    let fixture = Fixture::new();
    let from = fixture.file("from");
    let mut data = vec![0; 3 << 20];
    Rng::new(1).fill(&mut data);
    fixture.fs.write(from, 0, &data, false).unwrap();
    fixture.fs.write(from, 9 << 20, &data[..5000], false).unwrap();
    let to = fixture.file_with("to", &vec![3; 4 << 20]);
    let copied =
        fixture.fs.copy_file_range(from, 0, to, 0, u64::MAX, &LongChange::uncancelled(false));
    assert_eq!(copied, Ok((9 << 20) + 5000));
    assert_eq!(fixture.contents(to), fixture.contents(from));
    assert_eq!(fixture.attr(to).blocks_512, fixture.attr(from).blocks_512);
    let unaligned = fixture.file("unaligned");
    fixture
        .fs
        .copy_file_range(from, 1000, unaligned, 77, 2 << 20, &LongChange::uncancelled(false))
        .unwrap();
    assert_eq!(fixture.contents(unaligned)[77..], data[1000..(2 << 20) + 1000]);
    assert_eq!(
        errno(fixture.fs.copy_file_range(to, 0, to, 10, 100, &LongChange::uncancelled(false))),
        22
    );
    assert_eq!(
        fixture.fs.copy_file_range(to, 0, to, 20 << 20, 100, &LongChange::uncancelled(false)),
        Ok(100)
    );
    fixture.assert_sound();
}

#[test]
fn long_work_ends_between_two_steps_when_nobody_waits_for_it() {
    let fixture = Fixture::new();
    let asked = std::cell::Cell::new(0);
    let patron = |patience| {
        asked.set(0);
        move |asked: &std::cell::Cell<u32>| {
            asked.set(asked.get() + 1);
            asked.get() > patience
        }
    };
    let (from, to) = (fixture.file("from"), fixture.file("to"));
    fixture.fs.write(from, 0, &vec![7; 5 << 20], false).unwrap();
    let leaves = patron(2);
    let patron_of_copy = LongChange { kill_priv: false, is_cancelled: &|| leaves(&asked) };
    let copied = fixture.fs.copy_file_range(from, 0, to, 0, u64::MAX, &patron_of_copy);
    assert_eq!(copied, Ok(3 << 20), "what is done is returned");
    assert_eq!(fixture.attr(to).size_bytes, 3 << 20);

    let step = 32 << 20;
    let leaves = patron(0);
    let hasty = LongChange { kill_priv: false, is_cancelled: &|| leaves(&asked) };
    let allocate = |ino, len, flags| fixture.fs.fallocate(ino, 0, len, flags, &hasty);
    let long = fixture.file("long");
    assert_eq!(errno(allocate(long, 3 * step, FallocateFlags::empty())), 4);
    // After an error the kernel keeps the size that it knows.
    let attr = fixture.attr(long);
    assert_eq!((attr.size_bytes, attr.blocks_512), (0, step / 512));
    assert_eq!(allocate(long, step, FallocateFlags::empty()), Ok(()), "no step is left out");
    assert_eq!(errno(allocate(long, 2 * step, FallocateFlags::ZERO_RANGE)), 4);
    assert_eq!(fixture.attr(long).size_bytes, step);
    let everything = FallocateFlags::empty();
    fixture.fs.fallocate(long, 0, 3 * step, everything, &LongChange::uncancelled(false)).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(allocate(long, 3 * step, punch), Ok(()), "a hole is made whole");
    assert_eq!(errno(fixture.fs.lseek(long, 0, Seek::Data)), 6);
    fixture.assert_sound();
}

#[test]
fn a_hole_of_any_size_is_there_at_once_wherever_a_crash_interrupts_the_freeing() {
    let disk = dendro_disk::model::ModelDisk::new(None).recording();
    let freeing = FreeingLimits { pages_in_unit: 256, units_in_call: 2 };
    let options = Options { freeing, ..noatime() };
    let fixture = Fixture::with(disk, options.clone(), u64::MAX);
    let ino = fixture.file("f");
    let end_page = 4 * MAX_PAGES_FREED;
    // Here dense, there a page now and then.
    fixture.fs.write(ino, 0, &[1; 20 * PAGE_SIZE], false).unwrap();
    for page in (20..end_page).step_by(1_000) {
        fixture.fs.write(ino, page * PAGE, &[2; PAGE_SIZE], false).unwrap();
    }
    fixture.fs.write(ino, end_page * PAGE, &[3; PAGE_SIZE], false).unwrap();
    let before = fixture.disk.history().len();
    let hole = PAGE + 7..end_page * PAGE + 9;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let uncancelled = LongChange::uncancelled(false);
    fixture.fs.fallocate(ino, hole.start, hole.end - hole.start, punch, &uncancelled).unwrap();
    assert_eq!(fixture.disk.history().len() - before, 3, "the rest is left to the background");
    let free_the_rest = |fs: &FileSystem| while fs.state().step() == ChoreStep::Done {};
    free_the_rest(&fixture.fs);
    let history = fixture.disk.history();
    assert!(history.len() - before >= 6, "{}", history.len() - before);
    let assert_whole = |fs: &FileSystem| {
        let attr = fs.getattr(ino).unwrap();
        assert_eq!((attr.size_bytes, attr.blocks_512), ((end_page + 1) * PAGE, 3 * 8));
        assert_eq!(fs.lseek(ino, 2 * PAGE, Seek::Data), Ok(end_page * PAGE));
        assert_eq!(fs.lseek(ino, 0, Seek::Hole), Ok(2 * PAGE));
        let mut bytes = vec![9; 30 * PAGE_SIZE];
        for (offset, edge) in [(PAGE, 7), (5 * PAGE, 0), (end_page * PAGE - PAGE, 0)] {
            let len = fs.read(ino, offset, &mut bytes).unwrap();
            let hole_end = (hole.end - offset).min(len as u64) as usize;
            assert!(bytes[..edge].iter().all(|&byte| byte == 1));
            assert!(bytes[edge..hole_end].iter().all(|&byte| byte == 0));
            assert!(bytes[hole_end..len].iter().all(|&byte| byte == 3));
        }
    };
    for (_, state) in history.into_iter().skip(before) {
        let disk = dendro_disk::model::ModelDisk::from_state(state, None);
        let mut crashed = Fixture {
            disk: std::sync::Arc::new(disk),
            clock: fixture.clock.clone(),
            fs: fixture.fs.clone(),
            options: Options { read_only: true, ..options.clone() },
            hash_mask: u64::MAX,
        };
        crashed.assert_sound();
        crashed.remount();
        assert_whole(&crashed.fs);
        crashed.options.read_only = false;
        crashed.remount();
        crashed.assert_sound();
        assert_whole(&crashed.fs);
        free_the_rest(&crashed.fs);
        crashed.assert_sound();
        assert_whole(&crashed.fs);
        assert_eq!(crashed.disk.next_data(View::HEAD, ino.lid(), 2), Ok(Some(end_page)));
        assert_eq!(crashed.disk.records(View::HEAD, ORPHAN_LIST, 0, 1), Ok(vec![]));
    }
}

#[test]
fn what_was_freed_by_who_changed_the_file_is_not_freed_again_in_the_background() {
    let freeing = FreeingLimits { pages_in_unit: 1, units_in_call: 1 };
    let fixture = Fixture::with(ModelDisk::new(None), Options { freeing, ..noatime() }, u64::MAX);
    let chore = || fixture.fs.state().step();
    let ino = fixture.file_with("f", &[1; 9 * PAGE_SIZE]);
    fixture.truncate(ino, PAGE);
    assert_eq!(fixture.disk.next_data(View::HEAD, ino.lid(), 1), Ok(Some(2)), "one is freed");
    assert_eq!(chore(), ChoreStep::Done);
    assert_eq!(fixture.disk.next_data(View::HEAD, ino.lid(), 1), Ok(Some(3)));
    fixture.fs.write(ino, 0, b"changed", false).unwrap();
    assert_eq!(fixture.disk.next_data(View::HEAD, ino.lid(), 1), Ok(None));
    let (keep, how) = (FallocateFlags::KEEP_SIZE, LongChange::uncancelled(false));
    fixture.fs.fallocate(ino, PAGE, 6 * PAGE, keep, &how).unwrap();
    assert_eq!(chore(), ChoreStep::Finished);
    assert_eq!(fixture.attr(ino).blocks_512, 7 * 8);
    fixture.assert_sound();
    // The file may be removed before its turn.
    fixture.truncate(ino, 0);
    fixture.fs.unlink(Ino::ROOT, b"f").unwrap();
    assert_eq!(chore(), ChoreStep::Done);
    assert_eq!(chore(), ChoreStep::Finished);
    assert_eq!(fixture.disk.records(View::HEAD, ORPHAN_LIST, 0, 1), Ok(vec![]));
    fixture.assert_sound();
}

#[test]
fn a_hole_whose_freeing_failed_is_there_and_is_freed_with_the_next_change() {
    let fixture = Fixture::new();
    let (from, gone) = (fixture.file("from"), fixture.file("gone"));
    for ino in [from, gone] {
        for page in [0, 1, MAX_PAGES_FREED + 5, 3 * MAX_PAGES_FREED] {
            fixture.fs.write(ino, page * PAGE, &[1; PAGE_SIZE], false).unwrap();
        }
        // As the first unit of a large hole leaves it.
        let state = fixture.fs.state();
        let node = state.node(ino);
        let mut guard = state.write(&node).unwrap();
        let mut inode = guard.edit();
        inode.state |= InodeState::PUNCHING;
        inode.punched = Some(Box::new(1..3 * MAX_PAGES_FREED));
        inode.pages -= 2;
        let mut aru = state.aru();
        orphan_list::enter(&mut aru, ino, ORPHAN_PUNCH);
        state.commit_inode(&mut aru, &mut guard, inode).unwrap();
    }
    fixture.assert_sound();
    assert_eq!(fixture.fs.lseek(from, PAGE, Seek::Data), Ok(3 * MAX_PAGES_FREED * PAGE));
    let to = fixture.file("to");
    let (end, how) = (3 * MAX_PAGES_FREED * PAGE, LongChange::uncancelled(false));
    assert_eq!(fixture.fs.copy_file_range(from, 0, to, 0, end, &how), Ok(end));
    assert_eq!(fixture.attr(to).blocks_512, 8);
    fixture.fs.unlink(Ino::ROOT, b"gone").unwrap();
    fixture.fs.write(from, PAGE, b"new", false).unwrap();
    assert_eq!(fixture.attr(from).blocks_512, 3 * 8);
    let mut bytes = [9; PAGE_SIZE];
    fixture.fs.read(from, PAGE, &mut bytes).unwrap();
    assert!(bytes.starts_with(b"new\0"));
    fixture.assert_sound();
}

#[test]
fn a_hole_reaching_far_past_all_data_is_punched_in_few_steps() {
    let disk = dendro_disk::model::ModelDisk::new(None).recording();
    let fixture = Fixture::with(disk, noatime(), u64::MAX);
    let ino = fixture.file_with("f", &[1; 3 * PAGE_SIZE]);
    fixture.fs.write(ino, 7 * TIB + 5, &[2; 2 * PAGE_SIZE], false).unwrap();
    let before = fixture.disk.history().len();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let len = i64::MAX as u64 - 100;
    fixture.fs.fallocate(ino, 100, len, punch, &LongChange::uncancelled(false)).unwrap();
    assert!(fixture.disk.history().len() - before <= 3);
    assert_eq!(fixture.attr(ino).blocks_512, 8);
    assert_eq!(fixture.fs.lseek(ino, PAGE, Seek::Data).map_err(|e| e.errno()), Err(6));
    let mut bytes = [9; 200];
    fixture.fs.read(ino, 0, &mut bytes).unwrap();
    assert!(bytes[..100] == [1; 100] && bytes[100..] == [0; 100]);
    fixture.assert_sound();
}

#[test]
fn a_hole_reaching_far_past_all_data_is_copied_in_few_steps_that_can_be_interrupted() {
    let disk = dendro_disk::model::ModelDisk::new(None).recording();
    let fixture = Fixture::with(disk, noatime(), u64::MAX);
    let (from, to) = (fixture.file("from"), fixture.file("to"));
    let len = i64::MAX as u64 / PAGE * PAGE - PAGE;
    fixture.truncate(from, len);
    for at in [0, 3 * TIB + 5, 9 * TIB] {
        fixture.fs.write(to, at, &[2; 2 * PAGE_SIZE], false).unwrap();
    }
    let copy = |offset, how: &LongChange<'_>| {
        fixture.fs.copy_file_range(from, offset, to, offset, u64::MAX, how)
    };
    let before = fixture.disk.history().len();
    let hasty = LongChange { kill_priv: false, is_cancelled: &|| true };
    assert_eq!(copy(0, &hasty), Ok(3 * TIB), "up to the next data, which is still there");
    assert_eq!(fixture.fs.lseek(to, 0, Seek::Data), Ok(3 * TIB + 5 - 5));
    assert_eq!(copy(3 * TIB, &LongChange::uncancelled(false)), Ok(len - 3 * TIB));
    assert!(fixture.disk.history().len() - before <= 4);
    assert_eq!((fixture.attr(to).size_bytes, fixture.attr(to).blocks_512), (len, 0));
    fixture.assert_sound();
}

#[test]
fn pages_allocated_far_apart_behind_the_end_are_freed_in_short_units_before_a_move() {
    let fixture = Fixture::new();
    let ino = fixture.file_with("f", &[1; 3 * PAGE_SIZE]);
    let fallocate = |offset, flags| {
        fixture.fs.fallocate(ino, offset, PAGE, flags, &LongChange::uncancelled(false))
    };
    for index in 1..=2 * MAX_UNIT_GROUPS {
        fallocate(index * GROUP_PAGES * PAGE, FallocateFlags::KEEP_SIZE).unwrap();
    }
    assert_eq!(fixture.attr(ino).blocks_512, (3 + 2 * MAX_UNIT_GROUPS) * 8);
    assert_eq!(fallocate(0, FallocateFlags::COLLAPSE_RANGE), Ok(()));
    assert_eq!((fixture.attr(ino).size_bytes, fixture.attr(ino).blocks_512), (2 * PAGE, 16));
    fixture.assert_sound();
}

#[test]
fn reading_changes_the_access_time_as_the_policy_says() {
    let options = |atime| Options { atime, ..Options::default() };
    for (policy, first, second) in [
        (AtimePolicy::Noatime, false, false),
        (AtimePolicy::Relatime, true, false),
        (AtimePolicy::Strictatime, true, true),
    ] {
        let disk = dendro_disk::model::ModelDisk::new(None).recording();
        let mut fixture = Fixture::with(disk, options(policy), u64::MAX);
        fixture.clock.set_step(10);
        let ino = fixture.file_with("f", b"abc");
        let commits = fixture.disk.history().len();
        let read_at = |step| {
            let now = fixture.clock.set_step(step);
            fixture.fs.read(ino, 0, &mut [0; 3]).unwrap();
            fixture.attr(ino).atime == now
        };
        assert_eq!(read_at(20), first, "{policy:?}");
        assert_eq!(read_at(30), second, "{policy:?}");
        assert_eq!(read_at(30 + 25 * 3600), policy != AtimePolicy::Noatime);
        let atime = fixture.attr(ino).atime;
        assert_eq!(fixture.disk.history().len(), commits, "reads commit nothing");
        fixture.fs.sync_all().unwrap();
        fixture.remount();
        assert_eq!(fixture.attr(ino).atime, atime);
        fixture.fs.read(ino, 0, &mut [0; 3]).unwrap();
        let old = FileTime { secs: -1 << 40, nanos: 1 };
        let changes = SetAttr {
            atime: Some(SetTime::At(old)),
            mtime: Some(SetTime::At(old)),
            ..SetAttr::default()
        };
        assert_eq!(fixture.set(ino, changes).atime, old, "a time that is set wins");
        fixture.remount();
        assert_eq!((fixture.attr(ino).atime, fixture.attr(ino).mtime), (old, old));
    }
}

/// Otherwise each fsync of a directory would look at all i-nodes in memory.
#[test]
fn fsync_writes_the_access_time_of_its_own_file_and_of_no_other() {
    let options = Options { atime: AtimePolicy::Strictatime, ..Options::default() };
    let disk = dendro_disk::model::ModelDisk::new(None).recording();
    let fixture = Fixture::with(disk, options, u64::MAX);
    let files: Vec<_> = (0..20).map(|n| fixture.file_with(&format!("f{n}"), b"x")).collect();
    fixture.clock.set_step(1000);
    for &ino in &files {
        fixture.fs.read(ino, 0, &mut [0; 1]).unwrap();
    }
    let commits = || fixture.disk.history().len();
    let before = commits();
    fixture.fs.fsync(Ino::ROOT, false).unwrap();
    assert_eq!(commits(), before, "the directory was not read");
    fixture.fs.fsync(files[3], true).unwrap();
    assert_eq!(commits(), before, "fdatasync leaves out access times");
    fixture.fs.fsync(files[3], false).unwrap();
    assert_eq!(commits(), before + 1);
    fixture.fs.sync_all().unwrap();
    assert_eq!(commits(), before + files.len(), "those of all others");
}

#[test]
fn access_times_survive_a_cache_that_is_too_small() {
    let options =
        Options { atime: AtimePolicy::Strictatime, inode_cache_len: 0, ..Options::default() };
    let mut fixture = Fixture::with(dendro_disk::model::ModelDisk::new(None), options, u64::MAX);
    let files: Vec<_> = (0..2000).map(|n| fixture.file_with(&format!("f{n}"), b"x")).collect();
    let now = fixture.clock.set_step(1000);
    for &ino in &files {
        fixture.fs.read(ino, 0, &mut [0; 1]).unwrap();
    }
    assert!(
        fixture.fs.state().cached_inode_count() < 1000,
        "{}",
        fixture.fs.state().cached_inode_count()
    );
    fixture.fs.shut_down().unwrap();
    let state = fixture.disk.state();
    fixture.disk = std::sync::Arc::new(dendro_disk::model::ModelDisk::from_state(state, None));
    fixture.remount();
    assert!(files.iter().all(|&ino| fixture.attr(ino).atime == now));
}

#[test]
fn once_the_disk_has_failed_changes_are_refused_and_each_sync_says_that_writes_are_lost() {
    let strict = Options { atime: AtimePolicy::Strictatime, ..Options::default() };
    for options in [noatime(), strict] {
        let fixture = Fixture::with(dendro_disk::model::ModelDisk::new(None), options, u64::MAX);
        let fs = &fixture.fs;
        let ino = fixture.file_with("f", b"abc");
        fixture.disk.fail("the device is gone");
        // An access time that is only in memory makes no difference.
        fs.read(ino, 0, &mut [0; 3]).unwrap();
        for _ in 0..2 {
            assert_eq!(errno(fs.fsync(ino, true)), 5);
            assert_eq!(errno(fs.fsync(ino, false)), 5);
            assert_eq!(errno(fs.fsync(Ino::ROOT, false)), 5);
            assert_eq!(errno(fs.sync_all()), 5);
            assert_eq!(errno(fs.write(ino, 0, b"x", false)), 30);
            assert_eq!(errno(fs.unlink(Ino::ROOT, b"f")), 30);
        }
        assert!(fs.sync_all().unwrap_err().to_string().contains("the device is gone"));
        assert_eq!(fixture.contents(ino), b"abc");
    }
}

#[test]
fn opening_can_truncate_and_creating_can_open_what_is_there() {
    let fixture = Fixture::new();
    let ino = fixture.file_with("f", b"abc");
    let options = OpenOptions { truncate: true, write: true, ..OpenOptions::default() };
    fixture.fs.open(ino, options).unwrap();
    assert_eq!(fixture.attr(ino).size_bytes, 0);
    fixture.fs.release(ino);
    let create = |name: &[u8], exclusive| {
        let options = OpenOptions { exclusive, ..OpenOptions::default() };
        fixture.fs.create(&USER, Ino::ROOT, name, 0o644, options)
    };
    assert_eq!(create(b"f", false).unwrap().ino, ino);
    assert_eq!(errno(create(b"f", true)), 17);
    fixture.dir("d");
    assert_eq!(errno(create(b"d", false)), 21);
    assert_eq!(errno(fixture.fs.open(Ino::ROOT, options)), 21);
    assert_eq!(errno(fixture.fs.read(Ino::ROOT, 0, &mut [0; 10])), 21);
}

/// The interface guarantees that this can be shared between threads.
const fn assert_shareable<T: Send + Sync>() {}
const _: () = assert_shareable::<FileSystem>();
