//! The hints of a list, as records of the log and entries of the map hold them.

/// What a client has said about a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// The bits by which the client's interface encodes all but the neighbour. Bit 15 is always
    /// clear: in the map it says that a neighbour follows.
    pub bits: u16,
    /// The number of the list that this one is near; 0 if it is near none.
    pub near: u64,
}

impl Hints {
    /// The bit that the map sets in `bits` if a neighbour follows them.
    pub(crate) const NEAR_FOLLOWS: u16 = 1 << 15;

    /// These bits, without a neighbour.
    #[must_use]
    pub const fn of_bits(bits: u16) -> Self {
        Self { bits: bits & !Self::NEAR_FOLLOWS, near: 0 }
    }

    /// The most bytes that they take in the map.
    #[must_use]
    pub const fn len_bytes_bound(self) -> usize {
        if self.near == 0 { 2 } else { 12 }
    }
}
