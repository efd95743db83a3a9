//! Coalescing: pages that follow each other in a list and lie scattered on the device are written
//! side by side again, so that they can be read together (DESIGN §8).
//!
//! A list is processed in *stretches* of 1 MiB, as one view sees them. A *piece* is what one read
//! of the device fetches. Each small piece costs one read and little to write again. So coalescing
//! writes the small pieces of a stretch as one piece, in the order of the list. It moves blocks as
//! the cleaner does ([`crate::clean::relocate`]): a page is written again where the map still names
//! it, in the version that it belongs to, and it keeps its age. Large pieces stay where they are.
//!
//! The lists of a neighbourhood ([`dendro_disk::ListHints::place`]) that are short are processed
//! as if they were one list. [`search`] finds them.
//!
//! - [`idle`] runs in idle times. It walks over all lists once, and
//!   then waits until enough has been written. It skips what is still being written, and it writes
//!   no more than a share of what clients wrote.
//! - [`request`] runs on request. Each call does a bounded part of the work.
//!
//! Neither uses the clean segments that cleaning keeps ready: when clean segments are few, nothing
//! is moved.

mod idle;
mod mover;
mod place;
mod request;
mod search;
mod stretch;

pub(crate) use idle::IdleCoalescing;
pub(crate) use mover::Mover;
pub use place::Place;
pub use request::Coalesced;
pub(crate) use request::coalesce;
