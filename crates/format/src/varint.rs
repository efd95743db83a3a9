//! LEB128: seven bits a byte, lowest first, the top bit set on all but the last.

use crate::{Malformed, Result};

/// Appends `value`: 1 to 10 bytes.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes that [`put`] appends.
pub(crate) const fn len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Takes numbers and bytes off the front of a slice.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    structure: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8], structure: &'static str) -> Self {
        Self { bytes, structure }
    }

    pub(crate) const fn malformed(&self, problem: &'static str) -> Malformed {
        Malformed::new(self.structure, problem)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (head, rest) =
            self.bytes.split_at_checked(len).ok_or(self.malformed("ends too early"))?;
        self.bytes = rest;
        Ok(head)
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn u32_le(&mut self) -> Result<u32> {
        let mut word = [0; 4];
        word.copy_from_slice(self.take(4)?);
        Ok(u32::from_le_bytes(word))
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64> {
        // Most numbers are small.
        if let Some((&byte, rest)) = self.bytes.split_first()
            && byte < 0x80
        {
            self.bytes = rest;
            return Ok(byte.into());
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.malformed("a number is longer than 64 bits"))
    }

    /// A varint that fits `T`.
    pub(crate) fn number<T: TryFrom<u64>>(&mut self) -> Result<T> {
        T::try_from(self.varint()?).map_err(|_| self.malformed("a number is out of range"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_read_back() {
        for value in (0..64).flat_map(|bit| [1_u64 << bit, (1 << bit) - 1]).chain([u64::MAX]) {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            assert_eq!(bytes.len(), len(value));
            let mut reader = Reader::new(&bytes, "test");
            assert_eq!(reader.varint(), Ok(value));
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn a_number_without_an_end_is_malformed() {
        assert!(Reader::new(&[0x80; 20], "test").varint().is_err());
        assert!(Reader::new(&[0x80; 2], "test").varint().is_err());
        let too_big = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert!(Reader::new(&too_big, "test").varint().is_err());
    }
}
