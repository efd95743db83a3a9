//! The check of one version after another: of each further version only the lists are read in which
//! it may differ from the one before.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use dendro_disk::{Lid, LogicalDisk, View};

use super::book::{Book, Subject};
use super::finding::{Finding, FindingCode};
use super::list::{BATCH_LEN, Reader, readable};
use super::options::{CheckOptions, Counts, Progress};
use super::relations::{self, EntriesFor};
use super::table::{LISTED, REMOVED, Table, claim};
use crate::error::{FsError, Result};
use crate::layout::dirent::Entry;
use crate::layout::format::{
    FIRST_FILE_LIST, ORPHAN_LIST, ORPHAN_REMOVE, ORPHAN_TRUNCATE, OrphanV1, RECORD_VERSION,
    VOLUME_LIST, split_head,
};
use crate::layout::names::NameHasher;
use crate::layout::volume::Volume;
use crate::types::{FileKind, Ino};

/// Progress is told after so many lists.
const LISTS_BETWEEN_REPORTS: u64 = 1024;

/// The most files for which entries are read once more, to name them.
const MAX_NAMED: usize = 65_536;

/// A check under way.
pub(super) struct Checker<'c> {
    disk: &'c dyn LogicalDisk,
    options: CheckOptions,
    progress: &'c mut dyn FnMut(&Progress) -> ControlFlow<()>,
    /// The version that the facts are of; `None`: of none.
    at: Option<(View, NameHasher)>,
    table: Table,
    orphans: BTreeMap<Ino, u8>,
    book: Book,
    counts: Counts,
    /// Files about which something changed since relations were checked last, but in the first
    /// version, of which all are checked.
    affected: BTreeSet<Ino>,
}

impl<'c> Checker<'c> {
    pub(super) fn new(
        disk: &'c dyn LogicalDisk,
        options: CheckOptions,
        progress: &'c mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Self {
        Self {
            disk,
            options,
            progress,
            at: None,
            table: Table::default(),
            orphans: BTreeMap::new(),
            book: Book::new(options.max_findings_of_a_code),
            counts: Counts::default(),
            affected: BTreeSet::new(),
        }
    }

    pub(super) fn finish(self) -> (Book, Counts) {
        (self.book, self.counts)
    }

    /// Checks `view`. `changed` gives lists from a number on, in which the view may differ from
    /// the one that was checked last.
    pub(super) fn check(
        &mut self,
        view: View,
        changed: impl FnMut(View, Lid) -> Result<Vec<Lid>>,
    ) -> Result<()> {
        self.counts.version_count += 1;
        let hasher = match Volume::read(self.disk, view, false) {
            Ok(volume) => volume.hasher().with_mask(self.options.hash_mask),
            Err(error @ (FsError::Corrupted(_) | FsError::Disk(_))) => {
                return self.give_up(view, &error);
            }
            Err(error) => return Err(error),
        };
        let is_first = match self.at {
            // Another key moves every name to another record.
            Some((last, known)) if known.dir_index(b"a") == hasher.dir_index(b"a") => {
                self.advance(last, Reader { view, ..self.reader(hasher) }, changed)?;
                false
            }
            _ => {
                self.forget();
                self.start(&Reader { view, ..self.reader(hasher) })?;
                true
            }
        };
        self.at = Some((view, hasher));
        self.check_relations(&Reader { view, ..self.reader(hasher) }, is_first)?;
        self.counts.memory_bytes = self.counts.memory_bytes.max(self.table.memory_bytes());
        self.counts.file_count = self.counts.file_count.max(self.table.len() as u64);
        self.book.close(view);
        Ok(())
    }

    fn reader(&self, hasher: NameHasher) -> Reader<'c> {
        Reader { disk: self.disk, view: View::HEAD, hasher, data: self.options.data }
    }

    fn forget(&mut self) {
        self.at = None;
        self.table = Table::default();
        self.orphans.clear();
        self.affected.clear();
        self.book.clear();
    }

    /// Notes that nothing of a version can be checked.
    fn give_up(&mut self, view: View, error: &FsError) -> Result<()> {
        let damage = match error {
            FsError::Disk(error) => readable::<()>(Err(error.clone()))?.err(),
            other => Some(other.to_string()),
        };
        self.forget();
        let code = FindingCode::BadVolume;
        let finding = Finding::new(code, Ino(VOLUME_LIST.0), damage.unwrap_or_default());
        self.book.set(Subject::Volume, vec![finding]);
        self.book.close(view);
        Ok(())
    }

    /// Reads all lists.
    fn start(&mut self, reader: &Reader<'_>) -> Result<()> {
        self.read_orphans(reader)?;
        let mut from = Lid(0);
        loop {
            let batch = match readable(self.disk.lists(reader.view, from, BATCH_LEN))? {
                Ok(batch) => batch,
                Err(why) => {
                    let finding = Finding::new(FindingCode::UnreadableList, Ino(from.0), why);
                    self.book.set(Subject::Volume, vec![finding]);
                    return Ok(());
                }
            };
            for &list in &batch {
                if is_file(list) {
                    self.read_list(reader, Ino(list.0))?;
                }
            }
            match batch.last() {
                Some(last) => from = Lid(last.0 + 1),
                None => break,
            }
        }
        if !self.table.get(Ino::ROOT).is_there() {
            self.note_absence(Ino::ROOT);
        }
        Ok(())
    }

    /// Reads the lists in which `reader`'s view may differ from `last`.
    fn advance(
        &mut self,
        last: View,
        reader: Reader<'_>,
        mut changed: impl FnMut(View, Lid) -> Result<Vec<Lid>>,
    ) -> Result<()> {
        let before = Reader { view: last, ..reader };
        let mut from = Lid(0);
        let mut again = BTreeSet::new();
        loop {
            let lists = changed(last, from)?;
            for &list in &lists {
                if list == ORPHAN_LIST {
                    again = self.read_orphans(&reader)?;
                } else if is_file(list) {
                    again.remove(&Ino(list.0));
                    self.read_again(&before, &reader, Ino(list.0))?;
                }
            }
            match lists.last() {
                Some(last) => from = Lid(last.0 + 1),
                None => break,
            }
        }
        for ino in again {
            self.read_again(&before, &reader, ino)?;
        }
        Ok(())
    }

    /// Replaces what the list of `ino` said in the version of `before` by what it says now.
    fn read_again(&mut self, before: &Reader<'_>, now: &Reader<'_>, ino: Ino) -> Result<()> {
        self.drop_list(before, ino)?;
        match readable(self.disk.hints(now.view, ino.lid()))? {
            Ok(None) => self.note_absence(ino),
            _ => self.read_list(now, ino)?,
        }
        Ok(())
    }

    /// Notes that a list is not there. Only the root directory must be.
    fn note_absence(&mut self, ino: Ino) {
        if ino == Ino::ROOT {
            let finding = Finding::new(FindingCode::BadInode, ino, "there is no root directory");
            self.book.set(Subject::List(ino), vec![finding]);
        }
    }

    /// Reads the orphan list. Returns the files about which it now says something else.
    fn read_orphans(&mut self, reader: &Reader<'_>) -> Result<BTreeSet<Ino>> {
        let mut orphans = BTreeMap::new();
        let mut findings = Vec::new();
        let mut from = 0;
        loop {
            let answer = self.disk.records(reader.view, ORPHAN_LIST, from, BATCH_LEN);
            let batch = match readable(answer)? {
                Ok(batch) => batch,
                Err(why) => {
                    let ino = Ino(ORPHAN_LIST.0);
                    findings.push(Finding::new(FindingCode::UnreadableList, ino, why));
                    break;
                }
            };
            for (index, record) in &batch {
                let kind = match split_head::<OrphanV1>(record, "an orphan") {
                    Ok((head, _)) if head.version == RECORD_VERSION => Some(head.kind),
                    _ => None,
                };
                match kind {
                    Some(kind @ (ORPHAN_REMOVE | ORPHAN_TRUNCATE)) => {
                        orphans.insert(Ino(*index), kind);
                    }
                    _ => {
                        let detail = "its entry on the orphan list is malformed";
                        let finding = Finding::new(FindingCode::BadOrphan, Ino(*index), detail);
                        findings.push(finding);
                    }
                }
            }
            match batch.last().and_then(|(last, _)| last.checked_add(1)) {
                Some(next) if batch.len() == BATCH_LEN => from = next,
                _ => break,
            }
        }
        if readable(self.disk.hints(reader.view, ORPHAN_LIST))? == Ok(None) {
            let ino = Ino(ORPHAN_LIST.0);
            findings.push(Finding::new(FindingCode::BadVolume, ino, "there is no list of orphans"));
        }
        self.book.set(Subject::Orphans, findings);
        let both = self.orphans.keys().chain(orphans.keys());
        let changed: BTreeSet<Ino> =
            both.filter(|ino| self.orphans.get(ino) != orphans.get(ino)).copied().collect();
        for &ino in &changed {
            self.table.change(ino, |facts| {
                facts.flags &= !(REMOVED | LISTED);
                facts.flags |= match orphans.get(&ino) {
                    None => 0,
                    Some(&ORPHAN_REMOVE) => REMOVED,
                    Some(_) => LISTED,
                };
            });
        }
        self.affected.extend(&changed);
        self.orphans = orphans;
        Ok(changed)
    }

    /// Takes away what the list of `ino` said in the version of `before`.
    fn drop_list(&mut self, before: &Reader<'_>, ino: Ino) -> Result<()> {
        self.affected.insert(ino);
        self.book.set(Subject::List(ino), Vec::new());
        if self.table.get(ino).is_directory() {
            self.count_list(before.view)?;
            let (table, affected) = (&mut self.table, &mut self.affected);
            before.each_entry(ino, |entry| {
                affected.insert(entry.ino);
                count_entry(table, ino, entry, false);
            })?;
        }
        self.table.change(ino, |facts| facts.set_gone());
        Ok(())
    }

    /// Counts a list that is read next, and tells the progress.
    fn count_list(&mut self, view: View) -> Result<()> {
        self.counts.lists_read += 1;
        if !self.counts.lists_read.is_multiple_of(LISTS_BETWEEN_REPORTS) {
            return Ok(());
        }
        let Counts { version_count, lists_read, .. } = self.counts;
        match (self.progress)(&Progress { view, version_count, lists_read }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(FsError::Interrupted),
        }
    }

    /// Reads the list of `ino`.
    fn read_list(&mut self, reader: &Reader<'_>, ino: Ino) -> Result<()> {
        self.count_list(reader.view)?;
        let orphan = self.orphans.get(&ino).copied();
        let (table, affected, counts) = (&mut self.table, &mut self.affected, &mut self.counts);
        let is_first = self.at.is_none();
        let scanned = reader.scan(ino, orphan, |entry| {
            counts.entry_count += 1;
            if !is_first {
                affected.insert(entry.ino);
            }
            count_entry(table, ino, entry, true);
        })?;
        self.table.change(ino, |facts| match &scanned.inode {
            Some(inode) => facts.set_inode(inode),
            None => facts.set_bad(scanned.is_directory),
        });
        self.book.set(Subject::List(ino), scanned.findings);
        Ok(())
    }

    /// Checks the relations of the files about which something changed.
    fn check_relations(&mut self, reader: &Reader<'_>, is_first: bool) -> Result<()> {
        let affected: Vec<Ino> = match is_first {
            true => self.table.iter().map(|(ino, _)| ino).collect(),
            false => self.affected.iter().copied().collect(),
        };
        self.affected.clear();
        let table = &self.table;
        let needed =
            affected.iter().filter(|ino| relations::needs_entries(**ino, &table.get(**ino)));
        // If there are more, those are named when these have been mended.
        let mut entries = EntriesFor::new(needed.copied().take(MAX_NAMED));
        if !entries.is_empty() {
            let mut next = self.table.next_directory(Ino(0));
            while let Some(directory) = next {
                self.count_list(reader.view)?;
                reader.each_entry(directory, |entry| entries.take(directory, entry))?;
                next = self.table.next_directory(Ino(directory.0 + 1));
            }
        }
        let (table, book) = (&self.table, &mut self.book);
        for &ino in &affected {
            let findings = relations::check(ino, &table.get(ino), &entries);
            book.set(Subject::Relations(ino), findings);
        }
        let is_directory = |ino: &Ino| table.get(*ino).is_directory();
        if book.has(Subject::Loops) {
            let all = table.iter().filter(|(_, facts)| facts.is_directory());
            book.set(Subject::Loops, relations::loops(table, all.map(|(ino, _)| ino)));
        } else {
            let changed = affected.iter().copied().filter(is_directory);
            book.set(Subject::Loops, relations::loops(table, changed));
        }
        Ok(())
    }
}

/// Whether the list is that of a file.
fn is_file(list: Lid) -> bool {
    list == Ino::ROOT.lid() || list >= FIRST_FILE_LIST
}

/// Counts an entry of `directory`, or takes it away again.
fn count_entry(table: &mut Table, directory: Ino, entry: &Entry<'_>, is_added: bool) {
    let step = |number: &mut u32| {
        *number = if is_added { number.wrapping_add(1) } else { number.wrapping_sub(1) };
    };
    let claim = claim(entry.kind, directory);
    table.change(entry.ino, |facts| {
        step(&mut facts.names);
        facts.claims = match is_added {
            true => facts.claims.wrapping_add(claim),
            false => facts.claims.wrapping_sub(claim),
        };
    });
    if entry.kind == FileKind::Directory {
        table.change(directory, |facts| step(&mut facts.subdirs));
    }
}
