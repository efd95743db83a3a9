//! For tests and fuzzers: random structures that are valid, and what a fuzzer runs on bytes that
//! mostly are not.
//!
//! - [`sample`]: random valid structures, each from its seed.
//! - [`target`]: one function for each decoder, shared by `fuzz/` and by the tests, which must
//!   return on every input.
//! - [`mutate`]: damage to valid bytes.
//! - [`dump`]: bytes as text, for golden dumps.
//! - [`tables`]: byte tables in documents, compared with the structures.

pub mod sample;
pub mod tables;
pub mod target;

use std::fmt::Write as _;

use dendro_base::Rng;

/// Bytes as `hexdump -C` prints them, without the characters.
#[must_use]
pub fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut last: &[u8] = &[];
    let mut starred = false;
    for (index, line) in bytes.chunks(16).enumerate() {
        if line == last {
            if !std::mem::replace(&mut starred, true) {
                text.push_str("*\n");
            }
            continue;
        }
        (last, starred) = (line, false);
        write!(text, "{:08x} ", index * 16).expect("a string grows");
        for byte in line {
            write!(text, " {byte:02x}").expect("a string grows");
        }
        text.push('\n');
    }
    writeln!(text, "{:08x}", bytes.len()).expect("a string grows");
    text
}

/// Damages `bytes` as bad media, torn writes and adversaries do: flips bits, sets bytes and
/// numbers to borderline values, copies ranges over others, cuts off, and appends.
pub fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=rng.below(4) {
        if bytes.is_empty() {
            bytes.push(rng.next_u64() as u8);
            continue;
        }
        let len = bytes.len() as u64;
        let at = rng.below(len) as usize;
        match rng.below(8) {
            0 | 1 => bytes[at] ^= 1 << rng.below(8),
            2 => bytes[at] = rng.next_u64() as u8,
            3 | 4 => put_borderline(rng, &mut bytes[at..]),
            5 => {
                let from = rng.below(len) as usize;
                let count = rng.below(32.min(len - from.max(at) as u64) + 1) as usize;
                bytes.copy_within(from..from + count, at);
            }
            6 => bytes.truncate(at),
            _ => {
                let mut tail = vec![0; rng.below(40) as usize];
                rng.fill(&mut tail);
                bytes.extend_from_slice(&tail);
            }
        }
    }
}

/// Overwrites the front with a number on which arithmetic is likely to go wrong.
fn put_borderline(rng: &mut Rng, bytes: &mut [u8]) {
    let value = match rng.below(6) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << rng.below(64),
        3 => (1 << rng.below(64)) - 1,
        4 => u64::MAX - rng.below(4096),
        _ => rng.below(256),
    };
    let len = bytes.len().min(1 << rng.below(4));
    bytes[..len].copy_from_slice(&value.to_le_bytes()[..len]);
}
