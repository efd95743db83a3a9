//! Skips: whether a chunk's skip passes only over entries that it may pass over.

use dendro_format::chunk::Skip;
use dendro_format::{Chunk, Key};

/// The entries of one branch for one chunk that were seen so far, oldest first.
#[derive(Default)]
pub(super) struct Skips {
    /// The list, the chunk and the branch.
    of: Option<(u64, u64, u32)>,
    /// For each entry, its epoch and the slots that it decides.
    decided: Vec<(u64, u32)>,
}

impl Skips {
    /// Takes the next chunk in the order of keys. Returns what is wrong with its skip, if anything.
    pub(super) fn visit(&mut self, key: &Key, chunk: &Chunk) -> Option<String> {
        let of = Some((key.list, key.index, key.branch));
        if self.of != of {
            self.of = of;
            self.decided.clear();
        }
        let problem = chunk.skip().and_then(|skip| self.problem(key, skip));
        self.decided.push((key.epoch, chunk.said()));
        problem
    }

    fn problem(&self, key: &Key, Skip { epoch, said, .. }: Skip) -> Option<String> {
        if epoch >= key.epoch {
            return Some(format!("{key}: to epoch {epoch}, which is not older"));
        }
        let mut passed = self.decided.iter().rev().take_while(|(at, _)| *at > epoch);
        passed
            .find(|(_, decides)| decides & !said != 0)
            .map(|(at, _)| format!("{key}: to epoch {epoch}, past pages of epoch {at}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendro_format::{PageRef, Space};

    fn key(epoch: u64) -> Key {
        Key { list: 9, space: Space::Chunks, index: 3, branch: 2, epoch }
    }

    fn chunk(slot: usize, skip: Option<(u64, u32)>) -> Chunk {
        let mut slots = [None; 32];
        slots[slot] = Some(PageRef::ZERO);
        let skip = skip.map(|(epoch, said)| Skip { depth: 5, epoch, len: 2, said });
        Chunk::from_slots(&slots).with_skip(skip)
    }

    #[test]
    fn a_skip_past_pages_that_it_does_not_name_is_reported() {
        for (epoch, said, is_wrong) in
            [(4, 0b10, false), (4, 0b11, false), (4, 0, true), (5, 0, false), (7, 0b10, true)]
        {
            let mut skips = Skips::default();
            assert_eq!(skips.visit(&key(4), &chunk(0, None)), None);
            assert_eq!(skips.visit(&key(5), &chunk(1, Some((4, 0)))), None);
            let problem = skips.visit(&key(7), &chunk(2, Some((epoch, said))));
            assert_eq!(problem.is_some(), is_wrong, "{problem:?}");
        }
    }

    #[test]
    fn entries_of_other_branches_are_of_no_concern() {
        let mut skips = Skips::default();
        assert_eq!(skips.visit(&Key { branch: 1, ..key(5) }, &chunk(1, None)), None);
        assert_eq!(skips.visit(&key(7), &chunk(2, Some((4, 0)))), None);
    }
}
