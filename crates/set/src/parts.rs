//! A volume that is spread over its members: writing, and where its segments lie.

use dendro_base::Uuid;
use dendro_base::sync::atomic::Ordering;
use dendro_device::{AlignedBuf, Device, Error, Result};
use dendro_format::roster::extents::{HEAD_SEGMENTS, TAIL_LEN_BYTES};

use crate::error::Error as SetError;
use crate::set::{DeviceSet, State};
use crate::spread::Spread;

impl<D: Device> State<D> {
    /// The error for what lies on a member that is not there.
    pub(crate) fn is_absent(&self, at: usize, offset: u64, len_bytes: u64) -> Error {
        let why = format!("{}, which holds this, is not there", self.slots[at].name());
        let source = std::io::Error::other(why);
        Error::Io { operation: "transfer", offset, len_bytes, source }
    }

    /// Changes the first piece of a range on the members that hold it, and where it is being moved
    /// to. Returns its length.
    pub(crate) fn change_spread(
        &self,
        spread: &Spread,
        offset: u64,
        len_bytes: u64,
        change: impl Fn(&D, u64, u64) -> Result<()>,
    ) -> Result<u64> {
        self.check_recorded()?;
        let piece = spread.piece(offset, len_bytes);
        let mut outcome = Ok(());
        for at in (0..self.slots.len()).filter(|at| piece.is_on(*at)) {
            let slot = &self.slots[at];
            let device =
                slot.in_sync().ok_or_else(|| self.is_absent(at, offset, piece.len_bytes))?;
            let changed = change(device, self.place(at, offset), piece.len_bytes);
            // A flush that began before this does not count for it.
            slot.is_dirty.store(true, Ordering::Release);
            outcome = outcome.and(changed);
        }
        if let Some((at, place)) = spread.moved_place(offset) {
            let slot = &self.slots[at];
            let device =
                slot.in_sync().ok_or_else(|| self.is_absent(at, offset, piece.len_bytes))?;
            let changed = change(device, place, piece.len_bytes);
            slot.is_dirty.store(true, Ordering::Release);
            if changed.is_err() {
                // What counts is in its old place, and stays there.
                spread.fail_move();
            }
        }
        outcome.map(|()| piece.len_bytes)
    }

    /// Refuses what would be acknowledged after rosters could not be written (invariant 8).
    pub(crate) fn check_recorded(&self) -> Result<()> {
        match self.has_failed {
            false => Ok(()),
            true => {
                let source = std::io::Error::other(
                    "the list of the volume's devices could not be written; open the volume again",
                );
                Err(Error::Io { operation: "write", offset: 0, len_bytes: 0, source })
            }
        }
    }

    /// The segments of each member from which the volume may take some: none of one that leaves.
    pub(crate) fn rooms(&self, spread: &Spread) -> Vec<u32> {
        let room = |at: usize| match self.slots[at].leaves {
            false => self.room(at, spread).map_or(0, |(segments, _)| segments),
            true => 0,
        };
        (0..self.slots.len()).map(room).collect()
    }

    /// Writes `tail` to the end of each member's copy of the tail, durably.
    fn write_tails(&self, spread: &Spread, tail: &[u8]) -> Result<()> {
        for at in 0..self.slots.len() {
            let (Some(device), Some((_, start))) =
                (self.slots[at].in_sync(), self.room(at, spread))
            else {
                return Err(self.is_absent(at, spread.tail_start(), TAIL_LEN_BYTES));
            };
            device.write_at(start + TAIL_LEN_BYTES - tail.len() as u64, tail)?;
            device.flush()?;
        }
        Ok(())
    }
}

/// The segments between head and tail of a volume of this length, if it has whole ones.
fn body_segments(len_bytes: u64, segment_size_log2: u8) -> Option<u64> {
    let segments = len_bytes.checked_sub(TAIL_LEN_BYTES)?;
    let is_whole = segments.trailing_zeros() >= u32::from(segment_size_log2);
    (segments >> segment_size_log2).checked_sub(u64::from(HEAD_SEGMENTS)).filter(|_| is_whole)
}

impl<D: Device> DeviceSet<D> {
    /// The length that the volume can have on its members, those that leave not counted. `None`: it
    /// is not spread over them.
    pub fn most_len_bytes(&self) -> Option<u64> {
        let state = self.state.read();
        let spread = state.spread.as_ref()?;
        let rooms = state.rooms(spread).into_iter();
        let body: u64 = rooms.map(|room| u64::from(room.saturating_sub(HEAD_SEGMENTS))).sum();
        Some(((u64::from(HEAD_SEGMENTS) + body) << spread.segment_size_log2()) + TAIL_LEN_BYTES)
    }

    /// States whether a member of a spread volume is a fast one, durably.
    ///
    /// # Errors
    /// [`SetError::NotSpread`], [`SetError::NoSet`], [`SetError::ReadOnly`] or
    /// [`SetError::Device`].
    pub fn set_fast(&self, uuid: &Uuid, is_fast: bool) -> std::result::Result<(), SetError> {
        let mut state = self.changeable()?;
        let at = state.position(uuid).filter(|_| state.is_listed).ok_or(SetError::NoSet)?;
        let path = state.slots[at].name();
        if state.spread.is_none() {
            return Err(SetError::NotSpread { path });
        }
        if state.slots[at].is_fast == is_fast {
            return Ok(());
        }
        state.slots[at].is_fast = is_fast;
        state.tell();
        let written = state.write_rosters(self.clock.now());
        written.map_err(|source| SetError::Device { path, source })
    }

    /// See [`Device::extend`]. `None`: the volume is not spread over its members.
    pub(crate) fn lengthen_spread(&self, len_bytes: u64, tail: &[u8]) -> Option<Result<()>> {
        self.resize_spread(len_bytes, |state, spread, body| {
            let more = body.checked_sub(spread.body_count())?;
            let longer = spread.lengthened(&state.rooms(spread), more)?;
            Some((longer, tail.to_vec()))
        })
    }

    /// See [`Device::truncate`]. `None`: the volume is not spread over its members.
    pub(crate) fn shorten_spread(&self, len_bytes: u64) -> Option<Result<()>> {
        self.resize_spread(len_bytes, |state, spread, body| {
            let shorter = spread.shortened(spread.body_count().checked_sub(body)?)?;
            // What lies before the new end becomes the tail.
            let mut tail = vec![0; TAIL_LEN_BYTES as usize];
            let piece = spread.piece(len_bytes - TAIL_LEN_BYTES, TAIL_LEN_BYTES);
            let at = piece.on.unwrap_or(0);
            let place = state.place(at, len_bytes - TAIL_LEN_BYTES);
            // Backups are not needed.
            let _ = state.slots[at].in_sync()?.read_at(place, &mut tail);
            Some((shorter, tail))
        })
    }

    /// Gives the volume another length: `plan` has its present extents and the segments between
    /// head and tail, and returns its new extents and the bytes that lie before its end then.
    fn resize_spread(
        &self,
        wanted_bytes: u64,
        plan: impl FnOnce(&State<D>, &Spread, u64) -> Option<(Spread, Vec<u8>)>,
    ) -> Option<Result<()>> {
        if !self.is_spread() {
            return None;
        }
        if let Err(error) = self.check(0, 0).and_then(|()| self.open_for_writing()) {
            return Some(Err(error));
        }
        let _flushing = self.flushing.lock();
        let _copying = self.copying.write();
        let mut state = self.state.write();
        let spread = state.spread.as_ref()?;
        let fixed = Error::FixedLen { len_bytes: spread.len_bytes(), wanted_bytes };
        let body = body_segments(wanted_bytes, spread.segment_size_log2());
        let Some((next, tail)) = body.and_then(|body| plan(&state, spread, body)) else {
            return Some(Err(fixed));
        };
        let mut bytes = AlignedBuf::zeroed(tail.len());
        bytes.copy_from_slice(&tail);
        if let Err(error) = state.write_tails(spread, &bytes) {
            state.has_failed |= error.is_flush();
            return Some(Err(error));
        }
        let recorded = state.set_extents(next, self.clock.now());
        self.len_bytes.store(state.set_len_bytes, Ordering::Relaxed);
        Some(recorded)
    }
}

impl<D: Device> State<D> {
    /// Has the volume lie as these extents say, durably.
    pub(crate) fn set_extents(
        &mut self,
        extents: Spread,
        now: dendro_base::Timestamp,
    ) -> Result<()> {
        self.set_len_bytes = extents.len_bytes();
        self.spread = Some(extents);
        self.tell();
        self.write_rosters(now)
    }

    /// Tells those that only ask where something lies.
    pub(crate) fn tell(&self) {
        let mut known = self.known.write();
        if self.spread.is_none() && known.spread.is_none() {
            return;
        }
        known.spread = self.spread.as_ref().map(Spread::at_rest);
        known.are_fast = self.slots.iter().map(|slot| slot.is_fast).collect();
        known.version += 1;
    }
}
