//! The hidden directory `.dendro` in the root of a mount: snapshots, as trees that can be read.
//!
//! | path                       | what it shows                     |
//! |----------------------------|-----------------------------------|
//! | `.dendro/snapshots/NAME/…` | the snapshot of that name         |
//! | `.dendro/at/TIME/…`        | the last snapshot before a time   |
//! | `.dendro/README`           | what this is, and how to keep more |
//!
//! The listing of the root does not contain it, so programs that walk through the mount do not
//! enter it. Nothing in it can be changed. Its names are looked up again whenever they are used.
//! The kernel may cache everything below them forever, since snapshots do not change.
//!
//! - [`numbers`]: the numbers of its files, for the kernel and for users.
//! - [`slots`]: which of its names the kernel has looked up, and which views are open.
//!
//! Arrows: `slots` → `numbers`.

mod numbers;
mod slots;

use std::sync::Arc;
use std::time::Duration;

use dendro_fs::{DirEntry, FileFlags, FileKind, FileSystem, FsError, Ino, Seek};
use dendro_fuse_transport::{Attr, AttrReply, Entries, EntriesPlus, Entry, Errno, Result};

use crate::adapter::{Adapter, copy_out};
use crate::convert;
use crate::file_flags::{self, FlagsRequest};
use crate::past::{Past, SnapshotId};
use numbers::{node, shown_ino, split};
use slots::{Place, Slot, Slots};

pub use numbers::is_snapshot_node;

/// The name of the directory.
pub(crate) const NAME: &[u8] = b".dendro";

/// How long the kernel may cache what a name in it shows, except the name of a snapshot.
const NAME_VALID: Duration = Duration::from_secs(1);

/// The synthetic directories, as i-nodes of slot 0.
const TOP: u64 = 1;
const SNAPSHOTS: u64 = 2;
const AT: u64 = 3;
/// A synthetic file.
const README: u64 = 4;

/// Its content. It explains errors for names that show nothing, which have no message.
const README_TEXT: &[u8] = b"\
The past of this volume, to be read by any program:

  snapshots/NAME   a snapshot that has a name
  at/TIME          what was kept last before a time, such as at/-15m, at/-2h,
                   at/2026-11-21 or at/2026-11-21T10:00

Only what was kept is there. As long as nothing was, both are empty, and no time
names anything:

  dendro snapshot create MOUNT@NAME       keeps how it is now
  dendro mount -o retain=10m:all,1d:1m    keeps it at each interval, by itself

dendro log lists what was kept, dendro undelete brings files back.
";

/// The cookies of `.` and `..` in synthetic directories.
const COOKIE_DOT: u64 = 1;
const COOKIE_DOTDOT: u64 = 2;

const DIRECTORY_MODE: u32 = libc::S_IFDIR | 0o555;
const FILE_MODE: u32 = libc::S_IFREG | 0o444;

/// The mode of a synthetic file, or of the root of a snapshot, with this i-node number.
const fn mode_of(number: u64) -> u32 {
    if number == shown_ino(0, README) { FILE_MODE } else { DIRECTORY_MODE }
}

/// A node in the directory of snapshots.
enum Node {
    /// A synthetic directory or file.
    Synthetic(u64),
    /// A file in a snapshot.
    InSnapshot(Arc<Slot>, Ino),
}

/// The directory of snapshots.
pub(crate) struct SnapshotDir {
    past: Arc<dyn Past>,
    slots: Slots,
}

impl SnapshotDir {
    pub(crate) fn new(past: Arc<dyn Past>) -> Self {
        Self { past, slots: Slots::default() }
    }

    fn node(&self, node: u64) -> Result<Node> {
        match split(node) {
            (0, ino @ TOP..=README) => Ok(Node::Synthetic(ino)),
            (0, _) => Err(Errno::STALE),
            (slot, ino) => self
                .slots
                .get(slot)
                .map(|slot| Node::InSnapshot(slot, Ino(ino)))
                .ok_or(Errno::STALE),
        }
    }

    /// The file system of a snapshot.
    fn open(&self, current: &Adapter, id: SnapshotId) -> Result<Arc<FileSystem>> {
        current.answer("opening a snapshot", self.slots.open(&*self.past, id))
    }

    /// The file system and the i-node of a file in a snapshot; `otherwise` for synthetic ones.
    fn file(
        &self,
        current: &Adapter,
        node: u64,
        otherwise: Errno,
    ) -> Result<(Arc<FileSystem>, Ino)> {
        match self.node(node)? {
            Node::Synthetic(_) => Err(otherwise),
            Node::InSnapshot(slot, ino) => Ok((self.open(current, slot.id)?, ino)),
        }
    }

    /// The attributes of a synthetic file: those of the root, where they fit.
    fn synthetic(current: &Adapter, ino: u64) -> Result<Attr> {
        let root = current.answer("getattr", current.fs().getattr(Ino::ROOT))?;
        let mut attr = convert::attributes(&root).attr;
        attr.ino = shown_ino(0, ino);
        attr.mode = mode_of(attr.ino);
        (attr.nlink, attr.size_bytes) = match ino {
            TOP => (4, 0),
            README => (1, README_TEXT.len() as u64),
            _ => (2, 0),
        };
        attr.blocks_512 = 0;
        Ok(attr)
    }

    fn synthetic_entry(current: &Adapter, ino: u64) -> Result<Entry> {
        Ok(Entry {
            node: node(0, ino).ok_or(Errno::OVERFLOW)?,
            generation: 0,
            entry_valid: NAME_VALID,
            attr: Self::synthetic(current, ino)?,
            attr_valid: NAME_VALID,
        })
    }

    /// The reply to a LOOKUP of the directory itself.
    pub(crate) fn entry(current: &Adapter) -> Result<Entry> {
        Self::synthetic_entry(current, TOP)
    }

    pub(crate) fn lookup(&self, current: &Adapter, parent: u64, name: &[u8]) -> Result<Entry> {
        match (self.node(parent)?, name) {
            (Node::Synthetic(TOP), b"snapshots") => Self::synthetic_entry(current, SNAPSHOTS),
            (Node::Synthetic(TOP), b"at") => Self::synthetic_entry(current, AT),
            (Node::Synthetic(TOP), b"README") => Self::synthetic_entry(current, README),
            (Node::Synthetic(README), _) => Err(Errno::NOTDIR),
            (Node::Synthetic(itself), b".") => Self::synthetic_entry(current, itself),
            (Node::Synthetic(_), b"..") => Self::synthetic_entry(current, TOP),
            (Node::Synthetic(SNAPSHOTS), _) => self.look_up_name(current, Place::Snapshots, name),
            (Node::Synthetic(AT), _) => self.look_up_name(current, Place::At, name),
            (Node::Synthetic(_), _) => Err(Errno::NOENT),
            (Node::InSnapshot(slot, ino), name) => {
                let fs = self.open(current, slot.id)?;
                match fs.lookup(ino, name) {
                    Err(FsError::NotFound) => Ok(convert::absent()),
                    found => {
                        let attr = current.answer("lookup", found)?;
                        // It cannot be removed, so no lookup needs to keep it.
                        fs.forget(attr.ino, 1);
                        let entry = snapshot_entry(&slot, &attr);
                        if entry.node == 0 {
                            return Err(Errno::OVERFLOW);
                        }
                        slot.add_lookup();
                        Ok(entry)
                    }
                }
            }
        }
    }

    fn look_up_name(&self, current: &Adapter, place: Place, name: &[u8]) -> Result<Entry> {
        let text = std::str::from_utf8(name).map_err(|_| Errno::NOENT)?;
        let found = match place {
            Place::Snapshots => self.past.snapshot(text),
            Place::At => self.past.at(&current.fs(), text),
        };
        let id = found.ok_or(Errno::NOENT)?;
        let fs = self.open(current, id)?;
        let root = current.answer("lookup", fs.getattr(Ino::ROOT))?;
        let slot = self.slots.look_up(place, name, id).ok_or(Errno::NFILE)?;
        let entry_valid = match place {
            // The snapshot may be deleted at any time, and another one get its name.
            Place::Snapshots => Duration::ZERO,
            Place::At => NAME_VALID,
        };
        Ok(Entry { entry_valid, ..snapshot_entry(&slot, &root) })
    }

    pub(crate) fn forget(&self, node: u64, count: u64) {
        let (slot, _) = split(node);
        self.slots.forget(slot, count);
    }

    pub(crate) fn getattr(&self, current: &Adapter, node: u64) -> Result<AttrReply> {
        match self.node(node)? {
            Node::Synthetic(ino) => {
                Ok(AttrReply { attr: Self::synthetic(current, ino)?, valid: NAME_VALID })
            }
            Node::InSnapshot(slot, ino) => {
                let fs = self.open(current, slot.id)?;
                let found = current.answer("getattr", fs.getattr(ino))?;
                let mut reply = convert::attributes(&found);
                reply.attr.ino = shown_ino(slot.id.epoch, ino.0);
                Ok(reply)
            }
        }
    }

    pub(crate) fn readlink(&self, current: &Adapter, node: u64, out: &mut [u8]) -> Result<usize> {
        let (fs, ino) = self.file(current, node, Errno::INVAL)?;
        let target = current.answer("readlink", fs.readlink(ino))?;
        Ok(copy_out(&target, out))
    }

    pub(crate) fn read(
        &self,
        current: &Adapter,
        node: u64,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize> {
        if let Node::Synthetic(README) = self.node(node)? {
            let from = usize::try_from(offset).map_or(README_TEXT.len(), |at| at);
            return Ok(copy_up_to(README_TEXT.get(from..).unwrap_or_default(), out));
        }
        let (fs, ino) = self.file(current, node, Errno::ISDIR)?;
        current.answer("read", fs.read(ino, offset, out))
    }

    pub(crate) fn lseek(
        &self,
        current: &Adapter,
        node: u64,
        offset: u64,
        seek: Seek,
    ) -> Result<u64> {
        let (fs, ino) = self.file(current, node, Errno::INVAL)?;
        current.answer("lseek", fs.lseek(ino, offset, seek))
    }

    /// The flags of files, which cannot be changed here.
    pub(crate) fn ioctl(
        &self,
        current: &Adapter,
        node: u64,
        request: FlagsRequest,
        out: &mut [u8],
    ) -> Result<()> {
        if matches!(request, FlagsRequest::Set(_)) {
            return Err(Errno::ROFS);
        }
        let flags = match self.node(node)? {
            Node::Synthetic(_) => FileFlags::empty(),
            Node::InSnapshot(slot, ino) => {
                let fs = self.open(current, slot.id)?;
                current.answer("ioctl", fs.getattr(ino))?.flags
            }
        };
        file_flags::encode(request, flags, out)
    }

    pub(crate) fn getxattr(
        &self,
        current: &Adapter,
        node: u64,
        name: &[u8],
        out: &mut [u8],
    ) -> Result<usize> {
        let (fs, ino) = self.file(current, node, Errno::NODATA)?;
        let value = current.answer("getxattr", fs.getxattr(ino, name))?;
        Ok(copy_out(&value, out))
    }

    pub(crate) fn listxattr(&self, current: &Adapter, node: u64, out: &mut [u8]) -> Result<usize> {
        match self.node(node)? {
            Node::Synthetic(_) => Ok(0),
            Node::InSnapshot(slot, ino) => {
                let fs = self.open(current, slot.id)?;
                let names = current.answer("listxattr", fs.listxattr(ino))?;
                Ok(copy_out(&names, out))
            }
        }
    }

    pub(crate) fn readdir(
        &self,
        current: &Adapter,
        node: u64,
        offset: u64,
        entries: &mut Entries<'_>,
    ) -> Result<()> {
        match self.node(node)? {
            Node::Synthetic(ino) => {
                check_listed(ino)?;
                self.list_synthetic(current, ino, offset, &mut |ino, cookie, name| {
                    entries.add(ino, cookie, mode_of(ino), name)
                });
                Ok(())
            }
            Node::InSnapshot(slot, ino) => {
                let fs = self.open(current, slot.id)?;
                let epoch = slot.id.epoch;
                let answer = fs.readdir(ino, offset, &mut |entry| {
                    let number = shown_ino(epoch, entry.ino.0);
                    entries.add(number, entry.cookie, entry.kind.mode_bits(), entry.name)
                });
                current.answer("readdir", answer)
            }
        }
    }

    pub(crate) fn readdirplus(
        &self,
        current: &Adapter,
        node: u64,
        offset: u64,
        entries: &mut EntriesPlus<'_>,
    ) -> Result<()> {
        match self.node(node)? {
            Node::Synthetic(ino) => {
                check_listed(ino)?;
                // Without attributes: to get them would open every snapshot.
                let mut entry = Entry::absent(Duration::ZERO);
                self.list_synthetic(current, ino, offset, &mut |ino, cookie, name| {
                    (entry.attr.ino, entry.attr.mode) = (ino, mode_of(ino));
                    entries.add(&entry, cookie, name)
                });
                Ok(())
            }
            Node::InSnapshot(slot, ino) => {
                let fs = self.open(current, slot.id)?;
                let mut counted = Vec::new();
                let answer = fs.readdirplus(ino, offset, &mut |entry, attr| {
                    let found = snapshot_entry(&slot, attr);
                    let is_taken = entries.add(&found, entry.cookie, entry.name);
                    if is_taken && !is_dot(&entry) {
                        counted.push(entry.ino);
                        if found.node != 0 {
                            slot.add_lookup();
                        }
                    }
                    is_taken
                });
                counted.into_iter().for_each(|ino| fs.forget(ino, 1));
                current.answer("readdirplus", answer)
            }
        }
    }

    /// Passes the entries behind `offset` of a synthetic directory to `sink`, as i-node number,
    /// cookie and name, until it takes no more. Cookies are epochs, so that they are stable.
    fn list_synthetic(
        &self,
        current: &Adapter,
        ino: u64,
        offset: u64,
        sink: &mut dyn FnMut(u64, u64, &[u8]) -> bool,
    ) {
        let parent = if ino == TOP { Ino::ROOT.0 } else { shown_ino(0, TOP) };
        let dots = [(shown_ino(0, ino), COOKIE_DOT, "."), (parent, COOKIE_DOTDOT, "..")];
        let dots = dots.map(|(ino, cookie, name)| (ino, cookie, name.to_owned()));
        let snapshots = match ino {
            SNAPSHOTS => self.past.snapshots(),
            AT => self.past.moments(&current.fs()),
            _ => Vec::new(),
        };
        let below = |(number, name): (u64, &str)| {
            (shown_ino(0, number), COOKIE_DOTDOT + number, name.to_owned())
        };
        let synthetic = [(SNAPSHOTS, "snapshots"), (AT, "at"), (README, "README")].map(below);
        let mut entries: Vec<_> = match ino {
            TOP => synthetic.into(),
            _ => snapshots
                .into_iter()
                .map(|(name, SnapshotId { epoch, .. })| {
                    (shown_ino(epoch, Ino::ROOT.0), COOKIE_DOTDOT.saturating_add(epoch), name)
                })
                .collect(),
        };
        entries.extend(dots);
        entries.sort_unstable_by_key(|(_, cookie, _)| *cookie);
        for (ino, cookie, name) in entries.iter().filter(|(_, cookie, _)| *cookie > offset) {
            if !sink(*ino, *cookie, name.as_bytes()) {
                return;
            }
        }
    }
}

/// Refuses to list a file.
const fn check_listed(ino: u64) -> Result<()> {
    if ino == README { Err(Errno::NOTDIR) } else { Ok(()) }
}

/// Copies as much as there is room for. Returns how much.
fn copy_up_to(bytes: &[u8], out: &mut [u8]) -> usize {
    let len = bytes.len().min(out.len());
    out[..len].copy_from_slice(&bytes[..len]);
    len
}

/// The reply to a LOOKUP of a file in a snapshot. If its number is too large for a node, the node
/// is 0.
fn snapshot_entry(slot: &Slot, attr: &dendro_fs::Attr) -> Entry {
    let mut entry = convert::entry(attr);
    entry.node = node(slot.number, attr.ino.0).unwrap_or(0);
    entry.attr.ino = shown_ino(slot.id.epoch, attr.ino.0);
    entry
}

fn is_dot(entry: &DirEntry<'_>) -> bool {
    entry.kind == FileKind::Directory && matches!(entry.name, b"." | b"..")
}
