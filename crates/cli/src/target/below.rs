//! The files at and below a path.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs, io};

use dendro_fuse::is_snapshot_node;

use crate::failure::Failure;

/// The sizes of the regular files at and below `path`, on its mount, by their i-node numbers. A
/// file with several names is there once. Files in the directory of snapshots are refused: their
/// numbers are not those of lists.
pub(crate) fn files_below(path: &Path) -> Result<BTreeMap<u64, u64>, Failure> {
    let fail =
        |path: &Path, error: io::Error| Failure::new(format_args!("{}: {error}", path.display()));
    let top = fs::metadata(path).map_err(|error| fail(path, error))?;
    if is_snapshot_node(top.ino()) {
        let why = "is in a snapshot; mount that, and name the file in the mount";
        return Err(Failure::new(format_args!("{}: {why}", path.display())));
    }
    let mut files = BTreeMap::new();
    if top.is_file() {
        files.insert(top.ino(), top.len());
    }
    let mut directories = Vec::new();
    if top.is_dir() {
        directories.push(path.to_path_buf());
    }
    while let Some(directory) = directories.pop() {
        let entries = fs::read_dir(&directory).map_err(|error| fail(&directory, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| fail(&directory, error))?;
            let metadata = match entry.metadata() {
                // Another process removed it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(|error| fail(&entry.path(), error))?,
            };
            if metadata.dev() != top.dev() {
                continue;
            }
            if metadata.is_file() {
                files.insert(metadata.ino(), metadata.len());
            } else if metadata.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    Ok(files)
}
