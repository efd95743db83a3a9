//! TPC-B as in BSD-LFS's papers, while the volume is cleaned and while that rests, in turns.

use std::io;
use std::path::Path;
use std::time::Duration;

use dendro_base::Rng;
use dendro_disk::{Aru, CommitSeq, Lid, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::{CleanSettings, LogDisk};

use super::rig::{MIB, SEGMENT_BYTES, Timed, VOLUME_BYTES, fill, noise, volume, with_threads};
use crate::engine::new_list;
use crate::measure::{median, time};

const HISTORY_LEN_BYTES: usize = 50;
/// Turns of resting and of cleaning.
const ROUNDS: usize = 5;
/// Of an account, a teller, a branch and the history.
const TRANSACTION_PAGES: u64 = 4;

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
        };
        let data = noise(MIB);
        fill(disk, bank.accounts, bank.account_pages, &data);
        fill(disk, bank.history, history_pages, &data);
        fill(disk, bank.tellers, 110, &data);
        fill(disk, bank.branches, 11, &data);
        bank.tail.reserve(PAGE_SIZE);
        bank
    }

    /// One transaction, atomic as a whole. Returns how much of it was reading, and committing.
    fn transact(&mut self) -> (Duration, Duration) {
        let account = self.rng.below(self.account_pages);
        let mut found = vec![0; PAGE_SIZE];
        let reading = time(|| {
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
        let committing = time(|| {
            self.disk.commit(aru).expect("there is room");
        });
        self.entries += 1;
        (reading, committing)
    }

    /// So many transactions, and until they are durable.
    fn run(&mut self, count: u64, device: &Timed) -> Turn {
        let before = self.disk.stats();
        device.take();
        let mut turn = Turn { latencies: Vec::with_capacity(count as usize), ..Turn::default() };
        turn.took = time(|| {
            for _ in 0..count {
                let (reading, committing) = self.transact();
                turn.reading += reading;
                turn.committing += committing;
                turn.longest = (turn.longest.0.max(reading), turn.longest.1.max(committing));
                turn.latencies.push(reading + committing);
            }
            self.disk.flush(CommitSeq::LATEST).expect("the file can be written");
        });
        let after = self.disk.stats();
        turn.stalled = after.stalled - before.stalled;
        turn.cleaned = after.cleaned_segments - before.cleaned_segments;
        turn.checkpoints = after.checkpoint_seq - before.checkpoint_seq;
        turn.written_bytes = after.written_bytes - before.written_bytes;
        turn.user_bytes = after.user_page_bytes - before.user_page_bytes;
        turn.device = device.take();
        turn
    }
}

/// Transactions one after the other.
#[derive(Default)]
struct Turn {
    /// Each one's.
    latencies: Vec<Duration>,
    /// All of them, until they were durable.
    took: Duration,
    reading: Duration,
    committing: Duration,
    /// The longest of each.
    longest: (Duration, Duration),
    stalled: Duration,
    cleaned: u64,
    checkpoints: u64,
    written_bytes: u64,
    user_bytes: u64,
    device: String,
}

impl Turn {
    fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.took.as_secs_f64()
    }

    /// What the time went to: the client's as it sees it, and the device's.
    fn print(&self, what: &str) {
        println!(
            "  {what:<8} {:.0}/s: reading {:.2?} (at most {:.1?}), committing {:.2?} ({:.1?}), \
             of these waiting for room {:.2?}; \
             {} segments cleaned, {} checkpoints; device: {}",
            self.per_second(),
            self.reading,
            self.longest.0,
            self.committing,
            self.longest.1,
            self.stalled,
            self.cleaned,
            self.checkpoints,
            self.device
        );
    }
}

/// All turns of a kind.
struct Turns {
    per_second: f64,
    p999: Duration,
    worst: Duration,
    written: f64,
}

impl Turns {
    fn of(turns: &[Turn]) -> Self {
        let mut latencies: Vec<_> = turns.iter().flat_map(|turn| &turn.latencies).collect();
        latencies.sort_unstable();
        let slowest = |share: f64| *latencies[((latencies.len() - 1) as f64 * share) as usize];
        let sum = |of: fn(&Turn) -> u64| turns.iter().map(of).sum::<u64>() as f64;
        Self {
            per_second: median(turns.iter().map(Turn::per_second).collect()),
            p999: slowest(0.999),
            worst: slowest(1.0),
            written: sum(|turn| turn.written_bytes) / sum(|turn| turn.user_bytes),
        }
    }
}

/// Has the threads make so many clean segments, or as many as they can.
fn make_clean(disk: &LogDisk, count: u32) {
    let min_clean_segments = Some(count);
    disk.set_clean_settings(CleanSettings { min_clean_segments, ..CleanSettings::default() });
    for _ in 0..1000 {
        if disk.stats().segments.clean >= count {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        disk.checkpoint().expect("the file can be written");
    }
}

/// As the volume is after it has been written once over, a round is: clean segments are made, half
/// of what is free, and filled while cleaning rests; then transactions with cleaning, the first
/// quarter of which is not looked at.
fn rounds(bank: &mut Bank<'_>, device: &Timed, live_percent: u64) -> (Vec<Turn>, Vec<Turn>) {
    let volume_of_transactions = VOLUME_BYTES / ((TRANSACTION_PAGES - 1) * PAGE_SIZE as u64);
    bank.run(volume_of_transactions, device);
    let mut all = (Vec::new(), Vec::new());
    let clean_bytes = (VOLUME_BYTES * (93 - live_percent) / 100 / 2).min(VOLUME_BYTES / 8);
    for _ in 0..ROUNDS {
        make_clean(bank.disk, (clean_bytes / SEGMENT_BYTES) as u32);
        bank.disk.set_clean_settings(CleanSettings { is_suspended: true, ..Default::default() });
        let resting = bank.run(clean_bytes / (TRANSACTION_PAGES * PAGE_SIZE as u64), device);
        resting.print("resting");
        bank.disk.set_clean_settings(CleanSettings::default());
        bank.run(volume_of_transactions / 8, device);
        let cleaning = bank.run(volume_of_transactions * 3 / 8, device);
        cleaning.print("cleaning");
        all.0.push(resting);
        all.1.push(cleaning);
    }
    all
}

/// At each of these shares that live.
pub(super) fn bank(image: &Path, percents: &[u64]) -> io::Result<()> {
    println!(
        "{:<28} {:>10} {:>10} {:>7} {:>22} {:>20} {:>16}",
        "TPC-B, share that lives", "resting/s", "cleaning/s", "share", "p99.9", "worst", "written"
    );
    for &live_percent in percents {
        let (disk, device) = volume(image)?;
        let (resting, cleaning) = with_threads(&disk, || {
            rounds(&mut Bank::new(&disk, live_percent), &device, live_percent)
        });
        let shares = resting.iter().zip(&cleaning).map(|(r, c)| c.per_second() / r.per_second());
        let share = median(shares.collect());
        let (resting, cleaning) = (Turns::of(&resting), Turns::of(&cleaning));
        println!(
            "{:<28} {:>10.0} {:>10.0} {:>6.0}% {:>9.2?} to {:>9.2?} {:>8.1?} to {:>8.1?} {:>5.2}x to {:>5.2}x",
            format!("{live_percent} %"),
            resting.per_second,
            cleaning.per_second,
            100.0 * share,
            resting.p999,
            cleaning.p999,
            resting.worst,
            cleaning.worst,
            resting.written,
            cleaning.written
        );
        disk.shut_down().map_err(io::Error::other)?;
    }
    Ok(())
}
