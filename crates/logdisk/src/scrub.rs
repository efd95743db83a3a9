//! Scrubbing: everything live on the device is read and compared with its checksums, for all
//! versions and in bounded steps. The caller determines when each step runs.
//!
//! A pass walks the map. What a part of it names (blocks and nodes) is collected in a *batch*,
//! which is bounded in memory, and is read in the order of the device. Each block is named by one
//! entry of the map, whatever versions see it (chunk edit 1), so it is read once. The headers and
//! records of the partial segments that hold the batch are read on the way, and the newest
//! superblock and its checkpoint at the beginning.
//!
//! Invariants:
//! 1. (scrub 1) No lock is held while a pass reads the device. What it collected may have been
//!    superseded and overwritten since. So whatever differs counts as damage only if, with its
//!    segment pinned, the map still names it, it is not in memory any more, and it differs again.
//! 2. (scrub 2) What was damaged and live when a pass began, and is live when it has ended, is
//!    found. A block that was written meanwhile need not be read. The exception is a page that was
//!    moved from a part of the map that the walk has not reached to a part that it has passed,
//!    which the file system never does.
//! 3. (scrub 3) A pass never begins again because others write. Its position says what was read. If
//!    a client records the position in a unit, every change that the pass relied on lies before
//!    that unit in the log, so a crash cannot undo the change and keep the position.

mod batch;
mod mending;
mod position;
mod progress;
mod roots;
mod sweep;
mod window;

use dendro_disk::Result;

pub use crate::scrub::progress::ScrubProgress;
use crate::scrub::sweep::Sweep;
use crate::volume::Volume;
use crate::walk::WalkPoint;

/// The memory for a batch: the blocks of some 2 GiB.
const BATCH_BYTES: usize = 16 << 20;

/// The most that it is set to: the blocks of some 128 GiB.
const MAX_BATCH_BYTES: usize = 1 << 30;

/// A pass over the volume: where it is, and what it has done.
#[derive(Debug)]
pub struct Scrub {
    has_read_roots: bool,
    /// Where the batch begins.
    from: WalkPoint,
    /// Where the batch ends, if it is known, and how much of it was read.
    upto: Option<WalkPoint>,
    read_upto_bytes: u64,
    /// The part of the batch that is being read. It is collected again after a restart.
    sweep: Option<Sweep>,
    progress: ScrubProgress,
    batch_bytes: usize,
}

impl Default for Scrub {
    fn default() -> Self {
        Self {
            has_read_roots: false,
            from: WalkPoint::Entries(dendro_format::Key::MIN),
            upto: None,
            read_upto_bytes: 0,
            sweep: None,
            progress: ScrubProgress::default(),
            batch_bytes: BATCH_BYTES,
        }
    }
}

impl Scrub {
    /// A pass from the beginning.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same pass with this much memory for what it will read next, 1 GiB at most. Reading takes
    /// 256 KiB more.
    #[must_use]
    pub fn with_memory(self, batch_bytes: usize) -> Self {
        Self { batch_bytes: batch_bytes.min(MAX_BATCH_BYTES), ..self }
    }

    /// What the pass has done.
    pub const fn progress(&self) -> ScrubProgress {
        self.progress
    }
}

impl Volume {
    /// See [`LogDisk::scrub_step`](crate::LogDisk::scrub_step). Without `reads_roots` the pass does
    /// not begin with the newest superblock and its checkpoint.
    pub(crate) fn scrub_step(&self, scrub: &mut Scrub, reads_roots: bool) -> Result<bool> {
        if !scrub.has_read_roots {
            if reads_roots {
                scrub.progress.found_count += self.scrub_roots();
            }
            scrub.has_read_roots = true;
            return Ok(true);
        }
        let Some(sweep) = &mut scrub.sweep else {
            let batch = self.collect_batch(scrub.from, scrub.upto, scrub.batch_bytes)?;
            scrub.upto = batch.upto;
            scrub.sweep = Some(Sweep::new(batch, scrub.read_upto_bytes));
            return Ok(true);
        };
        let before = sweep.progress();
        let has_more = self.sweep_step(sweep);
        let after = sweep.progress();
        scrub.progress.checked_bytes += after.checked_bytes - before.checked_bytes;
        scrub.progress.checked_count += after.checked_count - before.checked_count;
        scrub.progress.found_count += after.found_count - before.found_count;
        scrub.read_upto_bytes = sweep.read_upto_bytes();
        if has_more {
            return Ok(true);
        }
        let Some(upto) = scrub.upto.take() else { return Ok(false) };
        (scrub.from, scrub.read_upto_bytes, scrub.sweep) = (upto, 0, None);
        Ok(true)
    }
}
