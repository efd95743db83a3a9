//! Resizing: the volume gets more segments.
//!
//! A volume has as many segments as its newest superblock states. The steps of growing, in order,
//! with the loss that each prevents:
//! 1. The device becomes longer, with a backup of the superblock at its new end, written by the
//!    same call. So there is a backup where it is looked for at each moment.
//! 2. A superblock states the new number of segments, and a checkpoint repeats it. So two of them
//!    are durable before anything lies in a segment that they add, and damage of one hides nothing.
//! 3. Streams may fill the new segments.
//!
//! After a crash the volume has the old size or the new one. A device that is longer than its
//! volume is nothing special.
//!
//! Invariants:
//! 1. (resize 1) A segment is filled only after two superblocks that count it are durable.

use dendro_base::sync::{Arc, Mutex};
use dendro_disk::{Error, Result};
use dendro_format::Superblock;

use crate::checkpoint::{Checkpointer, unless_put_off};
use crate::fault::no_space;
use crate::log::backups;
use crate::log::segments::NewTable;
use crate::volume::Volume;

/// Resizes a volume.
pub(crate) struct Resizer {
    volume: Arc<Volume>,
    checkpointer: Arc<Checkpointer>,
    /// Held by the one that resizes.
    turn: Mutex<()>,
}

impl Resizer {
    pub(crate) const fn new(volume: Arc<Volume>, checkpointer: Arc<Checkpointer>) -> Self {
        Self { volume, checkpointer, turn: Mutex::new(()) }
    }

    /// See [`LogDisk::grow`](crate::LogDisk::grow).
    pub(crate) fn grow(&self, len_bytes: u64, device_len_bytes: u64) -> Result<()> {
        let _turn = self.turn.lock();
        self.volume.check_writable(&self.volume.read())?;
        let superblock = self.volume.superblock().clone();
        let before_bytes = self.volume.device().len_bytes();
        let device_len_bytes = device_len_bytes.max(before_bytes);
        let layout = superblock
            .layout_on(len_bytes, device_len_bytes)
            .map_err(|malformed| Error::Io(malformed.problem.to_owned()))?;
        let table = NewTable::of(layout).ok_or_else(|| {
            Error::Io("there is no memory for the table of so many segments".into())
        })?;
        if device_len_bytes > before_bytes {
            self.extend_device(&superblock, device_len_bytes)?;
        }
        if layout.segment_count() <= superblock.layout.segment_count() {
            return Ok(());
        }
        let now = self.volume.now();
        self.volume.append_superblock(&mut self.volume.superblock(), |next| {
            next.layout = layout;
            next.written = now;
        })?;
        // A checkpoint that is put off has written no superblock.
        if !unless_put_off(self.checkpointer.take_always())? {
            self.volume.append_superblock(&mut self.volume.superblock(), |next| {
                next.written = now;
            })?;
        }
        let mut engine = self.volume.write();
        self.volume.add_segments(&mut engine, layout, table);
        // Policies divide blocks by what there is room for.
        let policy = Arc::clone(engine.streams().policy());
        engine.set_policy(policy);
        self.volume.unlock(engine);
        Ok(())
    }

    /// Makes the device longer.
    fn extend_device(&self, superblock: &Superblock, len_bytes: u64) -> Result<()> {
        let device = self.volume.device();
        let end = backups::new_end(superblock, device.len_bytes(), len_bytes);
        let allocates = superblock.is_allocated();
        device.extend(len_bytes, &end, allocates).map_err(|error| {
            no_space(&error, len_bytes - device.len_bytes())
                .unwrap_or_else(|| Error::Io(format!("making the device longer: {error}")))
        })
    }
}
