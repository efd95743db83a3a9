//! What cleaning costs those who write, on a file, with the threads that the daemon has.
//!
//! - *TPC-B* as in BSD-LFS's papers: accounts, tellers and branches updated at random, a page each,
//!   and an appended history, at several shares of the volume that live. Throughput while cleaning
//!   is compared with the same volume's while it has clean segments enough and cleaning rests.
//! - *Rewriting* as in the Linux LFS's of 2007: records of 64 KiB over 80 % of the device's size,
//!   uniform, and with a tenth of the records getting nine tenths of the writes. Time is compared
//!   with that of a volume of which a quarter lives.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dendro_base::{Clock, Rng, SystemClock};
use dendro_device::{Device, FileDevice};
use dendro_disk::{Aru, CommitSeq, Lid, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::{CleanSettings, FormatOptions, LogDisk, OpenOptions, format};

use crate::engine::new_list;
use crate::file_device::with_all_blocks;
use crate::measure::time;

const MIB: usize = 1 << 20;
const VOLUME_BYTES: u64 = 1 << 30;
const RECORD_BYTES: usize = 64 << 10;
const HISTORY_LEN_BYTES: usize = 50;

/// TPC-B, at these shares that live, or at all that the papers had.
pub(crate) fn tpc_b(directory: &Path, percents: &[u64]) -> io::Result<()> {
    let percents = if percents.is_empty() { &[48, 60, 70, 80, 90] } else { percents };
    with_image(directory, |image| bank(image, percents))
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
}

impl Asked {
    fn timed<T>(&self, bytes: usize, ask: impl FnOnce() -> T) -> T {
        let mut result = None;
        let took = time(|| result = Some(ask()));
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        result.expect("it was asked")
    }

    /// MiB and seconds since the last call.
    fn take(&self) -> String {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed) as f64;
        let (count, mib, seconds) =
            (take(&self.count), take(&self.bytes) / MIB as f64, take(&self.ns) / 1e9);
        format!("{count:.0}, {mib:.0} MiB, {seconds:.2} s")
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
    // As `mkfs` makes them.
    let options = FormatOptions { segment_size_bytes: 512 << 10, ..FormatOptions::default() };
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
            while !is_done() {
                if !disk.background_step().expect("the file can be written") {
                    disk.wait_for_background_work(Duration::from_millis(5));
                }
            }
        });
        scope.spawn(|| {
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

/// The bank of TPC-B.
struct Bank<'a> {
    disk: &'a LogDisk,
    rng: Rng,
    accounts: Lid,
    account_pages: u64,
    tellers: Lid,
    branches: Lid,
    history: Lid,
    /// The history wraps, as a log that is archived does.
    history_pages: u64,
    entries: u64,
    tail: Vec<u8>,
    page: Vec<u8>,
    reading: Duration,
    committing: Duration,
}

impl<'a> Bank<'a> {
    fn new(disk: &'a LogDisk, live_percent: u64) -> Self {
        let pages = VOLUME_BYTES * live_percent / 100 / PAGE_SIZE as u64;
        let history_pages = pages / 20;
        let mut bank = Self {
            disk,
            rng: Rng::new(live_percent),
            accounts: new_list(disk),
            account_pages: pages - history_pages - 128,
            tellers: new_list(disk),
            branches: new_list(disk),
            history: new_list(disk),
            history_pages,
            entries: 0,
            tail: Vec::new(),
            page: noise(PAGE_SIZE),
            reading: Duration::ZERO,
            committing: Duration::ZERO,
        };
        let data = noise(MIB);
        fill(disk, bank.accounts, bank.account_pages, &data);
        fill(disk, bank.history, history_pages, &data);
        fill(disk, bank.tellers, 110, &data);
        fill(disk, bank.branches, 11, &data);
        bank.tail.reserve(PAGE_SIZE);
        bank
    }

    /// One transaction, atomic as a whole.
    fn transact(&mut self) {
        let account = self.rng.below(self.account_pages);
        let mut found = vec![0; PAGE_SIZE];
        self.reading += time(|| {
            let accounts = self.accounts;
            self.disk.read_pages(View::HEAD, accounts, account, &mut found).expect("it is there");
        });
        self.page[..8].copy_from_slice(&self.entries.to_le_bytes());
        if self.tail.len() + HISTORY_LEN_BYTES > PAGE_SIZE {
            self.tail.clear();
        }
        self.tail.extend_from_slice(&self.page[..HISTORY_LEN_BYTES]);
        let per_page = (PAGE_SIZE / HISTORY_LEN_BYTES) as u64;
        let at = self.entries / per_page % self.history_pages;
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(self.accounts, account, &self.page[..]);
        aru.write_pages(self.tellers, self.rng.below(110), &self.page[..]);
        aru.write_pages(self.branches, self.rng.below(11), &self.page[..]);
        aru.write_pages(self.history, at, &self.tail[..]);
        self.committing += time(|| {
            self.disk.commit(aru).expect("there is room");
        });
        self.entries += 1;
    }

    /// So many transactions: how many in a second, and how long the slowest took.
    fn run(&mut self, count: u64) -> Rate {
        let mut latencies = Vec::with_capacity(count as usize);
        (self.reading, self.committing) = (Duration::ZERO, Duration::ZERO);
        let took = time(|| {
            for _ in 0..count {
                latencies.push(time(|| self.transact()));
            }
        });
        latencies.sort_unstable();
        let slowest = |share: f64| latencies[((count - 1) as f64 * share) as usize];
        Rate {
            per_second: count as f64 / took.as_secs_f64(),
            p999: slowest(0.999),
            worst: slowest(1.0),
            reading: self.reading,
            committing: self.committing,
        }
    }
}

struct Rate {
    per_second: f64,
    p999: Duration,
    worst: Duration,
    reading: Duration,
    committing: Duration,
}

impl Rate {
    /// What the time went to: the clients' as they see it, and the device's.
    fn print(&self, what: &str, device: &str) {
        println!(
            "  {what:<9} reading {:.2?}, committing {:.2?}; device: {device}",
            self.reading, self.committing
        );
    }
}

fn bank(image: &Path, percents: &[u64]) -> io::Result<()> {
    println!(
        "{:<28} {:>10} {:>10} {:>7} {:>22} {:>10} {:>7}",
        "TPC-B, share that lives", "resting/s", "cleaning/s", "share", "p99.9", "worst", "written"
    );
    for &live_percent in percents {
        let (disk, device) = volume(image)?;
        with_threads(&disk, || {
            let mut bank = Bank::new(&disk, live_percent);
            disk.checkpoint().expect("the file can be written");
            disk.set_clean_settings(CleanSettings { is_suspended: true, ..Default::default() });
            // A transaction takes three pages and more; half of what is free is not yet few.
            let free_bytes = VOLUME_BYTES * (93 - live_percent) / 100;
            device.take();
            let resting = bank.run(free_bytes / 2 / (4 * PAGE_SIZE as u64));
            resting.print("resting", &device.take());
            disk.set_clean_settings(CleanSettings::default());
            let volume_of_transactions = VOLUME_BYTES / (3 * PAGE_SIZE as u64);
            bank.run(volume_of_transactions);
            device.take();
            let before = disk.stats();
            let cleaning = bank.run(volume_of_transactions);
            let after = disk.stats();
            cleaning.print("cleaning", &device.take());
            println!(
                "            waited for room {:.2?}; {} segments cleaned, {} filled anew, {} checkpoints",
                after.stalled - before.stalled,
                after.cleaned_segments - before.cleaned_segments,
                after.reused_segments - before.reused_segments,
                after.checkpoint_seq - before.checkpoint_seq
            );
            let written = (after.written_bytes - before.written_bytes) as f64;
            let user = (after.user_page_bytes - before.user_page_bytes) as f64;
            println!(
                "{:<28} {:>10.0} {:>10.0} {:>6.0}% {:>9.2?} to {:>9.2?} {:>10.1?} {:>6.2}x",
                format!("{live_percent} %"),
                resting.per_second,
                cleaning.per_second,
                100.0 * cleaning.per_second / resting.per_second,
                resting.p999,
                cleaning.p999,
                cleaning.worst,
                written / user
            );
        });
        disk.shut_down().map_err(io::Error::other)?;
    }
    Ok(())
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
