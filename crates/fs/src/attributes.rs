//! Attributes: what stat shows, extended attributes, and ACLs among them.

use dendro_disk::PAGE_SIZE;

use crate::acl::Acl;
use crate::error::{FsError, Result};
use crate::filesystem::FileSystem;
use crate::inode::{Inode, State};
use crate::names::NameHasher;
use crate::namespace::S_ISGID;
use crate::node::Node;
use crate::records::RecordEdits;
use crate::types::{
    Attr, Caller, FileFlags, FileKind, FileTime, Ino, MAX_FILE_SIZE_BYTES, MAX_SYMLINK_LEN_BYTES,
    MAX_XATTR_LEN_BYTES, SetAttr, SetTime, XattrFlags,
};
use crate::xattr;

const S_ISUID: u32 = 0o4000;
const S_IXGRP: u32 = 0o010;

impl FileSystem {
    /// What there is to know about a file, birth time and flags among it.
    ///
    /// # Errors
    /// `Stale`.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        let node = self.node(ino);
        let (inode, _) = node.read_remembered(&*self.disk, self.view)?;
        Ok(self.attr_of(&node, &inode))
    }

    /// Changes a file's attributes, all of them or none. To make a file immutable or append-only,
    /// or no longer so, is the superuser's.
    ///
    /// # Errors
    /// `IsDirectory` or `Invalid` for the size of what has none, `FileTooBig`, `NotPermitted`.
    pub fn setattr(&self, caller: &Caller<'_>, ino: Ino, changes: &SetAttr) -> Result<Attr> {
        self.change_attributes(ino, changes, caller.uid == 0)
    }

    /// Changes a file's users' flags; to make it immutable or append-only, or no longer so, takes a caller
    /// who `is_privileged`.
    ///
    /// # Errors
    /// `NotPermitted`, `NotSupported`.
    pub fn set_flags(&self, ino: Ino, flags: FileFlags, is_privileged: bool) -> Result<Attr> {
        let changes = SetAttr { flags: Some(flags), ..SetAttr::default() };
        self.change_attributes(ino, &changes, is_privileged)
    }

    fn change_attributes(&self, ino: Ino, changes: &SetAttr, is_privileged: bool) -> Result<Attr> {
        self.check_writable()?;
        let node = self.node(ino);
        let mut guard = match node.write(&*self.disk, self.view) {
            Err(FsError::Stale) => return self.setattr_removed(is_privileged, &node, changes),
            guard => guard?,
        };
        if changes_nothing(changes) {
            return Ok(self.attr_of(&node, guard.inode()));
        }
        check_flags(is_privileged, guard.inode(), changes)?;
        let now = self.now();
        if let Some(size) = changes.size_bytes {
            guard.inode().check_regular()?;
            if size > MAX_FILE_SIZE_BYTES {
                return Err(FsError::FileTooBig);
            }
            self.prepare_resize(&mut guard, size)?;
        }
        let mut inode = guard.edit();
        let mut aru = self.aru();
        if changes.size_bytes.is_none_or(|size| size <= inode.size) {
            // What takes no more than before can be done on a full volume too.
            aru.set_reclaims();
        }
        let mut edits = self.edits();
        inode.ctime = changes.ctime.unwrap_or(now);
        self.change_owner(&mut edits, ino, &mut inode, changes)?;
        if let Some(mode) = changes.mode {
            self.change_mode(&mut edits, ino, &mut inode, mode)?;
        }
        let mut unfinished = false;
        if let Some(size) = changes.size_bytes {
            unfinished = self.resize(&mut aru, ino, &mut inode, size)?;
            inode.mtime = now;
            self.drop_privileges(&mut edits, ino, &mut inode, changes.kill_priv)?;
        }
        set_times_and_flags(&mut inode, changes, now);
        edits.apply(&mut aru);
        self.commit_inode(aru, &mut guard, inode)?;
        if unfinished {
            self.finish_truncation(&mut guard)?;
        }
        Ok(self.attr_of(&node, guard.inode()))
    }

    /// As [`Self::setattr`], of a directory that was removed and that somebody still has open or is in: in
    /// memory alone, for nobody finds it again.
    fn setattr_removed(&self, is_privileged: bool, node: &Node, changes: &SetAttr) -> Result<Attr> {
        let now = self.now();
        let changed = node.change_remembered(|inode| {
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
            Ok(self.attr_of(node, inode))
        });
        changed.unwrap_or(Err(FsError::Stale))
    }

    /// Takes the set-id bits and capabilities of a file away for one who is about to change its data
    /// and may not keep them. The set-group-id bit of a file that its group can't execute stays if
    /// `is_member` says that they are in the group. On directories, where the bits are no right, they
    /// stay.
    ///
    /// # Errors
    /// `Stale`, `NotPermitted`.
    pub fn drop_set_ids(&self, ino: Ino, is_member: impl FnOnce(u32) -> bool) -> Result<Attr> {
        self.check_writable()?;
        let node = self.node(ino);
        let mut guard = match node.write(&*self.disk, self.view) {
            Err(FsError::Stale) => return self.getattr(ino),
            guard => guard?,
        };
        let mut inode = guard.edit();
        let has_rights =
            inode.perm & (S_ISUID | S_ISGID) != 0 || inode.state.contains(State::CAPABILITY);
        if inode.kind == FileKind::Directory || !has_rights {
            return Ok(self.attr_of(&node, guard.inode()));
        }
        inode.check_changeable()?;
        let (mut edits, mut aru) = (self.edits(), self.aru());
        aru.set_reclaims();
        self.drop_privileges(&mut edits, ino, &mut inode, true)?;
        if inode.perm & S_ISGID != 0 && !is_member(inode.gid) {
            inode.perm &= !S_ISGID;
        }
        if inode == *guard.inode() {
            return Ok(self.attr_of(&node, &inode));
        }
        inode.ctime = self.now();
        self.commit_edits(aru, edits, &mut guard, inode)?;
        Ok(self.attr_of(&node, guard.inode()))
    }

    fn change_owner(
        &self,
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
        self.drop_privileges(edits, ino, inode, inode.kind != FileKind::Directory)
    }

    fn change_mode(
        &self,
        edits: &mut RecordEdits<'_>,
        ino: Ino,
        inode: &mut Inode,
        mode: u32,
    ) -> Result<()> {
        inode.perm = mode & 0o7777;
        if inode.xattr_names_len == 0 || inode.kind == FileKind::Symlink {
            return Ok(());
        }
        let Some(value) = self.find_xattr(ino, xattr::ACL_ACCESS)? else { return Ok(()) };
        let mut acl = Acl::decode(&value)
            .ok()
            .flatten()
            .ok_or_else(|| FsError::Corrupted(format!("i-node {ino} has a malformed ACL")))?;
        acl.set_mode(mode);
        self.put_xattr(edits, ino, inode, xattr::ACL_ACCESS, Some(&acl.encode()))
    }

    /// What follows from a change by somebody who may not give rights away: capabilities go, and
    /// with `set_id` the set-id bits. The set-group-id bit of a file that its group can't execute
    /// means something else and stays.
    pub(crate) fn drop_privileges(
        &self,
        edits: &mut RecordEdits<'_>,
        ino: Ino,
        inode: &mut Inode,
        set_id: bool,
    ) -> Result<()> {
        if set_id {
            inode.perm &= !S_ISUID;
            if inode.perm & S_IXGRP != 0 {
                inode.perm &= !S_ISGID;
            }
        }
        if inode.state.contains(State::CAPABILITY) {
            self.put_xattr(edits, ino, inode, xattr::CAPABILITY, None)?;
        }
        Ok(())
    }

    /// A symbolic link's target.
    ///
    /// # Errors
    /// `Invalid` for anything else.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let node = self.node(ino);
        let inode = self.read_live(&node)?;
        if inode.kind != FileKind::Symlink {
            return Err(FsError::Invalid("not a symbolic link"));
        }
        self.touch_atime(&node, &inode);
        if inode.state.contains(State::INLINE) {
            return Ok(inode.inline.clone());
        }
        if inode.size > MAX_SYMLINK_LEN_BYTES as u64 {
            return Err(FsError::Corrupted(format!("i-node {ino} has a target that is too long")));
        }
        let mut target = vec![0; PAGE_SIZE];
        self.disk.read_pages(self.view, ino.lid(), 0, &mut target)?;
        target.truncate(inode.size as usize);
        Ok(target)
    }

    /// Sets an extended attribute. ACLs (`system.posix_acl_*`) are checked and change the mode.
    ///
    /// # Errors
    /// `Exists`, `NoAttribute`, `AttributeName`, `AttributeTooBig`, `NotSupported` for an unknown
    /// namespace, `Invalid` for a malformed ACL, `Full`.
    pub fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        if value.len() > MAX_XATTR_LEN_BYTES {
            return Err(FsError::AttributeTooBig);
        }
        self.change_xattr(ino, name, Some(value), flags)
    }

    /// Removes an extended attribute. An ACL may be absent: then the mode says it all already.
    ///
    /// # Errors
    /// `NoAttribute`, `NotSupported`.
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let may_be_absent = xattr::is_acl(name);
        let flags = if may_be_absent { XattrFlags::empty() } else { XattrFlags::REPLACE };
        self.change_xattr(ino, name, None, flags)
    }

    fn change_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
    ) -> Result<()> {
        self.check_writable()?;
        let node = self.node(ino);
        let mut guard = node.write(&*self.disk, self.view)?;
        let mut inode = guard.edit();
        xattr::check_name(name, inode.kind)?;
        inode.check_rewritable()?;
        let exists = inode.xattr_names_len > 0 && self.find_xattr(ino, name)?.is_some();
        if exists && flags.contains(XattrFlags::CREATE) {
            return Err(FsError::Exists);
        }
        if !exists && flags.contains(XattrFlags::REPLACE) {
            return Err(FsError::NoAttribute);
        }
        if !exists && value.is_none() {
            return Ok(());
        }
        inode.ctime = self.now();
        let mut edits = self.edits();
        let acl_value;
        let value = match value {
            Some(value) if xattr::is_acl(name) => {
                acl_value = set_acl(&mut inode, name, value, flags)?;
                acl_value.as_deref()
            }
            other => other,
        };
        let mut aru = self.aru();
        if value.is_none() {
            aru.set_reclaims();
        }
        if exists || value.is_some() {
            self.put_xattr(&mut edits, ino, &mut inode, name, value)?;
        }
        edits.apply(&mut aru);
        self.commit_inode(aru, &mut guard, inode)
    }

    /// An extended attribute's value. What was removed has none.
    ///
    /// # Errors
    /// `NoAttribute`, `NotSupported`.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let node = self.node(ino);
        let (inode, is_gone) = node.read_remembered(&*self.disk, self.view)?;
        if is_gone || inode.xattr_names_len == 0 || name.is_empty() {
            xattr::check_name(name, FileKind::Regular)?;
            return Err(FsError::NoAttribute);
        }
        match self.find_xattr(ino, name)? {
            Some(value) => Ok(value),
            None => xattr::check_name(name, FileKind::Regular).and(Err(FsError::NoAttribute)),
        }
    }

    /// The names of all extended attributes, each ended by a zero byte. What was removed has none.
    ///
    /// # Errors
    /// What the disk says.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<u8>> {
        let node = self.node(ino);
        let (inode, is_gone) = node.read_remembered(&*self.disk, self.view)?;
        let mut names = Vec::with_capacity((inode.xattr_names_len as usize).min(PAGE_SIZE));
        if !is_gone && inode.xattr_names_len > 0 {
            xattr::for_each(&*self.disk, self.view, ino, &mut |_, stored| {
                names.extend_from_slice(stored.name);
                names.push(0);
                Ok(())
            })?;
        }
        Ok(names)
    }

    fn find_xattr(&self, ino: Ino, name: &[u8]) -> Result<Option<Vec<u8>>> {
        xattr::get(&*self.disk, self.view, &self.hasher, ino, name)
    }

    /// Sets or removes an attribute of an i-node that is being changed, and keeps account.
    pub(crate) fn put_xattr(
        &self,
        edits: &mut RecordEdits<'_>,
        ino: Ino,
        inode: &mut Inode,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        put_xattr(&self.hasher, edits, ino, inode, name, value)
    }
}

fn put_xattr(
    hasher: &NameHasher,
    edits: &mut RecordEdits<'_>,
    ino: Ino,
    inode: &mut Inode,
    name: &[u8],
    value: Option<&[u8]>,
) -> Result<()> {
    let existed = xattr::store(edits, hasher, ino, name, value)?;
    let len = xattr::listed_len(name);
    match (existed, value.is_some()) {
        (false, true) => {
            inode.xattr_names_len = inode
                .xattr_names_len
                .checked_add(len)
                .filter(|&sum| sum as usize <= xattr::MAX_XATTR_NAMES_LEN)
                .ok_or(FsError::Full("too many attributes"))?;
        }
        (true, false) => inode.xattr_names_len = inode.xattr_names_len.saturating_sub(len),
        (true, true) | (false, false) => (),
    }
    if name == xattr::CAPABILITY {
        inode.state.set(State::CAPABILITY, value.is_some());
    }
    Ok(())
}

/// Checks an ACL to be set, lets the mode follow it, and answers what to store: nothing when the
/// mode says it all.
fn set_acl(
    inode: &mut Inode,
    name: &[u8],
    value: &[u8],
    flags: XattrFlags,
) -> Result<Option<Vec<u8>>> {
    let acl = Acl::decode(value)?;
    if name == xattr::ACL_DEFAULT {
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

/// Refuses what the users' flags forbid.
fn check_flags(is_privileged: bool, inode: &Inode, changes: &SetAttr) -> Result<()> {
    let guarded = FileFlags::IMMUTABLE | FileFlags::APPEND;
    if let Some(flags) = changes.flags {
        if !(flags - FileFlags::all()).is_empty() {
            return Err(FsError::NotSupported("unknown file flags"));
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
