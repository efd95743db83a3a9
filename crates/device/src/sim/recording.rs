//! Everything that a workload did to a device, so that crash images at any point can be made
//! without running it again.

use dendro_base::Rng;
use dendro_base::sync::Arc;

use super::blocks::BlockMap;
use super::change::Change;
use super::crash::{self, CrashStyle};
use crate::device::BLOCK_SIZE;

/// After so many changes the content is kept, so that an image need not repeat all of them.
const SNAPSHOT_INTERVAL: usize = 32;

/// An event in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Bytes were written.
    Write {
        /// Where.
        offset: u64,
        /// How many.
        len_bytes: u64,
    },
    /// A range was discarded.
    Discard {
        /// Where.
        offset: u64,
        /// How long it is.
        len_bytes: u64,
    },
    /// All writes and discards before it became durable.
    Flush,
    /// A flush failed, and some of the unflushed writes are lost.
    FailedFlush,
    /// The device became longer or shorter.
    Len {
        /// How long it was then.
        len_bytes: u64,
    },
}

pub(super) enum Event {
    Change(Arc<Change>),
    /// With the content it left, and the changes of other ranges that it left as they were.
    Flush(BlockMap, Vec<Arc<Change>>),
    /// With the changes that will never be durable.
    FailedFlush(Vec<Arc<Change>>),
    /// With the length, and the change that was made and durable together with it.
    Len(u64, Option<Arc<Change>>),
}

/// The log of every write, discard and flush that had an effect, made by
/// [`SimDevice::start_recording`](super::SimDevice::start_recording) and taken by
/// [`SimDevice::take_recording`](super::SimDevice::take_recording).
///
/// [`Self::image_at`] gives a crash image at any point of it, in any order and on any number of
/// threads. An image costs what the changes between it and the flush before it cost; they are
/// shared, not copied.
pub struct Recording {
    pub(super) len_bytes: u64,
    base: BlockMap,
    events: Vec<Event>,
    /// Indices of flushes that worked.
    flushes: Vec<usize>,
    /// Content before the event of an index, in case nothing unflushed is lost.
    snapshots: Vec<(usize, BlockMap)>,
}

impl Recording {
    pub(super) fn new(len_bytes: u64, base: BlockMap) -> Self {
        Self { len_bytes, base, events: Vec::new(), flushes: Vec::new(), snapshots: Vec::new() }
    }

    /// Adds a change; `current` is what the device reads as after it, if a crash may leave that.
    pub(super) fn push_change(&mut self, change: Arc<Change>, current: Option<&BlockMap>) {
        self.events.push(Event::Change(change));
        let last_kept = self.snapshots.last().map_or(0, |(index, _)| *index);
        let last_kept = self.flushes.last().map_or(last_kept, |flush| last_kept.max(*flush));
        if let Some(current) = current
            && self.events.len() - last_kept >= SNAPSHOT_INTERVAL
        {
            self.snapshots.push((self.events.len(), current.clone()));
        }
    }

    pub(super) fn push_flush(&mut self, durable: BlockMap, left: Vec<Arc<Change>>) {
        self.flushes.push(self.events.len());
        self.events.push(Event::Flush(durable, left));
    }

    pub(super) fn push_failed_flush(&mut self, doomed: Vec<Arc<Change>>) {
        self.events.push(Event::FailedFlush(doomed));
    }

    pub(super) fn push_len(&mut self, len_bytes: u64, change: Option<Arc<Change>>) {
        self.events.push(Event::Len(len_bytes, change));
    }

    /// The length of the device when `event_index` events have happened.
    pub(super) fn len_bytes_at(&self, event_index: usize) -> u64 {
        let len_of = |event: &Event| match event {
            Event::Len(len_bytes, _) => Some(*len_bytes),
            _ => None,
        };
        self.events[..event_index].iter().rev().find_map(len_of).unwrap_or(self.len_bytes)
    }

    /// How many events there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether nothing happened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// What happened at `index`.
    ///
    /// # Panics
    /// When `index` is not below [`Self::len`].
    #[must_use]
    pub fn event(&self, index: usize) -> EventKind {
        let bytes = |blocks: u64| blocks * BLOCK_SIZE as u64;
        match &self.events[index] {
            Event::Flush(..) => EventKind::Flush,
            Event::FailedFlush(_) => EventKind::FailedFlush,
            Event::Len(len_bytes, _) => EventKind::Len { len_bytes: *len_bytes },
            Event::Change(change) => match **change {
                Change::Write { first_block, ref blocks } => EventKind::Write {
                    offset: bytes(first_block),
                    len_bytes: bytes(blocks.len() as u64),
                },
                Change::Discard { first_block, block_count, .. } => {
                    EventKind::Discard { offset: bytes(first_block), len_bytes: bytes(block_count) }
                }
            },
        }
    }

    /// How many changes before event `event_index` were not flushed by then: in how much images
    /// taken there can differ.
    ///
    /// # Panics
    /// When `event_index` is past [`Self::len`].
    #[must_use]
    pub fn unflushed_at(&self, event_index: usize) -> usize {
        let start = self.flushed_before(event_index);
        let changes = self.events[start..event_index].iter();
        let count = changes.filter(|event| matches!(event, Event::Change(_))).count();
        count + self.left_at(start).len()
    }

    /// The content that a crash leaves when the first `event_index` events have happened and no
    /// other.
    pub(super) fn content_at(
        &self,
        event_index: usize,
        rng: &mut Rng,
        style: CrashStyle,
    ) -> BlockMap {
        let start = self.flushed_before(event_index);
        let durable = match start.checked_sub(1).map(|flush| &self.events[flush]) {
            Some(Event::Flush(durable, _)) => durable,
            _ => &self.base,
        };
        let left_count = self.left_at(start).len();
        let pending = self.pending(start, event_index);
        let mut map = durable.clone();
        let mut done_count = 0;
        if matches!(style, CrashStyle::Everything | CrashStyle::LastTorn)
            && let Some((index, snapshot)) = self.snapshot_between(start, event_index)
            && left_count == 0
            && pending.len() == event_index - start
        {
            map = snapshot.clone();
            done_count = index - start;
        }
        map.make_room(self.len_bytes_at(event_index).div_ceil(BLOCK_SIZE as u64));
        // What a change of the length wrote is there before anything else was written there.
        for event in &self.events[start..event_index] {
            if let Event::Len(len_bytes, change) = event {
                map.make_room(len_bytes.div_ceil(BLOCK_SIZE as u64));
                change.iter().for_each(|change| change.apply(&mut map));
            }
        }
        crash::apply_some(&mut map, &pending[done_count..], style, rng);
        map
    }

    /// The index after the last flush that worked before `event_index`.
    fn flushed_before(&self, event_index: usize) -> usize {
        assert!(event_index <= self.events.len(), "the recording has no event {event_index}");
        let count = self.flushes.partition_point(|&flush| flush < event_index);
        count.checked_sub(1).map_or(0, |last| self.flushes[last] + 1)
    }

    /// What the flush before `start` left as it was.
    fn left_at(&self, start: usize) -> &[Arc<Change>] {
        match start.checked_sub(1).map(|flush| &self.events[flush]) {
            Some(Event::Flush(_, left)) => left,
            _ => &[],
        }
    }

    /// The changes of these events, and those that the flush before them left, less those that a
    /// failed flush among them has doomed.
    fn pending(&self, start: usize, end: usize) -> Vec<&Arc<Change>> {
        let mut pending: Vec<&Arc<Change>> = self.left_at(start).iter().collect();
        for event in &self.events[start..end] {
            match event {
                Event::Change(change) => pending.push(change),
                Event::FailedFlush(doomed) => pending
                    .retain(|change| !doomed.iter().any(|doomed| Arc::ptr_eq(doomed, change))),
                Event::Flush(..) | Event::Len(..) => {}
            }
        }
        pending
    }

    /// The last snapshot after event `start` that leaves a change for the end to be torn.
    fn snapshot_between(&self, start: usize, end: usize) -> Option<&(usize, BlockMap)> {
        let count = self.snapshots.partition_point(|(index, _)| *index < end);
        self.snapshots[..count].last().filter(|(index, _)| *index > start)
    }
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recording({} events)", self.events.len())
    }
}
