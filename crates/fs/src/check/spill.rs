//! A temporary file for what does not fit in memory: slots of one size, which are written and read
//! whole. The file has no name, so nothing of it is left when the process ends, however it does.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::error::{FsError, Result};

/// The place of something in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotNo(u32);

/// The file, which is made when something is written first.
pub(super) struct Spill {
    slot_len: usize,
    file: Option<File>,
    slot_count: u32,
    free: Vec<SlotNo>,
}

impl Spill {
    pub(super) const fn new(slot_len: usize) -> Self {
        Self { slot_len, file: None, slot_count: 0, free: Vec::new() }
    }

    /// A slot that nothing else uses.
    pub(super) fn allocate(&mut self) -> Result<SlotNo> {
        if let Some(slot) = self.free.pop() {
            return Ok(slot);
        }
        let slot = SlotNo(self.slot_count);
        self.slot_count = self.slot_count.checked_add(1).ok_or_else(|| failed("it is too long"))?;
        Ok(slot)
    }

    pub(super) fn free(&mut self, slot: SlotNo) {
        self.free.push(slot);
    }

    pub(super) fn write(&mut self, slot: SlotNo, bytes: &[u8]) -> Result<()> {
        let offset = self.offset(slot, bytes.len());
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile().map_err(failed)?),
        };
        file.write_all_at(bytes, offset).map_err(failed)
    }

    /// Reads what was written, as many bytes as that were.
    pub(super) fn read(&self, slot: SlotNo, bytes: &mut [u8]) -> Result<()> {
        let offset = self.offset(slot, bytes.len());
        let file = self.file.as_ref().ok_or_else(|| failed("nothing was written"))?;
        file.read_exact_at(bytes, offset).map_err(failed)
    }

    fn offset(&self, slot: SlotNo, len: usize) -> u64 {
        assert!(len <= self.slot_len, "it fits into a slot");
        u64::from(slot.0) * self.slot_len as u64
    }
}

fn failed(why: impl std::fmt::Display) -> FsError {
    let directory = std::env::temp_dir();
    FsError::Temporary(format!("{}: {why}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_keep_what_was_written_and_are_used_again() {
        let mut spill = Spill::new(8);
        let [first, second] = [(); 2].map(|()| spill.allocate().unwrap());
        spill.write(second, b"second").unwrap();
        spill.write(first, b"firstxxx").unwrap();
        let mut bytes = [0; 6];
        spill.read(second, &mut bytes).unwrap();
        assert_eq!(&bytes, b"second");
        spill.free(first);
        assert_eq!(spill.allocate(), Ok(first));
    }
}
