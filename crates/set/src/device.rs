//! The set as a device: each call, piece by piece.

use std::io::{IoSlice, IoSliceMut};
use std::iter;
use std::ops::Range;

use dendro_base::sync::atomic::Ordering;
use dendro_device::{AlignedBuf, Device, Error, HostRoom, Part, ReadOf, Result};

use crate::member::Slot;
use crate::set::DeviceSet;

impl<D: Device> Device for DeviceSet<D> {
    fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Relaxed)
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Of the member with the least room. Images may lie on the same file system: so each of those
    /// that get everything counts with a part of what is free there, and of those that get a part
    /// each, what is free counts once.
    fn host_room(&self) -> Option<HostRoom> {
        let state = self.state.read();
        let devices = state.slots.iter().filter_map(Slot::written);
        let rooms: Vec<HostRoom> = devices.filter_map(|device| device.host_room()).collect();
        let free_bytes = rooms.iter().map(|room| room.free_bytes).min()?;
        let allocated = rooms.iter().map(|room| room.allocated_bytes);
        Some(match state.spread {
            Some(_) => HostRoom { free_bytes, allocated_bytes: allocated.sum() },
            None => HostRoom {
                free_bytes: free_bytes / rooms.len() as u64,
                allocated_bytes: allocated.min()?,
            },
        })
    }

    fn next_written(&self, offset: u64) -> Option<u64> {
        let state = self.state.read();
        let mut at = offset;
        while at < state.set_len_bytes {
            let piece = state.piece(at, state.set_len_bytes - at);
            let holders = state.slots.iter().enumerate().filter(|(slot, _)| piece.is_on(*slot));
            let written = holders.filter_map(|(slot, it)| {
                let place = state.place(slot, at);
                let next = it.written()?.next_written(place)?;
                (next - place < piece.len_bytes).then(|| at + (next - place))
            });
            if let Some(next) = written.min() {
                return Some(next);
            }
            at += piece.len_bytes;
        }
        None
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check_read(offset, buf.len() as u64)?;
        self.read_pieces(offset, buf)
    }

    fn read_vectored_at(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<()> {
        let len_bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.check_read(offset, len_bytes)?;
        let is_one_piece = self.state.read().piece(offset, len_bytes).len_bytes == len_bytes;
        if is_one_piece && self.is_open.load(Ordering::Acquire) {
            let read = |device: &D, place, piece_bytes| match piece_bytes == len_bytes {
                true => device.read_vectored_at(place, parts),
                // It is being moved since a moment ago.
                false => Ok(()),
            };
            if self.read_any(offset, len_bytes, read)? == len_bytes {
                return Ok(());
            }
        }
        let mut at = offset;
        for part in parts {
            self.read_pieces(at, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn read_each(&self, reads: &mut [ReadOf<'_, '_>]) -> Result<()> {
        for read in &*reads {
            self.check_read(read.offset, read.len_bytes() as u64)?;
        }
        if self.is_open.load(Ordering::Acquire) && self.read_at_once(reads) {
            return Ok(());
        }
        // One by one, from another member where one fails, or over the border of a piece.
        reads.iter_mut().try_for_each(|read| self.read_vectored_at(read.offset, read.parts))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let write = |device: &D, place, part: Range<usize>| device.write_at(place, &bytes[part]);
        self.change(offset, bytes.len() as u64, write)
    }

    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        let len_bytes: usize = parts.iter().map(|part| part.len()).sum();
        let write = |device: &D, place, part: Range<usize>| match part.len() == len_bytes {
            true => device.write_vectored_at(place, parts),
            false => device.write_vectored_at(place, &parts_within(parts, part)),
        };
        self.change(offset, len_bytes as u64, write)
    }

    fn flush(&self) -> Result<()> {
        self.flush_all()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.check(offset, len_bytes)?;
        self.open_for_writing()?;
        let _copying = self.copying.read();
        let state = self.state.read();
        state.check(offset, len_bytes)?;
        // What was discarded may read as anything, so a member that fails is not stale.
        let mut outcome = Ok(());
        let mut at = offset;
        while at < offset + len_bytes {
            let piece = state.piece(at, offset + len_bytes - at);
            for (slot, it) in state.slots.iter().enumerate().filter(|(slot, _)| piece.is_on(*slot))
            {
                let Some(device) = it.written() else { continue };
                outcome = outcome.and(device.discard(state.place(slot, at), piece.len_bytes));
            }
            at += piece.len_bytes;
        }
        outcome
    }

    fn extend(&self, len_bytes: u64, tail: &[u8], allocates: bool) -> Result<()> {
        self.lengthen_spread(len_bytes, tail)
            .or_else(|| self.lengthen_mirrored(len_bytes, tail, allocates))
            .unwrap_or_else(|| {
                self.resize(len_bytes, |device| device.extend(len_bytes, tail, allocates))
            })
    }

    fn truncate(&self, len_bytes: u64) -> Result<()> {
        match self.shorten_spread(len_bytes) {
            Some(outcome) => outcome,
            None => self.resize(len_bytes, |device| device.truncate(len_bytes)),
        }
    }

    fn mend(&self, offset: u64, buf: &mut [u8], is_right: &dyn Fn(&[u8]) -> bool) -> bool {
        let len_bytes = buf.len() as u64;
        let has_others = || {
            let state = self.state.read();
            let piece = state.piece(offset, len_bytes);
            piece.len_bytes == len_bytes && piece.on.is_none() && state.in_sync().count() > 1
        };
        self.check_read(offset, len_bytes).is_ok()
            && has_others()
            && self.mend_range(offset, buf, is_right)
    }

    fn copy_count(&self) -> u32 {
        let state = self.state.read();
        if state.spread.is_some() { 1 } else { state.in_sync().count() as u32 }
    }

    fn part_at(&self, offset: u64) -> Option<Part> {
        let known = self.known.read();
        let member = known.spread.as_ref()?.piece(offset, 1).on?;
        let is_fast = known.are_fast.get(member).is_some_and(|it| *it);
        Some(Part { number: member as u32, is_fast })
    }

    fn parts_version(&self) -> u64 {
        self.known.read().version
    }

    fn member_ends(&self) -> Vec<u64> {
        let state = self.state.read();
        let there = state.slots.iter().filter(|slot| state.is_listed && slot.device.is_some());
        there.flat_map(|slot| iter::once(slot.end_bytes).chain(slot.next_end_bytes)).collect()
    }

    fn copies_differ(&self, offset: u64, len_bytes: u64) -> bool {
        if self.check_read(offset, len_bytes).is_err() {
            return false;
        }
        // Nobody writes between the reads.
        let _copying = self.copying.write();
        let state = self.state.read();
        let piece = state.piece(offset, len_bytes);
        if piece.on.is_some() || piece.len_bytes < len_bytes {
            return false;
        }
        let mut devices = state.in_sync().filter_map(|at| Some((at, state.slots[at].in_sync()?)));
        let Some((at, first)) = devices.next() else { return false };
        let mut others = devices.peekable();
        if others.peek().is_none() {
            return false;
        }
        let [mut ours, mut theirs] = [0; 2].map(|_| AlignedBuf::zeroed(len_bytes as usize));
        let is_read = first.read_at(state.place(at, offset), &mut ours).is_ok();
        !is_read
            || others.any(|(at, other)| {
                let answer = other.read_at(state.place(at, offset), &mut theirs);
                answer.is_err() || ours[..] != theirs[..]
            })
    }
}

/// The bytes of `part` of what `parts` are together.
fn parts_within<'b>(parts: &'b [IoSlice<'_>], part: Range<usize>) -> Vec<IoSlice<'b>> {
    let mut at = 0;
    let mut within = Vec::new();
    for slice in parts {
        let (start, end) = (part.start.max(at), part.end.min(at + slice.len()));
        if start < end {
            within.push(IoSlice::new(&slice[start - at..end - at]));
        }
        at += slice.len();
    }
    within
}

impl<D: Device> DeviceSet<D> {
    pub(crate) fn check_read(&self, offset: u64, len_bytes: u64) -> Result<()> {
        let device_len_bytes = self.len_bytes();
        match offset.checked_add(len_bytes) {
            Some(end) if end <= device_len_bytes => Ok(()),
            _ => Err(Error::OutOfRange { offset, len_bytes, device_len_bytes }),
        }
    }

    fn read_pieces(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let (at, rest) = (offset + done as u64, &mut buf[done..]);
            done += match self.is_open.load(Ordering::Acquire) {
                true => self.read_any(at, rest.len() as u64, |device, place, len_bytes| {
                    device.read_at(place, &mut rest[..len_bytes as usize])
                })? as usize,
                false => self.read_opening(at, rest)?,
            };
        }
        Ok(())
    }

    /// Changes the length of a single device. The rosters of a set lie behind its volume, so that
    /// mirrored members become no shorter.
    fn resize(&self, wanted_bytes: u64, change: impl Fn(&D) -> Result<()>) -> Result<()> {
        let fixed = Error::FixedLen { len_bytes: self.len_bytes(), wanted_bytes };
        // Cutting off a long image can take seconds. Others read and write meanwhile.
        let state = self.state.read();
        let device = state.slots.first().and_then(|slot| slot.device.clone());
        let device = device.filter(|_| !state.is_listed).ok_or(fixed)?;
        let outcome = change(&device);
        drop(state);
        let mut state = self.state.write();
        if !state.is_listed {
            state.set_len_bytes = device.len_bytes();
            self.len_bytes.store(device.len_bytes(), Ordering::Relaxed);
        }
        outcome
    }
}

impl<D> std::fmt::Debug for DeviceSet<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceSet").field("len_bytes", &self.len_bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_several_slices_is_theirs() {
        let slices = [IoSlice::new(b"abc"), IoSlice::new(b""), IoSlice::new(b"defg")];
        let taken = |part| -> Vec<u8> {
            parts_within(&slices, part).iter().flat_map(|slice| slice.to_vec()).collect()
        };
        assert_eq!(taken(0..7), b"abcdefg");
        assert_eq!(taken(2..5), b"cde");
        assert_eq!(taken(3..3), b"");
        assert_eq!(parts_within(&slices, 3..4).len(), 1);
    }
}
