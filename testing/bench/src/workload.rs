//! What clients write, block by block, for counting what cleaning writes.

mod stream;
mod zipf;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use dendro_base::Rng;

use self::stream::shuffle;
use self::zipf::Zipf;

pub use stream::{Op, Workload};

/// The workloads by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All blocks alike.
    Uniform,
    /// The four files of TPC-B.
    TpcB,
    /// Nine of ten writes go to a tenth of the blocks.
    HotCold,
    /// Zipf's law with an exponent of 0.99.
    Zipf099,
    /// Zipf's law with an exponent of 1.2.
    Zipf12,
    /// Files are created and deleted.
    Churn,
    /// Files are overwritten whole.
    Sequential,
    /// Records of many blocks, all alike.
    Records,
    /// As [`Self::HotCold`], and the tenth moves.
    Moving,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Uniform,
        Self::TpcB,
        Self::HotCold,
        Self::Zipf099,
        Self::Zipf12,
        Self::Churn,
        Self::Sequential,
        Self::Records,
        Self::Moving,
    ];

    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::TpcB => "TPC-B",
            Self::HotCold => "10/90",
            Self::Zipf099 => "Zipf 0.99",
            Self::Zipf12 => "Zipf 1.2",
            Self::Churn => "churn",
            Self::Sequential => "sequential",
            Self::Records => "records",
            Self::Moving => "moving",
        }
    }

    /// The write amplification that is aimed at, where 80% lives.
    #[must_use]
    pub const fn aim(self) -> Option<f64> {
        match self {
            Self::Uniform => Some(2.7),
            Self::TpcB => Some(2.5),
            Self::HotCold | Self::Churn => Some(1.5),
            Self::Zipf099 => Some(1.65),
            Self::Zipf12 => Some(1.2),
            Self::Sequential => Some(1.35),
            Self::Records | Self::Moving => None,
        }
    }

    /// How long it runs until it is steady, in times the volume's blocks: the slowest data must
    /// have been written again.
    #[must_use]
    pub const fn warm_up(self) -> f64 {
        match self {
            Self::TpcB => 24.0,
            _ => 12.0,
        }
    }

    /// The workload over `live` blocks that `seed` names.
    #[must_use]
    pub fn workload(self, live: u32, seed: u64) -> Box<dyn Workload> {
        let rng = Rng::new(seed);
        match self {
            Self::Uniform => Box::new(Uniform { live, rng }),
            Self::TpcB => Box::new(TpcB::new(live, rng)),
            Self::HotCold => Box::new(HotCold { live, writes_per_move: None, written: 0, rng }),
            Self::Zipf099 => Box::new(Zipf::new(live, 0.99, rng)),
            Self::Zipf12 => Box::new(Zipf::new(live, 1.2, rng)),
            Self::Churn => Box::new(Churn::new(live, rng)),
            Self::Sequential => Box::new(Sequential::new(live, rng)),
            Self::Records => Box::new(Records { count: live / Records::BLOCKS, rng }),
            Self::Moving => {
                Box::new(HotCold { live, writes_per_move: Some(live), written: 0, rng })
            }
        }
    }
}

fn below(rng: &mut Rng, bound: u32) -> u32 {
    rng.below(u64::from(bound)) as u32
}

/// A number from 0 to 1, 1 excluded.
fn fraction(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// All blocks alike.
struct Uniform {
    live: u32,
    rng: Rng,
}

impl Workload for Uniform {
    fn block_numbers(&self) -> u32 {
        self.live
    }

    fn next(&mut self, ops: &mut Vec<Op>) {
        ops.push(Op::Write(below(&mut self.rng, self.live)));
    }

    fn rates(&self) -> Option<Vec<(f64, f64)>> {
        Some(vec![(1.0, 1.0)])
    }
}

/// Nine of ten writes go to a tenth of the blocks; which tenth may move to the next now and then.
struct HotCold {
    live: u32,
    writes_per_move: Option<u32>,
    written: u64,
    rng: Rng,
}

impl Workload for HotCold {
    fn block_numbers(&self) -> u32 {
        self.live
    }

    fn next(&mut self, ops: &mut Vec<Op>) {
        let hot = self.live / 10;
        let moves = self.writes_per_move.map_or(0, |every| self.written / u64::from(every));
        let first = (moves % 10) as u32 * hot;
        let block = if self.rng.chance(90) {
            below(&mut self.rng, hot)
        } else {
            hot + below(&mut self.rng, self.live - hot)
        };
        ops.push(Op::Write((first + block) % self.live));
        self.written += 1;
    }

    fn rates(&self) -> Option<Vec<(f64, f64)>> {
        self.writes_per_move.is_none().then(|| vec![(0.1, 0.9), (0.9, 0.1)])
    }
}

/// The four files of TPC-B, an operation for each block that reaches the disk.
///
/// A branch has 10 tellers and 100,000 accounts, of 100 bytes each. Each transaction changes a
/// random account, which is a block of its own each time; tellers, branches and the history's last
/// block are changed by all, and reach the disk once for each commit interval. The history has 50
/// bytes for each transaction, is a fifth of what lives, and wraps.
struct TpcB {
    accounts: u32,
    /// Blocks of tellers and branches.
    hot: u32,
    history: u32,
    history_at: u32,
    rng: Rng,
}

impl TpcB {
    const ACCOUNT_BLOCKS_PER_BRANCH: u32 = 100_000 * 100 / 4096;
    /// A thousand transactions a second, and a commit each five seconds.
    const TRANSACTIONS_PER_COMMIT: u32 = 5_000;
    const HISTORY_BLOCKS_PER_COMMIT: u32 = (Self::TRANSACTIONS_PER_COMMIT * 50).div_ceil(4096);

    fn new(live: u32, rng: Rng) -> Self {
        let history = live / 5;
        let branches = (live - history).div_ceil(Self::ACCOUNT_BLOCKS_PER_BRANCH);
        let hot = (branches * 100).div_ceil(4096) + (branches * 1000).div_ceil(4096);
        Self { accounts: live - history - hot, hot, history, history_at: 0, rng }
    }
}

impl Workload for TpcB {
    fn block_numbers(&self) -> u32 {
        self.accounts + self.hot + self.history
    }

    fn next(&mut self, ops: &mut Vec<Op>) {
        for _ in 0..Self::TRANSACTIONS_PER_COMMIT {
            ops.push(Op::Write(below(&mut self.rng, self.accounts)));
        }
        ops.extend((self.accounts..self.accounts + self.hot).map(Op::Write));
        for _ in 0..Self::HISTORY_BLOCKS_PER_COMMIT {
            ops.push(Op::Write(self.accounts + self.hot + self.history_at));
            self.history_at = (self.history_at + 1) % self.history;
        }
    }

    fn rates(&self) -> Option<Vec<(f64, f64)>> {
        let files = [
            (self.accounts, Self::TRANSACTIONS_PER_COMMIT),
            (self.hot, self.hot),
            (self.history, Self::HISTORY_BLOCKS_PER_COMMIT),
        ];
        let writes: u32 = files.iter().map(|(_, writes)| writes).sum();
        let share = |part: u32, whole: u32| f64::from(part) / f64::from(whole);
        let live = self.block_numbers();
        Some(files.iter().map(|file| (share(file.0, live), share(file.1, writes))).collect())
    }
}

/// Files are created and, their time over, deleted.
///
/// Sizes go from one block to 64, evenly on a logarithmic scale. Nine of ten files live a short
/// life and one a long one, both exponential, so that a tenth of what lives is short-lived.
struct Churn {
    live: u32,
    used: u32,
    created: u64,
    free_files: Vec<u32>,
    /// When files die, in blocks created; with their numbers and sizes.
    files: BinaryHeap<Reverse<(u64, u32, u32)>>,
    rng: Rng,
}

impl Churn {
    const MAX_FILE_BLOCKS: u32 = 64;
    /// No more than live / this are there at a time; the mean size is 15 blocks.
    const BLOCKS_PER_FILE: u32 = 6;
    const SHORT_LIVED_PERCENT: u64 = 90;
    /// Mean lives, in times of what lives.
    const SHORT_LIFE: f64 = 0.1 / 0.9;
    const LONG_LIFE: f64 = 9.0;

    fn new(live: u32, rng: Rng) -> Self {
        Self {
            live,
            used: 0,
            created: 0,
            free_files: (0..live / Self::BLOCKS_PER_FILE).rev().collect(),
            files: BinaryHeap::new(),
            rng,
        }
    }

    fn life_blocks(&mut self) -> u64 {
        let is_short = self.rng.chance(Self::SHORT_LIVED_PERCENT);
        let mean = if is_short { Self::SHORT_LIFE } else { Self::LONG_LIFE };
        (-(1.0 - fraction(&mut self.rng)).ln() * mean * f64::from(self.live)) as u64
    }

    fn blocks(file: u32, len_blocks: u32) -> impl Iterator<Item = u32> {
        let first = file * Self::MAX_FILE_BLOCKS;
        first..first + len_blocks
    }
}

impl Workload for Churn {
    fn block_numbers(&self) -> u32 {
        self.live / Self::BLOCKS_PER_FILE * Self::MAX_FILE_BLOCKS
    }

    fn begins_full(&self) -> bool {
        false
    }

    fn next(&mut self, ops: &mut Vec<Op>) {
        let len = f64::from(Self::MAX_FILE_BLOCKS + 1).powf(fraction(&mut self.rng)) as u32;
        while self.used + len > self.live {
            let Reverse((_, file, len)) = self.files.pop().expect("files take the space");
            ops.extend(Self::blocks(file, len).map(Op::Delete));
            self.free_files.push(file);
            self.used -= len;
        }
        let file = self.free_files.pop().expect("there are more numbers than files");
        ops.extend(Self::blocks(file, len).map(Op::Write));
        self.used += len;
        self.created += u64::from(len);
        let dies_at = self.created + self.life_blocks();
        self.files.push(Reverse((dies_at, file, len)));
    }
}

/// All files, of 64 blocks, are overwritten from front to back, one after the other, in an order
/// that is drawn anew each time round.
struct Sequential {
    /// The files in this round's order, and how many of them are done.
    order: Vec<u32>,
    done: usize,
    rng: Rng,
}

impl Sequential {
    const FILE_BLOCKS: u32 = 64;

    fn new(live: u32, rng: Rng) -> Self {
        let order: Vec<u32> = (0..live / Self::FILE_BLOCKS).collect();
        Self { done: order.len(), order, rng }
    }
}

impl Workload for Sequential {
    fn block_numbers(&self) -> u32 {
        self.order.len() as u32 * Self::FILE_BLOCKS
    }

    fn next(&mut self, ops: &mut Vec<Op>) {
        if self.done == self.order.len() {
            shuffle(&mut self.order, &mut self.rng);
            self.done = 0;
        }
        let first = self.order[self.done] * Self::FILE_BLOCKS;
        self.done += 1;
        ops.extend((first..first + Self::FILE_BLOCKS).map(Op::Write));
    }
}

/// Records are overwritten whole, all equally likely.
struct Records {
    count: u32,
    rng: Rng,
}

impl Records {
    /// An eighth of a segment where segments have 512.
    const BLOCKS: u32 = 64;
}

impl Workload for Records {
    fn block_numbers(&self) -> u32 {
        self.count * Self::BLOCKS
    }

    fn next(&mut self, ops: &mut Vec<Op>) {
        let first = below(&mut self.rng, self.count) * Self::BLOCKS;
        ops.extend((first..first + Self::BLOCKS).map(Op::Write));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_keeps_as_much_alive_as_it_was_made_for() {
        for kind in Kind::ALL {
            let made_for = 100_000;
            let mut workload = kind.workload(made_for, 1);
            let mut alive = vec![workload.begins_full(); workload.block_numbers() as usize];
            let mut ops = Vec::new();
            for _ in 0..100_000 {
                workload.next(&mut ops);
                for op in ops.drain(..) {
                    match op {
                        Op::Write(block) => alive[block as usize] = true,
                        Op::Delete(block) => alive[block as usize] = false,
                    }
                }
                if matches!(kind, Kind::TpcB) {
                    break;
                }
            }
            let count = alive.iter().filter(|alive| **alive).count();
            assert!((99_000..=100_000).contains(&count), "{kind:?}: {count}");
        }
    }

    #[test]
    fn rates_are_shares() {
        for kind in Kind::ALL {
            let Some(rates) = kind.workload(100_000, 1).rates() else { continue };
            let sum = rates.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            assert!((sum.0 - 1.0).abs() < 1e-6 && (sum.1 - 1.0).abs() < 1e-6, "{kind:?}: {sum:?}");
        }
    }
}
