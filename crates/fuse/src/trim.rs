//! The ioctl of fstrim(8), `FITRIM`.

use std::ops::Range;

use dendro_fuse_transport::{Errno, Result};
use zerocopy::{FromBytes, IntoBytes};

/// The command of linux/fs.h.
pub(crate) const FITRIM: u32 = 0xc018_5879;

/// The fields of a `struct fstrim_range`: start, length and least length of what is given back, in
/// bytes. The last is not used: only whole segments are given back.
const FIELD_COUNT: usize = 3;
const LEN_FIELD: usize = 1;

fn fields(input: &[u8]) -> Result<[u64; FIELD_COUNT]> {
    <[u64; FIELD_COUNT]>::read_from_bytes(input).map_err(|_| Errno::INVAL)
}

/// The range that is to be given back.
pub(crate) fn range(input: &[u8]) -> Result<Range<u64>> {
    let [start, len_bytes, _] = fields(input)?;
    Ok(start..start.saturating_add(len_bytes))
}

/// Writes to `out` what was asked with `input`, with the number of bytes that were given back.
pub(crate) fn encode(input: &[u8], trimmed_bytes: u64, out: &mut [u8]) -> Result<()> {
    let mut fields = fields(input)?;
    fields[LEN_FIELD] = trimmed_bytes;
    let bytes = fields.as_bytes();
    out.get_mut(..bytes.len()).ok_or(Errno::INVAL)?.copy_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_has_the_bytes_in_the_place_of_the_length() {
        let input = [4096_u64, u64::MAX, 7].as_bytes().to_vec();
        assert_eq!(range(&input), Ok(4096..u64::MAX));
        let mut out = [0; 24];
        encode(&input, 1 << 20, &mut out).unwrap();
        assert_eq!(out, *[4096_u64, 1 << 20, 7].as_bytes());
        assert_eq!(range(&input[..23]), Err(Errno::INVAL));
        assert_eq!(encode(&input, 0, &mut out[..23]), Err(Errno::INVAL));
    }
}
