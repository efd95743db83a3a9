//! A kind of logical disk, and how it is driven.

use dendro_base::sync::Arc;
use dendro_base::{Rng, Timestamp};
use dendro_device::Device;
use dendro_disk::{LogicalDisk, Versions};

use crate::system::Outcome;

/// The time at which everything happens.
pub(crate) const NOW: Timestamp = Timestamp(1_767_225_600_000_000_000);

/// How a kind of logical disk is made, opened and driven.
pub trait Engine: Sync {
    /// The disk.
    type Disk: LogicalDisk + 'static;

    /// Makes an empty one, durable.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn format(&self, device: Arc<dyn Device>) -> Outcome<()>;

    /// Opens one, recovering it if need be.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn open(&self, device: Arc<dyn Device>) -> Outcome<Self::Disk>;

    /// Whether a disk that was opened after a crash may be found in another state if the opening
    /// is cut off by another crash.
    fn decides_when_open(&self) -> bool {
        false
    }

    /// Does a piece of background work, chosen by `rng`.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn background(&self, disk: &Self::Disk, rng: &mut Rng) -> Outcome<()>;

    /// How often it keeps nodes of its map.
    fn metadata_copies(&self, _disk: &Self::Disk) -> u64 {
        1
    }

    /// In what it cuts its device.
    fn segment_len_bytes(&self) -> u64 {
        0
    }

    /// Does a piece, chosen by `rng`, of what makes room, as one of several threads that do nothing
    /// else.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn clean(&self, disk: &Self::Disk, rng: &mut Rng) -> Outcome<()> {
        self.background(disk, rng)
    }

    /// Checks what lies on the device after a disk was opened, or shut down, there.
    ///
    /// # Errors
    /// What is wrong.
    fn verify(&self, _device: &dyn Device) -> Outcome<()> {
        Ok(())
    }

    /// Compares what clients are said to use of their quotas with what they have. It changes
    /// nothing that can be seen.
    ///
    /// # Errors
    /// The two differ.
    fn recount(&self, _disk: &Self::Disk, _device: &dyn Device) -> Outcome<()> {
        Ok(())
    }

    /// The disk as one with versions, if it is.
    fn versions<'d>(&self, _disk: &'d Self::Disk) -> Option<&'d dyn Versions> {
        None
    }

    /// Figures of the disk, for the message of a failure.
    fn describe(&self, _disk: &Self::Disk) -> String {
        String::new()
    }

    /// Opens a disk for reading only; `None` when this kind cannot be.
    ///
    /// # Errors
    /// Whatever goes wrong.
    fn open_read_only(&self, _device: Arc<dyn Device>) -> Outcome<Option<Self::Disk>> {
        Ok(None)
    }
}
