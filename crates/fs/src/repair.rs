//! Repairs the file system in the head of a branch: the other half of `check`.
//!
//! The check says what is wrong, and here one kind after the other is mended: first what lies in
//! one list, then what directories say of files, then what has no name, and at last counts. After
//! each kind the check looks again, since what was mended changes what else is found. Whatever is
//! mended is read from the disk anew.
//!
//! - [`branches`]: the heads of all branches.
//! - [`head`]: the head that is changed: its units and entries.
//! - [`file`]: i-nodes, pages, stray records. [`xattrs`]: extended attributes.
//! - [`directory`]: the records of a directory.
//! - [`tree`]: entries, parents, link counts, orphans. [`lost_found`]: names for what has none,
//!   and directories that are lost; [`names`]: those that other versions have.
//!
//! # Invariants
//!
//! 1. Each change is one atomic recovery unit, after which the volume is no worse than before. So a
//!    crash at any moment leaves a volume that another repair mends.
//! 2. Nothing that can be read is thrown away, except what contradicts something better: a second
//!    entry for a directory, pages of a file that cannot have any.
//! 3. Nothing is mended where records cannot be read: what they hold would seem not to be there.

mod branches;
mod directory;
mod file;
mod head;
mod lost_found;
mod names;
mod tree;
mod xattrs;

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;

use dendro_base::Timestamp;
use dendro_disk::{Aru, ListHints, LogicalDisk, View};

pub use self::branches::{BEFORE_REPAIR, repair_branches};
use self::head::{BATCH_LEN, Head};
use self::names::Names;
use crate::check::{CheckOptions, Finding, FindingCode, Mending, verify_with};
use crate::error::{FsError, Result};
use crate::layout::format::{HEAD_INDEX, ORPHAN_LIST, VOLUME_LIST};
use crate::layout::inode::Inode;
use crate::layout::volume::{self, Volume};
use crate::types::Ino;

/// How often the same finding is mended. If it comes back more often, it is left.
const MAX_TRIES: u32 = 3;

/// The most looks of one repair.
const MAX_ROUNDS: u32 = 10_000;

/// How many findings of a kind one look takes in: as many as fit in memory, within these bounds.
/// Ten kinds of each would take an eighth of it.
const FINDINGS_AT_A_TIME: std::ops::RangeInclusive<u64> = 256..=65_536;
const BYTES_FOR_A_FINDING: u64 = 16_384;

/// How many findings are listed that were mended, or could not be.
const MAX_LISTED: usize = 16_384;

/// So many files of a directory are named that are in `/lost+found` now.
const MAX_STRAYS_NAMED: usize = 10;

/// What a repair may do, and what it needs.
#[derive(Clone, Copy, Debug)]
pub struct RepairOptions {
    /// Mend only if all that is wrong can be mended without a decision about data
    /// ([`Mending::Safe`]).
    pub safe_only: bool,
    /// Also read the pages in which files end.
    pub data: bool,
    /// The time of changes.
    pub now: Timestamp,
    /// The memory for what is kept about files, and for what is mended at a time, about.
    pub memory_bytes: u64,
    /// The key of names for a volume whose description is lost in all versions.
    pub hash_key: [u8; 16],
}

/// What a repair has done.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// What was mended: the first 16,384.
    pub mended: Vec<Finding>,
    /// How many more there were of a kind.
    pub more_mended: BTreeMap<FindingCode, usize>,
    /// What is still wrong.
    pub left: Vec<Finding>,
    /// Why something is, where it is known: what could not be mended, and the error, up to 16,384.
    pub failures: Vec<(Finding, FsError)>,
}

impl Repaired {
    fn mended_count(&self) -> usize {
        self.mended.len() + self.more_mended.values().sum::<usize>()
    }

    /// Adds what was done to another head.
    fn add(&mut self, other: Self) {
        other.mended.iter().for_each(|finding| self.note_mended(finding));
        for (code, count) in other.more_mended {
            *self.more_mended.entry(code).or_default() += count;
        }
        self.left.extend(other.left);
        other.failures.into_iter().for_each(|(finding, error)| self.note_failure(&finding, error));
    }

    fn note_mended(&mut self, finding: &Finding) {
        if self.mended.len() < MAX_LISTED {
            self.mended.push(finding.clone());
        } else {
            *self.more_mended.entry(finding.code).or_default() += 1;
        }
    }

    fn note_failure(&mut self, finding: &Finding, error: FsError) {
        if self.failures.len() < MAX_LISTED {
            self.failures.push((finding.clone(), error));
        }
    }
}

/// Whether a repair of a head with these findings would change anything.
#[must_use]
pub fn can_repair(findings: &[Finding], safe_only: bool) -> bool {
    let mending = |finding: &Finding| finding.code.mending();
    let is_readable = !findings.iter().any(|of| of.code == FindingCode::UnreadableList);
    let is_allowed = !safe_only || findings.iter().all(|of| mending(of) == Mending::Safe);
    is_readable && is_allowed && findings.iter().any(|of| mending(of) != Mending::Never)
}

/// Mends what is wrong in the head `view`. `versions` are others that may have the volume's
/// description and names of files, if this one has lost them. `rest` is called between changes, for
/// what the disk does in the background.
///
/// # Errors
/// Errors of the disk, among them that it is full, and of `rest`. What was mended before stays
/// mended.
pub fn repair(
    disk: &dyn LogicalDisk,
    view: View,
    versions: &[View],
    options: &RepairOptions,
    rest: &mut dyn FnMut() -> Result<()>,
) -> Result<Repaired> {
    let mut repaired = Repaired::default();
    // By hashes of findings: all findings would take too much memory.
    let hashes = RandomState::new();
    let mut tries: HashMap<u64, u32> = HashMap::new();
    let at_a_time = (options.memory_bytes / BYTES_FOR_A_FINDING)
        .clamp(*FINDINGS_AT_A_TIME.start(), *FINDINGS_AT_A_TIME.end());
    let check = CheckOptions::default()
        .with_data(options.data)
        .with_memory(options.memory_bytes)
        .with_max_findings_of_a_code(at_a_time as usize);
    for _ in 0..MAX_ROUNDS {
        let findings = verify_with(disk, view, check)?;
        let may = |finding: &&Finding| {
            finding.code.mending() != Mending::Never
                && tries.get(&hashes.hash_one(finding)).is_none_or(|&count| count < MAX_TRIES)
        };
        let first = findings.iter().filter(may).map(|finding| stage(finding.code)).min();
        let (Some(stage_now), true) = (first, can_repair(&findings, options.safe_only)) else {
            repaired.left = findings;
            return Ok(repaired);
        };
        let now: Vec<&Finding> =
            findings.iter().filter(may).filter(|of| stage(of.code) == stage_now).collect();
        for finding in &now {
            *tries.entry(hashes.hash_one(finding)).or_default() += 1;
        }
        let (bad_volume, others): (Vec<&Finding>, Vec<&Finding>) =
            now.into_iter().partition(|of| of.code == FindingCode::BadVolume);
        if bad_volume.is_empty() {
            let hasher = Volume::read(disk, view, true)?.hasher();
            let head = Head::new(disk, view, hasher, options.now.into());
            mend(&head, versions, &others, &mut repaired, rest)?;
        } else {
            match make_volume(disk, view, versions, options) {
                Ok(()) => bad_volume.iter().for_each(|of| repaired.note_mended(of)),
                Err(error) if is_of_finding(&error) => {
                    bad_volume.iter().for_each(|of| repaired.note_failure(of, error.clone()));
                    repaired.left = findings;
                    return Ok(repaired);
                }
                Err(error) => return Err(error),
            }
        }
    }
    Err(FsError::Corrupted("the repair comes to no end".into()))
}

/// The order in which kinds are mended: what later ones rely on comes first. A directory that is
/// lost is made anew of what has lost its name with it.
const fn stage(code: FindingCode) -> u32 {
    match code {
        FindingCode::BadVolume => 0,
        FindingCode::BadInode
        | FindingCode::StrayRecord
        | FindingCode::WrongPageCount
        | FindingCode::LostPages
        | FindingCode::PagesPastEnd
        | FindingCode::DataPastEnd
        | FindingCode::BadXattr
        | FindingCode::WrongXattrAccount
        | FindingCode::UnreadablePage
        | FindingCode::UnreadableList => 1,
        FindingCode::BadDirectoryRecord
        | FindingCode::WrongHash
        | FindingCode::DuplicateEntry
        | FindingCode::BadName
        | FindingCode::WrongDirectorySize => 2,
        FindingCode::DanglingEntry | FindingCode::WrongKind | FindingCode::WrongParent => 3,
        FindingCode::DirectoryLoop | FindingCode::Unreachable => 4,
        FindingCode::LostDirectory => 5,
        FindingCode::WrongLinkCount | FindingCode::BadOrphan => 6,
    }
}

/// Mends findings of one stage.
fn mend(
    head: &Head<'_>,
    versions: &[View],
    findings: &[&Finding],
    repaired: &mut Repaired,
    rest: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let mut of_files: BTreeMap<Ino, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        of_files.entry(finding.ino).or_default().push(finding);
    }
    let mut done: BTreeSet<Ino> = BTreeSet::new();
    let names = Names::find(head, versions, findings)?;
    let mut strays: BTreeMap<Ino, Vec<Ino>> = BTreeMap::new();
    for &finding in findings {
        let ino = finding.ino;
        let mended = match stage(finding.code) {
            // One reading of a list mends all that is wrong in it.
            1 if done.insert(ino) => file::mend(head, ino, &of_files[&ino]),
            2 if done.insert(ino) => directory::mend(head, ino),
            1 | 2 => Ok(()),
            3 => tree::mend_entry(head, finding),
            4 => lost_found::mend(head, finding, &names).map(|was_in| {
                if let Some(directory) = was_in {
                    strays.entry(directory).or_default().push(ino);
                }
            }),
            5 => lost_found::return_directory(head, finding),
            _ => tree::mend_count(head, finding),
        };
        match mended {
            Ok(()) => repaired.note_mended(finding),
            // Other files may still be mended.
            Err(error) if is_of_finding(&error) => {
                repaired.note_failure(finding, error);
            }
            Err(error) => return Err(error),
        }
        rest()?;
    }
    repaired.mended.extend(strays.iter().map(|(directory, files)| strays_of(*directory, files)));
    Ok(())
}

/// What to say of a directory of which the names of some files are lost.
fn strays_of(directory: Ino, files: &[Ino]) -> Finding {
    let named = files.iter().take(MAX_STRAYS_NAMED).map(|ino| format!("#{ino}"));
    let named = named.collect::<Vec<_>>().join(", ");
    let more = if files.len() > MAX_STRAYS_NAMED { ", …" } else { "" };
    let count = files.len();
    let detail = format!(
        "files in this directory have lost their names, {count} of them; they are in /lost+found: \
         {named}{more}"
    );
    Finding::new(FindingCode::Unreachable, directory, detail)
}

/// Whether an error says that this finding cannot be mended, and nothing of others. A list that was
/// deleted cannot be made while another version has it, and without that of the root directory
/// nothing gets a name.
const fn is_of_finding(error: &FsError) -> bool {
    use dendro_disk::Error::{ListExists, NoSuchList};
    matches!(
        error,
        FsError::Corrupted(_) | FsError::Full(_) | FsError::Disk(ListExists(_) | NoSuchList(_))
    )
}

/// Makes the volume's own lists and its description, as another version has it.
fn make_volume(
    disk: &dyn LogicalDisk,
    view: View,
    versions: &[View],
    options: &RepairOptions,
) -> Result<()> {
    let mut aru = Aru::new(view);
    for list in [VOLUME_LIST, ORPHAN_LIST] {
        if disk.hints(view, list)?.is_none() {
            aru.restore_list(list, ListHints::default());
        }
    }
    let is_lost = match Volume::read(disk, view, true) {
        Err(FsError::Corrupted(_)) => true,
        // It has features with which it must not be written to.
        Err(error) => return Err(error),
        Ok(_) => false,
    };
    if is_lost {
        let of = |&other: &View| {
            let is_good = other != view && Volume::read(disk, other, false).is_ok();
            is_good.then(|| disk.record(other, VOLUME_LIST, HEAD_INDEX).ok().flatten()).flatten()
        };
        let mut description = match versions.iter().find_map(of) {
            Some(record) => record.to_vec(),
            None => volume::encode("", options.hash_key, options.now.into(), 0),
        };
        if has_punched_orphan(disk, view)? {
            description = volume::with_punched_ranges(&description)?;
        }
        aru.put_record(VOLUME_LIST, HEAD_INDEX, description);
    }
    disk.commit(aru)?;
    Ok(())
}

/// Whether the orphan list has a file of which a range is still to be freed. One that is missing
/// there is entered later.
fn has_punched_orphan(disk: &dyn LogicalDisk, view: View) -> Result<bool> {
    let mut from = 0;
    loop {
        let batch = disk.records(view, ORPHAN_LIST, from, BATCH_LEN)?;
        for (ino, _) in &batch {
            let record = disk.record(view, Ino(*ino).lid(), HEAD_INDEX)?;
            let inode = record.and_then(|record| Inode::decode(Ino(*ino), &record).ok());
            if inode.is_some_and(|inode| inode.punched.is_some()) {
                return Ok(true);
            }
        }
        match batch.last().and_then(|(last, _)| last.checked_add(1)) {
            Some(next) if batch.len() == BATCH_LEN => from = next,
            _ => return Ok(false),
        }
    }
}
