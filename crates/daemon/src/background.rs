//! What a daemon does without being asked.
//!
//! - [`log_writer`]: writes full buffers of the log. [`cleaner`]: checkpoints and cleans.
//! - [`commit`]: makes the tail of the log durable every few seconds, and keeps snapshots.
//! - [`damage_watch`]: reports blocks that are not as they were written.
//! - [`host_room`]: reports that what is below the device is full. [`pace`]: when threads rest.

mod cleaner;
mod commit;
mod damage_watch;
mod host_room;
mod log_writer;
mod pace;
