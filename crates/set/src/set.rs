//! The set as a device: where reads and writes go, and what happens when a member fails.
//!
//! # Invariants
//! 1. What the set acknowledges is on all members that the newest roster calls in sync. A write or
//!    flush that fails on one of them is acknowledged only after that member is called missing, in
//!    durable rosters of the others. While the rosters lack anything that they should state,
//!    nothing is acknowledged. After a flush for a roster that failed on all members in sync,
//!    nothing is acknowledged until the set is opened again: what had not been flushed may be lost,
//!    and no later flush tells.
//! 2. While a member is missing, a region is durably called stale before it is written to. When a
//!    member becomes missing, so are the regions with writes that no flush has made durable. So a
//!    missing member differs from the others in stale regions alone.
//! 3. Members may differ in what was not flushed when the power went. Whoever opens the volume
//!    accepts such a write only after reading it. So each block that is read before the first write
//!    is read from one member, always the same; before the first write, these blocks are written
//!    to all other members that are in sync. Until the next flush they count as not flushed
//!    (invariant 2). What was not read was flushed, or is never used.
//! 4. Each opening for writing raises the generation by two. Members in sync have rosters that
//!    differ by one at most: a generation is on all of them before the next is on any. So a copy of
//!    a member that is older than the last opening is known for what it is.
//! 5. A set that is opened without a member calls that one missing before the first write, and
//!    raises the generation to five more than the newest that it knows to be on it, or higher. So a
//!    missing member that was written to without the others has a roster that is newer, by three at
//!    least, than the newest that they know to be on it, also if one slot of either could not be
//!    read. It is never joined to them again.
//! 6. Nobody writes to a range while it is copied to a member that is brought up, or moved to
//!    another member.
//!
//! A set over which a volume is spread needs all of its members, so that none is ever missing:
//! what fails on one fails. Invariants 3 to 5 hold of it, the first of these for head and tail.
//! Beyond that,
//!
//! 7. Rosters name a place only when everything is durable there that was acknowledged. What moves
//!    is written to both places until rosters that name the new one are durable on all members.
//! 8. After a roster could not be written, nothing is acknowledged until the set is opened again:
//!    members may have different extents by then, all of which are right.
//!
//! Locks are taken in this order: `flushing`, `copying`, `present_paths`, `state`, `opening` or its
//! `unflushed` or `known`. Nobody waits for a device while `known` is locked.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;

use dendro_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dendro_base::sync::{Arc, BriefRwLock, Mutex, RwLock};
use dendro_base::{Clock, Timestamp, Uuid};
use dendro_device::{AlignedBuf, BLOCK_SIZE, Device, Error, ReadOf, Result};
use dendro_format::Roster;
use dendro_format::roster::{MemberState, Regions};

use crate::member::{self, MemberInfo, Slot};
use crate::sources::Sources;
use crate::spread::{Piece, Spread, room_on};

/// Reads of neighbouring ranges of this length go to different members.
const STRIPE_LOG2: u32 = 20;

/// Notes that are kept until somebody takes them; a device that fails has many.
const MAX_NOTES: usize = 100;

/// One device, or several that hold the same, or parts of the same.
pub struct DeviceSet<D> {
    pub(crate) len_bytes: AtomicU64,
    pub(crate) is_read_only: bool,
    pub(crate) clock: Arc<dyn Clock>,
    /// Held by who flushes a set, until it is recorded which members failed: a device reports what
    /// it has lost to one flush alone (invariant 1).
    pub(crate) flushing: Mutex<()>,
    /// Taken for reading by those that write, and for writing by those that copy.
    pub(crate) copying: RwLock<()>,
    pub(crate) state: RwLock<State<D>>,
    /// Where the members were that were there when that was asked for last.
    present_paths: Mutex<Vec<PathBuf>>,
    /// Which member the blocks came from that were read before the first write.
    pub(crate) opening: Mutex<Sources>,
    /// Whether something may be written.
    pub(crate) is_open: AtomicBool,
    /// See [`State`].
    pub(crate) known: Arc<BriefRwLock<Known>>,
    /// Whether members are flushed one after the other.
    pub(crate) is_in_turn: bool,
}

/// Where the segments of a spread volume lie, for those that only ask.
#[derive(Default)]
pub(crate) struct Known {
    /// The extents, without what is being moved.
    pub(crate) spread: Option<Spread>,
    /// Of each member, whether it is a fast one.
    pub(crate) are_fast: Vec<bool>,
    /// See [`Device::parts_version`].
    pub(crate) version: u64,
}

/// What the rosters state.
pub(crate) struct State<D> {
    pub(crate) set: Uuid,
    pub(crate) generation: u64,
    pub(crate) set_len_bytes: u64,
    pub(crate) region_size_log2: u8,
    pub(crate) slots: Vec<Slot<D>>,
    pub(crate) stale: Regions,
    /// Where the segments lie if the volume is spread over the members.
    pub(crate) spread: Option<Spread>,
    /// For those that only ask where something lies. They do not wait while rosters are written.
    pub(crate) known: Arc<BriefRwLock<Known>>,
    /// Regions with writes that no flush has made durable.
    pub(crate) unflushed: Mutex<BTreeSet<u64>>,
    /// Whether all that was written is durable on all members in sync.
    pub(crate) is_clean: bool,
    /// Whether the members have rosters. One device alone need not.
    pub(crate) is_listed: bool,
    /// Whether durable rosters state all this, as they do if there are any.
    pub(crate) is_recorded: bool,
    /// Whether a flush for a roster has failed on all members in sync (invariant 1).
    pub(crate) has_failed: bool,
    /// What users should be told.
    pub(crate) notes: Vec<String>,
}

/// A member that failed, and how.
pub(crate) type Failed = (Uuid, Error);

impl<D: Device> State<D> {
    fn present_paths(&self) -> Vec<PathBuf> {
        let slots = self.slots.iter().filter(|slot| self.is_listed && slot.device.is_some());
        let mut present: Vec<&Slot<D>> = slots.collect();
        present.sort_by_key(|slot| slot.state != MemberState::InSync);
        present.into_iter().map(|slot| slot.path.clone()).collect()
    }

    /// The numbers of the members that have everything.
    pub(crate) fn in_sync(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().enumerate().filter(|(_, slot)| slot.in_sync().is_some()).map(|(at, _)| at)
    }

    /// The same, beginning with the one that has this place among them.
    pub(crate) fn in_sync_from(&self, first: usize) -> impl Iterator<Item = usize> {
        self.in_sync().skip(first).chain(self.in_sync().take(first))
    }

    pub(crate) fn position(&self, uuid: &Uuid) -> Option<usize> {
        self.slots.iter().position(|slot| slot.uuid == *uuid)
    }

    /// The first part of a range that lies in one piece on each member that holds it.
    pub(crate) fn piece(&self, offset: u64, len_bytes: u64) -> Piece {
        match &self.spread {
            Some(spread) => spread.piece(offset, len_bytes),
            None => Piece { len_bytes, on: None },
        }
    }

    /// Where a member that holds `offset` has it.
    pub(crate) fn place(&self, at: usize, offset: u64) -> u64 {
        let Some(spread) = &self.spread else { return offset };
        spread.place(offset, self.room(at, spread).map_or(0, |(_, tail)| tail))
    }

    /// See [`room_on`].
    pub(crate) fn room(&self, at: usize, spread: &Spread) -> Option<(u32, u64)> {
        self.slots[at].device.as_ref()?;
        room_on(self.slots[at].end_bytes, spread.segment_size_log2())
    }

    /// Refuses a range behind the end of the volume, which may have become shorter since the caller
    /// looked: it has when a single device gets rosters, which lie there.
    pub(crate) fn check(&self, offset: u64, len_bytes: u64) -> Result<()> {
        let device_len_bytes = self.set_len_bytes;
        match offset.checked_add(len_bytes) {
            Some(end) if end <= device_len_bytes => Ok(()),
            _ => Err(Error::OutOfRange { offset, len_bytes, device_len_bytes }),
        }
    }

    /// The regions that a range touches.
    pub(crate) fn regions(&self, offset: u64, len_bytes: u64) -> RangeInclusive<u64> {
        let last = offset + len_bytes.max(1) - 1;
        offset >> self.region_size_log2..=last >> self.region_size_log2
    }

    fn has_unflushed(&self) -> bool {
        let is_dirty = |slot: &Slot<D>| slot.is_dirty.load(Ordering::Acquire);
        !self.unflushed.lock().is_empty() || self.slots.iter().any(is_dirty)
    }

    fn lacks_any(&self) -> bool {
        self.slots.iter().any(|slot| slot.state == MemberState::Missing)
    }

    /// Whether a range may be written to (invariants 1 and 2).
    fn is_marked(&self, offset: u64, len_bytes: u64) -> bool {
        let is_stale = || self.regions(offset, len_bytes).all(|region| self.stale.has(region));
        self.is_recorded && (!self.lacks_any() || is_stale())
    }

    pub(crate) fn roster_for(&self, slot: &Slot<D>) -> Roster {
        Roster {
            set: self.set,
            member: slot.uuid,
            end_bytes: Some(slot.end_bytes),
            generation: self.generation,
            set_len_bytes: self.set_len_bytes,
            region_size_log2: self.region_size_log2,
            is_clean: self.is_clean,
            members: self.slots.iter().map(|slot| slot.entry(self.generation)).collect(),
            stale: self.stale.clone(),
            extents: self.spread.as_ref().map(|spread| spread.extents().to_vec()),
        }
    }

    /// Writes the next generation of the roster to all members that are not missing. Those that
    /// fail are missing in the generation behind that. A generation that no member in sync has got
    /// is written again, by whoever wants to write next.
    pub(crate) fn write_rosters(&mut self, now: Timestamp) -> Result<()> {
        self.is_recorded = !self.is_listed;
        while !self.is_recorded {
            self.generation += 1;
            let written = self.write_generation(now).inspect_err(|_| self.generation -= 1);
            self.is_recorded = written?;
        }
        Ok(())
    }

    /// Writes this generation of the roster to all members that are not missing and have an older
    /// one. Returns whether none failed; those that did are called missing.
    pub(crate) fn write_generation(&mut self, now: Timestamp) -> Result<bool> {
        if self.has_failed {
            let source = std::io::Error::other("a flush failed; open the volume again");
            return Err(Error::Io { operation: "flush", offset: 0, len_bytes: 0, source });
        }
        let (mut failed, mut written) = (Vec::new(), Vec::new());
        let mut fails_flush = false;
        // Those that are brought up come first: what a roster in sync calls brought up has one as
        // new.
        let mut order: Vec<usize> = (0..self.slots.len()).collect();
        order.sort_by_key(|at| self.slots[*at].state == MemberState::InSync);
        for at in order {
            let Some(device) = self.slots[at].written().cloned() else { continue };
            if self.slots[at].written_generation >= self.generation {
                continue;
            }
            let (slot, roster) = (&self.slots[at], self.roster_for(&self.slots[at]));
            match member::write_roster(&*device, slot.end_bytes, &roster, 1 - slot.roster_slot) {
                Ok(()) => written.push(at),
                // Invariant 8.
                Err(error) if self.spread.is_some() => {
                    self.has_failed = true;
                    return Err(error);
                }
                Err(error) => {
                    fails_flush |= slot.in_sync().is_some() && error.is_flush();
                    failed.push((slot.uuid, error));
                }
            }
        }
        let has_it =
            |at| written.contains(&at) || self.slots[at].written_generation >= self.generation;
        if !self.in_sync().any(has_it)
            && let Some((_, error)) = failed.pop()
        {
            self.has_failed = fails_flush;
            return Err(error);
        }
        for at in written {
            let slot = &mut self.slots[at];
            slot.roster_slot = 1 - slot.roster_slot;
            slot.written_generation = self.generation;
        }
        let is_whole = failed.is_empty();
        for (uuid, error) in failed {
            self.set_missing(&uuid, &error.to_string(), now);
        }
        Ok(is_whole)
    }

    /// Calls a member missing, and with that what it may not have made durable stale (invariant 2),
    /// in memory.
    pub(crate) fn set_missing(&mut self, uuid: &Uuid, why: &str, now: Timestamp) {
        let Some(at) = self.position(uuid) else { return };
        let slot = &mut self.slots[at];
        if slot.state != MemberState::Missing {
            (slot.state, slot.since) = (MemberState::Missing, now);
            self.is_recorded = !self.is_listed;
            slot.cursor_bytes.store(0, Ordering::Relaxed);
            // It can be opened again, to be added again.
            slot.device = None;
            let note = format!("{}: is used no more: {why}", slot.name());
            self.notes.push(note);
            for region in &*self.unflushed.lock() {
                self.stale.insert(*region);
            }
        }
    }
}

impl<D: Device> DeviceSet<D> {
    pub(crate) fn of(state: State<D>, clock: Arc<dyn Clock>, is_open: bool) -> Self {
        state.tell();
        let lacks_a_part =
            state.spread.is_some() && state.slots.iter().any(|slot| slot.device.is_none());
        let is_read_only = lacks_a_part
            || state
                .slots
                .iter()
                .filter_map(|slot| slot.device.as_ref())
                .any(|it| it.is_read_only());
        Self {
            len_bytes: AtomicU64::new(state.set_len_bytes),
            is_read_only,
            clock,
            flushing: Mutex::default(),
            copying: RwLock::default(),
            present_paths: Mutex::new(state.present_paths()),
            known: Arc::clone(&state.known),
            state: RwLock::new(state),
            opening: Mutex::default(),
            is_open: AtomicBool::new(is_open),
            is_in_turn: false,
        }
    }

    /// The members; a single device is the only one.
    pub fn members(&self) -> Vec<MemberInfo> {
        let state = self.state.read();
        let held_bytes = |at| match &state.spread {
            Some(spread) => spread.taken_count(at).1 << spread.segment_size_log2(),
            None => state.set_len_bytes,
        };
        let slots = state.slots.iter().enumerate();
        slots.map(|(at, slot)| MemberInfo { held_bytes: held_bytes(at), ..slot.info() }).collect()
    }

    /// Where the members of a set are that are there, those in sync first. It is empty for a single
    /// device. This never waits for a device: while others do, it is what it was before.
    pub fn present_paths(&self) -> Vec<PathBuf> {
        let mut known = self.present_paths.lock();
        if let Some(state) = self.state.try_read() {
            *known = state.present_paths();
        }
        known.clone()
    }

    /// Whether it is a set, with rosters.
    pub fn is_listed(&self) -> bool {
        self.state.read().is_listed
    }

    /// Whether the volume is spread over its members, so that all of them are needed.
    pub fn is_spread(&self) -> bool {
        self.state.read().spread.is_some()
    }

    /// What users should be told since this was called last: members that were lost, or returned.
    pub fn take_notes(&self) -> Vec<String> {
        // The lock is taken for writing only if there is something.
        if self.state.read().notes.is_empty() {
            return Vec::new();
        }
        std::mem::take(&mut self.state.write().notes)
    }

    /// States that all is durable that was written, if that is so, before the devices are closed.
    /// Then nothing is made alike when they are opened next. Whatever is written after this opens
    /// the set again.
    ///
    /// # Errors
    /// When that cannot be written. No harm is done.
    pub fn close(&self) -> Result<()> {
        let mut state = self.state.write();
        let is_open = self.is_open.load(Ordering::Acquire);
        if !state.is_listed || self.is_read_only || !is_open || state.has_unflushed() {
            return Ok(());
        }
        state.is_clean = true;
        let now = self.clock.now();
        state.write_rosters(now)?;
        if state.spread.is_some() {
            // A copy of a member that is older than this is known for what it is (invariant 4).
            state.write_rosters(now)?;
        }
        *self.opening.lock() = Sources::default();
        self.is_open.store(false, Ordering::Release);
        Ok(())
    }

    /// Keeps something to tell users, unless there is too much already.
    fn note(&self, note: String) {
        let mut state = self.state.write();
        if state.notes.len() < MAX_NOTES {
            state.notes.push(note);
        }
    }

    /// The first member's device.
    pub(crate) fn first(&self) -> Option<Arc<D>> {
        self.state.read().slots.iter().find_map(|slot| slot.device.clone())
    }

    /// Calls these members missing, durably, before what failed is acknowledged (invariant 1). They
    /// lack the range that was written, also if there was a flush since (invariant 2).
    pub(crate) fn lose(&self, failed: Vec<Failed>, range: Option<(u64, u64)>) -> Result<()> {
        let now = self.clock.now();
        let mut state = self.state.write();
        if state.spread.is_some() {
            return failed.into_iter().next().map_or(Ok(()), |(_, error)| Err(error));
        }
        for (uuid, error) in failed {
            let has_other = state.in_sync().any(|at| state.slots[at].uuid != uuid);
            if !has_other {
                return Err(error);
            }
            state.set_missing(&uuid, &error.to_string(), now);
        }
        if let Some((offset, len_bytes)) = range {
            for region in state.regions(offset, len_bytes) {
                state.stale.insert(region);
            }
        }
        state.write_rosters(now)
    }

    /// Calls the regions of a range stale, durably (invariant 2).
    fn mark(&self, offset: u64, len_bytes: u64) -> Result<()> {
        let mut state = self.state.write();
        if state.lacks_any() {
            for region in state.regions(offset, len_bytes) {
                state.stale.insert(region);
            }
        }
        state.write_rosters(self.clock.now())
    }

    /// Makes rosters durable that could not be written before (invariant 1).
    pub(crate) fn record(&self) -> Result<()> {
        let mut state = self.state.write();
        if state.is_recorded { Ok(()) } else { state.write_rosters(self.clock.now()) }
    }

    /// Changes a range on all members that hold it and are not missing, piece by piece: `change`
    /// has a device, the place there, and which part of the range it is.
    pub(crate) fn change(
        &self,
        offset: u64,
        len_bytes: u64,
        change: impl Fn(&D, u64, Range<usize>) -> Result<()>,
    ) -> Result<()> {
        self.check(offset, len_bytes)?;
        self.open_for_writing()?;
        let mut done = 0;
        while done < len_bytes {
            let part = |len_bytes: u64| done as usize..(done + len_bytes) as usize;
            done += self.change_piece(offset + done, len_bytes - done, |device, place, of| {
                change(device, place, part(of))
            })?;
        }
        Ok(())
    }

    /// Changes the first piece of a range. Returns its length.
    fn change_piece(
        &self,
        offset: u64,
        len_bytes: u64,
        change: impl Fn(&D, u64, u64) -> Result<()>,
    ) -> Result<u64> {
        let failed = loop {
            let _copying = self.copying.read();
            let state = self.state.read();
            state.check(offset, len_bytes)?;
            if let Some(spread) = &state.spread {
                return state.change_spread(spread, offset, len_bytes, change);
            }
            if !state.is_marked(offset, len_bytes) {
                drop(state);
                self.mark(offset, len_bytes)?;
                continue;
            }
            let outcome = on_all(&state, |device| change(device, offset, len_bytes));
            if state.slots.len() > 1 {
                // Also if it failed: what the members have there may differ.
                state.unflushed.lock().extend(state.regions(offset, len_bytes));
            }
            break outcome?;
        };
        if !failed.is_empty() {
            self.lose(failed, Some((offset, len_bytes)))?;
        }
        Ok(len_bytes)
    }

    pub(crate) fn check(&self, offset: u64, len_bytes: u64) -> Result<()> {
        if self.is_read_only { Err(Error::ReadOnly) } else { self.check_read(offset, len_bytes) }
    }

    /// Reads the first piece of a range from one of the members that hold it after the other, until
    /// one answers: `read` has a device, the place there, and the length. Returns that.
    pub(crate) fn read_any(
        &self,
        offset: u64,
        len_bytes: u64,
        mut read: impl FnMut(&D, u64, u64) -> Result<()>,
    ) -> Result<u64> {
        let mut first_error = None;
        let mut unreadable = Vec::new();
        let mut is_read = false;
        let piece = {
            let state = self.state.read();
            let piece = state.piece(offset, len_bytes);
            if let Some(at) = piece.on {
                let device = state.slots[at]
                    .in_sync()
                    .ok_or_else(|| state.is_absent(at, offset, piece.len_bytes))?;
                read(device, state.place(at, offset), piece.len_bytes)?;
                return Ok(piece.len_bytes);
            }
            let count = state.in_sync().count();
            let turn = (offset >> STRIPE_LOG2) as usize % count.max(1);
            for at in state.in_sync_from(turn) {
                let slot = &state.slots[at];
                let Some(device) = slot.in_sync() else { continue };
                match read(device, state.place(at, offset), piece.len_bytes) {
                    Ok(()) => {
                        is_read = true;
                        break;
                    }
                    Err(error) => {
                        slot.failed_reads.fetch_add(1, Ordering::Relaxed);
                        unreadable.push(slot.uuid);
                        first_error.get_or_insert(error);
                    }
                }
            }
            piece
        };
        if !is_read {
            return Err(first_error.unwrap_or_else(nothing_in_sync));
        }
        self.rewrite(offset, piece.len_bytes, &unreadable);
        Ok(piece.len_bytes)
    }

    /// Makes each read on the member whose turn it is, those of a member together. Returns whether
    /// all of them succeeded.
    pub(crate) fn read_at_once(&self, reads: &mut [ReadOf<'_, '_>]) -> bool {
        let state = self.state.read();
        let count = state.in_sync().count();
        let mut by_member: Vec<Vec<ReadOf<'_, '_>>> = Vec::new();
        by_member.resize_with(state.slots.len(), Vec::new);
        for read in reads {
            let (offset, len_bytes) = (read.offset, read.len_bytes() as u64);
            let piece = state.piece(offset, len_bytes);
            let turn = (offset >> STRIPE_LOG2) as usize % count.max(1);
            let member = piece.on.or_else(|| state.in_sync_from(turn).next());
            let (Some(member), true) = (member, piece.len_bytes == len_bytes) else {
                return false;
            };
            let offset = state.place(member, offset);
            by_member[member].push(ReadOf { offset, parts: &mut *read.parts });
        }
        by_member.iter_mut().enumerate().filter(|(_, reads)| !reads.is_empty()).all(
            |(at, reads)| {
                state.slots[at].in_sync().is_some_and(|device| device.read_each(reads).is_ok())
            },
        )
    }

    /// Writes a range, which others have, to members that could not read it: a disk then takes
    /// another sector.
    fn rewrite(&self, offset: u64, len_bytes: u64, unreadable: &[Uuid]) {
        if unreadable.is_empty() || self.is_read_only || !self.is_open.load(Ordering::Acquire) {
            return;
        }
        let (start, end) = whole_blocks(offset, len_bytes, self.len_bytes());
        let mut failed = Vec::new();
        {
            // Nobody writes to the range between the read and the write.
            let _copying = self.copying.write();
            let state = self.state.read();
            let mut buf = AlignedBuf::zeroed((end - start) as usize);
            let others = state.in_sync().filter(|&at| !unreadable.contains(&state.slots[at].uuid));
            let mut others = others.filter_map(|at| Some((at, state.slots[at].in_sync()?)));
            let mut is_read = |(at, device): (usize, &std::sync::Arc<D>)| {
                device.read_at(state.place(at, start), &mut buf).is_ok()
            };
            if !others.any(&mut is_read) {
                return;
            }
            let is_bad = |at: &usize| unreadable.contains(&state.slots[*at].uuid);
            for at in state.in_sync().filter(is_bad) {
                let slot = &state.slots[at];
                let Some(device) = slot.in_sync() else { continue };
                if let Err(error) = write_unreadable(&**device, state.place(at, start), &buf) {
                    failed.push((slot.uuid, error));
                }
            }
        }
        if !failed.is_empty() {
            // What was read is right all the same; the next write reports what is wrong.
            let _ = self.lose(failed, Some((start, end - start)));
        }
    }

    /// Looks for a copy of a range that `is_right`; see [`Device::mend`].
    pub(crate) fn mend_range(
        &self,
        offset: u64,
        buf: &mut [u8],
        is_right: &dyn Fn(&[u8]) -> bool,
    ) -> bool {
        let is_open = self.is_open.load(Ordering::Acquire);
        let mut failed = Vec::new();
        let mut mended = Vec::new();
        let is_found = {
            let _copying = self.copying.write();
            let state = self.state.read();
            let mut copy = vec![0; buf.len()];
            let mut good = None;
            let mut wrong = Vec::new();
            for at in state.in_sync() {
                let Some(device) = state.slots[at].in_sync() else { continue };
                match device.read_at(state.place(at, offset), &mut copy) {
                    Ok(()) if is_right(&copy) => {
                        good.get_or_insert(at);
                        buf.copy_from_slice(&copy);
                    }
                    _ => wrong.push(at),
                }
            }
            if let Some(good) = good {
                for at in wrong {
                    let slot = &state.slots[at];
                    slot.failed_reads.fetch_add(1, Ordering::Relaxed);
                    if self.is_read_only || !is_open {
                        continue;
                    }
                    match self.patch(&state, (good, at), offset, buf) {
                        Ok(()) => mended.push(slot.name()),
                        Err(error) => failed.push((slot.uuid, error)),
                    }
                }
                if !is_open {
                    self.opening.lock().set(offset, buf.len() as u64, good);
                }
            }
            good.is_some()
        };
        for name in mended {
            self.note(format!(
                "{name}: {} bytes at {offset} were not as they were written, and were mended with \
                 those of another device",
                buf.len()
            ));
        }
        if !failed.is_empty() {
            let _ = self.lose(failed, Some((offset, buf.len() as u64)));
        }
        is_found
    }

    /// Writes right bytes over those of member `at`, whose other bytes in the same blocks stay, or
    /// come from member `good` if they cannot be read.
    fn patch(
        &self,
        state: &State<D>,
        (good, at): (usize, usize),
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let (Some(from), Some(to)) = (state.slots[good].in_sync(), state.slots[at].in_sync())
        else {
            return Ok(());
        };
        let (start, end) = whole_blocks(offset, bytes.len() as u64, self.len_bytes());
        let mut blocks = AlignedBuf::zeroed((end - start) as usize);
        let (here, there) = (state.place(at, start), state.place(good, start));
        to.read_at(here, &mut blocks).or_else(|_| from.read_at(there, &mut blocks))?;
        let within = (offset - start) as usize;
        blocks[within..within + bytes.len()].copy_from_slice(bytes);
        to.write_at(here, &blocks)
    }
}

/// Writes those blocks that cannot be read. The others may be better than the given ones.
fn write_unreadable(device: &impl Device, offset: u64, blocks: &[u8]) -> Result<()> {
    let mut own = AlignedBuf::zeroed(BLOCK_SIZE);
    for (block, at) in blocks.chunks(BLOCK_SIZE).zip((offset..).step_by(BLOCK_SIZE)) {
        if device.read_at(at, &mut own).is_err() {
            device.write_at(at, block)?;
        }
    }
    Ok(())
}

/// The whole blocks around a range.
fn whole_blocks(offset: u64, len_bytes: u64, device_len_bytes: u64) -> (u64, u64) {
    let block = BLOCK_SIZE as u64;
    let end = (offset + len_bytes).next_multiple_of(block).min(device_len_bytes);
    (offset - offset % block, end)
}

pub(crate) fn nothing_in_sync() -> Error {
    let source = std::io::Error::other("no device of the volume has everything");
    Error::Io { operation: "read", offset: 0, len_bytes: 0, source }
}

/// Does something to all members that are not missing, one after the other; see [`settled`].
fn on_all<D: Device>(state: &State<D>, change: impl Fn(&D) -> Result<()>) -> Result<Vec<Failed>> {
    let slots = state.slots.iter().enumerate();
    settled(state, slots.filter_map(|(at, slot)| Some((at, change(slot.written()?)))))
}

/// Of what members have answered, each by its number: returns those that failed, unless all did
/// that have everything, or the caller can try it again.
pub(crate) fn settled<D: Device>(
    state: &State<D>,
    answers: impl Iterator<Item = (usize, Result<()>)>,
) -> Result<Vec<Failed>> {
    let mut failed: Vec<Failed> = Vec::new();
    let mut has_everything = false;
    for (at, answer) in answers {
        let slot = &state.slots[at];
        match answer {
            Ok(()) => has_everything |= slot.state == MemberState::InSync,
            Err(error @ Error::Io { .. }) if !error.is_no_space() => {
                failed.push((slot.uuid, error));
            }
            Err(error) => return Err(error),
        }
    }
    match has_everything {
        true => Ok(failed),
        false => Err(failed.into_iter().next().map_or_else(nothing_in_sync, |(_, error)| error)),
    }
}
