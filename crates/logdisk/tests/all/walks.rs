//! Long walks over the map keep their place, whatever other threads do meanwhile.

use dendro_disk::{Aru, LogicalDisk, View};
use dendro_logdisk::{CleanSettings, LogDisk};

use crate::common::busy::{CHUNK_PAGES, disk_with_large_list};
use crate::common::{delete, new_list};

#[test]
fn no_walk_takes_longer_because_other_threads_commit() {
    let count = 40_000;
    let (device, disk, list, node_count) = disk_with_large_list(count);
    let others = new_list(&disk);
    let at_most = 2 * node_count + 100;
    let counted = device.reads_of(&disk, others, || {
        assert_eq!(disk.count_pages(View::HEAD, list, 0..u64::MAX >> 13), Ok(count));
    });
    assert!(counted <= at_most, "counting pages takes {counted} reads");
    let found = device.reads_of(&disk, others, || {
        let mut from = (count - 1) * CHUNK_PAGES + 1;
        assert_eq!(disk.next_data(View::HEAD, list, from), Ok(None));
        from = (count - 1) * CHUNK_PAGES;
        assert_eq!(disk.next_hole(View::HEAD, list, from), Ok(from + 1));
    });
    assert!(found <= 50, "finding data and holes at the end takes {found} reads");
    // This is like a directory whose names were all removed while a snapshot has them.
    disk.set_clean_settings(CleanSettings { is_suspended: true, ..CleanSettings::default() });
    dendro_disk::Versions::snapshot(&*disk, 0, None).expect("there is room");
    for from in (0..count).step_by(256) {
        let mut aru = Aru::new(View::HEAD);
        for index in from..count.min(from + 256) {
            aru.delete_record(list, index);
        }
        disk.commit(aru).expect("there is room");
    }
    disk.checkpoint().expect("the device works");
    let listed = device.reads_of(&disk, others, || {
        assert_eq!(disk.records(View::HEAD, list, 0, 1), Ok(vec![]));
    });
    assert!(listed <= at_most, "looking for a record takes {listed} reads");
}

/// What a client frees of a list that has a page in each of so many chunks.
#[derive(Clone, Copy, Debug)]
enum Freed {
    LastPage,
    SecondHalf,
    List,
}

/// Returns the reads that freeing takes, until nothing is left to be done of it.
fn reads_of_freeing(freed: Freed, is_busy: bool) -> u64 {
    let count = 40_000;
    let (device, disk, list, _) = disk_with_large_list(count);
    disk.set_clean_settings(CleanSettings { is_suspended: true, ..CleanSettings::default() });
    let others = new_list(&disk);
    let is_left = |disk: &LogDisk, from: u64| {
        disk.next_data(View::HEAD, list, from).expect("the device works").is_some()
    };
    let free = || {
        let first = match freed {
            Freed::LastPage => (count - 1) * CHUNK_PAGES,
            Freed::SecondHalf => count / 2 * CHUNK_PAGES,
            Freed::List => 0,
        };
        if matches!(freed, Freed::List) {
            delete(&disk, View::HEAD, list);
        } else {
            // As a file system does: it counts what it cuts off.
            disk.count_pages(View::HEAD, list, first..count * CHUNK_PAGES).expect("it works");
            let mut aru = Aru::new(View::HEAD);
            aru.punch_pages(list, first, u64::MAX >> 14).set_reclaims();
            disk.commit(aru).expect("what gives space back is never refused");
        }
        let is_done = (0..20_000).any(|_| !disk.background_step().expect("the device works"));
        assert!(is_done, "{freed:?}: there is always more to do");
        assert!(!is_left(&disk, first), "{freed:?}");
    };
    let commits_before = disk.stats().commit_seq;
    let read_count =
        if is_busy { device.reads_of(&disk, others, free) } else { device.reads_alone(free) };
    let commits = disk.stats().commit_seq - commits_before;
    assert!(!is_busy || commits > 1, "the other thread commits");
    assert_eq!(is_left(&disk, 0), !matches!(freed, Freed::List));
    read_count
}

#[test]
fn freeing_scattered_pages_takes_no_longer_because_other_threads_commit() {
    for freed in [Freed::LastPage, Freed::SecondHalf, Freed::List] {
        let [alone, busy] = [false, true].map(|is_busy| reads_of_freeing(freed, is_busy));
        assert!(busy <= 2 * alone + 100, "{freed:?}: {busy} reads, and {alone} alone");
    }
}
