//! Moving the scattered blocks of a stretch.

use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicU64, Ordering};
use dendro_device::AlignedBuf;
use dendro_disk::{Lid, Result, View};

use super::place::Place;
use super::stretch::{RunSearch, Span, Stretch, Wanted};
use crate::checkpoint::{Checkpointer, unless_put_off};
use crate::clean::named_page::NamedPage;
use crate::clean::packed::footprint;
use crate::clean::recompress::Recompressed;
use crate::compression::{Compressors, Recompression};
use crate::engine::Engine;
use crate::log::partial::Content;
use crate::space::reserve::Accounts;
use crate::volume::Volume;
use crate::volume::holds::LockHolder;

/// The number of blocks that are read at once.
const BATCH_LEN: usize = 64;

/// How moving a stretch ended.
pub(super) enum Moved {
    /// So many bytes were moved, and before that they took `saved` bytes more. It is less than all
    /// if clients changed some pages meanwhile, or not all were worth it.
    Bytes { moved: u64, saved: u64 },
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
    /// where the search continues. All of its blocks are to be read if `is_whole`.
    pub(super) fn find_stretch(
        &self,
        view: View,
        from: Place,
        until: Lid,
        is_whole: bool,
    ) -> Result<RunSearch> {
        let until = until.min(Lid::CLIENT_END).0;
        let wanted = self.wanted(is_whole);
        self.volume.look(|engine, nodes| engine.stretch_from(view, from, until, &wanted, nodes))
    }

    /// The stretch of `span` as it is now.
    pub(super) fn stretch_of(&self, view: View, span: Span, is_whole: bool) -> Result<Stretch> {
        let wanted = self.wanted(is_whole);
        self.volume.look(|engine, nodes| {
            let ancestry = engine.state().versions().ancestry(view)?;
            engine.stretch_of(ancestry, span.clone(), &wanted, nodes)
        })
    }

    fn wanted(&self, is_whole: bool) -> Wanted {
        Wanted { settings: self.accounts.clean_settings().coalescing, is_whole }
    }

    /// What compresses the blocks that are moved.
    pub(crate) fn compressors(&self) -> &Compressors {
        self.volume.compressors()
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

    /// Writes those scattered blocks of a stretch side by side again that the map still names,
    /// compressed with `how` where that takes less. If a client asks for `how`, the blocks of an
    /// entry of the map stay if none of them becomes smaller, unless the stretch is worth moving.
    /// In a trial nothing is written. It stops reading when `is_wanted` returns false.
    pub(super) fn move_stretch(
        &self,
        stretch: &Stretch,
        how: Option<&Recompression>,
        is_trial: bool,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Moved> {
        let is_asked_for = how.is_some_and(Recompression::is_asked_for);
        if !is_trial && !self.make_room(stretch, is_asked_for)? {
            return Ok(Moved::NoRoom);
        }
        let bytes = match self.fetch_scattered(stretch, is_wanted) {
            Ok(bytes) => bytes,
            Err(ended) => return Ok(ended),
        };
        let stored: Vec<_> = (stretch.scattered.iter().zip(&stretch.places))
            .map(|(block, place)| (*block, Content::stored(&bytes[*place..], &block.page)))
            .collect();
        // Other versions may see more pages of a frame, unless the stretch is whole.
        let mut recompressed = how.and_then(|how| {
            Recompressed::of(&self.volume, &self.accounts, how, &stored, is_asked_for)
        });
        if !is_trial && let Some(smaller) = &recompressed {
            match smaller.mark(&self.volume) {
                Err(error) if is_asked_for => return Err(error),
                Err(_) => recompressed = None,
                Ok(()) => {}
            }
        }
        let blocks = recompressed.as_ref().map(|smaller| smaller.in_place_of(&stored));
        let blocks = blocks.as_ref().unwrap_or(&stored);
        let (mut moved, mut saved, mut end, mut has_room) = (0, 0, 0, true);
        for chunk in blocks.chunk_by(|(a, _), (b, _)| a.is_in_chunk_of(b)) {
            let here = end..end + chunk.len();
            end = here.end;
            let gains = |smaller: &Recompressed<'_>| smaller.gains_at(here.clone());
            if !stretch.is_worth_it && !recompressed.as_ref().is_some_and(gains) {
                continue;
            }
            let (before, after) = (footprint_bytes(&stored[here]), footprint_bytes(chunk));
            let bytes = match is_trial {
                true => Some(after),
                false => self.relocate(stretch, chunk, moved)?,
            };
            let Some(bytes) = bytes else {
                has_room = false;
                break;
            };
            moved += bytes;
            // What clients changed meanwhile does not count.
            saved += if bytes == after { before.saturating_sub(after) } else { 0 };
        }
        if !is_trial {
            let saved_reads = if stretch.is_worth_it { stretch.saved_reads } else { 0 };
            self.moved_bytes.fetch_add(moved, Ordering::Relaxed);
            self.saved_reads.fetch_add(saved_reads, Ordering::Relaxed);
        }
        let is_stuck = moved == 0 && !has_room;
        Ok(if is_stuck { Moved::NoRoom } else { Moved::Bytes { moved, saved } })
    }

    /// Reads the scattered blocks of a stretch, while `is_wanted` returns true.
    fn fetch_scattered(
        &self,
        stretch: &Stretch,
        is_wanted: &dyn Fn() -> bool,
    ) -> std::result::Result<AlignedBuf, Moved> {
        let mut bytes = AlignedBuf::zeroed(stretch.buffer_bytes);
        for batch in stretch.fetches.chunks(BATCH_LEN) {
            if !is_wanted() {
                return Err(Moved::Stopped);
            }
            // Moving damaged blocks would destroy the evidence.
            self.volume.fetch(batch, &mut bytes).map_err(|_| Moved::Unreadable)?;
        }
        Ok(bytes)
    }

    /// Whether there is room to move a stretch; after a checkpoint if it is to free segments.
    fn make_room(&self, stretch: &Stretch, frees_segments: bool) -> Result<bool> {
        // A checkpoint must be able to write the nodes that this makes dirty.
        if self.volume.is_over_dirty_limit(&self.volume.read())
            && !unless_put_off(self.checkpointer.relieve_memory())?
        {
            return Ok(false);
        }
        let has_room = || self.may_coalesce(&self.volume.read(), stretch.scattered_bytes(), 0);
        if has_room() {
            return Ok(true);
        }
        // What became smaller may have emptied segments, which only a checkpoint makes clean.
        if !frees_segments || !self.volume.read().state().segments().has_pending() {
            return Ok(false);
        }
        self.checkpointer.take()?;
        Ok(has_room())
    }

    /// Writes blocks of one entry of the map again, after `moved_bytes` of a stretch. Returns what
    /// was moved; `None`: there is no room.
    fn relocate(
        &self,
        stretch: &Stretch,
        chunk: &[(NamedPage, Content<'_>)],
        moved_bytes: u64,
    ) -> Result<Option<u64>> {
        let left_bytes = stretch.scattered_bytes().saturating_sub(moved_bytes);
        let moved = self.volume.change(LockHolder::Cleaning, |engine, nodes| {
            if !self.may_coalesce(engine, left_bytes, 0) {
                return Ok(None);
            }
            engine.keep_segments(self.accounts.kept_segments(engine).all().into());
            engine.relocate(chunk, Some(stretch.class), nodes).map(Some)
        })?;
        if moved.is_some() {
            self.volume.relieve_writer()?;
        }
        Ok(moved)
    }
}

/// What blocks take on the device when these are their contents. A frame counts once.
fn footprint_bytes(blocks: &[(NamedPage, Content<'_>)]) -> u64 {
    let is_first = |at: &usize| {
        let content = &blocks[*at].1;
        !blocks[..*at].iter().any(|(_, other)| other.shares_frame_with(content))
    };
    let firsts = (0..blocks.len()).filter(is_first);
    firsts.map(|at| footprint(blocks[at].1.bytes().len()) as u64).sum()
}
