//! A volume, opened: device, logical disk and file system joined.

use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dendro_base::{Clock, SystemClock, Uuid};
use dendro_control::cleaning::Segments;
use dendro_control::coalescing::{CoalesceRequest, Coalesced};
use dendro_control::damage::{DamageInfo, DamageRequest};
use dendro_control::versions::{VersionName, VersionsReply, VersionsRequest, ViewName};
use dendro_control::{
    CheckpointInfo, FeatureInfo, SegmentInfo, SpaceInfo, SuperblockInfo, VolumeInfo,
};
use dendro_device::{Device, Direct, FileDevice, OpenOptions as DeviceOptions, ReadAhead};
use dendro_disk::{CommitSeq, LogicalDisk, Versions, View};
use dendro_format::Superblock;
use dendro_format::layout::{MIN_SEGMENT_COUNT, MIN_SEGMENT_SIZE_LOG2};
use dendro_format::superblock::{
    COMPATIBLE_ALLOCATED, INCOMPATIBLE_CHUNK_SKIPS, INCOMPATIBLE_MAP_EPOCHS, INCOMPATIBLE_REUSE,
    INCOMPATIBLE_VERSIONS, MAJOR_VERSION, READ_ONLY_REMOVALS,
};
use dendro_fs::{
    FileSystem, FormatOptions as FsFormatOptions, FsError, Options as FsOptions, keep_damage,
    kept_damage,
};
use dendro_fuse::Past;
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions};
use dendro_versions::{Service, name};

use crate::cleaning::service;
use crate::failure::Failure;
use crate::memory::{default_cache_bytes, inode_cache_len};
use crate::mount_options::MountOptions;
use crate::{damage, signature, text, versions};

/// How long to wait for the daemon of a mount that has just been taken away: umount(2) returns before
/// it has written its last checkpoint.
pub(crate) const LAST_DAEMON_GRACE: Duration = Duration::from_secs(30);

/// How often, and after what pause, the claim on a device is tried again that a mount is giving up.
const CLAIM_TRIES: u32 = 500;
const CLAIM_PAUSE: Duration = Duration::from_millis(10);

/// How often, and after what pause, shutting down is tried again where the file system that holds an image is
/// full: what was accepted and is not durable would be lost.
const ROOM_TRIES: u32 = 30;
const ROOM_PAUSE: Duration = Duration::from_millis(500);

/// Binary logarithm of the bytes in a segment: 4 MiB.
const DEFAULT_SEGMENT_SIZE_LOG2: u8 = 22;
/// With fewer segments than that, those that are kept clean or are being filled take so much of the
/// volume that cleaning writes more: at 1 GiB, 80 % of it live, 4.5 times what users write at random
/// with 256 segments, 3.5 with 1024 and 3.4 with 2048; at 4 GiB 3.2 with 4096.
const GOOD_SEGMENT_COUNT: u64 = 4096;
/// In smaller segments headers cost more than that gains.
const GOOD_SEGMENT_SIZE_LOG2: u8 = 19;
/// The smallest volume: the fewest segments of the smallest size.
const LEAST_BYTES: u64 = (MIN_SEGMENT_COUNT as u64) << MIN_SEGMENT_SIZE_LOG2;
/// Fewer leave too little choice of which to write and which to keep.
const LEAST_GOOD_SEGMENT_COUNT: u64 = 64;

/// A volume that is open. Any number of its views can be.
pub(crate) struct Volume {
    source: PathBuf,
    device: Arc<FileDevice>,
    read_ahead: Arc<ReadAhead<Arc<FileDevice>>>,
    disk: Arc<LogDisk>,
    read_only: bool,
    /// Somebody else has claimed the device.
    is_lost: AtomicBool,
}

/// Why a volume is not open.
pub(crate) enum NotOpened {
    /// Somebody else has the device.
    InUse(Failure),
    /// Anything else.
    Failed(Failure),
}

impl From<NotOpened> for Failure {
    fn from(why: NotOpened) -> Self {
        match why {
            NotOpened::InUse(failure) | NotOpened::Failed(failure) => failure,
        }
    }
}

impl Volume {
    /// Opens the volume on `source` by its name `path`, which may be a loop device's, and waits for
    /// `lock_wait` at most if somebody has the device.
    pub(crate) fn open(
        source: &Path,
        path: &Path,
        options: &MountOptions,
        lock_wait: Duration,
    ) -> Result<Self, NotOpened> {
        let device = Arc::new(open_device(path, options, lock_wait)?);
        let read_only = device.is_read_only();
        let cache_size_bytes = options.cache_bytes.unwrap_or_else(default_cache_bytes);
        let MountOptions { discard, on_loss, .. } = *options;
        let mut disk_options =
            OpenOptions { read_only, cache_size_bytes, discard, on_loss, ..OpenOptions::default() };
        if let Some(bytes) = options.checkpoint_bytes {
            disk_options.checkpoint_log_bytes = bytes;
        }
        if let Some(kind) = options.policy {
            disk_options.policy = Arc::from(kind.policy());
        }
        if let Some(percent) = options.reserve_percent {
            disk_options.reserve_percent = percent;
        }
        if let Some(is_on) = options.coalesce {
            disk_options.cleaning.coalescing.is_on = is_on;
        }
        let read_ahead = read_ahead(&device, cache_size_bytes);
        let disk = open_disk_on(Arc::clone(&read_ahead) as _, source, &device, disk_options);
        let disk = Arc::new(disk.map_err(NotOpened::Failed)?);
        for note in disk.recovery_notes() {
            log::warn!("{}: {note}", source.display());
        }
        Ok(Self {
            source: source.to_path_buf(),
            device,
            read_ahead,
            disk,
            read_only,
            is_lost: AtomicBool::default(),
        })
    }

    /// Leaves the claim on the block device to the mount that is about to be made of it. The lock, which
    /// keeps other daemons and mkfs.dendro away, stays.
    pub(crate) fn leave_claim(&self) {
        self.device.release_claim();
    }

    /// Takes the claim back from a mount that is gone, or about to be, or was not made after all.
    pub(crate) fn take_claim(&self) -> Result<(), Failure> {
        let mut tries = CLAIM_TRIES;
        loop {
            match self.device.claim_again() {
                Err(dendro_device::Error::InUse { .. }) if tries > 0 => {
                    tries -= 1;
                    std::thread::sleep(CLAIM_PAUSE);
                }
                outcome => {
                    self.is_lost.store(outcome.is_err(), Ordering::Relaxed);
                    return outcome.map_err(Failure::new);
                }
            }
        }
    }

    /// Shuts the disk down, unless the device has become another's.
    pub(crate) fn shut_down(&self) -> Result<(), dendro_disk::Error> {
        match self.is_lost.load(Ordering::Relaxed) {
            true => Ok(()),
            false => shut_down(&self.disk),
        }
    }

    /// Why writing waits that waits for room below the device.
    pub(crate) fn host_is_full(&self) -> String {
        let source = self.source.display();
        match self.device.host_room() {
            Some(_) => format!("{source}: the file system that holds it is full"),
            None => format!("{source}: the device has no room for what is written to it"),
        }
    }

    /// The view that `version` means.
    pub(crate) fn resolve(&self, version: &VersionName) -> Result<View, String> {
        let table = self.disk.versions();
        name::resolve(&table, table.main_head(), version, SystemClock.now())
    }

    /// The file system of `view`.
    pub(crate) fn open_view(
        &self,
        view: View,
        options: &MountOptions,
    ) -> Result<Arc<FileSystem>, FsError> {
        let fs_options = FsOptions {
            view,
            read_only: options.read_only,
            atime: options.atime,
            inode_cache_len: inode_cache_len(self.disk.cache_size_bytes()),
            lookups_keep_files: true,
        };
        FileSystem::mount(Arc::clone(&self.disk) as _, fs_options, clock()).map(Arc::new)
    }

    /// The image file or block device.
    pub(crate) fn source(&self) -> &Path {
        &self.source
    }

    pub(crate) fn disk(&self) -> &LogDisk {
        &self.disk
    }

    /// The disk and the device, to be shut down and given up where this value is not at hand.
    pub(crate) fn parts(&self) -> (Arc<LogDisk>, Arc<FileDevice>) {
        (Arc::clone(&self.disk), Arc::clone(&self.device))
    }

    /// Whether it was opened for reading alone.
    pub(crate) const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// What hidden directories show.
    pub(crate) fn past(&self) -> Arc<dyn Past> {
        Arc::new(versions::DiskPast::new(Arc::clone(&self.disk) as _, clock()))
    }

    /// What carries out requests about versions, as long as no view is open.
    pub(crate) fn versions(&self) -> Service {
        Service::new(Arc::clone(&self.disk) as _, clock())
    }

    pub(crate) fn uuid(&self) -> Uuid {
        self.disk.superblock().uuid
    }

    /// Makes everything durable that was written before.
    pub(crate) fn commit(&self) -> Result<(), dendro_disk::Error> {
        self.disk.flush(CommitSeq::LATEST)
    }

    /// What the volume is like, but for where it is mounted.
    pub(crate) fn info(&self) -> VolumeInfo {
        describe(&self.source, &self.disk)
    }

    /// What reading ahead keeps in memory.
    pub(crate) fn read_ahead_bytes(&self) -> u64 {
        self.read_ahead.memory_bytes()
    }
}

/// Shuts a disk down; where there is no room below the device for what was accepted last, waits for some.
pub(crate) fn shut_down(disk: &LogDisk) -> Result<(), dendro_disk::Error> {
    for _ in 0..ROOM_TRIES {
        match disk.shut_down() {
            Err(dendro_disk::Error::NoSpace { .. }) => std::thread::sleep(ROOM_PAUSE),
            outcome => return outcome,
        }
    }
    disk.shut_down()
}

/// Opens the device as `options` ask; for a view of the past, which changes nothing itself, for
/// writing if possible, so that others can be mounted beside it.
fn open_device(
    source: &Path,
    options: &MountOptions,
    lock_wait: Duration,
) -> Result<FileDevice, NotOpened> {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    let open = |read_only| {
        DeviceOptions::new()
            .read_only(read_only)
            .direct(options.direct)
            .lock_wait(lock_wait)
            .open(source)
    };
    let is_past = options.read_only && !options.read_only_device;
    let opened = match open(options.read_only_device) {
        Err(dendro_device::Error::Open { source, .. })
            if is_past && matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem) =>
        {
            open(true)
        }
        other => other,
    };
    opened.map_err(|error| {
        let failure = explain_device(&error, options.read_only_device);
        match error {
            dendro_device::Error::InUse { .. } => NotOpened::InUse(failure),
            _ => NotOpened::Failed(failure),
        }
    })
}

/// What an unmounted volume is like.
pub(crate) fn info_offline(source: &Path) -> Result<VolumeInfo, Failure> {
    let disk = open_offline(source)?;
    let met_damage = met_damage(&disk)?;
    let met_damage = Some(DamageInfo { places: Vec::new(), ..met_damage });
    let met_damage = met_damage.filter(|met| met.place_count > 0);
    Ok(VolumeInfo { met_damage, ..describe(source, &disk) })
}

/// What damage is kept with the volume.
fn met_damage(disk: &LogDisk) -> Result<DamageInfo, Failure> {
    let table = disk.versions();
    Ok(damage::info(&kept_damage(disk, table.main_head())?, &table))
}

/// The same of an unmounted volume; forgets it if that is asked.
pub(crate) fn damage_offline(source: &Path, request: DamageRequest) -> Result<DamageInfo, Failure> {
    if !request.clear {
        return met_damage(&open_offline(source)?);
    }
    let device = DeviceOptions::new()
        .lock_wait(LAST_DAEMON_GRACE)
        .open(source)
        .map_err(|error| explain_device(&error, false))?;
    let disk = Arc::new(open_disk(source, &Arc::new(device), OpenOptions::default())?);
    let told = met_damage(&disk);
    let forgotten = keep_damage(&*disk, disk.versions().main_head(), &[]);
    let shut_down = disk.shut_down();
    let told = told?;
    forgotten?;
    shut_down.map_err(|error| Failure::new(format_args!("{}: {error}", source.display())))?;
    Ok(told)
}

/// The files of a version of an unmounted volume.
pub(crate) fn open_view_offline(source: &Path, version: ViewName) -> Result<FileSystem, Failure> {
    let view = View { branch: version.branch, epoch: version.epoch };
    let options = FsOptions { view, read_only: true, ..FsOptions::default() };
    FileSystem::mount(Arc::new(open_offline(source)?) as _, options, clock())
        .map_err(|error| Failure::new(format_args!("{}: {error}", source.display())))
}

/// Carries out a request about the versions of an unmounted volume.
pub(crate) fn versions_offline(
    source: &Path,
    request: &VersionsRequest,
) -> Result<VersionsReply, Failure> {
    let refused = |error| Failure::new(format_args!("{}: {error}", source.display()));
    if !request.is_change() {
        let service = Service::new(Arc::new(open_offline(source)?), clock());
        return service.answer(request).map_err(refused);
    }
    let device = DeviceOptions::new()
        .lock_wait(LAST_DAEMON_GRACE)
        .open(source)
        .map_err(|error| explain_device(&error, false))?;
    let disk = Arc::new(open_disk(source, &Arc::new(device), OpenOptions::default())?);
    let answer = Service::new(Arc::clone(&disk) as _, clock()).answer(request);
    let shut_down = disk.shut_down();
    let reply = answer.map_err(refused)?;
    shut_down.map_err(|error| Failure::new(format_args!("{}: {error}", source.display())))?;
    Ok(reply)
}

/// Coalesces all of an unmounted volume; tells of each piece of it to `show`.
pub(crate) fn coalesce_offline(
    source: &Path,
    dry_run: bool,
    mut show: impl FnMut(&Coalesced),
) -> Result<Coalesced, Failure> {
    let fail =
        |why: &dyn std::fmt::Display| Failure::new(format_args!("{}: {why}", source.display()));
    let disk = if dry_run {
        open_offline(source)?
    } else {
        let device = DeviceOptions::new()
            .lock_wait(LAST_DAEMON_GRACE)
            .open(source)
            .map_err(|error| explain_device(&error, false))?;
        open_disk(source, &Arc::new(device), OpenOptions::default())?
    };
    let view = disk.versions().main_head();
    let mut all = Coalesced::default();
    let mut request = CoalesceRequest { dry_run, ..CoalesceRequest::default() };
    let outcome = loop {
        match service::coalesce(&disk, view, &request) {
            Err(error) => break Err(fail(&error)),
            Ok(done) => all.add(&done),
        }
        show(&all);
        request.from = all.next;
        if all.next.is_none() || all.lacks_room {
            break Ok(all);
        }
        // What a daemon does beside it.
        if let Err(error) = disk.background_step() {
            break Err(fail(&error));
        }
    };
    if !dry_run {
        let shut_down = disk.shut_down();
        outcome.as_ref().map_err(Clone::clone)?;
        shut_down.map_err(|error| fail(&error))?;
    }
    outcome
}

/// The segments of an unmounted volume.
pub(crate) fn segments_offline(source: &Path) -> Result<Segments, Failure> {
    Ok(service::all_segments(&open_offline(source)?))
}

fn open_offline(source: &Path) -> Result<LogDisk, Failure> {
    let device = DeviceOptions::new()
        .read_only(true)
        .direct(Direct::Never)
        .lock_wait(LAST_DAEMON_GRACE)
        .open(source)
        .map_err(|error| explain_device(&error, true))?;
    open_disk(source, &Arc::new(device), OpenOptions { read_only: true, ..as_mounted() })
}

/// With a cache as a mount here has unless it is told: how many nodes may be dirty decides how much can
/// be written in all.
fn as_mounted() -> OpenOptions {
    OpenOptions { cache_size_bytes: default_cache_bytes(), ..OpenOptions::default() }
}

/// What a new volume is to be like.
pub(crate) struct NewVolume {
    pub(crate) label: String,
    pub(crate) uuid: Option<Uuid>,
    pub(crate) segment_size_bytes: Option<u64>,
    pub(crate) is_allocated: bool,
}

/// Makes a file system on `device`, which is open for writing.
pub(crate) fn format(
    source: &Path,
    device: FileDevice,
    new: NewVolume,
) -> Result<VolumeInfo, Failure> {
    let fail =
        |error: &dyn std::fmt::Display| Failure::new(format_args!("{}: {error}", source.display()));
    let options = FormatOptions {
        segment_size_bytes: new
            .segment_size_bytes
            .unwrap_or_else(|| default_segment_size_bytes(device.len_bytes())),
        label: new.label.clone(),
        uuid: match new.uuid {
            Some(uuid) => uuid,
            None => Uuid::from_random(random_bytes()?),
        },
        hash_key: random_bytes()?,
        is_allocated: new.is_allocated,
    };
    let device: Arc<dyn Device> = Arc::new(device);
    // The volume is there when all is in it, and not before.
    let disk = dendro_logdisk::create(&device, &options, as_mounted(), &clock())
        .map_err(|error| fail(&error))?;
    let fs_options = FsFormatOptions {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        mode: 0o755,
        label: new.label,
        hash_key: options.hash_key,
    };
    FileSystem::create_on(&disk, &fs_options, &SystemClock).map_err(|error| fail(&error))?;
    disk.shut_down().map_err(|error| fail(&error))?;
    Ok(describe(source, &disk))
}

/// Says why a device of so many bytes cannot be cut into segments of `segment_size_bytes`, or of the
/// size that is best for it.
pub(crate) fn check_segments(
    source: &Path,
    device_len_bytes: u64,
    segment_size_bytes: Option<u64>,
) -> Result<(), Failure> {
    let segment_size_bytes =
        segment_size_bytes.unwrap_or_else(|| default_segment_size_bytes(device_len_bytes));
    let fail = |why: String| Err(Failure::new(format_args!("{}: {why}", source.display())));
    let least = segment_size_bytes * u64::from(MIN_SEGMENT_COUNT);
    if device_len_bytes < least {
        return fail(format!(
            "{} are too little: a volume has {MIN_SEGMENT_COUNT} segments at least, of {} here, so \
             {}",
            text::size(device_len_bytes),
            text::size(segment_size_bytes),
            text::size(least)
        ));
    }
    if u32::try_from(device_len_bytes / segment_size_bytes).is_err() {
        return fail(format!(
            "{} have too many segments of {}; make them larger, with --segment-size",
            text::size(device_len_bytes),
            text::size(segment_size_bytes)
        ));
    }
    Ok(())
}

/// 4 MiB; on a small device, so little that there are at least [`GOOD_SEGMENT_COUNT`], if they are of a
/// good size then; on a very small one, so little that there are [`LEAST_GOOD_SEGMENT_COUNT`].
fn default_segment_size_bytes(device_len_bytes: u64) -> u64 {
    let largest = |mut sizes: RangeInclusive<u8>, count| {
        sizes.rfind(|log2| device_len_bytes >> log2 >= count)
    };
    let good = largest(GOOD_SEGMENT_SIZE_LOG2..=DEFAULT_SEGMENT_SIZE_LOG2, GOOD_SEGMENT_COUNT);
    let small =
        || largest(MIN_SEGMENT_SIZE_LOG2..=GOOD_SEGMENT_SIZE_LOG2, LEAST_GOOD_SEGMENT_COUNT);
    1 << good.or_else(small).unwrap_or(MIN_SEGMENT_SIZE_LOG2)
}

fn open_disk(
    source: &Path,
    device: &Arc<FileDevice>,
    options: OpenOptions,
) -> Result<LogDisk, Failure> {
    let reading_ahead = read_ahead(device, options.cache_size_bytes);
    open_disk_on(reading_ahead, source, device, options)
}

/// A device that reads ahead, and takes no more memory for it than suits a cache of that size.
fn read_ahead(device: &Arc<FileDevice>, cache_size_bytes: u64) -> Arc<ReadAhead<Arc<FileDevice>>> {
    Arc::new(ReadAhead::with_memory(Arc::clone(device), cache_size_bytes / 8))
}

fn open_disk_on(
    reading_ahead: Arc<dyn Device>,
    source: &Path,
    device: &Arc<FileDevice>,
    options: OpenOptions,
) -> Result<LogDisk, Failure> {
    let read_only = options.read_only;
    LogDisk::open(reading_ahead, options, clock()).map_err(|error| {
        let is_file = device.kind() == dendro_device::FileKind::Image;
        let found = signature::find(&**device, is_file).unwrap_or(None);
        match found.filter(|found| !found.contains("dendrofs")) {
            Some(found) => Failure::new(format_args!(
                "{}: is {found}, not a dendrofs volume (or its start was overwritten: {error})",
                source.display()
            )),
            None if matches!(error, dendro_disk::Error::Lost(_)) => Failure::new(format_args!(
                "{}: {error}. Nothing was changed; with -o ro that state can be mounted to be read, \
                 with -o recover=skip also what can be made of what lies behind the damage, and with \
                 -o recover=truncate that state is gone on from, and what is lost is given up",
                source.display()
            )),
            None if matches!(error, dendro_disk::Error::NoSpace { .. })
                && device.host_room().is_some() =>
            {
                Failure::new(format_args!(
                    "{}: the file system that holds it is full, and mounting for writing takes some room: \
                     free some, or mount it to be read, with -o ro",
                    source.display()
                ))
            }
            // What can be found but not written to can be read.
            None if !read_only && matches!(error, dendro_disk::Error::Failed(_)) => {
                Failure::new(format_args!(
                    "{}: {error}; with -o ro it can be mounted to be read",
                    source.display()
                ))
            }
            None => Failure::new(format_args!("{}: {error}", source.display())),
        }
    })
}

/// Why a device cannot be opened, in the words of those who wanted a volume.
pub(crate) fn explain_device(error: &dendro_device::Error, read_only: bool) -> Failure {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem};
    let is_short =
        |path: &str| std::fs::metadata(path).is_ok_and(|of| of.is_file() && of.len() < LEAST_BYTES);
    match error {
        dendro_device::Error::Open { path, source }
            if source.kind() == InvalidInput && is_short(path) =>
        {
            Failure::new(format_args!(
                "{path}: is no dendrofs volume, which has {} at least",
                text::size(LEAST_BYTES)
            ))
        }
        dendro_device::Error::Open { source, .. }
            if !read_only && matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem) =>
        {
            Failure::new(format_args!("{error}; it may be mounted read-only, with -o ro"))
        }
        _ => Failure::new(error),
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// Bytes that nobody can guess.
pub(crate) fn random_bytes() -> Result<[u8; 16], Failure> {
    const SOURCE: &str = "/dev/urandom";
    let mut bytes = [0; 16];
    std::fs::File::open(SOURCE)
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| Failure::new(format_args!("{SOURCE}: {error}")))?;
    Ok(bytes)
}

fn describe(source: &Path, disk: &LogDisk) -> VolumeInfo {
    let superblock = disk.superblock();
    let stats = disk.stats();
    let space = disk.space();
    VolumeInfo {
        source: source.display().to_string(),
        uuid: superblock.uuid.to_string(),
        label: superblock.label.clone(),
        format_version: u32::from(MAJOR_VERSION),
        created_unix_s: superblock.created.secs(),
        device_size_bytes: superblock.layout.len_bytes(),
        segments: SegmentInfo {
            size_bytes: superblock.layout.segment_size_bytes(),
            total: u64::from(superblock.layout.segment_count()),
            clean: Some(u64::from(stats.segments.clean)),
        },
        features: features(&superblock),
        space: SpaceInfo {
            capacity_bytes: space.capacity_bytes,
            live_bytes: space.live_bytes,
            available_bytes: space.available_bytes,
            reserved_bytes: space.reserved_bytes,
        },
        superblock: SuperblockInfo {
            sequence: superblock.seq,
            written_unix_s: superblock.written.secs(),
        },
        checkpoint: CheckpointInfo {
            sequence: stats.checkpoint_seq,
            written_unix_s: stats.checkpoint_time.secs(),
            log_bytes: stats.log_bytes,
            last_commit: stats.commit_seq,
            durable_commit: stats.durable_seq,
            clean: superblock.clean,
        },
        damage: disk.recovery_notes().to_vec(),
        met_damage: None,
        mount: None,
    }
}

fn features(superblock: &Superblock) -> FeatureInfo {
    // A flag set by newer software is shown by its place.
    let names = |flags: u64, known: &[(u64, &str)]| {
        let set = (0..u64::BITS).map(|bit| 1 << bit).filter(|flag| flags & flag != 0);
        let name = |flag: u64| {
            let known = known.iter().find(|(known, _)| *known == flag);
            known.map_or_else(
                || format!("bit {}", flag.trailing_zeros()),
                |(_, name)| (*name).into(),
            )
        };
        set.map(name).collect()
    };
    FeatureInfo {
        compatible: names(superblock.compatible, &[(COMPATIBLE_ALLOCATED, "allocated")]),
        read_only_compatible: names(superblock.read_only, &[(READ_ONLY_REMOVALS, "removals")]),
        incompatible: names(
            superblock.incompatible,
            &[
                (INCOMPATIBLE_VERSIONS, "versions"),
                (INCOMPATIBLE_MAP_EPOCHS, "map-epochs"),
                (INCOMPATIBLE_CHUNK_SKIPS, "chunk-skips"),
                (INCOMPATIBLE_REUSE, "reuse"),
            ],
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_smaller_on_small_devices() {
        assert_eq!(default_segment_size_bytes(1 << 40), 4 << 20);
        assert_eq!(default_segment_size_bytes(16 << 30), 4 << 20);
        assert_eq!(default_segment_size_bytes(15 << 30), 2 << 20);
        assert_eq!(default_segment_size_bytes(4 << 30), 1 << 20);
        assert_eq!(default_segment_size_bytes(1 << 30), 512 << 10);
        assert_eq!(default_segment_size_bytes(32 << 20), 512 << 10);
        assert_eq!(default_segment_size_bytes(31 << 20), 256 << 10);
        assert_eq!(default_segment_size_bytes(1 << 20), 128 << 10);
    }
}
