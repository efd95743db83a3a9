//! What clients send before data, decoded. All of it is hostile: each function answers for any
//! bytes.

use zerocopy::FromBytes;
use zerocopy::big_endian::{U16, U32};

use crate::wire::MAX_NAME_LEN_BYTES;

/// What is wrong with the data of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("the option's data have another length")]
    Length,
    #[error("a name is not UTF-8")]
    NotUtf8,
    #[error("a name is longer than {MAX_NAME_LEN_BYTES} bytes")]
    TooLong,
}

type Result<T> = std::result::Result<T, Malformed>;

/// What follows in the data of an option.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len_bytes: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len_bytes).ok_or(Malformed::Length)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(U32::read_from_bytes(self.take(4)?).map_err(|_| Malformed::Length)?.get())
    }

    fn u16(&mut self) -> Result<u16> {
        Ok(U16::read_from_bytes(self.take(2)?).map_err(|_| Malformed::Length)?.get())
    }

    /// A string, whose length comes first.
    fn string(&mut self) -> Result<&'a str> {
        let len_bytes = self.u32()? as usize;
        text(self.take(len_bytes)?)
    }

    fn end(&self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Length) }
    }
}

fn text(bytes: &[u8]) -> Result<&str> {
    if bytes.len() > MAX_NAME_LEN_BYTES {
        return Err(Malformed::TooLong);
    }
    std::str::from_utf8(bytes).map_err(|_| Malformed::NotUtf8)
}

/// The data of `EXPORT_NAME`.
pub(crate) fn export_name(data: &[u8]) -> Result<&str> {
    text(data)
}

/// The data of `INFO` and `GO`: the name of an export, and what is to be told of it.
pub(crate) fn info(data: &[u8]) -> Result<(&str, Vec<u16>)> {
    let mut rest = Rest(data);
    let name = rest.string()?;
    let count = rest.u16()?;
    let wanted = (0..count).map(|_| rest.u16()).collect::<Result<_>>()?;
    rest.end()?;
    Ok((name, wanted))
}

/// The data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`: the name of an export, and queries.
pub(crate) fn contexts(data: &[u8]) -> Result<(&str, Vec<&str>)> {
    let mut rest = Rest(data);
    let name = rest.string()?;
    let count = rest.u32()?;
    let mut queries = Vec::new();
    for _ in 0..count {
        // Each takes at least four bytes, so that the data bound how many there are.
        queries.push(rest.string()?);
    }
    rest.end()?;
    Ok((name, queries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_what_is_wanted_of_it_are_found() {
        let data = b"\0\0\0\x02ab\0\x02\0\x03\0\x01";
        assert_eq!(info(data), Ok(("ab", vec![3, 1])));
        for len in 0..data.len() {
            assert_eq!(info(&data[..len]), Err(Malformed::Length), "{len}");
        }
        assert_eq!(info(b"\0\0\0\x02ab\0\0x"), Err(Malformed::Length));
        assert_eq!(info(b"\0\0\0\x01\xff\0\0"), Err(Malformed::NotUtf8));
        assert_eq!(info(b"\xff\xff\xff\xffab\0\0"), Err(Malformed::Length));
    }

    #[test]
    fn queries_are_found_and_a_false_count_takes_no_memory() {
        let data = b"\0\0\0\x01x\0\0\0\x01\0\0\0\x05base:";
        assert_eq!(contexts(data), Ok(("x", vec!["base:"])));
        assert_eq!(contexts(b"\0\0\0\x01x\xff\xff\xff\xff\0\0\0\0"), Err(Malformed::Length));
    }

    #[test]
    fn a_name_has_a_longest_length() {
        assert!(export_name(&[b'x'; MAX_NAME_LEN_BYTES]).is_ok());
        assert_eq!(export_name(&[b'x'; MAX_NAME_LEN_BYTES + 1]), Err(Malformed::TooLong));
    }
}
