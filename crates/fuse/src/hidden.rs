//! The hidden directory `.dendro` in the root of a mount: the past, as trees that can be read.
//!
//! | path                       | what it shows                     |
//! |----------------------------|-----------------------------------|
//! | `.dendro/snapshots/NAME/…` | the snapshot of that name         |
//! | `.dendro/at/TIME/…`        | what was kept last before a time  |
//! | `.dendro/README`           | what that is, and how to keep more |
//!
//! The root's listing does not have it, so what walks through the mount does not walk into it.
//! Nothing in it can be changed. What its names show is looked up as they are used; what the kernel
//! has learnt below them it may believe for good, since the past does not change.
//!
//! - [`number`]: what its files are called, by the kernel and by users.
//! - [`slots`]: what the kernel knows of it, and which views are open.

pub(crate) mod number;
mod slots;

use std::sync::Arc;
use std::time::Duration;

use dendro_fs::{DirEntry, FileFlags, FileKind, FileSystem, FsError, Ino, Seek};
use dendro_fuse_transport::{Attr, AttrReply, Entries, EntriesPlus, Entry, Errno, Result};

use crate::adapter::{Adapter, copy_out};
use crate::convert;
use crate::flags::{self, Asked};
use crate::past::{Moment, Past};
use number::{node, shown, split};
use slots::{Place, Slot, Slots};

/// What it is called.
pub(crate) const NAME: &[u8] = b".dendro";

/// How long the kernel may believe what a name in it shows, but for the name of a snapshot.
const NAME_VALID: Duration = Duration::from_secs(1);

/// The directories that are made up, as i-nodes of slot 0.
const TOP: u64 = 1;
const SNAPSHOTS: u64 = 2;
const AT: u64 = 3;
/// A file that is made up.
const README: u64 = 4;

/// What it says. A name that shows nothing is an error without words.
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

/// Cookies of `.` and `..`, in directories that are made up.
const COOKIE_DOT: u64 = 1;
const COOKIE_DOTDOT: u64 = 2;

const DIRECTORY_MODE: u32 = libc::S_IFDIR | 0o555;
const FILE_MODE: u32 = libc::S_IFREG | 0o444;

/// The mode of what has this number in a listing.
const fn mode_of(number: u64) -> u32 {
    if number == shown(0, README) { FILE_MODE } else { DIRECTORY_MODE }
}

/// What a hidden node is.
enum Node {
    /// A directory, or the file, that is made up.
    MadeUp(u64),
    /// A file in the past.
    Past(Arc<Slot>, Ino),
}

pub(crate) struct Hidden {
    past: Arc<dyn Past>,
    slots: Slots,
}

impl Hidden {
    pub(crate) fn new(past: Arc<dyn Past>) -> Self {
        Self { past, slots: Slots::default() }
    }

    fn node(&self, node: u64) -> Result<Node> {
        match split(node) {
            (0, ino @ TOP..=README) => Ok(Node::MadeUp(ino)),
            (0, _) => Err(Errno::STALE),
            (slot, ino) => {
                self.slots.get(slot).map(|slot| Node::Past(slot, Ino(ino))).ok_or(Errno::STALE)
            }
        }
    }

    /// The file system in which a file lies.
    fn open(&self, live: &Adapter, moment: Moment) -> Result<Arc<FileSystem>> {
        live.answer("opening the past", self.slots.open(&*self.past, moment))
    }

    /// The file system and the i-node of a node that is no directory that is made up.
    fn file(&self, live: &Adapter, node: u64, otherwise: Errno) -> Result<(Arc<FileSystem>, Ino)> {
        match self.node(node)? {
            Node::MadeUp(_) => Err(otherwise),
            Node::Past(slot, ino) => Ok((self.open(live, slot.moment)?, ino)),
        }
    }

    /// Attributes of what is made up: the root's, as far as they fit.
    fn made_up(live: &Adapter, ino: u64) -> Result<Attr> {
        let root = live.answer("getattr", live.fs().getattr(Ino::ROOT))?;
        let mut attr = convert::attributes(&root).attr;
        attr.ino = shown(0, ino);
        attr.mode = mode_of(attr.ino);
        (attr.nlink, attr.size_bytes) = match ino {
            TOP => (4, 0),
            README => (1, README_TEXT.len() as u64),
            _ => (2, 0),
        };
        attr.blocks_512 = 0;
        Ok(attr)
    }

    fn made_up_entry(live: &Adapter, ino: u64) -> Result<Entry> {
        Ok(Entry {
            node: node(0, ino).ok_or(Errno::OVERFLOW)?,
            generation: 0,
            entry_valid: NAME_VALID,
            attr: Self::made_up(live, ino)?,
            attr_valid: NAME_VALID,
        })
    }

    /// The directory itself, as LOOKUP answers it.
    pub(crate) fn entry(live: &Adapter) -> Result<Entry> {
        Self::made_up_entry(live, TOP)
    }

    pub(crate) fn lookup(&self, live: &Adapter, parent: u64, name: &[u8]) -> Result<Entry> {
        match (self.node(parent)?, name) {
            (Node::MadeUp(TOP), b"snapshots") => Self::made_up_entry(live, SNAPSHOTS),
            (Node::MadeUp(TOP), b"at") => Self::made_up_entry(live, AT),
            (Node::MadeUp(TOP), b"README") => Self::made_up_entry(live, README),
            (Node::MadeUp(README), _) => Err(Errno::NOTDIR),
            (Node::MadeUp(itself), b".") => Self::made_up_entry(live, itself),
            (Node::MadeUp(_), b"..") => Self::made_up_entry(live, TOP),
            (Node::MadeUp(SNAPSHOTS), _) => self.look_up_name(live, Place::Snapshots, name),
            (Node::MadeUp(AT), _) => self.look_up_name(live, Place::At, name),
            (Node::MadeUp(_), _) => Err(Errno::NOENT),
            (Node::Past(slot, ino), name) => {
                let fs = self.open(live, slot.moment)?;
                match fs.lookup(ino, name) {
                    Err(FsError::NotFound) => Ok(convert::absent()),
                    found => {
                        let attr = live.answer("lookup", found)?;
                        // Nobody can remove it, so nobody need hold it.
                        fs.forget(attr.ino, 1);
                        let entry = past_entry(&slot, &attr);
                        if entry.node == 0 {
                            return Err(Errno::OVERFLOW);
                        }
                        slot.hold();
                        Ok(entry)
                    }
                }
            }
        }
    }

    fn look_up_name(&self, live: &Adapter, place: Place, name: &[u8]) -> Result<Entry> {
        let text = std::str::from_utf8(name).map_err(|_| Errno::NOENT)?;
        let found = match place {
            Place::Snapshots => self.past.snapshot(text),
            Place::At => self.past.at(&live.fs(), text),
        };
        let moment = found.ok_or(Errno::NOENT)?;
        let fs = self.open(live, moment)?;
        let root = live.answer("lookup", fs.getattr(Ino::ROOT))?;
        let slot = self.slots.look_up(place, name, moment).ok_or(Errno::NFILE)?;
        let entry_valid = match place {
            // It may be deleted, and its name be given again, at any time.
            Place::Snapshots => Duration::ZERO,
            Place::At => NAME_VALID,
        };
        Ok(Entry { entry_valid, ..past_entry(&slot, &root) })
    }

    pub(crate) fn forget(&self, node: u64, count: u64) {
        let (slot, _) = split(node);
        self.slots.forget(slot, count);
    }

    pub(crate) fn getattr(&self, live: &Adapter, node: u64) -> Result<AttrReply> {
        match self.node(node)? {
            Node::MadeUp(ino) => {
                Ok(AttrReply { attr: Self::made_up(live, ino)?, valid: NAME_VALID })
            }
            Node::Past(slot, ino) => {
                let fs = self.open(live, slot.moment)?;
                let found = live.answer("getattr", fs.getattr(ino))?;
                let mut reply = convert::attributes(&found);
                reply.attr.ino = shown(slot.moment.epoch, ino.0);
                Ok(reply)
            }
        }
    }

    pub(crate) fn readlink(&self, live: &Adapter, node: u64, out: &mut [u8]) -> Result<usize> {
        let (fs, ino) = self.file(live, node, Errno::INVAL)?;
        let target = live.answer("readlink", fs.readlink(ino))?;
        Ok(copy_out(&target, out))
    }

    pub(crate) fn read(
        &self,
        live: &Adapter,
        node: u64,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize> {
        if let Node::MadeUp(README) = self.node(node)? {
            let from = usize::try_from(offset).map_or(README_TEXT.len(), |at| at);
            return Ok(copy_up_to(README_TEXT.get(from..).unwrap_or_default(), out));
        }
        let (fs, ino) = self.file(live, node, Errno::ISDIR)?;
        live.answer("read", fs.read(ino, offset, out))
    }

    pub(crate) fn lseek(&self, live: &Adapter, node: u64, offset: u64, seek: Seek) -> Result<u64> {
        let (fs, ino) = self.file(live, node, Errno::INVAL)?;
        live.answer("lseek", fs.lseek(ino, offset, seek))
    }

    /// The users' flags, which nobody can change here.
    pub(crate) fn ioctl(
        &self,
        live: &Adapter,
        node: u64,
        asked: Asked,
        out: &mut [u8],
    ) -> Result<()> {
        if matches!(asked, Asked::ToSet(_)) {
            return Err(Errno::ROFS);
        }
        let flags = match self.node(node)? {
            Node::MadeUp(_) => FileFlags::empty(),
            Node::Past(slot, ino) => {
                let fs = self.open(live, slot.moment)?;
                live.answer("ioctl", fs.getattr(ino))?.flags
            }
        };
        flags::tell(asked, flags, out)
    }

    pub(crate) fn getxattr(
        &self,
        live: &Adapter,
        node: u64,
        name: &[u8],
        out: &mut [u8],
    ) -> Result<usize> {
        let (fs, ino) = self.file(live, node, Errno::NODATA)?;
        let value = live.answer("getxattr", fs.getxattr(ino, name))?;
        Ok(copy_out(&value, out))
    }

    pub(crate) fn listxattr(&self, live: &Adapter, node: u64, out: &mut [u8]) -> Result<usize> {
        match self.node(node)? {
            Node::MadeUp(_) => Ok(0),
            Node::Past(slot, ino) => {
                let fs = self.open(live, slot.moment)?;
                let names = live.answer("listxattr", fs.listxattr(ino))?;
                Ok(copy_out(&names, out))
            }
        }
    }

    pub(crate) fn readdir(
        &self,
        live: &Adapter,
        node: u64,
        offset: u64,
        entries: &mut Entries<'_>,
    ) -> Result<()> {
        match self.node(node)? {
            Node::MadeUp(ino) => {
                check_listed(ino)?;
                self.list_made_up(live, ino, offset, &mut |ino, cookie, name| {
                    entries.add(ino, cookie, mode_of(ino), name)
                });
                Ok(())
            }
            Node::Past(slot, ino) => {
                let fs = self.open(live, slot.moment)?;
                let epoch = slot.moment.epoch;
                let answer = fs.readdir(ino, offset, &mut |entry| {
                    let number = shown(epoch, entry.ino.0);
                    entries.add(number, entry.cookie, entry.kind.mode_bits(), entry.name)
                });
                live.answer("readdir", answer)
            }
        }
    }

    pub(crate) fn readdirplus(
        &self,
        live: &Adapter,
        node: u64,
        offset: u64,
        entries: &mut EntriesPlus<'_>,
    ) -> Result<()> {
        match self.node(node)? {
            Node::MadeUp(ino) => {
                check_listed(ino)?;
                // Names alone: to look at each would open each view.
                let mut entry = Entry::absent(Duration::ZERO);
                self.list_made_up(live, ino, offset, &mut |ino, cookie, name| {
                    (entry.attr.ino, entry.attr.mode) = (ino, mode_of(ino));
                    entries.add(&entry, cookie, name)
                });
                Ok(())
            }
            Node::Past(slot, ino) => {
                let fs = self.open(live, slot.moment)?;
                let mut counted = Vec::new();
                let answer = fs.readdirplus(ino, offset, &mut |entry, attr| {
                    let found = past_entry(&slot, attr);
                    let is_taken = entries.add(&found, entry.cookie, entry.name);
                    if is_taken && !is_dot(&entry) {
                        counted.push(entry.ino);
                        if found.node != 0 {
                            slot.hold();
                        }
                    }
                    is_taken
                });
                counted.into_iter().for_each(|ino| fs.forget(ino, 1));
                live.answer("readdirplus", answer)
            }
        }
    }

    /// Passes the entries behind `offset` of a directory that is made up to `sink`, as number, cookie and
    /// name, until it takes no more. Cookies are epochs, so that they stay put.
    fn list_made_up(
        &self,
        live: &Adapter,
        ino: u64,
        offset: u64,
        sink: &mut dyn FnMut(u64, u64, &[u8]) -> bool,
    ) {
        let parent = if ino == TOP { Ino::ROOT.0 } else { shown(0, TOP) };
        let dots = [(shown(0, ino), COOKIE_DOT, "."), (parent, COOKIE_DOTDOT, "..")];
        let dots = dots.map(|(ino, cookie, name)| (ino, cookie, name.to_owned()));
        let moments = match ino {
            SNAPSHOTS => self.past.snapshots(),
            AT => self.past.moments(&live.fs()),
            _ => Vec::new(),
        };
        let below = |(number, name): (u64, &str)| {
            (shown(0, number), COOKIE_DOTDOT + number, name.to_owned())
        };
        let made_up = [(SNAPSHOTS, "snapshots"), (AT, "at"), (README, "README")].map(below);
        let mut entries: Vec<_> = match ino {
            TOP => made_up.into(),
            _ => moments
                .into_iter()
                .map(|(name, Moment { epoch, .. })| {
                    (shown(epoch, Ino::ROOT.0), COOKIE_DOTDOT.saturating_add(epoch), name)
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

/// Refuses to list what is no directory.
const fn check_listed(ino: u64) -> Result<()> {
    if ino == README { Err(Errno::NOTDIR) } else { Ok(()) }
}

/// Copies as much as there is room for; how much that is.
fn copy_up_to(bytes: &[u8], out: &mut [u8]) -> usize {
    let len = bytes.len().min(out.len());
    out[..len].copy_from_slice(&bytes[..len]);
    len
}

/// A file in the past, as LOOKUP answers it; one that has no node has node 0.
fn past_entry(slot: &Slot, attr: &dendro_fs::Attr) -> Entry {
    let mut entry = convert::entry(attr);
    entry.node = node(slot.number, attr.ino.0).unwrap_or(0);
    entry.attr.ino = shown(slot.moment.epoch, attr.ino.0);
    entry
}

fn is_dot(entry: &DirEntry<'_>) -> bool {
    entry.kind == FileKind::Directory && matches!(entry.name, b"." | b"..")
}
