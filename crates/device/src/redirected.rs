//! Ranges of a device that lie in another place.

use std::fmt;

use dendro_base::sync::RwLock;
use dendro_base::sync::atomic::{AtomicBool, Ordering};

use crate::{Device, Error, HostRoom, IoSlice, IoSliceMut, Part, ReadOf, Result, range};

/// A range of a device, and where it lies instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Redirection {
    /// Where the range begins.
    pub offset: u64,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// Where it begins instead.
    pub to: u64,
}

impl Redirection {
    const fn end(&self) -> u64 {
        self.offset + self.len_bytes
    }

    fn is_sound(&self, device_len_bytes: u64) -> bool {
        range::check_blocks(device_len_bytes, self.offset, self.len_bytes).is_ok()
            && range::check_blocks(device_len_bytes, self.to, self.len_bytes).is_ok()
    }
}

/// A device of which some ranges lie in another place of the same device: what is read, written or
/// discarded in such a range is read, written or discarded there. A place that a range lies in is
/// not redirected in its turn.
pub struct RedirectedDevice<D> {
    below: D,
    /// Sorted; no two overlap.
    redirections: RwLock<Vec<Redirection>>,
    /// Whether there are any, so that a device without them takes no lock.
    has_any: AtomicBool,
}

/// A part of a range: where it lies, and which of the range's bytes it is.
struct Piece {
    at: u64,
    bytes: std::ops::Range<usize>,
}

impl<D: Device> RedirectedDevice<D> {
    /// A device of which every range lies where it says.
    pub const fn new(below: D) -> Self {
        Self { below, redirections: RwLock::new(Vec::new()), has_any: AtomicBool::new(false) }
    }

    /// The device below, on which nothing is redirected.
    pub const fn below(&self) -> &D {
        &self.below
    }

    /// Redirects these ranges from now on, and no others.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] or [`Error::Misaligned`] when one of them is not on the device or not
    /// made of whole blocks, or overlaps another one. Then nothing is changed.
    pub fn redirect(&self, mut redirections: Vec<Redirection>) -> Result<()> {
        redirections.retain(|one| one.len_bytes > 0);
        redirections.sort_unstable();
        let device_len_bytes = self.len_bytes();
        let overlaps = redirections.windows(2).find(|pair| pair[0].end() > pair[1].offset);
        let wrong = redirections.iter().find(|one| !one.is_sound(device_len_bytes));
        if let Some(&Redirection { offset, len_bytes, .. }) = wrong.or(overlaps.map(|it| &it[1])) {
            return Err(Error::OutOfRange { offset, len_bytes, device_len_bytes });
        }
        self.has_any.store(!redirections.is_empty(), Ordering::Release);
        *self.redirections.write() = redirections;
        Ok(())
    }

    /// Whether none of a range is redirected.
    fn is_plain(&self, offset: u64, len_bytes: u64) -> bool {
        let end = offset.saturating_add(len_bytes);
        !self.has_any.load(Ordering::Acquire)
            || !self.redirections.read().iter().any(|one| one.offset < end && offset < one.end())
    }

    /// The parts of a range, in its order.
    fn pieces(&self, offset: u64, len_bytes: u64) -> Result<Vec<Piece>> {
        range::check_bounds(self.len_bytes(), offset, len_bytes)?;
        let redirections = self.redirections.read();
        let mut pieces = Vec::new();
        let (mut at, end) = (offset, offset + len_bytes);
        while at < end {
            let next = redirections.partition_point(|one| one.end() <= at);
            let (to, until) = match redirections.get(next) {
                Some(one) if one.offset <= at => (one.to + (at - one.offset), one.end()),
                Some(one) => (at, one.offset),
                None => (at, end),
            };
            let until = until.min(end);
            let bytes = (at - offset) as usize..(until - offset) as usize;
            pieces.push(Piece { at: to, bytes });
            at = until;
        }
        Ok(pieces)
    }
}

impl<D: Device> Device for RedirectedDevice<D> {
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
        if self.is_plain(offset, buf.len() as u64) {
            return self.below.read_at(offset, buf);
        }
        let pieces = self.pieces(offset, buf.len() as u64)?;
        pieces.into_iter().try_for_each(|piece| self.below.read_at(piece.at, &mut buf[piece.bytes]))
    }

    fn read_vectored_at(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<()> {
        let len_bytes = parts.iter().map(|part| part.len() as u64).sum();
        if self.is_plain(offset, len_bytes) {
            return self.below.read_vectored_at(offset, parts);
        }
        let mut offset = offset;
        for part in parts {
            self.read_at(offset, part)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    fn read_each(&self, reads: &mut [ReadOf<'_, '_>]) -> Result<()> {
        let is_plain = |read: &ReadOf<'_, '_>| self.is_plain(read.offset, read.len_bytes() as u64);
        if reads.iter().all(is_plain) {
            return self.below.read_each(reads);
        }
        reads.iter_mut().try_for_each(|read| self.read_vectored_at(read.offset, read.parts))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if self.is_plain(offset, bytes.len() as u64) {
            return self.below.write_at(offset, bytes);
        }
        range::check_blocks(self.len_bytes(), offset, bytes.len() as u64)?;
        let pieces = self.pieces(offset, bytes.len() as u64)?;
        pieces.into_iter().try_for_each(|piece| self.below.write_at(piece.at, &bytes[piece.bytes]))
    }

    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        let len_bytes = parts.iter().map(|part| part.len() as u64).sum();
        if self.is_plain(offset, len_bytes) {
            return self.below.write_vectored_at(offset, parts);
        }
        let mut offset = offset;
        for part in parts {
            self.write_at(offset, part)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// What lies elsewhere is not mended: the device could not write the place once already.
    fn mend(&self, offset: u64, buf: &mut [u8], is_right: &dyn Fn(&[u8]) -> bool) -> bool {
        self.is_plain(offset, buf.len() as u64) && self.below.mend(offset, buf, is_right)
    }

    fn copies_differ(&self, offset: u64, len_bytes: u64) -> bool {
        self.is_plain(offset, len_bytes) && self.below.copies_differ(offset, len_bytes)
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
        range::check_blocks(self.len_bytes(), offset, len_bytes)?;
        let pieces = self.pieces(offset, len_bytes)?;
        pieces.into_iter().try_for_each(|Piece { at, bytes }| {
            self.below.discard(at, (bytes.end - bytes.start) as u64)
        })
    }
}

impl<D> fmt::Debug for RedirectedDevice<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedirectedDevice").field("redirections", &self.redirections).finish()
    }
}

#[cfg(test)]
mod tests {
    use dendro_base::Rng;

    use super::*;
    use crate::{BLOCK_SIZE, MemoryDevice};

    const BLOCK: u64 = BLOCK_SIZE as u64;

    fn redirection(offset: u64, len: u64, to: u64) -> Redirection {
        Redirection { offset: offset * BLOCK, len_bytes: len * BLOCK, to: to * BLOCK }
    }

    #[test]
    fn each_block_is_read_and_written_where_it_lies() {
        let device = RedirectedDevice::new(MemoryDevice::new(64 * BLOCK));
        let all = vec![redirection(8, 4, 40), redirection(20, 1, 50), redirection(12, 2, 44)];
        device.redirect(all).unwrap();
        let place = |block: u64| match block {
            8..14 => block + 32,
            20 => 50,
            other => other,
        };
        // What is redirected to is not used under its own address.
        let mut expected = vec![0; 32 * BLOCK_SIZE];
        let mut rng = Rng::new(3);
        for round in 1..=100_u8 {
            let from = rng.below(31);
            let len = 1 + rng.below(32 - from);
            let range = (from * BLOCK) as usize..((from + len) * BLOCK) as usize;
            expected[range.clone()].fill(round);
            let bytes = &expected[range];
            if round % 2 == 0 {
                device.write_at(from * BLOCK, bytes).unwrap();
            } else {
                let (first, second) = bytes.split_at(BLOCK_SIZE);
                let parts = [IoSlice::new(first), IoSlice::new(second)];
                device.write_vectored_at(from * BLOCK, &parts).unwrap();
            }
            let (at, len) = (rng.below(31 * BLOCK), 1 + rng.below(BLOCK));
            let range = at as usize..(at + len) as usize;
            let mut read = vec![0; len as usize];
            device.read_at(at, &mut read).unwrap();
            assert!(read == expected[range.clone()]);
            let (first, second) = read.split_at_mut(len as usize / 2);
            let mut parts = [IoSliceMut::new(first), IoSliceMut::new(second)];
            device.read_vectored_at(at, &mut parts).unwrap();
            assert!(read == expected[range]);
        }
        let below = device.below().to_bytes();
        for block in 0..32 {
            let (at, lies) = ((block * BLOCK) as usize, (place(block) * BLOCK) as usize);
            assert!(below[lies..lies + BLOCK_SIZE] == expected[at..at + BLOCK_SIZE], "{block}");
        }
    }

    #[test]
    fn what_overlaps_or_is_not_on_the_device_is_refused() {
        let device = RedirectedDevice::new(MemoryDevice::new(64 * BLOCK));
        device.redirect(vec![redirection(8, 4, 40)]).unwrap();
        for wrong in [
            vec![redirection(8, 4, 40), redirection(11, 1, 50)],
            vec![redirection(62, 4, 40)],
            vec![redirection(8, 4, 62)],
            vec![Redirection { offset: 1, len_bytes: BLOCK, to: 0 }],
        ] {
            assert!(device.redirect(wrong).is_err());
        }
        device.write_at(8 * BLOCK, &[1; BLOCK_SIZE]).unwrap();
        assert_eq!(device.below().to_bytes()[40 * BLOCK_SIZE], 1);
        assert!(device.read_at(60 * BLOCK, &mut [0; 5 * BLOCK_SIZE]).is_err());
        device.redirect(Vec::new()).unwrap();
        device.write_at(8 * BLOCK, &[2; BLOCK_SIZE]).unwrap();
        assert_eq!(device.below().to_bytes()[8 * BLOCK_SIZE], 2);
    }
}
