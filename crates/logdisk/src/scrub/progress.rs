//! What a pass has done.

/// What a pass has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubProgress {
    /// Bytes of blocks and nodes that were read and compared.
    pub checked_bytes: u64,
    /// Blocks and nodes.
    pub checked_count: u64,
    /// Places that are damaged. [`LogDisk::damage`](crate::LogDisk::damage) has them.
    pub found_count: u64,
}
