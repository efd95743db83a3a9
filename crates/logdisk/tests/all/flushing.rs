//! Several callers that make their commits durable at the same time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

use dendro_base::{Clock, Rng, SystemClock};
use dendro_check::find_superblocks;
use dendro_device::sim::{CrashStyle, SimDevice};
use dendro_device::{Device, MemoryDevice, Result};
use dendro_disk::{Aru, CommitSeq, Error, Lid, LogicalDisk, Outlasts, PAGE_SIZE, Versions, View};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};

use crate::common::new_list;

const DEVICE_BYTES: u64 = 64 << 20;
const SEGMENT_BYTES: u64 = 1 << 20;

/// A device with slow flushes.
struct SlowToFlush<D> {
    device: Arc<D>,
    flush_time: Duration,
    flush_count: AtomicU64,
}

impl<D: Device> SlowToFlush<D> {
    fn new(device: Arc<D>, flush_time: Duration) -> Arc<Self> {
        Arc::new(Self { device, flush_time, flush_count: AtomicU64::new(0) })
    }
}

impl<D: Device> Device for SlowToFlush<D> {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.device.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<()> {
        std::thread::sleep(self.flush_time);
        self.flush_count.fetch_add(1, Ordering::Relaxed);
        self.device.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.device.discard(offset, len_bytes)
    }
}

fn open(device: Arc<dyn Device>) -> LogDisk {
    LogDisk::open(device, OpenOptions::default(), Arc::new(SystemClock)).expect("it was formatted")
}

fn new_disk(device: Arc<dyn Device>) -> LogDisk {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let options = FormatOptions { segment_size_bytes: SEGMENT_BYTES, ..FormatOptions::default() };
    format(&device, &options, &clock).expect("the device is large enough");
    open(device)
}

/// A device with a client that commits something whenever something is written, some times.
struct Followed {
    device: MemoryDevice,
    follow: OnceLock<Box<dyn Fn() + Send + Sync>>,
    left: AtomicU64,
    write_count: AtomicU64,
    is_following: AtomicBool,
}

impl Device for Followed {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_count.fetch_add(1, Ordering::Relaxed);
        let follow = self.follow.get().filter(|_| self.left.load(Ordering::Relaxed) > 0);
        if let Some(follow) = follow.filter(|_| !self.is_following.swap(true, Ordering::Relaxed)) {
            self.left.fetch_sub(1, Ordering::Relaxed);
            follow();
            self.is_following.store(false, Ordering::Relaxed);
        }
        self.device.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.device.discard(offset, len_bytes)
    }
}

/// Puts a number into a list, as its only record.
fn put(disk: &LogDisk, list: Lid, number: u64) -> CommitSeq {
    let mut aru = Aru::new(View::HEAD);
    aru.put_record(list, 0, number.to_le_bytes().to_vec());
    disk.commit(aru).expect("there is room")
}

fn number_in(disk: &LogDisk, list: Lid) -> u64 {
    let record = disk.record(View::HEAD, list, 0).expect("it can be read");
    record.map_or(0, |record| u64::from_le_bytes(record[..].try_into().expect("a number")))
}

/// Returns how many flushes it takes if each of `callers` flushes `times` times, one after the
/// other.
fn flushes_of(callers: u64, times: u64) -> u64 {
    let memory = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    let device = SlowToFlush::new(memory, Duration::from_millis(40));
    let disk = new_disk(Arc::clone(&device) as Arc<dyn Device>);
    let lists: Vec<Lid> = (0..callers).map(|_| new_list(&disk)).collect();
    let before = device.flush_count.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for &list in &lists {
            let disk = &disk;
            scope.spawn(move || {
                for number in 0..times {
                    // The time for which a client works between two flushes.
                    std::thread::sleep(Duration::from_micros(300));
                    let seq = put(disk, list, number);
                    disk.flush(seq).expect("the device works");
                }
            });
        }
    });
    device.flush_count.load(Ordering::Relaxed) - before
}

#[test]
fn callers_that_return_soon_share_flushes() {
    for callers in [2, 6] {
        // If callers alternated, each flush would serve one of two, or half of six, every time. If
        // they share flushes, one serves all. On a busy machine some may be late.
        let counts: Vec<u64> = (0..4).map(|_| flushes_of(callers, 12)).collect();
        assert!(counts.iter().any(|&count| count <= 18), "{callers} callers, 12 times: {counts:?}");
    }
}

#[test]
fn a_flush_ends_while_another_client_writes_as_fast_as_the_device() {
    let device = Arc::new(Followed {
        device: MemoryDevice::new(DEVICE_BYTES),
        follow: OnceLock::new(),
        left: AtomicU64::new(0),
        write_count: AtomicU64::new(0),
        is_following: AtomicBool::new(false),
    });
    let disk = Arc::new(new_disk(Arc::clone(&device) as Arc<dyn Device>));
    let [list, other] = [(); 2].map(|()| new_list(&disk));
    let disk_of_other = Arc::downgrade(&disk);
    // Fills a partial segment.
    let follow = move || {
        let disk = disk_of_other.upgrade().expect("it is in use");
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(other, 0, vec![7; SEGMENT_BYTES as usize]);
        disk.commit(aru).expect("there is room");
    };
    assert!(device.follow.set(Box::new(follow)).is_ok());
    let seq = put(&disk, list, 1);
    device.left.store(16, Ordering::Relaxed);
    let before = device.write_count.load(Ordering::Relaxed);
    disk.flush(seq).expect("the device works");
    let write_count = device.write_count.load(Ordering::Relaxed) - before;
    assert!(write_count < 4, "the flush took {write_count} writes");
}

#[test]
fn flushed_commits_survive_a_crash_while_other_callers_flush() {
    const CALLERS: usize = 3;
    const FLUSH_TIME: Duration = Duration::from_micros(300);
    let sim = Arc::new(SimDevice::new(DEVICE_BYTES, 1));
    let device = SlowToFlush::new(Arc::clone(&sim), FLUSH_TIME);
    let disk = new_disk(device as Arc<dyn Device>);
    let lists: Vec<Lid> = (0..CALLERS).map(|_| new_list(&disk)).collect();
    disk.flush(CommitSeq::LATEST).expect("the device works");
    let promised: [AtomicU64; CALLERS] = Default::default();
    let is_done = AtomicBool::new(false);
    let mut rng = Rng::new(7);
    let images = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Acquire) {
                disk.write_step(Duration::from_millis(1)).expect("the device works");
            }
        });
        for (&list, promised) in lists.iter().zip(&promised) {
            let (disk, is_done) = (&disk, &is_done);
            scope.spawn(move || {
                for number in 1.. {
                    if is_done.load(Ordering::Acquire) {
                        break;
                    }
                    let seq = put(disk, list, number);
                    // Some callers arrive while another caller's flush covers their commit.
                    if number % 3 == 0 {
                        std::thread::sleep(FLUSH_TIME / 3);
                    }
                    disk.flush(seq).expect("the device works");
                    promised.store(number, Ordering::Release);
                }
            });
        }
        let mut images = Vec::new();
        for _ in 0..120 {
            std::thread::sleep(Duration::from_millis(1));
            let at_least = promised.each_ref().map(|number| number.load(Ordering::Acquire));
            let style = CrashStyle::draw(&mut rng);
            images.push((at_least, sim.crash_image(&mut rng, style)));
        }
        is_done.store(true, Ordering::Release);
        images
    });
    assert!(images.last().is_some_and(|(at_least, _)| at_least.iter().all(|&number| number > 0)));
    for (at_least, image) in images {
        let disk = open(Arc::new(image));
        for (&list, at_least) in lists.iter().zip(at_least) {
            let found = number_in(&disk, list);
            assert!(found >= at_least, "{found} was found where {at_least} had been promised");
        }
    }
}

/// A thread that writes the log sleeps until there is something to write, so a commit must wake it.
#[test]
fn a_buffer_filled_by_commits_wakes_the_writer_thread() {
    let disk = new_disk(Arc::new(MemoryDevice::new(DEVICE_BYTES)));
    let list = new_list(&disk);
    let is_done = AtomicBool::new(false);
    let page = vec![1; PAGE_SIZE];
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !is_done.load(Ordering::Acquire) {
                if disk.write_step(Duration::from_secs(30)).expect("the device works") {
                    break;
                }
            }
        });
        std::thread::sleep(Duration::from_millis(100));
        // 16 MiB, and time to write them.
        for number in 0..4096 {
            let mut aru = Aru::new(View::HEAD);
            aru.write_pages(list, number, &page[..]);
            disk.commit(aru).expect("there is room");
            if number % 256 == 255 {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let is_woken = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            writer.is_finished()
        });
        is_done.store(true, Ordering::Release);
        assert!(is_woken, "the thread was not woken");
    });
}

/// Records far apart change many nodes of the map, and the log by little.
#[test]
fn threads_that_wait_for_work_are_woken_when_dirty_nodes_take_much_memory() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    new_disk(Arc::clone(&device)).shut_down().expect("the device works");
    // Of the cache, three eighths are for dirty nodes.
    let options = OpenOptions { cache_size_bytes: 2 << 20, ..OpenOptions::default() };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let disk = LogDisk::open(device, options, clock).expect("it was formatted just now");
    let list = new_list(&disk);
    let put = |index: u64| {
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(list, index, vec![7; 100]);
        disk.commit(aru).expect("there is room");
    };
    (0..20_000).for_each(put);
    disk.checkpoint().expect("the device works");
    let before = disk.stats();
    std::thread::scope(|scope| {
        // Work may have become due before the checkpoint.
        disk.wait_for_background_work(Duration::from_millis(1));
        let waiter = scope.spawn(|| disk.wait_for_background_work(Duration::from_secs(3600)));
        std::thread::sleep(Duration::from_millis(50));
        let mut index = 0;
        while disk.stats().dirty_node_bytes <= 800 << 10 {
            put(index);
            index += 100;
        }
        let after = disk.stats();
        let is_woken = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            waiter.is_finished()
        });
        disk.end_waiting();
        assert_eq!(after.checkpoint_seq, before.checkpoint_seq, "no commit took a checkpoint");
        assert!(is_woken, "the thread was not woken");
    });
}

#[test]
fn threads_that_wait_for_work_return_when_waiting_ends() {
    let disk = new_disk(Arc::new(MemoryDevice::new(DEVICE_BYTES)));
    let long = Duration::from_secs(3600);
    std::thread::scope(|scope| {
        scope.spawn(|| disk.write_step(long).expect("the device works"));
        scope.spawn(|| disk.wait_for_background_work(long));
        std::thread::sleep(Duration::from_millis(50));
        disk.end_waiting();
    });
    // A later caller does not wait either.
    assert!(!disk.write_step(long).expect("the device works"));
    disk.wait_for_background_work(long);
}

/// A device that reports what it has lost to one flush alone.
struct ReportsOnce {
    below: MemoryDevice,
    /// Told when that flush has failed; its caller learns it a while later.
    has_failed: Mutex<Option<mpsc::Sender<()>>>,
}

impl Device for ReportsOnce {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.below.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.below.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<()> {
        let Some(has_failed) = self.has_failed.lock().expect("no thread panics").take() else {
            return self.below.flush();
        };
        has_failed.send(()).expect("the test waits");
        // Long enough for the other flushes, unless these wait.
        std::thread::sleep(Duration::from_millis(100));
        let (source, len_bytes) = (std::io::Error::other("lost"), self.len_bytes());
        Err(dendro_device::Error::Io { operation: "flush", offset: 0, len_bytes, source })
    }

    fn extend(&self, _len_bytes: u64, _tail: &[u8], _allocates: bool) -> Result<()> {
        self.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.below.discard(offset, len_bytes)
    }
}

/// Takes a checkpoint while `flush` flushes and what it flushes is lost.
fn checkpoint_beside(flush: impl FnOnce(&LogDisk) -> dendro_disk::Result<()> + Send) {
    let below = MemoryDevice::new(DEVICE_BYTES);
    let device = Arc::new(ReportsOnce { below, has_failed: Mutex::default() });
    let disk = new_disk(Arc::clone(&device) as Arc<dyn Device>);
    let list = new_list(&disk);
    disk.checkpoint().expect("the device works");
    put(&disk, list, 1);
    let (failed, has_failed) = mpsc::channel();
    *device.has_failed.lock().expect("no thread panics") = Some(failed);
    let before = disk.superblock().seq;
    let is_lost = |outcome| matches!(outcome, Err(Error::Failed(why)) if why.contains("lost"));
    std::thread::scope(|scope| {
        let flushing = scope.spawn(|| flush(&disk));
        has_failed.recv().expect("it is flushed");
        assert!(is_lost(disk.checkpoint()));
        assert!(is_lost(flushing.join().expect("it does not panic")));
    });
    assert_eq!(disk.superblock().seq, before);
    assert_eq!(
        find_superblocks(&device.below).expect("there is one").current().superblock.seq,
        before
    );
}

#[test]
fn no_flush_is_believed_beside_one_that_fails() {
    checkpoint_beside(|disk| disk.flush(CommitSeq::LATEST));
    checkpoint_beside(|disk| disk.grow(2 * DEVICE_BYTES, 2 * DEVICE_BYTES));
}

#[test]
fn a_flush_for_the_end_of_the_process_needs_none_of_the_device() {
    let device = SlowToFlush::new(Arc::new(MemoryDevice::new(DEVICE_BYTES)), Duration::ZERO);
    let disk = new_disk(Arc::clone(&device) as _);
    let list = new_list(&disk);
    let before = device.flush_count.load(Ordering::Relaxed);
    let seq = put(&disk, list, 7);
    disk.flush_for(Outlasts::Process, seq).expect("written");
    assert_eq!(device.flush_count.load(Ordering::Relaxed), before);
    // The process ends here, and the device has what was written.
    drop(disk);
    let disk = open(Arc::clone(&device) as _);
    assert_eq!(number_in(&disk, list), 7);

    let before = device.flush_count.load(Ordering::Relaxed);
    let seq = put(&disk, list, 8);
    assert_eq!(disk.flush_for(Outlasts::Medium, seq), Err(Error::OneCopy));
    assert!(device.flush_count.load(Ordering::Relaxed) > before, "it is durable all the same");
}

#[test]
fn a_list_that_has_not_changed_is_flushed_without_a_flush_of_the_device() {
    let device = SlowToFlush::new(Arc::new(MemoryDevice::new(DEVICE_BYTES)), Duration::ZERO);
    let disk = new_disk(Arc::clone(&device) as _);
    let (quiet, busy) = (new_list(&disk), new_list(&disk));
    let flushes_of = |list| {
        let before = device.flush_count.load(Ordering::Relaxed);
        disk.flush_list(View::HEAD, list).expect("flushed");
        device.flush_count.load(Ordering::Relaxed) - before
    };
    put(&disk, quiet, 1);
    assert_eq!(flushes_of(quiet), 1, "nobody has asked before");
    put(&disk, busy, 2);
    assert_eq!(flushes_of(quiet), 0);
    assert_eq!(flushes_of(busy), 1);
    put(&disk, quiet, 3);
    assert_eq!(flushes_of(busy), 0);
    assert_eq!(flushes_of(quiet), 1);
}

#[test]
fn a_flush_of_a_list_leaves_in_memory_what_others_did_later() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    let disk = new_disk(Arc::clone(&device));
    let [list, other] = [(); 2].map(|()| new_list(&disk));
    // From now on the disk notes which lists change.
    disk.flush_list(View::HEAD, list).expect("flushed");
    put(&disk, list, 1);
    let mut filling = Aru::new(View::HEAD);
    filling.write_pages(other, 0, vec![7; SEGMENT_BYTES as usize]);
    disk.commit(filling).expect("there is room");
    put(&disk, other, 2);
    disk.flush_list(View::HEAD, list).expect("flushed");
    // Nothing is done when the disk is closed.
    std::mem::forget(disk);
    let disk = open(device);
    assert!(disk.record(View::HEAD, list, 0).expect("readable").is_some());
    assert_eq!(disk.record(View::HEAD, other, 0).expect("readable"), None);
}

#[test]
fn a_list_that_was_flushed_in_a_new_branch_is_there_after_a_crash() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    let disk = new_disk(Arc::clone(&device));
    let list = new_list(&disk);
    put(&disk, list, 1);
    disk.flush_list(View::HEAD, list).expect("flushed");
    let branch = disk.branch_off(View::HEAD, "copy").expect("there is room").head();
    disk.flush_list(branch, list).expect("flushed");
    // Nothing is done when the disk is closed.
    std::mem::forget(disk);
    let disk = open(device);
    assert!(disk.record(branch, list, 0).expect("the branch is there").is_some());
}

#[test]
fn who_waits_for_durability_is_told_by_the_thread_that_flushes_or_when_the_disk_is_closed() {
    let device = SlowToFlush::new(Arc::new(MemoryDevice::new(DEVICE_BYTES)), Duration::ZERO);
    let disk = new_disk(Arc::clone(&device) as _);
    let list = new_list(&disk);
    let (told, calls) = mpsc::channel();
    let wait_for = |seq| {
        let told = told.clone();
        disk.when_durable(seq, Box::new(move |outcome| drop(told.send(outcome))));
    };
    let is_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (disk, is_ended) = (&disk, &is_ended);
        scope.spawn(move || {
            while !is_ended.load(Ordering::Acquire) {
                disk.flush_for_others(Duration::from_secs(60)).expect("flushed");
            }
        });
        for number in 0..20 {
            wait_for(put(disk, list, number));
            assert_eq!(calls.recv_timeout(Duration::from_secs(30)), Ok(Ok(())));
        }
        is_ended.store(true, Ordering::Release);
        disk.end_waiting();
    });
    wait_for(put(&disk, list, 99));
    assert_eq!(disk.flush_for_others(Duration::ZERO), Ok(true));
    assert_eq!(calls.try_recv(), Ok(Ok(())));
    assert_eq!(disk.flush_for_others(Duration::ZERO), Ok(false));
    wait_for(put(&disk, list, 100));
    drop(disk);
    assert!(matches!(calls.try_recv(), Ok(Err(Error::Failed(_)))));
}

/// A device that fails to write once it is broken.
struct Breaking {
    device: MemoryDevice,
    is_broken: AtomicBool,
}

impl Device for Breaking {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if self.is_broken.load(Ordering::Relaxed) {
            let (len_bytes, source) = (bytes.len() as u64, std::io::ErrorKind::Other.into());
            return Err(dendro_device::Error::Io { operation: "write", offset, len_bytes, source });
        }
        self.device.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.device.discard(offset, len_bytes)
    }
}

#[test]
fn who_waits_for_durability_is_told_when_anothers_flush_fails() {
    let device = MemoryDevice::new(DEVICE_BYTES);
    let device = Arc::new(Breaking { device, is_broken: AtomicBool::new(false) });
    let disk = new_disk(Arc::clone(&device) as _);
    let list = new_list(&disk);
    let (told, calls) = mpsc::channel();
    device.is_broken.store(true, Ordering::Relaxed);
    let seq = put(&disk, list, 1);
    disk.when_durable(seq, Box::new(move |outcome| drop(told.send(outcome))));
    disk.flush(seq).expect_err("nothing can be written");
    assert!(matches!(calls.try_recv(), Ok(Err(_))));
}
