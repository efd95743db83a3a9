//! For tests and fuzzers: random streams, what a fuzzer runs on bytes that mostly are none, and
//! frames with forged checksums.

pub mod sample;
pub mod target;

use crate::frame::{FRAME_HEADER_LEN_BYTES, FrameHeader, checksum_of};
use crate::header::{HEADER_FIXED_LEN_BYTES, Header};

/// Where the frames of a sound stream begin, and where it ends.
///
/// # Panics
/// When it is not sound.
#[must_use]
pub fn frames(stream: &[u8]) -> Vec<usize> {
    let fixed = stream.first_chunk::<HEADER_FIXED_LEN_BYTES>().expect("a header");
    let mut at = fixed.len() + Header::tail_len_bytes(fixed).expect("a sound header");
    let mut places = vec![at];
    while let Some(bytes) = stream[at..].first_chunk::<FRAME_HEADER_LEN_BYTES>() {
        let header = FrameHeader::decode(bytes).expect("a sound frame");
        at += bytes.len() + header.len_bytes;
        places.push(at);
    }
    places
}

/// Puts right what random damage would seldom get past: magic, version and checksums.
pub fn forge(stream: &mut [u8]) {
    let Some((fixed, rest)) = stream.split_first_chunk_mut::<HEADER_FIXED_LEN_BYTES>() else {
        return;
    };
    fixed[..8].copy_from_slice(b"DENDSTRM");
    fixed[12..14].copy_from_slice(&1_u16.to_le_bytes());
    let Ok(tail_len) = Header::tail_len_bytes(fixed) else { return };
    let Some((tail, mut rest)) = rest.split_at_mut_checked(tail_len) else { return };
    let mut crc32c = dendro_format::checksum_append(dendro_format::checksum(&fixed[12..]), tail);
    fixed[8..12].copy_from_slice(&crc32c.to_le_bytes());
    for number in 0_u64.. {
        let Some((bytes, after)) = rest.split_first_chunk_mut::<FRAME_HEADER_LEN_BYTES>() else {
            return;
        };
        bytes[16..].copy_from_slice(&number.to_le_bytes());
        let Ok(header) = FrameHeader::decode(bytes) else { return };
        let Some((payload, after)) = after.split_at_mut_checked(header.len_bytes) else { return };
        crc32c = checksum_of(crc32c, bytes, payload);
        bytes[..4].copy_from_slice(&crc32c.to_le_bytes());
        rest = after;
    }
}
