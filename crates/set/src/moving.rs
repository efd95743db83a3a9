//! Members of a spread volume come, and leave: what one holds that leaves moves to others, beside
//! those that write.

use std::path::PathBuf;

use dendro_base::{Timestamp, Uuid};
use dendro_device::{AlignedBuf, BLOCK_SIZE, Device, Error as DeviceError, Result as DeviceResult};
use dendro_format::roster::extents::{HEAD_SEGMENTS, TAIL_LEN_BYTES};
use dendro_format::roster::{MAX_MEMBERS, MemberState};

use crate::bring_up::{BringUp, PIECE_BYTES, is_readable, write_unless_zero};
use crate::error::{Error, Result};
use crate::member::{self, Slot};
use crate::set::{DeviceSet, State};
use crate::spread::{part_needed_bytes, room_on};

/// What the next step is.
enum Next {
    Nothing,
    /// Something is to be copied from this member.
    Copied(usize),
    /// This member has nothing any more.
    Gone(usize),
}

impl<D: Device> State<D> {
    /// How many segments a member holds, and how many others could take that stay.
    fn held_and_free(&self, at: usize) -> Option<(u64, u64)> {
        let spread = self.spread.as_ref()?;
        let mut rooms = self.rooms(spread);
        rooms[at] = 0;
        let held = |of: usize| spread.taken_count(of).1;
        let free: u64 =
            rooms.iter().enumerate().map(|(of, room)| spread.free_count(of, *room)).sum();
        // Others that leave need room too.
        let leaving = (0..rooms.len()).filter(|of| *of != at && self.slots[*of].leaves);
        Some((held(at), free.saturating_sub(leaving.map(held).sum())))
    }

    /// Has a member of a spread volume leave.
    pub(crate) fn leave(&mut self, at: usize, now: Timestamp) -> Result<()> {
        let path = self.slots[at].name();
        if self.slots.iter().enumerate().all(|(other, slot)| other == at || slot.leaves) {
            return Err(Error::LastCopy { path });
        }
        let log2 = self.region_size_log2;
        match self.held_and_free(at) {
            Some((held, free)) if held > free => {
                let (held_bytes, free_bytes) = (held << log2, free << log2);
                return Err(Error::NoRoomElsewhere { path, held_bytes, free_bytes });
            }
            _ => {}
        }
        self.slots[at].leaves = true;
        self.slots[at].since = now;
        self.write_rosters(now).map_err(|source| Error::Device { path, source })
    }

    /// Begins the next move if none is under way.
    fn next_move(&mut self) -> DeviceResult<Next> {
        if self.has_failed {
            return Ok(Next::Nothing);
        }
        let Some(mut spread) = self.spread.take() else { return Ok(Next::Nothing) };
        let rooms = self.rooms(&spread);
        let leaves: Vec<bool> = self.slots.iter().map(|slot| slot.leaves).collect();
        let has_failed = spread.end_failed_move();
        let is_moving = spread.is_moving() || !has_failed && spread.begin_move(&rooms, &leaves);
        let from = spread.next_copied(1).map(|(from, ..)| from);
        let is_gone = |at: &usize| leaves[*at] && spread.taken_count(*at).1 == 0;
        let gone = (0..leaves.len()).find(is_gone);
        self.spread = Some(spread);
        match (has_failed, is_moving, gone) {
            (true, ..) => Err(other("a segment could not be written to another device")),
            (_, true, _) => Ok(Next::Copied(from.unwrap_or(0))),
            (_, _, Some(at)) => Ok(Next::Gone(at)),
            _ => Ok(Next::Nothing),
        }
    }

    /// Copies some bytes of what is moved. Returns how many; 0: there is nothing left to copy.
    fn copy_moved(&self) -> DeviceResult<u64> {
        let next = self
            .spread
            .as_ref()
            .and_then(|spread| Some((spread.moved_to()?, spread.next_copied(PIECE_BYTES)?)));
        let Some((to, (from, source, target, len_bytes))) = next else { return Ok(0) };
        let (Some(from), Some(to)) = (self.slots[from].in_sync(), self.slots[to].in_sync()) else {
            return Ok(0);
        };
        let mut buf = AlignedBuf::zeroed(len_bytes as usize);
        if from.read_at(source, &mut buf).is_ok() {
            write_unless_zero(&**to, target, &buf)?;
            return Ok(len_bytes);
        }
        let places = (source..).zip(target..).step_by(BLOCK_SIZE);
        for (block, (source, target)) in buf.chunks_mut(BLOCK_SIZE).zip(places) {
            if is_readable(&**from, source, block)? {
                to.write_at(target, block)?;
            }
        }
        Ok(len_bytes)
    }

    /// Counts what was copied. Returns whether all of what is moved was.
    fn note_copied(&mut self, copied_bytes: u64) -> bool {
        let Some(spread) = &mut self.spread else { return false };
        spread.note_copied(copied_bytes);
        spread.is_copied()
    }

    /// Has the volume lie where what was moved lies now.
    fn end_move(&mut self, now: Timestamp) -> DeviceResult<()> {
        let Some(spread) = self.spread.as_mut().filter(|spread| spread.is_copied()) else {
            return Ok(());
        };
        let moved = spread.moved();
        let to = spread.moved_to().and_then(|to| self.slots[to].in_sync());
        // Invariant 7. What else was lost with a flush that fails, no other flush tells.
        to.map_or(Ok(()), |device| device.flush()).inspect_err(|_| self.has_failed = true)?;
        match moved {
            Some(moved) => self.set_extents(moved, now),
            None => {
                spread.stop_move();
                Err(other("the volume lies in too many pieces; add a device with more room"))
            }
        }
    }

    /// Takes a member off the list that holds nothing.
    fn drop_member(&mut self, at: usize, now: Timestamp) -> DeviceResult<()> {
        let Some(spread) = &self.spread else { return Ok(()) };
        let spread = spread.without(at);
        let slot = self.slots.remove(at);
        self.set_extents(spread, now)?;
        if let Some(device) = &slot.device {
            // Without them nobody takes it for a part of the volume. The others do not list it.
            let _ = member::erase_rosters(&**device, slot.end_bytes)
                .and_then(|()| erase_superblocks(&**device, self.region_size_log2));
        }
        self.notes.push(format!("{}: is empty, and is used no more", slot.name()));
        Ok(())
    }

    /// Copies to a device what all members hold.
    fn copy_shared(&self, device: &D, tail: u64) -> DeviceResult<()> {
        let head_bytes = u64::from(HEAD_SEGMENTS) << self.region_size_log2;
        let tail_start = self.set_len_bytes - TAIL_LEN_BYTES;
        let pieces = (0..head_bytes).step_by(PIECE_BYTES as usize);
        let pieces = pieces.map(|at| (at, at, PIECE_BYTES.min(head_bytes - at)));
        for (offset, target, len_bytes) in pieces.chain([(tail_start, tail, TAIL_LEN_BYTES)]) {
            let mut buf = AlignedBuf::zeroed(len_bytes as usize);
            for (block, offset) in buf.chunks_mut(BLOCK_SIZE).zip((offset..).step_by(BLOCK_SIZE)) {
                self.read_shared(offset, block);
            }
            write_unless_zero(device, target, &buf)?;
        }
        device.flush()
    }

    /// Reads a block from any member. One that none can read nobody can read later either.
    pub(crate) fn read_shared(&self, offset: u64, block: &mut [u8]) {
        let _ = self.in_sync().any(|at| {
            let device = self.slots[at].in_sync();
            device.is_some_and(|it| it.read_at(self.place(at, offset), block).is_ok())
        });
    }
}

/// Erases the superblocks in the head of a member that has left.
fn erase_superblocks(device: &impl Device, segment_size_log2: u8) -> DeviceResult<()> {
    let len_bytes = (1 << segment_size_log2).min(1 << 20);
    let zeros = AlignedBuf::zeroed(len_bytes);
    for segment in 0..u64::from(HEAD_SEGMENTS) {
        device.write_at(segment << segment_size_log2, &zeros)?;
    }
    device.flush()
}

fn other(why: &str) -> DeviceError {
    let source = std::io::Error::other(why.to_owned());
    DeviceError::Io { operation: "move", offset: 0, len_bytes: 0, source }
}

impl<D: Device> DeviceSet<D> {
    /// The bytes by which a spread volume has to become shorter before this member can leave; 0 if
    /// the others have room for what it holds. `None`: it is not spread, or has no such member.
    pub fn surplus_bytes(&self, uuid: &Uuid) -> Option<u64> {
        let state = self.state.read();
        let (held, free) = state.held_and_free(state.position(uuid)?)?;
        Some(held.saturating_sub(free) << state.region_size_log2)
    }

    /// Adds a member to a spread volume, which has as many bytes as before; see [`Self::add`].
    pub(crate) fn add_part(
        &self,
        device: D,
        path: PathBuf,
        uuid: Uuid,
        replaced: Option<Uuid>,
    ) -> Result<Uuid> {
        let name = path.display().to_string();
        let now = self.clock.now();
        let _flushing = self.flushing.lock();
        let _copying = self.copying.write();
        let mut state = self.changeable()?;
        let log2 = state.region_size_log2;
        let len_bytes = device.len_bytes();
        let Some((_, tail)) = room_on(len_bytes, log2) else {
            return Err(Error::TooShort {
                path: name,
                len_bytes,
                needed_bytes: part_needed_bytes(log2),
            });
        };
        if state.slots.len() >= MAX_MEMBERS {
            return Err(Error::Full);
        }
        let failed = |source| Error::Device { path: name.clone(), source };
        member::erase_rosters(&device, len_bytes)
            .and_then(|()| state.copy_shared(&device, tail))
            .map_err(failed)?;
        state.slots.push(Slot::new(uuid, path, device, MemberState::InSync));
        let at = state.slots.len() - 1;
        let replaced = replaced.and_then(|uuid| state.position(&uuid));
        if let Some(old) = replaced {
            state.slots[at].is_fast = state.slots[old].is_fast;
            state.slots[old].leaves = true;
            let (held, free) = state.held_and_free(old).unwrap_or_default();
            if held > free {
                state.slots[old].leaves = false;
                let path = state.slots[old].name();
                state.slots.pop();
                let (held_bytes, free_bytes) = (held << log2, free << log2);
                return Err(Error::NoRoomElsewhere { path, held_bytes, free_bytes });
            }
        }
        state.is_recorded = false;
        state.generation += 1;
        let its = state.roster_for(&state.slots[at]);
        let written =
            state.slots[at].in_sync().map(|it| member::write_roster(&**it, len_bytes, &its, 0));
        if let Some(Err(error)) = written {
            // It may have that roster all the same, so the others get a newer one.
            state.slots.pop();
            replaced.into_iter().for_each(|old| state.slots[old].leaves = false);
            state.generation -= 1;
            for _ in 0..2 {
                state.write_rosters(now).map_err(of_others)?;
            }
            return Err(failed(error));
        }
        state.slots[at].written_generation = state.generation;
        state.is_recorded = state.write_generation(now).map_err(of_others)?;
        Ok(uuid)
    }

    /// Copies a piece of what a member holds that leaves. See [`Self::bring_up_step`].
    pub(crate) fn move_step(&self) -> DeviceResult<Option<BringUp>> {
        // Invariant 6.
        let copying = self.copying.write();
        let next = self.state.write().next_move()?;
        let (at, path) = match next {
            Next::Nothing => return Ok(None),
            Next::Copied(at) | Next::Gone(at) => (at, self.state.read().slots[at].path.clone()),
        };
        if let Next::Gone(_) = next {
            self.state.write().drop_member(at, self.clock.now())?;
            return Ok(Some(BringUp { path, copied_bytes: 0, is_done: true }));
        }
        // Others read meanwhile.
        let copied_bytes = self.state.read().copy_moved()?;
        let is_copied = self.state.write().note_copied(copied_bytes);
        drop(copying);
        if is_copied {
            let _flushing = self.flushing.lock();
            let _copying = self.copying.write();
            self.state.write().end_move(self.clock.now())?;
        }
        Ok(Some(BringUp { path, copied_bytes, is_done: false }))
    }
}

fn of_others(source: DeviceError) -> Error {
    Error::Device { path: "the volume's devices".into(), source }
}
