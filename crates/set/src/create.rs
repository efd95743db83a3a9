//! New sets.

use std::path::PathBuf;

use dendro_base::sync::{Arc, Mutex};
use dendro_base::{Clock, Uuid};
use dendro_device::Device;
use dendro_format::roster::{
    MAX_MEMBERS, MemberState, ROSTER_AREA_LEN_BYTES, Regions, region_size_log2,
};

use crate::error::{Error, Result};
use crate::member::{Slot, usable_len};
use crate::set::{DeviceSet, State};
use crate::spread::{Spread, part_needed_bytes, room_on};

/// A device that becomes a member: its UUID there, its path, and itself.
pub type NewMember<D> = (Uuid, PathBuf, D);

fn state<D: Device>(set: Uuid, set_len_bytes: u64, slots: Vec<Slot<D>>) -> State<D> {
    State {
        set,
        generation: 0,
        set_len_bytes,
        region_size_log2: region_size_log2(set_len_bytes),
        slots,
        stale: Regions::default(),
        spread: None,
        known: Arc::default(),
        unflushed: Mutex::default(),
        is_clean: false,
        is_listed: true,
        is_recorded: true,
        has_failed: false,
        notes: Vec::new(),
    }
}

fn slots<D: Device>(devices: Vec<NewMember<D>>) -> Vec<Slot<D>> {
    let slot = |(uuid, path, device)| Slot::new(uuid, path, device, MemberState::InSync);
    devices.into_iter().map(slot).collect()
}

fn too_short<D: Device>((_, path, device): &NewMember<D>, needed_bytes: u64) -> Error {
    let (path, len_bytes) = (path.display().to_string(), device.len_bytes());
    Error::TooShort { path, len_bytes, needed_bytes }
}

impl<D: Device> DeviceSet<D> {
    /// One device, which has no roster and gets none. `path` names it in messages.
    pub fn single(device: D, path: PathBuf, clock: Arc<dyn Clock>) -> Self {
        let set_len_bytes = device.len_bytes();
        let slots = slots(vec![(Uuid::default(), path, device)]);
        let state = State { is_listed: false, ..state(Uuid::default(), set_len_bytes, slots) };
        Self::of(state, clock, true)
    }

    /// A new set of mirrored members, for a volume that is to be made on it. What lies on the
    /// devices counts for nothing.
    ///
    /// # Errors
    /// [`Error::TooShort`], [`Error::Full`], or [`Error::Device`] when the rosters cannot be
    /// written to all of them.
    pub fn create(set: Uuid, devices: Vec<NewMember<D>>, clock: Arc<dyn Clock>) -> Result<Self> {
        let mut set_len_bytes = u64::MAX;
        for one in &devices {
            let usable = usable_len(one.2.len_bytes());
            let usable = usable.ok_or_else(|| too_short(one, ROSTER_AREA_LEN_BYTES + (2 << 20)))?;
            set_len_bytes = set_len_bytes.min(usable);
        }
        Self::of_new(state(set, set_len_bytes, slots(devices)), clock)
    }

    /// A new set over which a volume is to be spread that has segments of this size, a power of
    /// two. What lies on the devices counts for nothing.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_spread(
        set: Uuid,
        segment_size_log2: u8,
        devices: Vec<NewMember<D>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let mut rooms = Vec::new();
        for one in &devices {
            let room = room_on(one.2.len_bytes(), segment_size_log2);
            let (room, _) =
                room.ok_or_else(|| too_short(one, part_needed_bytes(segment_size_log2)))?;
            rooms.push(room);
        }
        let none = Spread::new(segment_size_log2, Vec::new());
        let all = rooms.iter().enumerate().map(|(at, room)| none.free_count(at, *room)).sum();
        let spread = none.lengthened(&rooms, all).ok_or(Error::Full)?;
        let mut state = state(set, spread.len_bytes(), slots(devices));
        state.region_size_log2 = segment_size_log2;
        state.spread = Some(spread);
        Self::of_new(state, clock)
    }

    fn of_new(mut state: State<D>, clock: Arc<dyn Clock>) -> Result<Self> {
        if state.slots.len() > MAX_MEMBERS {
            return Err(Error::Full);
        }
        let written = state.write_rosters(clock.now());
        let lost = state.slots.iter().find(|slot| slot.state == MemberState::Missing);
        let path = lost.or(state.slots.first()).map_or_else(String::new, Slot::name);
        written.map_err(|source| Error::Device { path: path.clone(), source })?;
        if lost.is_some() {
            let source = std::io::Error::other("cannot be written");
            let source = dendro_device::Error::Open { path: path.clone(), source };
            return Err(Error::Device { path, source });
        }
        Ok(Self::of(state, clock, true))
    }
}
