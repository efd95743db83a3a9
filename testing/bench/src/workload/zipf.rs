//! Blocks whose rates follow Zipf's law.

use dendro_base::Rng;

use super::stream::{Op, Workload, shuffle};

/// The block of rank k is written as often as k to the power of -`exponent`; ranks lie scattered.
///
/// Draws with the alias method (Walker 1977, Vose 1991): exact, and two random numbers each.
pub(super) struct Zipf {
    exponent: f64,
    /// For each rank: it is kept with this chance of 2⁶⁴, or the other one is taken.
    table: Vec<(u64, u32)>,
    block_of: Vec<u32>,
    rng: Rng,
}

impl Zipf {
    pub(super) fn new(live: u32, exponent: f64, mut rng: Rng) -> Self {
        let mut share: Vec<f64> = (1..=live).map(|rank| f64::from(rank).powf(-exponent)).collect();
        let mean = share.iter().sum::<f64>() / f64::from(live);
        share.iter_mut().for_each(|share| *share /= mean);
        let mut table: Vec<(u64, u32)> = (0..live).map(|rank| (u64::MAX, rank)).collect();
        let (mut poor, mut rich): (Vec<u32>, Vec<u32>) =
            (0..live).partition(|rank| share[*rank as usize] < 1.0);
        while let (Some(from), Some(to)) = (poor.pop(), rich.pop()) {
            let kept = share[from as usize];
            table[from as usize] = ((kept * u64::MAX as f64) as u64, to);
            share[to as usize] -= 1.0 - kept;
            if share[to as usize] < 1.0 { &mut poor } else { &mut rich }.push(to);
        }
        let mut block_of: Vec<u32> = (0..live).collect();
        shuffle(&mut block_of, &mut rng);
        Self { exponent, table, block_of, rng }
    }

    fn draw(&mut self) -> u32 {
        let rank = self.rng.below(self.table.len() as u64) as u32;
        let (kept, other) = self.table[rank as usize];
        if self.rng.next_u64() <= kept { rank } else { other }
    }
}

impl Workload for Zipf {
    fn block_numbers(&self) -> u32 {
        self.block_of.len() as u32
    }

    fn next(&mut self, ops: &mut Vec<Op>) {
        let rank = self.draw();
        ops.push(Op::Write(self.block_of[rank as usize]));
    }

    fn rates(&self) -> Option<Vec<(f64, f64)>> {
        let live = self.block_numbers();
        let rate = |rank: u32| f64::from(rank).powf(-self.exponent);
        let total: f64 = (1..=live).map(rate).sum();
        let mut classes = Vec::new();
        let mut first = 1;
        while first <= live {
            // Ranks whose rates differ by a few per cent count as alike.
            let end = (first + 1).max((f64::from(first) * 1.05) as u32).min(live + 1);
            let written: f64 = (first..end).map(rate).sum();
            classes.push((f64::from(end - first) / f64::from(live), written / total));
            first = end;
        }
        Some(classes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_drawn_as_often_as_zipfs_law_says() {
        let mut zipf = Zipf::new(1000, 1.2, Rng::new(5));
        let mut counts = vec![0_u32; 1000];
        let draws = 1_000_000;
        for _ in 0..draws {
            counts[zipf.draw() as usize] += 1;
        }
        let total: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-1.2)).sum();
        for rank in [1, 2, 10, 100_u32] {
            let expected = f64::from(rank).powf(-1.2) / total * f64::from(draws);
            let off = (f64::from(counts[rank as usize - 1]) - expected).abs();
            // Five standard deviations.
            assert!(off < 5.0 * expected.sqrt(), "rank {rank}: {off} off {expected}");
        }
    }
}
