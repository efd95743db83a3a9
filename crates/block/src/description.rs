//! Record 0 of a block device.

use dendro_base::units::PAGE_SIZE;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, MAX_SIZE_BYTES, Result};

/// The index of the description.
pub(crate) const DESCRIPTION_INDEX: u64 = 0;
/// The first bytes of the description.
const MAGIC: [u8; 8] = *b"dendroBD";
/// Its version.
const VERSION: u32 = 1;

/// The description of a block device, version 1.
///
/// | offset | size | field | meaning |
/// |-------:|-----:|-------|---------|
/// | 0 | 8 | `magic` | `dendroBD` |
/// | 8 | 4 | `version` | 1 |
/// | 12 | 4 | `reserved` | zero |
/// | 16 | 8 | `size_bytes` | the size of the device, a multiple of 4,096 |
/// | 24 | 8 | `reserved2` | zero |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DescriptionV1 {
    magic: [u8; 8],
    version: U32,
    reserved: U32,
    size_bytes: U64,
    reserved2: U64,
}

const _: () = assert!(size_of::<DescriptionV1>() == 32);

/// Whether a device can have this size.
///
/// # Errors
/// [`Error::BadSize`].
pub fn check_size(size_bytes: u64) -> Result<()> {
    let is_good = size_bytes > 0
        && size_bytes <= MAX_SIZE_BYTES
        && size_bytes.is_multiple_of(PAGE_SIZE as u64);
    if is_good { Ok(()) } else { Err(Error::BadSize(size_bytes)) }
}

/// The description of a device of `size_bytes`.
pub(crate) fn encode(size_bytes: u64) -> Vec<u8> {
    let description = DescriptionV1 {
        magic: MAGIC,
        version: U32::new(VERSION),
        reserved: U32::ZERO,
        size_bytes: U64::new(size_bytes),
        reserved2: U64::ZERO,
    };
    description.as_bytes().to_vec()
}

/// The size that a description states; `None` if `record` is none.
///
/// # Errors
/// [`Error::LaterVersion`], [`Error::DamagedSize`].
pub(crate) fn decode(record: &[u8]) -> Result<Option<u64>> {
    let Ok((description, _)) = DescriptionV1::ref_from_prefix(record) else { return Ok(None) };
    if description.magic != MAGIC {
        return Ok(None);
    }
    if description.version.get() != VERSION {
        return Err(Error::LaterVersion(description.version.get()));
    }
    let size_bytes = description.size_bytes.get();
    check_size(size_bytes).map_err(|_| Error::DamagedSize(size_bytes))?;
    Ok(Some(size_bytes))
}

#[cfg(test)]
mod tests {
    use dendro_format::testing::dump;

    use super::*;

    #[test]
    fn a_description_has_the_bytes_that_it_always_had() {
        let bytes = encode(0x0102_0304_0506_7000);
        assert_eq!(dump(&bytes), include_str!("../tests/golden/description_v1.hex"));
        assert_eq!(decode(&bytes), Ok(Some(0x0102_0304_0506_7000)));
    }

    #[test]
    fn other_records_are_no_descriptions_and_false_ones_are_errors() {
        assert_eq!(decode(b""), Ok(None));
        assert_eq!(decode(&[1; 200]), Ok(None));
        assert_eq!(decode(&encode(4096)[..31]), Ok(None));
        let mut later = encode(4096);
        later[8] = 2;
        assert_eq!(decode(&later), Err(Error::LaterVersion(2)));
        for size_bytes in [0, 4097, MAX_SIZE_BYTES + 4096] {
            assert_eq!(decode(&encode(size_bytes)), Err(Error::DamagedSize(size_bytes)));
        }
    }
}
