//! Large files, written and read in order: which requests the device gets.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dendro_base::sync::{Arc, Mutex};
use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::{Device, IoSlice, IoSliceMut, MemoryDevice, ReadOf, Result};
use dendro_disk::{Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

const MIB: usize = 1 << 20;
const MIB_PAGES: u64 = (MIB / PAGE_SIZE) as u64;

/// A request: its offset, and the lengths of its parts.
type Call = (u64, Vec<usize>);

/// A device that records its requests, and cannot read some of its bytes.
struct Noting {
    device: MemoryDevice,
    reads: Mutex<Vec<Call>>,
    writes: Mutex<Vec<Call>>,
    /// How many reads were made together, each time.
    batches: Mutex<Vec<usize>>,
    unreadable: Mutex<Range<u64>>,
    refuses_writes: AtomicBool,
}

impl Noting {
    fn reads(&self) -> Vec<Call> {
        std::mem::take(&mut self.reads.lock())
    }

    fn writes(&self) -> Vec<Call> {
        std::mem::take(&mut self.writes.lock())
    }

    fn failure(operation: &'static str) -> dendro_device::Error {
        let source = std::io::ErrorKind::Other.into();
        dendro_device::Error::Io { operation, offset: 0, len_bytes: 0, source }
    }

    fn note_read(&self, offset: u64, lens: Vec<usize>) -> Result<()> {
        let unreadable = self.unreadable.lock().clone();
        let end = offset + lens.iter().sum::<usize>() as u64;
        self.reads.lock().push((offset, lens));
        let fails = offset < unreadable.end && unreadable.start < end;
        if fails { Err(Self::failure("read")) } else { Ok(()) }
    }

    fn note_write(&self, offset: u64, lens: Vec<usize>) -> Result<()> {
        self.writes.lock().push((offset, lens));
        let refuses = self.refuses_writes.load(Ordering::Relaxed);
        if refuses { Err(Self::failure("write")) } else { Ok(()) }
    }
}

impl Device for Noting {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.note_read(offset, vec![buf.len()])?;
        self.device.read_at(offset, buf)
    }
    fn read_vectored_at(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<()> {
        self.note_read(offset, parts.iter().map(|part| part.len()).collect())?;
        self.device.read_vectored_at(offset, parts)
    }
    fn read_each(&self, reads: &mut [ReadOf<'_, '_>]) -> Result<()> {
        self.batches.lock().push(reads.len());
        reads.iter_mut().try_for_each(|read| self.read_vectored_at(read.offset, read.parts))
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.note_write(offset, vec![bytes.len()])?;
        self.device.write_at(offset, bytes)
    }
    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.note_write(offset, parts.iter().map(|part| part.len()).collect())?;
        self.device.write_vectored_at(offset, parts)
    }
    fn flush(&self) -> Result<()> {
        self.device.flush()
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.device.discard(offset, len_bytes)
    }
}

struct Rig {
    device: Arc<Noting>,
    disk: LogDisk,
    list: Lid,
    content: Vec<u8>,
}

fn open(device: &Arc<Noting>) -> LogDisk {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    LogDisk::open(Arc::clone(device) as _, OpenOptions::default(), clock).expect("it was formatted")
}

impl Rig {
    /// Makes a disk with a list without pages. All that was written is still in the memory of the
    /// log.
    fn new() -> Self {
        let device = Arc::new(Noting {
            device: MemoryDevice::new(256 << 20),
            reads: Mutex::default(),
            writes: Mutex::default(),
            batches: Mutex::default(),
            unreadable: Mutex::default(),
            refuses_writes: AtomicBool::new(false),
        });
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let as_device: Arc<dyn Device> = Arc::clone(&device) as _;
        format(&as_device, &FormatOptions::default(), &clock).expect("it is large enough");
        let disk = open(&device);
        let list = disk.allocate_list().expect("the disk works");
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, ListHints::default());
        disk.commit(aru).expect("there is room");
        Self { device, disk, list, content: Vec::new() }
    }

    /// Adds a MiB to the list, as one write(2) does.
    fn append(&mut self) -> dendro_disk::Result<CommitSeq> {
        let start = self.content.len();
        self.content.resize(start + MIB, 0);
        Rng::new(start as u64 + 1).fill(&mut self.content[start..]);
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(self.list, (start / PAGE_SIZE) as u64, &self.content[start..]);
        self.disk.commit(aru)
    }

    /// Drops everything from memory except the map's nodes on the path to the list's pages.
    fn reopen(self) -> Self {
        let Self { device, disk, list, content } = self;
        disk.shut_down().expect("the device works");
        drop(disk);
        let disk = open(&device);
        let rig = Self { device, disk, list, content };
        rig.check();
        rig.device.reads();
        rig
    }

    fn read(&self, mib: usize) -> dendro_disk::Result<Vec<u8>> {
        let mut buf = vec![0; MIB];
        self.disk.read_pages(View::HEAD, self.list, mib as u64 * MIB_PAGES, &mut buf)?;
        Ok(buf)
    }

    fn check(&self) {
        for (mib, expected) in self.content.chunks(MIB).enumerate() {
            assert!(self.read(mib).expect("it can be read") == expected, "MiB {mib}");
        }
    }
}

/// A rig with 16 MiB that must be read from the device.
fn rig_with_a_stream() -> Rig {
    let mut rig = Rig::new();
    for _ in 0..16 {
        rig.append().expect("there is room");
    }
    rig.reopen()
}

#[test]
fn a_mebibyte_of_a_stream_is_read_with_one_call_or_two_at_the_end_of_a_segment() {
    let rig = rig_with_a_stream();
    let call_counts: Vec<usize> = (0..16)
        .map(|mib| {
            rig.read(mib).expect("it can be read");
            rig.device.reads().len()
        })
        .collect();
    assert!(call_counts.iter().all(|&count| count <= 2), "{call_counts:?}");
    // Segments have 4 MiB. The pages of most MiB are neighbours on the device, at most with a
    // header between them.
    assert!(call_counts.iter().filter(|&&count| count == 1).count() >= 11, "{call_counts:?}");
}

#[test]
fn a_mebibyte_written_in_any_order_is_read_with_one_call_if_it_lies_together() {
    let mut rig = Rig::new();
    rig.content = vec![0; MIB];
    Rng::new(1).fill(&mut rig.content);
    // A short page lies elsewhere, and does not prevent the others from being read together.
    rig.content[100..PAGE_SIZE].fill(0);
    for number in 1..=MIB_PAGES {
        let page = number * 77 % MIB_PAGES;
        let at = page as usize * PAGE_SIZE;
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(rig.list, page, &rig.content[at..at + PAGE_SIZE]);
        rig.disk.commit(aru).expect("there is room");
    }
    let rig = rig.reopen();
    rig.check();
    rig.device.reads();
    rig.read(0).expect("it can be read");
    assert_eq!(rig.device.reads().len(), 2);
}

#[test]
fn pages_that_lie_far_apart_are_read_at_the_same_time() {
    let mut rig = Rig::new();
    rig.content = vec![0; MIB];
    Rng::new(2).fill(&mut rig.content);
    // Every fifth page is short, and so lies elsewhere.
    for page in (0..MIB_PAGES as usize).step_by(5) {
        rig.content[page * PAGE_SIZE + 100..(page + 1) * PAGE_SIZE].fill(0);
    }
    let other = rig.disk.allocate_list().expect("a number");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(other, ListHints::default());
    rig.disk.commit(aru).expect("there is room");
    for number in 1..=MIB_PAGES {
        let page = number * 77 % MIB_PAGES;
        let at = page as usize * PAGE_SIZE;
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(rig.list, page, &rig.content[at..at + PAGE_SIZE]);
        aru.write_pages(other, number * 8, vec![number as u8; 8 * PAGE_SIZE]);
        rig.disk.commit(aru).expect("there is room");
    }
    let rig = rig.reopen();
    rig.check();
    rig.device.batches.lock().clear();
    rig.device.reads();
    assert!(rig.read(0).expect("it can be read") == rig.content);
    let batches = std::mem::take(&mut *rig.device.batches.lock());
    assert!(batches.len() == 1 && batches[0] > 100, "{batches:?}");
    let reads = rig.device.reads();
    assert_eq!(reads.len(), batches[0]);

    // One of them cannot be read: that page is named, and the others are there.
    let view = (View::HEAD, rig.list);
    let page = 7;
    let addr = rig.disk.page_addr(view.0, view.1, page).expect("readable").expect("a block");
    *rig.device.unreadable.lock() = addr..addr + 1;
    assert!(matches!(rig.read(0), Err(Error::Io(_))));
    let mut bytes = vec![0; PAGE_SIZE];
    for other in (0..MIB_PAGES).filter(|&other| other != page) {
        rig.disk.read_pages(view.0, view.1, other, &mut bytes).expect("it can be read");
        assert!(bytes[..] == rig.content[other as usize * PAGE_SIZE..][..PAGE_SIZE]);
    }
}

/// Returns the request with which a MiB is read, across a header.
fn call_with_a_gap(rig: &Rig) -> (usize, Call) {
    let calls = |mib| {
        rig.read(mib).expect("it can be read");
        rig.device.reads()
    };
    let found = (0..16).find_map(|mib| match &calls(mib)[..] {
        [call] if call.1.len() > 2 => Some((mib, call.clone())),
        _ => None,
    });
    found.expect("there are more blocks of data than a partial segment has")
}

#[test]
fn a_gap_between_pages_that_are_read_together_need_not_be_readable() {
    let rig = rig_with_a_stream();
    let (mib, (offset, lens)) = call_with_a_gap(&rig);
    let gap = offset + lens[0] as u64;
    *rig.device.unreadable.lock() = gap..gap + 1;
    assert!(rig.read(mib).expect("no page lies there") == rig.content[mib * MIB..][..MIB]);
    // The pages themselves must be readable.
    *rig.device.unreadable.lock() = gap - 1..gap;
    assert!(matches!(rig.read(mib), Err(Error::Io(_))));
}

#[test]
fn damage_is_found_on_either_side_of_a_gap() {
    let rig = rig_with_a_stream();
    let (mib, (offset, lens)) = call_with_a_gap(&rig);
    for at in [offset, offset + (lens[0] + lens[1]) as u64] {
        let mut block = [0; PAGE_SIZE];
        rig.device.device.read_at(at, &mut block).expect("it is in memory");
        block[77] ^= 1;
        rig.device.device.write_at(at, &block).expect("it is in memory");
        assert!(matches!(rig.read(mib), Err(Error::Corrupted(_))));
        block[77] ^= 1;
        rig.device.device.write_at(at, &block).expect("it is in memory");
        rig.check();
    }
}

#[test]
fn queued_partial_segments_that_are_neighbours_are_written_with_one_call() {
    let mut rig = Rig::new();
    rig.device.writes();
    // As much as may wait before a commit writes itself; no other thread writes meanwhile.
    while rig.device.writes.lock().is_empty() && rig.content.len() < 16 * MIB {
        rig.append().expect("there is room");
    }
    while rig.disk.write_step(Duration::ZERO).expect("the device works") {}
    let writes = rig.device.writes();
    let len = |call: &Call| call.1.iter().sum::<usize>();
    assert!(writes.iter().any(|call| call.1.len() > 1), "{writes:?}");
    assert!(writes.iter().all(|call| len(call) <= 4 * MIB), "{writes:?}");
    rig.disk.flush(CommitSeq::LATEST).expect("the device works");
    rig.check();
    // What the writer has written is what recovery finds.
    let Rig { device, disk, list, content } = rig;
    drop(disk);
    let disk = open(&device);
    Rig { device, disk, list, content }.check();
}

#[test]
fn a_failed_write_of_several_partial_segments_latches() {
    let mut rig = Rig::new();
    for _ in 0..3 {
        rig.append().expect("there is room");
    }
    rig.device.refuses_writes.store(true, Ordering::Relaxed);
    assert!(matches!(rig.disk.write_step(Duration::ZERO), Err(Error::Failed(_))));
    rig.device.refuses_writes.store(false, Ordering::Relaxed);
    assert!(matches!(rig.append(), Err(Error::Failed(_))));
    assert!(matches!(rig.disk.flush(CommitSeq::LATEST), Err(Error::Failed(_))));
    assert!(rig.disk.read_only_reason().is_some());
}
