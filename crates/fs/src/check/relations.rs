//! What files say of each other: names, types, parents, link counts, orphans, loops.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Finding, FindingCode};
use super::table::{BAD, Facts, LISTED, REMOVED, TRUNCATING, Table};
use crate::layout::dirent::Entry;
use crate::types::{FileKind, Ino};

/// The most entries for one file that findings name.
const MAX_ENTRIES_NAMED: usize = 100;

/// The entries for some files: directory, name and type of each.
#[derive(Default)]
pub(super) struct EntriesFor(BTreeMap<Ino, Vec<(Ino, Vec<u8>, FileKind)>>);

impl EntriesFor {
    /// Collects the entries for `files`.
    pub(super) fn new(files: impl IntoIterator<Item = Ino>) -> Self {
        Self(files.into_iter().map(|ino| (ino, Vec::new())).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, directory: Ino, entry: &Entry<'_>) {
        if let Some(entries) = self.0.get_mut(&entry.ino)
            && entries.len() < MAX_ENTRIES_NAMED
        {
            entries.push((directory, entry.name.to_vec(), entry.kind));
        }
    }
}

/// Whether the entries for a file must be read to say what is wrong with them.
pub(super) fn needs_entries(ino: Ino, facts: &Facts) -> bool {
    if facts.is_there() { !facts.claims_hold(ino) } else { facts.names > 0 }
}

/// What is wrong with what is said of a file.
pub(super) fn check(ino: Ino, facts: &Facts, entries: &EntriesFor) -> Vec<Finding> {
    let mut findings = Vec::new();
    check_entries(ino, facts, entries, &mut findings);
    let mut find = |code, detail: String| findings.push(Finding::new(code, ino, detail));
    let (is_removed, is_listed) = (facts.has(REMOVED), facts.has(LISTED));
    if !facts.is_there() {
        if is_removed || is_listed {
            find(FindingCode::BadOrphan, "the orphan list has it, and it is not there".into());
        }
        return findings;
    }
    let is_root = ino == Ino::ROOT;
    if facts.names == 0 && !is_removed && !is_root {
        find(FindingCode::Unreachable, "it has no name".into());
    }
    let Some(kind) = facts.kind().filter(|_| !facts.has(BAD)) else {
        return findings;
    };
    let expected = match kind {
        _ if is_removed && facts.names == 0 => 0,
        FileKind::Directory => facts.subdirs.saturating_add(2),
        _ => facts.names,
    };
    if facts.nlink != expected && (facts.names > 0 || is_removed || is_root) {
        let detail = format!("{expected} links, and it says {}", facts.nlink);
        let finding = Finding::new(FindingCode::WrongLinkCount, ino, detail);
        findings.push(finding.expecting(expected.into()));
    }
    let mut find = |code, detail: String| findings.push(Finding::new(code, ino, detail));
    let truncating = facts.has(TRUNCATING);
    // A directory that loses its name is empty, and goes at once.
    let is_no_orphan = facts.names > 0 || kind == FileKind::Directory;
    if (is_removed && is_no_orphan) || (is_listed && !truncating) {
        find(FindingCode::BadOrphan, "it is on the list, and no orphan".into());
    }
    if truncating && !is_removed && !is_listed {
        find(FindingCode::BadOrphan, "its truncation is on no list".into());
    }
    findings
}

fn check_entries(ino: Ino, facts: &Facts, entries: &EntriesFor, findings: &mut Vec<Finding>) {
    let mut right = 0;
    for (parent, name, kind) in entries.0.get(&ino).into_iter().flatten() {
        let text = String::from_utf8_lossy(name);
        let mut find = |code, detail| {
            findings.push(Finding::new(code, *parent, detail).about(name, ino));
        };
        if !facts.is_there() {
            find(FindingCode::DanglingEntry, format!("{text} names i-node {ino}"));
            continue;
        }
        match facts.kind() {
            Some(of_file) if of_file != *kind => {
                find(FindingCode::WrongKind, format!("{text} is a {of_file:?}"));
            }
            _ => {}
        }
        if ino == Ino::ROOT {
            find(FindingCode::WrongParent, format!("{text} names the root directory"));
        } else if facts.is_directory() && facts.parent != parent.0 {
            let says = facts.parent;
            find(FindingCode::WrongParent, format!("i-node {ino}, {text}, says {says}"));
        } else if facts.is_directory() {
            right += 1;
            if right > 1 {
                find(FindingCode::WrongParent, format!("{text} is a second name of i-node {ino}"));
            }
        }
    }
    if ino == Ino::ROOT && !facts.has(BAD) && facts.parent != ino.0 {
        let detail = format!("the root's parent is {}", facts.parent);
        findings.push(Finding::new(FindingCode::WrongParent, ino, detail));
    }
}

/// The loops that the parents of `directories` lead to: the lowest number of each.
pub(super) fn loops(table: &Table, directories: impl Iterator<Item = Ino>) -> Vec<Finding> {
    let mut seen: BTreeSet<Ino> = BTreeSet::from([Ino::ROOT]);
    let mut findings = Vec::new();
    for directory in directories {
        let mut path = Vec::new();
        let mut on_path = BTreeSet::new();
        let mut at = directory;
        let start = loop {
            if seen.contains(&at) {
                break None;
            }
            if !on_path.insert(at) {
                break path.iter().position(|&ino| ino == at);
            }
            path.push(at);
            let facts = table.get(at);
            // What is wrong in other ways is mended first, and then looked at again.
            if !facts.is_directory() || facts.names == 0 || !facts.claims_hold(at) {
                break None;
            }
            at = Ino(facts.parent);
        };
        if let Some(start) = start {
            let lowest = *path[start..].iter().min().expect("a loop has a directory");
            let detail = format!("a loop of {}", path.len() - start);
            findings.push(Finding::new(FindingCode::DirectoryLoop, lowest, detail));
        }
        seen.append(&mut on_path);
    }
    findings
}
