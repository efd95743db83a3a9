//! The cleaner's policies: what to clean next, and what is written together.
//!
//! A log-structured disk writes everything to clean segments, so it must make segments clean again
//! by moving what still lives in them elsewhere. How much that costs is decided by two choices
//! alone, and both are made here, behind the trait [`Policy`]: which segment is the next *victim*,
//! and which blocks are put together into a segment (its [`Class`]), so that they die together.
//!
//! The engine, a cleaner in another process, and the simulation that compares the policies all use
//! this same code. There is no I/O, no clock and no state for a block: a policy sees a few numbers
//! for each [`Segment`] and the [`Present`], and answers. Time is counted on the *log clock*, in
//! bytes of blocks that clients have written, so an idle night ages nothing.
//!
//! - [`Kind`]: the policies by name, each documented with its source in its own module.
//! - [`Segment::add`] and [`Segment::remove`]: how the numbers of a segment are kept.
//!
//! The mechanism (finding what lives, copying it, committing the moves) is the engine's.

#![forbid(unsafe_code)]

mod class;
mod kind;
mod ladder;
mod pick;
#[cfg(feature = "testing")]
mod scatter;
mod segment;
mod simple;

pub use class::{Class, Classes};
pub use kind::{Kind, UnknownPolicy};
pub use ladder::Ladder;
#[cfg(feature = "testing")]
pub use scatter::Scatter;
pub use segment::{Present, Segment};
pub use simple::{AgeThreshold, CostAgeTimes, CostBenefit, DChoices, Greedy};

use dendro_base::Rng;

/// What to clean next, and what is written together.
///
/// A policy is asked often and by several threads; it keeps no state that matters for safety, so
/// it may be exchanged for another at any time. Whoever asks must treat the answers as advice:
/// a victim may have changed since it was listed.
pub trait Policy: Send + Sync + std::fmt::Debug {
    /// Which policy this is.
    fn kind(&self) -> Kind;

    /// The segments to clean next, `count` at most, the best first, of `candidates`: dirty segments,
    /// neither open nor clean, in any order. Segments in which nothing is dead are passed over.
    fn victims(
        &self,
        candidates: &[Segment],
        count: usize,
        present: &Present,
        rng: &mut Rng,
    ) -> Vec<Segment>;

    /// The best of them, if there is any.
    fn victim(&self, candidates: &[Segment], present: &Present, rng: &mut Rng) -> Option<Segment> {
        self.victims(candidates, 1, present, rng).pop()
    }

    /// The classes in use on a volume like this one; every answer of [`user_class`] and
    /// [`survivor_class`] is one of them or [`Class::MAIN`].
    ///
    /// [`user_class`]: Self::user_class
    /// [`survivor_class`]: Self::survivor_class
    fn classes(&self, _present: &Present) -> Classes {
        Classes::NONE
    }

    /// Where a block goes that a client writes; `left` is the segment that its old block leaves,
    /// as it was before, or `None` when there was none.
    fn user_class(&self, _left: Option<&Segment>, _present: &Present) -> Class {
        Class::MAIN
    }

    /// Where a block goes that survives the cleaning of the segment `left`, as it was before.
    fn survivor_class(&self, _left: &Segment, _present: &Present) -> Class {
        Class::MAIN
    }
}
