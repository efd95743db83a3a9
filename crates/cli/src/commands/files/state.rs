//! Which state of a volume is read.
//!
//! A sound volume shows what a mount would. If the newest state cannot be read, older superblocks
//! are tried, the newest first: the newer ones are hidden in memory. The log behind an older
//! checkpoint is rolled forward as far as it leads.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dendro_check::{FoundSuperblock, find_superblocks};
use dendro_control::versions::VersionName;
use dendro_daemon::volume::clock;
use dendro_daemon::volume::devices::{Devices, open_devices_to_read};
use dendro_device::{
    BLOCK_SIZE, Device, Direct, OpenOptions as DeviceOptions, OverlayDevice, ReadAhead, Retrying,
};
use dendro_disk::{Versions, View};
use dendro_format::superblock::SUPERBLOCK_LEN_BYTES;
use dendro_fs::{FileSystem, FsError, Ino, Options as FsOptions};
use dendro_logdisk::{LogDisk, OnLoss, OpenOptions};
use dendro_versions::name;

use crate::failure::Failure;
use crate::offline::as_mounted;
use crate::output;
use crate::target::{self, Keeper, Place};

/// How many older states are tried.
const MAX_OLDER_STATES: usize = 16;

/// A version of a volume that is open for reading.
pub(crate) struct Shown {
    pub(crate) fs: FileSystem,
    disk: Arc<LogDisk>,
    source: PathBuf,
}

impl Shown {
    /// A failure about the volume.
    pub(crate) fn fail(&self, why: impl std::fmt::Display) -> Failure {
        Failure::new(format_args!("{}: {why}", self.source.display()))
    }

    /// The logical disk, with all versions.
    pub(crate) const fn disk(&self) -> &Arc<LogDisk> {
        &self.disk
    }

    /// The image file or block device.
    pub(crate) fn source(&self) -> &Path {
        &self.source
    }
}

/// Why a state is not shown.
enum NotShown {
    /// It cannot be read. An older one may be.
    Damaged(String),
    /// The request cannot be met.
    Refused(String),
}

/// Opens the version that `text` names. Reports on standard error what is wrong with the volume.
pub(crate) fn open(text: &str, quiet: bool) -> Result<Shown, Failure> {
    let Place { keeper, version, path } = target::find_version(text)?;
    let source = match keeper {
        Keeper::Offline(source) => source,
        Keeper::Daemon(served) => {
            return Err(Failure::new(format_args!(
                "{}: is mounted on {mount}; its files are there, and those of its snapshots below \
                 {mount}/.dendro/snapshots",
                path.display(),
                mount = served.place()
            )));
        }
    };
    open_source(source, &version, quiet)
}

/// Opens a version of the volume on `source`, which is not mounted.
pub(crate) fn open_source(
    source: PathBuf,
    version: &VersionName,
    quiet: bool,
) -> Result<Shown, Failure> {
    let options = DeviceOptions::new().direct(Direct::Never);
    let devices = open_devices_to_read(&source, &options)?;
    open_on(&Arc::new(devices), source, version, quiet)
}

/// Opens a version of the volume on a device that was made sound.
pub(crate) fn open_device(
    device: &Arc<dyn Device>,
    source: PathBuf,
    version: &VersionName,
    quiet: bool,
) -> Result<Shown, Failure> {
    match show(device, version, &|what| say_of(&source, quiet, what)) {
        Ok((fs, disk)) => Ok(Shown { fs, disk, source }),
        Err(NotShown::Refused(why) | NotShown::Damaged(why)) => {
            Err(Failure::new(format_args!("{}: {why}", source.display())))
        }
    }
}

fn say_of(source: &Path, quiet: bool, what: &dyn std::fmt::Display) {
    if !quiet {
        output::message(format_args!("dendro: {}: {what}", source.display()));
    }
}

fn open_on(
    device: &Arc<Devices>,
    source: PathBuf,
    version: &VersionName,
    quiet: bool,
) -> Result<Shown, Failure> {
    let say = |what: &dyn std::fmt::Display| say_of(&source, quiet, what);
    let fail = |why: &str| Failure::new(format_args!("{}: {why}", source.display()));
    let found = find_superblocks(&**device).map(|found| found.all().to_vec()).unwrap_or_default();
    let whole_len_bytes = found.last().map_or(0, |last| last.superblock.layout.len_bytes());
    let whole: Arc<dyn Device> = if whole_len_bytes > device.len_bytes() {
        say(&format_args!(
            "only {} of {whole_len_bytes} bytes are there; the rest is taken for zeros",
            device.len_bytes()
        ));
        Arc::new(Lengthened { below: Arc::clone(device), len_bytes: whole_len_bytes })
    } else {
        Arc::clone(device) as _
    };
    let newest = match show(&whole, version, &say) {
        Ok((fs, disk)) => return Ok(Shown { fs, disk, source: source.clone() }),
        Err(NotShown::Refused(why)) => return Err(fail(&why)),
        Err(NotShown::Damaged(why)) => why,
    };
    for hidden in older_states(&found) {
        let Ok(overlay) = without(&whole, hidden) else { continue };
        if let Ok((fs, disk)) = show(&overlay, version, &|_| ()) {
            say(&format_args!("{newest}"));
            say(&"this is the newest state that can be read, from an older superblock");
            return Ok(Shown { fs, disk, source: source.clone() });
        }
    }
    Err(fail(&newest))
}

/// The superblocks to hide for each older state, the newest state first.
fn older_states(found: &[FoundSuperblock]) -> impl Iterator<Item = &[FoundSuperblock]> {
    let mut tried: BTreeSet<u64> =
        found.last().map(|last| last.superblock.checkpoint_addr.0).into_iter().collect();
    let is_new = move |&count: &usize| tried.insert(found[count - 1].superblock.checkpoint_addr.0);
    (1..found.len()).rev().filter(is_new).map(|count| &found[count..]).take(MAX_OLDER_STATES)
}

/// The device without some superblocks, and without backups, which may be as new.
fn without(
    device: &Arc<dyn Device>,
    hidden: &[FoundSuperblock],
) -> dendro_device::Result<Arc<dyn Device>> {
    const _: () = assert!(SUPERBLOCK_LEN_BYTES == BLOCK_SIZE);
    let overlay = OverlayDevice::new(Arc::clone(device));
    let newest = hidden.last().map(|newest| &newest.superblock);
    let backups = newest.and_then(|newest| newest.backup_area(device.len_bytes()));
    let slots = backups.into_iter().flat_map(|area| area.step_by(BLOCK_SIZE));
    let logs = hidden.iter().map(|found| found.offset);
    logs.chain(slots).try_for_each(|offset| overlay.write_at(offset, &[0; BLOCK_SIZE]))?;
    Ok(Arc::new(overlay))
}

/// Opens a version of the newest state on `device`.
fn show(
    device: &Arc<dyn Device>,
    version: &VersionName,
    say: &dyn Fn(&dyn std::fmt::Display),
) -> Result<(FileSystem, Arc<LogDisk>), NotShown> {
    let damaged = |error: &dyn std::fmt::Display| NotShown::Damaged(error.to_string());
    let reading_ahead: Arc<dyn Device> =
        Arc::new(ReadAhead::new(Retrying::new(Arc::clone(device))));
    // What can be recovered behind damage is shown, too.
    let options = OpenOptions { read_only: true, on_loss: OnLoss::Skip, ..as_mounted() };
    let disk = LogDisk::open(reading_ahead, options, clock()).map_err(|error| damaged(&error))?;
    let table = disk.versions();
    let view: View = name::resolve(&table, table.main_head(), version, clock().now())
        .map_err(NotShown::Refused)?;
    let notes = disk.recovery_notes().to_vec();
    let options = FsOptions { view, read_only: true, ..FsOptions::default() };
    let refused = |error: FsError| match error {
        FsError::NotSupported(_) => NotShown::Refused(error.to_string()),
        _ => damaged(&error),
    };
    let disk = Arc::new(disk);
    let fs = FileSystem::mount(Arc::clone(&disk) as _, options, clock()).map_err(refused)?;
    fs.getattr(Ino::ROOT).map_err(refused)?;
    notes.iter().for_each(|note| say(note));
    Ok((fs, disk))
}

/// A device that ends before its volume does. What is missing reads as zeros, which nothing takes
/// for sound.
struct Lengthened {
    below: Arc<Devices>,
    len_bytes: u64,
}

impl Device for Lengthened {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> dendro_device::Result<()> {
        let there = self.below.len_bytes().saturating_sub(offset).min(buf.len() as u64);
        let (there, missing) = buf.split_at_mut(there as usize);
        missing.fill(0);
        if there.is_empty() { Ok(()) } else { self.below.read_at(offset, there) }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> dendro_device::Result<()> {
        self.below.write_at(offset, bytes)
    }

    fn flush(&self) -> dendro_device::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> dendro_device::Result<()> {
        Ok(())
    }
}
