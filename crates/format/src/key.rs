//! Keys of the map.

use std::fmt;

/// What a key's index counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Space {
    /// The list itself; its index is 0.
    List = 0,
    /// Records.
    Records = 1,
    /// Chunks of 32 pages.
    Chunks = 2,
}

impl Space {
    /// The space with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::List),
            1 => Some(Self::Records),
            2 => Some(Self::Chunks),
            _ => None,
        }
    }
}

/// A key of the map. Keys are in the order of their fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The list.
    pub list: u64,
    /// What `index` counts.
    pub space: Space,
    /// Which record or chunk.
    pub index: u64,
    /// The branch in which it was written.
    pub branch: u32,
    /// The epoch in which it was written.
    pub epoch: u64,
}

impl Key {
    /// The lowest key of all.
    pub const MIN: Self = Self { list: 0, space: Space::List, index: 0, branch: 0, epoch: 0 };

    /// The lowest key of a list's space from `index` on.
    #[must_use]
    pub const fn first(list: u64, space: Space, index: u64) -> Self {
        Self { list, space, index, branch: 0, epoch: 0 }
    }

    /// As `self < other`, but faster in searches, where most keys differ in their list.
    #[must_use]
    #[inline]
    pub const fn is_before(&self, other: &Self) -> bool {
        if self.list != other.list {
            return self.list < other.list;
        }
        if self.space as u8 != other.space as u8 {
            return (self.space as u8) < other.space as u8;
        }
        if self.index != other.index {
            return self.index < other.index;
        }
        if self.branch != other.branch {
            return self.branch < other.branch;
        }
        self.epoch < other.epoch
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = match self.space {
            Space::List => "list",
            Space::Records => "record",
            Space::Chunks => "chunk",
        };
        write!(f, "{}/{space}/{}@{}:{}", self.list, self.index, self.branch, self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_before_another_exactly_when_it_is_less() {
        let few = [0, 1, u64::MAX];
        let mut keys = Vec::new();
        for (list, index, epoch) in
            few.iter().flat_map(|a| few.iter().flat_map(move |b| few.map(|c| (*a, *b, c))))
        {
            for space in [Space::List, Space::Records, Space::Chunks] {
                keys.extend([0, 7].map(|branch| Key { list, space, index, branch, epoch }));
            }
        }
        for a in &keys {
            for b in &keys {
                assert_eq!(a.is_before(b), a < b, "{a} and {b}");
            }
        }
    }
}
