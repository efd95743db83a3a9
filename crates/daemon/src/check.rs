//! The check of a volume: whether it is sound. It changes nothing.
//!
//! The verifier, which shares no code with the engine, checks everything that the checkpoint refers
//! to. Then, or meanwhile in another thread, the engine opens the volume over an [`OverlayDevice`],
//! which keeps all writes of roll-forward in memory, and the trees of all versions are checked as
//! file systems. If there was a log to roll forward, the verifier also checks the result.
//!
//! - `kinds`: what can be found. `names`: the files that findings are about. `versions`: the
//!   open volume and its versions. `online`: checks of a volume that is mounted; `report`: how the
//!   last one is told.

mod kinds;
mod names;
pub(crate) mod online;
pub(crate) mod report;
mod versions;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dendro_check::{FindingKind, Options, Report, Volume, Watch, verify_watched};
use dendro_control::check::{CheckCounts, CheckFinding, CheckProgress, CheckReport};
use dendro_device::{Device, OverlayDevice, ReadAhead};
use dendro_disk::{ClientKind, LogicalDisk, View};
use dendro_fs::FsError;
use dendro_logdisk::LogDisk;

pub use self::kinds::{Kind, all_kinds};
pub use self::names::{find as names_of, of_mended, of_more};
use self::versions::{kept_before_repairs, open_disk, versions};
use crate::text;

/// What a check looks at, and what it may take.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// The image file or block device, for the report.
    pub source: String,
    /// Contents of all files are read, too.
    pub data: bool,
    /// The memory that it may take, about.
    pub memory_bytes: u64,
    /// So many findings of a kind are listed.
    pub max_findings_of_a_kind: usize,
    /// Two threads work, for one who waits and has nothing else to do.
    pub with_two_threads: bool,
}

/// Why there is no report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotChecked {
    /// There is no volume that could be checked; the text says why.
    NoVolume(String),
    /// There was no room for what the check keeps; the text says where.
    NoRoom(String),
    /// It was broken off.
    Cancelled,
}

/// Is told how far the check is, and may break it off.
pub type Tell<'t> = dyn FnMut(CheckProgress) -> ControlFlow<()> + 't;

/// The passes that progress is told of.
mod pass {
    pub(super) const MAP: u32 = 1;
    pub(super) const FIRST_VERSION: u32 = 2;
    pub(super) const OTHER_VERSIONS: u32 = 3;
    pub(super) const CONTENTS: u32 = 4;
    pub(super) const NAMES: u32 = 5;
}

/// A check under way.
struct Check<'c> {
    options: &'c CheckOptions,
    tell: &'c mut Tell<'c>,
    is_cancelled: bool,
}

/// Checks the volume on `device`. Nothing may change there meanwhile.
///
/// # Errors
/// [`NotChecked`].
pub fn check(
    device: &Arc<dyn Device>,
    options: &CheckOptions,
    tell: &mut Tell<'_>,
) -> Result<CheckReport, NotChecked> {
    let mut tell = |progress| tell(progress);
    Check { options, tell: &mut tell, is_cancelled: false }.run(device)
}

impl Check<'_> {
    fn run(mut self, device: &Arc<dyn Device>) -> Result<CheckReport, NotChecked> {
        let overlay: Arc<dyn Device> = Arc::new(OverlayDevice::new(Arc::clone(device)));
        let (checkpointed, trees) = match self.options.with_two_threads {
            true => self.look_at_once(device, &overlay)?,
            false => {
                let report = self.verify(&**device, false, pass::MAP)?;
                expect_volume(&report)?;
                let list_count = report.counts.list_count;
                (report, self.check_trees(&overlay, list_count)?)
            }
        };
        let has = |kind| checkpointed.findings.iter().any(|finding| finding.kind == kind);
        let goes_on = has(FindingKind::LogGoesOn) || has(FindingKind::NotClean);
        let data = self.options.data;
        let report = if goes_on && trees.is_whole {
            let mut rolled = self.verify(&*overlay, data, pass::CONTENTS)?;
            rolled.findings.splice(0..0, checkpointed.findings.into_iter().filter(is_about_log));
            rolled
        } else if data {
            self.verify(&**device, true, pass::CONTENTS)?
        } else {
            checkpointed
        };
        let counts = report.counts;
        self.at(pass::NAMES, (0, 1), "the names of what was found".into())?;
        let disk_sound =
            is_disk_sound(report.findings.iter().map(|finding| finding.kind)) && trees.is_whole;
        let memory_bytes = self.options.memory_bytes;
        let mut findings = names::of_device(&overlay, memory_bytes, report);
        findings.extend(trees.findings);
        self.at(pass::NAMES, (1, 1), "the names of what was found".into())?;
        Ok(CheckReport {
            source: self.options.source.clone(),
            checked: true,
            mounted: false,
            sound: !findings.iter().any(CheckFinding::is_wrong),
            branches_sound: !findings.iter().any(CheckFinding::is_wrong_in_branches),
            data_read: data,
            log_rolled_forward: goes_on && trees.is_whole,
            findings,
            counts: counts_of(counts),
            version_count: trees.version_count,
            versions_without_files: trees.without_files,
            before_repairs: trees.before_repairs,
            disk_sound,
            repairable: disk_sound && dendro_fs::can_repair(&trees.in_heads, false),
            repairable_safely: disk_sound && dendro_fs::can_repair(&trees.in_heads, true),
        })
    }

    /// Verifies the volume, and checks the trees meanwhile.
    fn look_at_once(
        &mut self,
        device: &Arc<dyn Device>,
        overlay: &Arc<dyn Device>,
    ) -> Result<(Report, Trees), NotChecked> {
        let checkpoint = Volume::open(&**device).and_then(|volume| volume.checkpoint());
        let most_lists = checkpoint.map_or(0, |checkpoint| checkpoint.next_list);
        let (options, is_over) = (self.options, AtomicBool::new(false));
        thread::scope(|scope| {
            let verifying = scope.spawn(|| {
                let mut tell = |_| match is_over.load(Ordering::Relaxed) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                };
                let mut check = Check { options, tell: &mut tell, is_cancelled: false };
                check.verify(&**device, false, pass::MAP)
            });
            let trees = self.check_trees(overlay, most_lists);
            is_over.store(trees.is_err(), Ordering::Relaxed);
            let report = verifying.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let trees = trees?;
            let report = report?;
            expect_volume(&report)?;
            Ok((report, trees))
        })
    }

    /// Tells how far the check is.
    fn at(&mut self, pass: u32, (done, of): (u64, u64), text: String) -> Result<(), NotChecked> {
        let told = (self.tell)(CheckProgress { pass, done: done.min(of), of, text });
        self.is_cancelled |= told.is_break();
        if self.is_cancelled { Err(NotChecked::Cancelled) } else { Ok(()) }
    }

    fn verify(&mut self, device: &dyn Device, data: bool, pass: u32) -> Result<Report, NotChecked> {
        let marks_bytes = (self.options.memory_bytes / 4).min(64 << 20);
        let device = ReadAhead::with_memory(device, self.options.memory_bytes / 32);
        let text = if data { "the contents of files" } else { "the map" };
        let max_findings_of_a_kind = self.options.max_findings_of_a_kind as u64;
        let mut node_count = 0_u32;
        let mut progress = |done, of| {
            node_count = node_count.wrapping_add(1);
            if node_count % NODES_BETWEEN_REPORTS != 1 {
                return ControlFlow::Continue(());
            }
            match self.at(pass, (done, of), text.into()) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        };
        let watch = Watch { marks_bytes, max_findings_of_a_kind, progress: &mut progress };
        let report = verify_watched(&device, &Options { data }, watch);
        if self.is_cancelled { Err(NotChecked::Cancelled) } else { Ok(report) }
    }

    /// Opens the volume as a mount does, checks its trees, and shuts it down, all in memory.
    fn check_trees(
        &mut self,
        device: &Arc<dyn Device>,
        list_count: u64,
    ) -> Result<Trees, NotChecked> {
        let mut trees = Trees::default();
        let disk = match open_disk(device, self.options.memory_bytes / 4) {
            Ok(disk) => disk,
            Err(error) => {
                trees.findings.push(kinds::of_engine(kinds::NOT_OPENED, &error));
                return Ok(trees);
            }
        };
        let mut versions = versions(&disk);
        let all_count = versions.len();
        versions.retain(|(_, view)| has_files(&disk, *view));
        trees.without_files = all_count - versions.len();
        trees.before_repairs = kept_before_repairs(&disk);
        let views: Vec<View> = versions.iter().map(|(_, view)| *view).collect();
        let options = dendro_fs::CheckOptions::default()
            .with_data(self.options.data)
            .with_memory(self.options.memory_bytes / 4)
            .with_max_findings_of_a_code(self.options.max_findings_of_a_kind);
        let mut show = |at: &dendro_fs::Progress| {
            let name = versions.iter().find(|(_, view)| *view == at.view);
            let name = name.map(|(name, _)| text::printable(name)).unwrap_or_default();
            let (nth, of, lists) = (at.version_count, versions.len() as u64, at.lists_read);
            let text = format!("files: {lists} lists read, version {nth} of {of}, {name}");
            let told = match nth {
                1 => self.at(pass::FIRST_VERSION, (lists, list_count), text),
                _ => self.at(pass::OTHER_VERSIONS, (nth - 1, of - 1), text),
            };
            if told.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        match dendro_fs::check(&disk, &views, options, &mut show) {
            Ok(checked) => {
                trees.version_count = versions.len();
                let in_heads = checked.found.iter().filter(|found| found.is_in_head);
                trees.in_heads = in_heads.map(|found| found.finding.clone()).collect();
                let memory_bytes = self.options.memory_bytes / 4;
                trees.findings = names::of_trees(&disk, &versions, checked, memory_bytes);
            }
            Err(FsError::Interrupted) => return Err(NotChecked::Cancelled),
            Err(error @ FsError::Temporary(_)) => {
                return Err(NotChecked::NoRoom(error.to_string()));
            }
            Err(error) => trees.findings.push(kinds::of_engine(kinds::NOT_CHECKED, &error)),
        }
        if disk.read_only_reason().is_none() {
            match disk.shut_down() {
                Ok(()) => trees.is_whole = true,
                Err(error) => trees.findings.push(kinds::of_engine(kinds::NOT_ROLLED, &error)),
            }
        }
        Ok(trees)
    }
}

/// Whether there may be files in `view`: it does not belong to a client of another kind.
fn has_files(disk: &LogDisk, view: View) -> bool {
    disk.client_kind(view).is_none_or(|kind| kind == ClientKind::Files)
}

/// Expects that the verifier found a volume.
fn expect_volume(report: &Report) -> Result<(), NotChecked> {
    let mut findings = report.findings.iter();
    match findings.find(|finding| finding.kind == FindingKind::NoVolume) {
        Some(finding) => Err(NotChecked::NoVolume(finding.detail.clone())),
        None => Ok(()),
    }
}

/// Progress is told after so many nodes of the map.
const NODES_BETWEEN_REPORTS: u32 = 256;

/// What was found by the engine and in the trees of versions.
#[derive(Default)]
struct Trees {
    findings: Vec<CheckFinding>,
    version_count: usize,
    /// Versions of clients of other kinds.
    without_files: usize,
    before_repairs: Vec<String>,
    in_heads: Vec<dendro_fs::Finding>,
    /// The device now has a checkpoint of everything in the log.
    is_whole: bool,
}

/// Whether the disk below the files is sound enough for a repair to write to it.
fn is_disk_sound(mut kinds: impl Iterator<Item = FindingKind>) -> bool {
    kinds.all(|kind| kind.leaves_map_whole() || kind.severity() == dendro_check::Severity::Note)
}

fn is_about_log(finding: &dendro_check::Finding) -> bool {
    matches!(finding.kind, FindingKind::NotClean | FindingKind::LogGoesOn | FindingKind::LogLost)
}

const fn counts_of(counts: dendro_check::Counts) -> CheckCounts {
    let dendro_check::Counts {
        node_count,
        unmirrored_node_count,
        entry_count,
        system_entry_count,
        list_count,
        record_count,
        page_count,
        zero_page_count,
        short_page_count,
        compressed_page_count,
        compressed_bytes,
        live_bytes,
        verified_bytes,
    } = counts;
    CheckCounts {
        node_count,
        unmirrored_node_count,
        entry_count,
        system_entry_count,
        list_count,
        record_count,
        page_count,
        zero_page_count,
        short_page_count,
        compressed_page_count,
        compressed_bytes,
        live_bytes,
        verified_bytes,
    }
}
