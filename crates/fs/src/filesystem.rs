//! The file system as a whole: making, opening, and closing it.

use std::collections::BTreeMap;

use dendro_base::sync::atomic::{AtomicU8, Ordering};
use dendro_base::sync::{Arc, Mutex};
use dendro_base::{Clock, Timestamp};
use dendro_disk::{
    Aru, CommitSeq, Error as DiskError, Lid, ListHints, LogicalDisk, PAGE_SIZE, View,
};
use zerocopy::IntoBytes;

use crate::error::{FsError, Result};
use crate::format::{
    HEAD_INDEX, ORPHAN_LIST, VOLUME_LIST, VOLUME_MAGIC, VolumeV1, split_bytes, split_head,
};
use crate::inode::Inode;
use crate::names::NameHasher;
use crate::node::{Node, NodeCache, RefTable, WriteGuard};
use crate::records::RecordEdits;
use crate::types::{
    AtimePolicy, FileFlags, FileKind, FileTime, FormatOptions, Ino, MAX_NAME_LEN_BYTES, MemoryUse,
    Options, StatFs,
};

/// How old an access time may get under [`AtimePolicy::Relatime`].
const RELATIME_AGE_NANOS: i64 = 24 * 60 * 60 * 1_000_000_000;

/// What a small file takes at least, for an estimate of how many more there could be.
const SMALL_FILE_LEN: u64 = 512;

/// A mounted file system. All calls may come from any thread.
///
/// **Lookups.** Each [`crate::Attr`] that [`Self::lookup`], [`Self::mknod`], [`Self::mkdir`],
/// [`Self::symlink`], [`Self::link`], [`Self::create`], [`Self::tmpfile`] and
/// [`Self::readdirplus`] (for an entry that was taken, other than `.` and `..`) give out counts as
/// one lookup, to be taken back with [`Self::forget`].
///
/// **Views.** Several can be open over one disk, one for each head that is written to and any number
/// for the past. A view of the past changes nothing, not even access times or what a crash left
/// unfinished.
///
/// **Opens.** [`Self::open`], [`Self::create`] and [`Self::tmpfile`] count one open, to be taken
/// back with [`Self::release`]. There are no handles: all calls name i-nodes. A file that was
/// unlinked lives on while it is open; directories need no opening. A file that is gone but not
/// forgotten still answers [`Self::getattr`]; other calls answer [`FsError::Stale`].
pub struct FileSystem {
    pub(crate) disk: Arc<dyn LogicalDisk>,
    pub(crate) view: View,
    clock: Arc<dyn Clock>,
    /// An [`AtimePolicy`].
    atime: AtomicU8,
    read_only: bool,
    label: String,
    pub(crate) hasher: NameHasher,
    pub(crate) nodes: NodeCache,
    pub(crate) refs: RefTable,
    /// Files on the orphan list that something holds, and whether they may be linked.
    pub(crate) orphans: Mutex<BTreeMap<Ino, bool>>,
    /// Held by renames between directories: first in the lock order.
    pub(crate) rename_lock: Mutex<()>,
}

impl std::fmt::Debug for FileSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileSystem")
            .field("label", &self.label)
            .field("view", &self.view)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

/// What the volume's description says.
pub(crate) struct Volume {
    pub(crate) label: String,
    pub(crate) hasher: NameHasher,
}

impl Volume {
    /// Reads the description; `writing` says whether features that only readers may ignore matter.
    pub(crate) fn read(disk: &dyn LogicalDisk, view: View, writing: bool) -> Result<Self> {
        let record = disk
            .record(view, VOLUME_LIST, HEAD_INDEX)?
            .ok_or_else(|| FsError::Corrupted("the disk has no file system".into()))?;
        let (head, _) = split_head::<VolumeV1>(&record, "the volume's description")?;
        if head.magic != VOLUME_MAGIC || head.version.get() != 1 {
            return Err(FsError::Corrupted("not a file system that is known here".into()));
        }
        let unknown =
            head.incompatible.get() | if writing { head.read_only_compatible.get() } else { 0 };
        if unknown != 0 {
            return Err(FsError::NotSupported("features of a later version"));
        }
        let header_len = usize::from(head.header_len.get()).max(size_of::<VolumeV1>());
        let (_, rest) = split_bytes(&record, header_len, "the volume's description")?;
        let (label, _) = split_bytes(rest, usize::from(head.label_len.get()), "the label")?;
        Ok(Self {
            label: String::from_utf8_lossy(label).into_owned(),
            hasher: NameHasher::new(&head.hash_key),
        })
    }
}

impl FileSystem {
    /// Makes an empty file system on an empty disk, and makes it durable.
    ///
    /// # Errors
    /// [`FsError::Exists`] when the disk has lists; [`FsError::NameTooLong`] for the label; what
    /// the disk says.
    pub fn create_on(
        disk: &dyn LogicalDisk,
        options: &FormatOptions,
        clock: &dyn Clock,
    ) -> Result<()> {
        if options.label.len() > MAX_NAME_LEN_BYTES {
            return Err(FsError::NameTooLong);
        }
        if !disk.lists(View::HEAD, Lid(0), 1)?.is_empty() {
            return Err(FsError::Exists);
        }
        let now = FileTime::from(clock.now());
        let mut root = Inode::new(FileKind::Directory, options.mode, now);
        (root.uid, root.gid, root.nlink) = (options.uid, options.gid, 2);
        root.parent = Ino::ROOT.0;
        let volume = VolumeV1 {
            magic: VOLUME_MAGIC,
            version: 1.into(),
            header_len: (size_of::<VolumeV1>() as u16).into(),
            compatible: 0.into(),
            read_only_compatible: 0.into(),
            incompatible: 0.into(),
            hash_key: options.hash_key,
            created_secs: now.secs.into(),
            created_nanos: now.nanos.into(),
            label_len: (options.label.len() as u16).into(),
            reserved: [0; 10],
        };
        let mut volume = volume.as_bytes().to_vec();
        volume.extend_from_slice(options.label.as_bytes());
        let mut aru = Aru::new(View::HEAD);
        for list in [Ino::ROOT.lid(), VOLUME_LIST, ORPHAN_LIST] {
            if disk.allocate_list()? != list {
                return Err(FsError::Exists);
            }
            aru.create_list(list, ListHints::default());
        }
        aru.put_record(Ino::ROOT.lid(), HEAD_INDEX, root.encode());
        aru.put_record(VOLUME_LIST, HEAD_INDEX, volume);
        disk.commit(aru)?;
        Ok(disk.flush(CommitSeq::LATEST)?)
    }

    /// Opens the file system on `disk`, and finishes removals and truncations that a crash
    /// interrupted.
    ///
    /// # Errors
    /// [`FsError::Corrupted`] when there is none or it makes no sense; [`FsError::NotSupported`]
    /// when a later version made it; what the disk says.
    pub fn mount(
        disk: Arc<dyn LogicalDisk>,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        Self::mount_with_hash_mask(disk, options, clock, u64::MAX)
    }

    /// As [`Self::mount`], with only those bits of names' hashes that `hash_mask` has.
    pub(crate) fn mount_with_hash_mask(
        disk: Arc<dyn LogicalDisk>,
        options: Options,
        clock: Arc<dyn Clock>,
        hash_mask: u64,
    ) -> Result<Self> {
        let view = options.view;
        let read_only =
            options.read_only || view.epoch.is_some() || disk.read_only_reason().is_some();
        let volume = Volume::read(&*disk, view, !read_only)?;
        let fs = Self {
            disk,
            view,
            clock,
            atime: AtomicU8::new(if read_only { AtimePolicy::Noatime } else { options.atime } as u8),
            read_only,
            label: volume.label,
            hasher: volume.hasher.with_mask(hash_mask),
            nodes: NodeCache::new(options.inode_cache_len),
            refs: RefTable::new(options.lookups_hold_files),
            orphans: Mutex::default(),
            rename_lock: Mutex::default(),
        };
        let root = fs.node(Ino::ROOT);
        match root.read(&*fs.disk, view) {
            Ok(inode) => inode.check_directory(),
            Err(error) => Err(error),
        }
        .map_err(|error| match error {
            FsError::Stale | FsError::NotDirectory => {
                FsError::Corrupted("there is no root directory".into())
            }
            other => other,
        })?;
        if !read_only {
            fs.finish_orphans()?;
            fs.clear_staged();
        }
        Ok(fs)
    }

    /// The volume's label.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Which version of the disk this is.
    #[must_use]
    pub const fn view(&self) -> View {
        self.view
    }

    /// Whether all changes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only || self.disk.read_only_reason().is_some()
    }

    /// Says when reading changes access times from now on; where all changes are refused, it never
    /// does.
    pub fn set_atime_policy(&self, policy: AtimePolicy) {
        if !self.read_only {
            self.atime.store(policy as u8, Ordering::Relaxed);
        }
    }

    /// What the file system holds and could hold.
    #[must_use]
    pub fn statfs(&self) -> StatFs {
        let space = self.disk.space();
        let used = space.live_bytes.saturating_add(space.reserved_bytes);
        let free = space.capacity_bytes.saturating_sub(used);
        StatFs {
            block_size: PAGE_SIZE as u32,
            blocks: space.capacity_bytes / PAGE_SIZE as u64,
            blocks_free: free / PAGE_SIZE as u64,
            blocks_available: space.available_bytes.min(free) / PAGE_SIZE as u64,
            files: space.capacity_bytes / SMALL_FILE_LEN,
            files_free: space.available_bytes.min(free) / SMALL_FILE_LEN,
            name_max: MAX_NAME_LEN_BYTES as u32,
        }
    }

    /// What it has in memory beside what the disk has.
    #[must_use]
    pub fn memory_use(&self) -> MemoryUse {
        let (inode_count, inode_bytes) = self.nodes.size();
        let (looked_up_count, looked_up_bytes) = self.refs.size();
        MemoryUse { inode_count, inode_bytes, looked_up_count, looked_up_bytes }
    }

    /// Takes over the lookups of `other`, another view of the same disk, in whose place this one is
    /// served from now on: they are taken back here. Call it when nothing else is running on either.
    pub fn take_lookups(&self, other: &Self) {
        self.refs.take_lookups(&other.refs);
    }

    /// Makes everything that was done before the call durable.
    ///
    /// # Errors
    /// `NotDurable`; what else the disk says.
    pub fn sync_all(&self) -> Result<()> {
        let sync = || {
            self.write_back_all_atimes()?;
            Ok(self.disk.flush(CommitSeq::LATEST)?)
        };
        sync().map_err(FsError::when_syncing)
    }

    /// Makes everything durable, and removes files that were only held open. The disk goes on, for
    /// other views of it. Call it when nothing else is running on this one.
    ///
    /// # Errors
    /// What the disk says.
    pub fn close(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        self.finish_orphans()?;
        self.orphans.lock().clear();
        self.sync_all()
    }

    /// As [`Self::close`], and shuts the disk down. Call it when nothing else is running.
    ///
    /// # Errors
    /// What the disk says.
    pub fn shut_down(&self) -> Result<()> {
        if !self.is_read_only() {
            self.finish_orphans()?;
            self.orphans.lock().clear();
            self.write_back_all_atimes()?;
        }
        Ok(self.disk.shut_down()?)
    }

    /// Makes a file durable, and with it everything that was done before the call.
    ///
    /// # Errors
    /// As [`Self::sync_all`].
    pub fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        let node = self.node(ino);
        let sync = || {
            if !datasync && node.pending_atime().is_some() {
                self.write_back_atime(&mut node.write(&*self.disk, self.view)?)?;
            }
            // Order is a promise: what came before is durable too, even if this file did not change.
            Ok(self.disk.flush(CommitSeq::LATEST)?)
        };
        sync().map_err(FsError::when_syncing)
    }

    /// Makes everything that was done before the call durable, in whatever directory.
    ///
    /// # Errors
    /// As [`Self::sync_all`].
    pub fn fsyncdir(&self, ino: Ino, datasync: bool) -> Result<()> {
        if datasync { self.fsync(ino, datasync) } else { self.sync_all() }
    }

    /// The time of an operation.
    pub(crate) fn now(&self) -> FileTime {
        self.clock.now().into()
    }

    /// Refuses changes to what cannot be changed.
    pub(crate) const fn check_writable(&self) -> Result<()> {
        if self.read_only { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    /// The node of `ino`, which may turn out not to exist when it is locked.
    pub(crate) fn node(&self, ino: Ino) -> Arc<Node> {
        let (node, dirty) = self.nodes.get(ino);
        if let Some(mut victim) = dirty.as_deref().and_then(Node::try_write) {
            // An access time is not worth failing for; it is tried again.
            if let Err(error) = self.write_back_atime(&mut victim) {
                log::debug!("an access time was not written: {error}");
            }
        }
        node
    }

    /// A unit that changes this view.
    pub(crate) const fn aru<'a>(&self) -> Aru<'a> {
        Aru::new(self.view)
    }

    /// No changes to records yet.
    pub(crate) fn edits(&self) -> RecordEdits<'_> {
        RecordEdits::new(&*self.disk, self.view)
    }

    /// Commits `aru` with `inode` in it, and enters it.
    pub(crate) fn commit_inode(
        &self,
        aru: Aru<'_>,
        guard: &mut WriteGuard<'_>,
        inode: Inode,
    ) -> Result<()> {
        self.commit_edits(aru, self.edits(), guard, inode)
    }

    /// As [`Self::commit_inode`], with `edits`. The i-node, which shows by itself that there is such a
    /// file, goes first: the disk need not look for that.
    pub(crate) fn commit_edits(
        &self,
        mut aru: Aru<'_>,
        edits: RecordEdits<'_>,
        guard: &mut WriteGuard<'_>,
        inode: Inode,
    ) -> Result<()> {
        aru.put_record(guard.ino().lid(), HEAD_INDEX, inode.encode());
        edits.apply(&mut aru);
        self.disk.commit(aru)?;
        guard.set(inode);
        Ok(())
    }

    /// Notes that a file was read; the caller holds its shared lock.
    pub(crate) fn touch_atime(&self, node: &Node, inode: &Inode) {
        let policy = self.atime.load(Ordering::Relaxed);
        if policy == AtimePolicy::Noatime as u8 || inode.flags.contains(FileFlags::NO_ATIME) {
            return;
        }
        let now = self.clock.now();
        if policy == AtimePolicy::Relatime as u8 {
            let atime = node.pending_atime().unwrap_or(inode.atime);
            let day_ago = Timestamp(now.0.saturating_sub(RELATIME_AGE_NANOS));
            if atime > inode.mtime && atime > inode.ctime && atime > day_ago.into() {
                return;
            }
        }
        node.set_pending_atime(now);
    }

    /// On a full disk the time waits for room: that somebody read is no reason for fsync to fail.
    fn write_back_atime(&self, guard: &mut WriteGuard<'_>) -> Result<()> {
        let inode = guard.edit();
        if inode.atime == guard.inode().atime {
            return Ok(());
        }
        match self.commit_inode(self.aru(), guard, inode) {
            Err(FsError::Disk(DiskError::NoSpace { .. })) => Ok(()),
            other => other,
        }
    }

    fn write_back_all_atimes(&self) -> Result<()> {
        for node in self.nodes.with_pending_atime() {
            match node.write(&*self.disk, self.view) {
                Ok(mut guard) => self.write_back_atime(&mut guard)?,
                Err(FsError::Stale) => (),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
