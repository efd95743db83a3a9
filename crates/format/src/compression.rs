//! How pages are compressed: each alone, or several that lie side by side together, as a frame.
//! Reading one takes one block either way.
//!
//! | kind | bytes of the block |
//! |-----:|--------------------|
//! | 0 | the page as it is |
//! | 1 | an LZ4 block, without a frame |
//! | 2 | a frame of Zstandard |
//!
//! A page is what a block decompresses to, at most 4096 bytes, and zeros behind that. A frame
//! decompresses to whole pages, at most 32, and has at most 8192 bytes.

use std::fmt;
use std::io;
use std::str::FromStr;

use dendro_base::units::{GRAIN_SIZE, PAGE_SIZE, align_up_usize};
use lz4_flex::block;
use zstd::bulk::{Compressor, Decompressor};

use crate::chunk::{CHUNK_PAGES, MAX_FRAME_LEN_BYTES, PageRef};
use crate::{Malformed, Result};

const KIND_LZ4: u8 = 1;
const KIND_ZSTD: u8 = 2;

/// The level of Zstandard that is used where none is stated.
pub const DEFAULT_ZSTD_LEVEL: u8 = 3;
/// The highest level. Higher ones gain nothing on single pages.
const MAX_ZSTD_LEVEL: u8 = 15;

/// A page is stored compressed if at least one part in so many of its grains is saved.
const LEAST_SAVED_PART: usize = 8;

/// A way of compressing pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// LZ4, which is fast.
    Lz4,
    /// Zstandard, which gains more.
    Zstd {
        /// 1 to 15: higher levels take more time.
        level: u8,
    },
}

impl Compression {
    /// Zstandard with the level that is used where none is stated.
    pub const ZSTD: Self = Self::Zstd { level: DEFAULT_ZSTD_LEVEL };

    /// The kind that blocks state.
    #[must_use]
    pub const fn kind(self) -> u8 {
        match self {
            Self::Lz4 => KIND_LZ4,
            Self::Zstd { .. } => KIND_ZSTD,
        }
    }

    /// The byte by which superblocks name the compression of new pages: the kind in the low four
    /// bits, the level above; 0: none.
    #[must_use]
    pub const fn byte(of: Option<Self>) -> u8 {
        match of {
            None => 0,
            Some(Self::Lz4) => KIND_LZ4,
            Some(Self::Zstd { level }) => KIND_ZSTD | level << 4,
        }
    }

    /// The compression that a superblock's byte names. A byte without a meaning names none: it
    /// says how new pages are stored, so that old ones can be read all the same.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match (byte & 15, byte >> 4) {
            (KIND_LZ4, _) => Some(Self::Lz4),
            (KIND_ZSTD, 0) => Some(Self::ZSTD),
            (KIND_ZSTD, level) => Some(Self::Zstd { level }),
            _ => None,
        }
    }

    /// What users write for a compression, or for none: `none`, `lz4`, `zstd` or `zstd:` and a
    /// level.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> std::result::Result<Option<Self>, String> {
        match text {
            "none" => Ok(None),
            text => text.parse().map(Some).map_err(|error| format!("{error}, or none")),
        }
    }
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.split_once(':') {
            None if text == "lz4" => Ok(Self::Lz4),
            None if text == "zstd" => Ok(Self::ZSTD),
            Some(("zstd", level)) => match level.parse() {
                Ok(level @ 1..=MAX_ZSTD_LEVEL) => Ok(Self::Zstd { level }),
                _ => Err(format!("\"{level}\" is no level from 1 to {MAX_ZSTD_LEVEL}")),
            },
            _ => Err(format!(
                "\"{text}\" is no compression; use lz4, zstd, or zstd:1 to zstd:{MAX_ZSTD_LEVEL}"
            )),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lz4 => f.write_str("lz4"),
            Self::Zstd { level } => write!(f, "zstd:{level}"),
        }
    }
}

/// Compresses pages. It keeps the memory that this takes.
pub struct Packer {
    zstd: Option<(u8, Compressor<'static>)>,
}

impl Packer {
    /// A compressor that has no memory yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { zstd: None }
    }

    /// Appends the compressed form of a page to `out` and returns true, unless too little is gained
    /// by that. `content` is the page without the zeros at its end.
    ///
    /// # Panics
    /// When `content` is longer than a page.
    pub fn pack(&mut self, with: Compression, content: &[u8], out: &mut Vec<u8>) -> bool {
        assert!(content.len() <= PAGE_SIZE, "it is one page");
        let grains = align_up_usize(content.len(), GRAIN_SIZE) / GRAIN_SIZE;
        let saved = grains.div_ceil(LEAST_SAVED_PART);
        let most_bytes = grains.saturating_sub(saved) * GRAIN_SIZE;
        if most_bytes == 0 {
            return false;
        }
        let start = out.len();
        let packed = match with {
            Compression::Lz4 => {
                out.resize(start + block::get_maximum_output_size(content.len()), 0);
                block::compress_into(content, &mut out[start..]).ok()
            }
            Compression::Zstd { level } => {
                out.resize(start + most_bytes, 0);
                self.zstd(level)
                    .and_then(|zstd| zstd.compress_to_buffer(content, &mut out[start..]))
                    .ok()
            }
        };
        let packed = packed.filter(|len| (1..=most_bytes).contains(len));
        out.truncate(start + packed.unwrap_or(0));
        packed.is_some()
    }

    /// Appends a frame of these pages, 2 to 32, to `out`. Returns its length, or `None` and appends
    /// nothing if it would take as much as the pages. It may be longer than a frame can be.
    ///
    /// # Panics
    /// When `pages` are no whole pages.
    pub fn pack_frame(
        &mut self,
        with: Compression,
        pages: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        assert!(pages.len().is_multiple_of(PAGE_SIZE), "a frame has whole pages");
        let start = out.len();
        out.resize(start + block::get_maximum_output_size(pages.len()), 0);
        let packed = match with {
            Compression::Lz4 => block::compress_into(pages, &mut out[start..]).ok(),
            Compression::Zstd { level } => self
                .zstd(level)
                .and_then(|zstd| zstd.compress_to_buffer(pages, &mut out[start..]))
                .ok(),
        };
        let packed = packed.filter(|len| (1..pages.len()).contains(len));
        out.truncate(start + packed.unwrap_or(0));
        packed
    }

    fn zstd(&mut self, level: u8) -> io::Result<&mut Compressor<'static>> {
        if self.zstd.as_ref().is_none_or(|(of, _)| *of != level) {
            let mut zstd = Compressor::new(level.into())?;
            // The block states its length, and has a checksum.
            zstd.include_contentsize(true)?;
            zstd.include_checksum(false)?;
            self.zstd = Some((level, zstd));
        }
        let Some((_, zstd)) = &mut self.zstd else { unreachable!("it was made") };
        Ok(zstd)
    }
}

impl Default for Packer {
    fn default() -> Self {
        Self::new()
    }
}

/// Decompresses pages. It keeps the memory that this takes.
pub struct Unpacker {
    zstd: Option<Decompressor<'static>>,
    /// The pages of the frame that was decompressed last.
    frame: Vec<u8>,
}

const WRONG: Malformed = Malformed::new("block", "it cannot be decompressed");

/// The pages of a frame.
#[derive(Clone, Copy, Debug)]
pub struct FramePages<'a>(&'a [u8]);

impl<'a> FramePages<'a> {
    /// All of them, one after the other.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// How many they are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.0.len() / PAGE_SIZE
    }

    /// The page that `block` names.
    ///
    /// # Errors
    /// When the frame has no such page.
    pub fn page(&self, block: &PageRef) -> Result<&'a [u8]> {
        let index = block.frame_index().ok_or(WRONG)? as usize;
        self.0.get(index * PAGE_SIZE..(index + 1) * PAGE_SIZE).ok_or(WRONG)
    }
}

impl Unpacker {
    /// A decompressor that has no memory yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { zstd: None, frame: Vec::new() }
    }

    /// The pages of a frame that is stored as `stored`, whose checksum is right.
    ///
    /// # Errors
    /// When the frame is stored in a way that is not known, or its bytes are not what pages are
    /// compressed to.
    pub fn unpack_frame(&mut self, frame: &PageRef, stored: &[u8]) -> Result<FramePages<'_>> {
        check_kind(frame)?;
        let mut pages = std::mem::take(&mut self.frame);
        pages.resize(CHUNK_PAGES as usize * PAGE_SIZE, 0);
        let len = self.decompress(frame.compression, stored, &mut pages);
        self.frame = pages;
        match len? {
            // What is stored as it is has zeros behind it.
            len if frame.compression == 0 => self.frame[len..].fill(0),
            len if len > 0 && len.is_multiple_of(PAGE_SIZE) => self.frame.truncate(len),
            _ => return Err(WRONG),
        }
        Ok(FramePages(&self.frame))
    }

    /// Fills the start of `pages` with what `stored` decompresses to. Returns its length.
    fn decompress(&mut self, kind: u8, stored: &[u8], pages: &mut [u8]) -> Result<usize> {
        match kind {
            0 => {
                pages[..stored.len()].copy_from_slice(stored);
                Ok(stored.len())
            }
            KIND_LZ4 => block::decompress_into(stored, pages).map_err(|_| WRONG),
            _ => {
                if self.zstd.is_none() {
                    self.zstd = Decompressor::new().ok();
                }
                let zstd = self.zstd.as_mut().ok_or(WRONG)?;
                zstd.decompress_to_buffer(stored, pages).map_err(|_| WRONG)
            }
        }
    }

    /// Fills `page`, of 4096 bytes, with the page that `block` stores as `stored`, whose checksum
    /// is right.
    ///
    /// # Errors
    /// When the block is stored in a way that is not known, or its bytes are not what a page is
    /// compressed to.
    ///
    /// # Panics
    /// When `page` is not a page long.
    pub fn unpack(&mut self, block: &PageRef, stored: &[u8], page: &mut [u8]) -> Result<()> {
        assert_eq!(page.len(), PAGE_SIZE, "it is one page");
        if block.is_in_frame() {
            page.copy_from_slice(self.unpack_frame(block, stored)?.page(block)?);
            return Ok(());
        }
        check_kind(block)?;
        let len = self.decompress(block.compression, stored, page)?;
        if len == 0 {
            return Err(WRONG);
        }
        page[len..].fill(0);
        Ok(())
    }
}

impl Default for Unpacker {
    fn default() -> Self {
        Self::new()
    }
}

/// Checks that a block is stored in a way that is known.
///
/// # Errors
/// When it is not.
pub const fn check_kind(block: &PageRef) -> Result<()> {
    let is_known = if block.is_in_frame() {
        let index = block.flags & (CHUNK_PAGES as u8 - 1);
        block.compression <= KIND_ZSTD
            && block.len_bytes as usize <= MAX_FRAME_LEN_BYTES
            && block.of_frame(index as u32).flags == block.flags
    } else {
        let is_shorter = (block.len_bytes as usize) < PAGE_SIZE;
        block.flags == 0
            && (block.compression == 0 || (block.compression <= KIND_ZSTD && is_shorter))
    };
    if is_known {
        Ok(())
    } else {
        Err(Malformed::new("block", "it is stored in a way that this version does not know"))
    }
}

#[cfg(test)]
mod tests {
    use dendro_base::Rng;

    use super::*;

    const ALL: [Compression; 3] =
        [Compression::Lz4, Compression::ZSTD, Compression::Zstd { level: 15 }];

    fn text(len_bytes: usize) -> Vec<u8> {
        (0..).flat_map(|line: u32| format!("line {line}\n").into_bytes()).take(len_bytes).collect()
    }

    fn packed(with: Compression, content: &[u8]) -> Option<(PageRef, Vec<u8>)> {
        let mut out = vec![7; 5];
        let is_packed = Packer::new().pack(with, content, &mut out);
        assert_eq!(&out[..5], &[7; 5]);
        let stored = out.split_off(5);
        assert_eq!(is_packed, !stored.is_empty());
        let block =
            PageRef { len_bytes: stored.len() as u16, compression: with.kind(), ..PageRef::ZERO };
        is_packed.then_some((block, stored))
    }

    #[test]
    fn what_was_packed_is_unpacked() {
        for with in ALL {
            for len_bytes in [129, 500, 1000, 4095, 4096] {
                let content = text(len_bytes);
                let (block, stored) = packed(with, &content).unwrap();
                assert!(stored.len() * 8 <= len_bytes * 7 + 8 * GRAIN_SIZE, "{with} {len_bytes}");
                let mut page = [9; PAGE_SIZE];
                Unpacker::new().unpack(&block, &stored, &mut page).unwrap();
                assert_eq!(&page[..len_bytes], content, "{with} {len_bytes}");
                assert!(page[len_bytes..].iter().all(|&byte| byte == 0));
            }
        }
    }

    #[test]
    fn pages_of_a_frame_are_unpacked_one_by_one() {
        let mut unpacker = Unpacker::new();
        for with in ALL {
            for count in [2, 5, 32] {
                let pages = text(count * PAGE_SIZE);
                let mut stored = vec![7; 5];
                let len = Packer::new().pack_frame(with, &pages, &mut stored).unwrap();
                let stored = stored.split_off(5);
                assert_eq!(stored.len(), len);
                let frame = PageRef {
                    len_bytes: len.min(MAX_FRAME_LEN_BYTES) as u16,
                    compression: with.kind(),
                    ..PageRef::ZERO
                };
                let mut page = [9; PAGE_SIZE];
                for (index, expected) in (0..).zip(pages.chunks(PAGE_SIZE)) {
                    unpacker.unpack(&frame.of_frame(index), &stored, &mut page).unwrap();
                    assert!(page[..] == *expected, "{with}, page {index} of {count}");
                }
                let behind = frame.of_frame(count as u32);
                assert_eq!(
                    unpacker.unpack(&behind, &stored, &mut page).is_err(),
                    count < CHUNK_PAGES as usize
                );
                // A page alone is no frame, and a frame no page.
                let frame = PageRef { len_bytes: 9, ..frame };
                assert!(unpacker.unpack(&frame, &stored, &mut page).is_err());
            }
        }
        let raw = PageRef { len_bytes: 5000, ..PageRef::ZERO };
        let mut page = [9; PAGE_SIZE];
        unpacker.unpack(&raw.of_frame(1), &text(5000), &mut page).unwrap();
        assert!(page[..904] == text(5000)[4096..] && page[904..].iter().all(|&byte| byte == 0));
        unpacker.unpack(&raw.of_frame(31), &text(5000), &mut page).unwrap();
        assert!(page.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn frames_that_are_no_whole_pages_are_refused() {
        let mut page = [0; PAGE_SIZE];
        for len_bytes in [1, PAGE_SIZE - 1, PAGE_SIZE + 1, 33 * PAGE_SIZE] {
            let long = zstd::bulk::compress(&vec![1; len_bytes], 3).unwrap();
            let lz4 = block::compress(&vec![1; len_bytes]);
            for (compression, stored) in [(KIND_ZSTD, long), (KIND_LZ4, lz4)] {
                let len_bytes = stored.len() as u16;
                let frame = PageRef { len_bytes, compression, ..PageRef::ZERO }.of_frame(0);
                assert!(Unpacker::new().unpack(&frame, &stored, &mut page).is_err());
            }
        }
        let frame = PageRef { len_bytes: 9, compression: KIND_LZ4, ..PageRef::ZERO }.of_frame(0);
        for wrong in [
            PageRef { compression: 3, ..frame },
            PageRef { flags: frame.flags | 32, ..frame },
            PageRef { len_bytes: MAX_FRAME_LEN_BYTES as u16 + 1, ..frame },
        ] {
            assert!(check_kind(&wrong).is_err(), "{wrong:?}");
        }
        assert!(check_kind(&frame).is_ok());
    }

    #[test]
    fn what_gains_too_little_is_left() {
        let mut noise = vec![0; PAGE_SIZE];
        Rng::new(3).fill(&mut noise);
        for with in ALL {
            assert_eq!(packed(with, &noise), None);
            assert_eq!(packed(with, &[]), None);
            assert_eq!(packed(with, &[1; GRAIN_SIZE]), None);
            // Nearly an eighth is saved, and a bit more.
            let mut part = noise.clone();
            part[3700..].fill(1);
            assert_eq!(packed(with, &part), None, "{with}");
            part[3400..].fill(1);
            assert!(packed(with, &part).is_some(), "{with}");
        }
    }

    #[test]
    fn hostile_blocks_are_refused_or_fill_the_page() {
        let mut rng = Rng::new(5);
        let mut unpacker = Unpacker::new();
        let mut page = [0; PAGE_SIZE];
        let mut refused = 0;
        for round in 0..2000_u64 {
            let with = ALL[(round % 3) as usize];
            let (mut block, mut stored) = packed(with, &text(4096)).unwrap();
            match rng.below(3) {
                0 => rng.fill(&mut stored),
                1 => stored.truncate(rng.below(stored.len() as u64) as usize),
                _ => {
                    for _ in 0..=rng.below(4) {
                        let at = rng.below(stored.len() as u64) as usize;
                        stored[at] ^= 1 << rng.below(8);
                    }
                }
            }
            block.len_bytes = stored.len() as u16;
            refused += u32::from(unpacker.unpack(&block, &stored, &mut page).is_err());
        }
        assert!(refused > 500, "{refused}");
    }

    #[test]
    fn pages_longer_than_a_page_are_refused() {
        let long = zstd::bulk::compress(&[1; PAGE_SIZE + 1], 3).unwrap();
        let lz4 = block::compress(&[1; PAGE_SIZE + 1]);
        for (compression, stored) in [(KIND_ZSTD, long), (KIND_LZ4, lz4)] {
            let block = PageRef { len_bytes: stored.len() as u16, compression, ..PageRef::ZERO };
            let mut page = [0; PAGE_SIZE];
            assert!(Unpacker::new().unpack(&block, &stored, &mut page).is_err());
        }
    }

    #[test]
    fn unknown_kinds_are_refused() {
        for (compression, flags, len_bytes) in [(3, 0, 9), (0, 1, 9), (1, 1, 9), (1, 0, 4096)] {
            let block = PageRef { compression, flags, len_bytes, ..PageRef::ZERO };
            let stored = vec![0; usize::from(len_bytes)];
            let mut page = [0; PAGE_SIZE];
            assert!(Unpacker::new().unpack(&block, &stored, &mut page).is_err());
        }
    }

    #[test]
    fn names_and_bytes_are_read_as_they_are_written() {
        for with in ALL {
            assert_eq!(with.to_string().parse(), Ok(with));
            assert_eq!(Compression::from_byte(Compression::byte(Some(with))), Some(with));
        }
        assert_eq!(Compression::parse("none"), Ok(None));
        assert_eq!(Compression::parse("zstd"), Ok(Some(Compression::ZSTD)));
        for wrong in ["", "zstd:", "zstd:0", "zstd:16", "lz4:1", "gzip"] {
            assert!(Compression::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Compression::byte(None), 0);
        assert_eq!(Compression::from_byte(9), None);
    }
}
