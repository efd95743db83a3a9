//! From a path to a file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use dendro_fs::{Attr, FileKind, FileSystem, FsError, Ino};

use crate::error::{Error, Result};

/// How many symbolic links a path may lead through, as in Linux.
const MAX_LINKS: usize = 40;

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    Yes,
    No,
}

/// The place of a name: the directory, and the name in it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) dir: Ino,
    pub(crate) name: Vec<u8>,
}

/// The parts of `path` that lead on, the last one first. Paths begin at the root directory, with a
/// slash and without one.
fn parts(path: &Path) -> Vec<Vec<u8>> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.as_bytes().to_vec()),
        Component::ParentDir => Some(b"..".to_vec()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    });
    let mut parts: Vec<_> = parts.collect();
    parts.reverse();
    parts
}

/// Finds an entry of a directory without counting a lookup.
fn lookup(fs: &FileSystem, dir: Ino, name: &[u8]) -> Result<Attr> {
    let attr = fs.lookup(dir, name)?;
    fs.forget(attr.ino, 1);
    Ok(attr)
}

/// The file at the end of `path`.
///
/// # Errors
/// `NotFound`, `NotDirectory`, `NameTooLong`; [`Error::Loop`].
pub(crate) fn find(fs: &FileSystem, path: &Path, follow: Follow) -> Result<Attr> {
    match walk(fs, path, follow)? {
        (place, None) if !place.name.is_empty() => Err(FsError::NotFound.into()),
        (place, None) => Ok(fs.getattr(place.dir)?),
        (_, Some(attr)) => Ok(attr),
    }
}

/// The place of the name at the end of `path`, whose directory exists. A symbolic link there is
/// not followed.
///
/// # Errors
/// As [`find`]; `Invalid` if the path ends with no name.
pub(crate) fn place(fs: &FileSystem, path: &Path) -> Result<Place> {
    let (place, _) = walk(fs, path, Follow::No)?;
    if place.name.is_empty() || place.name == b".." {
        return Err(FsError::Invalid("the path does not end with a name").into());
    }
    Ok(place)
}

/// As [`place`], where a symbolic link at the end leads to. Also the file there, if there is one.
pub(crate) fn place_of_target(fs: &FileSystem, path: &Path) -> Result<(Place, Option<Attr>)> {
    walk(fs, path, Follow::Yes)
}

/// Where `path` leads: the place of its last name, and the file of that name if it exists. The name
/// is empty for the root directory, which is the directory of the place then.
fn walk(fs: &FileSystem, path: &Path, follow: Follow) -> Result<(Place, Option<Attr>)> {
    let mut left = parts(path);
    let mut dir = Ino::ROOT;
    let mut links = 0;
    let Some(mut name) = left.pop() else { return Ok((Place { dir, name: Vec::new() }, None)) };
    loop {
        let found = match lookup(fs, dir, &name) {
            Err(Error::Files(FsError::NotFound)) if left.is_empty() => None,
            found => Some(found?),
        };
        let is_last = left.is_empty();
        match found {
            Some(attr) if attr.kind == FileKind::Symlink && !(is_last && follow == Follow::No) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Error::Loop);
                }
                let target = fs.readlink(attr.ino)?;
                let target = Path::new(OsStr::from_bytes(&target));
                if target.is_absolute() {
                    dir = Ino::ROOT;
                }
                left.extend(parts(target));
            }
            found if is_last => return Ok((Place { dir, name }, found)),
            Some(attr) => dir = attr.ino,
            None => unreachable!("only a last name may be missing"),
        }
        match left.pop() {
            Some(next) => name = next,
            // A symbolic link led to the root directory.
            None => return Ok((Place { dir, name: Vec::new() }, None)),
        }
    }
}
