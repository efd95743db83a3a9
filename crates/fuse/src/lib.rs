//! The file system as a mount, over FUSE.
//!
//! - [`Mount`]: mounts a [`dendro_fs::FileSystem`] and serves it. Each request is unpacked, passed
//!   to the file system, and answered, from beginning to end on the thread that took it.
//! - [`MountOptions`] says how; [`Mount::transport`] which way requests come.
//! - [`mount_for_others`] mounts, and [`Mount::serving`] serves, where these are two processes.
//! - [`Timings`]: how long requests took, by kind.
//! - [`Past`]: what the hidden directory `.dendro` shows.
//! - [`Switch`]: shows another file system in a mount that stays.
//! - [`unmount`]: takes a mount away, with the rights there are.
//!
//! What the kernel says and how, `dendro_fuse_transport` knows.
//!
//! # What is agreed with the kernel
//! - The kernel checks permissions (`default_permissions`, with ACLs); the file system takes set-id
//!   bits away (`HANDLE_KILLPRIV_V2`, `SETXATTR_EXT`) and applies the umask (`DONT_MASK`, as default
//!   ACLs need). Where the kernel can map ids (`ALLOW_IDMAP`), it names a user only where a file is
//!   made.
//! - Attributes, names, absent names, symbolic links and data are cached by the kernel for good:
//!   nothing changes behind its back. Listings are not: the kernel's cache of them loses entries
//!   where several list a directory that changes.
//! - There is no writeback cache: when write(2) has returned, the file system has the data, so
//!   that recovery keeps the order of writes.
//! - Files are not opened: `open` says `ENOSYS` once and is not called again, and so does `create`, in
//!   whose place the kernel then uses `mknod`. That saves opening and releasing each file. So the file
//!   system must be mounted with [`dendro_fs::Options::lookups_keep_files`].
//!
//! # What does not get through
//! - Whether fallocate takes set-id bits away, before Linux 6.1: it does unless the kernel names root
//!   as the caller. Later kernels look at the bits before it, as they do before writes and copies,
//!   and ask for them to be taken away by a SETATTR that changes nothing else.
//! - How the file was opened that fallocate and copy_file_range change: `O_SYNC` and `O_DSYNC` come
//!   with writes alone. To look them up in `/proc` would take longer than a short copy.
//! - The users' flags of files (`chattr`) come by ioctl, and are not known to the kernel: who opens an
//!   immutable file for writing is refused when they write.
//! - `syncfs`: a plain FUSE mount gets none from the kernel.
//! - Signals to who waits for a request, unless they kill: then copies and fallocate end between
//!   two steps. Everything else is short, or waits for the device, as other file systems do.
//!
//! # What is left to the kernel
//! - Locks (flock and POSIX): a head is mounted once, so there is nobody else to share them with.
//! - poll: `ENOSYS`, once, and files are always ready.
//! - Whether a new file keeps its set-group-id bit. So nobody needs to know the caller's groups
//!   (`CREATE_SUPP_GROUP`).

#![forbid(unsafe_code)]

mod adapter;
mod capabilities;
mod convert;
mod flags;
mod groups;
mod hidden;
mod interrupts;
mod layer;
mod live;
mod mount;
mod past;
mod switch;

pub use adapter::{Report, wishes};
pub use dendro_fuse_transport::{
    Access, Choice, Error, Failure, Kind, MountResult as Result, Mounted, Requests, Timings,
    Transport, UnmountMode, unmount,
};
pub use mount::{Mount, MountOptions, mount_for_others, mount_for_user};
pub use past::{Moment, Past};
pub use switch::Switch;
