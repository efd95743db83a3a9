//! The file system as a mount, over FUSE.
//!
//! - [`Mount`]: mounts a [`dendro_fs::FileSystem`] and serves it. Each request is unpacked, passed
//!   to the file system, and answered, from beginning to end on the thread that has received it.
//! - [`MountOptions`]: how to mount; [`Order`]: when the kernel hands over what programs write;
//!   [`Mount::transport`]: how requests come.
//! - [`mount_for_others`] mounts, and [`Mount::serving`] serves, if these are two processes.
//! - [`Timings`]: how long requests took, by kind.
//! - [`Past`]: the snapshots that the hidden directory `.dendro` shows.
//! - [`Switch`]: replaces the file system that a mount shows.
//! - [`SyncSwitch`]: changes which changes are durable before the reply.
//! - [`unmount()`]: unmounts a file system.
//!
//! The protocol of the kernel is in `dendro_fuse_transport`.
//!
//! # What is agreed with the kernel
//! - The kernel checks permissions (`default_permissions`, with ACLs). The file system clears
//!   set-id bits (`HANDLE_KILLPRIV_V2`, `SETXATTR_EXT`) and applies the umask (`DONT_MASK`, which
//!   default ACLs need). If the kernel can map ids (`ALLOW_IDMAP`), it names a user only in
//!   requests that create a file.
//! - The kernel caches attributes, names, absent names, symbolic links and data forever, since
//!   nothing changes without its knowledge. It does not cache listings: its cache of them loses
//!   entries if several processes list a directory that changes.
//! - There is no writeback cache, unless [`Order::Close`] asks for it. When write(2) has returned,
//!   the file system has the data. So recovery keeps the order of writes.
//! - With the writeback cache the kernel decides on the size and the times of a file. It never asks
//!   for the size again, so nothing else may change that ([`Switch::exchange`]). It does not know
//!   the number of blocks ([`BlockCounts`]), and asks for holes without a look at what it has
//!   collected, so it is told that there are none.
//! - Files are not opened. `open` returns `ENOSYS` once and is not called again, and so does
//!   `create`: the kernel then uses `mknod`. That saves an open and a release for each file. So the
//!   file system must be mounted with [`dendro_fs::Options::lookups_keep_files`].
//!
//! # What the kernel does not pass on
//! - Before Linux 6.1, whether fallocate clears the set-id bits: it does unless the kernel names
//!   root as the caller. Later kernels check the bits first, as they do before writes and copies,
//!   and have them cleared by a SETATTR that changes nothing else.
//! - `O_SYNC` and `O_DSYNC` of files that fallocate and copy_file_range change: only writes have
//!   these flags. To look them up in `/proc` would take longer than a short copy.
//! - The flags of files (`chattr`): they come by ioctl, and the kernel does not know them. So the
//!   open of an immutable file for writing succeeds, and the write fails.
//! - `syncfs`: plain FUSE mounts do not get it.
//! - Signals to callers that wait for a request, unless the signal kills the caller: then copies
//!   and fallocate end between two steps. All other requests are short, or wait for the device, as
//!   in other file systems.
//!
//! # What the kernel does itself
//! - Locks (flock and POSIX): a head is mounted only once, so there are no other holders of locks.
//! - poll: it gets `ENOSYS` once, and files are always ready.
//! - Whether a new file keeps its set-group-id bit. So the groups of the caller are not needed
//!   (`CREATE_SUPP_GROUP`).
//!
//! # Modules, each of which uses only those above it
//!
//! | module | what it is |
//! |--------|------------|
//! | `convert` | the protocol's values and the file system's |
//! | `callers` | what `/proc` shows of callers |
//! | `file_flags` | the ioctls of chattr and lsattr |
//! | `trim` | the ioctl of fstrim |
//! | `current_fs` | the file system that a mount shows, which can be replaced |
//! | `past` | the trait for snapshots |
//! | `handed_over` | files of which the kernel has handed something over |
//! | `sync_mode` | which changes are durable before the reply |
//! | `adapter` | serves requests with the current file system |
//! | `snapshot_dir` | serves requests for the hidden directory of snapshots |
//! | `router` | passes each request to one of these two |
//! | `switch` | replaces the file system of a mount |
//! | `mount` | mounting and serving |

#![forbid(unsafe_code)]

mod adapter;
mod callers;
mod convert;
mod current_fs;
mod file_flags;
mod handed_over;
mod mount;
mod past;
mod router;
mod snapshot_dir;
mod switch;
mod sync_mode;
mod trim;

pub use adapter::{Report, wishes};
pub use dendro_fuse_transport::{
    Access, Choice, Error, Failure, Kind, MountResult as Result, Mounted, Requests, Timings,
    Transport, UnmountMode, unmount, while_busy,
};
pub use handed_over::BlockCounts;
pub use mount::{Mount, MountOptions, Order, mount_for_others, mount_for_user};
pub use past::{Past, SnapshotId};
pub use snapshot_dir::is_snapshot_node;
pub use switch::Switch;
pub use sync_mode::SyncSwitch;
