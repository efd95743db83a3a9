//! The file system as a mount, over FUSE and the `fuser` crate.
//!
//! - [`Mount`]: mounts a [`dendro_fs::FileSystem`] and serves it. Each request is unpacked, passed
//!   to the file system, and answered, from beginning to end on the thread that took it.
//! - [`MountOptions`] says how.
//! - [`unmount`]: takes a mount away, with the rights there are.
//!
//! # What is agreed with the kernel
//! - The kernel checks permissions (`default_permissions`, with ACLs); the file system takes set-id
//!   bits away (`HANDLE_KILLPRIV_V2`) and applies the umask (`DONT_MASK`, as default ACLs need).
//! - Attributes, names, absent names, symbolic links and data are cached by the kernel for good:
//!   nothing changes behind its back. Listings are not: the kernel's cache of them loses entries
//!   where several list a directory that changes.
//! - There is no writeback cache: when write(2) has returned, the file system has the data, so
//!   that recovery keeps the order of writes.
//! - Files are not opened: `open` says `ENOSYS` once and is not called again, which saves two
//!   round trips for each open file. So the file system must be mounted with [`dendro_fs::Options::lookups_hold_files`].
//!
//! # What does not get through
//! `fuser` 0.18 has no call for these; the file system's own interface has:
//! - `O_TMPFILE`: the kernel is told `ENOSYS` and answers `EOPNOTSUPP`.
//! - `statx`: so no birth time and no flags.
//! - `copy_file_range` of 2³² bytes or more at once: the kernel asks for less.
//! - Whether truncation, fallocate and copy_file_range take set-id bits away: taken for granted
//!   unless root asks. Whether setting an ACL does (`SETXATTR_ACL_KILL_SGID`): it does not.
//! - `syncfs`: a plain FUSE mount gets none from the kernel.
//! - Interruption of a request: they run to their end.
//!
//! ioctl is not implemented, and locks are the kernel's own.

#![forbid(unsafe_code)]

mod adapter;
mod convert;
mod mount;

pub use adapter::Report;
pub use mount::{Access, Error, Mount, MountOptions, Result, UnmountMode, unmount};
