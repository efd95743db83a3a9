//! Moving the scattered blocks of a stretch.

use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicU64, Ordering};
use dendro_device::AlignedBuf;
use dendro_disk::{Lid, Result, View};

use super::place::Place;
use super::stretch::{RunSearch, Span, Stretch};
use crate::checkpoint::{Checkpointer, unless_put_off};
use crate::clean::recompress::Recompressed;
use crate::engine::Engine;
use crate::log::partial::Content;
use crate::space::reserve::Accounts;
use crate::volume::Volume;
use crate::volume::holds::LockHolder;

/// The number of blocks that are read at once.
const BATCH_LEN: usize = 64;

/// How moving a stretch ended.
pub(super) enum Moved {
    /// This number of bytes was moved. It is less than all if clients changed some pages meanwhile.
    Bytes(u64),
    /// Some blocks cannot be read; nothing was moved.
    Unreadable,
    /// There is no room for the moved blocks.
    NoRoom,
    /// The caller's condition `is_wanted` no longer held.
    Stopped,
}

/// Finds stretches and moves their scattered blocks.
pub(crate) struct Mover {
    volume: Arc<Volume>,
    accounts: Arc<Accounts>,
    checkpointer: Arc<Checkpointer>,
    moved_bytes: AtomicU64,
    saved_reads: AtomicU64,
}

impl Mover {
    pub(crate) const fn new(
        volume: Arc<Volume>,
        accounts: Arc<Accounts>,
        checkpointer: Arc<Checkpointer>,
    ) -> Self {
        let (moved_bytes, saved_reads) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { volume, accounts, checkpointer, moved_bytes, saved_reads }
    }

    /// Bytes of blocks moved, and the number of reads that this saves.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.moved_bytes.load(Ordering::Relaxed), self.saved_reads.load(Ordering::Relaxed))
    }

    /// Returns an error if the volume takes no changes.
    pub(super) fn check_writable(&self) -> Result<()> {
        self.volume.check_writable(&self.volume.read())
    }

    /// Finds the first stretch with pages from `from` on, in the lists before `until`, or the place
    /// where the search continues.
    pub(super) fn find_stretch(&self, view: View, from: Place, until: Lid) -> Result<RunSearch> {
        let until = until.min(Lid::CLIENT_END).0;
        let settings = self.accounts.clean_settings().coalescing;
        self.volume.look(|engine, nodes| engine.stretch_from(view, from, until, &settings, nodes))
    }

    /// The stretch of `span` as it is now.
    pub(super) fn stretch_of(&self, view: View, span: Span) -> Result<Stretch> {
        let settings = self.accounts.clean_settings().coalescing;
        self.volume.look(|engine, nodes| {
            let ancestry = engine.state().versions().ancestry(view)?;
            engine.stretch_of(ancestry, span.clone(), &settings, nodes)
        })
    }

    /// Whether there are enough clean segments, beyond those that are kept ready for others, to
    /// move `len_bytes` of a stretch and to leave `spare` segments.
    pub(super) fn may_coalesce(&self, engine: &Engine, len_bytes: u64, spare: u32) -> bool {
        let size = self.volume.layout().segment_size_bytes();
        let own = (len_bytes + len_bytes / 4).div_ceil(size) as u32 + 1;
        let ready = self.accounts.scarce_segments(engine) + self.accounts.pool_segments(engine);
        !self.accounts.is_claimed()
            && engine.state().segments().clean_count()
                > ready.saturating_add(spare).saturating_add(own)
    }

    /// Writes those scattered blocks of a stretch side by side again that the map still names. It
    /// stops reading when `is_wanted` returns false.
    pub(super) fn move_stretch(
        &self,
        stretch: &Stretch,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Moved> {
        // A checkpoint must be able to write the nodes that this makes dirty.
        if self.volume.is_over_dirty_limit(&self.volume.read())
            && !unless_put_off(self.checkpointer.relieve_memory())?
        {
            return Ok(Moved::NoRoom);
        }
        let len_bytes = stretch.scattered_bytes();
        if !self.may_coalesce(&self.volume.read(), len_bytes, 0) {
            return Ok(Moved::NoRoom);
        }
        let mut bytes = AlignedBuf::zeroed(stretch.buffer_bytes);
        for batch in stretch.fetches.chunks(BATCH_LEN) {
            if !is_wanted() {
                return Ok(Moved::Stopped);
            }
            // Moving damaged blocks would destroy the evidence.
            if self.volume.fetch(batch, &mut bytes).is_err() {
                return Ok(Moved::Unreadable);
            }
        }
        let mut moved_bytes = 0;
        let mut blocks: Vec<_> = (stretch.scattered.iter().zip(&stretch.places))
            .map(|(block, place)| (*block, Content::stored(&bytes[*place..], &block.page)))
            .collect();
        // Other versions may see more pages of a frame.
        let recompressed = Recompressed::of(&self.volume, &self.accounts, &blocks, false);
        if let Some(recompressed) = &recompressed {
            blocks = recompressed.in_place_of(&blocks);
        }
        for chunk in blocks.chunk_by(|(a, _), (b, _)| a.is_in_chunk_of(b)) {
            let moved = self.volume.change(LockHolder::Cleaning, |engine, nodes| {
                self.volume.check_writable(engine)?;
                if !self.may_coalesce(engine, len_bytes.saturating_sub(moved_bytes), 0) {
                    return Ok(None);
                }
                engine.keep_segments(self.accounts.kept_segments(engine).all().into());
                engine.relocate(chunk, Some(stretch.class), nodes).map(Some)
            })?;
            let Some(moved) = moved else { break };
            moved_bytes += moved;
            self.volume.relieve_writer()?;
        }
        self.moved_bytes.fetch_add(moved_bytes, Ordering::Relaxed);
        self.saved_reads.fetch_add(stretch.saved_reads, Ordering::Relaxed);
        Ok(if moved_bytes == 0 { Moved::NoRoom } else { Moved::Bytes(moved_bytes) })
    }
}
