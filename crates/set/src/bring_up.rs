//! Bringing members up that lack something, beside those that write.

use std::path::PathBuf;

use dendro_base::Timestamp;
use dendro_base::sync::atomic::Ordering;
use dendro_device::{AlignedBuf, BLOCK_SIZE, Device, Result};
use dendro_format::roster::{MemberState, Regions};

use crate::set::{DeviceSet, State, nothing_in_sync};

/// The most bytes that are copied while writers wait.
pub(crate) const PIECE_BYTES: u64 = 256 << 10;

/// After so many bytes the progress is recorded.
const RECORDED_BYTES: u64 = 64 << 20;

/// What one step has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BringUp {
    /// The member that is brought up, or has left.
    pub path: PathBuf,
    /// Bytes that the step has copied.
    pub copied_bytes: u64,
    /// Whether the member is in sync now, or has left.
    pub is_done: bool,
}

/// What is copied next.
enum Next {
    Nothing,
    Piece {
        at: usize,
        offset: u64,
        len_bytes: u64,
    },
    /// The member has everything.
    End {
        at: usize,
    },
    /// All are in sync, and the member was to leave then.
    Leave {
        at: usize,
    },
}

impl<D: Device> State<D> {
    /// Begins to bring up members that are there again.
    pub(crate) fn bring_up_returned(&mut self, now: Timestamp) {
        for slot in &mut self.slots {
            if slot.state == MemberState::Missing && slot.device.is_some() {
                slot.state = MemberState::BroughtUp { copied_to_bytes: 0 };
                slot.cursor_bytes.store(0, Ordering::Relaxed);
                slot.since = now;
            }
        }
    }

    fn next(&self) -> Next {
        let is_behind = |at: &usize| {
            let slot = &self.slots[*at];
            slot.device.is_some() && matches!(slot.state, MemberState::BroughtUp { .. })
        };
        let Some(at) = (0..self.slots.len()).find(is_behind) else {
            return self.next_to_leave().map_or(Next::Nothing, |at| Next::Leave { at });
        };
        let cursor = self.slots[at].cursor_bytes.load(Ordering::Relaxed);
        let size_log2 = self.region_size_log2;
        let first = cursor >> size_log2;
        let end = self.set_len_bytes.div_ceil(1 << size_log2);
        let Some(region) = (first..end).find(|region| self.stale.has(*region)) else {
            return Next::End { at };
        };
        let offset = cursor.max(region << size_log2);
        let region_end = ((region + 1) << size_log2).min(self.set_len_bytes);
        match region_end.saturating_sub(offset).min(PIECE_BYTES) {
            0 => Next::End { at },
            len_bytes => Next::Piece { at, offset, len_bytes },
        }
    }

    /// A member that was to leave, and did not because of a crash. While any other is missing, that
    /// may be the one that was to take its place.
    fn next_to_leave(&self) -> Option<usize> {
        let at = self.slots.iter().position(|slot| slot.leaves)?;
        let are_in_sync = self.slots.iter().all(|slot| slot.in_sync().is_some());
        (are_in_sync && self.slots.iter().any(|slot| !slot.leaves)).then_some(at)
    }

    /// The bytes that are still to be copied to members that are there.
    fn left_bytes(&self) -> u64 {
        if let Some(spread) = &self.spread {
            let leaving = (0..self.slots.len()).filter(|at| self.slots[*at].leaves);
            return leaving.map(|at| spread.left_bytes(at)).sum();
        }
        let left = self.slots.iter().filter(|slot| slot.device.is_some()).map(|slot| {
            let MemberState::BroughtUp { .. } = slot.state else { return 0 };
            let first = slot.cursor_bytes.load(Ordering::Relaxed) >> self.region_size_log2;
            let end = self.set_len_bytes.div_ceil(1 << self.region_size_log2);
            let count = (first..end).filter(|region| self.stale.has(*region)).count() as u64;
            count << self.region_size_log2
        });
        left.sum()
    }
}

impl<D: Device> DeviceSet<D> {
    /// Copies a piece to a member that is brought up; at the end of all pieces, the member is in
    /// sync. Or moves a piece of what a member of a spread volume holds that leaves; at the end of
    /// all pieces, it has left. `None`: there is nothing to do. The caller paces it.
    ///
    /// # Errors
    /// When the rosters cannot be written to any member, or nothing can be read of the members that
    /// have everything. A member that is brought up and fails is missing again, which is no error.
    pub fn bring_up_step(&self) -> Result<Option<BringUp>> {
        if self.is_read_only || !self.is_open.load(Ordering::Acquire) {
            return Ok(None);
        }
        if self.is_spread() {
            return self.move_step();
        }
        // Invariant 6.
        let copying = self.copying.write();
        let state = self.state.read();
        match state.next() {
            Next::Nothing => Ok(None),
            Next::Piece { at, offset, len_bytes } => {
                let path = state.slots[at].path.clone();
                let uuid = state.slots[at].uuid;
                let outcome = copy(&state, at, offset, len_bytes);
                drop((state, copying));
                if let Err(error) = outcome? {
                    self.lose(vec![(uuid, error)], Some((offset, len_bytes)))?;
                    return Ok(Some(BringUp { path, copied_bytes: 0, is_done: false }));
                }
                if (offset + len_bytes) / RECORDED_BYTES != offset / RECORDED_BYTES {
                    self.record_progress()?;
                }
                Ok(Some(BringUp { path, copied_bytes: len_bytes, is_done: false }))
            }
            Next::End { at } => {
                let uuid = state.slots[at].uuid;
                let path = state.slots[at].path.clone();
                drop((state, copying));
                let is_done = self.end_bring_up(&uuid)?;
                Ok(Some(BringUp { path, copied_bytes: 0, is_done }))
            }
            Next::Leave { at } => {
                let uuid = state.slots[at].uuid;
                let path = state.slots[at].path.clone();
                drop((state, copying));
                let mut state = self.state.write();
                if state.next_to_leave().is_some_and(|at| state.slots[at].uuid == uuid) {
                    state.give_up(&uuid, self.clock.now())?;
                }
                Ok(Some(BringUp { path, copied_bytes: 0, is_done: true }))
            }
        }
    }

    /// The bytes that are still to be copied to members that are brought up, or to be moved from
    /// those that leave.
    pub fn left_to_copy_bytes(&self) -> u64 {
        self.state.read().left_bytes()
    }

    /// Records durably how far members have been brought up.
    fn record_progress(&self) -> Result<()> {
        let now = self.clock.now();
        let mut state = self.state.write();
        let mut failed = Vec::new();
        for slot in &mut state.slots {
            let (MemberState::BroughtUp { .. }, Some(device)) = (slot.state, &slot.device) else {
                continue;
            };
            // What is recorded as copied is durable.
            match device.flush() {
                Ok(()) => {
                    let copied_to_bytes = slot.cursor_bytes.load(Ordering::Relaxed);
                    slot.state = MemberState::BroughtUp { copied_to_bytes };
                }
                Err(error) => failed.push((slot.uuid, error)),
            }
        }
        for (uuid, error) in failed {
            state.set_missing(&uuid, &error.to_string(), now);
        }
        state.write_rosters(now)
    }

    /// The member has everything. Returns whether it is in sync.
    fn end_bring_up(&self, uuid: &dendro_base::Uuid) -> Result<bool> {
        let now = self.clock.now();
        let mut state = self.state.write();
        let Some(at) = state.position(uuid) else { return Ok(false) };
        let Some(device) = state.slots[at].written().cloned() else { return Ok(false) };
        if let Err(error) = device.flush() {
            state.set_missing(uuid, &error.to_string(), now);
            state.write_rosters(now)?;
            return Ok(false);
        }
        let slot = &mut state.slots[at];
        (slot.state, slot.since) = (MemberState::InSync, now);
        let note = format!("{}: is in sync", slot.name());
        state.notes.push(note);
        if state.slots.iter().all(|slot| slot.state == MemberState::InSync) {
            state.stale = Regions::default();
        }
        state.write_rosters(now)?;
        let is_in_sync = state.slots[at].state == MemberState::InSync;
        let is_behind = |state: MemberState| matches!(state, MemberState::BroughtUp { .. });
        if is_in_sync && !state.slots.iter().any(|slot| is_behind(slot.state)) {
            let leaving: Vec<_> =
                state.slots.iter().filter(|slot| slot.leaves).map(|slot| slot.uuid).collect();
            for uuid in leaving {
                state.give_up(&uuid, now)?;
            }
        }
        Ok(is_in_sync)
    }
}

/// Copies a range to member `at`. What no member can read stays as it is: nobody else can read it
/// either. The outer error is of members in sync, and the inner one of that member.
fn copy<D: Device>(state: &State<D>, at: usize, offset: u64, len_bytes: u64) -> Result<Result<()>> {
    let Some(to) = state.slots[at].written() else { return Ok(Ok(())) };
    let mut buf = AlignedBuf::zeroed(len_bytes as usize);
    let mut written = Ok(());
    let mut sources = state.in_sync().filter_map(|from| state.slots[from].in_sync());
    if sources.any(|from| from.read_at(offset, &mut buf).is_ok()) {
        written = write_unless_zero(&**to, offset, &buf);
    } else {
        for (block, offset) in buf.chunks_mut(BLOCK_SIZE).zip((offset..).step_by(BLOCK_SIZE)) {
            if read_block(state, offset, block)? {
                written = written.and_then(|()| to.write_at(offset, block));
            }
        }
    }
    if written.is_ok() {
        state.slots[at].cursor_bytes.store(offset + len_bytes, Ordering::Relaxed);
    }
    Ok(written)
}

/// Reads a block from any member in sync. Returns false if all of them are there, and none can.
fn read_block<D: Device>(state: &State<D>, offset: u64, block: &mut [u8]) -> Result<bool> {
    let mut first = None;
    for from in state.in_sync().filter_map(|from| state.slots[from].in_sync()) {
        match is_readable(&**from, offset, block) {
            Ok(true) => return Ok(true),
            answer if !matches!(first, Some(Err(_))) => first = Some(answer),
            _ => {}
        }
    }
    first.unwrap_or_else(|| Err(nothing_in_sync()))
}

/// Reads a block again that could not be read. Returns false if only that cannot be read: it could
/// not be read before either, and counts as copied. A device of which nothing can be read may be
/// there again later, with all that it holds.
pub(crate) fn is_readable(from: &impl Device, offset: u64, block: &mut [u8]) -> Result<bool> {
    if from.read_at(offset, block).is_ok() {
        return Ok(true);
    }
    from.read_at(0, block)?;
    Ok(from.read_at(offset, block).is_ok())
}

/// Writes a piece. One of zeros is not written where there are zeros, so that images stay sparse.
pub(crate) fn write_unless_zero(to: &impl Device, offset: u64, piece: &[u8]) -> Result<()> {
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    if is_zero(piece) {
        let mut theirs = AlignedBuf::zeroed(piece.len());
        if to.read_at(offset, &mut theirs).is_ok() && is_zero(&theirs) {
            return Ok(());
        }
    }
    to.write_at(offset, piece)
}
