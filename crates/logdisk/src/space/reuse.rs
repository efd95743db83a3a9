//! Reuse of reclaimable segments without a checkpoint, when clean segments are few (DESIGN §8).
//!
//! The checkpoint before may name blocks in a segment that is empty now. Roll-forward from that
//! checkpoint never needs those blocks, if it reaches the records that freed them and does not read
//! the blocks before. Two invariants ensure both.
//!
//! Invariants:
//! 1. (reuse 1) A reuse record is written only after the records that emptied the segment were
//!    flushed. The header of its partial segment states that they were
//!    ([`PartialHeader::durable_seq`]; recovery checks no payload up to there), and the records
//!    ([`Record::Reuse`]) name the segments.
//! 2. (reuse 2) A segment is filled again only after the partial segment with its reuse record is
//!    durable.
//!
//! Only segments of payload streams are reused in this way. Recovery reads the main log's segments,
//! and the checkpoint before needs the map's. What a collection frees has no record in the log
//! (collection 1), so segments that it emptied wait for a checkpoint.
//!
//! As long as there is room, all segments wait for a checkpoint. If the log behind the checkpoint
//! is damaged, what the checkpoint names is then still there.
//!
//! [`PartialHeader::durable_seq`]: dendro_format::PartialHeader::durable_seq

use dendro_base::sync::Arc;
use dendro_disk::Result;

use crate::flush::Flusher;
use crate::space::reserve::Accounts;
use crate::volume::Volume;

/// Makes reclaimable segments clean.
pub(crate) struct Reuse {
    volume: Arc<Volume>,
    flusher: Arc<Flusher>,
    accounts: Arc<Accounts>,
}

impl Reuse {
    pub(crate) const fn new(
        volume: Arc<Volume>,
        flusher: Arc<Flusher>,
        accounts: Arc<Accounts>,
    ) -> Self {
        Self { volume, flusher, accounts }
    }

    /// If clean segments are few, makes some reclaimable segments clean or does the next step
    /// towards it. Returns whether it did.
    pub(crate) fn step(&self) -> Result<bool> {
        {
            let engine = self.volume.read();
            if !self.accounts.reuse_is_wanted(&engine) {
                return Ok(false);
            }
        }
        self.reuse()
    }

    /// Makes as many reclaimable segments clean as is possible without a checkpoint.
    pub(crate) fn all(&self) -> Result<()> {
        // It takes two flushes at most: one of the records that emptied the segments, one of the
        // reuse records.
        for _ in 0..3 {
            if !self.reuse()? {
                break;
            }
        }
        Ok(())
    }

    /// Makes reclaimable segments clean, or flushes the log so that the next call can. Returns
    /// whether it did either.
    fn reuse(&self) -> Result<bool> {
        {
            let mut engine = self.volume.write();
            // What is held is not filled again (segments 3).
            if self.volume.check_writable(&engine).is_err() || engine.state().segments().is_held() {
                return Ok(false);
            }
            let enough = self.accounts.clean_after_reuse(&engine);
            if engine.reuse_up_to(enough) {
                return Ok(true);
            }
        }
        self.flusher.flush_if(|engine| {
            if !engine.has_room_for_reuse_records() {
                return Ok(false);
            }
            let has_entered = engine.enter_reuse_records()?;
            Ok(has_entered
                || engine.reuse_queue().gains_from_flush()
                || engine.state().segments().reclaimable_count() > 0)
        })
    }
}
