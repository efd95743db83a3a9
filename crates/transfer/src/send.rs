//! Writes a version of a disk, or what changed since another one, to a stream.
//!
//! Threads read ahead while the caller's writes: the device is read while the stream is written.
//!
//! What changed is known from the disk's own records of its versions, so what did not change is
//! neither read nor compared. Snapshots do not change, so clients of the disk go on meanwhile.

use std::io::Write;
use std::ops::{ControlFlow, Range};
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicBool, Ordering};
use dendro_disk::{Error, Lid, ListHints, MAX_PAGE_COUNT, PageRange, Versions, View};
use dendro_stream::{Counts, Encoder, Item, ListChange, Position};

use crate::ahead::{
    BATCH_PAGES, Batch, Batches, Ended, Ends, Piece, Promise, READING_THREADS, give_back,
    read_ahead,
};
use crate::error::SendError;

/// How many lists are requested at a time.
const LIST_BATCH: usize = 1024;
/// How many records are requested at a time.
const RECORD_BATCH: usize = 256;

/// How often the caller is asked whether to go on while nothing is there to be written.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct SendRange {
    /// The snapshot.
    pub of: View,
    /// Another one, from which what differs is sent; `None`: all is sent.
    pub base: Option<View>,
    /// What lies before this is not sent.
    pub from: Position,
}

/// Writes `range` of `disk` to `encoder`, which has begun a stream. `go_on` is asked between pieces
/// of a few megabytes at most. Returns what the stream was written to, and how much it has.
///
/// # Errors
/// [`SendError`]; the stream is worth nothing then.
pub fn send<W: Write>(
    disk: &dyn Versions,
    range: SendRange,
    encoder: Encoder<W>,
    go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<(W, Counts), SendError> {
    let SendRange { of: view, base, from } = range;
    let is_unwanted = Arc::new(AtomicBool::new(false));
    let (out, Ends { reads, promises, spare }) = Batches::new(Arc::clone(&is_unwanted));
    thread::scope(|scope| {
        let mut reading = Vec::new();
        for _ in 0..READING_THREADS {
            let thread = thread::Builder::new().name("read-ahead".into());
            let read = || read_ahead(&reads, disk, view);
            reading.push(thread.spawn_scoped(scope, read).map_err(SendError::Thread)?);
        }
        let walker = Walker { disk, view, from, out, list: None };
        let thread = thread::Builder::new().name("send-walk".into());
        let walking = thread.spawn_scoped(scope, move || walker.walk(base));
        let walking = walking.map_err(SendError::Thread)?;
        let mut writer = Writer { encoder, go_on };
        let outcome = writer.write_all(&promises, &spare);
        is_unwanted.store(true, Ordering::Relaxed);
        // The walking thread may be waiting to hand a batch over.
        drop(promises);
        let walked = walking.join().unwrap_or_else(|panic| resume_unwind(panic));
        for thread in reading {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
        outcome.and(walked)?;
        Ok(writer.encoder.end()?)
    })
}

/// Writes what was read.
struct Writer<'a, W> {
    encoder: Encoder<W>,
    go_on: &'a mut dyn FnMut(u64) -> ControlFlow<()>,
}

impl<W: Write> Writer<'_, W> {
    fn write_all(
        &mut self,
        promises: &Receiver<Promise>,
        spare: &Sender<Batch>,
    ) -> Result<(), SendError> {
        while let Some(promise) = self.wait_for(promises)? {
            // A thread that does not keep its promise has panicked.
            let Some(batch) = self.wait_for(&promise)? else { break };
            let batch = batch?;
            self.write(&batch)?;
            give_back(batch, spare);
        }
        Ok(())
    }

    /// What comes next; `None` at the end.
    fn wait_for<T>(&mut self, from: &Receiver<T>) -> Result<Option<T>, SendError> {
        loop {
            match from.recv_timeout(ASK_EVERY) {
                Ok(next) => return Ok(Some(next)),
                Err(RecvTimeoutError::Timeout) => self.ask_to_go_on()?,
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    fn write(&mut self, batch: &Batch) -> Result<(), SendError> {
        let mut pages = batch.pages().iter();
        for piece in batch.pieces() {
            match piece {
                Piece::List { list, change, hints } => {
                    self.ask_to_go_on()?;
                    let (hints, near) = hints.parts();
                    let (list, change) = (list.0, *change);
                    self.encoder.put(&Item::List { list, change, hints, near })?;
                }
                Piece::Record { index, value } => {
                    self.encoder.put(&Item::Record { index: *index, value: value.as_deref() })?;
                }
                Piece::Holes(pages) => self.encoder.put(&Item::Holes(pages.clone()))?,
                Piece::Pages(PageRange { first_page, count, .. }) => {
                    for (page_index, page) in (*first_page..first_page + count).zip(&mut pages) {
                        self.encoder.put_page(page_index, page)?;
                    }
                    self.ask_to_go_on()?;
                }
            }
        }
        Ok(())
    }

    fn ask_to_go_on(&mut self) -> Result<(), SendError> {
        match (self.go_on)(self.encoder.written_bytes()) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(SendError::Interrupted),
        }
    }
}

/// Finds what is sent.
struct Walker<'a> {
    disk: &'a dyn Versions,
    view: View,
    from: Position,
    out: Batches,
    /// The present list, until something of it was put.
    list: Option<(Lid, ListHints)>,
}

/// An error in reading `list`.
const fn of_list(list: Lid) -> impl Fn(Error) -> SendError {
    move |error| SendError::List { list, error }
}

impl Walker<'_> {
    /// Finds all, or what differs from `base`.
    fn walk(mut self, base: Option<View>) -> Result<(), SendError> {
        let walked = match base {
            None => self.send_all(),
            Some(base) => self.send_changes(base),
        };
        match walked.and_then(|()| self.out.hand_over()) {
            Ok(()) | Err(Ended::Unwanted) => Ok(()),
            Err(Ended::Failed(error)) => Err(error),
        }
    }

    /// The first record and the first page of a list that are sent; no records where that is
    /// `None`.
    const fn starts(&self, list: Lid) -> (Option<u64>, u64) {
        match self.from {
            Position { list: first, .. } if first != list.0 => (Some(0), 0),
            Position { is_in_pages: true, index, .. } => (None, index),
            Position { index, .. } => (Some(index), 0),
        }
    }

    fn send_all(&mut self) -> Result<(), Ended> {
        let mut from = Lid(self.from.list);
        loop {
            let lists = self.disk.lists(self.view, from, LIST_BATCH)?;
            let Some(last) = lists.last() else { return Ok(()) };
            from = Lid(last.0 + 1);
            for list in lists {
                let hints = self.disk.hints(self.view, list).map_err(of_list(list))?;
                self.send_made(list, hints.unwrap_or_default())?;
            }
        }
    }

    fn send_changes(&mut self, base: View) -> Result<(), Ended> {
        let mut from = Lid(self.from.list);
        loop {
            let lists = self.disk.changed_lists(base, self.view, from, LIST_BATCH)?;
            let Some(last) = lists.last() else { return Ok(()) };
            from = Lid(last.0 + 1);
            for list in lists {
                let hints = |view| self.disk.hints(view, list).map_err(of_list(list));
                match (hints(base)?, hints(self.view)?) {
                    (None, None) => {}
                    (None, Some(hints)) => self.send_made(list, hints)?,
                    (Some(hints), None) => self.put_list(list, ListChange::Deleted, hints)?,
                    (Some(before), Some(hints)) => {
                        self.send_changed(base, list, hints, before != hints)?;
                    }
                }
            }
        }
    }

    /// Sends all of a list.
    fn send_made(&mut self, list: Lid, hints: ListHints) -> Result<(), Ended> {
        self.put_list(list, ListChange::Made, hints)?;
        let (mut from, first_page) = self.starts(list);
        while let Some(index) = from {
            let records = self.disk.records(self.view, list, index, RECORD_BATCH);
            let records = records.map_err(of_list(list))?;
            let is_last = records.len() < RECORD_BATCH;
            from = records.last().filter(|_| !is_last).and_then(|(index, _)| index.checked_add(1));
            for (index, value) in records {
                self.put(Piece::Record { index, value: Some(value) })?;
            }
        }
        let mut from = first_page;
        while let Some(pages) = self.next_data(list, from..MAX_PAGE_COUNT)? {
            from = pages.end;
            self.send_data(list, pages)?;
        }
        Ok(())
    }

    /// Sends what the two versions have not in common of a list that both have.
    fn send_changed(
        &mut self,
        base: View,
        list: Lid,
        hints: ListHints,
        has_other_hints: bool,
    ) -> Result<(), Ended> {
        if has_other_hints {
            self.put_list(list, ListChange::Changed, hints)?;
        } else {
            self.list = Some((list, hints));
        }
        let (disk, view) = (self.disk, self.view);
        let (mut from, first_page) = self.starts(list);
        while let Some(index) = from {
            let records = disk.changed_records(base, view, list, index, RECORD_BATCH);
            let records = records.map_err(of_list(list))?;
            for index in &records {
                let value = disk.record(view, list, *index).map_err(of_list(list))?;
                self.put(Piece::Record { index: *index, value })?;
            }
            let is_last = records.len() < RECORD_BATCH;
            from = records.last().filter(|_| !is_last).and_then(|index| index.checked_add(1));
        }
        let next = |from| disk.changed_pages(base, view, list, from).map_err(of_list(list));
        let mut changed = next(first_page)?;
        while let Some(mut pages) = changed {
            changed = next(pages.end)?;
            // What lies in several groups is read together.
            while let Some(more) = changed
                .take_if(|more| more.start == pages.end && pages.end - pages.start < BATCH_PAGES)
            {
                pages.end = more.end;
                changed = next(pages.end)?;
            }
            self.send_pages(list, pages)?;
        }
        self.list = None;
        Ok(())
    }

    /// Sends pages as they are now, holes too.
    fn send_pages(&mut self, list: Lid, pages: Range<u64>) -> Result<(), Ended> {
        let mut from = pages.start;
        while from < pages.end {
            let data = self.next_data(list, from..pages.end)?;
            let data = data.unwrap_or(pages.end..pages.end);
            if from < data.start {
                self.put(Piece::Holes(from..data.start))?;
            }
            from = data.end;
            self.send_data(list, data)?;
        }
        Ok(())
    }

    /// The first pages in `pages` that are not holes.
    fn next_data(&self, list: Lid, pages: Range<u64>) -> Result<Option<Range<u64>>, SendError> {
        let (disk, view) = (self.disk, self.view);
        if pages.is_empty() {
            return Ok(None);
        }
        let start = disk.next_data(view, list, pages.start).map_err(of_list(list))?;
        let Some(start) = start.filter(|start| *start < pages.end) else { return Ok(None) };
        let end = disk.next_hole(view, list, start).map_err(of_list(list))?;
        Ok(Some(start..end.min(pages.end)))
    }

    /// Sends pages that are no holes.
    fn send_data(&mut self, list: Lid, pages: Range<u64>) -> Result<(), Ended> {
        if pages.is_empty() {
            return Ok(());
        }
        self.put_list_first()?;
        self.out.put_pages(list, pages)
    }

    fn put_list(&mut self, list: Lid, change: ListChange, hints: ListHints) -> Result<(), Ended> {
        self.list = None;
        self.out.put(Piece::List { list, change, hints })
    }

    /// Puts the list that changed, before the first change of it.
    fn put_list_first(&mut self) -> Result<(), Ended> {
        match self.list.take() {
            Some((list, hints)) => self.put_list(list, ListChange::Changed, hints),
            None => Ok(()),
        }
    }

    fn put(&mut self, piece: Piece) -> Result<(), Ended> {
        self.put_list_first()?;
        self.out.put(piece)
    }
}
