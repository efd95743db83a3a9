//! Extended attributes: setting, reading, listing and removing them. ACLs, which are such
//! attributes, change the mode.

use dendro_disk::PAGE_SIZE;

use crate::error::{FsError, Result};
use crate::layout::acl::Acl;
use crate::layout::inode::{Inode, InodeState, S_ISGID};
use crate::layout::record_edits::RecordEdits;
use crate::layout::xattr_records::{
    self, ACL_DEFAULT, CAPABILITY, MAX_XATTR_NAMES_LEN, check_name, is_acl, listed_len,
};
use crate::state::FsState;
use crate::types::{FileKind, Ino, MAX_XATTR_LEN_BYTES, XattrFlags};

/// See [`crate::FileSystem::setxattr`].
pub(crate) fn set(
    fs: &FsState,
    ino: Ino,
    name: &[u8],
    value: &[u8],
    flags: XattrFlags,
) -> Result<()> {
    if value.len() > MAX_XATTR_LEN_BYTES {
        return Err(FsError::AttributeTooBig);
    }
    change(fs, ino, name, Some(value), flags)
}

/// See [`crate::FileSystem::removexattr`].
pub(crate) fn remove(fs: &FsState, ino: Ino, name: &[u8]) -> Result<()> {
    let may_be_absent = is_acl(name);
    let flags = if may_be_absent { XattrFlags::empty() } else { XattrFlags::REPLACE };
    change(fs, ino, name, None, flags)
}

fn change(
    fs: &FsState,
    ino: Ino,
    name: &[u8],
    value: Option<&[u8]>,
    flags: XattrFlags,
) -> Result<()> {
    fs.check_writable()?;
    let node = fs.node(ino);
    let mut guard = fs.write(&node)?;
    let mut inode = guard.edit();
    check_name(name, inode.kind)?;
    inode.check_rewritable()?;
    let exists = inode.xattr_names_len > 0 && find(fs, ino, name)?.is_some();
    if exists && flags.contains(XattrFlags::CREATE) {
        return Err(FsError::Exists);
    }
    if !exists && flags.contains(XattrFlags::REPLACE) {
        return Err(FsError::NoAttribute);
    }
    if !exists && value.is_none() {
        return Ok(());
    }
    inode.ctime = fs.now();
    let mut edits = fs.edits();
    let acl_value;
    let value = match value {
        Some(value) if is_acl(name) => {
            acl_value = set_acl(&mut inode, name, value, flags)?;
            acl_value.as_deref()
        }
        other => other,
    };
    let mut aru = fs.aru();
    if value.is_none() {
        aru.set_reclaims();
    }
    if exists || value.is_some() {
        put(fs, &mut edits, ino, &mut inode, name, value)?;
    }
    edits.apply(&mut aru);
    fs.commit_inode(&mut aru, &mut guard, inode)
}

/// See [`crate::FileSystem::getxattr`].
pub(crate) fn get(fs: &FsState, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
    let node = fs.node(ino);
    let (inode, is_removed) = fs.read_last_state(&node)?;
    if is_removed || inode.xattr_names_len == 0 || name.is_empty() {
        check_name(name, FileKind::Regular)?;
        return Err(FsError::NoAttribute);
    }
    match find(fs, ino, name)? {
        Some(value) => Ok(value),
        None => check_name(name, FileKind::Regular).and(Err(FsError::NoAttribute)),
    }
}

/// See [`crate::FileSystem::listxattr`].
pub(crate) fn list(fs: &FsState, ino: Ino) -> Result<Vec<u8>> {
    let node = fs.node(ino);
    let (inode, is_removed) = fs.read_last_state(&node)?;
    let mut names = Vec::with_capacity((inode.xattr_names_len as usize).min(PAGE_SIZE));
    if !is_removed && inode.xattr_names_len > 0 {
        xattr_records::for_each(fs.disk(), fs.view(), ino, &mut |_, stored| {
            names.extend_from_slice(stored.name);
            names.push(0);
            Ok(())
        })?;
    }
    Ok(names)
}

/// The value of an attribute of a locked i-node.
pub(crate) fn find(fs: &FsState, ino: Ino, name: &[u8]) -> Result<Option<Vec<u8>>> {
    xattr_records::get(fs.disk(), fs.view(), fs.hasher(), ino, name)
}

/// Sets an attribute of an i-node that is being changed, or removes it if `value` is `None`, and
/// keeps the i-node's account of its attributes.
pub(crate) fn put(
    fs: &FsState,
    edits: &mut RecordEdits<'_>,
    ino: Ino,
    inode: &mut Inode,
    name: &[u8],
    value: Option<&[u8]>,
) -> Result<()> {
    let existed = xattr_records::store(edits, fs.hasher(), ino, name, value)?;
    let len = listed_len(name);
    match (existed, value.is_some()) {
        (false, true) => {
            inode.xattr_names_len = inode
                .xattr_names_len
                .checked_add(len)
                .filter(|&sum| sum as usize <= MAX_XATTR_NAMES_LEN)
                .ok_or(FsError::Full("too many attributes"))?;
        }
        (true, false) => inode.xattr_names_len = inode.xattr_names_len.saturating_sub(len),
        (true, true) | (false, false) => (),
    }
    if name == CAPABILITY {
        inode.state.set(InodeState::CAPABILITY, value.is_some());
    }
    Ok(())
}

/// Checks an ACL that is to be set, and changes the mode accordingly. Returns the value to store:
/// none if the mode expresses the whole list.
fn set_acl(
    inode: &mut Inode,
    name: &[u8],
    value: &[u8],
    flags: XattrFlags,
) -> Result<Option<Vec<u8>>> {
    let acl = Acl::decode(value)?;
    if name == ACL_DEFAULT {
        return match (acl, inode.kind) {
            (None, _) => Ok(None),
            (Some(acl), FileKind::Directory) => Ok(Some(acl.encode())),
            (Some(_), _) => Err(FsError::Denied("only directories have default ACLs")),
        };
    }
    let Some(acl) = acl else { return Ok(None) };
    inode.perm = inode.perm & !0o777 | acl.mode_bits();
    if flags.contains(XattrFlags::ACL_KILL_SGID) {
        inode.perm &= !S_ISGID;
    }
    Ok((!acl.is_minimal()).then(|| acl.encode()))
}
