//! What a policy answers.

use dendro_base::Rng;

use crate::class::{Class, Classes};
use crate::kind::Kind;
use crate::segment::{Present, Segment};

/// Chooses what to clean next, and which blocks are written together.
///
/// A policy is called often and by several threads. It keeps no state that matters for safety, so
/// it may be replaced by another at any time. Its answers are advice: a victim may have changed
/// since it was listed.
pub trait Policy: Send + Sync + std::fmt::Debug {
    /// Which policy this is.
    fn kind(&self) -> Kind;

    /// The segments to clean next, `count` at most, the best first, of `candidates`: dirty
    /// segments, neither open nor clean, in any order. Segments without dead bytes are skipped.
    fn victims(
        &self,
        candidates: &[Segment],
        count: usize,
        present: &Present,
        rng: &mut Rng,
    ) -> Vec<Segment>;

    /// The best victim, if there is any.
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

    /// The class for a block that a client writes. `left` is the segment that holds the block that
    /// it replaces, before that dies; `None` if it replaces none.
    fn user_class(&self, _left: Option<&Segment>, _present: &Present) -> Class {
        Class::MAIN
    }

    /// The class for a block that survives the cleaning of the segment `left`, as that was before.
    fn survivor_class(&self, _left: &Segment, _present: &Present) -> Class {
        Class::MAIN
    }
}
