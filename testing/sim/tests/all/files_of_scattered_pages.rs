//! Files with a page here and there: far more groups of pages than one unit may change. Every
//! operation on them succeeds, in units that are bounded. `DENDRO_SCATTERED_PAGES=300000` makes the
//! files longer.

use dendro_base::sync::Arc;
use dendro_check::{Options, verify};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{GROUP_PAGES, LogicalDisk, MAX_UNIT_GROUPS, PAGE_SIZE, Versions, View};
use dendro_fs::{Caller, FallocateFlags, FileSystem, Ino, LongChange, RenameFlags, SetAttr};
use dendro_logdisk::{FormatOptions, LogDisk};

use crate::common::files_on;

/// From one page of a file to the next.
const STRIDE: u64 = GROUP_PAGES * PAGE_SIZE as u64;
/// What the nodes that one unit changes may take.
const MAX_DIRTIED_BYTES: u64 = 4 << 20;

fn page_count() -> u64 {
    std::env::var("DENDRO_SCATTERED_PAGES")
        .map_or(4 * MAX_UNIT_GROUPS, |count| count.parse().unwrap())
}

struct Fixture {
    device: Arc<dyn Device>,
    disk: Arc<LogDisk>,
    fs: FileSystem,
}

impl Fixture {
    fn new() -> Self {
        let device: Arc<dyn Device> =
            Arc::new(MemoryDevice::new((256 << 20) + page_count() * 2048));
        let (disk, fs) = files_on(&device, &FormatOptions::default(), 16 << 20);
        Self { device, disk, fs }
    }

    /// Makes a file of [`page_count`] pages, each in a group of its own.
    fn scattered(&self, name: &str) -> Ino {
        let attr = self.fs.create(
            &Caller::default(),
            Ino::ROOT,
            name.as_bytes(),
            0o644,
            Default::default(),
        );
        let ino = attr.unwrap().ino;
        self.fs.release(ino);
        for index in 0..page_count() {
            self.fs.write(ino, index * STRIDE, &[7; 40], false).unwrap();
            while index % 512 == 0 && self.disk.background_step().unwrap() {}
        }
        ino
    }

    fn blocks(&self, ino: Ino) -> u64 {
        self.fs.getattr(ino).unwrap().blocks_512 / (PAGE_SIZE as u64 / 512)
    }

    fn truncate(&self, ino: Ino, size: u64) {
        let changes = SetAttr { size_bytes: Some(size), ..SetAttr::default() };
        self.fs.setattr(&Caller::default(), ino, &changes).unwrap();
    }

    fn fallocate(&self, ino: Ino, offset: u64, len: u64, flags: FallocateFlags) -> Result<(), i32> {
        let how = LongChange::uncancelled(false);
        self.fs.fallocate(ino, offset, len, flags, &how).map_err(|error| error.errno())
    }

    /// Does something that may be one commit; returns how many it was.
    fn commits(&self, act: impl FnOnce()) -> u64 {
        self.disk.checkpoint().unwrap();
        let before = self.disk.stats();
        act();
        let after = self.disk.stats();
        let commits = after.commit_seq - before.commit_seq;
        let dirtied = after.dirty_node_bytes.saturating_sub(before.dirty_node_bytes);
        assert!(dirtied <= commits * MAX_DIRTIED_BYTES, "{dirtied} bytes by {commits} units");
        commits
    }

    fn check(self) {
        let findings = dendro_fs::verify(&*self.disk, View::HEAD).unwrap();
        assert!(findings.is_empty(), "{findings:#?}");
        while self.disk.background_step().unwrap() {}
        self.disk.shut_down().unwrap();
        assert_eq!(verify(&*self.device, &Options { data: false }).findings, []);
    }
}

/// With and without a snapshot that keeps what is freed.
fn for_each_fixture(run: impl Fn(&Fixture, Ino)) {
    for has_snapshot in [false, true] {
        let fixture = Fixture::new();
        let ino = fixture.scattered("file");
        if has_snapshot {
            fixture.disk.snapshot(0, Some("kept")).unwrap();
        }
        run(&fixture, ino);
        fixture.check();
    }
}

#[test]
fn a_file_is_removed_or_replaced_in_one_unit() {
    for_each_fixture(|fixture, _| {
        let other = fixture.scattered("other");
        let replaced = fixture.commits(|| {
            let (caller, flags) = (Caller::default(), RenameFlags::empty());
            fixture.fs.rename(&caller, Ino::ROOT, b"other", Ino::ROOT, b"file", flags).unwrap();
        });
        let removed = fixture.commits(|| fixture.fs.unlink(Ino::ROOT, b"file").unwrap());
        fixture.fs.forget(other, 1);
        assert_eq!((replaced, removed), (1, 1));
    });
}

#[test]
fn a_file_is_cut_off_and_written_again() {
    for_each_fixture(|fixture, ino| {
        fixture.commits(|| fixture.truncate(ino, (page_count() - 3) * STRIDE));
        assert_eq!(fixture.blocks(ino), page_count() - 3);
        fixture.commits(|| {
            fixture.truncate(ino, 0);
            fixture.fs.write(ino, 5, b"new", false).unwrap();
        });
        let mut bytes = [1; 100];
        assert_eq!(fixture.fs.read(ino, 0, &mut bytes), Ok(8));
        assert_eq!(&bytes[..8], b"\0\0\0\0\0new");
        assert!(fixture.blocks(ino) <= 1);
    });
}

#[test]
fn a_file_is_punched_and_overwritten_with_holes() {
    for_each_fixture(|fixture, ino| {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let half = page_count() / 2 * STRIDE;
        fixture.commits(|| fixture.fallocate(ino, 0, half, punch).unwrap());
        assert_eq!(fixture.blocks(ino), page_count() - page_count() / 2);
        let attr =
            fixture.fs.create(&Caller::default(), Ino::ROOT, b"hole", 0o644, Default::default());
        let hole = attr.unwrap().ino;
        fixture.truncate(hole, 1 << 60);
        fixture.commits(|| {
            let how = LongChange::uncancelled(false);
            let copied = fixture.fs.copy_file_range(hole, 0, ino, 0, u64::MAX, &how);
            assert_eq!(copied, Ok(1 << 60));
        });
        assert_eq!(fixture.blocks(ino), 0);
    });
}

#[test]
fn pages_behind_a_place_move_in_one_unit_however_many_they_are() {
    for_each_fixture(|fixture, ino| {
        let page = PAGE_SIZE as u64;
        let is_there = |offset: u64| {
            let mut bytes = [1; 8];
            assert_eq!(fixture.fs.read(ino, offset, &mut bytes), Ok(8));
            assert!(bytes == [7; 8] || bytes == [0; 8], "{bytes:?}");
            bytes == [7; 8]
        };
        let at = page_count() / 2 * STRIDE;
        for (flags, moved_by) in
            [(FallocateFlags::INSERT_RANGE, page), (FallocateFlags::COLLAPSE_RANGE, 0)]
        {
            let commits = fixture.commits(|| {
                fixture.fallocate(ino, page, page, flags).unwrap();
            });
            assert_eq!(commits, 1);
            assert_eq!(fixture.blocks(ino), page_count());
            assert!(is_there(at + moved_by) && !is_there(at + page - moved_by));
            assert!(is_there(0) && !is_there(page));
        }
        fixture.fallocate(ino, at, STRIDE, FallocateFlags::COLLAPSE_RANGE).unwrap();
        assert_eq!(fixture.blocks(ino), page_count() - 1);
    });
}
