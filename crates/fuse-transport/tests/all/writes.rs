//! How many requests the kernel makes of one write(2). The promise that a write is one operation
//! (docs/SEMANTICS.md) relies on this.
//!
//! As `mounted.rs`, it needs /dev/fuse and root. Miri has no kernel.

#![cfg(not(miri))]

use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::Ordering;

use crate::common::mounting::{Test, over_both};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

impl Test<'_> {
    /// A file of `len` bytes, none of which the kernel has cached.
    fn uncached(&self, name: &str, len: u64) -> File {
        let path = self.path(name);
        File::create(&path).unwrap();
        let node = self.memory.change(name.as_bytes(), &vec![7; len as usize]);
        self.notifier.invalidate_data(node, 0, None).unwrap();
        OpenOptions::new().read(true).write(true).open(&path).unwrap()
    }

    /// The requests that the kernel makes of `write`: offset and length of each.
    fn requests(&self, write: impl FnOnce()) -> Vec<(u64, u64)> {
        self.memory.writes.lock().unwrap().clear();
        write();
        std::mem::take(&mut *self.memory.writes.lock().unwrap())
    }

    /// The same for a write of `len` bytes at `offset`.
    fn written(&self, file: &File, offset: u64, len: u64) -> Vec<(u64, u64)> {
        let data = vec![9; len as usize];
        self.requests(|| file.write_all_at(&data, offset).unwrap())
    }
}

/// Asserts that the requests are consecutive, that together they are what was written, and that the
/// first ends at the end of its page.
fn assert_first_page_and_rest(requests: &[(u64, u64)], offset: u64, len: u64) {
    match *requests {
        [whole] => assert_eq!(whole, (offset, len)),
        [(first, first_len), (second, second_len)] => {
            assert_eq!((first, first_len), (offset, PAGE - offset % PAGE));
            assert_eq!((second, second_len), (first + first_len, len - first_len));
        }
        _ => panic!("{requests:?}"),
    }
}

#[test]
fn a_write_that_begins_with_a_page_is_one_request_up_to_a_mebibyte() {
    over_both(|test| {
        let file = test.uncached("file", 4 * MIB);
        for (offset, len) in
            [(0, 1), (0, MIB), (MIB, MIB), (5 * PAGE, 5000), (PAGE, MIB - 1), (8 * MIB, MIB - 7)]
        {
            assert_eq!(test.written(&file, offset, len), [(offset, len)]);
        }
        assert_eq!(test.written(&file, 0, 2 * MIB), [(0, MIB), (MIB, MIB)]);
    });
}

#[test]
fn a_write_within_a_page_is_one_request() {
    over_both(|test| {
        let file = test.uncached("file", MIB);
        for (offset, len) in [(100, 200), (PAGE + 1, PAGE - 1), (10 * PAGE - 1, 1)] {
            assert_eq!(test.written(&file, offset, len), [(offset, len)]);
        }
    });
}

#[test]
fn a_write_that_begins_inside_a_cached_page_is_one_request_up_to_256_pages() {
    over_both(|test| {
        let file = test.uncached("read", MIB);
        file.read_exact_at(&mut [0; 10], 0).unwrap();
        assert_eq!(test.written(&file, 100, 3 * PAGE), [(100, 3 * PAGE)]);
        assert_eq!(test.written(&file, 100, MIB - 100), [(100, MIB - 100)]);
        // 257 pages.
        assert!(test.written(&file, 100, MIB).len() <= 2);

        let file = test.uncached("written whole", MIB);
        test.written(&file, 0, PAGE);
        assert_eq!(test.written(&file, 100, 3 * PAGE), [(100, 3 * PAGE)]);
    });
}

#[test]
fn a_write_that_begins_inside_a_page_that_is_not_cached_is_two_requests_at_most() {
    over_both(|test| {
        let file = test.uncached("file", MIB);
        let (offset, len) = (5 * PAGE + 100, 3 * PAGE);
        assert_first_page_and_rest(&test.written(&file, offset, len), offset, len);

        // A write of a part of a page does not put the page into the cache.
        let path = test.path("log");
        let mut log = OpenOptions::new().append(true).create(true).open(&path).unwrap();
        for number in 0..10 {
            let (offset, len) = (number * 3000, 3000);
            let requests = test.requests(|| log.write_all(&[1; 3000]).unwrap());
            assert_first_page_and_rest(&requests, offset, len);
        }
    });
}

#[test]
fn a_write_past_the_page_cache_is_one_request_wherever_it_begins() {
    over_both(|test| {
        let path = test.path("file");
        drop(test.uncached("file", 2 * MIB));
        let file = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
        let buffer = vec![3; (MIB + PAGE) as usize];
        let buffer = &buffer[buffer.as_ptr().align_offset(PAGE as usize)..];
        for (offset, len) in [(0, MIB), (100, 200), (PAGE + 100, 3 * PAGE), (100, MIB)] {
            let requests =
                test.requests(|| file.write_all_at(&buffer[..len as usize], offset).unwrap());
            assert_eq!(requests, [(offset, len)]);
        }
    });
}

#[test]
fn data_that_is_not_in_memory_is_cut_where_its_pages_or_those_of_the_file_begin() {
    over_both(|test| {
        // This much is mapped and never used.
        let untouched = vec![0; (4 * MIB) as usize];
        let file = test.uncached("file", MIB);
        let start = untouched.as_ptr().align_offset(PAGE as usize);
        let data = &untouched[start..][..MIB as usize];
        assert_eq!(test.requests(|| file.write_all_at(data, 0).unwrap()), [(0, MIB)]);

        let untouched = vec![0; (4 * MIB) as usize];
        let start = untouched.as_ptr().align_offset(PAGE as usize) + 100;
        let data = &untouched[start..][..(MIB - PAGE) as usize];
        let mut end = 0;
        for (offset, len) in test.requests(|| file.write_all_at(data, 0).unwrap()) {
            assert_eq!(offset, end);
            end += len;
            let is_end_of_page = end % PAGE == 0 || (end + 100) % PAGE == 0;
            assert!(is_end_of_page || end == data.len() as u64, "{offset} {len}");
        }
        assert_eq!(end, data.len() as u64);
    });
}

#[test]
fn buffers_that_are_written_together_are_one_request() {
    over_both(|test| {
        let mut file = test.uncached("file", MIB);
        let (first, second) = ([1; 5000], [2; 777]);
        let parts = [&first[..], &second, &first].map(IoSlice::new);
        let mut count = 0;
        let requests = test.requests(|| count = file.write_vectored(&parts).unwrap());
        assert_eq!(requests, [(0, 10_777)]);
        assert_eq!(count, 10_777);
    });
}

#[test]
fn writing_to_an_ordinary_file_asks_for_nothing_else() {
    over_both(|test| {
        let file = test.uncached("file", MIB);
        test.written(&file, 0, PAGE);
        let counts = || {
            let memory = test.memory;
            [&memory.attribute_changes, &memory.attribute_reads].map(|n| n.load(Ordering::Relaxed))
        };
        let before = counts();
        for page in 0..100 {
            assert_eq!(test.written(&file, page * PAGE, PAGE).len(), 1);
        }
        assert_eq!(counts(), before);
        assert_eq!(fs::metadata(test.path("file")).unwrap().len(), MIB);
    });
}
