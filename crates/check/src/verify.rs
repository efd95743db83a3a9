//! Verifying a volume: everything that its checkpoint reaches, counted once more.
//!
//! A [`walk`] over the map visits each node and entry once. It hands them to those that look for
//! one kind of mistake each: [`marks`] (overlaps), [`skips`], [`visibility`]. In the end
//! [`versions`] tells which versions have what was found.

use std::ops::ControlFlow;

use dendro_device::Device;
use dendro_format::checkpoint::HeadPosition;
use dendro_format::{Checkpoint, Entries, Layout, SegmentNo, Value};

use crate::error::{Error, NodeProblemKind};
use crate::read::{LogSummary, Volume};
use below::Below;
use findings::{About, Findings, MAX_FINDINGS_OF_A_KIND};
use marks::Marks;
use versions::{Seen, Versions};
use walk::Walk;

mod below;
mod finding;
mod findings;
mod marks;
mod report;
mod skips;
mod versions;
mod visibility;
mod walk;

pub use finding::{Finding, FindingKind, SeenIn, Severity};
pub use report::{Counts, Report};
pub use versions::Version;

/// What to verify.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Also read every page's block, and verify its checksum.
    pub data: bool,
}

/// Memory for the marks of overlaps, unless the caller bounds it.
const MARKS_BYTES: u64 = 64 << 20;

/// What a verification tells while it works, and the memory that it may take.
pub struct Watch<'w> {
    /// Memory for the marks of overlaps: with less, the map is read more often. Besides, it takes
    /// 8 bytes for each segment, and the nodes on one path of the map.
    pub marks_bytes: u64,
    /// So many findings of a kind are listed, about 200 bytes each. If there are more, another
    /// finding says how many.
    pub max_findings_of_a_kind: u64,
    /// Is called with the live bytes that were counted so far, and those that there are, with each
    /// node of the map. A break ends the verification; what it then reports is a part.
    pub progress: &'w mut dyn FnMut(u64, u64) -> ControlFlow<()>,
}

/// Verifies the checkpointed state of the volume on `device`, and reports the log behind it. Every
/// mistake is a finding. Nothing is changed.
#[must_use]
pub fn verify(device: &dyn Device, options: &Options) -> Report {
    let mut progress = |_, _| ControlFlow::Continue(());
    let watch = Watch {
        marks_bytes: MARKS_BYTES,
        max_findings_of_a_kind: MAX_FINDINGS_OF_A_KIND,
        progress: &mut progress,
    };
    verify_watched(device, options, watch)
}

/// As [`verify`], with bounded memory, and with progress.
#[must_use]
pub fn verify_watched(device: &dyn Device, options: &Options, mut watch: Watch<'_>) -> Report {
    let mut findings = Findings::new(watch.max_findings_of_a_kind);
    let mut versions = Vec::new();
    let counts = match Volume::open(device) {
        Ok(volume) => {
            if volume.superblocks().is_backup() {
                let backup = volume.superblocks().current();
                let (seq, offset) = (backup.superblock.seq, backup.offset);
                let written = backup.superblock.written.utc();
                let detail = format!("backup {seq} at byte {offset}, written at {written}, counts");
                findings.add(FindingKind::SuperblocksLost, detail);
            }
            match volume.checkpoint() {
                Ok(checkpoint) => {
                    verify_copies(&volume, &mut findings);
                    let table = Versions::read(&volume, &checkpoint);
                    let seen = Seen::new(&volume, &checkpoint, &table);
                    let mut of_versions = findings.with_versions(seen);
                    let counts = verify_checkpoint(
                        &volume,
                        (&checkpoint, &table),
                        options,
                        &mut watch,
                        &mut of_versions,
                    );
                    findings = of_versions.without_versions();
                    versions = table.into_list();
                    counts
                }
                Err(error) => {
                    findings.add(FindingKind::CheckpointUnusable, error.to_string());
                    Counts::default()
                }
            }
        }
        Err(error) => {
            let kind = match error {
                Error::Truncated { .. } => FindingKind::DeviceTooShort,
                _ => FindingKind::NoVolume,
            };
            findings.add(kind, error.to_string());
            Counts::default()
        }
    };
    Report { findings: findings.finish(), counts, versions }
}

fn verify_checkpoint(
    volume: &Volume<'_>,
    (checkpoint, versions): (&Checkpoint, &Versions),
    options: &Options,
    watch: &mut Watch<'_>,
    findings: &mut Findings<'_>,
) -> Counts {
    verify_positions(volume.layout(), checkpoint, findings);
    let log = volume.log_summary(checkpoint);
    let mut walk = Walk::new(volume, (checkpoint, versions), &log, options.data, watch.marks_bytes);
    // What records have counts for quotas alone.
    let mut nodes = match versions.have_quotas() {
        true => volume.nodes(checkpoint),
        false => volume.nodes(checkpoint).without_records(),
    };
    while let Some(node) = nodes.next() {
        if (watch.progress)(walk.counts.live_bytes, checkpoint.live_bytes).is_break() {
            return walk.counts;
        }
        match node {
            Ok(node) => walk.visit(&node, findings),
            Err(problem) => {
                walk.is_whole = false;
                let kind = match problem.kind {
                    NodeProblemKind::Outside => FindingKind::NodeOutside,
                    NodeProblemKind::Unreadable => FindingKind::NodeUnreadable,
                    NodeProblemKind::Damaged => FindingKind::NodeDamaged,
                    NodeProblemKind::WrongLevel => FindingKind::NodeLevel,
                    NodeProblemKind::WrongKeys => FindingKind::NodeKeys,
                    NodeProblemKind::WrongEpoch => FindingKind::NodeEpoch,
                };
                let below = Below::new(nodes.range());
                let detail = format!("{problem}; below it is {below}");
                findings.add_about(Some(About::Below(below)), kind, detail);
            }
        }
    }
    if walk.is_whole {
        walk.finish(findings);
    }
    let counts = walk.counts;
    let mut next = walk.marks.end();
    while let Some(first) = next {
        next = mark_overlaps(volume, checkpoint, &log, (first, watch), findings);
    }
    report_log(volume, &log, findings);
    counts
}

/// Both copies of the checkpoint, of which one can be read.
fn verify_copies(volume: &Volume<'_>, findings: &mut Findings<'_>) {
    let superblock = volume.superblock();
    for addr in [Some(superblock.checkpoint_addr), superblock.checkpoint_mirror] {
        let problem = addr.and_then(|addr| volume.checkpoint_at(superblock, addr).err());
        if let Some(problem) = problem {
            findings.add(FindingKind::CheckpointCopy, problem.to_string());
        }
    }
}

fn verify_positions(layout: Layout, checkpoint: &Checkpoint, findings: &mut Findings<'_>) {
    let mut check = |name: &str, HeadPosition { segment, offset_bytes }| {
        if !layout.is_log_segment(segment) || u64::from(offset_bytes) > layout.segment_size_bytes()
        {
            let detail = format!("{name}: segment {segment}, byte {offset_bytes}");
            findings.add(FindingKind::CheckpointPosition, detail);
        }
    };
    check("the log", checkpoint.log);
    check("the map's head", checkpoint.map);
    // Zero: there was no clean segment left to continue in.
    if checkpoint.next_segment != SegmentNo(0) {
        let next = HeadPosition { segment: checkpoint.next_segment, offset_bytes: 0 };
        check("the log's next segment", next);
    }
}

fn report_log(volume: &Volume<'_>, summary: &LogSummary, findings: &mut Findings<'_>) {
    if summary.replayed_count > 0 {
        if volume.superblock().clean {
            findings.add(FindingKind::NotClean, summary.to_string());
        } else {
            findings.add(FindingKind::LogGoesOn, summary.to_string());
        }
    }
    if let Some(lost) = &summary.lost {
        findings.add(FindingKind::LogLost, lost.to_string());
    }
}

/// Looks for overlaps in the segments from `first` on, as many as fit in memory. Returns the first
/// segment that does not.
fn mark_overlaps(
    volume: &Volume<'_>,
    checkpoint: &Checkpoint,
    log: &LogSummary,
    (first, watch): (u32, &mut Watch<'_>),
    findings: &mut Findings<'_>,
) -> Option<u32> {
    let layout = volume.layout();
    let mut marks = Marks::new(layout, first, watch.marks_bytes);
    for node in volume.nodes(checkpoint).without_records().flatten() {
        if (watch.progress)(checkpoint.live_bytes, checkpoint.live_bytes).is_break() {
            return None;
        }
        if marks.mark(node.place.addr, node.place.len_bytes.into()) {
            findings.add(FindingKind::Overlap, node.to_string());
        }
        let Entries::Leaf(entries) = &node.entries else { continue };
        for (key, value) in entries {
            let Value::Chunk(chunk) = value else { continue };
            for (slots, page) in chunk.blocks() {
                let len_bytes = page.footprint_bytes().into();
                if layout.holds(page.addr, len_bytes)
                    && !log.may_have_reused(layout.segment_of(page.addr))
                    && marks.mark(page.addr, len_bytes)
                {
                    let detail = format!("page of {key} at {}, {len_bytes} bytes", page.addr);
                    let about = Some(About::Entry(*key, slots));
                    findings.add_about(about, FindingKind::Overlap, detail);
                }
            }
        }
    }
    marks.end()
}
