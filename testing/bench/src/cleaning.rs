//! What cleaning writes: bytes of blocks, and bytes of everything, for those of blocks that clients
//! write, in steady state.
//!
//! Blocks of a page each, 80 % of all segments full of live data, one block a commit. Counts, so
//! the same on every machine. `bench-cleaner` has the policies alone, without records, map, and
//! reserves, and the same workloads.

use std::io;
use std::sync::Arc;

use dendro_base::{Clock, ManualClock};
use dendro_bench::workload::{Kind as WorkloadKind, Op};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Aru, Lid, ListHints, LogicalDisk, PAGE_SIZE, View};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, Stats, format};
use dendro_policy::Kind as PolicyKind;

/// As large as the volume that `bench-cleaner` simulates.
const DEFAULT_SIZE_GIB: u64 = 4;
/// As `mkfs` makes them for a volume of 1 to 16 GiB: so many, if they are no smaller then.
const SEGMENT_COUNT: u64 = 4096;
const LEAST_SEGMENT_BYTES: u64 = 512 << 10;
/// Live data, of the volume.
const LIVE_PERCENT: u64 = 80;
/// What is counted, in volumes; as much goes before as in the simulation.
const COUNTED: f64 = 2.0;
/// The aims are what the policies write by themselves; with records, map and checkpoints they are
/// allowed so much more.
const ALLOWANCE: f64 = 1.2;
const SEED: u64 = 7;

/// Prints a line for each workload of which the name begins with `wanted`.
///
/// # Errors
/// Nothing is called so.
pub(crate) fn run(wanted: &str, policy: Option<&str>, size_gib: Option<u64>) -> io::Result<()> {
    let policy =
        policy.map_or(Ok(PolicyKind::MultiGenerational), str::parse).map_err(io::Error::other)?;
    let kinds: Vec<_> =
        WorkloadKind::ALL.into_iter().filter(|kind| kind.name().starts_with(wanted)).collect();
    if kinds.is_empty() {
        return Err(io::Error::other(format!("no workload's name begins with {wanted:?}")));
    }
    let size_gib = size_gib.unwrap_or(DEFAULT_SIZE_GIB);
    let heading = format!("{LIVE_PERCENT} % of {size_gib} GiB lives");
    println!("{heading:<24} {:<16} {:>8} {:>8} {:>8}", "policy", "blocks", "all", "aim");
    for kind in kinds {
        let (blocks, all) = Run::new(size_gib << 30, kind, policy).amplification();
        let aim = kind.aim().map_or_else(|| "-".into(), |aim| format!("{:.2}", aim * ALLOWANCE));
        println!("{:<24} {policy:<16} {blocks:>8.2} {all:>8.2} {aim:>8}", kind.name());
    }
    Ok(())
}

/// A workload on a volume.
struct Run {
    kind: WorkloadKind,
    disk: LogDisk,
    list: Lid,
    blocks: u64,
    page: Vec<u8>,
}

impl Run {
    fn new(size_bytes: u64, kind: WorkloadKind, policy: PolicyKind) -> Self {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(size_bytes));
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let segment_size_bytes = (size_bytes / SEGMENT_COUNT).max(LEAST_SEGMENT_BYTES);
        let options = FormatOptions { segment_size_bytes, ..FormatOptions::default() };
        format(&device, &options, &clock).expect("the device can be formatted");
        let options = OpenOptions { policy: Arc::from(policy.policy()), ..OpenOptions::default() };
        let disk = LogDisk::open(device, options, clock).expect("it was just formatted");
        let list = disk.allocate_list().expect("the disk is writable");
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, ListHints::default());
        disk.commit(aru).expect("there is room");
        let blocks = size_bytes / PAGE_SIZE as u64;
        Self { kind, disk, list, blocks, page: vec![1; PAGE_SIZE] }
    }

    /// Bytes of blocks, and of everything, written for those of blocks that clients write.
    fn amplification(mut self) -> (f64, f64) {
        let mut workload = self.kind.workload((self.blocks * LIVE_PERCENT / 100) as u32, SEED);
        if workload.begins_full() {
            (0..workload.block_numbers()).for_each(|block| self.apply(Op::Write(block)));
        }
        let warm_up = self.kind.warm_up();
        let mut ops = Vec::new();
        let mut write = |times: f64| -> Stats {
            let mut left = (times * self.blocks as f64) as usize;
            while left > 0 {
                workload.next(&mut ops);
                left = left.saturating_sub(ops.len());
                ops.drain(..).for_each(|op| self.apply(op));
            }
            self.disk.stats()
        };
        let before = write(warm_up);
        let after = write(COUNTED);
        let user = (after.user_page_bytes - before.user_page_bytes) as f64;
        let moved = (after.moved_bytes - before.moved_bytes) as f64;
        let written = (after.written_bytes - before.written_bytes) as f64;
        (1.0 + moved / user, written / user)
    }

    fn apply(&mut self, op: Op) {
        let mut aru = Aru::new(View::HEAD);
        match op {
            Op::Write(block) => {
                self.page[0] = self.page[0].wrapping_add(1).max(1);
                aru.write_pages(self.list, block.into(), &self.page[..]);
            }
            Op::Delete(block) => {
                aru.punch_pages(self.list, block.into(), 1);
            }
        }
        self.disk.commit(aru).expect("there is room");
        while self.disk.background_step().expect("the device works") {}
    }
}
