//! The cleaner's policies: what to clean next, and which blocks are written together.
//!
//! A log-structured disk writes everything to clean segments. So it must make segments clean again,
//! by moving their live blocks elsewhere. How much that costs is decided by two choices, and both
//! are made here, behind the trait [`Policy`]: which segment is the next *victim*, and which blocks
//! are put together into a segment (its [`Class`]), so that they die together.
//!
//! The engine, a cleaner in another process, and the simulation that compares the policies all use
//! this code. There is no I/O, no clock and no state for a block: a policy sees a few numbers for
//! each [`Segment`] and for the volume ([`Present`]). Time is counted on the *log clock*, in bytes
//! of blocks that clients have written, so an idle night ages nothing.
//!
//! The modules, each using only those before it:
//!
//! - `class`: [`Class`], the temperature of a segment's blocks.
//! - `segment`: [`Segment`] and [`Present`]; [`Segment::add`] and [`Segment::remove`] keep the
//!   numbers of a segment.
//! - `kind`: [`Kind`], the policies by name.
//! - `policy`: the trait [`Policy`].
//! - `victims`: choosing the best candidates by a score.
//! - `policies`: the policies, each documented with its source.
//!
//! The mechanism (finding live blocks, copying them, committing the moves) belongs to the engine.

#![forbid(unsafe_code)]

mod class;
mod kind;
mod policies;
mod policy;
mod segment;
mod victims;

pub use class::{Class, Classes};
pub use kind::{Kind, UnknownPolicy};
#[cfg(feature = "testing")]
pub use policies::Scatter;
pub use policies::{AgeThreshold, CostAgeTimes, CostBenefit, DChoices, Greedy, MultiGenerational};
pub use policy::Policy;
pub use segment::{Present, Segment, is_another_death, mean_written_at};
