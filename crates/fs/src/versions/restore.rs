//! Bringing files back.

use std::collections::HashMap;

use dendro_base::units::MIB;

use super::check_depth;
use super::staged::Staged;
use crate::error::{FsError, Result};
use crate::filesystem::FileSystem;
use crate::permission::{Rules, Who, Wish};
use crate::types::{
    Attr, Caller, FileFlags, FileKind, Ino, OpenOptions, Seek, SetAttr, SetTime, XattrFlags,
};
use crate::xattr::{self, ACL_ACCESS};

/// The bits of a mode by which a program runs as its owner or its group.
const SET_IDS: u32 = 0o6000;

/// What one unit copies at most.
const CHUNK_LEN: usize = MIB as usize;

/// What was brought back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Files that are no directories.
    pub file_count: u64,
    /// Directories.
    pub directory_count: u64,
    /// Bytes of data.
    pub data_bytes: u64,
}

/// Copies `ino` of `from`, with all that is in it, to `to` as `name` in the directory `parent`:
/// data and holes, types, owners, modes, times, flags, attributes, and hard links within the tree.
///
/// A file appears whole, at once, and so does a directory: until all is in it, it has another name, which
/// begins with `.undelete-`, and where a crash comes before that the next mount takes it away. Times of
/// the last change (ctime) and of creation are those of the copy. `from` is a view that does not
/// change meanwhile.
///
/// What is copied for `who` is made by that user: it belongs to it, and has of the owner's and the group's
/// rights, attributes and flags what such a user can give its own files. Everything in it must be readable
/// for `who`; whether `who` may go to `ino` and make names in `parent`, the caller has seen to.
///
/// # Errors
/// [`FsError::Denied`] where `who` may not read something, [`FsError::NotPermitted`] where it may not make
/// it; [`FsError::Exists`] when `to` has the name; [`FsError::NotFound`], [`FsError::NotDirectory`],
/// [`FsError::ReadOnly`]; what the disk says. What was done by then is taken away.
pub fn restore(
    from: &FileSystem,
    ino: Ino,
    to: &FileSystem,
    parent: Ino,
    name: &[u8],
    who: Option<&Who>,
) -> Result<Restored> {
    let mut copy = Copy::new(from, to, who);
    if from.getattr(ino)?.kind == FileKind::Directory {
        check_free(to, parent, name)?;
        let staged = Staged::begin(to, parent, ino)?;
        match copy.tree(ino, parent, staged.name()) {
            Ok(()) => staged.finish(name)?,
            Err(error) => return Err(staged.give_up(error)),
        }
    } else {
        copy.tree(ino, parent, name)?;
    }
    // What is immutable can get neither names nor entries.
    for (flags, new) in &copy.flagged {
        let changes = SetAttr { flags: Some(*flags), ..SetAttr::default() };
        to.setattr(&Caller::default(), *new, &changes)?;
    }
    Ok(copy.restored)
}

/// Says at once that a name is taken, rather than when all has been copied.
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
    /// For whom; nothing: for somebody who may do everything.
    who: Option<&'f Who>,
    /// The copies of files that have several names.
    links: HashMap<Ino, Ino>,
    /// Copies that get users' flags in the end.
    flagged: Vec<(FileFlags, Ino)>,
    restored: Restored,
}

impl<'f> Copy<'f> {
    fn new(from: &'f FileSystem, to: &'f FileSystem, who: Option<&'f Who>) -> Self {
        let restored = Restored::default();
        Self { from, to, who, links: HashMap::new(), flagged: Vec::new(), restored }
    }

    /// Refuses to copy for somebody what that one may not read, or make.
    fn check(&self, attr: &Attr) -> Result<()> {
        let Some(who) = self.who else { return Ok(()) };
        let wish = match attr.kind {
            FileKind::Directory => Wish::READ | Wish::EXECUTE,
            FileKind::Regular => Wish::READ,
            FileKind::CharDevice | FileKind::BlockDevice => {
                return Err(FsError::NotPermitted("root alone makes device files"));
            }
            // Whoever can go there may read a link; pipes and sockets hold nothing.
            FileKind::Symlink | FileKind::Fifo | FileKind::Socket => return Ok(()),
        };
        let acl = match self.from.getxattr(attr.ino, ACL_ACCESS) {
            Err(FsError::NoAttribute) => None,
            other => Some(other?),
        };
        let mode = attr.perm;
        who.check(&Rules { uid: attr.uid, gid: attr.gid, mode, acl: acl.as_deref() }, wish)
    }

    /// Makes a copy of `ino`, with all that is in it, but for flags.
    fn tree(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Result<()> {
        // Directories get their times when all is in them: the innermost first, which come last.
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

    /// Makes a copy of one file, or an empty directory, and answers its number. Only a directory
    /// has not its own attributes yet.
    fn node(&mut self, attr: &Attr, parent: Ino, name: &[u8]) -> Result<Ino> {
        let (uid, gid) = self.who.map_or((attr.uid, attr.gid), |who| (who.uid, who.gid));
        let caller = Caller { uid, gid, umask: 0, labels: &[] };
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

    /// Copies a regular file under no name, which it gets when it is whole. Its lookup is counted
    /// once.
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

    /// Gives a copy the attributes of what it was copied from, but for its flags.
    fn finish(&mut self, attr: &Attr, new: Ino) -> Result<()> {
        let change = |changes| self.to.setattr(&Caller::default(), new, &changes).map(drop);
        // The owner first, whose change takes rights away; then ACLs, which the mode follows.
        let (is_owner, is_member) =
            self.who.map_or((true, true), |who| (who.uid == attr.uid, who.is_in(attr.gid)));
        change(SetAttr {
            uid: self.who.is_none().then_some(attr.uid),
            gid: is_member.then_some(attr.gid),
            ..SetAttr::default()
        })?;
        self.extended_attributes(attr.ino, new)?;
        let is_link = attr.kind == FileKind::Symlink;
        // What runs as its owner or its group does so with those alone that the bits were given for.
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
        let flags = match self.who {
            None => attr.flags,
            // Root alone gives the others, and takes them away.
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
        // What `trusted.` and `security.` hold gives rights, or says what users are not to see.
        let is_anybodys = |name: &[u8]| name.starts_with(b"user.") || xattr::is_acl(name);
        let mut wanted = names(self.from.listxattr(ino)?);
        wanted.retain(|name| self.who.is_none() || is_anybodys(name));
        // ACLs that the copy got from the directory where it was made.
        for name in names(self.to.listxattr(new)?) {
            if !wanted.contains(&name) && (self.who.is_none() || is_anybodys(&name)) {
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
