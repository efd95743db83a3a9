//! Renaming.

use dendro_base::sync::{Arc, MutexGuard};

use crate::dir;
use crate::error::{FsError, Result};
use crate::filesystem::FileSystem;
use crate::format::HEAD_INDEX;
use crate::inode::Inode;
use crate::names::{Name, check_name, is_dots};
use crate::node::{Node, WriteGuard};
use crate::records::RecordEdits;
use crate::types::{Caller, FileKind, FileTime, Ino, RenameFlags};

/// More directories above one another than any path leads through: a loop.
const MAX_DEPTH: usize = 1 << 24;

/// A name in a directory.
#[derive(Clone, Copy)]
struct Place<'a> {
    parent: Ino,
    name: Name<'a>,
}

/// The directories that a rename changes, locked.
enum Dirs<'n> {
    Same(WriteGuard<'n>),
    Two { old: WriteGuard<'n>, new: WriteGuard<'n> },
}

impl<'n> Dirs<'n> {
    fn source(&self) -> &WriteGuard<'n> {
        match self {
            Self::Same(dir) | Self::Two { old: dir, .. } => dir,
        }
    }

    fn target(&self) -> &WriteGuard<'n> {
        match self {
            Self::Same(dir) | Self::Two { new: dir, .. } => dir,
        }
    }
}

/// The directories as they will be.
struct NewDirs {
    old: Inode,
    /// `None` when it is the same.
    new: Option<Inode>,
}

impl NewDirs {
    fn of(dirs: &Dirs<'_>, now: FileTime) -> Self {
        let edit = |dir: &WriteGuard<'_>| {
            let mut inode = dir.edit();
            (inode.mtime, inode.ctime) = (now, now);
            inode
        };
        match dirs {
            Dirs::Same(dir) => Self { old: edit(dir), new: None },
            Dirs::Two { old, new } => Self { old: edit(old), new: Some(edit(new)) },
        }
    }

    fn target(&mut self) -> &mut Inode {
        self.new.as_mut().unwrap_or(&mut self.old)
    }

    /// Counts a directory out of the old place, and another or none into it.
    fn move_links(&mut self, leaves_old: bool, enters_old: bool) -> Result<()> {
        let (gains, loses) = (leaves_old, enters_old);
        self.old.nlink = change_links(self.old.nlink, enters_old, leaves_old)?;
        self.target().nlink = change_links(self.target().nlink, gains, loses)?;
        Ok(())
    }
}

fn change_links(nlink: u32, gains: bool, loses: bool) -> Result<u32> {
    match (gains, loses) {
        (true, false) => nlink.checked_add(1).ok_or(FsError::TooManyLinks),
        (false, true) => Ok(nlink.saturating_sub(1)),
        (true, true) | (false, false) => Ok(nlink),
    }
}

impl FileSystem {
    /// Renames, replacing what has the new name unless `flags` say otherwise. The caller owns the
    /// whiteout.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `IsDirectory`, `NotEmpty`, `Exists`, `TooManyLinks`, `Invalid`
    /// when a directory would be moved into itself or the flags don't go together.
    pub fn rename(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        self.check_writable()?;
        check_name(name)?;
        check_name(new_name)?;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let others = flags.intersects(RenameFlags::NO_REPLACE | RenameFlags::WHITEOUT);
        if !(flags - RenameFlags::all()).is_empty() || (exchange && others) {
            return Err(FsError::Invalid("rename flags that do not go together"));
        }
        if is_dots(name) || is_dots(new_name) {
            return Err(FsError::Invalid("the names of directories for themselves stay"));
        }
        let old_node = self.node(parent);
        let new_node = self.node(new_parent);
        let topology = self.lock_topology(parent, new_parent)?;
        let dirs = self.lock_dirs(&old_node, &new_node, &topology)?;
        let (name, new_name) = (self.hasher.name(name), self.hasher.name(new_name));
        let places = (Place { parent, name }, Place { parent: new_parent, name: new_name });
        if exchange {
            self.exchange(dirs, places, &topology)
        } else {
            self.rename_over(caller, dirs, places, flags, topology)
        }
    }

    fn lock_topology(&self, old: Ino, new: Ino) -> Result<Topology<'_>> {
        if old == new {
            return Ok(Topology { _lock: None, above_old: vec![old], above_new: vec![new] });
        }
        let lock = self.rename_lock.lock();
        let above_old = self.path_up(old)?;
        let above_new = self.path_up(new)?;
        Ok(Topology { _lock: Some(lock), above_old, above_new })
    }

    /// The directory itself and all above it. The rename lock keeps the answer true.
    fn path_up(&self, ino: Ino) -> Result<Vec<Ino>> {
        let mut path = vec![ino];
        let mut last = ino;
        while last != Ino::ROOT {
            let node = self.node(last);
            let above = Ino(self.read_dir(&node)?.parent);
            path.push(above);
            last = above;
            if path.len() > MAX_DEPTH {
                return Err(FsError::Corrupted(format!("directory {ino} is in a loop")));
            }
        }
        Ok(path)
    }

    fn lock_dirs<'n>(
        &self,
        old: &'n Node,
        new: &'n Node,
        topology: &Topology<'_>,
    ) -> Result<Dirs<'n>> {
        if old.ino() == new.ino() {
            return Ok(Dirs::Same(self.write_dir(old)?));
        }
        let old_first = if topology.above_new.contains(&old.ino()) {
            true
        } else if topology.above_old.contains(&new.ino()) {
            false
        } else {
            old.ino() < new.ino()
        };
        if old_first {
            let old = self.write_dir(old)?;
            Ok(Dirs::Two { old, new: self.write_dir(new)? })
        } else {
            let new = self.write_dir(new)?;
            Ok(Dirs::Two { old: self.write_dir(old)?, new })
        }
    }

    fn rename_over(
        &self,
        caller: &Caller<'_>,
        dirs: Dirs<'_>,
        (old, new): (Place<'_>, Place<'_>),
        flags: RenameFlags,
        topology: Topology<'_>,
    ) -> Result<()> {
        let mut edits = self.edits();
        let source = self.find_entry(&mut edits, old.parent, old.name)?.ok_or(FsError::NotFound)?;
        let target = self.find_entry(&mut edits, new.parent, new.name)?;
        if target.is_some() && flags.contains(RenameFlags::NO_REPLACE) {
            return Err(FsError::Exists);
        }
        if target.is_some_and(|(ino, _)| ino == source.0) {
            return Ok(());
        }
        topology.check_source(source)?;
        if target.is_some_and(|(ino, _)| topology.above_old.contains(&ino)) {
            return Err(FsError::NotEmpty);
        }
        let source_node = self.node(source.0);
        let target_node = target.map(|(ino, _)| self.node(ino));
        let (mut source_guard, target_guard) = self.lock_children(
            (&source_node, old.parent),
            target_node.as_ref().map(|node| (node, new.parent)),
        )?;
        dirs.source().inode().check_rewritable()?;
        source_guard.inode().check_rewritable()?;
        if let Some(target) = &target_guard {
            self.check_replaceable(source_guard.inode(), target)?;
            dirs.target().inode().check_rewritable()?;
        }
        dirs.target().inode().check_changeable()?;

        let now = self.now();
        let mut aru = self.aru();
        let mut new_dirs = NewDirs::of(&dirs, now);
        let whiteout = if flags.contains(RenameFlags::WHITEOUT) {
            Some(self.new_whiteout(caller, dirs.source(), now, &mut edits, &mut aru)?)
        } else {
            None
        };
        let whiteout_ino = whiteout.as_ref().map(|(ino, _)| *ino);
        self.change_names(&mut edits, (old, new), (source, target), whiteout_ino, &mut new_dirs)?;
        let mut source_inode = source_guard.edit();
        (source_inode.ctime, source_inode.parent) = (now, new.parent.0);
        if source_inode.kind == FileKind::Directory {
            new_dirs.move_links(true, false)?;
        }
        let mut replaced = None;
        if let (Some(node), Some(guard)) = (&target_node, target_guard) {
            let mut inode = guard.edit();
            if inode.kind == FileKind::Directory {
                new_dirs.target().nlink = new_dirs.target().nlink.saturating_sub(1);
            }
            let fate = self.drop_name(&mut aru, node.ino(), &mut inode, now);
            replaced = Some((node, guard, inode, fate));
        }
        aru.put_record(source.0.lid(), HEAD_INDEX, source_inode.encode());
        self.commit_dirs(aru, edits, dirs, new_dirs)?;
        source_guard.set(source_inode);
        drop(source_guard);
        if let Some((ino, inode)) = whiteout {
            self.enter_new(ino, inode);
        }
        let Some((node, mut guard, inode, fate)) = replaced else { return Ok(()) };
        self.enter_fate(&mut guard, inode, fate);
        drop((guard, topology));
        self.finish_fate(node, fate);
        Ok(())
    }

    /// Puts `source` under the new name, in the place of `target` if there is one, and a whiteout
    /// or nothing under the old name.
    fn change_names(
        &self,
        edits: &mut RecordEdits<'_>,
        (old, new): (Place<'_>, Place<'_>),
        (source, target): ((Ino, FileKind), Option<(Ino, FileKind)>),
        whiteout: Option<Ino>,
        new_dirs: &mut NewDirs,
    ) -> Result<()> {
        let record = edits.load(old.parent.lid(), old.name.index)?;
        if let Some(whiteout) = whiteout {
            dir::replace(record, old.name.bytes, whiteout, FileKind::CharDevice)?;
        } else {
            dir::remove(record, old.name.bytes)?;
            let len = dir::entry_len(old.name.bytes) as u64;
            new_dirs.old.size = new_dirs.old.size.saturating_sub(len);
        }
        let record = edits.load(new.parent.lid(), new.name.index)?;
        if target.is_some() {
            dir::replace(record, new.name.bytes, source.0, source.1)?;
        } else {
            dir::insert(record, new.name.bytes, source.0, source.1)?;
            let len = dir::entry_len(new.name.bytes) as u64;
            new_dirs.target().size = new_dirs.target().size.saturating_add(len);
        }
        Ok(())
    }

    fn exchange(
        &self,
        dirs: Dirs<'_>,
        (old, new): (Place<'_>, Place<'_>),
        topology: &Topology<'_>,
    ) -> Result<()> {
        let mut edits = self.edits();
        let one = self.find_entry(&mut edits, old.parent, old.name)?.ok_or(FsError::NotFound)?;
        let other = self.find_entry(&mut edits, new.parent, new.name)?.ok_or(FsError::NotFound)?;
        if one.0 == other.0 {
            return Ok(());
        }
        topology.check_source(one)?;
        if topology.above_old.contains(&other.0) {
            return Err(FsError::Invalid("a directory would be in itself"));
        }
        let (one_node, other_node) = (self.node(one.0), self.node(other.0));
        let (mut one_guard, other_guard) =
            self.lock_children((&one_node, old.parent), Some((&other_node, new.parent)))?;
        let mut other_guard = other_guard.ok_or(FsError::NotFound)?;
        for inode in
            [dirs.source().inode(), dirs.target().inode(), one_guard.inode(), other_guard.inode()]
        {
            inode.check_rewritable()?;
        }
        let now = self.now();
        let record = edits.load(old.parent.lid(), old.name.index)?;
        dir::replace(record, old.name.bytes, other.0, other.1)?;
        let record = edits.load(new.parent.lid(), new.name.index)?;
        dir::replace(record, new.name.bytes, one.0, one.1)?;
        let mut new_dirs = NewDirs::of(&dirs, now);
        let (mut one_inode, mut other_inode) = (one_guard.edit(), other_guard.edit());
        (one_inode.ctime, other_inode.ctime) = (now, now);
        let [one_is_dir, other_is_dir] =
            [&one_inode, &other_inode].map(|inode| inode.kind == FileKind::Directory);
        (one_inode.parent, other_inode.parent) = (new.parent.0, old.parent.0);
        new_dirs.move_links(one_is_dir, other_is_dir)?;
        let mut aru = self.aru();
        aru.put_record(one.0.lid(), HEAD_INDEX, one_inode.encode());
        aru.put_record(other.0.lid(), HEAD_INDEX, other_inode.encode());
        self.commit_dirs(aru, edits, dirs, new_dirs)?;
        one_guard.set(one_inode);
        other_guard.set(other_inode);
        Ok(())
    }

    /// Refuses to put `source` in the place of `target`.
    fn check_replaceable(&self, source: &Inode, target: &WriteGuard<'_>) -> Result<()> {
        target.inode().check_rewritable()?;
        match (source.kind, target.inode().kind) {
            (FileKind::Directory, FileKind::Directory) => self.check_empty(target),
            (FileKind::Directory, _) => Err(FsError::NotDirectory),
            (_, FileKind::Directory) => Err(FsError::IsDirectory),
            _ => Ok(()),
        }
    }

    /// Locks the files that two entries name: directories first, then by number.
    fn lock_children<'n>(
        &self,
        (one, one_parent): (&'n Arc<Node>, Ino),
        other: Option<(&'n Arc<Node>, Ino)>,
    ) -> Result<(WriteGuard<'n>, Option<WriteGuard<'n>>)> {
        let Some((other, other_parent)) = other else {
            return Ok((self.write_named(one, one_parent)?, None));
        };
        let rank = |node: &Node| -> Result<(bool, Ino)> {
            let (inode, _) = node.read_remembered(&*self.disk, self.view)?;
            Ok((inode.kind != FileKind::Directory, node.ino()))
        };
        if rank(one)? < rank(other)? {
            let one = self.write_named(one, one_parent)?;
            Ok((one, Some(self.write_named(other, other_parent)?)))
        } else {
            let other = self.write_named(other, other_parent)?;
            Ok((self.write_named(one, one_parent)?, Some(other)))
        }
    }

    fn commit_dirs(
        &self,
        mut aru: dendro_disk::Aru<'_>,
        edits: RecordEdits<'_>,
        dirs: Dirs<'_>,
        new_dirs: NewDirs,
    ) -> Result<()> {
        match (dirs, new_dirs.new) {
            (Dirs::Two { mut old, mut new }, Some(new_inode)) => {
                aru.put_record(old.ino().lid(), HEAD_INDEX, new_dirs.old.encode());
                self.commit_edits(aru, edits, &mut new, new_inode)?;
                old.set(new_dirs.old);
                Ok(())
            }
            (Dirs::Same(mut dir), _) => self.commit_edits(aru, edits, &mut dir, new_dirs.old),
            (Dirs::Two { .. }, None) => unreachable!("two directories have two new states"),
        }
    }
}

/// What is above the directories of a rename, kept true by the rename lock where they differ.
struct Topology<'a> {
    _lock: Option<MutexGuard<'a, ()>>,
    /// The old directory and all above it; within one directory, itself alone.
    above_old: Vec<Ino>,
    /// Likewise for the new directory.
    above_new: Vec<Ino>,
}

impl Topology<'_> {
    /// Refuses to move a directory into itself.
    fn check_source(&self, (ino, _): (Ino, FileKind)) -> Result<()> {
        if self.above_new.contains(&ino) {
            return Err(FsError::Invalid("a directory would be in itself"));
        }
        Ok(())
    }
}
