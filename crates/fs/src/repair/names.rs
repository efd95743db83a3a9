//! The names that other versions have for files that have lost theirs.
//!
//! An i-node says which directory gave it its name last. So only the entries that other versions
//! have of these directories are read.

use std::collections::{BTreeMap, BTreeSet};

use dendro_disk::{Error as DiskError, View};

use super::head::{Child, Head};
use crate::check::{Finding, FindingCode};
use crate::error::{FsError, Result};
use crate::types::{FileKind, Ino};

/// In so many versions names are looked for.
const MAX_VERSIONS: usize = 32;

/// The most directories on a path.
const MAX_DEPTH: usize = 4096;

/// A directory, and a name in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) directory: Ino,
    pub(super) name: Vec<u8>,
}

/// Where files had their names.
#[derive(Default)]
pub(super) struct Names(BTreeMap<Ino, Place>);

impl Names {
    /// Looks for names of the files that `findings` say have none. Of several versions the newest
    /// of the same branch counts.
    pub(super) fn find(head: &Head<'_>, versions: &[View], findings: &[&Finding]) -> Result<Self> {
        let mut wanted: BTreeMap<Ino, BTreeSet<Ino>> = BTreeMap::new();
        let mut edits = head.edits();
        for finding in findings.iter().filter(|of| of.code == FindingCode::Unreachable) {
            if let Some(inode) = head.inode(&mut edits, finding.ino)? {
                wanted.entry(Ino(inode.parent)).or_default().insert(finding.ino);
            }
        }
        let mut versions: Vec<View> =
            versions.iter().filter(|view| **view != head.view()).copied().collect();
        let order = |view: &View| {
            let age = std::cmp::Reverse(view.epoch.unwrap_or(u64::MAX));
            (view.branch != head.view().branch, age)
        };
        versions.sort_by_key(order);
        let mut names = BTreeMap::new();
        for (directory, mut files) in wanted {
            if !is_directory(head, directory)? {
                continue;
            }
            for view in versions.iter().take(MAX_VERSIONS) {
                if files.is_empty() {
                    break;
                }
                let looked = head.each_entry_in(*view, directory, |_, entry| {
                    if files.remove(&entry.ino) {
                        let name = entry.name.to_vec();
                        names.insert(entry.ino, Place { directory, name });
                    }
                });
                match looked {
                    // Another version may lack the directory, or what could be read of it.
                    Err(FsError::Disk(DiskError::Corrupted(_) | DiskError::Io(_))) => {}
                    Err(FsError::Disk(DiskError::NoSuchList(_))) => {}
                    other => other?,
                }
            }
        }
        Ok(Self(names))
    }

    /// Where a file can get its name back.
    pub(super) fn place(&self, head: &Head<'_>, child: Child) -> Result<Option<&Place>> {
        let Some(place) = self.0.get(&child.ino) else { return Ok(None) };
        let is_free =
            child.kind != FileKind::Directory || !is_inside(head, place.directory, child.ino)?;
        Ok(Some(place).filter(|_| is_free))
    }
}

fn is_directory(head: &Head<'_>, ino: Ino) -> Result<bool> {
    let inode = head.inode(&mut head.edits(), ino)?;
    Ok(inode.is_some_and(|inode| inode.kind == FileKind::Directory))
}

/// Whether `directory` is `above`, or lies somewhere in it, or in a loop.
fn is_inside(head: &Head<'_>, directory: Ino, above: Ino) -> Result<bool> {
    let mut at = directory;
    for _ in 0..MAX_DEPTH {
        if at == above {
            return Ok(true);
        }
        match head.inode(&mut head.edits(), at)? {
            Some(inode) if at != Ino::ROOT => at = Ino(inode.parent),
            _ => return Ok(false),
        }
    }
    Ok(true)
}
