//! Paths and directories of a version.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use dendro_control::versions::path_text;
use dendro_fs::{Attr, FileKind, FileSystem, FsError, Ino};

/// How many symbolic links a path may lead through, as in Linux.
const MAX_LINK_COUNT: usize = 40;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    pub(super) ino: Ino,
}

/// The file at `path`, from the root on. Links in directories are followed, and with
/// `follows_last` the last name, too.
pub(crate) fn find(fs: &FileSystem, path: &[u8], follows_last: bool) -> Result<Attr, FsError> {
    let names = |path: &[u8]| -> Vec<Vec<u8>> {
        let names =
            path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".");
        names.map(<[u8]>::to_vec).rev().collect()
    };
    let mut rest = names(path);
    let mut place = vec![fs.getattr(Ino::ROOT)?];
    let mut link_count = 0;
    while let Some(name) = rest.pop() {
        let here = place[place.len() - 1];
        if here.kind != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        if name == b".." {
            if place.len() > 1 {
                place.pop();
            }
            continue;
        }
        let found = fs.lookup(here.ino, &name)?;
        fs.forget(found.ino, 1);
        if found.kind != FileKind::Symlink || (rest.is_empty() && !follows_last) {
            place.push(found);
            continue;
        }
        link_count += 1;
        if link_count > MAX_LINK_COUNT {
            return Err(FsError::Invalid("too many symbolic links"));
        }
        let target = fs.readlink(found.ino)?;
        if target.first() == Some(&b'/') {
            place.truncate(1);
        }
        rest.extend(names(&target));
    }
    Ok(place[place.len() - 1])
}

/// The entries of a directory, sorted by name, as many as can be read; and why there are no more.
pub(super) fn entries(fs: &FileSystem, directory: Ino) -> (Vec<Entry>, Option<FsError>) {
    let mut all = Vec::new();
    let listed = fs.readdir(directory, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            all.push(Entry { name: entry.name.to_vec(), ino: entry.ino });
        }
        true
    });
    all.sort();
    (all, listed.err())
}

/// The name of a file in a directory.
pub(super) fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    [directory, b"/", name].concat()
}

/// A path as the command line has it, from the root on.
pub(crate) fn absolute(path: &OsStr) -> Vec<u8> {
    match path.as_bytes() {
        path if path.starts_with(b"/") => path.to_vec(),
        path => [b"/", path].concat(),
    }
}

/// A path in a message.
pub(crate) fn shown(path: &[u8]) -> String {
    path_text(path)
}
