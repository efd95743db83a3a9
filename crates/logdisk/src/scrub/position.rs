//! The position of a pass as bytes, which a client records to continue after a restart.

use dendro_format::{Key, Space};

use super::{Scrub, ScrubProgress};
use crate::walk::WalkPoint;

const VERSION: u8 = 1;
const HAS_READ_ROOTS: u8 = 1 << 0;
const HAS_END: u8 = 1 << 1;

impl Scrub {
    /// Where the pass is, for [`Self::resume`]. It takes less than 128 bytes.
    #[must_use]
    pub fn position(&self) -> Vec<u8> {
        let mut flags = 0;
        if self.has_read_roots {
            flags |= HAS_READ_ROOTS;
        }
        if self.upto.is_some() {
            flags |= HAS_END;
        }
        let mut out = vec![VERSION, flags];
        put_point(&mut out, self.from);
        put_point(&mut out, self.upto.unwrap_or(self.from));
        let ScrubProgress { checked_bytes, checked_count, found_count } = self.progress;
        for number in [self.read_upto_bytes, checked_bytes, checked_count, found_count] {
            out.extend(number.to_le_bytes());
        }
        out
    }

    /// The pass that was at `position`; `None` if that is no position.
    #[must_use]
    pub fn resume(position: &[u8]) -> Option<Self> {
        let mut reader = Reader(position);
        let [version, flags] = reader.take()?;
        let (from, upto) = (reader.point()?, reader.point()?);
        let read_upto_bytes = reader.number()?;
        let progress = ScrubProgress {
            checked_bytes: reader.number()?,
            checked_count: reader.number()?,
            found_count: reader.number()?,
        };
        if version != VERSION || !reader.0.is_empty() || from > upto {
            return None;
        }
        Some(Self {
            has_read_roots: flags & HAS_READ_ROOTS != 0,
            from,
            upto: (flags & HAS_END != 0).then_some(upto),
            read_upto_bytes,
            progress,
            ..Self::default()
        })
    }
}

fn put_point(out: &mut Vec<u8>, point: WalkPoint) {
    let (tag, Key { list, space, index, branch, epoch }) = match point {
        WalkPoint::Entries(key) => (0, key),
        WalkPoint::Nodes(key) => (1, key),
    };
    out.extend([tag, space as u8]);
    for number in [list, index, epoch] {
        out.extend(number.to_le_bytes());
    }
    out.extend(branch.to_le_bytes());
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn point(&mut self) -> Option<WalkPoint> {
        let [tag, space] = self.take()?;
        let (list, index, epoch) = (self.number()?, self.number()?, self.number()?);
        let branch = self.take().map(u32::from_le_bytes)?;
        let key = Key { list, space: Space::from_number(space)?, index, branch, epoch };
        match tag {
            0 => Some(WalkPoint::Entries(key)),
            1 => Some(WalkPoint::Nodes(key)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_back_and_no_bytes_panic() {
        let key = Key { list: 7, space: Space::Chunks, index: 9, branch: 2, epoch: 3 };
        let scrub = Scrub {
            has_read_roots: true,
            from: WalkPoint::Entries(key),
            upto: Some(WalkPoint::Nodes(key)),
            read_upto_bytes: 4096,
            progress: ScrubProgress { checked_bytes: 5, checked_count: 2, found_count: 1 },
            ..Scrub::default()
        };
        let position = scrub.position();
        assert!(position.len() < 128);
        let again = Scrub::resume(&position).expect("it is a position");
        assert_eq!(again.position(), position);
        assert_eq!((again.from, again.upto), (scrub.from, scrub.upto));
        assert_eq!(again.progress(), scrub.progress());
        for len in 0..position.len() {
            assert!(Scrub::resume(&position[..len]).is_none());
        }
        for at in 0..position.len() {
            let mut wrong = position.clone();
            wrong[at] ^= 0xff;
            let _ = Scrub::resume(&wrong);
        }
        let started = Scrub::resume(&Scrub::new().position()).expect("it is a position");
        assert_eq!(started.upto, None);
    }
}
