//! Tokens: how far a version was received.

use std::fmt;
use std::str::FromStr;

use dendro_base::{Origin, Uuid};
use dendro_format::checksum;

use crate::header::Position;

/// What a token begins with: the version of its form.
const PREFIX: &str = "d1";
/// Two origins, a list, a part of it and an index, then a checksum.
const LEN_BYTES: usize = 24 + 24 + 8 + 1 + 8 + 4;

/// How far a version was received: where its stream is to be gone on with. As text it is what
/// `dendro receive` says and `dendro send --resume` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The version.
    pub version: Origin,
    /// The version that its stream is based on.
    pub base: Option<Origin>,
    /// Everything before this was received.
    pub position: Position,
}

/// A text that is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no token that `dendro receive` has said: a part of it is missing, or was altered")]
pub struct NoToken;

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(LEN_BYTES);
        let none = Origin { volume: Uuid([0; 16]), epoch: 0 };
        for origin in [self.version, self.base.unwrap_or(none)] {
            bytes.extend_from_slice(&origin.volume.0);
            bytes.extend_from_slice(&origin.epoch.to_le_bytes());
        }
        bytes.extend_from_slice(&self.position.list.to_le_bytes());
        bytes.push(self.position.is_in_pages.into());
        bytes.extend_from_slice(&self.position.index.to_le_bytes());
        bytes.extend_from_slice(&checksum(&bytes).to_le_bytes());
        f.write_str(PREFIX)?;
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Token {
    type Err = NoToken;

    fn from_str(text: &str) -> Result<Self, NoToken> {
        let digits = text.trim().strip_prefix(PREFIX).ok_or(NoToken)?.as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let byte = |pair: &[u8; 2]| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
        let (pairs, rest) = digits.as_chunks::<2>();
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        let bytes = bytes.filter(|_| rest.is_empty()).ok_or(NoToken)?;
        let bytes: [u8; LEN_BYTES] = bytes.try_into().map_err(|_| NoToken)?;
        let (bytes, sum) = bytes.split_last_chunk::<4>().ok_or(NoToken)?;
        if checksum(bytes).to_le_bytes() != *sum {
            return Err(NoToken);
        }
        let number = |at: usize| {
            let number = bytes[at..].first_chunk::<8>();
            u64::from_le_bytes(*number.expect("the length was checked"))
        };
        let origin = |at: usize| {
            let volume = bytes[at..].first_chunk::<16>();
            let volume = Uuid(*volume.expect("the length was checked"));
            Origin { volume, epoch: number(at + 16) }
        };
        let position =
            Position { list: number(48), is_in_pages: bytes[56] == 1, index: number(57) };
        let (version, base) = (origin(0), origin(24));
        if version.epoch == 0 || bytes[56] > 1 || !position.is_valid() {
            return Err(NoToken);
        }
        Ok(Self { version, base: (base.epoch > 0).then_some(base), position })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_back_and_no_other_text_is_one() {
        let origin = |byte, epoch| Origin { volume: Uuid([byte; 16]), epoch };
        for base in [None, Some(origin(9, u64::MAX >> 1))] {
            let position = Position { list: 77, is_in_pages: base.is_some(), index: 1 << 40 };
            let token = Token { version: origin(1, 3), base, position };
            let text = token.to_string();
            // It is noted in the name of a branch.
            assert!(text.len() <= 200, "{}", text.len());
            assert_eq!(text.parse(), Ok(token));
            for at in 0..text.len() {
                assert_eq!(text[..at].parse::<Token>(), Err(NoToken));
                let other = if &text[at..=at] == "0" { "1" } else { "0" };
                let altered = [&text[..at], other, &text[at + 1..]].concat();
                assert_eq!(altered.parse::<Token>(), Err(NoToken), "{altered}");
            }
        }
        for text in ["", "d1", "d1zz", "ä", "d1ää"] {
            assert_eq!(text.parse::<Token>(), Err(NoToken));
        }
    }
}
