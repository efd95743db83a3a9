//! What is asked and answered about coalescing: pages that follow each other in a list and lie
//! scattered are written again side by side.

use serde::{Deserialize, Serialize};

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
    /// The device of the mount whose version is meant; nothing: the main branch's head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// The lists, by ascending number, [`MAX_LISTS`] at most; all when it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lists: Option<Vec<u64>>,
    /// Where to go on: what the reply before this one said; nothing to begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PagePlace>,
    /// Nothing is written, and it is told what would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// What that came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coalesced {
    /// Bytes of the pages looked at.
    pub page_bytes: u64,
    /// Reads of the device that it takes to read them in order, a MiB at a time,
    pub pieces_before: u64,
    /// and that it takes now, or would.
    pub pieces_after: u64,
    /// Bytes that were written again, or would be.
    pub moved_bytes: u64,
    /// Mebibytes with pages that cannot be read; they stay as they are.
    pub unreadable: u64,
    /// Where to go on; nothing at the end.
    pub next: Option<PagePlace>,
    /// Clean segments are too few for anything to be moved now; that is why it ended there.
    pub lacks_room: bool,
}

impl Coalesced {
    /// Adds what the next request came to.
    pub fn add(&mut self, more: &Self) {
        self.page_bytes += more.page_bytes;
        self.pieces_before += more.pieces_before;
        self.pieces_after += more.pieces_after;
        self.moved_bytes += more.moved_bytes;
        self.unreadable += more.unreadable;
        (self.next, self.lacks_room) = (more.next, more.lacks_room);
    }
}
