//! What cleaning writes: bytes of blocks, and bytes of everything, for those of blocks that clients
//! write, in steady state.
//!
//! Blocks of a page each, 80 % of all segments full of live data. Counts, so the same on every
//! machine. `bench-cleaner` has the policies alone, without records, map, and reserves.

use std::io;
use std::sync::Arc;

use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Aru, Lid, ListHints, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};
use dendro_policy::Kind;

/// As `mkfs` makes them for a volume of this size.
const SEGMENT_BYTES: u64 = 512 << 10;
const SEGMENT_COUNT: u64 = 2048;
/// Pages of live data: 80 % of the volume.
const PAGES: u64 = SEGMENT_COUNT * SEGMENT_BYTES * 8 / 10 / PAGE_SIZE as u64;
/// Writes before and while counting, in live pages.
const WARM_UP: u64 = 3;
const COUNTED: u64 = 2;

/// Which page is written next.
trait Workload {
    fn next(&mut self, rng: &mut Rng) -> u64;
}

type MakeWorkload = fn() -> Box<dyn Workload>;

impl<F: FnMut(&mut Rng) -> u64> Workload for F {
    fn next(&mut self, rng: &mut Rng) -> u64 {
        self(rng)
    }
}

/// Zipf's law over scattered pages, by inversion of its sums.
fn zipf(exponent: f64) -> impl FnMut(&mut Rng) -> u64 {
    let mut sums = Vec::with_capacity(PAGES as usize);
    let mut sum = 0.0;
    for rank in 1..=PAGES {
        sum += (rank as f64).powf(-exponent);
        sums.push(sum);
    }
    move |rng| {
        let draw = rng.next_u64() as f64 / u64::MAX as f64 * sum;
        let rank = sums.partition_point(|&upto| upto < draw) as u64;
        rank.min(PAGES - 1) * 40_503 % PAGES
    }
}

/// TPC-B's files: accounts at random, each with a teller and a branch, and an appended history.
fn tpc_b() -> impl FnMut(&mut Rng) -> u64 {
    let (history, small) = (PAGES / 10, PAGES / 1000);
    let mut step = 0_u64;
    move |rng| {
        step += 1;
        match step % 4 {
            0 => step / 4 / 40 % history,
            1 => history + rng.below(small),
            2 => history + small + rng.below(small / 10 + 1),
            _ => history + 2 * small + rng.below(PAGES - history - 2 * small),
        }
    }
}

/// Files of 1 to 64 pages, rewritten from front to back, one after the other, picked at random.
fn sequential_files() -> impl FnMut(&mut Rng) -> u64 {
    let (mut at, mut left) = (0, 0);
    move |rng| {
        if left == 0 {
            at = rng.below(PAGES / 64) * 64;
            left = 64;
        }
        left -= 1;
        at += 1;
        at - 1
    }
}

pub(crate) fn run(wanted: &str, kind: Option<&str>) -> io::Result<()> {
    let workloads: Vec<(&str, MakeWorkload)> = vec![
        ("uniform", || Box::new(|rng: &mut Rng| rng.below(PAGES))),
        ("TPC-B", || Box::new(tpc_b())),
        ("10/90 hot and cold", || {
            Box::new(|rng: &mut Rng| {
                let hot = PAGES / 10;
                if rng.chance(90) { rng.below(hot) } else { hot + rng.below(PAGES - hot) }
            })
        }),
        ("Zipf 0.99", || Box::new(zipf(0.99))),
        ("Zipf 1.2", || Box::new(zipf(1.2))),
        ("files rewritten in order", || Box::new(sequential_files())),
    ];
    let kinds = match kind {
        Some(name) => vec![name.parse().map_err(io::Error::other)?],
        None => vec![Kind::Ladder, Kind::CostBenefit, Kind::Greedy],
    };
    println!("{:<26} {:<16} {:>8} {:>8}", "80 % of 1 GiB lives", "policy", "blocks", "all");
    for (name, make) in workloads.into_iter().filter(|(name, _)| name.contains(wanted)) {
        for kind in &kinds {
            let (blocks, all) = amplification(make(), *kind);
            println!("{name:<26} {kind:<16} {blocks:>8.2} {all:>8.2}");
        }
    }
    Ok(())
}

/// Bytes of blocks, and of everything, written for those of blocks that clients write.
fn amplification(mut workload: Box<dyn Workload>, kind: Kind) -> (f64, f64) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(SEGMENT_COUNT * SEGMENT_BYTES));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions { segment_size_bytes: SEGMENT_BYTES, ..FormatOptions::default() };
    format(&device, &options, &clock).expect("the device can be formatted");
    let options = OpenOptions { policy: Arc::from(kind.policy()), ..OpenOptions::default() };
    let disk = LogDisk::open(device, options, clock).expect("it was just formatted");
    let list = disk.allocate_list().expect("the disk is writable");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    disk.commit(aru).expect("there is room");
    let mut rng = Rng::new(7);
    let mut page = vec![1_u8; PAGE_SIZE];
    for at in 0..PAGES {
        write(&disk, list, at, &mut page);
    }
    let mut run = |count: u64| {
        for _ in 0..count {
            write(&disk, list, workload.next(&mut rng), &mut page);
        }
        disk.stats()
    };
    let before = run(WARM_UP * PAGES);
    let after = run(COUNTED * PAGES);
    let user = (after.user_page_bytes - before.user_page_bytes) as f64;
    let moved = (after.moved_bytes - before.moved_bytes) as f64;
    let written = (after.written_bytes - before.written_bytes) as f64;
    (1.0 + moved / user, written / user)
}

fn write(disk: &LogDisk, list: Lid, at: u64, page: &mut [u8]) {
    page[0] = page[0].wrapping_add(1).max(1);
    let mut aru = Aru::new(View::HEAD);
    aru.write_pages(list, at, &page[..]);
    disk.commit(aru).expect("there is room at 80 percent");
    while disk.background_step().expect("the device works") {}
}
