//! Resizing: a volume becomes longer or shorter, and the image file with it.

use serde::{Deserialize, Serialize};

/// How long a volume is to become. The size of a volume is that of its image file, or the part of
/// its block device that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResizeTo {
    /// So many bytes.
    Bytes(u64),
    /// So many bytes more.
    More(u64),
    /// As long as the image file or block devices are.
    Max,
}

/// Resizes the volume. While it becomes shorter, replies of progress come before the result. A
/// client that closes its end gives that up, and the volume keeps its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResizeRequest {
    /// How long it is to become.
    pub to: ResizeTo,
    /// The device of a spread volume, by its path or UUID, that becomes longer for that. Older
    /// daemons do not look at it, and older clients do not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

/// How far it is that a volume becomes shorter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResizeProgress {
    /// The segments that the volume gives up.
    pub segment_count: u32,
    /// Those of them that are not empty yet.
    pub left_count: u32,
}

/// The result of a [`ResizeRequest`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resized {
    /// The size before.
    pub before_bytes: u64,
    /// The size now.
    pub size_bytes: u64,
    /// The size that was asked for, which may be no multiple of a segment's.
    pub wanted_bytes: u64,
    /// The size of a segment.
    pub segment_bytes: u64,
    /// The segments of the volume now, those of the superblocks included.
    pub segment_count: u32,
    /// The bytes that can be written now.
    pub available_bytes: u64,
}
