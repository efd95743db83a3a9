//! Restoring files and directory trees from another view.

use std::collections::HashMap;

use dendro_base::units::MIB;

use super::tree::check_depth;
use crate::error::{FsError, Result};
use crate::filesystem::FileSystem;
use crate::layout::xattr_records::{ACL_ACCESS, is_acl};
use crate::permission::{self, Access, AccessRules};
use crate::staged::Staged;
use crate::types::{
    Attr, Caller, Credentials, FileFlags, FileKind, Ino, OpenOptions, Seek, SetAttr, SetTime,
    XattrFlags,
};

/// The set-id bits of a mode: a program runs as its owner or its group.
const SET_IDS: u32 = 0o6000;

/// The most that one unit copies.
const CHUNK_LEN: usize = MIB as usize;

/// How much was restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The number of files other than directories.
    pub file_count: u64,
    /// The number of directories.
    pub directory_count: u64,
    /// The bytes of data.
    pub data_bytes: u64,
}

/// Copies `ino` of `from`, with everything in it, to `to` as `name` in the directory `parent`: data
/// and holes, types, owners, modes, times, flags, attributes, and hard links within the tree.
///
/// The name appears when the copy is complete. Until then a directory has a temporary name that
/// begins with `.undelete-`; after a crash the next mount removes it. The times of the last change
/// (ctime) and of creation are those of the copy. `from` must be a view that does not change
/// meanwhile.
///
/// A copy for `user` is as if that user had created it. The files belong to the user, and get only
/// those privileges, attributes and flags of the originals that such a user can set. The user must
/// be able to read everything in the tree. The caller has checked that the user may go to `ino` and
/// create names in `parent`.
///
/// # Errors
/// [`FsError::Denied`] if `user` may not read a file; [`FsError::NotPermitted`] if the user may not
/// create it; [`FsError::Exists`] if `to` has the name; [`FsError::NotFound`],
/// [`FsError::NotDirectory`], [`FsError::ReadOnly`]; errors of the disk. After an error the partial
/// copy is removed.
pub fn restore(
    from: &FileSystem,
    ino: Ino,
    to: &FileSystem,
    parent: Ino,
    name: &[u8],
    user: Option<&Credentials>,
) -> Result<Restored> {
    let mut copy = Copy::new(from, to, user);
    if from.getattr(ino)?.kind == FileKind::Directory {
        check_free(to, parent, name)?;
        let staged = Staged::begin(to.state(), parent, ino)?;
        match copy.tree(ino, parent, staged.name()) {
            Ok(()) => staged.finish(name)?,
            Err(error) => return Err(staged.give_up(error)),
        }
    } else {
        copy.tree(ino, parent, name)?;
    }
    // Flags come last: an immutable file can get no names, and an immutable directory no entries.
    for (flags, new) in &copy.flagged {
        let changes = SetAttr { flags: Some(*flags), ..SetAttr::default() };
        to.setattr(&Caller::default(), *new, &changes)?;
    }
    Ok(copy.restored)
}

/// Fails at once if the name exists, rather than after everything was copied.
fn check_free(fs: &FileSystem, parent: Ino, name: &[u8]) -> Result<()> {
    match fs.lookup(parent, name) {
        Ok(attr) => {
            fs.forget(attr.ino, 1);
            Err(FsError::Exists)
        }
        Err(FsError::NotFound) => Ok(()),
        Err(error) => Err(error),
    }
}

fn entries(fs: &FileSystem, dir: Ino) -> Result<Vec<(Ino, Vec<u8>)>> {
    let mut entries = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        if !matches!(entry.name, b"." | b"..") {
            entries.push((entry.ino, entry.name.to_vec()));
        }
        true
    })?;
    Ok(entries)
}

struct Copy<'f> {
    from: &'f FileSystem,
    to: &'f FileSystem,
    /// The user for whom the copy is made; `None`: one who may do everything.
    user: Option<&'f Credentials>,
    /// The copies of files that have several names.
    links: HashMap<Ino, Ino>,
    /// Copies that get flags at the end.
    flagged: Vec<(FileFlags, Ino)>,
    restored: Restored,
}

impl<'f> Copy<'f> {
    fn new(from: &'f FileSystem, to: &'f FileSystem, user: Option<&'f Credentials>) -> Self {
        let restored = Restored::default();
        Self { from, to, user, links: HashMap::new(), flagged: Vec::new(), restored }
    }

    /// Refuses files that the user may not read, or may not create.
    fn check(&self, attr: &Attr) -> Result<()> {
        let Some(user) = self.user else { return Ok(()) };
        let wanted = match attr.kind {
            FileKind::Directory => Access::READ | Access::EXECUTE,
            FileKind::Regular => Access::READ,
            FileKind::CharDevice | FileKind::BlockDevice => {
                return Err(FsError::NotPermitted("root alone makes device files"));
            }
            // Every user who can look up a link may read it; pipes and sockets contain nothing.
            FileKind::Symlink | FileKind::Fifo | FileKind::Socket => return Ok(()),
        };
        let acl = match self.from.getxattr(attr.ino, ACL_ACCESS) {
            Err(FsError::NoAttribute) => None,
            other => Some(other?),
        };
        let mode = attr.perm;
        let rules = AccessRules { uid: attr.uid, gid: attr.gid, mode, acl: acl.as_deref() };
        permission::check(user, &rules, wanted)
    }

    /// Copies `ino` with everything in it, except flags.
    fn tree(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Result<()> {
        // A directory gets its times after its entries were created. The innermost ones, which come
        // last in this list, are finished first.
        let mut made = Vec::new();
        let mut todo = vec![(ino, parent, name.to_vec(), 0)];
        while let Some((ino, parent, name, depth)) = todo.pop() {
            check_depth(depth)?;
            let attr = self.from.getattr(ino)?;
            self.check(&attr)?;
            let new = self.node(&attr, parent, &name)?;
            if attr.kind == FileKind::Directory {
                made.push((attr, new));
                for (child, name) in entries(self.from, ino)? {
                    todo.push((child, new, name, depth + 1));
                }
            }
        }
        while let Some((attr, new)) = made.pop() {
            self.finish(&attr, new)?;
        }
        Ok(())
    }

    /// Copies one file, or creates an empty directory. Returns the number of the copy. A directory
    /// does not have its final attributes yet.
    fn node(&mut self, attr: &Attr, parent: Ino, name: &[u8]) -> Result<Ino> {
        let (uid, gid) = self.user.map_or((attr.uid, attr.gid), |user| (user.uid, user.gid));
        let caller = Caller { uid, gid, umask: 0, security_context: &[] };
        if attr.kind == FileKind::Directory {
            let new = self.to.mkdir(&caller, parent, name, attr.perm)?.ino;
            self.to.forget(new, 1);
            self.restored.directory_count += 1;
            return Ok(new);
        }
        if let Some(&copy) = self.links.get(&attr.ino) {
            self.to.link(copy, parent, name)?;
            self.to.forget(copy, 1);
            return Ok(copy);
        }
        let new = match attr.kind {
            FileKind::Regular => self.regular(attr, &caller, parent, name)?,
            FileKind::Symlink => {
                let target = self.from.readlink(attr.ino)?;
                self.to.symlink(&caller, parent, name, &target)?.ino
            }
            _ => self.to.mknod(&caller, parent, name, attr.mode(), attr.rdev)?.ino,
        };
        let done = match attr.kind {
            FileKind::Regular => Ok(()),
            _ => self.finish(attr, new),
        };
        self.to.forget(new, 1);
        done?;
        self.restored.file_count += 1;
        if attr.nlink > 1 {
            self.links.insert(attr.ino, new);
        }
        Ok(new)
    }

    /// Copies a regular file to a file without a name, which gets its name when it is complete.
    /// Counts one lookup of it.
    fn regular(
        &mut self,
        attr: &Attr,
        caller: &Caller<'_>,
        parent: Ino,
        name: &[u8],
    ) -> Result<Ino> {
        let new = self.to.tmpfile(caller, parent, attr.perm)?.ino;
        let named = self.data(attr, new).and_then(|()| {
            self.finish(attr, new)?;
            self.to.link(new, parent, name)?;
            self.to.forget(new, 1);
            Ok(())
        });
        self.to.release(new);
        if named.is_err() {
            self.to.forget(new, 1);
        }
        named.map(|()| new)
    }

    fn data(&mut self, attr: &Attr, new: Ino) -> Result<()> {
        self.from.open(attr.ino, OpenOptions::default())?;
        let copied = self.runs(attr, new);
        self.from.release(attr.ino);
        copied
    }

    fn runs(&mut self, attr: &Attr, new: Ino) -> Result<()> {
        let mut buf = vec![0; CHUNK_LEN.min(attr.size_bytes as usize)];
        let mut at = 0;
        while at < attr.size_bytes {
            let start = match self.from.lseek(attr.ino, at, Seek::Data) {
                Ok(start) => start,
                Err(FsError::NoData) => break,
                Err(error) => return Err(error),
            };
            let end = self.from.lseek(attr.ino, start, Seek::Hole)?;
            at = start;
            while at < end {
                let len = buf.len().min((end - at) as usize);
                let read = self.from.read(attr.ino, at, &mut buf[..len])?;
                if read == 0 {
                    return Err(FsError::Corrupted(format!("i-node {} ends at {at}", attr.ino)));
                }
                let mut written = 0;
                while written < read {
                    let rest = &buf[written..read];
                    written += self.to.write(new, at + written as u64, rest, false)?;
                }
                at += read as u64;
                self.restored.data_bytes += read as u64;
            }
        }
        let size_bytes = Some(attr.size_bytes);
        let changes = SetAttr { size_bytes, ..SetAttr::default() };
        self.to.setattr(&Caller::default(), new, &changes).map(drop)
    }

    /// Gives a copy the attributes of the original, except flags.
    fn finish(&mut self, attr: &Attr, new: Ino) -> Result<()> {
        let change = |changes| self.to.setattr(&Caller::default(), new, &changes).map(drop);
        // First the owner, since a change of owner clears set-id bits. Then ACLs, since these
        // change the mode.
        let (is_owner, is_member) =
            self.user.map_or((true, true), |user| (user.uid == attr.uid, user.is_in(attr.gid)));
        change(SetAttr {
            uid: self.user.is_none().then_some(attr.uid),
            gid: is_member.then_some(attr.gid),
            ..SetAttr::default()
        })?;
        self.extended_attributes(attr.ino, new)?;
        let is_link = attr.kind == FileKind::Symlink;
        // The set-id bits stay only if owner and group are those that the bits were set for.
        let mode = match is_owner && is_member {
            true => attr.mode(),
            false => attr.mode() & !SET_IDS,
        };
        change(SetAttr {
            mode: (!is_link).then_some(mode),
            atime: Some(SetTime::At(attr.atime)),
            mtime: Some(SetTime::At(attr.mtime)),
            ..SetAttr::default()
        })?;
        let flags = match self.user {
            None => attr.flags,
            // Only root may set the other flags.
            Some(_) => attr.flags & (FileFlags::NO_DUMP | FileFlags::NO_ATIME),
        };
        if !flags.is_empty() {
            self.flagged.push((flags, new));
        }
        Ok(())
    }

    fn extended_attributes(&self, ino: Ino, new: Ino) -> Result<()> {
        let names = |list: Vec<u8>| -> Vec<Vec<u8>> {
            let names = list.split(|&byte| byte == 0).filter(|name| !name.is_empty());
            names.map(<[u8]>::to_vec).collect()
        };
        // Users may not set attributes of `trusted.` and `security.`: these give privileges, or are
        // not visible to users.
        let is_settable = |name: &[u8]| name.starts_with(b"user.") || is_acl(name);
        let mut wanted = names(self.from.listxattr(ino)?);
        wanted.retain(|name| self.user.is_none() || is_settable(name));
        // ACLs that the copy inherited from the directory where it was created.
        for name in names(self.to.listxattr(new)?) {
            if !wanted.contains(&name) && (self.user.is_none() || is_settable(&name)) {
                self.to.removexattr(new, &name)?;
            }
        }
        for name in wanted {
            let value = self.from.getxattr(ino, &name)?;
            self.to.setxattr(new, &name, &value, XattrFlags::empty())?;
        }
        Ok(())
    }
}
