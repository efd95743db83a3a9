//! The names that other versions have for files that have lost theirs.
//!
//! An i-node says which directory gave it its name last. So only the entries that other versions
//! have of these directories are read.

use std::collections::{BTreeMap, BTreeSet};

use dendro_disk::{Error as DiskError, View};

use super::head::Head;
use crate::check::{Finding, FindingCode};
use crate::error::{FsError, Result};
use crate::types::{FileKind, Ino};

/// In so many versions names are looked for.
const MAX_VERSIONS: usize = 32;

/// The names that files had in the directories that they say they were in.
#[derive(Default)]
pub(super) struct Names(BTreeMap<Ino, Vec<u8>>);

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
            let inode = head.inode(&mut head.edits(), directory)?;
            if inode.is_some_and(|inode| inode.kind != FileKind::Directory) {
                continue;
            }
            for view in versions.iter().take(MAX_VERSIONS) {
                if files.is_empty() {
                    break;
                }
                let looked = head.each_entry_in(*view, directory, |_, entry| {
                    if files.remove(&entry.ino) {
                        names.insert(entry.ino, entry.name.to_vec());
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

    /// The name that a file had.
    pub(super) fn of(&self, ino: Ino) -> Option<&[u8]> {
        self.0.get(&ino).map(Vec::as_slice)
    }
}
