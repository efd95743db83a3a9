//! Coalescing: pages that follow each other in a list but lie scattered on the device are written
//! again side by side.

use serde::{Deserialize, Serialize};

use super::versions::VersionName;

/// A [`CoalesceRequest::compress`] that leaves it to the daemon how.
pub const USUAL_COMPRESSION: &str = "default";

/// How many lists one request may name.
pub const MAX_LISTS: usize = 8192;

/// A place among the pages of all lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PagePlace {
    /// The list; a file's is its i-node number.
    pub list: u64,
    /// Which of its pages.
    pub page: u64,
}

/// Coalesces a part of what is named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoalesceRequest {
    /// The device of the mount whose version is meant; `None`: the main branch's head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// The version that is meant, if that is another one; a block device is the head of a branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<VersionName>,
    /// The lists, by ascending number, [`MAX_LISTS`] at most; all when it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lists: Option<Vec<u64>>,
    /// Where to continue: [`Coalesced::next`] of the last reply; `None` to begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PagePlace>,
    /// Write nothing, and report what would be written.
    #[serde(default)]
    pub dry_run: bool,
    /// Compress what takes less then, with `lz4`, `zstd` or `zstd:` and a level, or as
    /// [`USUAL_COMPRESSION`]: as the cleaner compresses what it moves, or else as new data are, or
    /// else with zstd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compress: Option<String>,
}

/// The result of a [`CoalesceRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coalesced {
    /// Bytes of the pages looked at.
    pub page_bytes: u64,
    /// What the pages of the lists that were passed through take on the device,
    #[serde(default)]
    pub stored_bytes: u64,
    /// and what they would take if nothing were compressed. Unlike `page_bytes`, both count each
    /// list once, and not the neighbours that are laid down beside it. A daemon of an older version
    /// says 0.
    #[serde(default)]
    pub plain_bytes: u64,
    /// Device reads that it took to read them in order, a MiB at a time, before,
    pub pieces_before: u64,
    /// and that it takes now, or would take.
    pub pieces_after: u64,
    /// Bytes that were written again, or would be.
    pub moved_bytes: u64,
    /// How many bytes more these took before. `None`: the daemon is of an older version, and
    /// ignores [`CoalesceRequest::of`] and [`CoalesceRequest::compress`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_bytes: Option<u64>,
    /// What was compressed with; `None` if that was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compress: Option<String>,
    /// Mebibytes with pages that cannot be read; they stay as they are.
    pub unreadable: u64,
    /// Where to continue; `None` at the end.
    pub next: Option<PagePlace>,
    /// It ended early because there are too few clean segments to move anything.
    pub lacks_room: bool,
}

impl Coalesced {
    /// Adds the result of the next request.
    pub fn add(&mut self, more: &Self) {
        self.page_bytes += more.page_bytes;
        self.stored_bytes += more.stored_bytes;
        self.plain_bytes += more.plain_bytes;
        self.pieces_before += more.pieces_before;
        self.pieces_after += more.pieces_after;
        self.moved_bytes += more.moved_bytes;
        self.saved_bytes = more.saved_bytes.map(|bytes| self.saved_bytes.unwrap_or(0) + bytes);
        self.compress.clone_from(&more.compress);
        self.unreadable += more.unreadable;
        (self.next, self.lacks_room) = (more.next, more.lacks_room);
    }
}
