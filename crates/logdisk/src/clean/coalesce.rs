//! Coalescing: pages that follow each other in a list and lie scattered on the device are written
//! again side by side, so that they can be read together (DESIGN §8).
//!
//! A list is looked at in *stretches* of a MiB, as one view sees them. What lies so near on the device
//! that one read fetches it is a *piece*. Small pieces cost a read each and little to write again, so
//! those of a stretch become one piece, in the order of the list, by the cleaner's means: a block
//! moved is a page written again, where the map still names it, in the version that it belongs to and
//! as old as what it lay among ([`crate::clean::relocate`]). Large pieces stay where they are.
//!
//! - [`LogDisk::coalesce_step`] is for idle times ([`idle`]): it walks over all lists once and rests
//!   until enough has been written, leaves alone what is still being written, and may write no more
//!   than a share of what clients wrote.
//! - [`LogDisk::coalesce`] is for those who ask for it: it does what it is told, a bounded piece of
//!   it with each call.
//!
//! Neither takes what cleaning keeps ready: with few clean segments nothing is moved.

mod idle;
mod stretch;

use dendro_base::sync::Mutex;
use dendro_base::sync::atomic::{AtomicU64, Ordering};
use dendro_base::units::PAGE_SIZE;
use dendro_device::AlignedBuf;
use dendro_disk::{Lid, Result, View};

use self::idle::Pass;
use self::stretch::{RunSearch, Stretch};
use crate::checkpoint::unless_put_off;
use crate::disk::LogDisk;
use crate::engine::Engine;

/// Blocks read, and blocks moved with the lock held once.
const BATCH_LEN: usize = 64;
/// So many stretches one call of [`LogDisk::coalesce`] looks at,
const MAX_LOOKS: usize = 1024;
/// and so much it moves, before it returns.
const MAX_MOVED_BYTES: u64 = 16 << 20;

/// A place among the pages of all lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The list.
    pub list: u64,
    /// Which of its pages.
    pub page: u64,
}

impl Place {
    /// Where all lists begin.
    pub const START: Self = Self { list: 0, page: 0 };
}

/// What one call of [`LogDisk::coalesce`] came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coalesced {
    /// Bytes of the pages looked at.
    pub page_bytes: u64,
    /// Reads of the device that it takes to read them in order, a stretch at a time,
    pub reads_before: u64,
    /// and that it takes now; in a trial, that it would take.
    pub reads_after: u64,
    /// Bytes of blocks that were written again; in a trial, that would be.
    pub moved_bytes: u64,
    /// Stretches with blocks that could not be read, and so stay where they are.
    pub unreadable: u64,
    /// Where to go on; `None` when all has been looked at.
    pub next: Option<Place>,
    /// There are too few clean segments to move anything now; that is why it ended there.
    pub lacks_room: bool,
}

/// What is kept of it between steps.
#[derive(Debug, Default)]
pub(crate) struct Coalescing {
    pass: Mutex<Pass>,
    moved_bytes: AtomicU64,
    saved_reads: AtomicU64,
}

impl Coalescing {
    /// Bytes of blocks moved, and reads that this saves.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.moved_bytes.load(Ordering::Relaxed), self.saved_reads.load(Ordering::Relaxed))
    }
}

/// How moving a stretch ended.
enum Moved {
    /// So many bytes were moved; less than all when some have changed meanwhile.
    Bytes(u64),
    /// Some of it cannot be read: nothing was moved.
    Unreadable,
    /// There is no room to move it to.
    NoRoom,
    /// It was no longer wanted.
    Stopped,
}

impl LogDisk {
    /// A number that grows when clients change something or have the device read: as long as it does
    /// not, the disk is idle.
    pub fn activity(&self) -> u64 {
        self.engine.read().commit_seq + self.client_reads.load(Ordering::Relaxed)
    }

    /// Coalesces the pages of lists before `until`, from `from` on, as `view` sees them; or, in a
    /// trial, says what that would come to. A bounded piece of it: call it again with
    /// [`Coalesced::next`]. What has not been written to the device stays as it is; flush first. After
    /// a crash what was moved last may lie where it lay before.
    ///
    /// # Errors
    /// [`dendro_disk::Error::Failed`] when the device fails, [`dendro_disk::Error::ReadOnly`] when the
    /// disk takes no changes, [`dendro_disk::Error::NoSuchView`] when there is no such view, and
    /// when the map cannot be read. Blocks may have been moved by then, which is no loss.
    pub fn coalesce(
        &self,
        view: View,
        from: Place,
        until: Lid,
        is_trial: bool,
    ) -> Result<Coalesced> {
        if !is_trial {
            self.check_writable(&self.engine.read())?;
        }
        let mut done = Coalesced { next: Some(from), ..Coalesced::default() };
        for _ in 0..MAX_LOOKS {
            let Some(at) = done.next.filter(|_| done.moved_bytes < MAX_MOVED_BYTES) else { break };
            let stretch = match self.find_stretch(view, at, until)? {
                RunSearch::Nothing => {
                    done.next = None;
                    break;
                }
                RunSearch::Elsewhere(next) => {
                    done.next = Some(next);
                    continue;
                }
                RunSearch::Here(stretch) => stretch,
            };
            let mut saved_reads = 0;
            if stretch.is_worth_it {
                let moved = if is_trial {
                    Moved::Bytes(stretch.scattered_bytes())
                } else {
                    self.move_stretch(&stretch, &|| true)?
                };
                match moved {
                    Moved::Bytes(bytes) => {
                        done.moved_bytes += bytes;
                        saved_reads = stretch.saved_reads;
                    }
                    Moved::Unreadable => done.unreadable += 1,
                    Moved::NoRoom | Moved::Stopped => {
                        done.next = Some(stretch.place);
                        done.lacks_room = true;
                        break;
                    }
                }
            }
            done.page_bytes += stretch.page_bytes;
            done.reads_before += stretch.reads;
            done.reads_after += stretch.reads - saved_reads;
            done.next = Some(stretch.end());
        }
        Ok(done)
    }

    /// The first stretch from `from` on, of lists before `until`, that has pages, or where to go on
    /// looking for it.
    fn find_stretch(&self, view: View, from: Place, until: Lid) -> Result<RunSearch> {
        let until = until.min(Lid::CLIENT_END).0;
        let settings = self.clean_settings().coalescing;
        self.look(|engine, nodes| engine.stretch_from(view, from, until, &settings, nodes))
    }

    /// Whether so many clean segments are there beyond what is kept ready for others that so much of
    /// a stretch can be moved, with `spare` left.
    fn may_coalesce(&self, engine: &Engine, len_bytes: u64, spare: u32) -> bool {
        let size = self.layout.segment_size_bytes();
        let own = (len_bytes + len_bytes / 4).div_ceil(size) as u32 + 1;
        let ready = self.scarce_segments(engine) + self.pool_segments(engine);
        engine.state.segments.clean_count() > ready.saturating_add(spare).saturating_add(own)
    }

    /// Writes the scattered blocks of a stretch again, side by side, those of them that the map still
    /// names; gives up where `is_wanted` says so.
    fn move_stretch(&self, stretch: &Stretch, is_wanted: &dyn Fn() -> bool) -> Result<Moved> {
        // A checkpoint must write the nodes that this changes, too.
        if self.engine.read().state.map.dirty_bytes() > self.dirty_limit_bytes
            && !unless_put_off(self.relieve_memory())?
        {
            return Ok(Moved::NoRoom);
        }
        let len_bytes = stretch.scattered_bytes();
        if !self.may_coalesce(&self.engine.read(), len_bytes, 0) {
            return Ok(Moved::NoRoom);
        }
        let mut bytes = AlignedBuf::zeroed(stretch.scattered.len() * PAGE_SIZE);
        for batch in stretch.fetches.chunks(BATCH_LEN) {
            if !is_wanted() {
                return Ok(Moved::Stopped);
            }
            // Moving what is damaged would lose the evidence.
            if self.fetch(Lid(stretch.place.list), batch, &mut bytes).is_err() {
                return Ok(Moved::Unreadable);
            }
        }
        let mut moved_bytes = 0;
        let blocks: Vec<_> =
            stretch.scattered.iter().copied().zip(bytes.chunks(PAGE_SIZE)).collect();
        for chunk in blocks.chunk_by(|(a, _), (b, _)| a.is_in_chunk_of(b)) {
            let moved = self.change(|engine, nodes| {
                self.check_writable(engine)?;
                if !self.may_coalesce(engine, len_bytes - moved_bytes, 0) {
                    return Ok(None);
                }
                engine.kept_segments = self.reserve_segments(engine) as usize;
                engine.relocate(chunk, Some(stretch.class), nodes).map(Some)
            })?;
            let Some(moved) = moved else { break };
            moved_bytes += moved;
            self.relieve_writer()?;
        }
        self.coalescing.moved_bytes.fetch_add(moved_bytes, Ordering::Relaxed);
        self.coalescing.saved_reads.fetch_add(stretch.saved_reads, Ordering::Relaxed);
        Ok(if moved_bytes == 0 { Moved::NoRoom } else { Moved::Bytes(moved_bytes) })
    }
}
