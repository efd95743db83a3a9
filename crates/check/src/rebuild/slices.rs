//! The gaps in slices, so that memory is bounded: a slice has leaves of [`Memory::slice_bytes`],
//! and what the log since has changed in it. Small gaps share a slice, so that few slices go
//! through the log.

use dendro_format::Key;

use super::claims::Claim;
use super::gaps::{Gap, Gaps};
use super::memory::Memory;

/// Gaps, or parts of gaps, with the leaves that fill them.
#[derive(Debug)]
pub(super) struct Slice<'a> {
    /// In the order of their keys.
    gaps: Vec<Gap>,
    /// In the order of their keys, each within a gap.
    pub(super) claims: &'a [Claim],
}

impl<'a> Slice<'a> {
    pub(super) fn gaps(&self) -> Gaps<'_> {
        Gaps(&self.gaps)
    }

    /// The leaf that fills a key.
    pub(super) fn claim_of(&self, key: &Key) -> Option<&'a Claim> {
        let at = self.claims.partition_point(|claim| claim.from <= *key).checked_sub(1)?;
        Some(&self.claims[at]).filter(|claim| *key < claim.to)
    }

    /// The parts that it consists of, in their order, each with the leaf that fills it.
    pub(super) fn parts(&self) -> Vec<(Gap, Option<&'a Claim>)> {
        let mut parts = Vec::with_capacity(self.claims.len());
        let mut claims = self.claims.iter().peekable();
        for gap in &self.gaps {
            let mut next = gap.from;
            while let Some(claim) = claims.next_if(|claim| claim.from < gap.to) {
                if claim.from > next {
                    parts.push((Gap { from: next, to: claim.from }, None));
                }
                parts.push((Gap { from: claim.from, to: claim.to }, Some(claim)));
                next = claim.to;
            }
            if next < gap.to {
                parts.push((Gap { from: next, to: gap.to }, None));
            }
        }
        parts
    }
}

/// Cuts the gaps into slices, or takes several together. The claims are in the order of their keys.
pub(super) fn slices<'a>(gaps: &[Gap], claims: &'a [Claim], memory: Memory) -> Vec<Slice<'a>> {
    let mut slices = Vec::new();
    let mut open = Vec::new();
    let (mut first, mut at, mut bytes) = (0, 0, 0);
    for gap in gaps {
        let mut from = gap.from;
        while let Some(claim) = claims.get(at).filter(|claim| claim.from < gap.to) {
            bytes += u64::from(claim.leaf.len_bytes);
            if bytes > memory.slice_bytes() && at > first {
                if from < claim.from {
                    open.push(Gap { from, to: claim.from });
                }
                slices.push(Slice { gaps: std::mem::take(&mut open), claims: &claims[first..at] });
                (first, from, bytes) = (at, claim.from, claim.leaf.len_bytes.into());
            }
            at += 1;
        }
        open.push(Gap { from, to: gap.to });
    }
    if !open.is_empty() {
        slices.push(Slice { gaps: open, claims: &claims[first..at] });
    }
    slices
}

#[cfg(test)]
mod tests {
    use dendro_format::{Addr, NodePtr, Space};

    use super::*;

    fn key(index: u64) -> Key {
        Key::first(7, Space::Records, index)
    }

    fn gap(from: u64, to: u64) -> Gap {
        Gap { from: key(from), to: key(to) }
    }

    fn claim(from: u64, to: u64, len_bytes: u32) -> Claim {
        let leaf = NodePtr { addr: Addr(0), len_bytes, crc32c: 0 };
        Claim { from: key(from), to: key(to), leaf, checkpoint_seq: from, log_seq: 1 }
    }

    /// The parts of all slices: from, to, and the checkpoint of the leaf.
    fn parts(gaps: &[Gap], claims: &[Claim], memory: Memory) -> Vec<Vec<(u64, u64, Option<u64>)>> {
        let part = |(gap, claim): (Gap, Option<&Claim>)| {
            (gap.from.index, gap.to.index, claim.map(|of| of.checkpoint_seq))
        };
        let slices = slices(gaps, claims, memory);
        slices.iter().map(|slice| slice.parts().into_iter().map(part).collect()).collect()
    }

    #[test]
    fn small_gaps_share_a_slice_and_large_ones_are_cut() {
        let gaps = [gap(0, 10), gap(20, 30), gap(40, 50)];
        let claims = [claim(2, 4, 40), claim(4, 6, 40), claim(20, 25, 40), claim(45, 50, 40)];
        let all = [
            (0, 2, None),
            (2, 4, Some(2)),
            (4, 6, Some(4)),
            (6, 10, None),
            (20, 25, Some(20)),
            (25, 30, None),
            (40, 45, None),
            (45, 50, Some(45)),
        ];
        assert_eq!(parts(&gaps, &claims, Memory(16 * 160)), [all.to_vec()]);
        assert_eq!(
            parts(&gaps, &claims, Memory(16 * 100)),
            [all[..4].to_vec(), all[4..].to_vec()],
            "two leaves fit in a slice"
        );
        assert_eq!(
            parts(&gaps, &claims, Memory(16 * 50)),
            [&all[..2], &all[2..4], &all[4..7], &all[7..]].map(<[_]>::to_vec),
            "a leaf fits in a slice"
        );
        assert_eq!(parts(&gaps, &[], Memory(0)), [[(0, 10, None), (20, 30, None), (40, 50, None)]]);
    }

    #[test]
    fn a_key_is_filled_by_the_leaf_in_whose_range_it_lies() {
        let (gaps, claims) = ([gap(0, 10)], [claim(2, 4, 1), claim(6, 8, 1)]);
        let slices = slices(&gaps, &claims, Memory(1 << 10));
        let found = (0..10).map(|at| slices[0].claim_of(&key(at)).map(|of| of.checkpoint_seq));
        let expected = [None, None, Some(2), Some(2), None, None, Some(6), Some(6), None, None];
        assert!(found.eq(expected));
    }
}
