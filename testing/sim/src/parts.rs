//! Parts of one simulated device that are members of a set.
//!
//! One recording has the order of all that happens to all of them. A flush of one part leaves what
//! is unflushed in the others as it is. So a crash image loses any part of what is unflushed on
//! each, and one may fail at any write or flush.

use dendro_base::Rng;
use dendro_base::sync::atomic::{AtomicU64, Ordering};
use dendro_device::{BLOCK_SIZE, Device, Error, IoSlice, IoSliceMut, Result};
use dendro_format::{Roster, checksum, checksum_append};
use dendro_set::DeviceSet;

/// Every so many changes a piece is copied to a member that is brought up, or moved.
const CHANGES_PER_STEP: u64 = 1;
/// Every so many changes another member becomes a fast one, or is none any more.
const CHANGES_PER_CLASS: u64 = 37;

/// What the block starts with that states a length.
const LEN_MAGIC: &[u8] = b"the length of it";

/// How often the length of a part is read at most.
const READ_TRIES: u32 = 5;

/// A part of a device.
pub(crate) struct Part<D> {
    device: D,
    offset: u64,
    len_bytes: AtomicU64,
    /// The length that it can have; a block behind that states the one that it has. 0: it keeps
    /// its length.
    most_bytes: u64,
    /// So many more changes and flushes are made of it before it fails for good.
    calls_left: AtomicU64,
}

impl<D: Device> Part<D> {
    /// Fails if it has failed, or does so now.
    fn change(&self) -> Result<()> {
        let count = |left: u64| Some(left.saturating_sub(1));
        match self.calls_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) {
            Ok(0) | Err(_) => Err(Error::Io {
                operation: "write",
                offset: 0,
                len_bytes: 0,
                source: std::io::Error::other("the part is lost"),
            }),
            Ok(_) => Ok(()),
        }
    }

    fn check(&self, offset: u64, len_bytes: usize) -> Result<()> {
        match offset + len_bytes as u64 <= self.len_bytes() {
            true => Ok(()),
            false => Err(Error::OutOfRange {
                offset,
                len_bytes: len_bytes as u64,
                device_len_bytes: self.len_bytes(),
            }),
        }
    }
}

impl<D: Device> Device for Part<D> {
    fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Relaxed)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(offset, buf.len())?;
        self.device.read_at(self.offset + offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len())?;
        self.change()?;
        self.device.write_at(self.offset + offset, bytes)
    }

    fn flush(&self) -> Result<()> {
        self.change()?;
        self.device.flush_range(self.offset, self.len_bytes())
    }

    fn extend(&self, len_bytes: u64, tail: &[u8], _allocates: bool) -> Result<()> {
        if len_bytes < self.len_bytes() || len_bytes > self.most_bytes {
            return Err(Error::FixedLen { len_bytes: self.len_bytes(), wanted_bytes: len_bytes });
        }
        self.change()?;
        let start = self.offset + len_bytes - tail.len() as u64;
        self.device.write_at(start, tail)?;
        self.device.flush_range(start, tail.len() as u64)?;
        self.state_len(len_bytes)
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.check(offset, len_bytes as usize)?;
        self.device.discard(self.offset + offset, len_bytes)
    }
}

impl<D: Device> Part<D> {
    /// The parts of these lengths, one behind the other.
    pub(crate) fn all(device: &D, lens_bytes: &[u64]) -> Vec<Self>
    where
        D: Clone,
    {
        let mut offset = 0;
        let part = |len_bytes: &u64| {
            let part = Self {
                device: device.clone(),
                offset,
                len_bytes: AtomicU64::new(*len_bytes),
                most_bytes: 0,
                calls_left: u64::MAX.into(),
            };
            offset += len_bytes;
            part
        };
        lens_bytes.iter().map(part).collect()
    }

    /// The same, each of which can become longer: of the bytes behind `len_bytes` that are its
    /// part, the last block states its length. Until that is stated it has its part of `first`.
    pub(crate) fn growing(device: &D, lens_bytes: &[u64], first: [u64; 2]) -> Vec<Self>
    where
        D: Clone,
    {
        let mut parts = Self::all(device, lens_bytes);
        for part in &mut parts {
            part.most_bytes = part.len_bytes() - BLOCK_SIZE as u64;
            let first_bytes = part.most_bytes * first[0] / first[1];
            let at_first = first_bytes - first_bytes % BLOCK_SIZE as u64;
            let mut block = vec![0; BLOCK_SIZE];
            // The machine knows how long a device is, also if a read of it fails.
            let mut read = || device.read_at(part.offset + part.most_bytes, &mut block);
            let is_read = (0..READ_TRIES).any(|_| read().is_ok());
            let stated = block.strip_prefix(LEN_MAGIC).and_then(|rest| rest.first_chunk());
            let stated = stated.map(|bytes| u64::from_le_bytes(*bytes)).filter(|_| is_read);
            *part.len_bytes.get_mut() = stated.unwrap_or(at_first);
        }
        parts
    }

    /// Gives it another length, durably: a crash leaves the old one or this one.
    pub(crate) fn state_len(&self, len_bytes: u64) -> Result<()> {
        let mut block = vec![0; BLOCK_SIZE];
        block[..LEN_MAGIC.len()].copy_from_slice(LEN_MAGIC);
        block[LEN_MAGIC.len()..][..8].copy_from_slice(&len_bytes.to_le_bytes());
        let at = self.offset + self.most_bytes;
        self.device.write_at(at, &block)?;
        self.device.flush_range(at, BLOCK_SIZE as u64)?;
        self.len_bytes.store(len_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// The length that it can have.
    pub(crate) const fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// Has it fail for good after so many more changes and flushes.
    pub(crate) fn fail_after(&self, calls: u64) {
        self.calls_left.store(calls, Ordering::Relaxed);
    }
}

/// A set of which a member is brought up, or moved, while it is written to.
pub(crate) struct Stepping<D: Device> {
    set: DeviceSet<Part<D>>,
    /// Whether members become fast ones.
    has_classes: bool,
    changes: AtomicU64,
}

impl<D: Device> Stepping<D> {
    pub(crate) fn new(set: DeviceSet<Part<D>>, has_classes: bool) -> Self {
        Self { set, has_classes, changes: AtomicU64::new(0) }
    }

    /// The set.
    pub(crate) const fn set(&self) -> &DeviceSet<Part<D>> {
        &self.set
    }

    fn step<T>(&self, outcome: Result<T>) -> Result<T> {
        let change = self.changes.fetch_add(1, Ordering::Relaxed);
        if self.has_classes && change.is_multiple_of(CHANGES_PER_CLASS) {
            let members = self.set.members();
            let one = &members[(change / CHANGES_PER_CLASS) as usize % members.len()];
            let changed = self.set.set_fast(&one.uuid, !one.is_fast);
            if let Err(dendro_set::Error::Device { source, .. }) = changed {
                return Err(source);
            }
        }
        if change.is_multiple_of(CHANGES_PER_STEP) {
            // Nothing is known to be durable after a flush that failed here.
            return self.set.bring_up_step().and(outcome);
        }
        outcome
    }
}

impl<D: Device> Device for Stepping<D> {
    fn len_bytes(&self) -> u64 {
        self.set.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.set.read_at(offset, buf)
    }

    fn read_vectored_at(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<()> {
        self.set.read_vectored_at(offset, parts)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.step(self.set.write_at(offset, bytes))
    }

    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.step(self.set.write_vectored_at(offset, parts))
    }

    fn flush(&self) -> Result<()> {
        self.step(self.set.flush())
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.set.discard(offset, len_bytes)
    }

    fn extend(&self, len_bytes: u64, tail: &[u8], allocates: bool) -> Result<()> {
        self.set.extend(len_bytes, tail, allocates)
    }

    fn truncate(&self, len_bytes: u64) -> Result<()> {
        self.set.truncate(len_bytes)
    }

    fn part_at(&self, offset: u64) -> Option<dendro_device::Part> {
        self.set.part_at(offset)
    }

    fn parts_version(&self) -> u64 {
        self.set.parts_version()
    }

    fn member_ends(&self) -> Vec<u64> {
        self.set.member_ends()
    }

    fn mend(&self, offset: u64, buf: &mut [u8], is_right: &dyn Fn(&[u8]) -> bool) -> bool {
        self.set.mend(offset, buf, is_right)
    }
}

impl<D: Device> Drop for Stepping<D> {
    /// Some are closed at their end, which has an effect if everything was flushed.
    fn drop(&mut self) {
        if self.changes.load(Ordering::Relaxed).is_multiple_of(2) {
            let _ = self.set.close();
        }
    }
}

/// Random numbers, which the same device gives again.
pub(crate) fn lots(device: &impl Device, newest: Option<&Roster>) -> Rng {
    let mut start = vec![0; 128 << 10];
    // What cannot be read now leaves the lot to the roster.
    let _ = device.read_at(0, &mut start);
    let mut rng =
        Rng::new(u64::from(checksum_append(newest.map_or(0, |it| checksum(&it.encode())), &start)));
    rng.next_u64();
    rng
}
