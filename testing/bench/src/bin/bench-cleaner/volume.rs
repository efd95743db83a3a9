//! A log-structured volume in memory, block by block: where each block lies, and what is moved.

use dendro_base::Rng;
use dendro_policy::{Class, Policy, Present, Segment};

/// Bytes in a block.
const BLOCK_BYTES: u32 = 4096;
/// No block, or no place.
const NONE: u32 = u32::MAX;
/// Cleaning begins when fewer segments are clean: the survivors of one victim fill one at most and
/// may begin another, and one is left for whoever writes meanwhile.
const CLEAN_AT_LEAST: usize = 3;
/// Classes of the oracle; the survivors of one victim may begin a segment of each.
const ORACLE_CLASSES: u8 = 40;

/// How large a volume is and how full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) segment_count: u32,
    pub(crate) segment_blocks: u32,
    /// The share of all segments' blocks that lives, in percent.
    pub(crate) live_percent: u32,
}

impl Shape {
    /// Blocks that live.
    pub(crate) const fn live_blocks(self) -> u32 {
        (self.block_count() as u64 * self.live_percent as u64 / 100) as u32
    }

    /// Blocks that there is room for.
    pub(crate) const fn block_count(self) -> u32 {
        self.segment_count * self.segment_blocks
    }
}

/// Who decides what is cleaned and what is written together.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Decider<'a> {
    /// A policy, which sees segments.
    Policy(&'a dyn Policy),
    /// One that knows when each block will die.
    Oracle,
}

/// A volume in use.
pub(crate) struct Volume<'a> {
    segment_blocks: u32,
    decider: Decider<'a>,
    present: Present,
    segments: Vec<Segment>,
    is_dirty: Vec<bool>,
    /// Those that are dirty, when a victim is chosen.
    dirty: Vec<Segment>,
    clean: Vec<u32>,
    /// The open segment of each class by its number, and how many blocks were put into it.
    open: Vec<(u32, u32)>,
    /// What each place of the log holds.
    block_at: Vec<u32>,
    /// Where each block lies.
    place_of: Vec<u32>,
    /// After how many writes each block dies; for the oracle alone.
    dies_at: Vec<u32>,
    written: u64,
    moved: u64,
    rng: Rng,
}

impl<'a> Volume<'a> {
    /// An empty volume, for blocks numbered below `block_numbers`.
    pub(crate) fn new(shape: Shape, block_numbers: u32, decider: Decider<'a>) -> Self {
        let segment_bytes = shape.segment_blocks * BLOCK_BYTES;
        let segment =
            |number| Segment { number, capacity_bytes: segment_bytes, ..Segment::default() };
        let known = if matches!(decider, Decider::Oracle) { block_numbers } else { 0 };
        Self {
            segment_blocks: shape.segment_blocks,
            decider,
            present: Present {
                clock: 0,
                live_bytes: 0,
                segment_bytes: u64::from(segment_bytes),
                segment_count: shape.segment_count,
            },
            segments: (0..shape.segment_count).map(segment).collect(),
            is_dirty: vec![false; shape.segment_count as usize],
            dirty: Vec::new(),
            clean: (0..shape.segment_count).rev().collect(),
            open: vec![(NONE, 0); 1 + usize::from(u8::MAX)],
            block_at: vec![NONE; shape.block_count() as usize],
            place_of: vec![NONE; block_numbers as usize],
            dies_at: vec![NONE; known as usize],
            written: 0,
            moved: 0,
            rng: Rng::new(1),
        }
    }

    /// Blocks that clients have written and that cleaning has moved.
    pub(crate) const fn counts(&self) -> (u64, u64) {
        (self.written, self.moved)
    }

    /// A client writes `block`, which will die when `dies_at` blocks have been written in all (only
    /// the oracle looks).
    pub(crate) fn write(&mut self, block: u32, dies_at: u32) {
        let place = self.place_of[block as usize];
        let left = (place != NONE).then(|| &self.segments[(place / self.segment_blocks) as usize]);
        let class = match self.decider {
            Decider::Policy(policy) => policy.user_class(left, &self.present),
            Decider::Oracle => {
                self.dies_at[block as usize] = dies_at;
                self.class_by_death(block)
            }
        };
        self.delete(block);
        self.written += 1;
        self.present.clock += u64::from(BLOCK_BYTES);
        self.present.live_bytes += u64::from(BLOCK_BYTES);
        self.append(block, class, self.present.clock);
        if self.clean.len() < self.clean_at_least() {
            while self.clean.len() <= self.clean_at_least() {
                self.clean_one();
            }
        }
    }

    /// A client deletes `block`, if there is one.
    pub(crate) fn delete(&mut self, block: u32) {
        let place = std::mem::replace(&mut self.place_of[block as usize], NONE);
        if place != NONE {
            self.block_at[place as usize] = NONE;
            let segment = &mut self.segments[(place / self.segment_blocks) as usize];
            segment.remove(BLOCK_BYTES, self.present.clock);
            self.present.live_bytes -= u64::from(BLOCK_BYTES);
        }
    }

    const fn clean_at_least(&self) -> usize {
        match self.decider {
            Decider::Policy(_) => CLEAN_AT_LEAST,
            Decider::Oracle => CLEAN_AT_LEAST + ORACLE_CLASSES as usize,
        }
    }

    fn append(&mut self, block: u32, class: Class, written_at: u64) {
        let open = &mut self.open[usize::from(class.number())];
        if open.0 == NONE {
            let number = self.clean.pop().expect("cleaning keeps some clean");
            let segment = &mut self.segments[number as usize];
            segment.class = class;
            *open = (number, 0);
        }
        let (number, fill) = *open;
        open.1 += 1;
        if open.1 == self.segment_blocks {
            *open = (NONE, 0);
            self.is_dirty[number as usize] = true;
        }
        let place = number * self.segment_blocks + fill;
        self.block_at[place as usize] = block;
        self.place_of[block as usize] = place;
        self.segments[number as usize].add(BLOCK_BYTES, written_at, self.present.clock);
    }

    fn clean_one(&mut self) {
        let victim = self.victim();
        let left = self.segments[victim as usize];
        assert!(left.has_dead(), "cleaning {left:?} gains nothing");
        let first = (left.number * self.segment_blocks) as usize;
        let places = first..first + self.segment_blocks as usize;
        let mut living: Vec<u32> =
            self.block_at[places.clone()].iter().copied().filter(|block| *block != NONE).collect();
        assert_eq!(living.len() as u32 * BLOCK_BYTES, left.live_bytes, "usage is exact");
        // By file and position, as the engine does.
        living.sort_unstable();
        self.block_at[places].fill(NONE);
        self.is_dirty[left.number as usize] = false;
        let together = match self.decider {
            Decider::Policy(policy) => Some(policy.survivor_class(&left, &self.present)),
            Decider::Oracle => None,
        };
        for block in &living {
            let class = together.unwrap_or_else(|| self.class_by_death(*block));
            self.append(*block, class, left.written_at);
        }
        self.moved += living.len() as u64;
        let segment = &mut self.segments[left.number as usize];
        *segment = Segment { live_bytes: 0, times_cleaned: left.times_cleaned + 1, ..left };
        self.clean.push(left.number);
    }

    fn victim(&mut self) -> u32 {
        let both = self.segments.iter().zip(&self.is_dirty);
        self.dirty.clear();
        self.dirty.extend(both.filter(|(_, is_dirty)| **is_dirty).map(|(segment, _)| *segment));
        let victim = match self.decider {
            Decider::Policy(policy) => policy.victim(&self.dirty, &self.present, &mut self.rng),
            Decider::Oracle => self.dirty.iter().min_by_key(|s| (s.live_bytes, s.number)).copied(),
        };
        victim.expect("a part of what is full is dead").number
    }

    /// Blocks that die at about the same time belong together: the oracle has classes by what is
    /// left of a block's life, each 30% longer than the one before.
    fn class_by_death(&self, block: u32) -> Class {
        let left = u64::from(self.dies_at[block as usize]).saturating_sub(self.written);
        let segments = left as f64 / f64::from(self.segment_blocks);
        Class::survivor(((segments.max(1.0).ln() / 1.3_f64.ln()) as u8).min(ORACLE_CLASSES - 1))
    }
}

#[cfg(test)]
mod tests {
    use dendro_policy::Kind;

    use super::*;

    #[test]
    fn every_block_lies_where_the_log_has_it() {
        let shape = Shape { segment_count: 32, segment_blocks: 16, live_percent: 70 };
        let mut rng = Rng::new(3);
        for kind in Kind::ALL {
            let policy = kind.policy();
            let live = shape.live_blocks();
            let mut volume = Volume::new(shape, live, Decider::Policy(policy.as_ref()));
            for _ in 0..10_000 {
                let block = rng.below(u64::from(live)) as u32;
                if rng.chance(20) {
                    volume.delete(block);
                } else {
                    volume.write(block, NONE);
                }
            }
            let at = volume.block_at.iter().enumerate().filter(|(_, block)| **block != NONE);
            for (place, block) in at.clone() {
                assert_eq!(volume.place_of[*block as usize], place as u32, "{kind}");
            }
            let alive = volume.place_of.iter().filter(|place| **place != NONE).count();
            assert_eq!(at.count(), alive, "{kind}");
            let sum: u32 = volume.segments.iter().map(|segment| segment.live_bytes).sum();
            assert_eq!(sum, alive as u32 * BLOCK_BYTES, "{kind}");
            assert_eq!(volume.present.live_bytes, u64::from(sum), "{kind}");
            assert!(volume.counts().1 > 0, "{kind} never cleaned");
        }
    }
}
