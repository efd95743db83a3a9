//! Block devices on a logical disk: virtual disks with snapshots and clones.
//!
//! A block device is a branch whose list [`CONTENT`] has a description, as record 0, and the
//! device's contents, as pages. Its snapshots are block devices that can only be read, and branches
//! that were made from it are devices of their own, which share what is alike. All of that costs
//! what snapshots and branches of the disk cost: some microseconds, whatever the device holds.
//!
//! - [`BlockDevice`]: a device that is open. A write is one unit, so that it takes effect whole or
//!   not at all, in the order of all commits.
//! - [`Devices`]: all devices of a disk, by names, for a server of NBD; makes, resizes and deletes
//!   devices, also while clients have some open.
//! - [`create_client`], [`resize`], [`list`]: the same for who has the disk to itself.
//!
//! The first two are there with the feature `nbd`, which is on by default.
//!
//! # Modules, each of which uses only those above it
//!
//! | module | what it is |
//! |--------|------------|
//! | `error` | errors |
//! | `description` | record 0 |
//! | `manage` | making, resizing and listing devices |
//! | `device` | a device that is open |
//! | `devices` | names of devices, and which are open |
//! | `changes` | changes beside clients that have devices open |

#![forbid(unsafe_code)]

#[cfg(feature = "nbd")]
mod changes;
mod description;
#[cfg(feature = "nbd")]
mod device;
#[cfg(feature = "nbd")]
mod devices;
mod error;
mod manage;

use dendro_disk::Lid;

pub use description::{DescriptionV1, check_size};
#[cfg(feature = "nbd")]
pub use device::BlockDevice;
#[cfg(feature = "nbd")]
pub use devices::{Changing, Devices};
pub use error::{Error, MAX_SIZE_BYTES, Result};
pub use manage::{Listed, create, create_client, list, resize, size_bytes};

/// The list that has a device's description and its contents.
pub const CONTENT: Lid = Lid::FIRST;
