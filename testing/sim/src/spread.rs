//! The log-structured disk spread over two devices, with a third one to which now and then one of
//! them moves while the disk is written to.
//!
//! They are parts of one simulated device (`parts`), so a crash image loses any part of
//! what is unflushed on each. All members are needed, and all are there whenever the disk is
//! opened. One that was emptied and left is the one to which the next moves.

use dendro_base::sync::Arc;
use dendro_base::{Clock, Rng, Uuid};
use dendro_device::Device;
use dendro_disk::Versions;
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
}

/// The parts. The last has room for what any of the others holds.
fn parts<D: Device + Clone>(device: &D) -> Vec<Part<D>> {
    let share = |of: u64| device.len_bytes() * of / 100 / 4096 * 4096;
    Part::all(device, &[share(31), share(33), share(34)])
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

fn assemble<D: Device + Clone>(device: &D) -> Outcome<Assembled<D>> {
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for (at, part) in parts(device).into_iter().enumerate() {
        match Found::look(part, format!("part {at}").into()) {
            Ok(one) => found.push((at, one)),
            Err(part) => others.push((at, part)),
        }
    }
    let newest = found.iter().map(|(_, one)| one.roster()).max_by_key(|it| it.generation).cloned();
    let newest = newest.ok_or("no part has a roster")?;
    let mut lots = lots(device, &newest);
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

fn with_steps(device: &Arc<dyn Device>) -> Outcome<Arc<dyn Device>> {
    let Assembled { set, spare, mut lots } = assemble(device)?;
    if let Some((at, spare)) = spare.filter(|_| lots.chance(50)) {
        let members = set.members();
        let old = members[lots.below(members.len() as u64) as usize].uuid;
        // A UUID is never used again.
        let member = Uuid::from_random((u128::from(lots.next_u64()) << 64 | 1).to_le_bytes());
        match set.add(spare, format!("part {at}").into(), member, Some(old)) {
            Ok(_) | Err(Error::NoRoomElsewhere { .. }) => {}
            Err(error) => return Err(text(error)),
        }
    }
    Ok(Arc::new(Stepping::new(set)))
}

impl Engine for SpreadEngine {
    type Disk = LogDisk;

    fn format(&self, device: Arc<dyn Device>) -> Outcome<()> {
        let named = parts(&device).into_iter().take(2).enumerate();
        let named = named.map(|(at, part)| (uuid(at), format!("part {at}").into(), part)).collect();
        let log2 = self.segment_len_bytes().ilog2() as u8;
        let set = DeviceSet::create_spread(self.log.format.uuid, log2, named, clock());
        self.log.format(Arc::new(set.map_err(text)?.in_turn()))
    }

    fn open(&self, device: Arc<dyn Device>) -> Outcome<LogDisk> {
        self.log.open(with_steps(&device)?)
    }

    /// Members differ after a crash in what all of them hold.
    fn decides_when_open(&self) -> bool {
        true
    }

    fn open_read_only(&self, device: Arc<dyn Device>) -> Outcome<Option<LogDisk>> {
        self.log.open_read_only(Arc::new(Stepping::new(assemble(&device)?.set)))
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

    fn verify(&self, device: &dyn Device) -> Outcome<()> {
        self.log.verify(&assemble(&device)?.set)
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
        Self { log }
    }
}
