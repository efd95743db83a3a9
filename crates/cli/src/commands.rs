//! The commands, a module for each or for a family of them.
//!
//! - [`mkfs`], [`mount`], [`umount`], [`check`], [`rebuild`], [`image`], [`dump`], [`damage`],
//!   [`scrub`], [`resize`]; [`volume`]: `sync`, `info` and `set`.
//! - [`stat`], [`segments`]: what a volume has done, and how full it is. [`cleaning`]: `clean` and
//!   `cleanerd`.
//! - [`files`]: `ls`, `cat` and `cp`, which read volumes that are not mounted.
//! - [`versions`]: snapshots, branches, and files in the past. [`fork`]: working trees that go on
//!   from another one. [`try_command`]: `dendro try`.
//! - [`block`]: block devices, and [`nbd`]: who serves them.
//! - [`streams`]: `send`, `receive` and `stream`.
//! - [`udev`], [`generate`]: for other programs, and for man pages and completions.

pub(crate) mod block;
pub(crate) mod check;
pub(crate) mod cleaning;
pub(crate) mod clients;
pub(crate) mod damage;
pub(crate) mod devices;
pub(crate) mod dump;
pub(crate) mod files;
pub(crate) mod fork;
pub(crate) mod generate;
pub(crate) mod image;
pub(crate) mod mkfs;
pub(crate) mod mount;
pub(crate) mod nbd;
pub(crate) mod rebuild;
pub(crate) mod replicate;
pub(crate) mod resize;
pub(crate) mod scrub;
pub(crate) mod segments;
pub(crate) mod stat;
pub(crate) mod streams;
pub(crate) mod try_command;
pub(crate) mod udev;
pub(crate) mod umount;
pub(crate) mod versions;
pub(crate) mod volume;
