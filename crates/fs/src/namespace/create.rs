//! Creating files of all kinds.

use dendro_disk::Aru;

use super::{entries, symlink};
use crate::error::{FsError, Result};
use crate::layout::acl::Acl;
use crate::layout::format::{HEAD_INDEX, ORPHAN_REMOVE};
use crate::layout::inode::{Inode, S_ISGID};
use crate::layout::names::{Name, check_new_name};
use crate::layout::orphan_list;
use crate::layout::record_edits::RecordEdits;
use crate::layout::xattr_records::{ACL_ACCESS, ACL_DEFAULT, check_security_attribute};
use crate::state::{FsState, WriteGuard};
use crate::types::{
    Attr, Caller, FileFlags, FileKind, FileTime, Ino, MAX_SYMLINK_LEN_BYTES, OpenOptions,
};
use crate::{attributes, open, xattr};

/// A file to create.
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

/// See [`crate::FileSystem::mknod`].
pub(crate) fn mknod(
    fs: &FsState,
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
    make(fs, caller, parent, name, &new)
}

/// See [`crate::FileSystem::mkdir`].
pub(crate) fn mkdir(
    fs: &FsState,
    caller: &Caller<'_>,
    parent: Ino,
    name: &[u8],
    mode: u32,
) -> Result<Attr> {
    make(fs, caller, parent, name, &NewFile::plain(FileKind::Directory, mode))
}

/// See [`crate::FileSystem::symlink`].
pub(crate) fn symlink(
    fs: &FsState,
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
    make(fs, caller, parent, name, &new)
}

/// See [`crate::FileSystem::create`].
pub(crate) fn create(
    fs: &FsState,
    caller: &Caller<'_>,
    parent: Ino,
    name: &[u8],
    mode: u32,
    options: OpenOptions,
) -> Result<Attr> {
    fs.check_writable()?;
    check_new_name(name)?;
    let name = fs.name(name);
    let dir_node = fs.node(parent);
    let mut dir = fs.write_directory(&dir_node)?;
    let mut edits = fs.edits();
    if let Some((ino, kind)) = entries::find(&mut edits, parent, name)? {
        drop(dir);
        return match kind {
            _ if options.exclusive => Err(FsError::Exists),
            FileKind::Regular => {
                open::open(fs, ino, options)?;
                fs.references().add_lookup(ino);
                attributes::get(fs, ino)
            }
            FileKind::Directory => Err(FsError::IsDirectory),
            _ => Err(FsError::Exists),
        };
    }
    let new = NewFile::plain(FileKind::Regular, mode);
    let attr = make_in(fs, caller, &mut dir, name, &new, edits)?;
    fs.references().add_open(attr.ino);
    Ok(attr)
}

/// See [`crate::FileSystem::tmpfile`].
pub(crate) fn tmpfile(fs: &FsState, caller: &Caller<'_>, parent: Ino, mode: u32) -> Result<Attr> {
    fs.check_writable()?;
    let dir_node = fs.node(parent);
    let dir = fs.read_directory(&dir_node)?;
    let ino = Ino(fs.disk().allocate_list()?.0);
    let new = NewFile::plain(FileKind::Regular, mode);
    let mut edits = fs.edits();
    let mut inode = Inode::new(new.kind, new.perm, fs.now());
    inherit(fs, caller, (parent, &dir), (ino, &mut inode), &mut edits)?;
    drop(dir);
    let mut aru = fs.aru();
    aru.create_list(ino.lid(), inode.hints());
    aru.put_record(ino.lid(), HEAD_INDEX, inode.encode());
    edits.apply(&mut aru);
    orphan_list::enter(&mut aru, ino, ORPHAN_REMOVE);
    fs.disk().commit(aru)?;
    let attr = inode.attr(ino);
    fs.orphans().insert_unnamed(ino);
    fs.references().add_lookup(ino);
    fs.references().add_open(ino);
    fs.add_new(ino, inode);
    Ok(attr)
}

fn make(
    fs: &FsState,
    caller: &Caller<'_>,
    parent: Ino,
    name: &[u8],
    new: &NewFile<'_>,
) -> Result<Attr> {
    fs.check_writable()?;
    check_new_name(name)?;
    let dir_node = fs.node(parent);
    let mut dir = fs.write_directory(&dir_node)?;
    let name = fs.name(name);
    let mut edits = fs.edits();
    if entries::find(&mut edits, parent, name)?.is_some() {
        return Err(FsError::Exists);
    }
    make_in(fs, caller, &mut dir, name, new, edits)
}

/// Creates a file under a name that does not exist, as the caller has found with `edits`.
fn make_in(
    fs: &FsState,
    caller: &Caller<'_>,
    dir: &mut WriteGuard<'_>,
    name: Name<'_>,
    new: &NewFile<'_>,
    mut edits: RecordEdits<'_>,
) -> Result<Attr> {
    dir.inode().check_changeable()?;
    let now = fs.now();
    let parent = dir.ino();
    let ino = Ino(fs.disk().allocate_list()?.0);
    let mut new_dir = dir.edit();
    entries::add(&mut edits, (parent, &mut new_dir), name, (ino, new.kind), now)?;
    let mut inode = Inode::new(new.kind, new.perm, now);
    inherit(fs, caller, (parent, dir.inode()), (ino, &mut inode), &mut edits)?;
    (inode.nlink, inode.parent, inode.rdev) = (1, parent.0, new.rdev);
    if new.kind == FileKind::Directory {
        inode.nlink = 2;
        new_dir.nlink = new_dir.nlink.checked_add(1).ok_or(FsError::TooManyLinks)?;
    }
    let mut aru = fs.aru();
    aru.create_list(ino.lid(), inode.hints());
    if new.kind == FileKind::Symlink {
        symlink::set_target(&mut aru, ino, &mut inode, new.target);
    }
    aru.put_record(ino.lid(), HEAD_INDEX, inode.encode());
    fs.commit_edits(&mut aru, edits, dir, new_dir)?;
    let attr = inode.attr(ino);
    fs.references().add_lookup(ino);
    fs.add_new(ino, inode);
    Ok(attr)
}

/// Gives a new file what follows from its directory and the caller: owner, group, mode, ACLs,
/// security context, and whether it is compressed.
fn inherit(
    fs: &FsState,
    caller: &Caller<'_>,
    (parent, dir): (Ino, &Inode),
    (ino, inode): (Ino, &mut Inode),
    edits: &mut RecordEdits<'_>,
) -> Result<()> {
    inode.uid = caller.uid;
    inode.gid = caller.gid;
    if dir.perm & S_ISGID != 0 {
        inode.gid = dir.gid;
        if inode.kind == FileKind::Directory {
            inode.perm |= S_ISGID;
        }
    }
    if matches!(inode.kind, FileKind::Regular | FileKind::Directory) {
        inode.flags |= dir.flags & (FileFlags::COMPRESS | FileFlags::NO_COMPRESS);
    }
    if inode.kind != FileKind::Symlink {
        inherit_acl(fs, caller.umask, (parent, dir), (ino, inode), edits)?;
    }
    for (name, value) in caller.security_context {
        check_security_attribute(name, value)?;
        xattr::put(fs, edits, ino, inode, name, Some(value))?;
    }
    Ok(())
}

/// Gives a new file the ACLs and mode that its directory's default ACL determines. If the directory
/// has none, the umask applies.
fn inherit_acl(
    fs: &FsState,
    umask: u32,
    (parent, dir): (Ino, &Inode),
    (ino, inode): (Ino, &mut Inode),
    edits: &mut RecordEdits<'_>,
) -> Result<()> {
    let default = match dir.xattr_names_len {
        0 => None,
        _ => xattr::find(fs, parent, ACL_DEFAULT)?,
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
        xattr::put(fs, edits, ino, inode, ACL_ACCESS, Some(&acl.encode()))?;
    }
    if inode.kind == FileKind::Directory {
        xattr::put(fs, edits, ino, inode, ACL_DEFAULT, Some(&default))?;
    }
    Ok(())
}

/// Creates a whiteout for rename within `aru`: a character device 0:0 without permissions.
pub(super) fn new_whiteout(
    fs: &FsState,
    caller: &Caller<'_>,
    dir: &WriteGuard<'_>,
    now: FileTime,
    edits: &mut RecordEdits<'_>,
    aru: &mut Aru<'_>,
) -> Result<(Ino, Inode)> {
    let ino = Ino(fs.disk().allocate_list()?.0);
    let mut inode = Inode::new(FileKind::CharDevice, 0, now);
    inherit(fs, caller, (dir.ino(), dir.inode()), (ino, &mut inode), edits)?;
    inode.nlink = 1;
    aru.create_list(ino.lid(), inode.hints());
    aru.put_record(ino.lid(), HEAD_INDEX, inode.encode());
    Ok((ino, inode))
}
