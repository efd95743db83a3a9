//! Work that the daemon does without a request.
//!
//! - [`log_writer`]: writes full buffers of the log. [`cleaner`]: checkpoints and cleans.
//! - [`commit`]: makes the tail of the log durable, and takes automatic snapshots. It also fetches
//!   what the kernel has collected.
//! - [`damage_watch`]: records damaged blocks.
//! - [`devices`]: brings devices up that lack something.
//! - [`scrub`]: scrubs the volume at a pace that leaves it to its users. [`check`]: checks it on a
//!   frozen state.
//! - [`host_room`]: logs that there is no room below the device. [`pace`]: pauses and failures of
//!   threads.

mod check;
mod cleaner;
mod commit;
mod damage_watch;
mod devices;
mod host_room;
mod log_writer;
mod pace;
mod scrub;
