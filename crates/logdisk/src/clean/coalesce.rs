//! Coalescing: pages that follow each other in a list and lie scattered on the device are written
//! side by side again, so that they can be read together (DESIGN §8).
//!
//! A list is processed in *stretches* of 1 MiB, as one view sees them. A *piece* is what one read
//! of the device fetches. Each small piece costs one read and little to write again. So coalescing
//! writes the small pieces of a stretch as one piece, in the order of the list. It moves blocks as
//! the cleaner does ([`crate::clean::relocate`]): a page is written again where the map still names
//! it, in the version that it belongs to, and it keeps its age. Large pieces stay where they are.
//!
//! - [`LogDisk::coalesce_step`] is for idle times ([`idle`]). It walks over all lists once, and
//!   then waits until enough has been written. It skips what is still being written, and it writes
//!   no more than a share of what clients wrote.
//! - [`LogDisk::coalesce`] runs on request. Each call does a bounded part of the work.
//!
//! Neither uses the clean segments that cleaning keeps ready: when clean segments are few, nothing
//! is moved.

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

/// The number of blocks that are read at once.
const BATCH_LEN: usize = 64;
/// The number of stretches that one call of [`LogDisk::coalesce`] looks at.
const MAX_LOOKS: usize = 1024;
/// The number of bytes after which one call of [`LogDisk::coalesce`] returns.
const MAX_MOVED_BYTES: u64 = 16 << 20;

/// A place among the pages of all lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The list.
    pub list: u64,
    /// The index of the page in the list.
    pub page: u64,
}

impl Place {
    /// The start of the first list.
    pub const START: Self = Self { list: 0, page: 0 };
}

/// The result of one call of [`LogDisk::coalesce`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coalesced {
    /// Bytes of the pages that were looked at.
    pub page_bytes: u64,
    /// The number of reads of the device that reading these pages in order took before, a stretch
    /// at a time.
    pub reads_before: u64,
    /// The number of reads that it takes now; in a trial, that it would take.
    pub reads_after: u64,
    /// Bytes of blocks that were written again; in a trial, that would be written.
    pub moved_bytes: u64,
    /// Stretches that were not moved because some of their blocks could not be read.
    pub unreadable: u64,
    /// The place where the next call continues; `None` when the call reached the end.
    pub next: Option<Place>,
    /// Whether the call ended because there are too few clean segments to move anything now.
    pub lacks_room: bool,
}

/// The state of coalescing between steps.
#[derive(Debug, Default)]
pub(crate) struct Coalescing {
    pass: Mutex<Pass>,
    moved_bytes: AtomicU64,
    saved_reads: AtomicU64,
}

impl Coalescing {
    /// Bytes of blocks moved, and the number of reads that this saves.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.moved_bytes.load(Ordering::Relaxed), self.saved_reads.load(Ordering::Relaxed))
    }
}

/// How moving a stretch ended.
enum Moved {
    /// This number of bytes was moved. It is less than all if clients changed some pages meanwhile.
    Bytes(u64),
    /// Some blocks cannot be read; nothing was moved.
    Unreadable,
    /// There is no room for the moved blocks.
    NoRoom,
    /// The caller's condition `is_wanted` no longer held.
    Stopped,
}

impl LogDisk {
    /// A number that grows when clients change something or read from the device. As long as it
    /// stays the same, the disk is idle.
    pub fn activity(&self) -> u64 {
        self.volume.read().commit_seq + self.reader.device_reads()
    }

    /// Coalesces the pages of the lists before `until`, from `from` on, as `view` sees them. In a
    /// trial it only returns what that would do. A call does a bounded part of the work: call it
    /// again with [`Coalesced::next`]. Blocks that have not been written to the device are not
    /// moved, so flush first. After a crash, the blocks that were moved last may be at their old
    /// places.
    ///
    /// # Errors
    /// [`dendro_disk::Error::Failed`] when the device fails, [`dendro_disk::Error::ReadOnly`] when
    /// the disk takes no changes, [`dendro_disk::Error::NoSuchView`] when there is no such view,
    /// and an error when the map cannot be read. Blocks may have been moved by then, which is no
    /// loss.
    pub fn coalesce(
        &self,
        view: View,
        from: Place,
        until: Lid,
        is_trial: bool,
    ) -> Result<Coalesced> {
        if !is_trial {
            self.volume.check_writable(&self.volume.read())?;
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

    /// Finds the first stretch with pages from `from` on, in the lists before `until`, or the place
    /// where the search continues.
    fn find_stretch(&self, view: View, from: Place, until: Lid) -> Result<RunSearch> {
        let until = until.min(Lid::CLIENT_END).0;
        let settings = self.clean_settings().coalescing;
        self.volume.look(|engine, nodes| engine.stretch_from(view, from, until, &settings, nodes))
    }

    /// Whether there are enough clean segments, beyond those that are kept ready for others, to
    /// move `len_bytes` of a stretch and to leave `spare` segments.
    fn may_coalesce(&self, engine: &Engine, len_bytes: u64, spare: u32) -> bool {
        let size = self.volume.layout().segment_size_bytes();
        let own = (len_bytes + len_bytes / 4).div_ceil(size) as u32 + 1;
        let ready = self.scarce_segments(engine) + self.pool_segments(engine);
        engine.state.segments.clean_count() > ready.saturating_add(spare).saturating_add(own)
    }

    /// Writes those scattered blocks of a stretch side by side again that the map still names. It
    /// stops reading when `is_wanted` returns false.
    fn move_stretch(&self, stretch: &Stretch, is_wanted: &dyn Fn() -> bool) -> Result<Moved> {
        // A checkpoint must be able to write the nodes that this makes dirty.
        if self.volume.is_over_dirty_limit(&self.volume.read())
            && !unless_put_off(self.relieve_memory())?
        {
            return Ok(Moved::NoRoom);
        }
        let len_bytes = stretch.scattered_bytes();
        if !self.may_coalesce(&self.volume.read(), len_bytes, 0) {
            return Ok(Moved::NoRoom);
        }
        let mut bytes = AlignedBuf::zeroed(stretch.scattered.len() * PAGE_SIZE);
        for batch in stretch.fetches.chunks(BATCH_LEN) {
            if !is_wanted() {
                return Ok(Moved::Stopped);
            }
            // Moving damaged blocks would destroy the evidence.
            if self.volume.fetch(Lid(stretch.place.list), batch, &mut bytes).is_err() {
                return Ok(Moved::Unreadable);
            }
        }
        let mut moved_bytes = 0;
        let blocks: Vec<_> =
            stretch.scattered.iter().copied().zip(bytes.chunks(PAGE_SIZE)).collect();
        for chunk in blocks.chunk_by(|(a, _), (b, _)| a.is_in_chunk_of(b)) {
            let moved = self.volume.change(|engine, nodes| {
                self.volume.check_writable(engine)?;
                if !self.may_coalesce(engine, len_bytes - moved_bytes, 0) {
                    return Ok(None);
                }
                engine.kept_segments = self.reserve_segments(engine) as usize;
                engine.relocate(chunk, Some(stretch.class), nodes).map(Some)
            })?;
            let Some(moved) = moved else { break };
            moved_bytes += moved;
            self.volume.relieve_writer()?;
        }
        self.coalescing.moved_bytes.fetch_add(moved_bytes, Ordering::Relaxed);
        self.coalescing.saved_reads.fetch_add(stretch.saved_reads, Ordering::Relaxed);
        Ok(if moved_bytes == 0 { Moved::NoRoom } else { Moved::Bytes(moved_bytes) })
    }
}
