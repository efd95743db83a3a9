//! Repeating reads that fail.

use std::io::{ErrorKind, IoSlice, IoSliceMut};

use crate::{Device, Error, HostRoom, Part, ReadOf, Result};

/// How often a read is made before its error is believed. The kernel and the device have repeated
/// it already where they know how to. What is left are short interruptions: a bus that was reset, a
/// path that was exchanged for another.
const READ_TRIES: u32 = 2;

/// A device whose reads are repeated once when the medium fails. A read changes nothing, so that is
/// always sound. Writes are not repeated here: who wrote must decide, because a write that failed
/// may have to go elsewhere. Flushes are never repeated, because the success of one proves nothing
/// about writes that an earlier one has lost.
#[derive(Debug)]
pub struct Retrying<D> {
    below: D,
}

impl<D: Device> Retrying<D> {
    /// Repeats reads of `below`.
    pub const fn new(below: D) -> Self {
        Self { below }
    }
}

/// Whether the same read may succeed a moment later.
fn may_pass(error: &Error) -> bool {
    match error {
        // A buffer or an offset that the system does not take stays wrong.
        Error::Io { source, .. } => source.kind() != ErrorKind::InvalidInput,
        _ => false,
    }
}

fn repeated<T>(mut read: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..READ_TRIES {
        match read() {
            Err(error) if may_pass(&error) => {}
            outcome => return outcome,
        }
    }
    read()
}

impl<D: Device> Device for Retrying<D> {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.below.is_read_only()
    }

    fn host_room(&self) -> Option<HostRoom> {
        self.below.host_room()
    }

    fn next_written(&self, offset: u64) -> Option<u64> {
        self.below.next_written(offset)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        repeated(|| self.below.read_at(offset, buf))
    }

    fn read_vectored_at(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<()> {
        repeated(|| self.below.read_vectored_at(offset, parts))
    }

    fn read_each(&self, reads: &mut [ReadOf<'_, '_>]) -> Result<()> {
        // Which one failed is not known, nor which ones were made.
        let retry = |read: &mut ReadOf<'_, '_>| self.read_vectored_at(read.offset, read.parts);
        self.below.read_each(reads).or_else(|_| reads.iter_mut().try_for_each(retry))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.below.write_at(offset, bytes)
    }

    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.below.write_vectored_at(offset, parts)
    }

    fn mend(&self, offset: u64, buf: &mut [u8], is_right: &dyn Fn(&[u8]) -> bool) -> bool {
        self.below.mend(offset, buf, is_right)
    }

    fn copies_differ(&self, offset: u64, len_bytes: u64) -> bool {
        self.below.copies_differ(offset, len_bytes)
    }

    fn copy_count(&self) -> u32 {
        self.below.copy_count()
    }

    fn part_at(&self, offset: u64) -> Option<Part> {
        self.below.part_at(offset)
    }

    fn parts_version(&self) -> u64 {
        self.below.parts_version()
    }

    fn member_ends(&self) -> Vec<u64> {
        self.below.member_ends()
    }

    fn extend(&self, len_bytes: u64, tail: &[u8], allocates: bool) -> Result<()> {
        self.below.extend(len_bytes, tail, allocates)
    }

    fn truncate(&self, len_bytes: u64) -> Result<()> {
        self.below.truncate(len_bytes)
    }

    fn flush(&self) -> Result<()> {
        self.below.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.below.discard(offset, len_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK_SIZE;
    use crate::sim::{Call, Fault, SimDevice};

    fn device() -> Retrying<SimDevice> {
        let device = Retrying::new(SimDevice::new(1 << 20, 1));
        device.write_at(0, &[7; BLOCK_SIZE]).unwrap();
        device
    }

    #[test]
    fn a_read_that_fails_once_succeeds() {
        let device = device();
        device.below.inject(Fault::fail(Call::Read));
        let mut block = [0; BLOCK_SIZE];
        device.read_at(0, &mut block).unwrap();
        assert!(block == [7; BLOCK_SIZE]);
        device.below.inject(Fault::fail(Call::Read));
        let mut block = [0; BLOCK_SIZE];
        let (first, second) = block.split_at_mut(100);
        let mut parts = [IoSliceMut::new(first), IoSliceMut::new(second)];
        device.read_vectored_at(0, &mut parts).unwrap();
        assert!(block == [7; BLOCK_SIZE]);
        assert_eq!(device.below.struck_count(), 2);
    }

    #[test]
    fn a_read_that_goes_on_failing_ends_after_a_bounded_number_of_tries() {
        let device = device();
        device.below.inject(Fault::fail(Call::Read).forever());
        assert!(device.read_at(0, &mut [0; BLOCK_SIZE]).is_err());
        assert_eq!(device.below.struck_count(), u64::from(READ_TRIES));
    }

    #[test]
    fn other_calls_and_calls_that_are_wrong_are_made_once() {
        let device = device();
        device.below.inject(Fault::fail(Call::Write));
        assert!(device.write_at(0, &[1; BLOCK_SIZE]).is_err());
        device.below.inject(Fault::fail(Call::Flush));
        assert!(device.flush().is_err());
        device.flush().unwrap();
        assert!(matches!(device.read_at(1 << 20, &mut [0]), Err(Error::OutOfRange { .. })));
        assert_eq!(device.below.struck_count(), 2);
    }
}
