//! Verifying a volume: all that its checkpoint reaches, counted once more.

use std::collections::HashMap;
use std::fmt;

use dendro_base::units::{GRAIN_SIZE, PAGE_SIZE, align_up};
use dendro_device::Device;
use dendro_format::checkpoint::HeadPosition;
use dendro_format::removal::{self, REMOVALS_LIST};
use dendro_format::usage::{FIRST_SYSTEM_LIST, USAGE_LIST};
use dendro_format::versions::VERSIONS_LIST;
use dendro_format::{
    Addr, CHUNK_PAGES, Checkpoint, Entries, Key, Layout, PageRef, SegmentNo, Space, Value,
    VersionRecord, checksum,
};
use serde::Serialize;

use crate::map::{Node, NodeProblemKind};
use crate::overlap::Marks;
use crate::skips::Skips;
use crate::versions::Seers;
use crate::{Error, Finding, FindingKind, LogSummary, Severity, UsageTable, Volume};

/// Findings of one kind that are listed; of more there is one that counts them.
const MAX_FINDINGS_OF_A_KIND: u64 = 100;
/// What to verify.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Read every page's block, too, and verify its checksum.
    pub data: bool,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Nodes of the map.
    pub node_count: u64,
    /// Entries in its leaves.
    pub entry_count: u64,
    /// Those of the disk's own lists among them.
    pub system_entry_count: u64,
    /// Lists.
    pub list_count: u64,
    /// Records.
    pub record_count: u64,
    /// Pages, those of zeros included.
    pub page_count: u64,
    /// Those of zeros among them.
    pub zero_page_count: u64,
    /// Those whose blocks are shorter than a page.
    pub short_page_count: u64,
    /// Bytes that nodes and pages take on the device, in whole grains.
    pub live_bytes: u64,
    /// Bytes of pages whose checksums were verified.
    pub verified_bytes: u64,
}

/// What a verification answers.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// All that was found, in the order in which it was.
    pub findings: Vec<Finding>,
    /// What was counted.
    pub counts: Counts,
}

impl Report {
    /// The worst severity of all findings; `None` when there is none.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(Finding::severity).max()
    }

    /// Whether nothing is wrong; notes may be there.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.worst().is_none_or(|worst| worst == Severity::Note)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let Counts { node_count, list_count, record_count, page_count, live_bytes, .. } =
            self.counts;
        write!(
            f,
            "{list_count} lists, {record_count} records, {page_count} pages, {node_count} map \
             nodes, {live_bytes} bytes live"
        )
    }
}

/// Verifies the checkpointed state of the volume on `device`, and says what lies behind it in the
/// log. Everything wrong is a finding; nothing is changed.
#[must_use]
pub fn verify(device: &dyn Device, options: &Options) -> Report {
    let mut findings = Findings::default();
    let counts = match Volume::open(device) {
        Ok(volume) => match volume.checkpoint() {
            Ok(checkpoint) => verify_checkpoint(&volume, &checkpoint, options, &mut findings),
            Err(error) => {
                findings.add(FindingKind::CheckpointUnusable, error.to_string());
                Counts::default()
            }
        },
        Err(error) => {
            let kind = match error {
                Error::Truncated { .. } => FindingKind::DeviceTooShort,
                _ => FindingKind::NoVolume,
            };
            findings.add(kind, error.to_string());
            Counts::default()
        }
    };
    Report { findings: findings.finish(), counts }
}

fn verify_checkpoint(
    volume: &Volume<'_>,
    checkpoint: &Checkpoint,
    options: &Options,
    findings: &mut Findings,
) -> Counts {
    verify_positions(volume.layout(), checkpoint, findings);
    let log = volume.log_summary(checkpoint);
    let mut walk = Walk::new(volume, checkpoint, &log, options.data);
    for node in volume.nodes(checkpoint) {
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
                findings.add(kind, problem.to_string());
            }
        }
    }
    if walk.is_whole {
        walk.compare_usage(findings);
    }
    let counts = walk.counts;
    let mut next = walk.marks.end();
    while let Some(first) = next {
        next = mark_overlaps(volume, checkpoint, &log, first, findings);
    }
    report_log(volume, &log, findings);
    counts
}

fn verify_positions(layout: Layout, checkpoint: &Checkpoint, findings: &mut Findings) {
    let mut check = |name: &str, HeadPosition { segment, offset_bytes }| {
        if !layout.is_log_segment(segment) || u64::from(offset_bytes) > layout.segment_size_bytes()
        {
            let detail = format!("{name}: segment {segment}, byte {offset_bytes}");
            findings.add(FindingKind::CheckpointPosition, detail);
        }
    };
    check("the log", checkpoint.log);
    check("the map's head", checkpoint.map);
    // There was no clean segment left to go on in when it is zero.
    if checkpoint.next_segment != SegmentNo(0) {
        let next = HeadPosition { segment: checkpoint.next_segment, offset_bytes: 0 };
        check("the log's next segment", next);
    }
}

fn report_log(volume: &Volume<'_>, summary: &LogSummary, findings: &mut Findings) {
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

/// The lists that were seen last: in the order of keys, a list's own entry comes first.
#[derive(Default)]
struct Lists {
    last: Option<u64>,
    reported: Option<u64>,
    /// Lists with entries, but not the one that says that they exist.
    missing: Vec<u64>,
    /// Entries that no version sees are being taken out: what is left of a list may be.
    is_swept: bool,
}

/// One walk over the map.
struct Walk<'v> {
    volume: &'v Volume<'v>,
    checkpoint: &'v Checkpoint,
    /// The log behind the checkpoint: it tells of segments in which nothing lives any more, and
    /// that may have been filled anew, with the checkpoint's own nodes too.
    log: &'v LogSummary,
    /// Blocks are read.
    reads_data: bool,
    /// Every node could be read. Of a map with parts missing, nothing can be said to be missing or
    /// counted wrongly.
    is_whole: bool,
    counts: Counts,
    /// Live bytes of each segment.
    live: Vec<u64>,
    lists: Lists,
    usage: UsageTable,
    marks: Marks,
    seers: Seers,
    skips: Skips,
    unseen: Vec<Key>,
}

impl<'v> Walk<'v> {
    fn new(
        volume: &'v Volume<'v>,
        checkpoint: &'v Checkpoint,
        log: &'v LogSummary,
        reads_data: bool,
    ) -> Self {
        let layout = volume.layout();
        let first = Key::first(VERSIONS_LIST, Space::List, 0);
        let table = volume.entries(checkpoint, Some(first), None).map_while(Result::ok);
        Self {
            volume,
            checkpoint,
            log,
            reads_data,
            is_whole: true,
            counts: Counts::default(),
            live: vec![0; layout.segment_count() as usize],
            lists: Lists::default(),
            usage: UsageTable::default(),
            seers: Seers::new(table),
            skips: Skips::default(),
            unseen: Vec::new(),
            marks: Marks::new(layout, 0),
        }
    }

    fn visit(&mut self, node: &Node, findings: &mut Findings) {
        self.counts.node_count += 1;
        let len_bytes = align_up(node.place.len_bytes.into(), GRAIN_SIZE as u64);
        self.count(node.place.addr, len_bytes);
        self.claim(None, node.place.addr, len_bytes, findings);
        if node.info.checkpoint_seq > self.checkpoint.seq {
            findings.add(FindingKind::NodeNewer, node.to_string());
        }
        let Entries::Leaf(entries) = &node.entries else { return };
        for (key, value) in entries {
            self.counts.entry_count += 1;
            self.counts.system_entry_count += u64::from(key.list >= FIRST_SYSTEM_LIST);
            self.visit_list(key, findings);
            let unseen = self.seers.visit(key, value);
            if self.unseen.len() < MAX_FINDINGS_OF_A_KIND as usize {
                self.unseen.extend(unseen);
            }
            match value {
                Value::List(_) => self.counts.list_count += 1,
                Value::Record(bytes) => self.visit_record(key, bytes, findings),
                Value::Chunk(chunk) => {
                    if let Some(problem) = self.skips.visit(key, chunk) {
                        findings.add_about(Some(key.list), FindingKind::ChunkSkip, problem);
                    }
                    for (slot, page) in chunk.iter() {
                        let index = key.index.saturating_mul(CHUNK_PAGES) | u64::from(slot);
                        self.visit_page(key.list, index, page, findings);
                    }
                }
                Value::Tombstone => {}
            }
        }
    }

    fn visit_list(&mut self, key: &Key, findings: &mut Findings) {
        let Key { list, space, .. } = *key;
        if list >= FIRST_SYSTEM_LIST {
            return;
        }
        if space == Space::List {
            self.lists.last = Some(list);
            if list >= self.checkpoint.next_list {
                let next = self.checkpoint.next_list;
                let detail = format!("list {list} exists, the next one is to be {next}");
                findings.add_about(Some(list), FindingKind::ListNumber, detail);
            }
        } else if self.is_whole
            && !self.seers.is_being_removed(list)
            && self.lists.last != Some(list)
            && self.lists.reported.replace(list) != Some(list)
        {
            self.lists.missing.push(list);
        }
    }

    fn visit_record(&mut self, key: &Key, bytes: &[u8], findings: &mut Findings) {
        self.counts.record_count += 1;
        if key.list == VERSIONS_LIST {
            match VersionRecord::decode(key.index, bytes) {
                Ok(VersionRecord::Counters(counters)) => {
                    self.lists.is_swept = counters.sweep_since.is_some();
                }
                Ok(_) => {}
                Err(problem) => {
                    findings.add(FindingKind::VersionUnreadable, format!("at {key}: {problem}"));
                }
            }
        }
        if key.list == REMOVALS_LIST
            && let Err(problem) = removal::decode(key.index, bytes)
        {
            findings.add(FindingKind::RemovalUnreadable, format!("at {key}: {problem}"));
        }
        if key.list == USAGE_LIST
            && let Err(problem) = self.usage.insert_record(key, bytes)
        {
            findings.add(FindingKind::UsageUnreadable, format!("at {key}: {problem}"));
        }
    }

    fn visit_page(&mut self, list: u64, index: u64, page: PageRef, findings: &mut Findings) {
        self.counts.page_count += 1;
        if page.len_bytes == 0 {
            self.counts.zero_page_count += 1;
            return;
        }
        self.counts.short_page_count += u64::from(usize::from(page.len_bytes) < PAGE_SIZE);
        let len_bytes = page.footprint_bytes().into();
        let name =
            || format!("page {index} of list {list} at {}, {} bytes", page.addr, page.len_bytes);
        if !self.volume.layout().holds(page.addr, len_bytes) {
            findings.add_about(Some(list), FindingKind::BlockOutside, name());
            return;
        }
        if page.compression != 0 {
            let detail = format!("{}: kind {}", name(), page.compression);
            findings.add_about(Some(list), FindingKind::BlockCompression, detail);
        }
        self.count(page.addr, len_bytes);
        if self.log.may_have_reused(self.volume.layout().segment_of(page.addr)) {
            return;
        }
        self.claim(Some(list), page.addr, len_bytes, findings);
        if !self.reads_data {
            return;
        }
        match self.volume.read("block", page.addr, page.len_bytes.into()) {
            Err(error) => {
                let detail = format!("{}: {error}", name());
                findings.add_about(Some(list), FindingKind::BlockUnreadable, detail);
            }
            Ok(bytes) => {
                let found = checksum(&bytes[..page.len_bytes.into()]);
                if found != page.crc32c {
                    let detail =
                        format!("{}: checksum {found:08x}, not {:08x}", name(), page.crc32c);
                    findings.add_about(Some(list), FindingKind::BlockDamaged, detail);
                }
                self.counts.verified_bytes += u64::from(page.len_bytes);
            }
        }
    }

    /// Counts bytes as live, which lie in one segment.
    fn count(&mut self, addr: Addr, len_bytes: u64) {
        self.counts.live_bytes += len_bytes;
        self.live[self.volume.layout().segment_of(addr).0 as usize] += len_bytes;
    }

    /// Looks whether nothing else is, or will be, where these bytes are: a page of `list`, or a node of
    /// the map.
    fn claim(&mut self, list: Option<u64>, addr: Addr, len_bytes: u64, findings: &mut Findings) {
        let what = if list.is_some() { "page" } else { "map node" };
        let layout = self.volume.layout();
        let segment = layout.segment_of(addr);
        if self.marks.mark(addr, len_bytes) {
            let detail = format!("{what} at {addr}, {len_bytes} bytes");
            findings.add_about(list, FindingKind::Overlap, detail);
        }
        for head in [self.checkpoint.log, self.checkpoint.map] {
            let end = layout.segment_offset(segment) + u64::from(head.offset_bytes);
            if head.segment == segment && addr.bytes() + len_bytes > end {
                let detail =
                    format!("{what} at {addr}, {len_bytes} bytes; the log goes on at {end}");
                findings.add_about(list, FindingKind::BehindLog, detail);
            }
        }
    }

    fn compare_usage(&mut self, findings: &mut Findings) {
        self.unseen.extend(self.seers.finish());
        for key in &self.unseen {
            findings.add_about(Some(key.list), FindingKind::Unseen, key.to_string());
        }
        for list in self.lists.missing.iter().filter(|_| !self.lists.is_swept) {
            findings.add_about(Some(*list), FindingKind::NoSuchList, format!("list {list}"));
        }
        self.usage.insert_overrides(self.checkpoint);
        let layout = self.volume.layout();
        for row in self.usage.rows() {
            if !layout.is_log_segment(row.segment) {
                findings.add(FindingKind::UsageOutside, row.to_string());
            }
        }
        for segment in layout.log_segments() {
            let recorded = self.recorded(segment);
            let counted = self.live[segment.0 as usize];
            if recorded != counted {
                let detail = format!(
                    "segment {segment}: {recorded} bytes recorded, {counted} bytes counted"
                );
                findings.add(FindingKind::UsageWrong, detail);
            }
        }
        let (short, zero) = (self.counts.short_page_count, self.counts.zero_page_count);
        let recorded = (self.checkpoint.short_count, self.checkpoint.zero_count);
        if self.checkpoint.counts_are_exact && recorded != (short, zero) {
            let detail = format!(
                "{} short ones and {} of zeros recorded, {short} and {zero} counted",
                recorded.0, recorded.1
            );
            findings.add(FindingKind::PageCountsWrong, detail);
        }
        let (recorded, counted) = (self.checkpoint.live_bytes, self.counts.live_bytes);
        if recorded != counted {
            let detail = format!("{recorded} bytes recorded, {counted} bytes counted");
            findings.add(FindingKind::LiveBytesWrong, detail);
        }
    }

    fn recorded(&self, segment: SegmentNo) -> u64 {
        self.usage.get(segment).map_or(0, |row| row.usage.live_bytes.into())
    }
}

/// Looks for overlaps in the segments from `first` on that fit in memory. Returns the first that
/// do not.
fn mark_overlaps(
    volume: &Volume<'_>,
    checkpoint: &Checkpoint,
    log: &LogSummary,
    first: u32,
    findings: &mut Findings,
) -> Option<u32> {
    let layout = volume.layout();
    let mut marks = Marks::new(layout, first);
    for node in volume.nodes(checkpoint).flatten() {
        if marks.mark(node.place.addr, node.place.len_bytes.into()) {
            findings.add(FindingKind::Overlap, node.to_string());
        }
        let Entries::Leaf(entries) = &node.entries else { continue };
        for (key, value) in entries {
            let Value::Chunk(chunk) = value else { continue };
            for (_, page) in chunk.iter() {
                let len_bytes = page.footprint_bytes().into();
                if layout.holds(page.addr, len_bytes)
                    && !log.may_have_reused(layout.segment_of(page.addr))
                    && marks.mark(page.addr, len_bytes)
                {
                    let detail = format!("page of {key} at {}, {len_bytes} bytes", page.addr);
                    findings.add_about(Some(key.list), FindingKind::Overlap, detail);
                }
            }
        }
    }
    marks.end()
}

/// Findings, of each kind not too many.
#[derive(Default)]
struct Findings {
    list: Vec<Finding>,
    counts: HashMap<FindingKind, u64>,
}

impl Findings {
    fn add(&mut self, kind: FindingKind, detail: String) {
        self.add_about(None, kind, detail);
    }

    /// The same of a list; of those that hold files that is told.
    fn add_about(&mut self, list: Option<u64>, kind: FindingKind, detail: String) {
        let list = list.filter(|&list| list < FIRST_SYSTEM_LIST);
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= MAX_FINDINGS_OF_A_KIND {
            self.list.push(Finding::new(kind, detail).about(list));
        }
    }

    fn finish(self) -> Vec<Finding> {
        let mut list = self.list;
        for &kind in FindingKind::ALL {
            let count = self.counts.get(&kind).copied().unwrap_or(0);
            if count > MAX_FINDINGS_OF_A_KIND {
                let detail = format!("{count} of number {}: {}", kind.number(), kind.title());
                list.push(Finding::new(FindingKind::TooMany, detail));
            }
        }
        list
    }
}
