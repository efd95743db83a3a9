//! The log-structured disk on two devices that hold the same.
//!
//! The two are halves of one simulated device, so that one recording has the order of all that
//! happens to both. A flush of one half leaves what is unflushed in the other as it is. So a crash
//! image loses any part of what is unflushed on each, and one half may fail at any write or flush.
//! Which of the halves are there when the disk is opened follows from the rosters: both, or one
//! that has everything. A half that was left out returns with the next opening.

use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicU64, Ordering};
use dendro_base::{Clock, Rng, Uuid};
use dendro_device::{Device, IoSlice, IoSliceMut, Result};
use dendro_disk::Versions;
use dendro_format::roster::MemberState;
use dendro_format::{Roster, checksum, checksum_append};
use dendro_logdisk::{LogDisk, OpenOptions};
use dendro_set::{DeviceSet, Found};

use crate::disk::Engine;
use crate::log::{LogEngine, clock};
use crate::system::Outcome;

/// Every so many changes a piece is copied to a member that is brought up.
const CHANGES_PER_STEP: u64 = 1;

/// Makes [`LogDisk`]s on two halves of a device.
#[derive(Clone, Debug)]
pub struct MirroredEngine {
    /// How disks are made and opened.
    pub log: LogEngine,
}

/// A half of a device.
struct Half<D> {
    device: D,
    offset: u64,
    len_bytes: u64,
    /// So many more changes and flushes are made of it before it fails for good.
    calls_left: AtomicU64,
}

impl<D: Device> Half<D> {
    /// Fails if it has failed, or does so now.
    fn change(&self) -> Result<()> {
        let count = |left: u64| Some(left.saturating_sub(1));
        match self.calls_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) {
            Ok(0) | Err(_) => Err(dendro_device::Error::Io {
                operation: "write",
                offset: 0,
                len_bytes: 0,
                source: std::io::Error::other("the half is lost"),
            }),
            Ok(_) => Ok(()),
        }
    }

    fn check(&self, offset: u64, len_bytes: usize) -> Result<()> {
        match offset + len_bytes as u64 <= self.len_bytes {
            true => Ok(()),
            false => Err(dendro_device::Error::OutOfRange {
                offset,
                len_bytes: len_bytes as u64,
                device_len_bytes: self.len_bytes,
            }),
        }
    }
}

impl<D: Device> Device for Half<D> {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(offset, buf.len())?;
        self.device.read_at(self.offset + offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len())?;
        self.change()?;
        self.device.write_at(self.offset + offset, bytes)
    }

    fn flush(&self) -> Result<()> {
        self.change()?;
        self.device.flush_range(self.offset, self.len_bytes)
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.check(offset, len_bytes as usize)?;
        self.device.discard(self.offset + offset, len_bytes)
    }
}

fn halves<D: Device + Clone>(device: &D) -> [Half<D>; 2] {
    let len_bytes = device.len_bytes() / 2 / 4096 * 4096;
    [0, 1].map(|at| Half {
        device: device.clone(),
        offset: at * len_bytes,
        len_bytes,
        calls_left: u64::MAX.into(),
    })
}

/// A set of which a member is brought up while it is written to.
struct Stepping<D: Device> {
    set: DeviceSet<Half<D>>,
    changes: AtomicU64,
}

impl<D: Device> Stepping<D> {
    fn step<T>(&self, outcome: Result<T>) -> Result<T> {
        if self.changes.fetch_add(1, Ordering::Relaxed).is_multiple_of(CHANGES_PER_STEP) {
            // Nothing is known to be durable after a flush that failed here.
            return self.set.bring_up_step().and(outcome);
        }
        outcome
    }
}

impl<D: Device> Device for Stepping<D> {
    fn len_bytes(&self) -> u64 {
        self.set.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.set.read_at(offset, buf)
    }

    fn read_vectored_at(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<()> {
        self.set.read_vectored_at(offset, parts)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.step(self.set.write_at(offset, bytes))
    }

    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.step(self.set.write_vectored_at(offset, parts))
    }

    fn flush(&self) -> Result<()> {
        self.step(self.set.flush())
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.set.discard(offset, len_bytes)
    }

    fn mend(&self, offset: u64, buf: &mut [u8], is_right: &dyn Fn(&[u8]) -> bool) -> bool {
        self.set.mend(offset, buf, is_right)
    }
}

impl<D: Device> Drop for Stepping<D> {
    /// Some are closed at their end, which has an effect if everything was flushed.
    fn drop(&mut self) {
        if self.changes.load(Ordering::Relaxed).is_multiple_of(2) {
            let _ = self.set.close();
        }
    }
}

/// Random numbers, which the same device gives again.
fn lots(device: &impl Device, newest: &Roster) -> Rng {
    let mut start = vec![0; 128 << 10];
    // What cannot be read now leaves the lot to the roster.
    let _ = device.read_at(0, &mut start);
    let mut rng = Rng::new(u64::from(checksum_append(checksum(&newest.encode()), &start)));
    rng.next_u64();
    rng
}

/// The set on a device, with the members that are there this time.
fn assemble<D: Device + Clone>(device: &D) -> Outcome<DeviceSet<Half<D>>> {
    let look = |(at, half)| Found::look(half, format!("half {at}").into()).ok();
    let mut found: Vec<_> = halves(device).into_iter().enumerate().filter_map(look).collect();
    let newest = found.iter().map(Found::roster).max_by_key(|roster| roster.generation).cloned();
    let newest = newest.ok_or("no half has a roster")?;
    let mut lots = lots(device, &newest);
    let lot = lots.below(4) as usize;
    // One that is left alone has to know itself that it has everything.
    let is_in_sync = |roster: &Roster, one: &Found<Half<D>>| {
        roster.find(&one.roster().member).is_some_and(|it| it.state == MemberState::InSync)
    };
    let is_left = |one: &Found<Half<D>>| {
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
        found[lost].device().calls_left.store(lots.below(80), Ordering::Relaxed);
    }
    let clock: Arc<dyn Clock> = clock();
    let set = DeviceSet::assemble(found, is_degraded, clock).map_err(|error| error.to_string())?;
    if lot == 2 {
        set.prefer(1);
    }
    Ok(set)
}

fn with_steps(device: &Arc<dyn Device>) -> Outcome<Arc<dyn Device>> {
    let set = assemble(device)?;
    Ok(Arc::new(Stepping { set, changes: AtomicU64::new(0) }))
}

impl Engine for MirroredEngine {
    type Disk = LogDisk;

    fn format(&self, device: Arc<dyn Device>) -> Outcome<()> {
        let named = halves(&device)
            .into_iter()
            .enumerate()
            .map(|(at, half)| (Uuid([at as u8 + 1; 16]), format!("half {at}").into(), half));
        let set = DeviceSet::create(self.log.format.uuid, named.collect(), clock());
        self.log.format(Arc::new(set.map_err(|error| error.to_string())?))
    }

    fn open(&self, device: Arc<dyn Device>) -> Outcome<LogDisk> {
        self.log.open(with_steps(&device)?)
    }

    /// Members differ after a crash, and another one may be read the next time.
    fn decides_when_open(&self) -> bool {
        true
    }

    fn open_read_only(&self, device: Arc<dyn Device>) -> Outcome<Option<LogDisk>> {
        self.log.open_read_only(with_steps(&device)?)
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
        self.log.verify(&assemble(&device)?)
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
        Self { log }
    }
}
