//! What a check looks at, how far it is, and what it has counted.

use dendro_disk::View;

/// The memory for what is kept about files, unless the caller says it: enough for a million.
const DEFAULT_MEMORY_BYTES: u64 = 64 << 20;

/// The part of the memory that the changes from version to version take.
const PART_FOR_CHANGES: u64 = 8;

/// What a check looks at.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions {
    pub(super) data: bool,
    pub(super) max_findings_of_a_code: usize,
    pub(super) memory_bytes: u64,
    /// The bits of names' hashes that count; all but in tests that need collisions.
    pub(super) hash_mask: u64,
}

impl CheckOptions {
    /// Whether to read the pages in which files end, and what is behind them.
    #[must_use]
    pub const fn with_data(self, data: bool) -> Self {
        Self { data, ..self }
    }

    /// The most findings of a kind that are kept; the others are counted.
    #[must_use]
    pub const fn with_max_findings_of_a_code(self, max_findings_of_a_code: usize) -> Self {
        Self { max_findings_of_a_code, ..self }
    }

    /// The memory for what is kept about files. What does not fit goes to a temporary file.
    #[must_use]
    pub const fn with_memory(self, memory_bytes: u64) -> Self {
        Self { memory_bytes, ..self }
    }

    /// The memory for the changes from version to version.
    pub(super) const fn memory_for_changes(&self) -> u64 {
        self.memory_bytes / PART_FOR_CHANGES
    }

    #[cfg(test)]
    pub(crate) const fn with_hash_mask(self, hash_mask: u64) -> Self {
        Self { hash_mask, ..self }
    }
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self {
            data: true,
            max_findings_of_a_code: 100,
            memory_bytes: DEFAULT_MEMORY_BYTES,
            hash_mask: u64::MAX,
        }
    }
}

/// How far a check is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The version that it is at.
    pub view: View,
    /// Which one that is, from 1 on.
    pub version_count: u64,
    /// Lists that were read so far.
    pub lists_read: u64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Versions that were checked.
    pub version_count: u64,
    /// Versions among these that hold no files.
    pub without_files: u64,
    /// Lists that were read, each time that one was.
    pub lists_read: u64,
    /// Entries of directories that were read.
    pub entry_count: u64,
    /// The most files that a version has.
    pub file_count: u64,
    /// The most memory that was kept about files.
    pub memory_bytes: usize,
}
