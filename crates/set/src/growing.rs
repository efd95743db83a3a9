//! Members take in more of their devices.
//!
//! # A member of a spread volume
//! Its copy of the tail and its rosters move to the new end. In this order:
//! 1. The device becomes longer, with the tail and without rosters at its new end, durably.
//! 2. Rosters are written, that of the member to the new end.
//! 3. What lies above makes the volume longer, which changes the extents.
//!
//! After a crash before the roster is at the new end, the one at the old end counts. What lies
//! there is not overwritten before extents name it. After that, the one at the new end counts, as
//! it is looked for there first. The device is longer than the volume makes use of then, and the
//! member goes on taking it in when it is asked to once more.
//!
//! # Mirrored members
//! All of them do so together, and have everything:
//! 1. Each device becomes longer, with the volume's new tail and without rosters at its new end,
//!    durably.
//! 2. Rosters that state the new length are written, each to the new end of its device.
//!
//! After a crash in between, the newest roster states the new length if any does. A member that is
//! long enough for it, of which the roster lies at the old end, gets its next one at the new end.

use dendro_base::Uuid;
use dendro_base::sync::atomic::Ordering;
use dendro_device::{AlignedBuf, BLOCK_SIZE, Device, Error as DeviceError, Result as DeviceResult};
use dendro_format::roster::extents::TAIL_LEN_BYTES;
use dendro_format::roster::{ROSTER_AREA_LEN_BYTES, Regions};

use crate::error::{Error, Result};
use crate::member::Slot;
use crate::set::{DeviceSet, State};
use crate::spread::room_on;

/// What lies behind the segments of a member.
const END_LEN_BYTES: u64 = TAIL_LEN_BYTES + ROSTER_AREA_LEN_BYTES;

impl<D: Device> State<D> {
    /// How many segments a member would have more if it ended there. None if it is not spread.
    fn gained_at(&self, at: usize, end_bytes: u64) -> u32 {
        let Some(spread) = &self.spread else { return 0 };
        let segments = |end_bytes| {
            room_on(end_bytes, spread.segment_size_log2()).map_or(0, |(segments, _)| segments)
        };
        let (end, has_room) = (self.slots[at].end_bytes, end_bytes >= END_LEN_BYTES);
        // What is at the old end stays as it is.
        let is_behind = has_room && end_bytes - END_LEN_BYTES >= end;
        if is_behind { segments(end_bytes).saturating_sub(segments(end)) } else { 0 }
    }

    /// What lies at the end of a member, without rosters.
    fn end_without_rosters(&self) -> AlignedBuf {
        let mut end = AlignedBuf::zeroed(END_LEN_BYTES as usize);
        let tail_start = self.set_len_bytes - TAIL_LEN_BYTES;
        let blocks = end[..TAIL_LEN_BYTES as usize].chunks_mut(BLOCK_SIZE);
        for (block, offset) in blocks.zip((tail_start..).step_by(BLOCK_SIZE)) {
            self.read_shared(offset, block);
        }
        end
    }
}

impl<D: Device> State<D> {
    /// Where mirrored members end if the volume is so long, and each takes all of its device.
    /// `None`: not all are there and have everything, or that has not been announced, or the new
    /// tail would lie on rosters.
    fn ends_with(&self, len_bytes: u64, tail_len_bytes: u64) -> Option<Vec<u64>> {
        let region_count = len_bytes.div_ceil(1 << self.region_size_log2);
        if self.stale.count() > 0 || region_count > Regions::MAX_COUNT {
            return None;
        }
        let end = |slot: &Slot<D>| {
            let device_len_bytes = slot.in_sync()?.len_bytes();
            let end_bytes = device_len_bytes.max(len_bytes + ROSTER_AREA_LEN_BYTES);
            let is_behind = len_bytes.checked_sub(tail_len_bytes)? >= slot.end_bytes;
            let is_announced = is_behind && slot.next_end_bytes == Some(end_bytes);
            // It may end there since the power went when this was tried before.
            (is_announced || slot.end_bytes == end_bytes).then_some(end_bytes)
        };
        self.slots.iter().map(end).collect()
    }
}

impl<D: Device> DeviceSet<D> {
    /// Notes where mirrored members are about to end if the volume is so long, for
    /// [`Device::member_ends`]. What lies above must have stated that durably before it makes the
    /// volume longer ([`Device::extend`]), and state where they end afterwards.
    pub fn announce_len(&self, len_bytes: u64) {
        let members: Vec<Uuid> = self.state.read().slots.iter().map(|slot| slot.uuid).collect();
        for uuid in members {
            self.announce_end(&uuid, len_bytes + ROSTER_AREA_LEN_BYTES);
        }
    }

    /// See [`Device::extend`]. `None`: the members are not mirrored.
    pub(crate) fn lengthen_mirrored(
        &self,
        len_bytes: u64,
        tail: &[u8],
        allocates: bool,
    ) -> Option<DeviceResult<()>> {
        {
            let state = self.state.read();
            if !state.is_listed || state.spread.is_some() {
                return None;
            }
        }
        Some(self.lengthen_all(len_bytes, tail, allocates))
    }

    fn lengthen_all(&self, len_bytes: u64, tail: &[u8], allocates: bool) -> DeviceResult<()> {
        self.check(0, 0)?;
        self.open_for_writing()?;
        let _flushing = self.flushing.lock();
        let _copying = self.copying.write();
        let mut state = self.state.write();
        state.check_recorded()?;
        let fixed =
            DeviceError::FixedLen { len_bytes: state.set_len_bytes, wanted_bytes: len_bytes };
        let ends = state.ends_with(len_bytes, tail.len() as u64).ok_or(fixed)?;
        for slot in &mut state.slots {
            slot.next_end_bytes = None;
        }
        let rosters = AlignedBuf::zeroed(ROSTER_AREA_LEN_BYTES as usize);
        let mut end = AlignedBuf::zeroed(tail.len());
        end.copy_from_slice(tail);
        for (at, end_bytes) in ends.iter().enumerate() {
            let Some(device) = state.slots[at].in_sync().cloned() else { continue };
            let lengthened = match state.slots[at].end_bytes == *end_bytes {
                true => Ok(()),
                false => device.extend(*end_bytes, &rosters, allocates),
            };
            let tail_start = len_bytes - tail.len() as u64;
            let lengthened = lengthened
                .and_then(|()| device.write_at(tail_start, &end))
                .and_then(|()| device.flush());
            if let Err(error) = lengthened {
                // What else was lost with a flush that fails, no other flush tells.
                state.has_failed |= error.is_flush();
                return Err(error);
            }
        }
        for (slot, end_bytes) in state.slots.iter_mut().zip(ends) {
            if slot.end_bytes != end_bytes {
                (slot.end_bytes, slot.roster_slot) = (end_bytes, 1);
            }
        }
        state.set_len_bytes = len_bytes;
        self.len_bytes.store(len_bytes, Ordering::Relaxed);
        state.write_rosters(self.clock.now())
    }

    /// The bytes that the volume gains if a member of it ends there, in whole segments: none if it
    /// is not spread, or has no such member.
    pub fn gained_bytes(&self, uuid: &Uuid, end_bytes: u64) -> u64 {
        let state = self.state.read();
        let gained = state.position(uuid).map_or(0, |at| state.gained_at(at, end_bytes));
        u64::from(gained) << state.region_size_log2
    }

    /// The least length of its device with which a member of a spread volume gains so many bytes.
    /// `None`: it is not spread, or has no such member.
    pub fn end_with(&self, uuid: &Uuid, gained_bytes: u64) -> Option<u64> {
        let state = self.state.read();
        let (spread, at) = (state.spread.as_ref()?, state.position(uuid)?);
        let (segments, _) = state.room(at, spread)?;
        let log2 = spread.segment_size_log2();
        let more = gained_bytes.div_ceil(1 << log2);
        let end_bytes = ((u64::from(segments) + more) << log2) + END_LEN_BYTES;
        // It may have less than a segment that it makes no use of.
        let is_behind = |end: &u64| *end >= state.slots[at].end_bytes + END_LEN_BYTES;
        let mut ends = (0..).map(|count| end_bytes + (count << log2));
        ends.find(is_behind)
    }

    /// Notes where a member is about to end, for [`Device::member_ends`]; see
    /// [`Self::lengthen_member`].
    pub fn announce_end(&self, uuid: &Uuid, len_bytes: u64) {
        let mut state = self.state.write();
        let Some(at) = state.position(uuid) else { return };
        let slot = &mut state.slots[at];
        let len_bytes = slot.device.as_ref().map_or(0, |it| it.len_bytes()).max(len_bytes);
        slot.next_end_bytes = Some(len_bytes).filter(|len_bytes| *len_bytes > slot.end_bytes);
    }

    /// Has a member of a spread volume take in all of its device, which is made `len_bytes` long if
    /// it is shorter. Nothing is done if it gains no segment by that. The volume has the same
    /// length until it is made longer ([`Device::extend`]). With `allocates`, what an image
    /// gets is allocated.
    ///
    /// After [`Self::announce_end`] with the same length, what lies above must have stated durably
    /// where members end ([`Device::member_ends`]), and does so again afterwards: so this one is
    /// found if the power goes, also if the device then becomes longer by other means.
    ///
    /// # Errors
    /// [`Error::NoSet`], [`Error::NotSpread`] or [`Error::ReadOnly`]; [`Error::Device`]: then the
    /// device may be longer. Unless it could not be flushed, or rosters not be written, all is as
    /// before otherwise; then nothing is acknowledged until the set is opened again.
    pub fn lengthen_member(&self, uuid: &Uuid, len_bytes: u64, allocates: bool) -> Result<()> {
        let _flushing = self.flushing.lock();
        let _copying = self.copying.write();
        let mut state = self.changeable()?;
        let at = state.position(uuid).filter(|_| state.is_listed).ok_or(Error::NoSet)?;
        let path = state.slots[at].name();
        if state.spread.is_none() {
            return Err(Error::NotSpread { path });
        }
        let fail = |source| Error::Device { path: path.clone(), source };
        let Some(device) = state.slots[at].in_sync().cloned() else { return Err(Error::NoSet) };
        let end_bytes = len_bytes.max(device.len_bytes());
        state.slots[at].next_end_bytes = None;
        if state.gained_at(at, end_bytes) == 0 {
            return Ok(());
        }
        let end = state.end_without_rosters();
        if let Err(error) = device.extend(end_bytes, &end, allocates) {
            // What else was lost with a flush that fails, no other flush tells.
            state.has_failed |= error.is_flush();
            return Err(fail(error));
        }
        let slot = &mut state.slots[at];
        slot.is_dirty.store(true, Ordering::Release);
        (slot.end_bytes, slot.roster_slot) = (end_bytes, 1);
        state.write_rosters(self.clock.now()).map_err(fail)
    }
}
