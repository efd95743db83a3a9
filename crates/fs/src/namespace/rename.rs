//! Renaming.

use dendro_base::sync::{Arc, MutexGuard};
use dendro_disk::Aru;

use super::{create, entries};
use crate::error::{FsError, Result};
use crate::layout::dirent;
use crate::layout::format::HEAD_INDEX;
use crate::layout::inode::Inode;
use crate::layout::names::{Name, check_name, is_dots};
use crate::layout::record_edits::RecordEdits;
use crate::orphans;
use crate::state::{FsState, Node, WriteGuard};
use crate::types::{Caller, FileKind, FileTime, Ino, RenameFlags};

/// The most directories above one another. More mean that the directories have a loop.
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

/// The new states of the directories.
struct NewDirs {
    old: Inode,
    /// `None` if there is only one directory.
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

    /// Changes the link counts for a directory that leaves the old directory, and for one that
    /// enters it in exchange.
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

/// See [`crate::FileSystem::rename`].
pub(crate) fn rename(
    fs: &FsState,
    caller: &Caller<'_>,
    parent: Ino,
    name: &[u8],
    new_parent: Ino,
    new_name: &[u8],
    flags: RenameFlags,
) -> Result<()> {
    fs.check_writable()?;
    check_name(name)?;
    check_name(new_name)?;
    let is_exchange = flags.contains(RenameFlags::EXCHANGE);
    let others = flags.intersects(RenameFlags::NO_REPLACE | RenameFlags::WHITEOUT);
    if !(flags - RenameFlags::all()).is_empty() || (is_exchange && others) {
        return Err(FsError::Invalid("rename flags that do not go together"));
    }
    if is_dots(name) || is_dots(new_name) {
        return Err(FsError::Invalid("the names of directories for themselves stay"));
    }
    let old_node = fs.node(parent);
    let new_node = fs.node(new_parent);
    let topology = lock_topology(fs, parent, new_parent)?;
    let dirs = lock_dirs(fs, &old_node, &new_node, &topology)?;
    let (name, new_name) = (fs.name(name), fs.name(new_name));
    let places = (Place { parent, name }, Place { parent: new_parent, name: new_name });
    if is_exchange {
        exchange(fs, dirs, places, &topology)
    } else {
        rename_over(fs, caller, dirs, places, flags, topology)
    }
}

fn lock_topology(fs: &FsState, old: Ino, new: Ino) -> Result<Topology<'_>> {
    if old == new {
        return Ok(Topology { _lock: None, above_old: vec![old], above_new: vec![new] });
    }
    let lock = fs.lock_renames();
    let above_old = path_up(fs, old)?;
    let above_new = path_up(fs, new)?;
    Ok(Topology { _lock: Some(lock), above_old, above_new })
}

/// The directory itself and all above it. That does not change while renames are locked.
fn path_up(fs: &FsState, ino: Ino) -> Result<Vec<Ino>> {
    let mut path = vec![ino];
    let mut last = ino;
    while last != Ino::ROOT {
        let node = fs.node(last);
        let above = Ino(fs.read_directory(&node)?.parent);
        path.push(above);
        last = above;
        if path.len() > MAX_DEPTH {
            return Err(FsError::Corrupted(format!("directory {ino} is in a loop")));
        }
    }
    Ok(path)
}

fn lock_dirs<'n>(
    fs: &FsState,
    old: &'n Node,
    new: &'n Node,
    topology: &Topology<'_>,
) -> Result<Dirs<'n>> {
    if old.ino() == new.ino() {
        return Ok(Dirs::Same(fs.write_directory(old)?));
    }
    let old_first = if topology.above_new.contains(&old.ino()) {
        true
    } else if topology.above_old.contains(&new.ino()) {
        false
    } else {
        old.ino() < new.ino()
    };
    if old_first {
        let old = fs.write_directory(old)?;
        Ok(Dirs::Two { old, new: fs.write_directory(new)? })
    } else {
        let new = fs.write_directory(new)?;
        Ok(Dirs::Two { old: fs.write_directory(old)?, new })
    }
}

fn rename_over(
    fs: &FsState,
    caller: &Caller<'_>,
    dirs: Dirs<'_>,
    (old, new): (Place<'_>, Place<'_>),
    flags: RenameFlags,
    topology: Topology<'_>,
) -> Result<()> {
    let mut edits = fs.edits();
    let source = entries::find(&mut edits, old.parent, old.name)?.ok_or(FsError::NotFound)?;
    let target = entries::find(&mut edits, new.parent, new.name)?;
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
    let source_node = fs.node(source.0);
    let target_node = target.map(|(ino, _)| fs.node(ino));
    let (mut source_guard, target_guard) = lock_children(
        fs,
        (&source_node, old.parent),
        target_node.as_ref().map(|node| (node, new.parent)),
    )?;
    check_allowed(fs, &dirs, source_guard.inode(), target_guard.as_ref())?;

    let now = fs.now();
    let mut aru = fs.aru();
    let mut new_dirs = NewDirs::of(&dirs, now);
    let whiteout = if flags.contains(RenameFlags::WHITEOUT) {
        Some(create::new_whiteout(fs, caller, dirs.source(), now, &mut edits, &mut aru)?)
    } else {
        None
    };
    let whiteout_ino = whiteout.as_ref().map(|(ino, _)| *ino);
    change_names(&mut edits, (old, new), (source, target), whiteout_ino, &mut new_dirs)?;
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
        let fate = orphans::drop_name(fs, &mut aru, node.ino(), &mut inode, now);
        replaced = Some((node, guard, inode, fate));
    }
    aru.put_record(source.0.lid(), HEAD_INDEX, source_inode.encode());
    commit_dirs(fs, aru, edits, dirs, new_dirs)?;
    source_guard.set(source_inode);
    drop(source_guard);
    if let Some((ino, inode)) = whiteout {
        fs.add_new(ino, inode);
    }
    let Some((node, mut guard, inode, fate)) = replaced else { return Ok(()) };
    orphans::store_fate(fs, &mut guard, inode, fate);
    drop((guard, topology));
    orphans::finish_fate(fs, node, fate);
    Ok(())
}

/// Changes the entries: the new name names `source`, in place of `target` if there is one. The old
/// name names the whiteout, or does not exist any more.
fn change_names(
    edits: &mut RecordEdits<'_>,
    (old, new): (Place<'_>, Place<'_>),
    (source, target): ((Ino, FileKind), Option<(Ino, FileKind)>),
    whiteout: Option<Ino>,
    new_dirs: &mut NewDirs,
) -> Result<()> {
    let record = edits.load(old.parent.lid(), old.name.index)?;
    if let Some(whiteout) = whiteout {
        dirent::replace(record, old.name.bytes, whiteout, FileKind::CharDevice)?;
    } else {
        dirent::remove(record, old.name.bytes)?;
        let len = dirent::entry_len(old.name.bytes) as u64;
        new_dirs.old.size = new_dirs.old.size.saturating_sub(len);
    }
    let record = edits.load(new.parent.lid(), new.name.index)?;
    if target.is_some() {
        dirent::replace(record, new.name.bytes, source.0, source.1)?;
    } else {
        dirent::insert(record, new.name.bytes, source.0, source.1)?;
        let len = dirent::entry_len(new.name.bytes) as u64;
        new_dirs.target().size = new_dirs.target().size.saturating_add(len);
    }
    Ok(())
}

fn exchange(
    fs: &FsState,
    dirs: Dirs<'_>,
    (old, new): (Place<'_>, Place<'_>),
    topology: &Topology<'_>,
) -> Result<()> {
    let mut edits = fs.edits();
    let one = entries::find(&mut edits, old.parent, old.name)?.ok_or(FsError::NotFound)?;
    let other = entries::find(&mut edits, new.parent, new.name)?.ok_or(FsError::NotFound)?;
    if one.0 == other.0 {
        return Ok(());
    }
    topology.check_source(one)?;
    if topology.above_old.contains(&other.0) {
        return Err(FsError::Invalid("a directory would be in itself"));
    }
    let (one_node, other_node) = (fs.node(one.0), fs.node(other.0));
    let (mut one_guard, other_guard) =
        lock_children(fs, (&one_node, old.parent), Some((&other_node, new.parent)))?;
    let mut other_guard = other_guard.ok_or(FsError::NotFound)?;
    for inode in
        [dirs.source().inode(), dirs.target().inode(), one_guard.inode(), other_guard.inode()]
    {
        inode.check_rewritable()?;
    }
    let now = fs.now();
    let record = edits.load(old.parent.lid(), old.name.index)?;
    dirent::replace(record, old.name.bytes, other.0, other.1)?;
    let record = edits.load(new.parent.lid(), new.name.index)?;
    dirent::replace(record, new.name.bytes, one.0, one.1)?;
    let mut new_dirs = NewDirs::of(&dirs, now);
    let (mut one_inode, mut other_inode) = (one_guard.edit(), other_guard.edit());
    (one_inode.ctime, other_inode.ctime) = (now, now);
    let [one_is_dir, other_is_dir] =
        [&one_inode, &other_inode].map(|inode| inode.kind == FileKind::Directory);
    (one_inode.parent, other_inode.parent) = (new.parent.0, old.parent.0);
    new_dirs.move_links(one_is_dir, other_is_dir)?;
    let mut aru = fs.aru();
    aru.put_record(one.0.lid(), HEAD_INDEX, one_inode.encode());
    aru.put_record(other.0.lid(), HEAD_INDEX, other_inode.encode());
    commit_dirs(fs, aru, edits, dirs, new_dirs)?;
    one_guard.set(one_inode);
    other_guard.set(other_inode);
    Ok(())
}

/// Refuses what the flags of the files forbid, and replacements that rename(2) does not allow.
fn check_allowed(
    fs: &FsState,
    dirs: &Dirs<'_>,
    source: &Inode,
    target: Option<&WriteGuard<'_>>,
) -> Result<()> {
    dirs.source().inode().check_rewritable()?;
    source.check_rewritable()?;
    if let Some(target) = target {
        check_replaceable(fs, source, target)?;
        dirs.target().inode().check_rewritable()?;
    }
    dirs.target().inode().check_changeable()
}

/// Refuses replacements of `target` by `source` that rename(2) does not allow.
fn check_replaceable(fs: &FsState, source: &Inode, target: &WriteGuard<'_>) -> Result<()> {
    target.inode().check_rewritable()?;
    match (source.kind, target.inode().kind) {
        (FileKind::Directory, FileKind::Directory) => entries::check_empty(fs, target),
        (FileKind::Directory, _) => Err(FsError::NotDirectory),
        (_, FileKind::Directory) => Err(FsError::IsDirectory),
        _ => Ok(()),
    }
}

/// Locks the files that two entries name: directories first, then in the order of numbers.
fn lock_children<'n>(
    fs: &FsState,
    (one, one_parent): (&'n Arc<Node>, Ino),
    other: Option<(&'n Arc<Node>, Ino)>,
) -> Result<(WriteGuard<'n>, Option<WriteGuard<'n>>)> {
    let Some((other, other_parent)) = other else {
        return Ok((fs.write_child(one, one_parent)?, None));
    };
    let rank = |node: &Node| -> Result<(bool, Ino)> {
        let (inode, _) = fs.read_last_state(node)?;
        Ok((inode.kind != FileKind::Directory, node.ino()))
    };
    if rank(one)? < rank(other)? {
        let one = fs.write_child(one, one_parent)?;
        Ok((one, Some(fs.write_child(other, other_parent)?)))
    } else {
        let other = fs.write_child(other, other_parent)?;
        Ok((fs.write_child(one, one_parent)?, Some(other)))
    }
}

fn commit_dirs(
    fs: &FsState,
    mut aru: Aru<'_>,
    edits: RecordEdits<'_>,
    dirs: Dirs<'_>,
    new_dirs: NewDirs,
) -> Result<()> {
    match (dirs, new_dirs.new) {
        (Dirs::Two { mut old, mut new }, Some(new_inode)) => {
            aru.put_record(old.ino().lid(), HEAD_INDEX, new_dirs.old.encode());
            fs.commit_edits(&mut aru, edits, &mut new, new_inode)?;
            old.set(new_dirs.old);
            Ok(())
        }
        (Dirs::Same(mut dir), _) => fs.commit_edits(&mut aru, edits, &mut dir, new_dirs.old),
        (Dirs::Two { .. }, None) => unreachable!("two directories have two new states"),
    }
}

/// The directories above those of a rename. If there are two, the rename lock keeps this unchanged.
struct Topology<'a> {
    _lock: Option<MutexGuard<'a, ()>>,
    /// The old directory and all above it; only itself in a rename within one directory.
    above_old: Vec<Ino>,
    /// The same for the new directory.
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
