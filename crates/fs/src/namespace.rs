//! Names: finding, making, linking and removing files.

use dendro_base::sync::Arc;
use dendro_disk::{Aru, ListHints, PAGE_SIZE};

use crate::acl::Acl;
use crate::dir;
use crate::error::{FsError, Result};
use crate::filesystem::FileSystem;
use crate::format::{HEAD_INDEX, ORPHAN_REMOVE};
use crate::inode::{Inode, MAX_INLINE_LINK_LEN, State};
use crate::names::{Name, check_name, check_new_name, is_dots};
use crate::node::{Node, ReadGuard, WriteGuard};
use crate::orphan;
use crate::records::RecordEdits;
use crate::types::{Attr, Caller, FileKind, FileTime, Ino, MAX_SYMLINK_LEN_BYTES, OpenOptions};
use crate::xattr;

/// The set-group-id bit: on a directory, what is made in it gets its group.
pub(crate) const S_ISGID: u32 = 0o2000;

/// What to make.
struct NewFile<'a> {
    kind: FileKind,
    perm: u32,
    rdev: u32,
    /// A symbolic link's target.
    target: &'a [u8],
}

impl NewFile<'_> {
    const fn plain(kind: FileKind, perm: u32) -> Self {
        Self { kind, perm, rdev: 0, target: &[] }
    }
}

impl FileSystem {
    /// Finds an entry. `.` and `..` are known too; anything that is there has a `.`, which is how the
    /// kernel finds again what a file handle names. Counts a lookup.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `NameTooLong`; `Stale` for `.` of what is not there.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        check_name(name)?;
        if name == b"." {
            let attr = self.getattr(parent)?;
            self.refs.add_lookup(parent);
            return Ok(attr);
        }
        let dir_node = self.node(parent);
        let dir = self.read_dir(&dir_node)?;
        if is_dots(name) {
            let ino = Ino(dir.parent);
            // Upwards is against the lock order.
            drop(dir);
            let attr = self.getattr(ino)?;
            self.refs.add_lookup(ino);
            return Ok(attr);
        }
        let (ino, _) = self
            .find_entry(&mut self.edits(), parent, self.hasher.name(name))?
            .ok_or(FsError::NotFound)?;
        let node = self.node(ino);
        let attr = self.attr_of(&node, &*self.read_named(&node, parent)?);
        self.refs.add_lookup(ino);
        Ok(attr)
    }

    /// Takes `count` lookups back.
    pub fn forget(&self, ino: Ino, count: u64) {
        if let Some(gone) = self.refs.drop_lookups(ino, count) {
            gone.forget_gone();
        }
        self.reap(ino);
    }

    /// Makes a file of any kind but directory and symbolic link; `mode` has the type's bits too
    /// (none: a regular file). Counts a lookup.
    ///
    /// # Errors
    /// `Exists`, `NotDirectory`, `NameTooLong`, `Invalid`.
    pub fn mknod(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Attr> {
        let kind = match mode & 0o170_000 {
            0 => FileKind::Regular,
            bits => FileKind::from_mode(bits).ok_or(FsError::Invalid("unknown type"))?,
        };
        let rdev = match kind {
            FileKind::CharDevice | FileKind::BlockDevice => rdev,
            FileKind::Fifo | FileKind::Regular | FileKind::Socket => 0,
            FileKind::Directory | FileKind::Symlink => {
                return Err(FsError::Invalid("mknod makes no directories or links"));
            }
        };
        let new = NewFile { rdev, ..NewFile::plain(kind, mode) };
        self.make(caller, parent, name, &new)
    }

    /// Makes a directory. Counts a lookup.
    ///
    /// # Errors
    /// As [`Self::mknod`], and `TooManyLinks`.
    pub fn mkdir(&self, caller: &Caller<'_>, parent: Ino, name: &[u8], mode: u32) -> Result<Attr> {
        self.make(caller, parent, name, &NewFile::plain(FileKind::Directory, mode))
    }

    /// Makes a symbolic link to `target`, 1 to 4095 bytes. Counts a lookup.
    ///
    /// # Errors
    /// As [`Self::mknod`].
    pub fn symlink(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attr> {
        if target.is_empty() {
            return Err(FsError::NotFound);
        }
        if target.len() > MAX_SYMLINK_LEN_BYTES {
            return Err(FsError::NameTooLong);
        }
        let new = NewFile { target, ..NewFile::plain(FileKind::Symlink, 0o777) };
        self.make(caller, parent, name, &new)
    }

    /// Makes a regular file and opens it, or opens the one that is there. Counts a lookup and an
    /// open.
    ///
    /// # Errors
    /// As [`Self::mknod`] and [`Self::open`].
    pub fn create(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        name: &[u8],
        mode: u32,
        options: OpenOptions,
    ) -> Result<Attr> {
        self.check_writable()?;
        check_new_name(name)?;
        let name = self.hasher.name(name);
        let dir_node = self.node(parent);
        let mut dir = self.write_dir(&dir_node)?;
        let mut edits = self.edits();
        if let Some((ino, kind)) = self.find_entry(&mut edits, parent, name)? {
            drop(dir);
            return match kind {
                _ if options.exclusive => Err(FsError::Exists),
                FileKind::Regular => {
                    self.open(ino, options)?;
                    self.refs.add_lookup(ino);
                    self.getattr(ino)
                }
                FileKind::Directory => Err(FsError::IsDirectory),
                _ => Err(FsError::Exists),
            };
        }
        let new = NewFile::plain(FileKind::Regular, mode);
        let attr = self.make_in(caller, &mut dir, name, &new, edits)?;
        self.refs.add_open(attr.ino);
        Ok(attr)
    }

    /// Makes a regular file without a name in `parent`'s file system and opens it (`O_TMPFILE`).
    /// It is gone when closed, unless it was linked. Counts a lookup and an open.
    ///
    /// # Errors
    /// `NotDirectory`.
    pub fn tmpfile(&self, caller: &Caller<'_>, parent: Ino, mode: u32) -> Result<Attr> {
        self.check_writable()?;
        let dir_node = self.node(parent);
        let dir = self.read_dir(&dir_node)?;
        let ino = Ino(self.disk.allocate_list()?.0);
        let new = NewFile::plain(FileKind::Regular, mode);
        let mut edits = self.edits();
        let inode = self.new_inode(caller, (parent, &dir), ino, &new, self.now(), &mut edits)?;
        drop(dir);
        let mut aru = self.aru();
        aru.create_list(ino.lid(), ListHints::default());
        aru.put_record(ino.lid(), HEAD_INDEX, inode.encode());
        edits.apply(&mut aru);
        orphan::enter(&mut aru, ino, ORPHAN_REMOVE);
        self.disk.commit(aru)?;
        let attr = inode.attr(ino);
        self.orphans.lock().insert(ino, true);
        self.refs.add_lookup(ino);
        self.refs.add_open(ino);
        self.node(ino).fill(inode);
        Ok(attr)
    }

    /// Gives a file one more name; one that [`Self::tmpfile`] made gets its first. Counts a lookup.
    ///
    /// # Errors
    /// As [`Self::mknod`]; `NotPermitted` for a directory; `NotFound` for a file that was
    /// unlinked; `TooManyLinks`.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.check_writable()?;
        check_new_name(name)?;
        let dir_node = self.node(parent);
        let node = self.node(ino);
        // A directory among the files could be above `parent`: look before locking in that order.
        if self.read_live(&node)?.kind == FileKind::Directory {
            return Err(FsError::NotPermitted("directories have one name"));
        }
        if ino == parent {
            return Err(FsError::NotDirectory);
        }
        let mut dir = self.write_dir(&dir_node)?;
        let mut guard = node.write(&*self.disk, self.view)?;
        let now = self.now();
        let mut inode = guard.edit();
        inode.check_rewritable()?;
        let name = self.hasher.name(name);
        let mut edits = self.edits();
        if self.find_entry(&mut edits, parent, name)?.is_some() {
            return Err(FsError::Exists);
        }
        let is_unnamed = inode.nlink == 0;
        if is_unnamed && self.orphans.lock().get(&ino) != Some(&true) {
            return Err(FsError::NotFound);
        }
        inode.nlink = inode.nlink.checked_add(1).ok_or(FsError::TooManyLinks)?;
        (inode.ctime, inode.parent) = (now, parent.0);
        let mut aru = self.aru();
        if is_unnamed {
            orphan::leave(&mut aru, ino);
            if inode.state.contains(State::TRUNCATING) {
                orphan::enter(&mut aru, ino, crate::format::ORPHAN_TRUNCATE);
            }
        }
        let new_dir = self.add_entry(&mut edits, &dir, name, (ino, inode.kind), now)?;
        aru.put_record(ino.lid(), HEAD_INDEX, inode.encode());
        self.commit_edits(aru, edits, &mut dir, new_dir)?;
        if is_unnamed {
            self.orphans.lock().remove(&ino);
        }
        let attr = inode.attr(ino);
        guard.set(inode);
        self.refs.add_lookup(ino);
        Ok(attr)
    }

    /// Takes a name of anything but a directory away, and the file with its last name unless it
    /// is open.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `IsDirectory`, `NotPermitted`.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.remove(parent, name, false)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `NotEmpty`, `Invalid` for `.`.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        match name {
            b"." => Err(FsError::Invalid("a directory cannot remove itself")),
            b".." => Err(FsError::NotEmpty),
            _ => self.remove(parent, name, true),
        }
    }

    fn remove(&self, parent: Ino, name: &[u8], directory: bool) -> Result<()> {
        self.check_writable()?;
        check_name(name)?;
        let dir_node = self.node(parent);
        let mut dir = self.write_dir(&dir_node)?;
        let name = self.hasher.name(name);
        let mut edits = self.edits();
        let (ino, kind) = self.find_entry(&mut edits, parent, name)?.ok_or(FsError::NotFound)?;
        match (kind == FileKind::Directory, directory) {
            (true, false) => return Err(FsError::IsDirectory),
            (false, true) => return Err(FsError::NotDirectory),
            (true, true) | (false, false) => (),
        }
        let node = self.node(ino);
        let mut guard = self.write_named(&node, parent)?;
        dir.inode().check_rewritable()?;
        guard.inode().check_rewritable()?;
        if directory {
            self.check_empty(&guard)?;
        }
        let now = self.now();
        let mut aru = self.aru();
        let mut new_dir = self.take_entry(&mut edits, &dir, name, now)?;
        if directory {
            new_dir.nlink = new_dir.nlink.saturating_sub(1);
        }
        let mut child = guard.edit();
        let fate = self.drop_name(&mut aru, ino, &mut child, now);
        self.commit_edits(aru, edits, &mut dir, new_dir)?;
        self.enter_fate(&mut guard, child, fate);
        drop((guard, dir));
        self.finish_fate(&node, fate);
        Ok(())
    }

    fn make(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        name: &[u8],
        new: &NewFile<'_>,
    ) -> Result<Attr> {
        self.check_writable()?;
        check_new_name(name)?;
        let dir_node = self.node(parent);
        let mut dir = self.write_dir(&dir_node)?;
        let name = self.hasher.name(name);
        let mut edits = self.edits();
        if self.find_entry(&mut edits, parent, name)?.is_some() {
            return Err(FsError::Exists);
        }
        self.make_in(caller, &mut dir, name, new, edits)
    }

    /// Makes a file under a name that is free, as `edits` have found.
    fn make_in(
        &self,
        caller: &Caller<'_>,
        dir: &mut WriteGuard<'_>,
        name: Name<'_>,
        new: &NewFile<'_>,
        mut edits: RecordEdits<'_>,
    ) -> Result<Attr> {
        dir.inode().check_changeable()?;
        let now = self.now();
        let parent = dir.ino();
        let ino = Ino(self.disk.allocate_list()?.0);
        let mut new_dir = self.add_entry(&mut edits, dir, name, (ino, new.kind), now)?;
        let mut inode = self.new_inode(caller, (parent, dir.inode()), ino, new, now, &mut edits)?;
        (inode.nlink, inode.parent) = (1, parent.0);
        if new.kind == FileKind::Directory {
            inode.nlink = 2;
            new_dir.nlink = new_dir.nlink.checked_add(1).ok_or(FsError::TooManyLinks)?;
        }
        let mut aru = self.aru();
        aru.create_list(ino.lid(), ListHints::default());
        if new.kind == FileKind::Symlink {
            set_target(&mut aru, ino, &mut inode, new.target);
        }
        aru.put_record(ino.lid(), HEAD_INDEX, inode.encode());
        self.commit_edits(aru, edits, dir, new_dir)?;
        let attr = inode.attr(ino);
        self.refs.add_lookup(ino);
        self.node(ino).fill(inode);
        Ok(attr)
    }

    /// A new file as its directory and caller shape it: group, mode, ACLs and labels. It has no
    /// name yet.
    fn new_inode(
        &self,
        caller: &Caller<'_>,
        (parent, dir): (Ino, &Inode),
        ino: Ino,
        new: &NewFile<'_>,
        now: FileTime,
        edits: &mut RecordEdits<'_>,
    ) -> Result<Inode> {
        let mut inode = Inode::new(new.kind, new.perm, now);
        inode.uid = caller.uid;
        inode.gid = caller.gid;
        inode.rdev = new.rdev;
        if dir.perm & S_ISGID != 0 {
            inode.gid = dir.gid;
            if new.kind == FileKind::Directory {
                inode.perm |= S_ISGID;
            }
        }
        if new.kind != FileKind::Symlink {
            self.inherit_acl(caller.umask, (parent, dir), (ino, &mut inode), edits)?;
        }
        for (name, value) in caller.labels {
            xattr::check_label(name, value)?;
            self.put_xattr(edits, ino, &mut inode, name, Some(value))?;
        }
        Ok(inode)
    }

    /// Gives a new file what its directory's default ACL says or, if that has none, takes the mask's
    /// bits from its mode.
    fn inherit_acl(
        &self,
        umask: u32,
        (parent, dir): (Ino, &Inode),
        (ino, inode): (Ino, &mut Inode),
        edits: &mut RecordEdits<'_>,
    ) -> Result<()> {
        let default = match dir.xattr_names_len {
            0 => None,
            _ => xattr::get(&*self.disk, self.view, &self.hasher, parent, xattr::ACL_DEFAULT)?,
        };
        let Some(default) = default else {
            inode.perm &= !(umask & 0o777);
            return Ok(());
        };
        let mut acl = Acl::decode(&default)
            .ok()
            .flatten()
            .ok_or_else(|| FsError::Corrupted(format!("i-node {parent} has a malformed ACL")))?;
        inode.perm = acl.inherit(inode.perm);
        if !acl.is_minimal() {
            self.put_xattr(edits, ino, inode, xattr::ACL_ACCESS, Some(&acl.encode()))?;
        }
        if inode.kind == FileKind::Directory {
            self.put_xattr(edits, ino, inode, xattr::ACL_DEFAULT, Some(&default))?;
        }
        Ok(())
    }

    /// What `name` names in the directory `parent`, which the caller has locked. A change of its entry
    /// by the same `edits` reads nothing more.
    pub(crate) fn find_entry(
        &self,
        edits: &mut RecordEdits<'_>,
        parent: Ino,
        name: Name<'_>,
    ) -> Result<Option<(Ino, FileKind)>> {
        let record = edits.peek(parent.lid(), name.index)?;
        Ok(dir::find(record, name.bytes)?.map(|entry| (entry.ino, entry.kind)))
    }

    /// Adds an entry that is not there, and answers the directory as it will be.
    pub(crate) fn add_entry(
        &self,
        edits: &mut RecordEdits<'_>,
        dir: &WriteGuard<'_>,
        name: Name<'_>,
        (ino, kind): (Ino, FileKind),
        now: FileTime,
    ) -> Result<Inode> {
        dir.inode().check_changeable()?;
        let mut new_dir = dir.edit();
        let record = edits.load(dir.ino().lid(), name.index)?;
        dir::insert(record, name.bytes, ino, kind)?;
        new_dir.size = new_dir.size.saturating_add(dir::entry_len(name.bytes) as u64);
        (new_dir.mtime, new_dir.ctime) = (now, now);
        Ok(new_dir)
    }

    /// Takes an entry away that is there, and answers the directory as it will be.
    pub(crate) fn take_entry(
        &self,
        edits: &mut RecordEdits<'_>,
        dir: &WriteGuard<'_>,
        name: Name<'_>,
        now: FileTime,
    ) -> Result<Inode> {
        let mut new_dir = dir.edit();
        let record = edits.load(dir.ino().lid(), name.index)?;
        if !dir::remove(record, name.bytes)? {
            return Err(FsError::Corrupted(format!("directory {} lost an entry", dir.ino())));
        }
        new_dir.size = new_dir.size.saturating_sub(dir::entry_len(name.bytes) as u64);
        (new_dir.mtime, new_dir.ctime) = (now, now);
        Ok(new_dir)
    }

    /// Refuses a directory that has entries.
    pub(crate) fn check_empty(&self, dir: &WriteGuard<'_>) -> Result<()> {
        let lid = dir.ino().lid();
        let first = self.disk.records(self.view, lid, crate::format::DIR_BASE, 1)?;
        if first.is_empty() { Ok(()) } else { Err(FsError::NotEmpty) }
    }

    /// Locks a file for reading.
    pub(crate) fn read_live<'n>(&self, node: &'n Node) -> Result<ReadGuard<'n>> {
        node.read(&*self.disk, self.view)
    }

    /// Locks a directory for reading. One that was removed has no entries, and gets none.
    pub(crate) fn read_dir<'n>(&self, node: &'n Node) -> Result<ReadGuard<'n>> {
        let (guard, is_gone) = node.read_remembered(&*self.disk, self.view)?;
        guard.check_directory()?;
        if is_gone { Err(FsError::NotFound) } else { Ok(guard) }
    }

    /// Locks a directory for changing.
    pub(crate) fn write_dir<'n>(&self, node: &'n Node) -> Result<WriteGuard<'n>> {
        match node.write(&*self.disk, self.view) {
            Ok(guard) => guard.inode().check_directory().map(|()| guard),
            Err(FsError::Stale) => Err(self.read_dir(node).err().unwrap_or(FsError::Stale)),
            Err(error) => Err(error),
        }
    }

    /// Locks a file for reading that an entry names, whose directory is locked: it must be there.
    fn read_named<'n>(&self, node: &'n Node, parent: Ino) -> Result<ReadGuard<'n>> {
        check_no_loop(node.ino(), parent)?;
        self.read_live(node).map_err(|error| dangling(node.ino(), error))
    }

    /// Locks a file for changing that an entry of `parent` names, which is locked.
    pub(crate) fn write_named<'n>(&self, node: &'n Node, parent: Ino) -> Result<WriteGuard<'n>> {
        check_no_loop(node.ino(), parent)?;
        node.write(&*self.disk, self.view).map_err(|error| dangling(node.ino(), error))
    }

    /// What callers get to see of a locked i-node.
    pub(crate) fn attr_of(&self, node: &Node, inode: &Inode) -> Attr {
        let mut attr = inode.attr(node.ino());
        if let Some(atime) = node.pending_atime() {
            attr.atime = atime;
        }
        attr
    }

    /// A whiteout for rename: a character device 0:0 that nobody can use.
    pub(crate) fn new_whiteout(
        &self,
        caller: &Caller<'_>,
        dir: &WriteGuard<'_>,
        now: FileTime,
        edits: &mut RecordEdits<'_>,
        aru: &mut Aru<'_>,
    ) -> Result<(Ino, Inode)> {
        let ino = Ino(self.disk.allocate_list()?.0);
        let new = NewFile::plain(FileKind::CharDevice, 0);
        let mut inode = self.new_inode(caller, (dir.ino(), dir.inode()), ino, &new, now, edits)?;
        inode.nlink = 1;
        aru.create_list(ino.lid(), ListHints::default());
        aru.put_record(ino.lid(), HEAD_INDEX, inode.encode());
        Ok((ino, inode))
    }

    /// Enters a file in memory that was just made.
    pub(crate) fn enter_new(&self, ino: Ino, inode: Inode) {
        let node: Arc<Node> = self.node(ino);
        node.fill(inode);
    }
}

/// Refuses an entry of `parent` that names what is above it: locking it would never end.
fn check_no_loop(ino: Ino, parent: Ino) -> Result<()> {
    if ino == parent || ino == Ino::ROOT {
        return Err(FsError::Corrupted(format!("directory {parent} has a loop")));
    }
    Ok(())
}

/// An entry that names nothing is damage, not a race.
fn dangling(ino: Ino, error: FsError) -> FsError {
    match error {
        FsError::Stale => FsError::Corrupted(format!("an entry names i-node {ino}: not there")),
        other => other,
    }
}

/// Stores a symbolic link's target.
fn set_target<'a>(aru: &mut Aru<'a>, ino: Ino, inode: &mut Inode, target: &'a [u8]) {
    const { assert!(MAX_SYMLINK_LEN_BYTES <= PAGE_SIZE) };
    inode.size = target.len() as u64;
    if target.len() <= MAX_INLINE_LINK_LEN {
        inode.state |= State::INLINE;
        inode.inline = target.to_vec();
    } else {
        inode.pages = 1;
        aru.write_pages(ino.lid(), 0, target);
    }
}
