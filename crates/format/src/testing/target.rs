//! One function for each decoder: whatever bytes come, it returns, and what is read is read again
//! from its own encoding.
//!
//! Random damage seldom gets past a checksum, so each function also tries the bytes with their
//! magic, identity and checksum put right.

use dendro_base::Uuid;
use dendro_base::units::PAGE_SIZE;

use crate::checkpoint::CHECKPOINT_FIXED_LEN_BYTES;
use crate::chunk::MAX_FRAME_LEN_BYTES;
use crate::compression::Unpacker;
use crate::node::{self, MAX_NODE_LEN_BYTES, NODE_HEADER_LEN_BYTES};
use crate::record::Records;
use crate::superblock::SUPERBLOCK_LEN_BYTES;
use crate::usage::USAGE_LEN_BYTES;
use crate::{
    Checkpoint, CompressedPages, Entries, PageRef, PartialHeader, Superblock, Usage, Value,
    checksum,
};

/// A function that takes any bytes.
pub type Target = fn(&[u8]);

/// All of them, with their names.
pub const ALL: [(&str, Target); 7] = [
    ("superblock", superblock),
    ("partial", partial),
    ("records", records),
    ("node", node),
    ("checkpoint", checkpoint),
    ("usage", usage),
    ("block", block),
];

/// [`Superblock::decode`].
///
/// # Panics
/// When the decoder is wrong.
pub fn superblock(bytes: &[u8]) {
    check_superblock(bytes);
    let mut sealed = bytes.to_vec();
    sealed.resize(SUPERBLOCK_LEN_BYTES, 0);
    sealed[..8].copy_from_slice(b"dendrofs");
    sealed[12..14].copy_from_slice(&1_u16.to_le_bytes());
    sealed[66] = 1;
    seal(&mut sealed, 8, 12);
    check_superblock(&sealed);
}

fn check_superblock(bytes: &[u8]) {
    let Ok(read) = Superblock::decode(bytes) else { return };
    let once = Superblock::decode(read.encode().as_slot()).expect("it was encoded just now");
    // A label that is no UTF-8 is repaired, which may make it longer than there is room for.
    assert_eq!(Superblock { label: read.label.clone(), ..once.clone() }, read);
    assert_eq!(Superblock::decode(once.encode().as_slot()), Ok(once));
    let area = read.layout.superblock_offset(read.seq);
    assert!(area < 2 * read.layout.segment_size_bytes());
    let _ = read.layout.holds(read.checkpoint_addr, read.checkpoint_len_bytes.into());
}

/// [`Unpacker::unpack`], of every kind.
///
/// # Panics
/// When the decoder is wrong.
pub fn block(bytes: &[u8]) {
    let mut unpacker = Unpacker::new();
    let alone = |compression| PageRef { compression, ..PageRef::ZERO };
    let in_frame = |compression| alone(compression).of_frame(u32::from(bytes.len() > 100));
    for block in (0..4).flat_map(|compression| [alone(compression), in_frame(compression)]) {
        let most_bytes = if block.is_in_frame() { MAX_FRAME_LEN_BYTES } else { PAGE_SIZE };
        let stored = &bytes[..bytes.len().min(most_bytes)];
        let block = PageRef { len_bytes: stored.len() as u16, ..block };
        let mut page = [0xff; PAGE_SIZE];
        if unpacker.unpack(&block, stored, &mut page).is_ok() {
            let mut again = [0; PAGE_SIZE];
            unpacker.unpack(&block, stored, &mut again).expect("it was unpacked just now");
            assert!(page == again, "all of the page is filled");
        }
    }
}

/// [`PartialHeader::decode`], then its records.
///
/// # Panics
/// When the decoder is wrong.
pub fn partial(bytes: &[u8]) {
    check_partial(bytes);
    let mut sealed = bytes.to_vec();
    sealed.resize(bytes.len().max(4096).next_multiple_of(4096), 0);
    let len = sealed.len() as u32;
    sealed[..4].copy_from_slice(b"DLP1");
    sealed[8..10].copy_from_slice(&1_u16.to_le_bytes());
    sealed[10] %= 3;
    sealed[12..16].copy_from_slice(&len.to_le_bytes());
    check_partial(&sealed);
}

fn check_partial(bytes: &[u8]) {
    let Ok((header, _)) = PartialHeader::decode(bytes) else { return };
    let Some(found) = header.records_of(bytes) else { return };
    let _ = PartialHeader::verify(bytes, found);
    records(found);
    let mut again = bytes.to_vec();
    let crc32c = header.encode_into(&mut again);
    assert_eq!(PartialHeader::decode(&again), Ok((header, crc32c)));
    let found = header.records_of(&again).expect("they lay inside before");
    assert!(PartialHeader::verify(&again, found));
}

/// [`Records`].
///
/// # Panics
/// When the decoder is wrong.
pub fn records(bytes: &[u8]) {
    let mut encoded = Vec::new();
    for record in Records::new(bytes).flatten() {
        let start = encoded.len();
        record.encode(&mut encoded);
        assert_eq!(Records::new(&encoded[start..]).next(), Some(Ok(record)));
    }
}

/// [`node::decode`].
///
/// # Panics
/// When the decoder is wrong.
pub fn node(bytes: &[u8]) {
    check_node(bytes);
    let mut sealed = bytes.to_vec();
    sealed.resize(bytes.len().clamp(NODE_HEADER_LEN_BYTES, MAX_NODE_LEN_BYTES), 0);
    let len = sealed.len() as u32;
    sealed[..4].copy_from_slice(b"DND1");
    sealed[12..16].copy_from_slice(&len.to_le_bytes());
    for version in 1..=2_u16 {
        sealed[8..10].copy_from_slice(&version.to_le_bytes());
        seal(&mut sealed, 4, 8);
        check_node(&sealed);
    }
}

fn check_node(bytes: &[u8]) {
    let _ = node::peek_len_bytes(bytes);
    let uuid = uuid_at(bytes, 24);
    let Ok((info, entries)) = node::decode(bytes, &uuid) else { return };
    let (encoded, crc32c) = node::encode(&info, &entries);
    let is_of_today = encoded[8..10] == bytes[8..10];
    assert!(!is_of_today || encoded.len() <= bytes.len(), "the encoding is the shortest");
    assert_eq!(encoded[4..8], crc32c.to_le_bytes());
    if let Entries::Leaf(entries) = &entries {
        for (_, value) in entries {
            if let Value::Chunk(chunk) = value {
                let mut bytes = Vec::new();
                chunk.encode(&mut bytes);
                assert!(bytes.len() <= chunk.encoded_len_bound());
                assert_eq!(chunk.iter().count(), chunk.len());
            }
        }
    }
    assert_eq!(node::decode(&encoded, &uuid), Ok((info, entries)));
}

/// [`Checkpoint::decode`].
///
/// # Panics
/// When the decoder is wrong.
pub fn checkpoint(bytes: &[u8]) {
    check_checkpoint(bytes);
    let mut sealed = bytes.to_vec();
    let entry_len = 4 + USAGE_LEN_BYTES;
    let overrides = bytes.len().saturating_sub(CHECKPOINT_FIXED_LEN_BYTES) / entry_len;
    sealed.resize(CHECKPOINT_FIXED_LEN_BYTES + entry_len * overrides, 0);
    sealed[..4].copy_from_slice(b"DCP1");
    sealed[8..10].copy_from_slice(&1_u16.to_le_bytes());
    sealed[12..16].copy_from_slice(&(overrides as u32).to_le_bytes());
    seal(&mut sealed, 4, 8);
    check_checkpoint(&sealed);
}

fn check_checkpoint(bytes: &[u8]) {
    let uuid = uuid_at(bytes, 16);
    let Ok(read) = Checkpoint::decode(bytes, &uuid) else { return };
    assert_eq!(Checkpoint::decode(&read.encode(), &uuid), Ok(read));
}

/// [`Usage::decode`] and [`CompressedPages::decode`].
///
/// # Panics
/// When the decoder is wrong.
pub fn usage(bytes: &[u8]) {
    for bytes in [bytes, bytes.get(..USAGE_LEN_BYTES).unwrap_or_default()] {
        if let Ok(read) = Usage::decode(bytes) {
            assert_eq!(Usage::decode(&read.encode()), Ok(read));
        }
        let Ok(read) = CompressedPages::decode(bytes) else { continue };
        if let Some(written) = read.encode() {
            assert_eq!(CompressedPages::decode(&written), Ok(read));
        }
    }
}

/// Puts the checksum of the bytes from `from` on at `at`.
fn seal(bytes: &mut [u8], at: usize, from: usize) {
    let crc32c = checksum(&bytes[from..]);
    bytes[at..at + 4].copy_from_slice(&crc32c.to_le_bytes());
}

fn uuid_at(bytes: &[u8], at: usize) -> Uuid {
    let mut uuid = Uuid::default();
    if let Some(found) = bytes.get(at..at + 16) {
        uuid.0.copy_from_slice(found);
    }
    uuid
}
