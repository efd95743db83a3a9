//! How much memory a rebuild takes, as parts of what it may take.

use dendro_base::units::MIB;

use crate::error::{Error, Result};

/// The most bytes of leaves in a slice of the gaps. In memory they take about four times as much.
const MAX_SLICE_BYTES: u64 = 64 * MIB;

/// The memory that a rebuild may take, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory(pub(super) u64);

impl Memory {
    /// Bytes of leaves in a slice of the gaps: in memory a quarter of all.
    pub(super) fn slice_bytes(self) -> u64 {
        (self.0 / 16).min(MAX_SLICE_BYTES)
    }

    /// Bytes of what was read that may stay in memory.
    pub(super) fn kept_bytes(self) -> u64 {
        self.0 / 8
    }

    /// Checks that a table of what was found fits. There are two, and each may take a quarter.
    ///
    /// # Errors
    /// [`Error::Memory`] if it does not.
    pub(super) fn check(self, found_bytes: u64) -> Result<()> {
        match found_bytes > self.0 / 4 {
            true => Err(Error::Memory { limit_bytes: self.0 }),
            false => Ok(()),
        }
    }
}
