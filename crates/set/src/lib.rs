//! Several devices that hold one volume, as one device.
//!
//! A [`DeviceSet`] is a [`dendro_device::Device`] of *members*. They hold the same bytes at the
//! same places, so that each of them alone is the whole volume; or the volume is *spread* over
//! them, and each holds other segments of it. What lies above sees one device. Each member has a
//! *roster* at its end ([`dendro_format::roster`]): which members there are, and what each has. A
//! set that has one member and no roster is that device, unchanged.
//!
//! A mirrored member is *in sync* if it has everything, *missing* if it lacks what was written
//! since it was lost, or *brought up*: it gets all that is written, and meanwhile what it lacks.
//! Members of a spread volume are all needed, and all in sync.
//!
//! The module `set` has the invariants on which this stands.

#![forbid(unsafe_code)]

mod assemble;
mod bring_up;
mod create;
mod device;
mod error;
mod files;
mod flushing;
mod growing;
mod member;
mod membership;
mod moving;
mod opening;
mod parts;
mod set;
mod sources;
mod spread;
#[cfg(test)]
mod tests;

pub use assemble::Found;
pub use bring_up::BringUp;
pub use create::NewMember;
pub use error::{Error, Result};
pub use files::{Members, forget, open, roster_on};
pub use member::MemberInfo;
pub use set::DeviceSet;
pub use spread::{part_needed_bytes, part_segments};
