//! Coalescing on request.

use dendro_disk::{Lid, Result, View};

use super::mover::{Moved, Mover};
use super::place::Place;
use super::search::Search;
use super::stretch::RunSearch;

/// The number of stretches that one call looks at.
const MAX_LOOKS: usize = 1024;
/// The number of bytes after which one call returns.
const MAX_MOVED_BYTES: u64 = 16 << 20;

/// The result of one call of [`LogDisk::coalesce`](crate::LogDisk::coalesce).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coalesced {
    /// Bytes of the pages that were looked at.
    pub page_bytes: u64,
    /// What the pages of the lists that were passed through take on the device,
    pub stored_bytes: u64,
    /// and what they would take if nothing were compressed. Unlike `page_bytes`, both count each
    /// list once, and not the neighbours that are laid down beside it.
    pub plain_bytes: u64,
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

/// See [`LogDisk::coalesce`](crate::LogDisk::coalesce).
pub(crate) fn coalesce(
    mover: &Mover,
    view: View,
    from: Place,
    until: Lid,
    is_trial: bool,
) -> Result<Coalesced> {
    if !is_trial {
        mover.check_writable()?;
    }
    let mut done = Coalesced::default();
    let mut search = Search::new(from);
    let mut looks = 0;
    loop {
        // At the end, what was gathered is handed out, so that the next call finds other lists.
        let is_last = looks >= MAX_LOOKS || done.moved_bytes >= MAX_MOVED_BYTES;
        if is_last && (!search.group() || done.moved_bytes >= 2 * MAX_MOVED_BYTES) {
            done.next = Some(search.rest());
            return Ok(done);
        }
        looks += 1;
        let found = search.step(mover, view, until)?;
        (done.stored_bytes, done.plain_bytes) = search.passed();
        let stretch = match found {
            RunSearch::Nothing => return Ok(done),
            RunSearch::Elsewhere(_) => continue,
            RunSearch::Here(stretch) => stretch,
        };
        let mut saved_reads = 0;
        if stretch.is_worth_it {
            let moved = if is_trial {
                Moved::Bytes(stretch.scattered_bytes())
            } else {
                mover.move_stretch(&stretch, &|| true)?
            };
            match moved {
                Moved::Bytes(bytes) => {
                    done.moved_bytes += bytes;
                    saved_reads = stretch.saved_reads;
                }
                Moved::Unreadable => done.unreadable += 1,
                Moved::NoRoom | Moved::Stopped => {
                    search.put_back(stretch);
                    done.next = Some(search.rest());
                    done.lacks_room = true;
                    return Ok(done);
                }
            }
        }
        done.page_bytes += stretch.page_bytes;
        done.reads_before += stretch.reads;
        done.reads_after += stretch.reads - saved_reads;
    }
}
