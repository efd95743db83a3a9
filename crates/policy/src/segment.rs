//! What a policy sees: a few numbers for each segment, and for the volume.

use crate::class::Class;

/// Deaths that follow each other within so many bytes of writing count as one, because the blocks
/// of a record die together.
const ONE_DEATH_BYTES: u64 = 64 << 10;

/// A segment, as a policy sees it. Times are on the log clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Segment {
    /// Which segment it is.
    pub number: u32,
    /// Live bytes in it.
    pub live_bytes: u32,
    /// Bytes it has room for.
    pub capacity_bytes: u32,
    /// What it was filled with.
    pub class: Class,
    /// The mean time at which clients wrote its live blocks.
    pub written_at: u64,
    /// When a block in it last died; the time at which it was filled, if none has or it is not
    /// known.
    pub last_death: u64,
    /// When its last block was written to it, by a client or the cleaner.
    pub filled_at: u64,
    /// How often blocks in it have died since it was filled, as far as it is known. Blocks that die
    /// together count once.
    pub deaths: u32,
    /// How often it has been cleaned; 0 where that is not counted.
    pub times_cleaned: u32,
}

/// The mean time at which the blocks of a segment were written, after a block of `len_bytes` that
/// was written at `written_at` joined `live_bytes` with the mean `mean`.
#[must_use]
pub const fn mean_written_at(live_bytes: u32, mean: u64, len_bytes: u32, written_at: u64) -> u64 {
    if live_bytes == 0 {
        return written_at;
    }
    // The mean moves by the block's share. Sums of times would need 128 bits, whose division takes
    // as long as all the rest of a block's accounting.
    let total = live_bytes as u64 + len_bytes as u64;
    let towards = written_at.abs_diff(mean).saturating_mul(len_bytes as u64) / total;
    if written_at >= mean { mean + towards } else { mean - towards }
}

/// Whether a block that dies at `clock` counts as another death than the one at `last_death`.
#[must_use]
pub const fn is_another_death(last_death: u64, clock: u64) -> bool {
    clock.saturating_sub(last_death) > ONE_DEATH_BYTES
}

impl Segment {
    /// Counts a block of `len_bytes` that is put into this segment now, at `clock`. Its client
    /// wrote it at `written_at`: now, or, if the cleaner moves it, at the
    /// [`written_at`](Self::written_at) of the segment that it comes from.
    pub const fn add(&mut self, len_bytes: u32, written_at: u64, clock: u64) {
        self.written_at = mean_written_at(self.live_bytes, self.written_at, len_bytes, written_at);
        self.live_bytes = self.live_bytes.saturating_add(len_bytes);
        self.filled_at = clock;
        self.last_death = clock;
        self.deaths = 0;
    }

    /// Counts a block of `len_bytes` that dies at `clock`. The mean time of writing does not
    /// change, because the time at which this block was written is not known.
    pub const fn remove(&mut self, len_bytes: u32, clock: u64) {
        self.live_bytes = self.live_bytes.saturating_sub(len_bytes);
        if is_another_death(self.last_death, clock) {
            self.deaths = self.deaths.saturating_add(1);
        }
        self.last_death = clock;
    }

    /// The share of live bytes, from 0 to 1.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        f64::from(self.live_bytes.min(self.capacity_bytes)) / f64::from(self.capacity_bytes.max(1))
    }

    /// Whether cleaning it would free space.
    #[must_use]
    pub const fn has_dead(&self) -> bool {
        self.live_bytes < self.capacity_bytes
    }
}

/// The volume as it is now, as far as a policy needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Present {
    /// The log clock: bytes of blocks that clients have written since the volume was made.
    pub clock: u64,
    /// Live bytes.
    pub live_bytes: u64,
    /// Bytes in a segment.
    pub segment_bytes: u64,
    /// Segments of the volume.
    pub segment_count: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_writing_is_the_mean_of_what_lives() {
        let mut segment = Segment { capacity_bytes: 100, ..Segment::default() };
        segment.add(10, 1000, 1000);
        segment.add(30, 2000, 3000);
        assert_eq!((segment.written_at, segment.live_bytes), (1750, 40));
        assert_eq!((segment.filled_at, segment.last_death), (3000, 3000));
        segment.remove(20, 4000);
        assert_eq!((segment.written_at, segment.live_bytes), (1750, 20));
        assert_eq!((segment.filled_at, segment.last_death), (3000, 4000));
        segment.add(20, 1850, 5000);
        assert_eq!(segment.written_at, 1800);
    }

    #[test]
    fn blocks_that_die_together_are_one_death() {
        let mut segment = Segment::default();
        segment.add(1000, 0, 0);
        let mut clock = 0;
        for record in 1..=3 {
            clock += 2 * ONE_DEATH_BYTES;
            for _ in 0..100 {
                segment.remove(1, clock);
                clock += ONE_DEATH_BYTES;
            }
            assert_eq!(segment.deaths, record);
        }
        segment.add(1000, clock, clock);
        assert_eq!(segment.deaths, 0, "it is filled anew");
    }

    #[test]
    fn times_late_in_a_volumes_life_do_not_overflow() {
        let mut segment = Segment::default();
        let late = u64::MAX - 1;
        segment.add(1 << 26, late, late);
        segment.add(1 << 26, late, late);
        assert_eq!(segment.written_at, late);
    }
}
