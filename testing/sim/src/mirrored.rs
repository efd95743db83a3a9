//! The log-structured disk on two devices that hold the same. Of some disks the devices can become
//! longer, and the disk does so when it is opened.
//!
//! The two are halves of one simulated device (`parts`), and one may fail at any write or
//! flush. Which of the halves are there when the disk is opened follows from the rosters: both, or
//! one that has everything. A half that was left out returns with the next opening.

use dendro_base::sync::Arc;
use dendro_base::{Clock, Rng, Uuid};
use dendro_device::Device;
use dendro_disk::Versions;
use dendro_format::Roster;
use dendro_format::layout::BACKUP_SLOT_COUNT;
use dendro_format::roster::{MemberState, ROSTER_AREA_LEN_BYTES};
use dendro_format::superblock::SUPERBLOCK_LEN_BYTES;
use dendro_logdisk::{LogDisk, OpenOptions};
use dendro_set::{DeviceSet, Found};

use crate::disk::Engine;
use crate::log::{LogEngine, clock};
use crate::parts::{Part, Stepping, lots};
use crate::system::Outcome;

const BACKUPS_LEN_BYTES: u64 = BACKUP_SLOT_COUNT * SUPERBLOCK_LEN_BYTES as u64;

/// Makes [`LogDisk`]s on two halves of a device.
#[derive(Clone, Debug)]
pub struct MirroredEngine {
    /// How disks are made and opened.
    pub log: LogEngine,
    /// Whether the devices can become longer, from three quarters of their halves on.
    pub is_growing: bool,
}

fn halves<D: Device + Clone>(device: &D, is_growing: bool) -> Vec<Part<D>> {
    let len_bytes = device.len_bytes() / 2 / 4096 * 4096;
    match is_growing {
        true => Part::growing(device, &[len_bytes; 2], [3, 4]),
        false => Part::all(device, &[len_bytes; 2]),
    }
}

/// The set on a device, with the members that are there this time.
fn assemble<D: Device + Clone>(device: &D, is_growing: bool) -> Outcome<(DeviceSet<Part<D>>, Rng)> {
    let look = |(at, half)| Found::look(half, format!("half {at}").into()).ok();
    let halves = halves(device, is_growing);
    let mut found: Vec<_> = halves.into_iter().enumerate().filter_map(look).collect();
    let newest = found.iter().map(Found::roster).max_by_key(|roster| roster.generation).cloned();
    let newest = newest.ok_or("no half has a roster")?;
    let mut lots = lots(device, Some(&newest));
    let lot = lots.below(4) as usize;
    // One that is left alone has to know itself that it has everything.
    let is_in_sync = |roster: &Roster, one: &Found<Part<D>>| {
        roster.find(&one.roster().member).is_some_and(|it| it.state == MemberState::InSync)
    };
    let is_left = |one: &Found<Part<D>>| {
        one.roster().generation + 1 >= newest.generation
            && is_in_sync(&newest, one)
            && is_in_sync(one.roster(), one)
    };
    let is_degraded = lot < 2 && found.len() == 2 && is_left(&found[lot]);
    if is_degraded {
        let left = found.swap_remove(lot);
        found = vec![left];
    }
    // Otherwise one is lost later, as long as the other has everything.
    let lost = lots.below(2) as usize;
    if !is_degraded && found.len() == 2 && is_left(&found[1 - lost]) && lots.chance(40) {
        found[lost].device().fail_after(lots.below(80));
    }
    let clock: Arc<dyn Clock> = clock();
    let set = DeviceSet::assemble(found, is_degraded, clock)
        .map_err(|error| error.to_string())?
        .in_turn();
    if lot == 2 {
        set.prefer(1);
    }
    Ok((set, lots))
}

/// Makes the disk longer, if its devices have room for it and have everything.
fn lengthen(
    disk: &LogDisk,
    set: &DeviceSet<Part<Arc<dyn Device>>>,
    device: &Arc<dyn Device>,
    lots: &mut Rng,
) -> Outcome<()> {
    let text = |error: dendro_disk::Error| error.to_string();
    let segment_bytes = disk.superblock().layout.segment_size_bytes();
    let members = set.members();
    if members.iter().any(|one| !one.is_present || one.state != MemberState::InSync) {
        return Ok(());
    }
    // A member's rosters must not lie where the new tail does.
    let least = set.len_bytes() + (ROSTER_AREA_LEN_BYTES + BACKUPS_LEN_BYTES);
    let more = least.next_multiple_of(segment_bytes) + lots.below(4) * segment_bytes;
    if halves(device, true).iter().any(|half| more + ROSTER_AREA_LEN_BYTES > half.most_bytes()) {
        return Ok(());
    }
    set.announce_len(more);
    disk.state_member_ends().map_err(text)?;
    match disk.grow(u64::MAX, more) {
        // A member may have failed meanwhile, or still lack something.
        Ok(()) | Err(dendro_disk::Error::Io(_)) => disk.state_member_ends().map_err(text),
        Err(error) => Err(text(error)),
    }
}

impl Engine for MirroredEngine {
    type Disk = LogDisk;

    fn format(&self, device: Arc<dyn Device>) -> Outcome<()> {
        let named = halves(&device, self.is_growing)
            .into_iter()
            .enumerate()
            .map(|(at, half)| (Uuid([at as u8 + 1; 16]), format!("half {at}").into(), half));
        let set = DeviceSet::create(self.log.format.uuid, named.collect(), clock());
        self.log.format(Arc::new(set.map_err(|error| error.to_string())?.in_turn()))
    }

    fn open(&self, device: Arc<dyn Device>) -> Outcome<LogDisk> {
        let (set, mut lots) = assemble(&device, self.is_growing)?;
        let stepping = Arc::new(Stepping::new(set, false));
        let disk = self.log.open(Arc::clone(&stepping) as Arc<dyn Device>)?;
        if self.is_growing && lots.chance(60) {
            lengthen(&disk, stepping.set(), &device, &mut lots)?;
        }
        Ok(disk)
    }

    /// Members differ after a crash, and another one may be read the next time.
    fn decides_when_open(&self) -> bool {
        true
    }

    fn open_read_only(&self, device: Arc<dyn Device>) -> Outcome<Option<LogDisk>> {
        let (set, _) = assemble(&device, self.is_growing)?;
        self.log.open_read_only(Arc::new(Stepping::new(set, false)))
    }

    fn versions<'d>(&self, disk: &'d LogDisk) -> Option<&'d dyn Versions> {
        self.log.versions(disk)
    }

    fn describe(&self, disk: &LogDisk) -> String {
        self.log.describe(disk)
    }

    fn background(&self, disk: &LogDisk, rng: &mut Rng) -> Outcome<()> {
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

    /// Each member in sync holds the whole volume.
    fn verify(&self, device: &dyn Device) -> Outcome<()> {
        self.log.verify(&assemble(&device, self.is_growing)?.0)
    }
}

impl MirroredEngine {
    /// Any options that [`LogEngine::draw`] draws.
    #[must_use]
    pub fn draw(rng: &mut Rng, max_segment_size_log2: u8) -> Self {
        let mut log = LogEngine::draw(rng, max_segment_size_log2);
        log.format.is_on_set = true;
        log.open = OpenOptions { is_on_set: true, ..log.open };
        (log.grows_to, log.shrinks, log.format.max_len_bytes) = (0, false, 0);
        Self { log, is_growing: rng.chance(50) }
    }

    /// The length of the device for which disks are made as on one of `len_bytes` whose halves do
    /// not become longer.
    #[must_use]
    pub const fn device_len_bytes(&self, len_bytes: u64) -> u64 {
        // Each half has a block that states its length.
        if self.is_growing { len_bytes / 3 * 4 + (64 << 10) } else { len_bytes }
    }
}
