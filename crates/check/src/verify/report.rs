//! The result of a verification.

use std::fmt;

use serde::Serialize;

use super::finding::{Finding, Severity};
use super::versions::Version;

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Nodes of the map.
    pub node_count: u64,
    /// Those that are kept once although the volume asks for two copies.
    pub unmirrored_node_count: u64,
    /// Entries in its leaves.
    pub entry_count: u64,
    /// The entries of the disk's own lists among them.
    pub system_entry_count: u64,
    /// Lists.
    pub list_count: u64,
    /// Records.
    pub record_count: u64,
    /// Pages, pages of zeros included.
    pub page_count: u64,
    /// Pages of zeros.
    pub zero_page_count: u64,
    /// Pages whose blocks are shorter than a page.
    pub short_page_count: u64,
    /// Pages whose blocks are compressed.
    pub compressed_page_count: u64,
    /// Bytes that these occupy on the device, in whole grains.
    pub compressed_bytes: u64,
    /// Bytes that nodes and pages occupy on the device, in whole grains.
    pub live_bytes: u64,
    /// Bytes of pages whose checksums were verified.
    pub verified_bytes: u64,
}

/// The result of a verification.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The findings, in the order in which they were made.
    pub findings: Vec<Finding>,
    /// What was counted.
    pub counts: Counts,
    /// The versions of the volume: of each branch the snapshots in their order, and then its head.
    pub versions: Vec<Version>,
}

impl Report {
    /// The worst severity of all findings; `None` when there is none.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(Finding::severity).max()
    }

    /// Whether nothing is wrong. There may be notes.
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
