//! Making a set of devices that were found.

use std::path::PathBuf;

use dendro_base::sync::atomic::Ordering;
use dendro_base::sync::{Arc, Mutex};
use dendro_base::{Clock, Timestamp};
use dendro_device::Device;
use dendro_format::Roster;
use dendro_format::roster::{Member, MemberState, Regions};

use crate::error::{Error, Result};
use crate::member::{self, Slot};
use crate::membership::was_apart;
use crate::set::{DeviceSet, State};
use crate::spread::{Spread, room_on};

/// A device that was found to be a member of a set.
pub struct Found<D> {
    pub(crate) device: D,
    pub(crate) path: PathBuf,
    pub(crate) roster: Roster,
    pub(crate) roster_slot: usize,
    pub(crate) end_bytes: u64,
}

impl<D: Device> Found<D> {
    /// Looks for a roster on a device. It counts if the volume that it is of lies there. Gives the
    /// device back if there is none.
    ///
    /// # Errors
    /// The device, if it is no member of a set.
    pub fn look(device: D, path: PathBuf) -> std::result::Result<Self, D> {
        match member::read_roster(&device) {
            Some((roster, roster_slot, end_bytes))
                if member::volume_on(&device) == Some(roster.set) =>
            {
                Ok(Self { device, path, roster, roster_slot, end_bytes })
            }
            _ => Err(device),
        }
    }

    /// The newest roster on it.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Where it was found.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    fn name(&self) -> String {
        member::name(&self.path, &self.roster.member)
    }
}

fn names<'a>(members: impl Iterator<Item = &'a Member>) -> String {
    let names: Vec<String> = members.map(|it| member::name(&it.path, &it.uuid)).collect();
    names.join(" and ")
}

/// The roster that counts. One that is on no member in sync yet may be written once more, with
/// other contents.
pub(crate) fn newest<D>(found: &[Found<D>]) -> Option<&Roster> {
    let is_in_sync =
        |roster: &Roster| roster.own().is_some_and(|own| own.state == MemberState::InSync);
    let rosters = found.iter().map(|one| &one.roster);
    rosters.max_by_key(|roster| (roster.generation, is_in_sync(roster)))
}

impl<D: Device> DeviceSet<D> {
    /// Makes a set of the devices that were found, the first of which was named. If it
    /// `is_degraded`, members in sync may be absent.
    ///
    /// # Errors
    /// [`Error::Foreign`], [`Error::Split`], [`Error::Removed`], [`Error::OnlyStale`], or
    /// [`Error::Incomplete`] when members are absent.
    pub fn assemble(
        found: Vec<Found<D>>,
        is_degraded: bool,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let Some(roster) = newest(&found).cloned() else { return Err(Error::NoSet) };
        check(&roster, &found)?;
        let mut found: Vec<Option<Found<D>>> = found.into_iter().map(Some).collect();
        let mut stale = roster.stale.clone();
        let mut slots = Vec::new();
        for listed in &roster.members {
            let at = found
                .iter()
                .position(|one| one.as_ref().is_some_and(|one| one.roster.member == listed.uuid));
            let one = at.and_then(|at| found[at].take());
            slots.push(slot(listed, one, &roster, &mut stale, clock.now()));
        }
        let is = |slot: &Slot<D>, wanted| (slot.state == MemberState::InSync) == wanted;
        let absent = slots.iter().filter(|slot| slot.device.is_none() && is(slot, true));
        let missing: Vec<String> = absent.map(Slot::name).collect();
        let missing = missing.join(" and ");
        if let Some(extents) = &roster.extents {
            let spread = Spread::new(roster.region_size_log2, extents.clone());
            return Self::assemble_spread(&roster, spread, slots, is_degraded, clock);
        }
        if !slots.iter().any(|slot| slot.device.is_some() && is(slot, true)) {
            let found: Vec<String> =
                slots.iter().filter(|slot| slot.device.is_some()).map(Slot::name).collect();
            return Err(Error::OnlyStale { found: found.join(" and "), wanted: missing });
        }
        if !missing.is_empty() && !is_degraded {
            return Err(Error::Incomplete { missing });
        }
        let state = State {
            set: roster.set,
            generation: roster.generation,
            set_len_bytes: roster.set_len_bytes,
            region_size_log2: roster.region_size_log2,
            slots,
            stale,
            spread: None,
            known: Arc::default(),
            unflushed: Mutex::default(),
            is_clean: roster.is_clean,
            is_listed: true,
            is_recorded: true,
            has_failed: false,
            notes: Vec::new(),
        };
        Ok(Self::of(state, clock, false))
    }

    /// Makes a set over which a volume is spread. If it `is_degraded`, members may be absent, and
    /// nothing is written.
    fn assemble_spread(
        roster: &Roster,
        spread: Spread,
        mut slots: Vec<Slot<D>>,
        is_degraded: bool,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        for (at, slot) in slots.iter_mut().enumerate() {
            // One that became shorter lacks what it should hold.
            let log2 = spread.segment_size_log2();
            let room = room_on(slot.end_bytes, log2);
            let segments = room.map_or(0, |(segments, _)| u64::from(segments));
            slot.device.take_if(|_| segments < spread.taken_count(at).0);
            if slot.state != MemberState::InSync {
                if slot.device.is_some() && !is_degraded {
                    return Err(Error::OldPart { path: slot.name() });
                }
                (slot.device, slot.state) = (None, MemberState::InSync);
            }
        }
        let absent = slots.iter().filter(|slot| slot.device.is_none());
        let missing: Vec<String> = absent.map(Slot::name).collect();
        let missing = missing.join(" and ");
        let mut present = slots.iter().filter_map(|slot| slot.device.as_ref());
        let is_written = present.any(|device| !device.is_read_only());
        match (missing.is_empty(), is_degraded, is_written) {
            (false, false, _) => return Err(Error::LacksPart { missing }),
            (false, true, true) => return Err(Error::NotWritable { missing }),
            _ => {}
        }
        let state = State {
            set: roster.set,
            generation: roster.generation,
            set_len_bytes: roster.set_len_bytes,
            region_size_log2: roster.region_size_log2,
            slots,
            stale: Regions::default(),
            spread: Some(spread),
            known: Arc::default(),
            unflushed: Mutex::default(),
            is_clean: roster.is_clean,
            is_listed: true,
            is_recorded: true,
            has_failed: false,
            notes: Vec::new(),
        };
        Ok(Self::of(state, clock, false))
    }
}

/// Refuses devices that do not belong together.
fn check<D: Device>(roster: &Roster, found: &[Found<D>]) -> Result<()> {
    for one in found {
        if one.roster.set != roster.set {
            let its = one.roster.set;
            return Err(Error::Foreign {
                path: one.path.display().to_string(),
                its,
                wanted: roster.set,
            });
        }
        let listed = roster.find(&one.roster.member);
        let listed = listed.filter(|it| it.state == MemberState::Missing);
        if listed.is_some_and(|it| was_apart(&one.roster, it.written_generation)) {
            let newest = found.iter().find(|it| it.roster.member == roster.member);
            let newest = newest.map_or_else(String::new, Found::name);
            return Err(Error::Split { one: newest, other: one.name(), set: roster.set });
        }
    }
    // The first one was named by the user; others that are members no more are left out.
    match found.first().filter(|one| roster.find(&one.roster.member).is_none()) {
        Some(one) => Err(Error::Removed {
            path: one.name(),
            set: roster.set,
            others: names(roster.members.iter()),
        }),
        None => Ok(()),
    }
}

/// The member of this entry.
fn slot<D: Device>(
    listed: &Member,
    found: Option<Found<D>>,
    newest: &Roster,
    stale: &mut Regions,
    now: Timestamp,
) -> Slot<D> {
    let mut slot = Slot {
        uuid: listed.uuid,
        device: None,
        state: listed.state,
        leaves: listed.leaves,
        is_fast: listed.is_fast,
        written_generation: listed.written_generation,
        since: listed.since,
        path: listed.path.clone(),
        end_bytes: 0,
        next_end_bytes: None,
        roster_slot: 0,
        cursor_bytes: 0.into(),
        failed_reads: 0.into(),
        is_dirty: false.into(),
    };
    if let MemberState::BroughtUp { copied_to_bytes } = listed.state {
        slot.cursor_bytes.store(copied_to_bytes, Ordering::Relaxed);
    }
    let Some(found) = found else { return slot };
    let its = found.roster.generation;
    let (mut end_bytes, mut roster_slot) = (found.end_bytes, found.roster_slot);
    // How much a member of a spread volume holds is looked at later.
    if newest.extents.is_none() {
        match member::mirrored_end(&found.device, end_bytes, newest.set_len_bytes) {
            // It was made shorter.
            None => return slot,
            Some(end) if end == end_bytes => {}
            // It has no roster there yet.
            Some(end) => (end_bytes, roster_slot) = (end, 1),
        }
    }
    let is_older_copy = match listed.state {
        // Invariant 4.
        MemberState::InSync | MemberState::BroughtUp { .. } => its + 1 < newest.generation,
        MemberState::Missing => its < listed.written_generation,
    };
    if is_older_copy {
        *stale = Regions::all();
        (slot.state, slot.since) = (MemberState::Missing, now);
    }
    slot.path = found.path;
    if slot.state != MemberState::Missing {
        slot.written_generation = its;
    }
    (slot.roster_slot, slot.end_bytes) = (roster_slot, end_bytes);
    slot.device = Some(found.device.into());
    slot
}
