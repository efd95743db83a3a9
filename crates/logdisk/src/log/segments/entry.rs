//! What is stored of each segment. The entry is packed, because a large volume has millions of
//! segments.

use dendro_format::{Head, SegmentNo};
use dendro_policy::{Class, is_another_death, mean_written_at};
use zerocopy::FromZeros;

use super::state::SegmentState;

/// The unit of stored times on the log clock. Policies do not need a finer one.
const TIME_UNIT_BYTES: u64 = 4096;
/// The last moment that can be stored: after an exbibyte of writes.
const LAST_MOMENT: u64 = (1 << 48) - 1;

const STATE_MASK: u8 = 0b11;
const HEAD_SHIFT: u32 = 2;
const HEAD_MASK: u8 = 0b11 << HEAD_SHIFT;

/// The segment's usage record in the map is out of date.
pub(super) const UNRECORDED: u8 = 1 << 4;
/// The segment's live bytes have changed since the last freeze.
pub(super) const CHANGED: u8 = 1 << 5;
/// The segment waits for the checkpoint that begins next.
pub(super) const AWAITS_NEXT: u8 = 1 << 6;
/// The segment waits for the checkpoint that began last.
pub(super) const AWAITS_LAST: u8 = 1 << 7;

/// A time on the log clock, in [`TIME_UNIT_BYTES`]: 48 bits.
#[derive(Clone, Copy, Debug, Default, FromZeros)]
#[repr(C, packed(2))]
struct Moment {
    low: u32,
    high: u16,
}

impl Moment {
    const fn of(clock: u64) -> Self {
        let pages = clock / TIME_UNIT_BYTES;
        let pages = if pages > LAST_MOMENT { LAST_MOMENT } else { pages };
        Self { low: pages as u32, high: (pages >> 32) as u16 }
    }

    const fn clock(self) -> u64 {
        (self.low as u64 | (self.high as u64) << 32) * TIME_UNIT_BYTES
    }
}

/// The entry of a segment. A zeroed entry is that of a clean segment that was never filled, so the
/// table of a volume that is mostly empty takes almost no memory.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(super) struct Entry {
    pub(super) live_bytes: u32,
    /// Live blocks shorter than a page, as far as is known. Each also needs a record where it is
    /// moved to.
    pub(super) short_count: u32,
    written_at: Moment,
    last_death: Moment,
    filled_at: Moment,
    /// How often a stream has begun to fill the segment, modulo 2¹⁶.
    pub(super) opened: u16,
    deaths: u16,
    class: u8,
    /// The state, the stream's kind and the marks.
    bits: u8,
}

/// DESIGN §5 states the memory that a volume's table takes.
pub(super) const ENTRY_LEN_BYTES: usize = size_of::<Entry>();
const _: () = assert!(ENTRY_LEN_BYTES == 32);

impl Entry {
    pub(super) const fn state(&self) -> SegmentState {
        match self.bits & STATE_MASK {
            0 => SegmentState::Clean,
            1 if self.bits & HEAD_MASK == HEAD_MASK => SegmentState::Mirror,
            1 => SegmentState::Open,
            2 => SegmentState::Dirty,
            _ => SegmentState::Retired,
        }
    }

    pub(super) const fn set_state(&mut self, state: SegmentState) {
        let bits = match state {
            SegmentState::Clean => 0,
            SegmentState::Open => 1,
            SegmentState::Dirty => 2,
            SegmentState::Retired => 3,
            SegmentState::Mirror => return self.set_mirror(),
        };
        self.bits = self.bits & !STATE_MASK | bits;
    }

    /// A mirror is what an open segment of a stream would be that does not exist. Whoever opens it
    /// later sets its stream.
    pub(super) const fn set_mirror(&mut self) {
        self.bits = self.bits & !STATE_MASK | HEAD_MASK | 1;
    }

    pub(super) const fn head(&self) -> Head {
        match (self.bits & HEAD_MASK) >> HEAD_SHIFT {
            0 => Head::Main,
            1 => Head::Map,
            _ => Head::Payload,
        }
    }

    pub(super) const fn set_head(&mut self, head: Head) {
        self.bits = self.bits & !HEAD_MASK | (head as u8) << HEAD_SHIFT;
    }

    pub(super) const fn class(&self) -> Class {
        Class::from_number(self.class)
    }

    pub(super) const fn set_class(&mut self, class: Class) {
        self.class = class.number();
    }

    pub(super) fn written_at(&self) -> u64 {
        self.written_at.clock()
    }

    pub(super) const fn is_marked(&self, mark: u8) -> bool {
        self.bits & mark != 0
    }

    /// Sets a mark; returns whether it was not set before.
    pub(super) const fn mark(&mut self, mark: u8) -> bool {
        let is_new = !self.is_marked(mark);
        self.bits |= mark;
        is_new
    }

    pub(super) const fn unmark(&mut self, mark: u8) {
        self.bits &= !mark;
    }

    /// The segment as the cleaner's policies see it.
    pub(super) fn policy_view(
        &self,
        segment: SegmentNo,
        capacity_bytes: u32,
    ) -> dendro_policy::Segment {
        dendro_policy::Segment {
            number: segment.0,
            live_bytes: self.live_bytes,
            capacity_bytes,
            class: self.class(),
            written_at: self.written_at.clock(),
            last_death: self.last_death.clock(),
            filled_at: self.filled_at.clock(),
            deaths: u32::from(self.deaths),
            // Each time it was filled again it had been cleaned before.
            times_cleaned: u32::from(self.opened).saturating_sub(1),
        }
    }

    /// As [`dendro_policy::Segment::add`].
    pub(super) fn add(&mut self, len_bytes: u32, written_at: u64, clock: u64) {
        let mean = self.written_at.clock();
        self.written_at = Moment::of(mean_written_at(self.live_bytes, mean, len_bytes, written_at));
        self.live_bytes = self.live_bytes.saturating_add(len_bytes);
        let now = Moment::of(clock);
        (self.filled_at, self.last_death) = (now, now);
        self.deaths = 0;
    }

    /// As [`dendro_policy::Segment::remove`].
    pub(super) fn remove(&mut self, len_bytes: u32, clock: u64) {
        self.live_bytes = self.live_bytes.saturating_sub(len_bytes);
        if is_another_death(self.last_death.clock(), clock) {
            self.deaths = self.deaths.saturating_add(1);
        }
        self.last_death = Moment::of(clock);
    }

    /// Restores the live bytes and what policies see from `saved`. State and marks stay as they
    /// are.
    pub(super) const fn restore_usage(&mut self, saved: &Self) {
        *self = Self { bits: self.bits, opened: self.opened, ..*saved };
    }

    /// Stores what policies see of the segment.
    pub(super) fn set_policy_view(&mut self, statistics: &dendro_policy::Segment) {
        self.live_bytes = statistics.live_bytes;
        self.set_class(statistics.class);
        self.written_at = Moment::of(statistics.written_at);
        self.last_death = Moment::of(statistics.last_death);
        self.filled_at = Moment::of(statistics.filled_at);
        self.deaths = u16::try_from(statistics.deaths).unwrap_or(u16::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zeroed_entry_is_a_clean_segment() {
        let entry = Entry::new_zeroed();
        assert_eq!((entry.state(), entry.head()), (SegmentState::Clean, Head::Main));
        let nothing = dendro_policy::Segment { number: 7, ..dendro_policy::Segment::default() };
        assert_eq!(entry.policy_view(SegmentNo(7), 0), nothing);
    }

    #[test]
    fn state_head_and_marks_do_not_touch_each_other() {
        let mut entry = Entry::new_zeroed();
        for mark in [UNRECORDED, CHANGED, AWAITS_NEXT, AWAITS_LAST] {
            assert!(entry.mark(mark) && !entry.mark(mark));
            for state in [
                SegmentState::Open,
                SegmentState::Retired,
                SegmentState::Dirty,
                SegmentState::Clean,
            ] {
                for head in [Head::Map, Head::Payload, Head::Main] {
                    entry.set_mirror();
                    assert_eq!(entry.state(), SegmentState::Mirror);
                    entry.set_state(state);
                    entry.set_head(head);
                    assert_eq!((entry.state(), entry.head()), (state, head));
                    assert!(entry.is_marked(mark));
                }
            }
            entry.unmark(mark);
            assert!(!entry.is_marked(mark));
        }
    }

    #[test]
    fn blocks_are_counted_as_policies_count_them() {
        let mut entry = Entry::new_zeroed();
        let mut expected = dendro_policy::Segment::default();
        for (number, clock) in (1..100_u32).map(|number| (number, u64::from(number) << 15)) {
            for len_bytes in [64, 4096] {
                entry.add(len_bytes, clock / 2, clock);
                expected.add(len_bytes, clock / 2, clock);
                expected.written_at -= expected.written_at % TIME_UNIT_BYTES;
            }
            if number % 3 > 0 {
                entry.remove(4096, clock);
                expected.remove(4096, clock);
            }
            assert_eq!(entry.policy_view(SegmentNo(0), 0), expected);
        }
    }

    #[test]
    fn statistics_are_stored_exactly_except_times_which_are_rounded_to_pages() {
        let mut entry = Entry::new_zeroed();
        let statistics = dendro_policy::Segment {
            number: 3,
            live_bytes: 64 << 20,
            capacity_bytes: 64 << 20,
            class: Class::survivor(2),
            written_at: (1 << 52) + 4096,
            last_death: (1 << 52) + 8192,
            filled_at: (1 << 52) + 4095,
            deaths: 70_000,
            times_cleaned: 0,
        };
        entry.set_policy_view(&statistics);
        let stored = dendro_policy::Segment { filled_at: 1 << 52, deaths: 65_535, ..statistics };
        assert_eq!(entry.policy_view(SegmentNo(3), 64 << 20), stored);
        // Times after the last moment that can be stored become that moment.
        entry.set_policy_view(&dendro_policy::Segment { written_at: u64::MAX, ..statistics });
        assert_eq!(entry.written_at(), LAST_MOMENT * TIME_UNIT_BYTES);
    }
}
