//! The crash harness: random work on a simulated device, whose power is cut at every point.
//!
//! It checks in-order recovery: the state after a crash is the state after some prefix of the work,
//! at or after the last flush that was acknowledged.
//!
//! - [`trace::Trace`]: which states a crash may leave, at each point of the work.
//! - [`system::System`]: what is crashed: a stack of layers on a device, and random work for it.
//! - [`disk`]: a logical disk as a system, compared with the model.
//! - [`log`]: the log-structured disk, made and opened with all options.
//! - `outside`: a cleaner in another process on that disk.
//! - [`mirrored`]: the same disk on two devices that hold the same.
//! - [`spread`]: the same disk spread over two devices, one of which moves to a third.
//! - [`failing`]: the same with devices that fail, and blocks that are damaged.
//! - `parts`: the devices of these two.
//! - [`emptied`]: volumes that are filled, and emptied again.
//! - [`flipped`]: crash images with one flipped bit.
//! - [`damaged`]: images with damage of all kinds.
//! - [`files`]: the file system over a disk as a system, compared with its own model.
//! - [`collected`]: the file system below a kernel that collects what programs write.
//! - [`crash`]: makes crash images and checks them; goes on working on some, and crashes them
//!   again.
//! - [`workload`]: what a seed's work is like.
//! - [`campaign`]: many seeds on several threads, and what is counted.
//! - [`journal`]: a tiny logical disk with planted bugs, which the harness must find. It is the
//!   test of the tests.
//!
//! Everything follows from seeds: a failure is a seed, an event and the number of an image, and
//! `soak --seed N --event M --image K` (with `--files` for the file system) does it again.

pub mod campaign;
pub mod collected;
pub mod crash;
pub mod damaged;
pub mod disk;
pub mod emptied;
pub mod failing;
pub mod files;
pub mod flipped;
pub mod journal;
pub mod log;
pub mod mirrored;
mod outside;
mod parts;
mod seeds;
pub mod spread;
pub mod system;
mod tiered;
pub mod trace;
pub mod workload;
