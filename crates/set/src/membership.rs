//! Adding and removing members of a set that is in use.

use std::path::PathBuf;

use dendro_base::sync::atomic::Ordering;
use dendro_base::{Timestamp, Uuid};
use dendro_device::{Device, Result as DeviceResult};
use dendro_format::Roster;
use dendro_format::roster::extents::HEAD_SEGMENTS;
use dendro_format::roster::{
    MAX_MEMBERS, MemberState, ROSTER_AREA_LEN_BYTES, Regions, region_size_log2,
};

use crate::error::{Error, Result};
use crate::member::{self, Slot, usable_len};
use crate::set::{DeviceSet, State};
use crate::spread::{self, Spread, room_on};

/// Whether a missing member with this roster was written to without the others (invariant 5): they
/// know of rosters on it up to `written_generation`. It may have one more, whose write they took
/// for failed or did not come to, and they may not have been able to read the newest of their own.
/// One that was brought up itself is never used alone.
pub(crate) fn was_apart(its: &Roster, written_generation: u64) -> bool {
    its.own().is_some_and(|own| own.state == MemberState::InSync)
        && its.generation >= written_generation.saturating_add(3)
}

impl<D: Device> State<D> {
    /// Gives a member up for good. Its own roster says so first: whoever finds that one alone
    /// knows that it is old.
    pub(crate) fn give_up(&mut self, uuid: &Uuid, now: Timestamp) -> DeviceResult<()> {
        let Some(at) = self.position(uuid) else { return Ok(()) };
        let device = self.slots[at].device.clone();
        self.set_missing(uuid, "it was removed", now);
        self.generation += 1;
        if let Some(device) = &device {
            let roster = self.roster_for(&self.slots[at]);
            // A device that cannot be written to any more need not know.
            let Slot { end_bytes, roster_slot, .. } = self.slots[at];
            let _ = member::write_roster(&**device, end_bytes, &roster, 1 - roster_slot);
        }
        let end_bytes = self.slots.remove(at).end_bytes;
        if self.slots.iter().all(|slot| slot.state == MemberState::InSync) {
            self.stale = Regions::default();
        }
        self.write_rosters(now)?;
        if let Some(device) = device {
            let _ = member::erase_rosters(&*device, end_bytes);
        }
        Ok(())
    }
}

impl<D: Device> DeviceSet<D> {
    /// Makes a single device the first member of a set. What lies above must have stated durably
    /// that the volume lies on a set, and use no byte behind `used_bytes`.
    ///
    /// # Errors
    /// [`Error::NoRoom`] when there is no room for rosters; [`Error::ReadOnly`]; [`Error::Device`].
    pub fn list(&self, set: Uuid, member: Uuid, path: PathBuf, used_bytes: u64) -> Result<()> {
        let mut state = self.changeable()?;
        if state.is_listed {
            return Ok(());
        }
        let name = path.display().to_string();
        let len_bytes = state.slots[0].device.as_ref().map_or(0, |device| device.len_bytes());
        let usable = usable_len(len_bytes).filter(|usable| *usable >= used_bytes);
        let before_bytes = state.set_len_bytes;
        state.set_len_bytes = usable.ok_or(Error::NoRoom { path: name.clone() })?;
        state.slots[0].end_bytes = len_bytes;
        state.region_size_log2 = region_size_log2(state.set_len_bytes);
        (state.slots[0].uuid, state.slots[0].path, state.set) = (member, path, set);
        state.unflushed.lock().clear();
        state.is_listed = true;
        if let Err(source) = state.write_rosters(self.clock.now()) {
            (state.is_listed, state.set_len_bytes) = (false, before_bytes);
            state.is_recorded = true;
            return Err(Error::Device { path: name, source });
        }
        self.len_bytes.store(state.set_len_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the only device the first member of a set over which the volume is spread. What the
    /// volume has lies there as before: `segment_count` segments of 2^`segment_size_log2` bytes,
    /// behind which nothing is used but backups of superblocks. What lies above must state durably
    /// that the volume is spread before another device is added. Nothing is done if it is already.
    ///
    /// # Errors
    /// [`Error::NotAlone`] if there are several devices; [`Error::NoRoom`] when there is no room
    /// for rosters; [`Error::ReadOnly`]; [`Error::Device`]. Then the device is as before, unless it
    /// could not be flushed: then nothing is acknowledged until the set is opened again.
    pub fn begin_spread(
        &self,
        set: Uuid,
        member: Uuid,
        path: PathBuf,
        (segment_size_log2, segment_count): (u8, u32),
    ) -> Result<()> {
        let _flushing = self.flushing.lock();
        let _copying = self.copying.write();
        let mut state = self.changeable()?;
        if state.spread.is_some() {
            return Ok(());
        }
        let ([slot], true) = (&mut state.slots[..], segment_count > HEAD_SEGMENTS) else {
            return Err(Error::NotAlone);
        };
        let name = path.display().to_string();
        let room = slot.in_sync().and_then(|it| room_on(it.len_bytes(), segment_size_log2));
        if room.is_none_or(|(segments, _)| segments < segment_count) {
            return Err(Error::NoRoom { path: name });
        }
        slot.end_bytes = slot.device.as_ref().map_or(0, |device| device.len_bytes());
        // What was written and not flushed is on this device alone.
        slot.is_dirty.store(true, Ordering::Release);
        let was_listed = state.is_listed;
        let before = (state.set, state.set_len_bytes, state.region_size_log2, state.generation);
        if !was_listed {
            (state.slots[0].uuid, state.slots[0].path, state.set) = (member, path, set);
        }
        (state.is_listed, state.region_size_log2) = (true, segment_size_log2);
        state.unflushed.lock().clear();
        state.is_recorded = false;
        let extents = Spread::in_place(segment_size_log2, segment_count);
        if let Err(source) = state.set_extents(extents, self.clock.now()) {
            if !source.is_flush() {
                (state.set, state.set_len_bytes, state.region_size_log2, state.generation) = before;
                (state.is_listed, state.spread) = (was_listed, None);
                state.tell();
                (state.is_recorded, state.has_failed) = (true, false);
            }
            return Err(Error::Device { path: name, source });
        }
        self.len_bytes.store(state.set_len_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Whether a single device has room for rosters behind the bytes that the volume uses. Members
    /// of a set have it.
    ///
    /// # Errors
    /// [`Error::NoRoom`]; [`Error::ReadOnly`].
    pub fn check_room(&self, used_bytes: u64) -> Result<()> {
        let state = self.changeable()?;
        if state.is_listed {
            return Ok(());
        }
        let slot = &state.slots[0];
        let len_bytes = slot.device.as_ref().map_or(0, |device| device.len_bytes());
        match usable_len(len_bytes).filter(|usable| *usable >= used_bytes) {
            Some(_) => Ok(()),
            None => Err(Error::NoRoom { path: slot.name() }),
        }
    }

    /// The bytes that a device needs to become a member of a set of which `used_bytes` are used.
    pub fn needed_bytes(&self) -> u64 {
        let state = self.state.read();
        if let Some(spread) = &state.spread {
            return spread::part_needed_bytes(spread.segment_size_log2());
        }
        let rosters = if state.is_listed { ROSTER_AREA_LEN_BYTES } else { 0 };
        state.set_len_bytes + rosters
    }

    /// Adds a device, which is then brought up. One that was a member and is missing gets what it
    /// lacks; of any other, what lies on it is lost. The member `replaced` leaves when all that are
    /// brought up are in sync. The same roster states both, so that a crash undoes both or neither.
    /// Returns the member's UUID: `uuid` for a new one.
    ///
    /// Of a spread volume the device is a part at once, which is made use of when the volume
    /// becomes longer ([`Device::extend`]) or another member leaves.
    ///
    /// # Errors
    /// [`Error::TooShort`], [`Error::Full`], [`Error::AlreadyMember`], [`Error::Split`],
    /// [`Error::NoRoomElsewhere`], [`Error::NoSet`], [`Error::ReadOnly`] or [`Error::Device`].
    pub fn add(
        &self,
        device: D,
        path: PathBuf,
        uuid: Uuid,
        replaced: Option<Uuid>,
    ) -> Result<Uuid> {
        if self.is_spread() {
            return self.add_part(device, path, uuid, replaced);
        }
        let now = self.clock.now();
        let name = path.display().to_string();
        let mut state = self.changeable()?;
        if !state.is_listed {
            return Err(Error::NoSet);
        }
        let needed_bytes = state.set_len_bytes + ROSTER_AREA_LEN_BYTES;
        let len_bytes = device.len_bytes();
        if usable_len(len_bytes).is_none_or(|usable| usable < state.set_len_bytes) {
            return Err(Error::TooShort { path: name, len_bytes, needed_bytes });
        }
        let found = member::read_roster(&device).filter(|(roster, ..)| {
            roster.set == state.set && member::volume_on(&device) == Some(state.set)
        });
        let known = found.as_ref().and_then(|(roster, ..)| state.position(&roster.member));
        let member = match (known, found) {
            (Some(at), Some((roster, roster_slot, end_bytes))) => {
                if state.slots[at].state != MemberState::Missing {
                    return Err(Error::AlreadyMember { path: name });
                }
                if was_apart(&roster, state.slots[at].written_generation) {
                    let one = state.in_sync().next().map(|at| state.slots[at].name());
                    let (one, set) = (one.unwrap_or_default(), state.set);
                    return Err(Error::Split { one, other: name, set });
                }
                let lacks_all = roster.generation < state.slots[at].written_generation;
                let set_len_bytes = state.set_len_bytes;
                let end = member::mirrored_end(&device, end_bytes, set_len_bytes);
                let end = end.unwrap_or(end_bytes);
                let slot = &mut state.slots[at];
                (slot.device, slot.path) = (Some(device.into()), path);
                slot.roster_slot = if end == end_bytes { roster_slot } else { 1 };
                slot.end_bytes = end;
                if lacks_all {
                    state.stale = Regions::all();
                }
                roster.member
            }
            _ if state.slots.len() >= MAX_MEMBERS => return Err(Error::Full),
            (_, found) => {
                let mut slot = Slot::new(uuid, path, device, MemberState::Missing);
                // An old roster is not left beside the new one.
                slot.roster_slot = found.map_or(1, |(_, slot, _)| slot);
                let from = state.in_sync().next().and_then(|at| state.slots[at].in_sync());
                if let (Some(device), Some(from)) = (&slot.device, from) {
                    // It is found again by these, should it be before they are copied in turn.
                    member::erase_rosters(&**device, len_bytes)
                        .and_then(|()| member::make_known(&**from, &**device, state.set_len_bytes))
                        .map_err(|source| Error::Device { path: name.clone(), source })?;
                }
                state.slots.push(slot);
                state.stale = Regions::all();
                uuid
            }
        };
        if let Some(at) = replaced.and_then(|uuid| state.position(&uuid)) {
            state.slots[at].leaves = true;
        }
        state.bring_up_returned(now);
        state.write_rosters(now).map_err(|source| Error::Device { path: name, source })?;
        Ok(member)
    }

    /// Removes a member for good. Its rosters are erased, so that nobody takes it for the volume.
    /// From a spread volume, it goes when what it holds has been moved to the others.
    ///
    /// # Errors
    /// [`Error::LastCopy`] when no other one has everything; [`Error::NoRoomElsewhere`];
    /// [`Error::NoSet`]; [`Error::ReadOnly`]; [`Error::Device`].
    pub fn remove(&self, uuid: &Uuid) -> Result<()> {
        if self.is_spread() {
            return self.replace(uuid);
        }
        let mut state = self.removable(uuid)?;
        let is_in_sync = |slot: &Slot<D>| slot.state == MemberState::InSync;
        let is_behind = |slot: &Slot<D>| !is_in_sync(slot);
        if let Some(at) = state.position(uuid)
            && is_behind(&state.slots[at])
            && state.slots.iter().filter(|slot| is_behind(slot)).count() == 1
        {
            // Nobody is left to take the place of those that were to leave.
            state.slots.iter_mut().for_each(|slot| slot.leaves = false);
        }
        state.give_up(uuid, self.clock.now()).map_err(of_all)
    }

    /// Stops using a member, and closes its device. It stays a member, and lacks from now on what
    /// is written.
    ///
    /// # Errors
    /// As [`Self::remove`]; [`Error::HoldsPart`] if it holds a part of a spread volume.
    pub fn take_offline(&self, uuid: &Uuid) -> Result<()> {
        let now = self.clock.now();
        let mut state = self.removable(uuid)?;
        if state.spread.is_some() {
            let path = state.position(uuid).map_or_else(String::new, |at| state.slots[at].name());
            return Err(Error::HoldsPart { path });
        }
        state.set_missing(uuid, "it was taken offline", now);
        if let Some(at) = state.position(uuid) {
            state.slots[at].device = None;
        }
        state.write_rosters(now).map_err(of_all)
    }

    /// Has a member leave the set when all members that are brought up are in sync; at once if it
    /// is missing.
    ///
    /// # Errors
    /// As [`Self::remove`], except that no other member needs to have everything.
    pub fn replace(&self, uuid: &Uuid) -> Result<()> {
        let now = self.clock.now();
        let mut state = self.changeable()?;
        let at = state.position(uuid).ok_or(Error::NoSet)?;
        if state.spread.is_some() {
            return state.leave(at, now);
        }
        if state.slots[at].state == MemberState::Missing {
            return state.give_up(uuid, now).map_err(of_all);
        }
        state.slots[at].leaves = true;
        state.write_rosters(now).map_err(of_all)
    }

    /// The state, if it can be changed.
    pub(crate) fn changeable(&self) -> Result<dendro_base::sync::RwLockWriteGuard<'_, State<D>>> {
        if self.is_read_only {
            return Err(Error::ReadOnly);
        }
        self.open_for_writing().map_err(of_all)?;
        let state = self.state.write();
        // Otherwise devices get rosters that the others never had, and call the others old.
        state.check_recorded().map_err(of_all)?;
        Ok(state)
    }

    /// The same, if another member than this one has everything.
    fn removable(&self, uuid: &Uuid) -> Result<dendro_base::sync::RwLockWriteGuard<'_, State<D>>> {
        let state = self.changeable()?;
        let at = state.position(uuid).filter(|_| state.is_listed).ok_or(Error::NoSet)?;
        if state.in_sync().all(|other| other == at) {
            return Err(Error::LastCopy { path: state.slots[at].name() });
        }
        Ok(state)
    }
}

fn of_all(source: dendro_device::Error) -> Error {
    Error::Device { path: "the volume's devices".into(), source }
}
