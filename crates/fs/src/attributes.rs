//! Attributes: what stat(2) shows, and changing it.

use dendro_disk::Op;

use crate::data::freeing::begin_freeing;
use crate::data::truncate::{prepare_resize, resize};
use crate::error::{FsError, Result};
use crate::layout::acl::Acl;
use crate::layout::inode::{Inode, S_ISGID};
use crate::layout::record_edits::RecordEdits;
use crate::layout::xattr_records::ACL_ACCESS;
use crate::privileges::{drop_privileges, has_privileges};
use crate::state::{FsState, Node};
use crate::types::{
    Attr, Caller, FileFlags, FileKind, FileTime, Ino, MAX_FILE_SIZE_BYTES, SetAttr, SetTime,
};
use crate::{no_space, xattr};

/// See [`crate::FileSystem::getattr`].
pub(crate) fn get(fs: &FsState, ino: Ino) -> Result<Attr> {
    let node = fs.node(ino);
    let (inode, _) = fs.read_last_state(&node)?;
    Ok(fs.attr_of(&node, &inode))
}

/// See [`crate::FileSystem::setattr`].
pub(crate) fn set(fs: &FsState, caller: &Caller<'_>, ino: Ino, changes: &SetAttr) -> Result<Attr> {
    change(fs, ino, changes, caller.uid == 0)
}

/// See [`crate::FileSystem::set_flags`].
pub(crate) fn set_flags(
    fs: &FsState,
    ino: Ino,
    flags: FileFlags,
    is_privileged: bool,
) -> Result<Attr> {
    let changes = SetAttr { flags: Some(flags), ..SetAttr::default() };
    change(fs, ino, &changes, is_privileged)
}

fn change(fs: &FsState, ino: Ino, changes: &SetAttr, is_privileged: bool) -> Result<Attr> {
    fs.check_writable()?;
    let node = fs.node(ino);
    let mut guard = match fs.write(&node) {
        Err(FsError::Stale) => return change_removed(fs, is_privileged, &node, changes),
        guard => guard?,
    };
    if changes_nothing(changes) {
        return Ok(fs.attr_of(&node, guard.inode()));
    }
    check_flags(is_privileged, guard.inode(), changes)?;
    let now = fs.now();
    if let Some(size) = changes.size_bytes {
        guard.inode().check_regular()?;
        if size > MAX_FILE_SIZE_BYTES {
            return Err(FsError::FileTooBig);
        }
        prepare_resize(fs, &mut guard, size)?;
    }
    let mut inode = guard.edit();
    let mut aru = fs.aru();
    if changes.size_bytes.is_none_or(|size| size <= inode.size) {
        // A change that takes no more space than before works on a full volume, too.
        aru.set_reclaims();
    }
    let mut edits = fs.edits();
    inode.ctime = changes.ctime.unwrap_or(now);
    change_owner(fs, &mut edits, ino, &mut inode, changes)?;
    if let Some(mode) = changes.mode {
        change_mode(fs, &mut edits, ino, &mut inode, mode)?;
    }
    let mut unfinished = false;
    if let Some(size) = changes.size_bytes {
        unfinished = resize(fs, &mut aru, ino, &mut inode, size)?;
        inode.mtime = now;
        drop_privileges(fs, &mut edits, ino, &mut inode, changes.kill_priv)?;
    }
    set_times_and_flags(&mut inode, changes, now);
    let is_of_times = changes.size_bytes.is_none() && changes.mode.is_none();
    if is_of_times && changes.ctime.is_some() && inode == *guard.inode() {
        // The kernel hands over times that it has set, and that the file has already.
        return Ok(fs.attr_of(&node, guard.inode()));
    }
    if inode.hints() != guard.inode().hints() {
        aru.push(Op::SetHints { list: ino.lid(), hints: inode.hints() });
    }
    edits.apply(&mut aru);
    fs.commit_inode(&mut aru, &mut guard, inode)?;
    if unfinished {
        begin_freeing(fs, &mut guard)?;
    }
    Ok(fs.attr_of(&node, guard.inode()))
}

/// As [`change`], for a directory that was removed while a process has it open or works in it. The
/// change is in memory only, since nothing refers to the directory after that.
fn change_removed(
    fs: &FsState,
    is_privileged: bool,
    node: &Node,
    changes: &SetAttr,
) -> Result<Attr> {
    let now = fs.now();
    let changed = node.change_last_state(|inode| {
        check_flags(is_privileged, inode, changes)?;
        if changes.size_bytes.is_some() {
            return inode.check_regular().and(Err(FsError::Stale));
        }
        inode.uid = changes.uid.unwrap_or(inode.uid);
        inode.gid = changes.gid.unwrap_or(inode.gid);
        inode.perm = changes.mode.map_or(inode.perm, |mode| mode & 0o7777);
        if !changes_nothing(changes) {
            inode.ctime = changes.ctime.unwrap_or(now);
            set_times_and_flags(inode, changes, now);
        }
        Ok(fs.attr_of(node, inode))
    });
    changed.unwrap_or(Err(FsError::Stale))
}

/// See [`crate::FileSystem::drop_set_ids`].
pub(crate) fn drop_set_ids(
    fs: &FsState,
    ino: Ino,
    is_member: impl FnOnce(u32) -> bool,
) -> Result<Attr> {
    fs.check_writable()?;
    let node = fs.node(ino);
    let mut guard = match fs.write(&node) {
        Err(FsError::Stale) => return get(fs, ino),
        guard => guard?,
    };
    let mut inode = guard.edit();
    if inode.kind == FileKind::Directory || !has_privileges(&inode) {
        return Ok(fs.attr_of(&node, guard.inode()));
    }
    inode.check_changeable()?;
    let (mut edits, mut aru) = (fs.edits(), no_space::reclaiming(fs));
    drop_privileges(fs, &mut edits, ino, &mut inode, true)?;
    if inode.perm & S_ISGID != 0 && !is_member(inode.gid) {
        inode.perm &= !S_ISGID;
    }
    if inode == *guard.inode() {
        return Ok(fs.attr_of(&node, &inode));
    }
    inode.ctime = fs.now();
    fs.commit_edits(&mut aru, edits, &mut guard, inode)?;
    Ok(fs.attr_of(&node, guard.inode()))
}

fn change_owner(
    fs: &FsState,
    edits: &mut RecordEdits<'_>,
    ino: Ino,
    inode: &mut Inode,
    changes: &SetAttr,
) -> Result<()> {
    if changes.uid.is_none() && changes.gid.is_none() {
        return Ok(());
    }
    inode.uid = changes.uid.unwrap_or(inode.uid);
    inode.gid = changes.gid.unwrap_or(inode.gid);
    drop_privileges(fs, edits, ino, inode, inode.kind != FileKind::Directory)
}

fn change_mode(
    fs: &FsState,
    edits: &mut RecordEdits<'_>,
    ino: Ino,
    inode: &mut Inode,
    mode: u32,
) -> Result<()> {
    inode.perm = mode & 0o7777;
    if inode.xattr_names_len == 0 || inode.kind == FileKind::Symlink {
        return Ok(());
    }
    let Some(value) = xattr::find(fs, ino, ACL_ACCESS)? else { return Ok(()) };
    let mut acl = Acl::decode(&value)
        .ok()
        .flatten()
        .ok_or_else(|| FsError::Corrupted(format!("i-node {ino} has a malformed ACL")))?;
    acl.set_mode(mode);
    xattr::put(fs, edits, ino, inode, ACL_ACCESS, Some(&acl.encode()))
}

fn set_times_and_flags(inode: &mut Inode, changes: &SetAttr, now: FileTime) {
    let time = |set| match set {
        SetTime::Now => now,
        SetTime::At(FileTime { secs, nanos }) => FileTime { secs, nanos: nanos.min(999_999_999) },
    };
    inode.atime = changes.atime.map_or(inode.atime, time);
    inode.mtime = changes.mtime.map_or(inode.mtime, time);
    inode.flags = changes.flags.unwrap_or(inode.flags);
}

fn changes_nothing(changes: &SetAttr) -> bool {
    *changes == SetAttr { kill_priv: changes.kill_priv, ..SetAttr::default() }
}

/// Refuses changes that the flags of the file forbid.
fn check_flags(is_privileged: bool, inode: &Inode, changes: &SetAttr) -> Result<()> {
    let guarded = FileFlags::IMMUTABLE | FileFlags::APPEND;
    if let Some(flags) = changes.flags {
        if !(flags - FileFlags::all()).is_empty() {
            return Err(FsError::NotSupported("unknown file flags"));
        }
        if flags.contains(FileFlags::COMPRESS | FileFlags::NO_COMPRESS) {
            return Err(FsError::Invalid("a file is compressed, or it is not"));
        }
        if !is_privileged && (flags ^ inode.flags).intersects(guarded) {
            return Err(FsError::NotPermitted("only the superuser makes files immutable"));
        }
        if flags != inode.flags && flags.contains(FileFlags::IMMUTABLE) {
            inode.check_changeable()?;
        }
    }
    let is_touch = |set| matches!(set, None | Some(SetTime::Now));
    let others = SetAttr { flags: None, ..*changes };
    if changes_nothing(&others) {
        return Ok(());
    }
    let only_touches = is_touch(changes.atime)
        && is_touch(changes.mtime)
        && changes_nothing(&SetAttr { atime: None, mtime: None, ..others });
    if only_touches { inode.check_changeable() } else { inode.check_rewritable() }
}
