//! Chunks: where 32 aligned pages of a list lie.

use dendro_base::units::{GRAIN_SIZE, PAGE_SIZE, align_up};

use crate::layout::Addr;
use crate::varint::{self, Reader, put};
use crate::{Malformed, Result};

/// Pages that one entry of the map describes.
pub const CHUNK_PAGES: u64 = 32;
/// A list's pages have indexes below this: 2⁶³ bytes.
pub const MAX_PAGE_COUNT: u64 = 1 << 51;

/// Above the bits of owned pages: a skip follows.
const HAS_SKIP: u64 = 1 << 32;
const KIND_SHIFT: u8 = 5;
const KIND_WHOLE: u8 = 0;
const KIND_BLOCK: u8 = 1;
const KIND_ZERO: u8 = 2;
const KIND_FRAME: u8 = 3;

/// In [`PageRef::flags`]: the block is a frame, and the bits below say which of its pages this is.
const IN_FRAME: u8 = 1 << 7;
const FRAME_INDEX: u8 = CHUNK_PAGES as u8 - 1;
/// Bytes that a frame has at most, as it is stored.
pub const MAX_FRAME_LEN_BYTES: usize = 2 * PAGE_SIZE;

/// The address of a page and the checksum of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRef {
    /// The address of its block; meaningless if it has none.
    pub addr: Addr,
    /// The checksum of the block as stored.
    pub crc32c: u32,
    /// Bytes stored, 0 to 4096, of a frame up to [`MAX_FRAME_LEN_BYTES`]; 0 is a page of zeros that
    /// has no block.
    pub len_bytes: u16,
    /// How it is compressed; 0: not.
    pub compression: u8,
    /// 0, or which page of a frame it is: see [`Self::of_frame`].
    pub flags: u8,
}

impl PageRef {
    /// A page of zeros.
    pub const ZERO: Self =
        Self { addr: Addr(0), crc32c: 0, len_bytes: 0, compression: 0, flags: 0 };

    /// The same block as a frame, of which this is the page `index`, below 32.
    #[must_use]
    pub const fn of_frame(self, index: u32) -> Self {
        Self { flags: IN_FRAME | index as u8 & FRAME_INDEX, ..self }
    }

    /// Whether the block is a frame, which may have other pages too.
    #[must_use]
    pub const fn is_in_frame(&self) -> bool {
        self.flags & IN_FRAME != 0
    }

    /// Which page of a frame it is; `None` if its block is no frame.
    #[must_use]
    pub const fn frame_index(&self) -> Option<u32> {
        if self.is_in_frame() { Some((self.flags & FRAME_INDEX) as u32) } else { None }
    }

    /// Whether both are pages of one frame.
    #[must_use]
    pub fn shares_frame_with(&self, other: &Self) -> bool {
        self.is_in_frame() && other.is_in_frame() && self.of_frame(0) == other.of_frame(0)
    }

    /// Whether its block has a record of its own in the log: it is no whole page.
    #[must_use]
    pub const fn is_short(&self) -> bool {
        self.len_bytes > 0 && ((self.len_bytes as usize) < PAGE_SIZE || self.is_in_frame())
    }

    /// Bytes of the device that the block occupies: whole grains.
    #[must_use]
    pub const fn footprint_bytes(self) -> u32 {
        align_up(self.len_bytes as u64, GRAIN_SIZE as u64) as u32
    }

    /// Bytes of the device that the block would occupy if it were not compressed; a page that is
    /// compressed counts as a whole one, because its zeros at the end are not known.
    #[must_use]
    pub const fn plain_footprint_bytes(self) -> u32 {
        if self.compression == 0 { self.footprint_bytes() } else { PAGE_SIZE as u32 }
    }

    /// Whether the block is a whole page, uncompressed.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        self.len_bytes as usize == PAGE_SIZE && self.compression == 0 && self.flags == 0
    }
}

/// A skip over entries of one chunk and branch, which a search would visit one by one otherwise:
/// the jump pointer of a skew-binary list (Myers 1983), with which any of *n* entries is found in
/// O(log *n*) steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skip {
    /// How many older entries there were when this one was made.
    pub depth: u32,
    /// The epoch that it leads to. Entries between that epoch and the entry's own decide no slots
    /// other than those in [`Self::said`].
    pub epoch: u64,
    /// How many entries it passes, the one that it leads to included.
    pub len: u32,
    /// The slots that the entries in between decide, a bit for each.
    pub said: u32,
}

/// The pages of one chunk that an entry of the map owns: some of 32, each at a slot from 0 to 31.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Bit `slot` is set when the entry owns the page.
    present: u32,
    /// Bit `slot` is set when the page was punched in this version, so that it hides the pages of
    /// older versions. Zero as long as there is only one version.
    holes: u32,
    /// The owned pages, in the order of their slots.
    refs: Vec<PageRef>,
    skip: Option<Box<Skip>>,
}

/// The numbers of the bits that are set, in order.
fn bits(mut mask: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros();
        mask &= mask.checked_sub(1)?;
        Some(bit)
    })
}

impl Chunk {
    /// The chunk that owns the given pages.
    #[must_use]
    pub fn from_slots(slots: &[Option<PageRef>; CHUNK_PAGES as usize]) -> Self {
        Self::with_holes(slots, 0)
    }

    /// The chunk that owns the given pages and has holes, a bit for each, which hide the pages of
    /// older versions. A page that is owned is no hole.
    #[must_use]
    pub fn with_holes(slots: &[Option<PageRef>; CHUNK_PAGES as usize], holes: u32) -> Self {
        let refs = Vec::with_capacity(slots.iter().flatten().count());
        let mut chunk = Self { present: 0, holes, refs, skip: None };
        for (slot, page) in slots.iter().enumerate() {
            if let Some(page) = page {
                chunk.present |= 1 << slot;
                chunk.holes &= !(1 << slot);
                chunk.refs.push(*page);
            }
        }
        chunk
    }

    /// The entry with other pages and holes, and the same skip.
    #[must_use]
    pub fn with_slots(&self, slots: &[Option<PageRef>; CHUNK_PAGES as usize], holes: u32) -> Self {
        Self::with_holes(slots, holes).with_skip(self.skip())
    }

    /// The same with this skip over older entries.
    #[must_use]
    pub fn with_skip(self, skip: Option<Skip>) -> Self {
        Self { skip: skip.map(Box::new), ..self }
    }

    /// Its skip over older entries, if it has one.
    #[must_use]
    pub fn skip(&self) -> Option<Skip> {
        self.skip.as_deref().copied()
    }

    /// Each slot's page.
    #[must_use]
    pub fn slots(&self) -> [Option<PageRef>; CHUNK_PAGES as usize] {
        let mut slots = [None; CHUNK_PAGES as usize];
        for (slot, page) in self.iter() {
            slots[slot as usize] = Some(page);
        }
        slots
    }

    /// The page at `slot`, below 32.
    #[must_use]
    pub fn get(&self, slot: u32) -> Option<PageRef> {
        let bit = 1_u32 << slot;
        (self.present & bit != 0)
            .then(|| self.refs[(self.present & (bit - 1)).count_ones() as usize])
    }

    /// Sets the page at `slot`, below 32.
    pub fn set(&mut self, slot: u32, page: PageRef) {
        let bit = 1_u32 << slot;
        let at = (self.present & (bit - 1)).count_ones() as usize;
        if self.present & bit == 0 {
            // Most entries own few pages, and millions of entries are in memory.
            let len = self.refs.len();
            if len == self.refs.capacity() {
                self.refs.reserve_exact(len.clamp(1, CHUNK_PAGES as usize - len));
            }
            self.refs.insert(at, page);
            self.present |= bit;
            self.holes &= !bit;
        } else {
            self.refs[at] = page;
        }
    }

    /// The slots whose pages it owns, a bit for each.
    #[must_use]
    pub const fn present(&self) -> u32 {
        self.present
    }

    /// The slots that are holes, which hide the pages of older versions, a bit for each.
    #[must_use]
    pub const fn holes(&self) -> u32 {
        self.holes
    }

    /// The slots that it decides, by a page or a hole, a bit for each.
    #[must_use]
    pub const fn said(&self) -> u32 {
        self.present | self.holes
    }

    /// Whether it owns nothing and hides nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.present == 0 && self.holes == 0
    }

    /// How many pages it owns.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.refs.len()
    }

    /// The owned pages with their slots, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, PageRef)> + '_ {
        bits(self.present).zip(self.refs.iter().copied())
    }

    /// The blocks of owned pages with the slots of these pages, a bit for each: one for each frame,
    /// at its first slot, and one for each other page.
    pub fn blocks(&self) -> impl Iterator<Item = (u32, PageRef)> + '_ {
        self.iter().filter_map(|(slot, page)| {
            let slots = self.slots_of_block(slot, &page);
            (slots.trailing_zeros() == slot).then_some((slots, page))
        })
    }

    /// The slots whose pages lie in the block of the page at `slot`, a bit for each.
    #[must_use]
    pub fn slots_of_block(&self, slot: u32, page: &PageRef) -> u32 {
        if !page.is_in_frame() {
            return 1 << slot;
        }
        let shared = self.iter().filter(|(_, other)| other.shares_frame_with(page));
        shared.fold(0, |slots, (slot, _)| slots | 1 << slot)
    }

    /// The owned pages in those slots of which `mask` has the bit, in order.
    pub fn iter_masked(&self, mask: u32) -> impl Iterator<Item = (u32, PageRef)> + '_ {
        bits(self.present & mask).filter_map(|slot| Some((slot, self.get(slot)?)))
    }

    /// Bytes that [`Self::encode`] adds at most.
    #[must_use]
    pub fn encoded_len_bound(&self) -> usize {
        let mut len = varint::len(self.tagged_present()) + varint::len(u64::from(self.holes));
        if let Some(Skip { depth, epoch, len: count, said }) = self.skip() {
            len += [u64::from(depth), epoch, u64::from(count), u64::from(said)]
                .map(varint::len)
                .iter()
                .sum::<usize>();
        }
        let mut refs = self.refs.as_slice();
        while let Some(first) = refs.first() {
            let run = run_len(refs);
            len += 1 + match first.len_bytes {
                0 => 0,
                _ if first.is_whole() => varint::len(first.addr.0) + 4 * run,
                // Of a frame, the index of the first page lies where another block has its flags.
                bytes => 2 + varint::len(u64::from(bytes)) + varint::len(first.addr.0) + 4,
            };
            refs = &refs[run..];
        }
        len
    }

    fn tagged_present(&self) -> u64 {
        u64::from(self.present) | if self.skip.is_some() { HAS_SKIP } else { 0 }
    }

    /// Appends the chunk, run-length encoded: the bits of owned pages, with one more above for a
    /// [`Skip`], those of holes, the skip (depth, epoch, length, what was said), then runs in the
    /// order of their slots. A run starts with a byte, its length less one in the low five bits and
    /// its kind above: 0, whole pages one after the other (address, a checksum each); 1, one block
    /// (compression, flags, length, address, checksum); 2, pages of zeros; 3, pages of a frame one
    /// after the other (compression, which page of it the first one is, length, address, checksum).
    pub fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.tagged_present());
        put(out, u64::from(self.holes));
        if let Some(Skip { depth, epoch, len, said }) = self.skip() {
            for number in [u64::from(depth), epoch, u64::from(len), u64::from(said)] {
                put(out, number);
            }
        }
        let mut refs = self.refs.as_slice();
        while let Some(&first) = refs.first() {
            let run = run_len(refs);
            let tag = (run - 1) as u8;
            if first.len_bytes == 0 {
                out.push(tag | KIND_ZERO << KIND_SHIFT);
            } else if first.is_whole() {
                out.push(tag | KIND_WHOLE << KIND_SHIFT);
                put(out, first.addr.0);
                for page in &refs[..run] {
                    out.extend_from_slice(&page.crc32c.to_le_bytes());
                }
            } else {
                let (kind, flags) = match first.frame_index() {
                    Some(index) => (KIND_FRAME, index as u8),
                    None => (KIND_BLOCK, first.flags),
                };
                out.push(tag | kind << KIND_SHIFT);
                out.push(first.compression);
                out.push(flags);
                put(out, u64::from(first.len_bytes));
                put(out, first.addr.0);
                out.extend_from_slice(&first.crc32c.to_le_bytes());
            }
            refs = &refs[run..];
        }
    }

    /// Reads what [`Self::encode`] wrote.
    ///
    /// # Errors
    /// When the bytes are anything else.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let tagged = reader.varint()?;
        let present = u32::try_from(tagged & !HAS_SKIP)
            .map_err(|_| reader.malformed("a number is out of range"))?;
        let holes: u32 = reader.number()?;
        let skip = if tagged & HAS_SKIP == 0 {
            None
        } else {
            let depth = reader.number()?;
            let epoch = reader.varint()?;
            let (len, said) = (reader.number()?, reader.number()?);
            Some(Box::new(Skip { depth, epoch, len, said }))
        };
        if present & holes != 0 {
            return Err(reader.malformed("a page is there and not there"));
        }
        let count = present.count_ones() as usize;
        let mut refs = Vec::with_capacity(count);
        while refs.len() < count {
            let tag = reader.byte()?;
            let run = usize::from(tag & 31) + 1;
            if run > count - refs.len() {
                return Err(reader.malformed("a run is longer than its chunk"));
            }
            decode_run(reader, tag >> KIND_SHIFT, run, &mut refs)?;
        }
        Ok(Self { present, holes, refs, skip })
    }
}

/// How many of the first pages one run can speak for.
fn run_len(refs: &[PageRef]) -> usize {
    let first = refs[0];
    let follows = |(index, page): (usize, &PageRef)| {
        if first.len_bytes == 0 {
            page.len_bytes == 0
        } else if let Some(of_first) = first.frame_index() {
            *page == first.of_frame(of_first + index as u32) && of_first + (index as u32) < 32
        } else {
            first.is_whole()
                && page.is_whole()
                && page.addr == first.addr.plus_bytes((index * PAGE_SIZE) as u64)
        }
    };
    1 + refs.iter().enumerate().skip(1).take_while(|&page| follows(page)).count()
}

fn decode_run(
    reader: &mut Reader<'_>,
    kind: u8,
    run: usize,
    refs: &mut Vec<PageRef>,
) -> Result<()> {
    match kind {
        KIND_WHOLE => {
            let first = Addr(reader.varint()?);
            for index in 0..run {
                refs.push(PageRef {
                    addr: first.plus_bytes((index * PAGE_SIZE) as u64),
                    crc32c: reader.u32_le()?,
                    len_bytes: PAGE_SIZE as u16,
                    ..PageRef::ZERO
                });
            }
        }
        KIND_BLOCK if run == 1 => {
            let compression = reader.byte()?;
            let flags = reader.byte()?;
            let len_bytes: u16 = reader.number()?;
            if len_bytes == 0 || usize::from(len_bytes) > PAGE_SIZE {
                return Err(reader.malformed("a block is empty or longer than a page"));
            }
            if flags & IN_FRAME != 0 {
                return Err(reader.malformed("a block alone is said to be a frame"));
            }
            let addr = Addr(reader.varint()?);
            refs.push(PageRef { addr, crc32c: reader.u32_le()?, len_bytes, compression, flags });
        }
        KIND_FRAME => {
            let compression = reader.byte()?;
            let first = u32::from(reader.byte()?);
            let len_bytes: u16 = reader.number()?;
            if len_bytes == 0 || usize::from(len_bytes) > MAX_FRAME_LEN_BYTES {
                return Err(reader.malformed("a frame is empty or too long"));
            }
            if u64::from(first) + run as u64 > CHUNK_PAGES {
                return Err(reader.malformed("a frame has too many pages"));
            }
            let addr = Addr(reader.varint()?);
            let frame =
                PageRef { addr, crc32c: reader.u32_le()?, len_bytes, compression, flags: 0 };
            refs.extend((first..first + run as u32).map(|index| frame.of_frame(index)));
        }
        KIND_ZERO => refs.extend(std::iter::repeat_n(PageRef::ZERO, run)),
        _ => return Err(Malformed::new("chunk", "a run is of an unknown kind")),
    }
    Ok(())
}
