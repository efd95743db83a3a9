//! What files say of each other: names, types, parents, link counts, orphans, loops.

use std::collections::BTreeMap;

use super::book::Findings;
use super::facts::{BAD, DIRECTORY, FREEING, Facts, LISTED, ON_PATH, REMOVED, SEEN};
use super::finding::{Finding, FindingCode};
use super::table::Table;
use crate::error::Result;
use crate::layout::dirent::Entry;
use crate::types::{FileKind, Ino};

/// The most entries for one file that findings name.
const MAX_ENTRIES_NAMED: usize = 100;

/// About what an entry takes in memory beside its name, and a file for which entries are read.
const ENTRY_BYTES: u64 = 96;

/// An entry: the directory, the name and the type.
type Named = (Ino, Box<[u8]>, FileKind);

/// The entries for some files: directory, name and type of each. There are as many as fit in
/// memory.
pub(super) struct EntriesFor {
    files: BTreeMap<Ino, Vec<Named>>,
    files_bytes_left: u64,
    bytes_left: u64,
}

impl EntriesFor {
    pub(super) const fn new(memory_bytes: u64) -> Self {
        // Files take half of it at most, so that some entries have room.
        let half_bytes = memory_bytes / 2;
        Self { files: BTreeMap::new(), files_bytes_left: half_bytes, bytes_left: half_bytes }
    }

    /// Entries for `ino` are wanted. Returns whether there is room for that.
    pub(super) fn want(&mut self, ino: Ino) -> bool {
        let has_room = self.files_bytes_left >= ENTRY_BYTES;
        if has_room {
            self.files_bytes_left -= ENTRY_BYTES;
            self.files.insert(ino, Vec::new());
        }
        has_room
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(super) fn take(&mut self, directory: Ino, entry: &Entry<'_>) {
        let needed = ENTRY_BYTES + entry.name.len() as u64;
        if let Some(entries) = self.files.get_mut(&entry.ino)
            && entries.len() < MAX_ENTRIES_NAMED
            && needed <= self.bytes_left
        {
            self.bytes_left -= needed;
            entries.push((directory, entry.name.into(), entry.kind));
        }
    }
}

/// Whether the entries for a file must be read to say what is wrong with them.
pub(super) fn needs_entries(facts: &Facts) -> bool {
    if facts.is_there() { !facts.claims_hold(facts.ino()) } else { facts.names > 0 }
}

/// What is wrong with what is said of a file.
pub(super) fn check(facts: &Facts, entries: &EntriesFor) -> Vec<Finding> {
    let mut findings = Vec::new();
    let ino = facts.ino();
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
    if facts.is_called_directory() {
        let finding = Finding::new(FindingCode::BadInode, ino, "its name is that of a directory");
        findings.push(finding.expecting(FileKind::Directory.dirent_type().into()));
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
    let is_freeing = facts.has(FREEING);
    // A directory that loses its name is empty, and goes at once.
    let is_no_orphan = facts.names > 0 || kind == FileKind::Directory;
    if (is_removed && is_no_orphan) || (is_listed && !is_freeing) {
        find(FindingCode::BadOrphan, "it is on the list, and no orphan".into());
    }
    if is_freeing && !is_removed && !is_listed {
        find(FindingCode::BadOrphan, "what is still to be freed of it is on no list".into());
    }
    findings
}

fn check_entries(ino: Ino, facts: &Facts, entries: &EntriesFor, findings: &mut Vec<Finding>) {
    let mut right = 0;
    for (parent, name, kind) in entries.files.get(&ino).into_iter().flatten() {
        let text = String::from_utf8_lossy(name);
        let mut find = |code, detail| {
            findings.push(Finding::new(code, *parent, detail).about(name, ino));
        };
        if !facts.is_there() {
            let code = match kind {
                FileKind::Directory => FindingCode::LostDirectory,
                _ => FindingCode::DanglingEntry,
            };
            find(code, format!("{text} names i-node {ino}"));
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

/// The loops that the parents of directories lead to: the lowest number of each. Only directories
/// with all of `flags` are looked at. In the table, directories are marked as [`SEEN`].
pub(super) fn loops(table: &mut Table, flags: u16, findings: &mut Findings) -> Result<()> {
    let mut next = table.next_with_all(Ino(0), flags | DIRECTORY)?;
    while let Some(facts) = next {
        if let Some(on_loop) = walk_up(table, facts.ino())? {
            let (mut lowest, mut count) = (on_loop, 1_u64);
            let mut at = Ino(table.get(on_loop)?.parent);
            while at != on_loop {
                (lowest, count) = (lowest.min(at), count + 1);
                at = Ino(table.get(at)?.parent);
            }
            let detail = format!("a loop of {count}");
            findings.push(Finding::new(FindingCode::DirectoryLoop, lowest, detail));
        }
        next = match facts.ino.checked_add(1) {
            Some(from) => table.next_with_all(Ino(from), flags | DIRECTORY)?,
            None => None,
        };
    }
    Ok(())
}

/// Walks from a directory towards the root, as far as nobody has walked. Returns a directory of the
/// loop in which that ends, if it does.
fn walk_up(table: &mut Table, directory: Ino) -> Result<Option<Ino>> {
    let mut at = directory;
    let on_loop = loop {
        let facts = table.get(at)?;
        if facts.has(ON_PATH) {
            break Some(at);
        }
        // What is wrong in other ways is mended first, and then looked at again.
        let leads_on = facts.is_directory() && facts.names > 0 && facts.claims_hold(at);
        if at == Ino::ROOT || facts.has(SEEN) || !leads_on {
            break None;
        }
        table.change(at, |facts| facts.flags |= ON_PATH)?;
        at = Ino(facts.parent);
    };
    let mut at = directory;
    loop {
        let facts = table.get(at)?;
        if !facts.has(ON_PATH) {
            return Ok(on_loop);
        }
        table.change(at, |facts| facts.flags = facts.flags & !ON_PATH | SEEN)?;
        at = Ino(facts.parent);
    }
}
