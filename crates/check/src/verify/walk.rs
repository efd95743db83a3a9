//! One walk over the map.

use std::collections::BTreeMap;

use dendro_base::units::{GRAIN_SIZE, PAGE_SIZE, align_up};
use dendro_format::compression::{self, Unpacker};
use dendro_format::removal::{self, REMOVALS_LIST};
use dendro_format::totals::{COMPRESSED_INDEX, TOTALS_LIST};
use dendro_format::usage::{FIRST_SYSTEM_LIST, USAGE_LIST};
use dendro_format::versions::{VERSIONS_LIST, quota_bytes};
use dendro_format::{
    Addr, CHUNK_PAGES, Checkpoint, Chunk, CompressedPages, Entries, Key, Malformed, PageRef,
    SegmentNo, Space, Value, VersionRecord, checksum,
};

use super::finding::FindingKind;
use super::findings::{About, Findings, MAX_FINDINGS_OF_A_KIND};
use super::marks::Marks;
use super::report::Counts;
use super::skips::Skips;
use super::versions::Versions;
use super::visibility::Visibility;
use crate::read::{LogSummary, Node, UsageTable, Volume};

/// The lists that the walk has seen. In the order of keys, the entry that says that a list exists
/// comes before the list's other entries.
#[derive(Default)]
struct Lists {
    last: Option<u64>,
    reported: Option<u64>,
    /// Lists with entries, but without the entry that says that they exist.
    missing: Vec<u64>,
    /// How many more there are than are listed.
    more_missing: u64,
}

/// One walk over the map.
pub(super) struct Walk<'v> {
    volume: &'v Volume<'v>,
    checkpoint: &'v Checkpoint,
    /// The log behind the checkpoint. It names segments that have become empty and may have been
    /// filled again since, with the checkpoint's own nodes too.
    log: &'v LogSummary,
    /// Whether blocks are read.
    reads_data: bool,
    /// Whether every node could be read. If not, nothing can be said to be missing or counted
    /// wrongly.
    pub(super) is_whole: bool,
    pub(super) counts: Counts,
    /// Live bytes of each segment.
    live: Vec<u64>,
    lists: Lists,
    usage: UsageTable,
    pub(super) marks: Marks,
    versions: &'v Versions,
    visibility: Visibility<'v>,
    skips: Skips,
    unpacker: Unpacker,
    /// The compressed pages as they are counted, and as the map records them.
    compressed: CompressedPages,
    recorded_compressed: Result<CompressedPages, Malformed>,
    /// Entries that no version sees.
    invisible: Vec<Key>,
    /// What the entries of each branch count against a quota, if there is one.
    quota_bytes: BTreeMap<u32, u64>,
}

impl<'v> Walk<'v> {
    pub(super) fn new(
        volume: &'v Volume<'v>,
        (checkpoint, versions): (&'v Checkpoint, &'v Versions),
        log: &'v LogSummary,
        reads_data: bool,
        marks_bytes: u64,
    ) -> Self {
        let layout = volume.layout();
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
            versions,
            visibility: Visibility::new(versions),
            skips: Skips::default(),
            unpacker: Unpacker::new(),
            compressed: CompressedPages::default(),
            recorded_compressed: Ok(CompressedPages::default()),
            invisible: Vec::new(),
            quota_bytes: BTreeMap::new(),
            marks: Marks::new(layout, 0, marks_bytes),
        }
    }

    pub(super) fn visit(&mut self, node: &Node, findings: &mut Findings<'_>) {
        self.counts.node_count += 1;
        if self.volume.superblock().metadata_copies() > 1
            && self.checkpoint.mirror_of(self.volume.layout(), node.place.addr).is_none()
        {
            self.counts.unmirrored_node_count += 1;
        }
        let len_bytes = align_up(node.place.len_bytes.into(), GRAIN_SIZE as u64);
        self.count(node.place.addr, len_bytes);
        self.claim(None, node.place.addr, len_bytes, findings);
        if node.info.checkpoint_seq > self.checkpoint.seq {
            findings.add(FindingKind::NodeNewer, node.to_string());
        }
        let in_mirror = || {
            let mirror = self.volume.mirror_of(node.place.addr)?;
            self.volume.node_at(node.place, mirror).err().map(|error| error.to_string())
        };
        if let Some(problem) = node.problem.clone().or_else(in_mirror) {
            findings.add(FindingKind::NodeCopy, problem);
        }
        let Entries::Leaf(entries) = &node.entries else { return };
        for (key, value) in entries {
            self.counts.entry_count += 1;
            self.counts.system_entry_count += u64::from(key.list >= FIRST_SYSTEM_LIST);
            self.visit_list(key, findings);
            if key.list < FIRST_SYSTEM_LIST && self.versions.have_quotas() {
                *self.quota_bytes.entry(key.branch).or_default() += quota_bytes(value);
            }
            if !(1..=self.checkpoint.epoch.max(1)).contains(&key.epoch) {
                let about = Some(About::List(key.list));
                let detail = format!("{key}, at checkpoint epoch {}", self.checkpoint.epoch);
                findings.add_about(about, FindingKind::EntryEpoch, detail);
            }
            let invisible = self.visibility.visit(key, value);
            if self.invisible.len() < MAX_FINDINGS_OF_A_KIND as usize {
                self.invisible.extend(invisible);
            }
            match value {
                Value::List(_) => self.counts.list_count += 1,
                Value::Record(bytes) => self.visit_record(key, bytes, findings),
                Value::Chunk(chunk) => {
                    if let Some(problem) = self.skips.visit(key, chunk) {
                        let about = Some(About::Entry(*key, u32::MAX));
                        findings.add_about(about, FindingKind::ChunkSkip, problem);
                    }
                    for (slots, page) in chunk.blocks() {
                        self.visit_block(key, chunk, slots, page, findings);
                    }
                }
                Value::Tombstone => {}
            }
        }
    }

    fn visit_list(&mut self, key: &Key, findings: &mut Findings<'_>) {
        let Key { list, space, .. } = *key;
        if list >= FIRST_SYSTEM_LIST {
            return;
        }
        if space == Space::List {
            self.lists.last = Some(list);
            if list >= self.checkpoint.next_list {
                let next = self.checkpoint.next_list;
                let detail = format!("list {list} exists, the next one is to be {next}");
                findings.add_about(Some(About::List(list)), FindingKind::ListNumber, detail);
            }
        } else if self.is_whole
            && !self.versions.is_being_removed(list)
            && self.lists.last != Some(list)
            && self.lists.reported.replace(list) != Some(list)
        {
            if self.lists.missing.len() < MAX_FINDINGS_OF_A_KIND as usize {
                self.lists.missing.push(list);
            } else {
                self.lists.more_missing += 1;
            }
        }
    }

    fn visit_record(&mut self, key: &Key, bytes: &[u8], findings: &mut Findings<'_>) {
        self.counts.record_count += 1;
        if key.list == VERSIONS_LIST
            && let Err(problem) = VersionRecord::decode(key.index, bytes)
        {
            findings.add(FindingKind::VersionUnreadable, format!("at {key}: {problem}"));
        }
        if key.list == REMOVALS_LIST
            && let Err(problem) = removal::decode(key.index, bytes)
        {
            findings.add(FindingKind::RemovalUnreadable, format!("at {key}: {problem}"));
        }
        if key.list == TOTALS_LIST && key.index == COMPRESSED_INDEX {
            self.recorded_compressed = CompressedPages::decode(bytes);
        }
        if key.list == USAGE_LIST
            && let Err(problem) = self.usage.insert_record(key, bytes)
        {
            findings.add(FindingKind::UsageUnreadable, format!("at {key}: {problem}"));
        }
    }

    /// Visits the block of pages at `slots`, of which `page` is the first.
    fn visit_block(
        &mut self,
        key: &Key,
        chunk: &Chunk,
        slots: u32,
        page: PageRef,
        findings: &mut Findings<'_>,
    ) {
        self.counts.page_count += u64::from(slots.count_ones());
        if page.len_bytes == 0 {
            self.counts.zero_page_count += 1;
            return;
        }
        if page.is_short() {
            self.counts.short_page_count += u64::from(slots.count_ones());
        }
        for (slot, page) in chunk.iter_masked(slots) {
            let is_first = slot == slots.trailing_zeros();
            self.compressed.add(&page, if is_first { page.footprint_bytes() } else { 0 });
        }
        let len_bytes = page.footprint_bytes().into();
        let about = Some(About::Entry(*key, slots));
        let name = || {
            let index = key.index.saturating_mul(CHUNK_PAGES) | u64::from(slots.trailing_zeros());
            let Key { list, .. } = key;
            format!("page {index} of list {list} at {}, {} bytes", page.addr, page.len_bytes)
        };
        if !self.volume.layout().holds(page.addr, len_bytes) {
            findings.add_about(about, FindingKind::BlockOutside, name());
            return;
        }
        let is_known = compression::check_kind(&page).is_ok();
        if !is_known {
            let detail = format!("{}: kind {}, flags {:#x}", name(), page.compression, page.flags);
            findings.add_about(about, FindingKind::BlockCompression, detail);
        }
        self.count(page.addr, len_bytes);
        if self.log.may_have_reused(self.volume.layout().segment_of(page.addr)) {
            return;
        }
        self.claim(about, page.addr, len_bytes, findings);
        if !self.reads_data {
            return;
        }
        match self.volume.read("block", page.addr, page.len_bytes.into()) {
            Err(error) => {
                let detail = format!("{}: {error}", name());
                findings.add_about(about, FindingKind::BlockUnreadable, detail);
            }
            Ok(bytes) => {
                let found = checksum(&bytes[..page.len_bytes.into()]);
                if found != page.crc32c {
                    let detail =
                        format!("{}: checksum {found:08x}, not {:08x}", name(), page.crc32c);
                    findings.add_about(about, FindingKind::BlockDamaged, detail);
                } else if is_known && !self.can_be_unpacked(chunk, slots, &bytes) {
                    let detail = format!("{}: it cannot be decompressed", name());
                    findings.add_about(about, FindingKind::BlockDamaged, detail);
                }
                self.counts.verified_bytes += u64::from(page.len_bytes);
            }
        }
    }

    /// Whether a block, whose checksum is right, has the pages at `slots`.
    fn can_be_unpacked(&mut self, chunk: &Chunk, slots: u32, bytes: &[u8]) -> bool {
        let by_index = |page: &PageRef| page.frame_index();
        let pages = chunk.iter_masked(slots).map(|(_, page)| page);
        pages.max_by_key(by_index).is_none_or(|last| {
            let stored = &bytes[..last.len_bytes.into()];
            last.compression == 0
                || self.unpacker.unpack(&last, stored, &mut [0; PAGE_SIZE]).is_ok()
        })
    }

    /// Counts bytes, which lie in one segment, as live.
    fn count(&mut self, addr: Addr, len_bytes: u64) {
        self.counts.live_bytes += len_bytes;
        self.live[self.volume.layout().segment_of(addr).0 as usize] += len_bytes;
    }

    /// Checks that nothing else lies, or will be written, where these bytes are: the page that it
    /// is about, or a node of the map.
    fn claim(
        &mut self,
        about: Option<About>,
        addr: Addr,
        len_bytes: u64,
        findings: &mut Findings<'_>,
    ) {
        let what = if about.is_some() { "page" } else { "map node" };
        let layout = self.volume.layout();
        let segment = layout.segment_of(addr);
        if self.marks.mark(addr, len_bytes) {
            let detail = format!("{what} at {addr}, {len_bytes} bytes");
            findings.add_about(about, FindingKind::Overlap, detail);
        }
        for head in [self.checkpoint.log, self.checkpoint.map] {
            let end = layout.segment_offset(segment) + u64::from(head.offset_bytes);
            if head.segment == segment && addr.bytes() + len_bytes > end {
                let detail =
                    format!("{what} at {addr}, {len_bytes} bytes; the log goes on at {end}");
                findings.add_about(about, FindingKind::BehindLog, detail);
            }
        }
    }

    /// After the last node of a map that could be read as a whole: what no version sees, and
    /// whether what was counted is what is recorded.
    pub(super) fn finish(&mut self, findings: &mut Findings<'_>) {
        self.invisible.extend(self.visibility.finish());
        for key in &self.invisible {
            findings.add_about(Some(About::List(key.list)), FindingKind::Unseen, key.to_string());
        }
        // A collection removes what says that a list exists after all else of the list.
        for list in &self.lists.missing {
            let about = Some(About::List(*list));
            findings.add_about(about, FindingKind::NoSuchList, format!("list {list}"));
        }
        findings.count_more(FindingKind::NoSuchList, self.lists.more_missing);
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
        self.finish_compressed(findings);
        for (client, recorded, counted) in self.versions.wrong_quotas(&self.quota_bytes) {
            let detail = format!("client {client}: {recorded} bytes recorded, {counted} counted");
            findings.add(FindingKind::QuotaWrong, detail);
        }
        let (recorded, counted) = (self.checkpoint.live_bytes, self.counts.live_bytes);
        if recorded != counted {
            let detail = format!("{recorded} bytes recorded, {counted} bytes counted");
            findings.add(FindingKind::LiveBytesWrong, detail);
        }
    }

    /// Whether the compressed pages that were counted are those that are recorded.
    fn finish_compressed(&mut self, findings: &mut Findings<'_>) {
        let counted = self.compressed;
        self.counts.compressed_page_count = counted.page_count();
        self.counts.compressed_bytes = counted.stored_bytes();
        let problem = match self.recorded_compressed {
            Ok(recorded) if recorded == counted => return,
            Ok(recorded) => format!(
                "{} compressed ones in {} bytes recorded, {} in {} counted",
                recorded.page_count(),
                recorded.stored_bytes(),
                counted.page_count(),
                counted.stored_bytes()
            ),
            Err(problem) => problem.to_string(),
        };
        if self.checkpoint.totals_are_exact {
            findings.add(FindingKind::PageCountsWrong, problem);
        }
    }

    fn recorded(&self, segment: SegmentNo) -> u64 {
        self.usage.get(segment).map_or(0, |row| row.usage.live_bytes.into())
    }
}
