//! What is kept of each segment, packed: a large volume has millions of them.

use dendro_format::{Head, SegmentNo};
use dendro_policy::Class;
use zerocopy::FromZeros;

use super::SegmentState;

/// Times on the log clock are kept in units of this: what is written in the meantime tells no
/// policy anything.
const TIME_UNIT_BYTES: u64 = 4096;
/// The last moment that can be told: behind an exbibyte of writing.
const LAST_MOMENT: u64 = (1 << 48) - 1;

const STATE_MASK: u8 = 0b11;
const HEAD_SHIFT: u32 = 2;
const HEAD_MASK: u8 = 0b11 << HEAD_SHIFT;

/// Its usage record in the map is out of date.
pub(super) const UNRECORDED: u8 = 1 << 4;
/// Its live bytes have changed since the last checkpoint was begun.
pub(super) const CHANGED: u8 = 1 << 5;
/// It waits for the checkpoint that begins next.
pub(super) const HELD_FOR_NEXT: u8 = 1 << 6;
/// It waits for the checkpoint that was begun last.
pub(super) const HELD_FOR_LAST: u8 = 1 << 7;

/// A time on the log clock, in [`TIME_UNIT_BYTES`].
#[derive(Clone, Copy, Debug, Default, FromZeros)]
struct Moment([u8; 6]);

impl Moment {
    fn of(clock: u64) -> Self {
        let [a, b, c, d, e, f, ..] = (clock / TIME_UNIT_BYTES).min(LAST_MOMENT).to_le_bytes();
        Self([a, b, c, d, e, f])
    }

    const fn clock(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0]) * TIME_UNIT_BYTES
    }
}

/// A segment. Zeroed, it is clean and has never been filled; so the table of a volume that is mostly
/// empty takes next to no memory.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(super) struct Entry {
    pub(super) live_bytes: u32,
    /// Blocks shorter than a page that live in it, as far as is known: each takes a record too, where
    /// it is moved to.
    pub(super) short_count: u32,
    written_at: Moment,
    last_death: Moment,
    filled_at: Moment,
    /// How often a head has begun to fill it, modulo 2¹⁶.
    pub(super) opened: u16,
    deaths: u16,
    class: u8,
    /// State, head, and marks.
    bits: u8,
}

/// DESIGN §5 says what a volume's table takes.
pub(super) const ENTRY_LEN_BYTES: usize = size_of::<Entry>();
const _: () = assert!(ENTRY_LEN_BYTES == 32);

impl Entry {
    pub(super) const fn state(&self) -> SegmentState {
        match self.bits & STATE_MASK {
            0 => SegmentState::Clean,
            1 => SegmentState::Open,
            _ => SegmentState::Dirty,
        }
    }

    pub(super) const fn set_state(&mut self, state: SegmentState) {
        let bits = match state {
            SegmentState::Clean => 0,
            SegmentState::Open => 1,
            SegmentState::Dirty => 2,
        };
        self.bits = self.bits & !STATE_MASK | bits;
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

    /// Marks it; says whether it was not marked before.
    pub(super) const fn mark(&mut self, mark: u8) -> bool {
        let is_new = !self.is_marked(mark);
        self.bits |= mark;
        is_new
    }

    pub(super) const fn unmark(&mut self, mark: u8) {
        self.bits &= !mark;
    }

    /// What the cleaner's policies see of it.
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

    /// What lives in it, and what policies see of it, are as `saved` has them; its state and its marks
    /// stay.
    pub(super) const fn restore_usage(&mut self, saved: &Self) {
        *self = Self { bits: self.bits, opened: self.opened, ..*saved };
    }

    /// Keeps what policies see of it.
    pub(super) fn set_policy_view(&mut self, figures: &dendro_policy::Segment) {
        self.live_bytes = figures.live_bytes;
        self.set_class(figures.class);
        self.written_at = Moment::of(figures.written_at);
        self.last_death = Moment::of(figures.last_death);
        self.filled_at = Moment::of(figures.filled_at);
        self.deaths = u16::try_from(figures.deaths).unwrap_or(u16::MAX);
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
        for mark in [UNRECORDED, CHANGED, HELD_FOR_NEXT, HELD_FOR_LAST] {
            assert!(entry.mark(mark) && !entry.mark(mark));
            for state in [SegmentState::Open, SegmentState::Dirty, SegmentState::Clean] {
                for head in [Head::Map, Head::Payload, Head::Main] {
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
    fn figures_are_kept_but_for_less_than_a_page_of_time() {
        let mut entry = Entry::new_zeroed();
        let figures = dendro_policy::Segment {
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
        entry.set_policy_view(&figures);
        let kept = dendro_policy::Segment { filled_at: 1 << 52, deaths: 65_535, ..figures };
        assert_eq!(entry.policy_view(SegmentNo(3), 64 << 20), kept);
        // Behind the last moment that can be told, time stands still.
        entry.set_policy_view(&dendro_policy::Segment { written_at: u64::MAX, ..figures });
        assert_eq!(entry.written_at(), LAST_MOMENT * TIME_UNIT_BYTES);
    }
}
