//! The volume that is filled, on a device that counts, with the threads that the daemon has.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dendro_base::{Clock, Rng, SystemClock};
use dendro_device::{Device, FileDevice};
use dendro_disk::{Aru, CommitSeq, Lid, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::{CLEANER_NICENESS, Discards, FormatOptions, LogDisk, OpenOptions, format};

use crate::file_device::with_all_blocks;
use crate::measure::time;

pub(super) const MIB: usize = 1 << 20;
pub(super) const VOLUME_BYTES: u64 = 1 << 30;
/// As `mkfs` makes them.
pub(super) const SEGMENT_BYTES: u64 = 512 << 10;

/// What a device was asked for, and how long it took.
#[derive(Debug, Default)]
pub(super) struct Asked {
    count: AtomicU64,
    bytes: AtomicU64,
    ns: AtomicU64,
    longest_ns: AtomicU64,
}

impl Asked {
    fn timed<T>(&self, bytes: usize, ask: impl FnOnce() -> T) -> T {
        let mut result = None;
        let took = time(|| result = Some(ask()));
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        self.longest_ns.fetch_max(took.as_nanos() as u64, Ordering::Relaxed);
        result.expect("it was asked")
    }

    /// MiB, seconds and the longest since the last call.
    pub(super) fn take(&self) -> String {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed) as f64;
        let (count, mib, seconds, longest_ms) = (
            take(&self.count),
            take(&self.bytes) / MIB as f64,
            take(&self.ns) / 1e9,
            take(&self.longest_ns) / 1e6,
        );
        format!("{count:.0}, {mib:.0} MiB, {seconds:.2} s (at most {longest_ms:.1} ms)")
    }
}

/// A device that says what its time goes to.
pub(super) struct Timed {
    device: FileDevice,
    /// Of less than 64 KiB: clients' reads, and nodes of the map.
    small_reads: Asked,
    large_reads: Asked,
    writes: Asked,
    flushes: Asked,
}

impl Timed {
    /// What it has done since the last call.
    pub(super) fn take(&self) -> String {
        format!(
            "small reads {}; large {}; writes {}; flushes {}",
            self.small_reads.take(),
            self.large_reads.take(),
            self.writes.take(),
            self.flushes.take()
        )
    }
}

impl Device for Timed {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> dendro_device::Result<()> {
        let asked = if buf.len() < 64 << 10 { &self.small_reads } else { &self.large_reads };
        asked.timed(buf.len(), || self.device.read_at(offset, buf))
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> dendro_device::Result<()> {
        self.writes.timed(bytes.len(), || self.device.write_at(offset, bytes))
    }
    fn flush(&self) -> dendro_device::Result<()> {
        self.flushes.timed(0, || self.device.flush())
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> dendro_device::Result<()> {
        self.device.discard(offset, len_bytes)
    }
}

/// A fresh volume on the image file, whose blocks the host has allocated.
pub(super) fn volume(image: &Path) -> io::Result<(LogDisk, Arc<Timed>)> {
    let _ = std::fs::remove_file(image);
    let device = with_all_blocks(image, VOLUME_BYTES)?;
    let timed = Arc::new(Timed {
        device,
        small_reads: Asked::default(),
        large_reads: Asked::default(),
        writes: Asked::default(),
        flushes: Asked::default(),
    });
    let device: Arc<dyn Device> = Arc::clone(&timed) as _;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let options = FormatOptions { segment_size_bytes: SEGMENT_BYTES, ..FormatOptions::default() };
    format(&device, &options, &clock).map_err(io::Error::other)?;
    let options = OpenOptions { discards: Discards::Never, ..OpenOptions::default() };
    let disk = LogDisk::open(device, options, clock).map_err(io::Error::other)?;
    Ok((disk, timed))
}

/// Does `work` beside the threads that write the log, clean, and make the log durable.
pub(super) fn with_threads<T>(disk: &LogDisk, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    let is_done = || done.load(Ordering::Acquire);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done() {
                disk.write_step(Duration::from_millis(5)).expect("the file can be written");
            }
        });
        scope.spawn(|| {
            give_way();
            while !is_done() {
                if !disk.background_step().expect("the file can be written") {
                    disk.wait_for_background_work(Duration::from_millis(5));
                }
            }
        });
        scope.spawn(|| {
            give_way();
            while !is_done() {
                if !disk.clean_step().expect("the file can be written") {
                    disk.wait_for_background_work(Duration::from_millis(5));
                }
            }
        });
        scope.spawn(|| {
            while !is_done() {
                std::thread::sleep(Duration::from_millis(500));
                disk.flush(CommitSeq::LATEST).expect("the file can be written");
            }
        });
        let result = work();
        done.store(true, Ordering::Release);
        result
    })
}

/// As the daemon's threads that clean do.
pub(super) fn give_way() {
    dendro_base::priority::lower_thread(CLEANER_NICENESS);
}

pub(super) fn fill(disk: &LogDisk, list: Lid, pages: u64, data: &[u8]) {
    let at_once = (data.len() / PAGE_SIZE) as u64;
    for first in (0..pages).step_by(at_once as usize) {
        let count = at_once.min(pages - first) as usize;
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, first, &data[..count * PAGE_SIZE]);
        disk.commit(aru).expect("there is room");
    }
}

pub(super) fn noise(len_bytes: usize) -> Vec<u8> {
    let mut data = vec![0; len_bytes];
    Rng::new(5).fill(&mut data);
    data
}
