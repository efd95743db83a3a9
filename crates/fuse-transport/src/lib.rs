//! FUSE, from the kernel's protocol to a trait that file systems implement. Nothing here knows
//! dendrofs.
//!
//! - [`FileSystem`]: one method for each request, called on the thread that took it; data is passed
//!   as a slice of the buffer that the kernel wrote, and long answers are written to the buffer that
//!   it reads.
//! - [`mount()`], [`unmount`]: as root by mount(2), otherwise through fusermount3.
//! - [`Session`]: shakes hands, and serves.
//! - [`Timings`]: how many requests there were, and how long they took.
//! - [`Notifier`]: tells the kernel of changes behind its back.
//!
//! # Two ways for requests to come
//! - **io_uring** (Linux 6.14, if `/sys/module/fuse/parameters/enable_uring` says so): the kernel
//!   has a queue for each CPU, and puts a request on that of its caller. Threads that stay on that
//!   CPU, each with a ring of its own, serve it; an answer and the wait for the next request are
//!   one system call, and no other CPU is woken. Forgets and interruptions still come by
//!   `/dev/fuse`, where one more thread collects them.
//! - **`/dev/fuse`**: some threads, each with a descriptor of its own, read, answer, and write. They
//!   are free to move: tied to a CPU each they were no faster, and half as fast when there were more
//!   than CPUs, since the kernel wakes them in turn, wherever the caller is.
//!
//! [`Session::transport`] says which one it is.
//!
//! # What is spoken
//! Protocol 7.31 (Linux 5.4) to 7.45 (6.18), as far as a file system on a disk has use for it. Left
//! out, and refused or never asked for: locks (the kernel keeps them), ioctl, poll (the kernel takes
//! files to be always ready), bmap, DAX, passthrough, CUSE, and what writes to the kernel's cache.
//!
//! A request that makes no sense is refused or answered with an error; an answer that the kernel
//! would not take is never sent.

#![deny(unsafe_code)]

mod abi;
mod cpus;
mod detached;
mod device;
mod dirent;
mod dispatch;
mod errno;
mod filesystem;
mod helper;
mod init;
mod labels;
mod mount;
mod notify;
mod parse;
#[allow(unsafe_code, reason = "memory that the kernel writes to, and an ioctl")]
mod raw;
mod reply;
mod session;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod timings;
mod types;

pub use detached::mount_detached;
pub use dirent::{Entries, EntriesPlus};
pub use errno::Errno;
pub use filesystem::{FileSystem, Result};
pub use init::{Agreed, Wishes};
pub use labels::Labels;
pub use mount::{
    Access, Error, MountRequest, Mounted, Result as MountResult, UnmountMode, mount, unmount,
};
pub use notify::Notifier;
pub use session::{Choice, Options, Session, Transport, enable_uring};
pub use timings::{Failure, Kind, Requests, Timings};
pub use types::{
    Attr, AttrReply, CopyRange, CreateHow, Entry, FileRange, InitFlags, OpenHow, Opened,
    OpenedFlags, Request, SetAttr, SetTime, SetxattrHow, StatFs, Time, WriteHow,
};
