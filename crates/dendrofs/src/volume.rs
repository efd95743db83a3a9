//! An open volume, and its versions.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dendro_base::{SystemClock, Uuid, random_bytes};
use dendro_device::{Device, FileDevice, MemoryDevice};
use dendro_disk::{
    ClientKind, CommitSeq, Lid, ListCompression, LogicalDisk, Quota, VersionTable, Versions, View,
    abandon,
};
use dendro_format::layout::{
    MAX_SEGMENT_SIZE_LOG2, MIN_SEGMENT_COUNT, MIN_SEGMENT_SIZE_LOG2, good_segment_size_bytes,
};
use dendro_fs::{FileSystem, FsError};
use dendro_logdisk::LogDisk;

use crate::error::{Error, Result};
use crate::files::Files;
use crate::open_disk::OpenDisk;
use crate::opening::{self, clock, disk_options, reading_ahead};
use crate::options::{Contents, CreateOptions, OpenOptions};

/// An open volume. Copies of this value are the same volume; any number of threads may use it.
///
/// When the last copy is dropped, the volume is closed, and an error of that is logged only.
/// [`Self::close`] returns it.
#[derive(Clone)]
pub struct Volume {
    inner: Arc<OpenDisk>,
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume").field("uuid", &self.uuid()).finish_non_exhaustive()
    }
}

/// A client of a volume: what has versions, and numbers of lists, of its own there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Client {
    /// Its name, that of its branch; `None` if it has snapshots only.
    pub name: Option<String>,
    /// What it keeps.
    pub kind: ClientKind,
    /// The head of its branch.
    pub head: Option<View>,
    /// All its versions: the heads of its branches, then the snapshots.
    pub versions: Vec<View>,
}

/// Making, opening and closing.
impl Volume {
    /// The list that each client of lists, and each block device, has from the beginning.
    pub const ROOT: Lid = Lid::FIRST;

    /// Makes a volume in a new image file of `len_bytes`, and opens it.
    ///
    /// # Errors
    /// [`Error::Device`] if there is a file of that path, or if it cannot be made;
    /// [`Error::BadSize`], [`Error::BadSegmentSize`], [`Error::BadOption`].
    pub fn create(path: impl AsRef<Path>, len_bytes: u64, options: &CreateOptions) -> Result<Self> {
        check_options(len_bytes, options)?;
        let path = path.as_ref();
        let device = FileDevice::create(path, len_bytes)?;
        Self::create_on(reading_ahead(device, &options.open), options).inspect_err(|_| {
            // The file is new and useless; the error that matters is the other.
            let _ = std::fs::remove_file(path);
        })
    }

    /// Makes a volume in memory, for tests, and opens it.
    ///
    /// # Errors
    /// [`Error::BadSize`], [`Error::BadSegmentSize`], [`Error::BadOption`].
    pub fn in_memory(len_bytes: u64, options: &CreateOptions) -> Result<Self> {
        check_options(len_bytes, options)?;
        Self::create_on(Arc::new(MemoryDevice::new(len_bytes)), options)
    }

    fn create_on(device: Arc<dyn Device>, options: &CreateOptions) -> Result<Self> {
        let hash_key = random_bytes()?;
        let format = dendro_logdisk::FormatOptions {
            segment_size_bytes: segment_size_bytes(device.len_bytes(), options),
            label: options.label.clone(),
            uuid: Uuid::from_random(random_bytes()?),
            hash_key,
            has_backups: true,
            metadata_copies: options.metadata_copies,
            compression: options.compression.of_pages(),
            ..dendro_logdisk::FormatOptions::default()
        };
        // The volume becomes valid when all of it is written.
        let disk = dendro_logdisk::create(&device, &format, disk_options(&options.open), &clock())?;
        match options.contents {
            Contents::Files => {
                let format = files_format(&options.label, hash_key);
                FileSystem::create_on(&disk, &format, &SystemClock)?;
            }
            Contents::Lists => {
                dendro_fs::describe_lists(&disk, &options.label, &SystemClock)?;
            }
        }
        disk.checkpoint()?;
        Ok(Self::from(Arc::new(disk)))
    }

    /// Opens the volume in an image file or on a block device, or on several that it lies on, of
    /// which `path` is one. What a crash left unfinished is finished, unless it is opened for
    /// reading.
    ///
    /// # Errors
    /// [`Error::Device`] if it cannot be opened, or if another process has it open;
    /// [`Error::Devices`] if others of its devices are not found, or do not fit;
    /// [`Error::Disk`] if there is no volume, or if it is damaged; [`Error::BadOption`].
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let (disk, devices) = opening::open(path.as_ref(), options)?;
        if disk.read_only_reason().is_none()
            && let Err(error) = abandon(&*disk)
        {
            log::warn!("a client or a version of which a part is there stays: {error}");
        }
        Ok(Self { inner: Arc::new(OpenDisk::new(disk, Some(devices))) })
    }

    /// Makes everything durable and closes the volume, also for other copies of this value, whose
    /// changes fail from then on. The next [`Self::open`] has nothing to recover.
    ///
    /// # Errors
    /// [`Error::Disk`]; what was flushed before is safe.
    pub fn close(self) -> Result<()> {
        Ok(self.inner.shut_down()?)
    }

    /// Makes everything durable that was done before.
    ///
    /// # Errors
    /// [`Error::Disk`]: the volume takes no more changes then.
    pub fn flush(&self) -> Result<()> {
        Ok(self.inner.disk().flush(CommitSeq::LATEST)?)
    }

    /// Does one step of the work that a [`Runner`](crate::Runner) does in the background. Returns
    /// whether there was any. A program without a runner calls it now and then, best when it has
    /// nothing else to do. Otherwise changes do that work when they find no room.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub fn step(&self) -> Result<bool> {
        let disk = self.inner.disk();
        let wrote = disk.write_step(Duration::ZERO);
        // Those who wait for something durable are told if it cannot be written, too.
        let flushed = disk.flush_for_others(Duration::ZERO);
        let (wrote, flushed) = (wrote?, flushed?);
        Ok(self.inner.background_step()? || wrote || flushed)
    }

    /// Its identity, which no other volume has.
    #[must_use]
    pub fn uuid(&self) -> String {
        self.inner.disk().superblock().uuid.to_string()
    }

    /// Its name for people; empty if it has none.
    #[must_use]
    pub fn label(&self) -> String {
        self.inner.disk().superblock().label
    }

    /// Why it takes no changes; `None` if it does.
    #[must_use]
    pub fn read_only_reason(&self) -> Option<String> {
        self.inner.disk().read_only_reason()
    }

    /// Its lists and units, and all that is known of its versions. Some lists belong to the file
    /// system: see the [crate's documentation](crate#a-volume-of-lists).
    #[must_use]
    pub fn disk(&self) -> &dyn Versions {
        &**self.inner.disk()
    }

    /// The same, for a thread that lives on its own.
    #[must_use]
    pub fn shared_disk(&self) -> Arc<dyn Versions> {
        Arc::clone(self.inner.disk()) as _
    }

    pub(crate) fn open_disk(&self) -> &OpenDisk {
        &self.inner
    }
}

/// Versions.
impl Volume {
    /// The head of the main branch.
    #[must_use]
    pub fn main(&self) -> View {
        self.versions().main_head()
    }

    /// All versions, as they are now.
    #[must_use]
    pub fn versions(&self) -> VersionTable {
        self.inner.disk().versions()
    }

    /// The version that `name` names: the head of a `branch`, or a snapshot as `@snapshot` or
    /// `branch@snapshot`. A snapshot without a name is named by its epoch.
    ///
    /// # Errors
    /// [`Error::NoSuchVersion`].
    pub fn view(&self, name: &str) -> Result<View> {
        let versions = self.versions();
        let none = || Error::NoSuchVersion(name.to_owned());
        let (branch, snapshot) = match name.split_once('@') {
            Some((branch, snapshot)) => (branch, Some(snapshot)),
            None => (name, None),
        };
        let head = match branch {
            "" => versions.main_head(),
            branch => versions.branch_named(branch).ok_or_else(none)?.head(),
        };
        let Some(snapshot) = snapshot else { return Ok(head) };
        let named = versions.snapshot_named(snapshot);
        let found =
            named.or_else(|| versions.snapshot_at(snapshot.parse().ok()?)).ok_or_else(none)?;
        // A branch before the `@` says in whose past the snapshot is.
        match branch.is_empty() || versions.past(head).contains(&found) {
            true => Ok(found.view()),
            false => Err(none()),
        }
    }

    /// Makes a snapshot of the main branch.
    ///
    /// # Errors
    /// [`Error::Disk`] if the name is taken or cannot be one, or if there is no room.
    pub fn snapshot(&self, name: &str) -> Result<View> {
        self.snapshot_of(self.main(), name)
    }

    /// Makes a snapshot of the branch with this head.
    ///
    /// # Errors
    /// As [`Self::snapshot`]; [`Error::Disk`] if `head` is a snapshot.
    pub fn snapshot_of(&self, head: View, name: &str) -> Result<View> {
        if head.epoch.is_some() {
            return Err(dendro_disk::Error::NoSuchView(head).into());
        }
        Ok(self.inner.disk().snapshot(head.branch, Some(name))?.view())
    }

    /// Makes a branch that starts from a version, and returns its head.
    ///
    /// # Errors
    /// As [`Self::snapshot`].
    pub fn branch(&self, from: View, name: &str) -> Result<View> {
        Ok(self.inner.disk().branch_off(from, name)?.head())
    }

    /// Deletes a snapshot, or the head of a branch. Its space is freed in the background.
    ///
    /// # Errors
    /// [`Error::Disk`] for the main branch, and for a snapshot that is held.
    pub fn delete(&self, version: View) -> Result<()> {
        Ok(self.inner.disk().delete(version)?)
    }

    /// Replaces the branch with this head by a new one that starts from the snapshot `to` and takes
    /// over its name, and returns the new head. All snapshots stay.
    ///
    /// # Errors
    /// [`Error::Disk`] if there is no such head or snapshot.
    pub fn roll_back(&self, head: View, to: View) -> Result<View> {
        if head.epoch.is_some() {
            return Err(dendro_disk::Error::NoSuchView(head).into());
        }
        Ok(self.inner.disk().roll_back(head.branch, to)?.head())
    }

    /// Makes the branch with this head the main one. It and the former main branch exchange their
    /// names.
    ///
    /// # Errors
    /// [`Error::Disk`] if there is no such head, or if the branch belongs to another client.
    pub fn promote(&self, head: View) -> Result<()> {
        if head.epoch.is_some() {
            return Err(dendro_disk::Error::NoSuchView(head).into());
        }
        Ok(self.inner.disk().promote(head.branch)?)
    }

    /// The files of a version. Those of a snapshot cannot be changed.
    ///
    /// # Errors
    /// [`Error::Files`] if the client that the version belongs to keeps no files.
    pub fn files(&self, version: View) -> Result<Files> {
        Ok(Files::new(self.inner.mount(version)?))
    }
}

/// For front ends of this project, which open the disk by themselves.
#[doc(hidden)]
impl From<Arc<LogDisk>> for Volume {
    fn from(disk: Arc<LogDisk>) -> Self {
        Self { inner: Arc::new(OpenDisk::new(disk, None)) }
    }
}

/// Clients.
impl Volume {
    /// Makes a client beside the one that the volume was made for, and returns the head of its
    /// branch, which has the same name. A client of files has an empty root directory, which
    /// belongs to the user of this process; one of lists has the list [`Self::ROOT`]. A client that
    /// was made is there whole or not at all.
    ///
    /// # Errors
    /// [`Error::Disk`] if the name is taken or cannot be one, or if there is no room;
    /// [`Error::Files`] for a block device, which [`Self::create_block_device`] makes, and for
    /// kinds that are not known.
    pub fn create_client(&self, name: &str, kind: ClientKind) -> Result<View> {
        if kind == ClientKind::Block {
            let why = "a block device has a size; create_block_device makes one";
            return Err(FsError::Invalid(why).into());
        }
        let format = files_format(name, random_bytes()?);
        let made = dendro_fs::create_client(self.disk(), name, kind, None, &format, &SystemClock)?;
        Ok(made.head())
    }

    /// Makes a client that is a block device of `len_bytes`, a multiple of 4,096, all zeros.
    /// Returns the head of its branch, which has the same name. Its contents are the pages of the
    /// list [`Self::ROOT`]; record 0 of that list describes the device, and is not to be changed.
    /// `dendro nbd` serves it.
    ///
    /// # Errors
    /// [`Error::BlockDevice`] for a size that none can have; [`Error::Disk`] if the name is taken
    /// or cannot be one, or if there is no room.
    pub fn create_block_device(&self, name: &str, len_bytes: u64) -> Result<View> {
        let as_others = ListCompression::AsOthers;
        Ok(dendro_block::create_client(self.disk(), name, len_bytes, as_others)?)
    }

    /// The length of the block device that a version is, in bytes.
    ///
    /// # Errors
    /// [`Error::BlockDevice`] if it is none; [`Error::Disk`] if there is no such version.
    pub fn block_device_len_bytes(&self, version: View) -> Result<u64> {
        Ok(dendro_block::size_bytes(self.disk(), version)?)
    }

    /// What the client keeps that a version belongs to.
    ///
    /// # Errors
    /// [`Error::Files`] if that cannot be read.
    pub fn client_kind(&self, version: View) -> Result<ClientKind> {
        self.versions().check(version)?;
        Ok(dendro_fs::contents_of(self.disk(), version)?)
    }

    /// The quota of the client that a version belongs to, and what it uses of it. `None` if it has
    /// no quota, or if it is not known what it uses: a volume that is opened for reading does not
    /// count that where a crash has left it open.
    ///
    /// # Errors
    /// [`Error::Disk`] if there is no such version.
    pub fn quota(&self, version: View) -> Result<Option<Quota>> {
        self.versions().check(version)?;
        Ok(self.disk().quota(version))
    }

    /// Bounds what all versions of the client that `version` belongs to take together, or takes the
    /// bound away. Changes that would exceed it fail with EDQUOT. A client may use more already:
    /// then only changes that free something work. The first quota of a client reads the whole map,
    /// unless the client was made a moment ago.
    ///
    /// # Errors
    /// [`Error::Disk`] if there is no such version, or if the volume takes no changes.
    pub fn set_quota(&self, version: View, limit_bytes: Option<u64>) -> Result<()> {
        self.versions().check(version)?;
        Ok(self.disk().set_quota(version.branch, limit_bytes)?)
    }

    /// The clients of the volume. The one that it was made for is the first.
    ///
    /// # Errors
    /// [`Error::Files`] if it cannot be read what a client keeps.
    pub fn clients(&self) -> Result<Vec<Client>> {
        let table = self.versions();
        let head = |branch| View { branch, epoch: None };
        let known = |of: dendro_disk::Client| {
            let head = of.head.map(head);
            let any = head.or_else(|| of.views.first().copied());
            let unknown = of.kind.unwrap_or(ClientKind::Unknown(0));
            let kind = any.map_or(Ok(unknown), |view| self.client_kind(view))?;
            let name = head.and_then(|head| table.branch_of(head)).map(|of| of.name.clone());
            Ok(Client { name, kind, head, versions: of.views })
        };
        table.clients().into_iter().map(known).collect()
    }
}

fn files_format(label: &str, hash_key: [u8; 16]) -> dendro_fs::FormatOptions {
    dendro_fs::FormatOptions {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        mode: 0o755,
        label: label.to_owned(),
        hash_key,
    }
}

fn segment_size_bytes(len_bytes: u64, options: &CreateOptions) -> u64 {
    options.segment_size_bytes.unwrap_or_else(|| good_segment_size_bytes(len_bytes))
}

fn check_options(len_bytes: u64, options: &CreateOptions) -> Result<()> {
    options.check()?;
    let size = segment_size_bytes(len_bytes, options);
    let sizes = 1 << MIN_SEGMENT_SIZE_LOG2..=1 << MAX_SEGMENT_SIZE_LOG2;
    if !size.is_power_of_two() || !sizes.contains(&size) {
        return Err(Error::BadSegmentSize { len_bytes: size });
    }
    let count = len_bytes / size;
    match u32::try_from(count) {
        Ok(count) if count >= MIN_SEGMENT_COUNT => Ok(()),
        _ => Err(Error::BadSize { len_bytes }),
    }
}
