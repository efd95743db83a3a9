//! Resizing: the volume gets more segments, or fewer ([`shrink`]).
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
//! 2. (resize 2) A superblock that does not count a segment is written only when the last
//!    checkpoint refers to nothing in it, and the log behind that does not either.
//! 3. (resize 3) The device becomes shorter only after two superblocks that do not count what is
//!    cut off are durable, and a backup of the newest one at its new end.

mod by_itself;
mod reserving;
mod shrink;
mod standing;

use dendro_base::sync::atomic::AtomicBool;
use dendro_base::sync::{Arc, Mutex};
use dendro_disk::{Error, Result};
use dendro_format::Superblock;

pub use self::standing::ShrinkProgress;
use self::standing::Shrinking;
use crate::checkpoint::{Checkpointer, unless_put_off};
use crate::clean::cleaner::Cleaner;
use crate::fault::no_space;
use crate::log::backups;
use crate::log::segments::NewTable;
use crate::reclaim::no_space::Reclaimer;
use crate::space::reserve::Accounts;
use crate::volume::Volume;

/// Resizes a volume.
pub(crate) struct Resizer {
    volume: Arc<Volume>,
    accounts: Arc<Accounts>,
    checkpointer: Arc<Checkpointer>,
    cleaner: Arc<Cleaner>,
    reclaimer: Arc<Reclaimer>,
    /// Held by the one that resizes. While the volume becomes shorter, it has how far that is.
    shrinking: Mutex<Option<Shrinking>>,
    /// The length up to which the device becomes longer by itself.
    max_len_bytes: u64,
    /// Whether it could not become longer when it was last tried.
    is_stuck: AtomicBool,
}

impl Resizer {
    pub(crate) fn new(
        volume: Arc<Volume>,
        accounts: Arc<Accounts>,
        checkpointer: Arc<Checkpointer>,
        cleaner: Arc<Cleaner>,
        reclaimer: Arc<Reclaimer>,
    ) -> Self {
        let max_len_bytes = volume.newest_superblock().max_len_bytes;
        Self {
            shrinking: Mutex::new(None),
            max_len_bytes,
            is_stuck: AtomicBool::new(false),
            volume,
            accounts,
            checkpointer,
            cleaner,
            reclaimer,
        }
    }

    /// See [`LogDisk::grow`](crate::LogDisk::grow).
    pub(crate) fn grow(&self, len_bytes: u64, device_len_bytes: u64) -> Result<()> {
        let shrinking = self.shrinking.lock();
        refuse_while(&shrinking)?;
        self.grow_now(len_bytes, device_len_bytes)
    }

    /// As [`Self::grow`], for the one that resizes.
    fn grow_now(&self, len_bytes: u64, device_len_bytes: u64) -> Result<()> {
        self.volume.check_writable(&self.volume.read())?;
        let superblock = self.volume.newest_superblock();
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
        self.state_again()?;
        let mut engine = self.volume.write();
        self.volume.add_segments(&mut engine, layout, table);
        // Policies divide blocks by what there is room for.
        let policy = Arc::clone(engine.streams().policy());
        engine.set_policy(policy);
        self.volume.unlock(engine);
        Ok(())
    }

    /// Writes a checkpoint and a superblock, so that another one states the size that the newest
    /// one states.
    fn state_again(&self) -> Result<()> {
        // A checkpoint that is put off has written no superblock.
        if unless_put_off(self.checkpointer.take_always())? {
            return Ok(());
        }
        let now = self.volume.now();
        self.volume.append_superblock(&mut self.volume.superblock(), |next| next.written = now)
    }

    /// Makes the device longer.
    fn extend_device(&self, superblock: &Superblock, len_bytes: u64) -> Result<()> {
        let device = self.volume.device();
        let end = backups::new_end(superblock, device.len_bytes(), len_bytes);
        let allocates = superblock.is_allocated();
        let extended =
            self.volume.change_device_len(|device| device.extend(len_bytes, &end, allocates))?;
        extended.map_err(|error| {
            no_space(&error, len_bytes - device.len_bytes())
                .unwrap_or_else(|| Error::Io(format!("making the device longer: {error}")))
        })
    }
}

/// One size is made at a time.
fn refuse_while(shrinking: &Option<Shrinking>) -> Result<()> {
    match shrinking {
        Some(_) => Err(Error::Io("the volume is being made smaller".into())),
        None => Ok(()),
    }
}
