//! What cleaning costs those who write, on a file, with the threads that the daemon has.
//!
//! - *TPC-B* as in BSD-LFS's papers: accounts, tellers and branches updated at random, a page each,
//!   and an appended history, at several shares of the volume that live. Throughput while cleaning
//!   is compared with the same volume's while it has clean segments enough and cleaning rests,
//!   in turns.
//! - *Rewriting* as in the Linux LFS's of 2007: records of 64 KiB over 80 % of the device's size,
//!   uniform, and with a tenth of the records getting nine tenths of the writes. Time is compared
//!   with that of a volume of which a quarter lives.

mod bank;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dendro_base::{Clock, Rng, SystemClock};
use dendro_device::{Device, FileDevice};
use dendro_disk::{Aru, CommitSeq, Lid, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::{CLEANER_NICENESS, FormatOptions, LogDisk, OpenOptions, format};

use crate::engine::new_list;
use crate::file_device::with_all_blocks;
use crate::measure::time;

const MIB: usize = 1 << 20;
const VOLUME_BYTES: u64 = 1 << 30;
const RECORD_BYTES: usize = 64 << 10;
/// As `mkfs` makes them.
const SEGMENT_BYTES: u64 = 512 << 10;

/// TPC-B, at these shares that live, or at all that the papers had.
pub(crate) fn tpc_b(directory: &Path, percents: &[u64]) -> io::Result<()> {
    let percents = if percents.is_empty() { &[48, 60, 70, 80, 90] } else { percents };
    with_image(directory, |image| bank::bank(image, percents))
}

/// The experiment of 2007, at these shares that live beside a quarter.
pub(crate) fn rewriting(directory: &Path, percents: &[u64]) -> io::Result<()> {
    let percents = if percents.is_empty() { &[50, 75, 85, 90] } else { percents };
    with_image(directory, |image| rewrite_all(image, percents))
}

fn with_image(directory: &Path, work: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    let image = directory.join("dendro-bench-full.img");
    let result = work(&image);
    let _ = std::fs::remove_file(&image);
    result
}

/// What a device was asked for, and how long it took.
#[derive(Debug, Default)]
struct Asked {
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
    fn take(&self) -> String {
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
struct Timed {
    device: FileDevice,
    /// Of less than 64 KiB: clients' reads, and nodes of the map.
    small_reads: Asked,
    large_reads: Asked,
    writes: Asked,
    flushes: Asked,
}

impl Timed {
    /// What it has done since the last call.
    fn take(&self) -> String {
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
fn volume(image: &Path) -> io::Result<(LogDisk, Arc<Timed>)> {
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
    let options = OpenOptions { discard: false, ..OpenOptions::default() };
    let disk = LogDisk::open(device, options, clock).map_err(io::Error::other)?;
    Ok((disk, timed))
}

/// Does `work` beside the threads that write the log, clean, and make the log durable.
fn with_threads<T>(disk: &LogDisk, work: impl FnOnce() -> T) -> T {
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
fn give_way() {
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), CLEANER_NICENESS);
}

fn fill(disk: &LogDisk, list: Lid, pages: u64, data: &[u8]) {
    let at_once = (data.len() / PAGE_SIZE) as u64;
    for first in (0..pages).step_by(at_once as usize) {
        let count = at_once.min(pages - first) as usize;
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, first, &data[..count * PAGE_SIZE]);
        disk.commit(aru).expect("there is room");
    }
}

fn noise(len_bytes: usize) -> Vec<u8> {
    let mut data = vec![0; len_bytes];
    Rng::new(5).fill(&mut data);
    data
}

fn rewrite_all(image: &Path, percents: &[u64]) -> io::Result<()> {
    println!(
        "\n{:<28} {:>12} {:>8} {:>9}",
        "Rewriting 64 KiB records", "seconds", "ratio", "written"
    );
    for (name, hot) in [("uniform", false), ("10/90", true)] {
        let mut quarter = None;
        for &live_percent in [25].iter().chain(percents) {
            let (disk, device) = volume(image)?;
            let (seconds, amplification) =
                with_threads(&disk, || rewrite(&disk, &device, live_percent, hot));
            let quarter = *quarter.get_or_insert(seconds);
            let stats = disk.stats();
            println!(
                "  waited for room {:.2?}; {} segments cleaned, {} checkpoints; device: {}",
                stats.stalled,
                stats.cleaned_segments,
                stats.checkpoint_seq,
                device.take()
            );
            println!(
                "{:<28} {seconds:>12.2} {:>7.2}x {amplification:>8.2}x",
                format!("{name}, {live_percent} %"),
                seconds / quarter
            );
            disk.shut_down().map_err(io::Error::other)?;
        }
    }
    Ok(())
}

fn rewrite(disk: &LogDisk, device: &Timed, live_percent: u64, hot: bool) -> (f64, f64) {
    let list = new_list(disk);
    let record_pages = (RECORD_BYTES / PAGE_SIZE) as u64;
    let records = VOLUME_BYTES * live_percent / 100 / RECORD_BYTES as u64;
    let data = noise(RECORD_BYTES);
    fill(disk, list, records * record_pages, &data);
    disk.flush(CommitSeq::LATEST).expect("the file can be written");
    device.take();
    let before = disk.stats();
    let mut rng = Rng::new(live_percent);
    let took = time(|| {
        for _ in 0..VOLUME_BYTES * 8 / 10 / RECORD_BYTES as u64 {
            let tenth = (records / 10).max(1);
            let record = match hot.then(|| rng.chance(90)) {
                None => rng.below(records),
                Some(true) => rng.below(tenth),
                Some(false) => tenth + rng.below(records - tenth),
            };
            let mut aru = Aru::new(View::HEAD);
            aru.write_pages(list, record * record_pages, &data[..]);
            disk.commit(aru).expect("there is room");
        }
        disk.flush(CommitSeq::LATEST).expect("the file can be written");
    });
    let after = disk.stats();
    let written = (after.written_bytes - before.written_bytes) as f64;
    let user = (after.user_page_bytes - before.user_page_bytes) as f64;
    (took.as_secs_f64(), written / user)
}
