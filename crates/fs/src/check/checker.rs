//! The check of one version after another: of each further version only the lists are read in which
//! it may differ from the one before.

use std::ops::ControlFlow;

use dendro_disk::{Lid, LogicalDisk, ScanPlace, ScanPoint, View};

use super::book::{Book, Findings, Subject};
use super::facts::{
    AFFECTED, AGAIN, DIRECTORY, Facts, LISTED, ON_PATH, REMOVED, SEEN, WAS_LISTED, WAS_REMOVED,
    claim,
};
use super::finding::{Finding, FindingCode};
use super::list::{BATCH_LEN, Reader, Scan, Scanned, readable};
use super::options::{CheckOptions, Counts, Progress};
use super::relations::{self, EntriesFor};
use super::table::Table;
use crate::error::{FsError, Result};
use crate::layout::dirent::Entry;
use crate::layout::format::{
    FIRST_FILE_LIST, ORPHAN_LIST, ORPHAN_PUNCH, ORPHAN_REMOVE, ORPHAN_TRUNCATE, OrphanV1,
    RECORD_VERSION, VOLUME_LIST, split_head,
};
use crate::layout::names::NameHasher;
use crate::layout::volume::Volume;
use crate::types::{FileKind, Ino};

/// How much a scan reads at a time.
const SCAN_LEN: usize = 4096;

/// Progress is told after so many lists.
const LISTS_BETWEEN_REPORTS: u64 = 1024;

/// The part of the memory that entries take which are read once more, to name them.
const PART_FOR_ENTRIES: u64 = 4;

/// A check under way.
pub(super) struct Checker<'c> {
    disk: &'c dyn LogicalDisk,
    options: CheckOptions,
    progress: &'c mut dyn FnMut(&Progress) -> ControlFlow<()>,
    /// The version that the facts are of; `None`: of none.
    at: Option<(View, NameHasher)>,
    table: Table,
    /// Whether some file is [`REMOVED`].
    has_removed: bool,
    book: Book,
    counts: Counts,
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
            table: new_table(options),
            has_removed: false,
            book: Book::new(options.max_findings_of_a_code),
            counts: Counts::default(),
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
        changed: impl FnMut(Lid) -> Result<Vec<Lid>>,
    ) -> Result<()> {
        self.counts.version_count += 1;
        let hasher = match Volume::read(self.disk, view, false) {
            Ok(volume) => volume.hasher().with_mask(self.options.hash_mask),
            Err(FsError::NoFiles(_)) => {
                self.counts.without_files += 1;
                self.forget();
                self.book.close(view);
                return Ok(());
            }
            Err(error @ (FsError::Corrupted(_) | FsError::Disk(_))) => {
                return self.give_up(view, &error);
            }
            Err(error) => return Err(error),
        };
        let reader = self.reader(view, hasher);
        match self.at {
            // Another key moves every name to another record.
            Some((last, known)) if known.dir_index(b"a") == hasher.dir_index(b"a") => {
                self.advance(last, reader, changed)?;
            }
            _ => {
                self.forget();
                self.start(&reader)?;
            }
        }
        self.at = Some((view, hasher));
        self.check_relations(&reader)?;
        self.book.close(view);
        Ok(())
    }

    fn reader(&self, view: View, hasher: NameHasher) -> Reader<'c> {
        let CheckOptions { data, max_findings_of_a_code, .. } = self.options;
        Reader { disk: self.disk, view, hasher, data, max_findings_of_a_code }
    }

    fn forget(&mut self) {
        self.at = None;
        self.table = new_table(self.options);
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
        self.set(Subject::Volume, [finding]);
        self.book.close(view);
        Ok(())
    }

    /// Replaces the findings about `subject`.
    fn set(&mut self, subject: Subject, findings: impl IntoIterator<Item = Finding>) {
        let mut of_subject = self.no_findings();
        findings.into_iter().for_each(|finding| of_subject.push(finding));
        self.book.set(subject, of_subject);
    }

    const fn no_findings(&self) -> Findings {
        Findings::new(self.options.max_findings_of_a_code)
    }

    /// Reads all lists.
    fn start(&mut self, reader: &Reader<'_>) -> Result<()> {
        self.read_orphans(reader)?;
        let mut open = None;
        let mut next = Some(ScanPoint::before(Lid(0)));
        while let Some(point) = next {
            match readable(self.disk.scan(reader.view, point, SCAN_LEN))? {
                Ok((items, goes_on)) => {
                    items.into_iter().try_for_each(|item| self.take(reader, &mut open, item))?;
                    next = goes_on;
                }
                Err(_) => match self.pass_damage(reader, point, open.take())? {
                    Ok(goes_on) => next = goes_on,
                    Err(why) => {
                        let finding =
                            Finding::new(FindingCode::UnreadableList, Ino(point.list.0), why);
                        self.set(Subject::Volume, [finding]);
                        return Ok(());
                    }
                },
            }
        }
        self.close(reader, open)?;
        if !self.table.get(Ino::ROOT)?.is_there() {
            self.note_absence(Ino::ROOT);
        }
        Ok(())
    }

    /// Takes what a scan came to next. `open` is the file whose list it is in.
    fn take(
        &mut self,
        reader: &Reader<'_>,
        open: &mut Option<Scan>,
        item: dendro_disk::Scanned,
    ) -> Result<()> {
        use dendro_disk::Scanned as Item;
        match item {
            Item::List(list) => {
                self.close(reader, open.take())?;
                if is_file(list) {
                    self.count_list(reader.view)?;
                    *open = Some(Scan::new(Ino(list.0), reader));
                }
            }
            Item::Record(index, record) => {
                if let Some(scan) = open {
                    let (table, counts, ino) = (&mut self.table, &mut self.counts, scan.ino());
                    scan.record(index, &record, &mut |entry| {
                        counts.entry_count += 1;
                        count_entry(table, ino, entry, true)
                    })?;
                }
            }
            Item::Pages { first_page, present } => {
                if let Some(scan) = open {
                    scan.pages(first_page, present);
                }
            }
        }
        Ok(())
    }

    /// Notes what a scan came to of a list.
    fn close(&mut self, reader: &Reader<'_>, open: Option<Scan>) -> Result<()> {
        let Some(scan) = open else { return Ok(()) };
        let is_removed = self.is_removed(scan.ino())?;
        self.note(reader.finish(scan, is_removed)?)
    }

    /// Reads the lists from `point` on where a scan could not go on, one by one. Returns where the
    /// scan goes on, or why it does not.
    fn pass_damage(
        &mut self,
        reader: &Reader<'_>,
        point: ScanPoint,
        open: Option<Scan>,
    ) -> Result<std::result::Result<Option<ScanPoint>, String>> {
        if let Some(scan) = open {
            self.read_rest(reader, scan)?;
        }
        let from = match point.place {
            ScanPlace::Beginning => point.list,
            _ => Lid(point.list.0 + 1),
        };
        let batch = match readable(self.disk.lists(reader.view, from, BATCH_LEN))? {
            Ok(batch) => batch,
            Err(why) => return Ok(Err(why)),
        };
        for &list in batch.iter().filter(|list| is_file(**list)) {
            self.read_list(reader, Ino(list.0))?;
        }
        Ok(Ok(batch.last().map(|last| ScanPoint::before(Lid(last.0 + 1)))))
    }

    /// Reads the lists in which `reader`'s view may differ from `last`.
    fn advance(
        &mut self,
        last: View,
        reader: Reader<'_>,
        mut changed: impl FnMut(Lid) -> Result<Vec<Lid>>,
    ) -> Result<()> {
        let before = Reader { view: last, ..reader };
        let mut from = Lid(0);
        loop {
            let lists = changed(from)?;
            for &list in &lists {
                if list == ORPHAN_LIST {
                    self.read_orphans(&reader)?;
                } else if is_file(list) {
                    self.read_again(&before, &reader, Ino(list.0))?;
                }
            }
            match lists.last() {
                Some(last) => from = Lid(last.0 + 1),
                None => break,
            }
        }
        while let Some(facts) = self.table.next(Ino(0), AGAIN)? {
            self.read_again(&before, &reader, facts.ino())?;
        }
        Ok(())
    }

    /// Replaces what the list of `ino` said in the version of `before` by what it says now.
    fn read_again(&mut self, before: &Reader<'_>, now: &Reader<'_>, ino: Ino) -> Result<()> {
        self.drop_list(before, ino)?;
        self.table.change(ino, |facts| facts.flags &= !AGAIN)?;
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
            self.set(Subject::List(ino), [finding]);
        }
    }

    /// Reads the orphan list. Files about which it now says something else are to be read again.
    fn read_orphans(&mut self, reader: &Reader<'_>) -> Result<()> {
        let mut next = self.table.next(Ino(0), REMOVED | LISTED)?;
        while let Some(facts) = next {
            self.table.change(facts.ino(), |facts| {
                let was_removed = if facts.has(REMOVED) { WAS_REMOVED } else { 0 };
                let was_listed = if facts.has(LISTED) { WAS_LISTED } else { 0 };
                facts.flags = facts.flags & !(REMOVED | LISTED) | was_removed | was_listed;
            })?;
            next = self.next_file(facts.ino(), REMOVED | LISTED)?;
        }
        let mut findings = self.no_findings();
        self.take_orphans(reader, &mut findings)?;
        self.has_removed = self.table.next(Ino(0), REMOVED)?.is_some();
        if readable(self.disk.hints(reader.view, ORPHAN_LIST))? == Ok(None) {
            let ino = Ino(ORPHAN_LIST.0);
            findings.push(Finding::new(FindingCode::BadVolume, ino, "there is no list of orphans"));
        }
        self.book.set(Subject::Orphans, findings);
        let any = REMOVED | LISTED | WAS_REMOVED | WAS_LISTED;
        let mut next = self.table.next(Ino(0), any)?;
        while let Some(facts) = next {
            let is_same = facts.has(REMOVED) == facts.has(WAS_REMOVED)
                && facts.has(LISTED) == facts.has(WAS_LISTED);
            self.table.change(facts.ino(), |facts| {
                facts.flags &= !(WAS_REMOVED | WAS_LISTED);
                facts.flags |= if is_same { 0 } else { AFFECTED | AGAIN };
            })?;
            next = self.next_file(facts.ino(), any)?;
        }
        Ok(())
    }

    fn is_removed(&mut self, ino: Ino) -> Result<bool> {
        Ok(self.has_removed && self.table.get(ino)?.has(REMOVED))
    }

    /// Notes what the orphan list says.
    fn take_orphans(&mut self, reader: &Reader<'_>, findings: &mut Findings) -> Result<()> {
        let mut from = 0;
        loop {
            let answer = self.disk.records(reader.view, ORPHAN_LIST, from, BATCH_LEN);
            let batch = match readable(answer)? {
                Ok(batch) => batch,
                Err(why) => {
                    let ino = Ino(ORPHAN_LIST.0);
                    findings.push(Finding::new(FindingCode::UnreadableList, ino, why));
                    return Ok(());
                }
            };
            for (index, record) in &batch {
                let kind = match split_head::<OrphanV1>(record, "an orphan") {
                    Ok((head, _)) if head.version == RECORD_VERSION => Some(head.kind),
                    _ => None,
                };
                let flag = match kind {
                    Some(ORPHAN_REMOVE) => REMOVED,
                    Some(ORPHAN_TRUNCATE | ORPHAN_PUNCH) => LISTED,
                    _ => {
                        let detail = "its entry on the orphan list is malformed";
                        let finding = Finding::new(FindingCode::BadOrphan, Ino(*index), detail);
                        findings.push(finding);
                        continue;
                    }
                };
                self.table.change(Ino(*index), |facts| facts.flags |= flag)?;
            }
            match batch.last().and_then(|(last, _)| last.checked_add(1)) {
                Some(next) if batch.len() == BATCH_LEN => from = next,
                _ => return Ok(()),
            }
        }
    }

    /// The next file behind `ino` that has one of `flags`.
    fn next_file(&mut self, ino: Ino, flags: u16) -> Result<Option<Facts>> {
        match ino.0.checked_add(1) {
            Some(from) => self.table.next(Ino(from), flags),
            None => Ok(None),
        }
    }

    /// Takes away what the list of `ino` said in the version of `before`.
    fn drop_list(&mut self, before: &Reader<'_>, ino: Ino) -> Result<()> {
        self.set(Subject::List(ino), []);
        if self.table.get(ino)?.is_directory() {
            self.count_list(before.view)?;
            let table = &mut self.table;
            before.each_entry(ino, |entry| count_entry(table, ino, entry, false))?;
        }
        self.table.change(ino, |facts| {
            facts.set_gone();
            facts.flags |= AFFECTED;
        })
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
        self.read_rest(reader, Scan::new(ino, reader))
    }

    /// Reads the rest of a list.
    fn read_rest(&mut self, reader: &Reader<'_>, scan: Scan) -> Result<()> {
        let ino = scan.ino();
        let is_removed = self.is_removed(ino)?;
        let (table, counts) = (&mut self.table, &mut self.counts);
        let scanned = reader.read_rest(scan, is_removed, |entry| {
            counts.entry_count += 1;
            count_entry(table, ino, entry, true)
        })?;
        self.note(scanned)
    }

    /// Notes what a list holds.
    fn note(&mut self, scanned: Scanned) -> Result<()> {
        let Scanned { ino, inode, is_directory, is_readable, findings } = scanned;
        self.table.change(ino, |facts| {
            match &inode {
                Some(inode) => facts.set_inode(inode),
                None => facts.set_bad(is_directory, is_readable),
            }
            facts.flags |= AFFECTED;
        })?;
        self.book.set(Subject::List(ino), findings);
        Ok(())
    }

    /// Checks the relations of the files about which something changed.
    fn check_relations(&mut self, reader: &Reader<'_>) -> Result<()> {
        let entries = self.read_entries_to_name(reader)?;
        let (book, max) = (&mut self.book, self.options.max_findings_of_a_code);
        self.table.visit(AFFECTED, |facts| {
            let mut findings = Findings::new(max);
            relations::check(facts, &entries).into_iter().for_each(|of| findings.push(of));
            book.set(Subject::Relations(facts.ino()), findings);
            ControlFlow::Continue(())
        })?;
        let is_from_all = self.book.has(Subject::Loops);
        let mut loops = self.no_findings();
        let flags = if is_from_all { 0 } else { AFFECTED };
        relations::loops(&mut self.table, flags, &mut loops)?;
        self.book.set(Subject::Loops, loops);
        self.counts.memory_bytes = self.counts.memory_bytes.max(self.table.memory_bytes());
        self.table.clear_flags(AFFECTED | AGAIN | SEEN | ON_PATH)?;
        self.counts.file_count = self.counts.file_count.max(self.table.len() as u64);
        Ok(())
    }

    /// Reads the entries that are needed to say what is wrong. If they are more than fit in memory,
    /// the others are named when these have been mended.
    fn read_entries_to_name(&mut self, reader: &Reader<'_>) -> Result<EntriesFor> {
        let mut entries = EntriesFor::new(self.options.memory_bytes / PART_FOR_ENTRIES);
        self.table.visit(AFFECTED, |facts| {
            match !relations::needs_entries(facts) || entries.want(facts.ino()) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        if entries.is_empty() {
            return Ok(entries);
        }
        let mut next = self.table.next(Ino(0), DIRECTORY)?;
        while let Some(facts) = next {
            let directory = facts.ino();
            self.count_list(reader.view)?;
            reader.each_entry(directory, |entry| {
                entries.take(directory, entry);
                Ok(())
            })?;
            next = self.next_file(directory, DIRECTORY)?;
        }
        Ok(entries)
    }
}

fn new_table(options: CheckOptions) -> Table {
    let others_bytes = options.memory_bytes / PART_FOR_ENTRIES + options.memory_for_changes();
    Table::new(options.memory_bytes - others_bytes)
}

/// Whether the list is that of a file.
fn is_file(list: Lid) -> bool {
    list == Ino::ROOT.lid() || list >= FIRST_FILE_LIST
}

/// Counts an entry of `directory`, or takes it away again.
fn count_entry(table: &mut Table, directory: Ino, entry: &Entry<'_>, is_added: bool) -> Result<()> {
    let step = |number: &mut u32| {
        *number = if is_added { number.wrapping_add(1) } else { number.wrapping_sub(1) };
    };
    let claim = claim(entry.kind, directory);
    table.change(entry.ino, |facts| {
        facts.flags |= AFFECTED;
        step(&mut facts.names);
        facts.claims = match is_added {
            true => facts.claims.wrapping_add(claim),
            false => facts.claims.wrapping_sub(claim),
        };
    })?;
    if entry.kind == FileKind::Directory {
        table.change(directory, |facts| step(&mut facts.subdirs))?;
    }
    Ok(())
}
