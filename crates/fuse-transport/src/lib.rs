//! FUSE, from the kernel's protocol to a trait that file systems implement. Nothing here knows
//! dendrofs.
//!
//! - [`FileSystem`]: one method for each kind of request, called on the thread that has received
//!   it. Data is passed as a slice of the buffer that the kernel wrote. Long replies are written to
//!   the buffer that the kernel reads.
//! - [`mount()`], [`unmount()`]: as root by mount(2), otherwise through fusermount3.
//! - [`Session`]: does the handshake, and serves.
//! - [`Timings`]: how many requests there were, and how long they took.
//! - [`Notifier`]: notifies the kernel of changes that were not made through the mount.
//!
//! # Two transports
//! - **io_uring** (Linux 6.14, if `/sys/module/fuse/parameters/enable_uring` allows it): the kernel
//!   has a queue for each CPU, and puts a request into the queue of its caller's CPU. Threads that
//!   are pinned to that CPU, each with a ring of its own, serve it. A reply and the wait for the
//!   next request are one system call, and no other CPU is woken. FORGET and INTERRUPT still come
//!   over `/dev/fuse`, where one more thread collects them.
//! - **`/dev/fuse`**: several threads, each with a descriptor of its own, read, serve, and write.
//!   They are not pinned: with one CPU each they were no faster, and half as fast with more threads
//!   than CPUs, since the kernel wakes them in turn, whatever CPU the caller is on.
//!
//! [`Session::transport`] returns which one is in use.
//!
//! # Supported protocol
//! Protocol 7.31 (Linux 5.4) to 7.45 (6.18), as far as a file system on a disk needs it. Left out,
//! and refused or never asked for: locks (the kernel keeps them), poll (the kernel takes files to
//! be always ready), bmap, DAX, passthrough, CUSE, and writing to the kernel's cache.
//!
//! A malformed request is refused or answered with an error. A reply that the kernel would refuse
//! is never sent.
//!
//! # Modules, each of which uses only those above it
//!
//! | module | what it is |
//! |--------|------------|
//! | `errno` | error numbers |
//! | `protocol` | requests and replies: bytes and values; no I/O |
//! | `timings` | statistics of requests |
//! | `filesystem` | the trait |
//! | `raw` | all `unsafe` code: rings, their memory, one ioctl |
//! | `dev_fuse` | the device `/dev/fuse` |
//! | `notify` | notifications to the kernel |
//! | `mounting` | mounting and unmounting |
//! | `server` | serving requests: sessions, threads, dispatch, replies |

#![deny(unsafe_code)]

mod dev_fuse;
mod errno;
mod filesystem;
mod mounting;
mod notify;
mod protocol;
#[allow(unsafe_code, reason = "memory that the kernel writes to, and an ioctl")]
mod raw;
mod server;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod timings;

pub use errno::{Errno, Result};
pub use filesystem::FileSystem;
pub use mounting::{
    Access, Error, MountRequest, Mounted, Result as MountResult, UnmountMode, mount,
    mount_detached, unmount, while_busy,
};
pub use notify::Notifier;
pub use protocol::dirent::{Entries, EntriesPlus};
pub use protocol::init::{Agreed, Wishes};
pub use protocol::security_context::SecurityContext;
pub use protocol::types::{
    Attr, AttrReply, CopyRange, CreateHow, Entry, FileRange, InitFlags, OpenHow, Opened,
    OpenedFlags, Request, SetAttr, SetTime, SetxattrHow, StatFs, Time, WriteHow,
};
pub use server::{Choice, Options, Session, Transport, enable_uring};
pub use timings::{Failure, Kind, Requests, Timings};
