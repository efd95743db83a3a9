//! The log-structured disk spread over two devices, with a third one to which now and then one of
//! them moves while the disk is written to. Some disks begin on one device alone, and are spread
//! over another one, too, when they are opened; some become shorter and longer. Now and then a
//! device becomes a fast one, or is none any more. Of some disks the devices become longer, before
//! they are opened or afterwards, and the disk takes in what they get.
//!
//! They are parts of one simulated device (`parts`), so a crash image loses any part of
//! what is unflushed on each. All members are needed, and all are there whenever the disk is
//! opened. One that was emptied and left is the one to which the next moves.

use dendro_base::sync::Arc;
use dendro_base::{Clock, Rng, Uuid};
use dendro_check::find_superblocks;
use dendro_device::{BLOCK_SIZE, Device};
use dendro_disk::Versions;
use dendro_format::roster::ROSTER_AREA_LEN_BYTES;
use dendro_format::roster::extents::TAIL_LEN_BYTES;
use dendro_format::superblock::INCOMPATIBLE_SPREAD;
use dendro_logdisk::{LogDisk, OpenOptions};
use dendro_set::{DeviceSet, Error, Found};

use crate::disk::Engine;
use crate::log::{LogEngine, clock};
use crate::parts::{Part, Stepping, lots};
use crate::system::Outcome;

/// Makes [`LogDisk`]s on three parts of a device.
#[derive(Clone, Debug)]
pub struct SpreadEngine {
    /// How disks are made and opened.
    pub log: LogEngine,
    /// Whether they are made on the first device alone.
    pub begins_alone: bool,
    shares: Shares,
}

/// The parts of the device.
#[derive(Clone, Copy, Debug)]
struct Shares {
    /// What each part takes of the device, in percent. Unless the first is small, the last has room
    /// for what any of the others holds.
    percents: [u64; 3],
    /// Whether they become longer, from three quarters of that on.
    are_growing: bool,
}

fn parts<D: Device + Clone>(device: &D, shares: Shares) -> Vec<Part<D>> {
    let len_bytes = |share| device.len_bytes() * share / 100 / 4096 * 4096;
    let lens_bytes = shares.percents.map(len_bytes);
    match shares.are_growing {
        true => Part::growing(device, &lens_bytes, [3, 4]),
        false => Part::all(device, &lens_bytes),
    }
}

/// A length that a part may get.
fn longer<D: Device>(part: &Part<D>, lots: &mut Rng) -> u64 {
    let blocks = part.most_bytes().saturating_sub(part.len_bytes()) / BLOCK_SIZE as u64;
    part.len_bytes() + lots.below(blocks + 1) * BLOCK_SIZE as u64
}

/// Makes some parts longer while nobody has them open, of which superblocks on all of them state
/// where they end.
fn lengthen_by_hand<D: Device + Clone>(device: &D, shares: Shares) -> Outcome<()> {
    let mut lots = lots(device, None);
    let parts = parts(device, shares);
    let newest = parts.iter().filter_map(|part| find_superblocks(part).ok());
    let stated: Vec<Vec<u64>> =
        newest.map(|found| found.current().superblock.member_ends.clone()).collect();
    for part in parts {
        let is_stated = stated.iter().all(|ends| ends.contains(&part.len_bytes()));
        if is_stated && lots.chance(30) {
            part.state_len(longer(&part, &mut lots)).map_err(text)?;
        }
    }
    Ok(())
}

/// Has a member take in more of its device.
fn lengthen(
    disk: &LogDisk,
    set: &DeviceSet<Part<Arc<dyn Device>>>,
    (device, shares): (&Arc<dyn Device>, Shares),
    lots: &mut Rng,
) -> Outcome<()> {
    let members = set.members();
    let one = &members[lots.below(members.len() as u64) as usize];
    let is_its = |at: &usize| one.path.ends_with(format!("part {at}"));
    let at = (0..3).find(is_its).ok_or("there is no such part")?;
    let len_bytes = longer(&parts(device, shares)[at], lots);
    set.announce_end(&one.uuid, len_bytes);
    disk.state_member_ends().map_err(text)?;
    match set.lengthen_member(&one.uuid, len_bytes, false) {
        // It has left meanwhile.
        Ok(()) | Err(Error::NoSet) => {}
        Err(error) => return Err(text(error)),
    }
    disk.state_member_ends().map_err(text)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn uuid(at: usize) -> Uuid {
    Uuid([at as u8 + 1; 16])
}

/// The set on a device.
struct Assembled<D: Device> {
    set: DeviceSet<Part<D>>,
    /// The part that is no member of it, and its number.
    spare: Option<(usize, Part<D>)>,
    lots: Rng,
}

fn assemble<D: Device + Clone>(device: &D, shares: Shares) -> Outcome<Assembled<D>> {
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for (at, part) in parts(device, shares).into_iter().enumerate() {
        match Found::look(part, format!("part {at}").into()) {
            Ok(one) => found.push((at, one)),
            Err(part) => others.push((at, part)),
        }
    }
    let newest = found.iter().map(|(_, one)| one.roster()).max_by_key(|it| it.generation).cloned();
    let mut lots = lots(device, newest.as_ref());
    let Some(newest) = newest else {
        let (at, first) = others.remove(0);
        let set = DeviceSet::single(first, format!("part {at}").into(), clock());
        return Ok(Assembled { set: set.in_turn(), spare: None, lots });
    };
    // Any of the members may be the one that was named.
    let count = found.len() as u64;
    found.rotate_left(lots.below(count) as usize);
    let is_listed = |one: &Found<Part<D>>| newest.find(&one.roster().member).is_some();
    // One that has left, and whose rosters a crash has kept, is refused if it was named.
    if let Some(at) = found.iter().position(|(_, one)| is_listed(one)) {
        found.swap(0, at);
    }
    let known: Vec<usize> = found.iter().map(|(at, _)| *at).collect();
    let found = found.into_iter().map(|(_, one)| one).collect();
    let clock: Arc<dyn Clock> = clock();
    let set = DeviceSet::assemble(found, false, clock).map_err(text)?;
    let members = set.members();
    let is_member = |at: usize| members.iter().any(|it| it.path.ends_with(format!("part {at}")));
    let spare = others.into_iter().find(|(at, _)| !is_member(*at) && !known.contains(at));
    Ok(Assembled { set: set.in_turn(), spare, lots })
}

/// A UUID that is never used again.
fn new_uuid(lots: &mut Rng) -> Uuid {
    Uuid::from_random((u128::from(lots.next_u64()) << 64 | 1).to_le_bytes())
}

/// A set of which a member begins to move to the spare part, if there are several.
fn with_steps(
    device: &Arc<dyn Device>,
    shares: Shares,
) -> Outcome<(Stepping<Arc<dyn Device>>, Rng)> {
    let Assembled { set, spare, mut lots } = assemble(device, shares)?;
    let members = set.members();
    if let Some((at, spare)) = spare.filter(|_| members.len() > 1 && lots.chance(50)) {
        let old = members[lots.below(members.len() as u64) as usize].uuid;
        match set.add(spare, format!("part {at}").into(), new_uuid(&mut lots), Some(old)) {
            Ok(_) | Err(Error::NoRoomElsewhere { .. }) => {}
            Err(error) => return Err(text(error)),
        }
    }
    Ok((Stepping::new(set, lots.chance(50)), lots))
}

/// Goes on spreading a disk that lies on one part over another one.
fn spread_out(
    disk: &LogDisk,
    set: &DeviceSet<Part<Arc<dyn Device>>>,
    (device, shares): (&Arc<dyn Device>, Shares),
    lots: &mut Rng,
) -> Outcome<()> {
    let superblock = disk.superblock();
    let layout = superblock.layout;
    let segments = (layout.segment_size_bytes().ilog2() as u8, layout.segment_count());
    let first = set.members().remove(0);
    set.begin_spread(superblock.uuid, new_uuid(lots), first.path.clone(), segments)
        .map_err(text)?;
    disk.lie_on_set(true).map_err(text)?;
    let is_other = |at: &usize| !first.path.ends_with(format!("part {at}"));
    let at = [1, 2, 0].into_iter().find(is_other).ok_or("there is one part")?;
    let other = parts(device, shares).swap_remove(at);
    set.add(other, format!("part {at}").into(), new_uuid(lots), None).map_err(text)?;
    disk.grow(u64::MAX, set.most_len_bytes().unwrap_or(0)).map_err(text)
}

/// Makes the disk some segments shorter, or as long as before.
fn resize(disk: &LogDisk, rng: &mut Rng) -> Outcome<()> {
    let added_bytes = (1 + rng.below(4)) * disk.superblock().layout.segment_size_bytes();
    let len_bytes = disk.device_len_bytes();
    if rng.chance(50) {
        return match disk.grow(u64::MAX, len_bytes + added_bytes) {
            // There is no room on the parts.
            Ok(()) | Err(dendro_disk::Error::Io(_)) => Ok(()),
            Err(error) => Err(text(error)),
        };
    }
    let shorter_bytes = len_bytes.saturating_sub(added_bytes);
    if disk.begin_shrinking(shorter_bytes, shorter_bytes).is_err() {
        return Ok(());
    }
    loop {
        match disk.shrink_step() {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(()),
            // It does not fit.
            Err(dendro_disk::Error::NoSpace { .. } | dendro_disk::Error::Io(_)) => {
                disk.stop_shrinking();
                return Ok(());
            }
            Err(error) => return Err(text(error)),
        }
    }
}

impl Engine for SpreadEngine {
    type Disk = LogDisk;

    fn format(&self, device: Arc<dyn Device>) -> Outcome<()> {
        if self.begins_alone {
            // There is room for backups and rosters behind its segments.
            let end_bytes = TAIL_LEN_BYTES + ROSTER_AREA_LEN_BYTES;
            let room_bytes = parts(&device, self.shares)[0].len_bytes() - end_bytes;
            let len_bytes = room_bytes - room_bytes % self.segment_len_bytes() + TAIL_LEN_BYTES;
            let first = Part::all(&device, &[len_bytes]).remove(0);
            return self.alone().format(Arc::new(first));
        }
        let named = parts(&device, self.shares).into_iter().take(2).enumerate();
        let named = named.map(|(at, part)| (uuid(at), format!("part {at}").into(), part)).collect();
        let log2 = self.segment_len_bytes().ilog2() as u8;
        let set = DeviceSet::create_spread(self.log.format.uuid, log2, named, clock());
        self.log.format(Arc::new(set.map_err(text)?.in_turn()))
    }

    fn open(&self, device: Arc<dyn Device>) -> Outcome<LogDisk> {
        if self.shares.are_growing {
            lengthen_by_hand(&device, self.shares)?;
        }
        let (stepping, mut lots) = with_steps(&device, self.shares)?;
        let stepping = Arc::new(stepping);
        let set = stepping.set();
        let disk = match set.is_listed() {
            true => self.log.open(Arc::clone(&stepping) as Arc<dyn Device>)?,
            false => self.alone().open(Arc::clone(&stepping) as Arc<dyn Device>)?,
        };
        if set.members().len() == 1 && lots.chance(70) {
            spread_out(&disk, set, (&device, self.shares), &mut lots)?;
        }
        if self.shares.are_growing && set.is_spread() && lots.chance(60) {
            lengthen(&disk, set, (&device, self.shares), &mut lots)?;
        }
        Ok(disk)
    }

    /// Members differ after a crash in what all of them hold.
    fn decides_when_open(&self) -> bool {
        true
    }

    fn open_read_only(&self, device: Arc<dyn Device>) -> Outcome<Option<LogDisk>> {
        self.alone().open_read_only(Arc::new(assemble(&device, self.shares)?.set))
    }

    fn versions<'d>(&self, disk: &'d LogDisk) -> Option<&'d dyn Versions> {
        self.log.versions(disk)
    }

    fn describe(&self, disk: &LogDisk) -> String {
        self.log.describe(disk)
    }

    fn background(&self, disk: &LogDisk, rng: &mut Rng) -> Outcome<()> {
        // On one device alone, it would take the room for the rosters.
        if rng.chance(3) && disk.superblock().incompatible & INCOMPATIBLE_SPREAD != 0 {
            return resize(disk, rng);
        }
        self.log.background(disk, rng)
    }

    fn metadata_copies(&self, disk: &LogDisk) -> u64 {
        self.log.metadata_copies(disk)
    }

    fn segment_len_bytes(&self) -> u64 {
        self.log.segment_len_bytes()
    }

    fn clean(&self, disk: &LogDisk, rng: &mut Rng) -> Outcome<()> {
        self.log.clean(disk, rng)
    }

    fn verify(&self, device: &dyn Device) -> Outcome<()> {
        self.log.verify(&assemble(&device, self.shares)?.set)
    }
}

impl SpreadEngine {
    /// Any options that [`LogEngine::draw`] draws.
    #[must_use]
    pub fn draw(rng: &mut Rng, max_segment_size_log2: u8) -> Self {
        let mut log = LogEngine::draw(rng, max_segment_size_log2);
        (log.format.is_on_set, log.format.is_spread) = (true, true);
        log.open = OpenOptions { is_on_set: true, ..log.open };
        (log.grows_to, log.shrinks, log.format.max_len_bytes) = (0, false, 0);
        let begins_alone = rng.chance(30);
        // A disk that begins on the first part needs room there.
        let is_first_small = !begins_alone && rng.chance(50);
        let percents = if is_first_small { [12, 52, 34] } else { [31, 33, 34] };
        let shares = Shares { percents, are_growing: rng.chance(50) };
        Self { log, shares, begins_alone }
    }

    /// The length of the device for which disks are made as on one of `len_bytes` whose parts do
    /// not become longer.
    #[must_use]
    pub const fn device_len_bytes(&self, len_bytes: u64) -> u64 {
        // Each part has a block that states its length.
        if self.shares.are_growing { len_bytes / 3 * 4 + (128 << 10) } else { len_bytes }
    }

    /// Makes and opens disks on one device alone.
    fn alone(&self) -> LogEngine {
        let mut log = self.log.clone();
        (log.format.is_on_set, log.format.is_spread, log.open.is_on_set) = (false, false, false);
        log
    }
}
