//! Coalescing on request.

use dendro_disk::{Lid, Result, View};
use dendro_format::Compression;

use super::mover::{Moved, Mover};
use super::place::Place;
use super::search::Search;
use super::stretch::RunSearch;

/// The number of stretches that one call looks at.
const MAX_LOOKS: usize = 1024;
/// The number of bytes after which one call returns: those that were moved, or of the pages that
/// were to be compressed.
const MAX_WORKED_BYTES: u64 = 16 << 20;

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
    /// How many bytes more these blocks took before.
    pub saved_bytes: u64,
    /// Stretches that were not moved because some of their blocks could not be read.
    pub unreadable: u64,
    /// The place where the next call continues; `None` when the call reached the end.
    pub next: Option<Place>,
    /// Whether the call ended because there are too few clean segments to move anything now.
    pub lacks_room: bool,
}

/// See [`LogDisk::coalesce`](crate::LogDisk::coalesce), and with `with`
/// [`LogDisk::compress`](crate::LogDisk::compress).
pub(crate) fn coalesce(
    mover: &Mover,
    view: View,
    from: Place,
    until: Lid,
    with: Option<Compression>,
    is_trial: bool,
) -> Result<Coalesced> {
    if !is_trial {
        mover.check_writable()?;
    }
    let asked_for = with.map(|with| mover.compressors().asked_for(with));
    let how = asked_for.as_ref().or(mover.compressors().cold());
    let is_whole = asked_for.is_some();
    let mut done = Coalesced::default();
    let mut search = Search::new(from, is_whole);
    let (mut looks, mut worked_bytes) = (0, 0);
    loop {
        // At the end, what was gathered is handed out, so that the next call finds other lists.
        let is_last = looks >= MAX_LOOKS || worked_bytes >= MAX_WORKED_BYTES;
        if is_last && (!search.group() || worked_bytes >= 2 * MAX_WORKED_BYTES) {
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
        let mut reads_after = stretch.reads;
        if stretch.is_worth_it || is_whole {
            let moved = if is_trial && !is_whole {
                Moved::Bytes { moved: stretch.scattered_bytes(), saved: 0 }
            } else {
                mover.move_stretch(&stretch, how, is_trial, &|| true)?
            };
            match moved {
                Moved::Bytes { moved, saved } => {
                    done.moved_bytes += moved;
                    done.saved_bytes += saved;
                    // Compressing takes time also where nothing is moved.
                    worked_bytes += if is_whole { stretch.plain_bytes } else { moved };
                    if stretch.is_worth_it {
                        reads_after -= stretch.saved_reads;
                    }
                    if is_whole && !is_trial && moved > 0 {
                        reads_after = mover.stretch_of(view, stretch.span, true)?.reads;
                    }
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
        done.reads_after += reads_after;
    }
}
