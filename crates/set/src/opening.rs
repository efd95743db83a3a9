//! What is read before the first write, and making the members alike there (invariant 3).

use dendro_base::sync::atomic::Ordering;
use dendro_device::{AlignedBuf, Device, Error, Result};
use dendro_format::roster::MemberState;

use crate::set::{DeviceSet, State, nothing_in_sync};
use crate::sources::{BLOCK, RUN_BLOCKS, Sources};

/// Generations by which an opening raises the roster's at least (invariant 4).
const OPENING_GENERATIONS: u64 = 2;

/// Generations by which it is higher then than that of any absent member (invariant 5).
const DEGRADED_GENERATIONS: u64 = 5;

impl<D: Device> DeviceSet<D> {
    /// Has another one of the members in sync be asked first while the volume is opened: the first
    /// is number 0. What was read so far counts for nothing. Returns false if there is none with
    /// this number, or something was written already.
    pub fn prefer(&self, number: usize) -> bool {
        if self.is_open.load(Ordering::Acquire) {
            return number == 0;
        }
        let is_there = number < self.state.read().in_sync().count();
        if is_there {
            *self.opening.lock() = Sources::preferring(number);
        }
        is_there
    }

    /// Reads the first piece of a range before the first write. Returns its length.
    pub(crate) fn read_opening(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let state = self.state.read();
        let piece = state.piece(offset, buf.len() as u64);
        let buf = &mut buf[..piece.len_bytes as usize];
        if let Some(at) = piece.on {
            let device = state.slots[at]
                .in_sync()
                .ok_or_else(|| state.is_absent(at, offset, piece.len_bytes))?;
            device.read_at(state.place(at, offset), buf)?;
            return Ok(buf.len());
        }
        let mut opening = self.opening.lock();
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (len_bytes, source) = opening.first_part(at, (buf.len() - done) as u64);
            let part = &mut buf[done..done + len_bytes as usize];
            match source {
                Some(source) => {
                    let device = state.slots[source].in_sync().ok_or_else(nothing_in_sync)?;
                    device.read_at(state.place(source, at), part)?;
                }
                None => {
                    let read_from = read_first(&state, opening.preferred, at, part)?;
                    // A set that is open for reading only makes nothing alike.
                    if !self.is_read_only {
                        opening.set(at, len_bytes, read_from);
                    }
                }
            }
            done += len_bytes as usize;
        }
        Ok(buf.len())
    }

    /// Makes the members alike where something was read, and records which members there are.
    /// From then on the set can be written to.
    pub(crate) fn open_for_writing(&self) -> Result<()> {
        if self.is_open.load(Ordering::Acquire) {
            return Ok(());
        }
        let now = self.clock.now();
        let mut state = self.state.write();
        if self.is_open.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut opening = self.opening.lock();
        // Members that are alike stay so: what differs was damaged since, and a scrub mends it.
        let runs = if state.is_clean { Vec::new() } else { opening.runs() };
        state.is_clean = false;
        // What was accepted by reading it may be durable on no member: alike in their caches alone.
        for (block, count, _) in runs.iter().filter(|_| state.spread.is_none()) {
            state.unflushed.lock().extend(state.regions(block * BLOCK, count * BLOCK));
        }
        for (uuid, error) in make_alike(&state, &runs)? {
            if state.spread.is_some() {
                return Err(error);
            }
            state.set_missing(&uuid, &error.to_string(), now);
        }
        // Invariant 4: a crash may have come between two members' rosters of the last generation.
        state.write_generation(now)?;
        // Invariant 5.
        for at in 0..state.slots.len() {
            if state.slots[at].device.is_none() && state.slots[at].state != MemberState::Missing {
                let uuid = state.slots[at].uuid;
                state.set_missing(&uuid, "it was not found", now);
            }
        }
        state.bring_up_returned(now);
        // Invariants 4 and 5: one generation after the other, so that a crash in between leaves a
        // difference of one. An opening that failed on the way is repeated.
        let absent = state.slots.iter().filter(|slot| slot.device.is_none());
        let known = absent.map(|slot| slot.written_generation.min(state.generation)).max();
        let apart = known.map_or(0, |known| known + DEGRADED_GENERATIONS);
        let opened = apart.max(state.generation + OPENING_GENERATIONS);
        while state.generation < opened {
            state.write_rosters(now)?;
        }
        *opening = Sources::default();
        self.is_open.store(true, Ordering::Release);
        Ok(())
    }
}

/// Reads from the first member in sync that can, beginning with the preferred one.
fn read_first<D: Device>(
    state: &State<D>,
    preferred: usize,
    offset: u64,
    buf: &mut [u8],
) -> Result<usize> {
    let mut first_error = None;
    for at in state.in_sync_from(preferred) {
        let Some(device) = state.slots[at].in_sync() else { continue };
        match device.read_at(state.place(at, offset), buf) {
            Ok(()) => return Ok(at),
            Err(error) => drop(first_error.get_or_insert(error)),
        }
    }
    Err(first_error.unwrap_or_else(nothing_in_sync))
}

/// Writes the blocks that were read to all other members that have something else there. Returns
/// the members that failed.
fn make_alike<D: Device>(
    state: &State<D>,
    runs: &[(u64, u64, usize)],
) -> Result<Vec<crate::set::Failed>> {
    let mut failed: Vec<crate::set::Failed> = Vec::new();
    let mut changed = vec![false; state.slots.len()];
    let mut theirs = AlignedBuf::zeroed((RUN_BLOCKS * BLOCK) as usize);
    let mut ours = AlignedBuf::zeroed((RUN_BLOCKS * BLOCK) as usize);
    for (block, count, source) in runs {
        let offset = block * BLOCK;
        let len = (count * BLOCK).min(state.set_len_bytes - offset) as usize;
        let from = state.slots[*source].in_sync().ok_or_else(nothing_in_sync)?;
        let mut is_read = false;
        for (at, slot) in state.slots.iter().enumerate() {
            let Some(device) = slot.written().filter(|_| at != *source) else { continue };
            if failed.iter().any(|(uuid, _)| *uuid == slot.uuid) {
                continue;
            }
            if !is_read {
                from.read_at(state.place(*source, offset), &mut ours[..len])?;
                is_read = true;
            }
            let place = state.place(at, offset);
            let answer = device.read_at(place, &mut theirs[..len]);
            if answer.is_ok() && theirs[..len] == ours[..len] {
                continue;
            }
            changed[at] = true;
            match device.write_at(place, &ours[..len]) {
                Err(error @ Error::Io { .. }) if !error.is_no_space() => {
                    failed.push((slot.uuid, error));
                }
                outcome => outcome?,
            }
        }
    }
    for (slot, changed) in state.slots.iter().zip(changed) {
        if let Some(device) = slot.written().filter(|_| changed)
            && failed.iter().all(|(uuid, _)| *uuid != slot.uuid)
            && let Err(error) = device.flush()
        {
            failed.push((slot.uuid, error));
        }
    }
    let is_left = |at: usize| failed.iter().all(|(uuid, _)| *uuid != state.slots[at].uuid);
    match failed.is_empty() || state.in_sync().any(is_left) {
        true => Ok(failed),
        false => Err(failed.swap_remove(0).1),
    }
}
