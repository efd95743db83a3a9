//! What is sent, in batches that one thread reads and another one writes.

use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, SyncSender};

use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicBool, Ordering};
use dendro_disk::{Lid, ListHints, PAGE_SIZE, Record};
use dendro_stream::ListChange;

/// How many batches are read before the first of them is written.
pub(crate) const BATCHES_AHEAD: usize = 2;
/// The most pieces of a batch.
const MAX_PIECES: usize = 1024;
/// Bytes of pages for which a batch has room. Its memory is used again, so it is touched once.
const BATCH_BYTES: usize = 2 << 20;

/// A part of what is sent.
pub(crate) enum Piece {
    /// A list, before all that belongs to it.
    List { list: Lid, change: ListChange, hints: ListHints },
    /// A record, or that it was removed.
    Record { index: u64, value: Option<Record> },
    /// Pages that are holes.
    Holes(Range<u64>),
    /// Pages from this index on; their bytes follow those of the piece before in [`Batch::pages`].
    Pages { first_page: u64, count: u64 },
}

/// Some pieces, in their order.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) pages: Vec<u8>,
    filled_bytes: usize,
}

/// Nobody wants any more batches.
pub(crate) struct Unwanted;

/// Puts pieces into batches, and hands these over.
pub(crate) struct Batches {
    batch: Batch,
    out: SyncSender<Batch>,
    /// Batches that were written.
    spare: Receiver<Batch>,
    is_unwanted: Arc<AtomicBool>,
}

impl Batches {
    /// Batches go to `out` until `is_unwanted` is set.
    pub(crate) fn new(
        out: SyncSender<Batch>,
        spare: Receiver<Batch>,
        is_unwanted: Arc<AtomicBool>,
    ) -> Self {
        Self { batch: Batch::default(), out, spare, is_unwanted }
    }

    pub(crate) fn put(&mut self, piece: Piece) -> Result<(), Unwanted> {
        if self.is_unwanted.load(Ordering::Relaxed) {
            return Err(Unwanted);
        }
        self.batch.pieces.push(piece);
        if self.batch.pieces.len() >= MAX_PIECES { self.hand_over() } else { Ok(()) }
    }

    /// Room for the bytes of so many pages: one [`Piece::Pages`] of them is to be put next.
    pub(crate) fn room(&mut self, page_count: u64) -> Result<&mut [u8], Unwanted> {
        let len = page_count as usize * PAGE_SIZE;
        if self.batch.filled_bytes + len > BATCH_BYTES {
            self.hand_over()?;
        }
        let Batch { pages, filled_bytes, .. } = &mut self.batch;
        pages.resize(BATCH_BYTES.max(len), 0);
        let start = *filled_bytes;
        *filled_bytes += len;
        Ok(&mut pages[start..start + len])
    }

    /// Hands over what there is.
    pub(crate) fn hand_over(&mut self) -> Result<(), Unwanted> {
        let next = self.spare.try_recv().unwrap_or_default();
        self.out.send(std::mem::replace(&mut self.batch, next)).map_err(|_| Unwanted)
    }
}

/// Gives the memory of a batch back that was written.
pub(crate) fn give_back(mut batch: Batch, spare: &Sender<Batch>) {
    batch.pieces.clear();
    batch.filled_bytes = 0;
    // The reading thread may have read everything.
    let _ = spare.send(batch);
}
