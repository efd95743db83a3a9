//! The daemon: the process behind all mounts of a volume.
//!
//! It joins the concrete types of all layers, and is the one place where threads are started.
//! [`run`] begins and ends it; commands start it and ask it, and use what is known here of volumes
//! and mounts.
//!
//! - [`volume`]: a volume, opened. [`options`] and `delegation`: what follows `-o`.
//!   [`mount_config`]: what is mounted where. [`mounts`]: what the kernel has mounted.
//! - `views`: the mounts that are served. `state`: what all threads share. `card`: what a daemon
//!   says it is. `control_socket`: where it says so. [`holder`]: which daemon has a volume.
//! - `serving`: mounts from their beginning to their end. `background`: what is done without being
//!   asked. `admin`: what is answered at the control socket; [`cleaning`]: to cleaners.
//! - [`metrics`]: what a volume has done. [`damage`]: blocks that are not as they were written.
//!   [`streams`]: versions as streams. [`scrub`]: whether all blocks are. [`check`]: whether a
//!   volume is sound. [`resizing`]: how its size changes. [`devices`]: which devices it lies on.
//!   [`block_devices`]: which lie in it. `block_server`: a server of these. [`logging`]: where
//!   messages go. [`unmounted`]: what of this a volume without mounts has.
//! - [`text`], [`local_time`]: numbers and times as people write and read them. `kernel_clock`: the
//!   clock of the kernel's times of files. `failure`: why
//!   something was not done.
//!
//! What it leaves out: arguments and output of commands, which are the crate `dendro`'s.

#![forbid(unsafe_code)]

mod admin;
mod background;
pub mod block_devices;
mod block_server;
mod card;
pub mod check;
pub mod cleaning;
mod control_socket;
pub mod damage;
mod delegation;
pub mod devices;
mod failure;
pub mod holder;
mod kernel_clock;
mod limits;
pub mod local_time;
pub mod logging;
pub mod metrics;
pub mod mount_config;
pub mod mounts;
pub mod options;
pub mod resizing;
mod run;
pub mod scrub;
mod serving;
mod state;
pub mod streams;
pub mod text;
mod threads;
pub mod unmounted;
mod views;
pub mod volume;

pub use failure::Failure;
pub use run::{NotServed, run};
