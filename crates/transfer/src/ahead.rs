//! What is sent, in batches. One thread walks the map and fills them, some read their pages, and
//! another one writes them in their order.

use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use dendro_base::sync::atomic::{AtomicBool, Ordering};
use dendro_base::sync::{Arc, Mutex};
use dendro_device::AlignedBuf;
use dendro_disk::{Error, Lid, ListHints, PAGE_SIZE, PageRange, Record, Versions, View};
use dendro_stream::ListChange;

use crate::error::SendError;

/// How many batches are filled and read before the first of them is written.
const BATCHES_AHEAD: usize = READING_THREADS + 1;
/// How many threads read. While one verifies what it has read, the device is busy for another one.
pub(crate) const READING_THREADS: usize = 2;
/// The most pieces of a batch.
const MAX_PIECES: usize = 1024;
/// Bytes of pages for which a batch has room. Its memory is used again, so it is touched once.
const BATCH_BYTES: usize = 2 << 20;
/// Pages for which a batch has room.
pub(crate) const BATCH_PAGES: u64 = (BATCH_BYTES / PAGE_SIZE) as u64;

/// A part of what is sent.
pub(crate) enum Piece {
    /// A list, before all that belongs to it.
    List { list: Lid, change: ListChange, hints: ListHints },
    /// A record, or that it was removed.
    Record { index: u64, value: Option<Record> },
    /// Pages that are holes.
    Holes(Range<u64>),
    /// Pages that are no holes. Their bytes follow those of the piece before in [`Batch::pages`].
    Pages(PageRange),
}

/// Some pieces, in their order.
#[derive(Default)]
pub(crate) struct Batch {
    pieces: Vec<Piece>,
    /// To which a disk can read without copying.
    memory: Option<AlignedBuf>,
    page_count: u64,
}

impl Batch {
    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The pages of all pieces, one after the other.
    pub(crate) fn pages(&self) -> &[[u8; PAGE_SIZE]] {
        let memory = self.memory.as_deref().unwrap_or_default();
        &memory.as_chunks().0[..self.page_count as usize]
    }

    /// Reads the pages of all pieces together: a file of some pages is not worth a read of its own.
    fn read(&mut self, disk: &dyn Versions, view: View) -> Result<(), SendError> {
        if self.page_count == 0 {
            return Ok(());
        }
        let memory = self.memory.get_or_insert_with(|| AlignedBuf::zeroed(BATCH_BYTES));
        let mut rest = &mut memory[..self.page_count as usize * PAGE_SIZE];
        let ranges = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Pages(range) => Some(*range),
            Piece::List { .. } | Piece::Record { .. } | Piece::Holes(_) => None,
        });
        let ranges: Vec<PageRange> = ranges.collect();
        if disk.read_scattered(view, &ranges, rest).is_ok() {
            return Ok(());
        }
        // One after the other, to know which list it is that cannot be read.
        for PageRange { list, first_page, count } in ranges {
            let (pages, others) = rest.split_at_mut(count as usize * PAGE_SIZE);
            disk.read_pages(view, list, first_page, pages)
                .map_err(|error| SendError::List { list, error })?;
            rest = others;
        }
        Ok(())
    }
}

/// Why there are no more batches.
pub(crate) enum Ended {
    Failed(SendError),
    /// Nobody wants any more.
    Unwanted,
}

impl From<SendError> for Ended {
    fn from(error: SendError) -> Self {
        Self::Failed(error)
    }
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

/// A batch that is to be read, and to whom it goes then.
type Unread = (Batch, SyncSender<Result<Batch, SendError>>);
/// Where a batch will come from as soon as it is read.
pub(crate) type Promise = Receiver<Result<Batch, SendError>>;

/// Puts pieces into batches, and hands these over.
pub(crate) struct Batches {
    batch: Batch,
    unread: Sender<Unread>,
    promises: SyncSender<Promise>,
    /// Batches that were written.
    spare: Receiver<Batch>,
    is_unwanted: Arc<AtomicBool>,
}

/// The other ends of [`Batches`].
pub(crate) struct Ends {
    /// For those who read.
    pub(crate) reads: Mutex<Receiver<Unread>>,
    /// For the one who writes: the batches in their order.
    pub(crate) promises: Receiver<Promise>,
    /// Gives back what was written.
    pub(crate) spare: Sender<Batch>,
}

impl Batches {
    /// They are filled until `is_unwanted` is set.
    pub(crate) fn new(is_unwanted: Arc<AtomicBool>) -> (Self, Ends) {
        let (unread, reads) = channel();
        let (promising, promises) = sync_channel(BATCHES_AHEAD);
        let (giving_back, spare) = channel();
        let batch = Batch::default();
        let ends = Ends { reads: Mutex::new(reads), promises, spare: giving_back };
        (Self { batch, unread, promises: promising, spare, is_unwanted }, ends)
    }

    pub(crate) fn put(&mut self, piece: Piece) -> Result<(), Ended> {
        if self.is_unwanted.load(Ordering::Relaxed) {
            return Err(Ended::Unwanted);
        }
        self.batch.pieces.push(piece);
        if self.batch.pieces.len() >= MAX_PIECES { self.hand_over() } else { Ok(()) }
    }

    /// Puts pages of `list` that are no holes, in as many pieces as batches have room for.
    pub(crate) fn put_pages(&mut self, list: Lid, pages: Range<u64>) -> Result<(), Ended> {
        let mut first_page = pages.start;
        while first_page < pages.end {
            if self.batch.page_count == BATCH_PAGES {
                self.hand_over()?;
            }
            let count = (pages.end - first_page).min(BATCH_PAGES - self.batch.page_count);
            self.batch.page_count += count;
            self.put(Piece::Pages(PageRange { list, first_page, count }))?;
            first_page += count;
        }
        Ok(())
    }

    /// Hands over what there is.
    pub(crate) fn hand_over(&mut self) -> Result<(), Ended> {
        let next = self.spare.try_recv().unwrap_or_default();
        let batch = std::mem::replace(&mut self.batch, next);
        let (to_writer, promise) = sync_channel(1);
        self.promises.send(promise).map_err(|_| Ended::Unwanted)?;
        self.unread.send((batch, to_writer)).map_err(|_| Ended::Unwanted)
    }
}

/// Reads the pages of batches until there are no more.
pub(crate) fn read_ahead(reads: &Mutex<Receiver<Unread>>, disk: &dyn Versions, view: View) {
    loop {
        let next = reads.lock().recv();
        let Ok((mut batch, to_writer)) = next else { return };
        let read = batch.read(disk, view).map(|()| batch);
        // The writer may have ended.
        let _ = to_writer.send(read);
    }
}

/// Gives the memory of a batch back that was written.
pub(crate) fn give_back(mut batch: Batch, spare: &Sender<Batch>) {
    batch.pieces.clear();
    batch.page_count = 0;
    // Everything may have been read.
    let _ = spare.send(batch);
}
