//! Coalescing: scattered pages are moved together, and nothing else changes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::{Device, IoSlice, IoSliceMut, MemoryDevice, Result as DeviceResult};
use dendro_disk::{
    Aru, CommitSeq, Error, Lid, ListHints, Locality, LogicalDisk, PAGE_SIZE, Versions, View,
};
use dendro_logdisk::{
    CleanSettings, CoalesceSettings, Coalesced, FormatOptions, LogDisk, OpenOptions, Place, format,
};

const MIB: u64 = 1 << 20;
const MIB_PAGES: u64 = MIB / PAGE_SIZE as u64;

type Hook = Box<dyn FnOnce(&LogDisk) + Send>;

/// A device that counts reads, and calls a function before one of them.
struct Watched {
    device: Arc<MemoryDevice>,
    reads: AtomicU64,
    /// The number of memory buffers that these reads filled.
    parts: AtomicU64,
    hook: Mutex<Option<Hook>>,
    disk: OnceLock<std::sync::Weak<LogDisk>>,
}

impl Watched {
    fn note_read(&self, parts: usize) {
        self.parts.fetch_add(parts as u64, Ordering::Relaxed);
        self.reads.fetch_add(1, Ordering::Relaxed);
        let hook = self.hook.lock().expect("no thread panicked").take();
        if let Some(hook) = hook {
            hook(&self.disk.get().and_then(std::sync::Weak::upgrade).expect("it is open"));
        }
    }
}

impl Device for Watched {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.note_read(1);
        self.device.read_at(offset, buf)
    }
    fn read_vectored_at(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        self.note_read(parts.len());
        self.device.read_vectored_at(offset, parts)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> DeviceResult<()> {
        self.device.write_at(offset, bytes)
    }
    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> DeviceResult<()> {
        self.device.write_vectored_at(offset, parts)
    }
    fn flush(&self) -> DeviceResult<()> {
        self.device.flush()
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> DeviceResult<()> {
        self.device.discard(offset, len_bytes)
    }
}

struct Rig {
    device: Arc<Watched>,
    disk: Arc<LogDisk>,
}

fn open(device: Arc<MemoryDevice>) -> Rig {
    let device = Arc::new(Watched {
        device,
        reads: AtomicU64::new(0),
        parts: AtomicU64::new(0),
        hook: Mutex::default(),
        disk: OnceLock::new(),
    });
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let as_device: Arc<dyn Device> = Arc::clone(&device) as _;
    let disk = LogDisk::open(as_device, OpenOptions::default(), clock);
    let disk = Arc::new(disk.expect("it was formatted"));
    device.disk.set(Arc::downgrade(&disk)).expect("it is set once");
    Rig { device, disk }
}

impl Rig {
    /// A rig with segments of 1 MiB.
    fn new(segment_count: u64) -> Self {
        Self::of_segments(MIB, segment_count)
    }

    fn of_segments(segment_size_bytes: u64, count: u64) -> Self {
        let device = Arc::new(MemoryDevice::new(segment_size_bytes * count));
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let options = FormatOptions { segment_size_bytes, ..FormatOptions::default() };
        format(&(Arc::clone(&device) as Arc<dyn Device>), &options, &clock)
            .expect("it is large enough");
        open(device)
    }

    /// Opens the volume again, as after a crash that lost nothing.
    fn reopen(self) -> Self {
        self.flush();
        let device = Arc::clone(&self.device.device);
        drop(self);
        open(device)
    }

    fn list(&self, view: View) -> Lid {
        let list = self.disk.allocate_list().expect("the disk works");
        let mut aru = Aru::new(view);
        aru.create_list(list, ListHints::default());
        self.disk.commit(aru).expect("there is room");
        list
    }

    fn write(&self, view: View, list: Lid, page: u64, seed: u64) {
        let mut aru = Aru::new(view);
        aru.write_pages(list, page, content(seed));
        self.disk.commit(aru).expect("there is room");
    }

    /// Writes pages of a list in an order in which each lies far from the one before. Between them
    /// it writes enough of another list that no two pages are read together. It takes six times the
    /// room.
    fn write_scattered(&self, list: Lid, pages: u64) {
        let between = self.list(View::HEAD);
        for number in 1..=pages {
            let page = number * 7919 % pages;
            self.write(View::HEAD, list, page, page);
            let mut aru = Aru::new(View::HEAD);
            aru.write_pages(between, number * 5, content(1_000_000 + number).repeat(5));
            self.disk.commit(aru).expect("there is room");
        }
    }

    /// Writes another list, so that the log clock advances.
    fn write_others(&self, mib: u64) -> Lid {
        let list = self.list(View::HEAD);
        for number in 0..mib {
            let mut data = vec![0; MIB as usize];
            Rng::new(number + 1).fill(&mut data);
            let mut aru = Aru::new(View::HEAD);
            aru.write_pages(list, number * MIB_PAGES, data);
            self.disk.commit(aru).expect("there is room");
        }
        list
    }

    fn flush(&self) {
        self.disk.flush(CommitSeq::LATEST).expect("the device works");
    }

    fn holds(&self, view: View, list: Lid, seeds: impl Iterator<Item = u64>) -> bool {
        (0..).zip(seeds).all(|(page, seed)| {
            let mut found = vec![0; PAGE_SIZE];
            self.disk.read_pages(view, list, page, &mut found).expect("it can be read");
            found == content(seed)
        })
    }

    /// Returns how many reads of the device a list of so many MiB takes.
    fn reads(&self, list: Lid, mib: u64) -> u64 {
        let mut buf = vec![0; MIB as usize];
        let mut read = |number: u64| {
            let at = number * MIB_PAGES;
            self.disk.read_pages(View::HEAD, list, at, &mut buf).expect("it can be read");
        };
        // After this the nodes of the map are in memory.
        (0..mib).for_each(&mut read);
        self.device.reads.store(0, Ordering::Relaxed);
        self.device.parts.store(0, Ordering::Relaxed);
        (0..mib).for_each(read);
        self.device.reads.load(Ordering::Relaxed)
    }

    /// Coalesces everything that `view` sees.
    fn coalesce(&self, view: View, is_trial: bool) -> Coalesced {
        self.flush();
        let mut all = Coalesced { next: Some(Place::START), ..Coalesced::default() };
        while let Some(next) = all.next.filter(|_| !all.lacks_room) {
            let done = self.disk.coalesce(view, next, Lid::CLIENT_END, is_trial).expect("it works");
            assert!(done.next.is_none_or(|after| after > next || done.lacks_room), "{done:?}");
            all.page_bytes += done.page_bytes;
            all.reads_before += done.reads_before;
            all.reads_after += done.reads_after;
            all.moved_bytes += done.moved_bytes;
            all.unreadable += done.unreadable;
            (all.next, all.lacks_room) = (done.next, done.lacks_room);
        }
        all
    }

    /// Performs idle work until there is none, and returns how many bytes were coalesced.
    fn idle(&self) -> u64 {
        let before = self.disk.stats().coalesced_bytes;
        self.flush();
        for _ in 0..10_000 {
            if !self.disk.background_step().expect("the device works")
                && !self.disk.idle_step().expect("the device works")
                && !self.disk.coalesce_step().expect("the device works")
            {
                return self.disk.stats().coalesced_bytes - before;
            }
        }
        panic!("it has no end");
    }

    /// Verifies the image on the device, and returns how many pages the map names.
    fn verify(&self) -> u64 {
        self.disk.checkpoint().expect("the device works");
        let options = dendro_check::Options { data: true };
        let report = dendro_check::verify(&*self.device.device, &options);
        assert!(report.is_sound(), "{report}");
        report.counts.page_count
    }
}

fn content(seed: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE_SIZE];
    Rng::new(seed).fill(&mut page);
    page
}

#[test]
fn a_list_written_in_random_order_is_read_with_one_read_for_each_mebibyte() {
    let rig = Rig::new(96);
    let list = rig.list(View::HEAD);
    rig.write_scattered(list, 8 * MIB_PAGES);
    let trial = rig.coalesce(View::HEAD, true);
    assert_eq!((trial.page_bytes, trial.moved_bytes), (6 * 8 * MIB, 8 * MIB));
    let of_others = trial.reads_after - 8;
    assert_eq!(trial.reads_before, 8 * MIB_PAGES + of_others);
    assert_eq!(rig.reads(list, 8), 8 * MIB_PAGES);
    let live_bytes = rig.disk.stats().live_bytes;

    let done = rig.coalesce(View::HEAD, false);
    assert_eq!(done, Coalesced { next: None, ..trial });
    assert_eq!(rig.disk.stats().coalesced_bytes, 8 * MIB);
    let grown_bytes = rig.disk.stats().live_bytes.abs_diff(live_bytes);
    assert!(grown_bytes < MIB / 8, "nodes of the map apart nothing has grown: {grown_bytes}");
    rig.flush();
    // A MiB that crosses the end of a segment takes one more read.
    assert!(rig.reads(list, 8) <= 16, "{}", rig.reads(list, 8));
    let parts = rig.device.parts.load(Ordering::Relaxed);
    assert!(parts <= 8 * 6, "it lies in the order of its pages: {parts}");
    assert!(rig.holds(View::HEAD, list, 0..8 * MIB_PAGES));
    assert_eq!(rig.coalesce(View::HEAD, false).moved_bytes, 0);
    rig.verify();
    let rig = rig.reopen();
    assert!(rig.holds(View::HEAD, list, 0..8 * MIB_PAGES));
    assert!(rig.reads(list, 8) <= 16);
    rig.verify();
}

#[test]
fn only_the_overwritten_pages_of_a_stretch_are_moved() {
    let rig = Rig::new(64);
    let list = rig.write_others(4);
    let other = rig.list(View::HEAD);
    for number in 0..40 {
        rig.write(View::HEAD, list, MIB_PAGES + number * 6, number);
        (0..8).for_each(|page| rig.write(View::HEAD, other, number * 8 + page, page));
    }
    rig.flush();
    let before = rig.reads(list, 4);
    let done = rig.coalesce(View::HEAD, false);
    // The few pages at the end of a segment are moved too.
    assert!((40..60).contains(&(done.moved_bytes / PAGE_SIZE as u64)), "{done:?}");
    rig.flush();
    assert!(rig.reads(list, 4) + 36 <= before, "{} of {before}", rig.reads(list, 4));
}

#[test]
fn two_pieces_are_put_together_if_the_client_wants_the_list_clustered() {
    let rig = Rig::new(64);
    let [plain, clustered] = [Locality::AsWritten, Locality::Clustered].map(|locality| {
        let list = rig.disk.allocate_list().expect("the disk works");
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, ListHints { locality, ..ListHints::default() });
        rig.disk.commit(aru).expect("there is room");
        list
    });
    let between = rig.list(View::HEAD);
    for page in [0, 1] {
        rig.write(View::HEAD, plain, page, page);
        rig.write(View::HEAD, clustered, page, page);
        (0..8).for_each(|other| rig.write(View::HEAD, between, 8 * page + other, other));
    }
    rig.flush();
    assert_eq!((rig.reads(plain, 1), rig.reads(clustered, 1)), (2, 2));
    rig.coalesce(View::HEAD, false);
    // A flush alone writes nothing, because moving is no commit.
    rig.disk.checkpoint().expect("the device works");
    let rig = rig.reopen();
    assert_eq!((rig.reads(plain, 1), rig.reads(clustered, 1)), (2, 1));
    assert!(rig.holds(View::HEAD, clustered, 0..2));
}

#[test]
fn all_versions_keep_what_they_see_and_each_block_is_moved_once() {
    const PAGES: u64 = 4 * MIB_PAGES;
    let rig = Rig::new(96);
    let list = rig.list(View::HEAD);
    rig.write_scattered(list, PAGES);
    let old = rig.disk.snapshot(0, Some("old")).expect("the disk works").view();
    let branch = rig.disk.branch_off(old, "branch").expect("the disk works").head();
    for page in (0..PAGES).step_by(5) {
        rig.write(branch, list, page, 10_000 + page);
    }
    for page in (0..PAGES).step_by(3) {
        rig.write(View::HEAD, list, page, 20_000 + page);
    }
    let gone = rig.list(View::HEAD);
    rig.write_scattered(gone, MIB_PAGES);
    rig.disk.snapshot(0, Some("with the list")).expect("the disk works");
    let mut aru = Aru::new(View::HEAD);
    aru.delete_list(gone);
    rig.disk.commit(aru).expect("there is room");
    let pages = rig.verify();
    let seeds = |step: u64, base: u64| {
        (0..PAGES).map(move |page| if page % step == 0 { base + page } else { page })
    };
    let check = |rig: &Rig| {
        assert!(rig.holds(old, list, 0..PAGES));
        assert!(rig.holds(branch, list, seeds(5, 10_000)));
        assert!(rig.holds(View::HEAD, list, seeds(3, 20_000)));
        assert_eq!(rig.verify(), pages);
    };
    let done = rig.coalesce(View::HEAD, false);
    // Pages that were overwritten in order lie together.
    let scattered = PAGES - PAGES.div_ceil(3);
    assert_eq!(done.moved_bytes, scattered * PAGE_SIZE as u64, "{done:?}");
    check(&rig);
    // What the branch shares with other versions was moved with theirs.
    let trial = rig.coalesce(branch, true);
    assert!(trial.reads_before < 4 * MIB_PAGES && trial.reads_after >= 4, "{trial:?}");
    assert!(!rig.coalesce(branch, false).lacks_room);
    check(&rig);
    assert!(rig.coalesce(old, false).next.is_none());
    check(&rig);
    let rig = rig.reopen();
    check(&rig);
}

#[test]
fn a_page_that_changes_while_it_is_read_keeps_the_change() {
    let rig = Rig::new(64);
    let list = rig.list(View::HEAD);
    rig.write_scattered(list, 2 * MIB_PAGES);
    rig.flush();
    // This loads the nodes of the map, so that the first read after it is one of pages.
    rig.coalesce(View::HEAD, true);
    *rig.device.hook.lock().expect("no thread panicked") = Some(Box::new(move |disk| {
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, 5, content(77));
        aru.punch_pages(list, 6, 1);
        // The page moves to another index, with its block.
        let (from_page, to_page) = (7, 3 * MIB_PAGES);
        aru.push(dendro_disk::Op::MovePages { from: list, from_page, to: list, to_page, count: 1 });
        disk.commit(aru).expect("there is room");
    }));
    let done = rig.disk.coalesce(View::HEAD, Place::START, Lid::CLIENT_END, false);
    let done = done.expect("it works");
    assert_eq!(done.moved_bytes, 2 * MIB - 3 * PAGE_SIZE as u64);
    let check = |rig: &Rig| {
        let page = |page: u64| {
            let mut found = vec![0; PAGE_SIZE];
            rig.disk.read_pages(View::HEAD, list, page, &mut found).expect("it can be read");
            found
        };
        for number in (0..2 * MIB_PAGES).filter(|number| !(5..8).contains(number)) {
            assert_eq!(page(number), content(number), "page {number}");
        }
        assert_eq!(page(5), content(77));
        assert_eq!(page(6), vec![0; PAGE_SIZE]);
        assert_eq!(page(7), vec![0; PAGE_SIZE]);
        assert_eq!(page(3 * MIB_PAGES), content(7));
        rig.verify();
    };
    check(&rig);
    check(&rig.reopen());
}

#[test]
fn unreadable_pages_are_not_moved() {
    let rig = Rig::new(64);
    let list = rig.list(View::HEAD);
    rig.write_scattered(list, 2 * MIB_PAGES);
    rig.flush();
    let wanted = content(5);
    let mut bytes = vec![0; rig.device.len_bytes() as usize];
    rig.device.device.read_at(0, &mut bytes).expect("it is in memory");
    let at = bytes.chunks(PAGE_SIZE).position(|block| block == wanted).expect("it was written");
    let damaged = vec![1; PAGE_SIZE];
    rig.device.device.write_at((at * PAGE_SIZE) as u64, &damaged).expect("it is in memory");
    let done = rig.coalesce(View::HEAD, false);
    assert_eq!((done.unreadable, done.moved_bytes), (1, MIB));
    let mut page = vec![0; PAGE_SIZE];
    let read = rig.disk.read_pages(View::HEAD, list, 5, &mut page);
    assert!(matches!(read, Err(Error::Corrupted(_))), "{read:?}");
    assert!(rig.disk.read_pages(View::HEAD, list, 6, &mut page).is_ok());
}

#[test]
fn nothing_is_moved_when_clean_segments_are_few() {
    let rig = Rig::new(96);
    let list = rig.list(View::HEAD);
    rig.write_scattered(list, 4 * MIB_PAGES);
    let mut filled = 0;
    let other = rig.list(View::HEAD);
    let mut data = vec![0; MIB as usize];
    loop {
        Rng::new(filled + 1).fill(&mut data);
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(other, filled * MIB_PAGES, &data[..]);
        match rig.disk.commit(aru) {
            Ok(_) => filled += 1,
            Err(Error::NoSpace { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(filled > 30, "{filled}");
    let clean = rig.disk.clean_segment_count();
    let done = rig.coalesce(View::HEAD, false);
    assert!(done.lacks_room && done.moved_bytes == 0, "{done:?}");
    assert_eq!(done.next, Some(Place { list: list.0, page: 0 }));
    assert_eq!(rig.idle(), 0);
    assert!(rig.disk.clean_segment_count() >= clean);
    // Overwrites still fit.
    for number in 0..2 * MIB_PAGES {
        rig.write(View::HEAD, list, number, number);
    }
    // Deletion makes room again; coalescing does not use all of it.
    let mut aru = Aru::new(View::HEAD);
    aru.punch_pages(other, 0, filled / 2 * MIB_PAGES).set_reclaims();
    rig.disk.commit(aru).expect("deleting always works");
    while rig.disk.background_step().expect("the device works") {}
    rig.disk.checkpoint().expect("the device works");
    assert!(rig.coalesce(View::HEAD, false).moved_bytes > MIB);
    assert!(rig.holds(View::HEAD, list, 0..4 * MIB_PAGES));
    rig.verify();
}

#[test]
fn idle_coalescing_moves_quiet_stretches_once() {
    let rig = Rig::new(256);
    let list = rig.list(View::HEAD);
    rig.write_scattered(list, 4 * MIB_PAGES);
    assert_eq!(rig.idle(), 0, "it was written just now");
    rig.write_others(24);
    let moved_bytes = rig.idle();
    assert!(moved_bytes > 3 * MIB && moved_bytes <= 4 * MIB, "{moved_bytes}");
    assert!(rig.reads(list, 4) <= 16, "{}", rig.reads(list, 4));
    assert!(rig.holds(View::HEAD, list, 0..4 * MIB_PAGES));
    rig.write_others(24);
    assert_eq!(rig.idle(), 0);
    rig.verify();
}

#[test]
fn idle_coalescing_writes_no_more_than_its_share() {
    let rig = Rig::new(256);
    let list = rig.list(View::HEAD);
    rig.write_scattered(list, 16 * MIB_PAGES);
    rig.write_others(24);
    let share = |percent| CoalesceSettings { share_percent: percent, ..Default::default() };
    let set = |coalescing| {
        rig.disk.set_clean_settings(CleanSettings { coalescing, ..CleanSettings::default() });
    };
    set(CoalesceSettings { is_on: false, ..share(100) });
    assert_eq!(rig.idle(), 0);
    // The data that the volume holds already gives a little credit.
    set(share(0));
    let at_first = rig.idle();
    assert!(at_first > 0 && at_first <= rig.disk.stats().live_bytes / 64, "{at_first}");
    rig.write_others(24);
    assert_eq!(rig.idle(), 0);
    set(share(10));
    rig.write_others(20);
    let moved_bytes = rig.idle();
    assert!(moved_bytes > MIB && moved_bytes <= 3 * MIB, "{moved_bytes}");
}

#[test]
fn pages_of_all_ages_are_coalesced_and_keep_their_age() {
    let rig = Rig::of_segments(4 * MIB, 256);
    let list = rig.list(View::HEAD);
    let between = rig.list(View::HEAD);
    let pages = 2 * MIB_PAGES;
    for (round, others) in [(0, 270), (1, 30)] {
        for page in (0..pages).filter(|page| page % 2 == round) {
            rig.write(View::HEAD, list, page, page);
            let mut aru = Aru::new(View::HEAD);
            aru.write_pages(between, (round * pages + page) * 5, content(9).repeat(5));
            rig.disk.commit(aru).expect("there is room");
        }
        rig.write_others(others);
    }
    let youngest = rig.disk.volume_facts().clock - 30 * MIB;
    let before = rig.disk.segments(0, usize::MAX);
    assert_eq!(rig.coalesce(View::HEAD, false).moved_bytes, 2 * MIB);
    let after = rig.disk.segments(0, usize::MAX);
    let changed = after.iter().zip(&before).filter(|(after, before)| after.class != before.class);
    let filled: Vec<_> = changed.map(|(after, _)| after).collect();
    assert!(!filled.is_empty());
    for segment in filled {
        assert!(segment.written_at < youngest, "{segment:?}, {youngest}");
    }
    rig.verify();
    // After this nothing is in memory.
    let rig = rig.reopen();
    let reads = rig.reads(list, 2);
    assert!((2..=3).contains(&reads), "{reads}");
    assert!(rig.holds(View::HEAD, list, 0..pages));
    rig.verify();
}

#[test]
fn pages_that_are_written_at_random_all_the_time_are_not_coalesced() {
    let rig = Rig::of_segments(MIB / 8, 2048);
    let list = rig.write_others(64);
    let pages = 64 * MIB_PAGES;
    let mut rng = Rng::new(5);
    let mut moved_bytes = 0;
    for _ in 0..10 {
        for _ in 0..pages / 4 {
            rig.write(View::HEAD, list, rng.below(pages), 1);
        }
        moved_bytes += rig.idle();
    }
    let written = rig.disk.stats().user_page_bytes;
    assert!(moved_bytes < written / 50, "{moved_bytes} of {written}");
}

#[test]
fn a_write_ends_idle_coalescing() {
    let rig = Rig::new(256);
    let list = rig.list(View::HEAD);
    rig.write_scattered(list, 4 * MIB_PAGES);
    rig.write_others(24);
    rig.flush();
    rig.coalesce(View::HEAD, true);
    let activity = rig.disk.activity();
    *rig.device.hook.lock().expect("no thread panicked") = Some(Box::new(move |disk| {
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(list, 1, vec![1]);
        disk.commit(aru).expect("there is room");
    }));
    let mut steps = 0;
    while rig.device.hook.lock().expect("no thread panicked").is_some() {
        assert!(rig.disk.coalesce_step().expect("the device works"), "it does not read");
        steps += 1;
        assert!(steps < 100);
    }
    assert_eq!(rig.disk.stats().coalesced_bytes, 0);
    assert!(rig.disk.activity() > activity);
    let activity = rig.disk.activity();
    rig.reads(list, 1);
    assert!(rig.disk.activity() > activity, "reading is use, too");
    assert!(rig.idle() > 0, "it goes on later");
}
