//! The blocks of pages, of which a copy has zeros.

use std::collections::HashMap;

use dendro_base::units::PAGE_SIZE;
use dendro_format::compression::Unpacker;
use dendro_format::{Addr, PageRef, checksum};

use crate::read::Volume;

/// What the blocks of a copy are.
pub(super) struct Blocks<'v> {
    volume: &'v Volume<'v>,
    /// Whether the blocks of the map are read.
    reads_data: bool,
    /// Checksums of blocks that are no zeros in the copy.
    marked: HashMap<Addr, u32>,
    /// Checksums of zeros, by length.
    of_zeros: HashMap<u32, u32>,
    page_count: u64,
    bad_page_count: u64,
}

/// A byte in the copy that is no zero.
pub(super) struct Mark {
    pub(super) offset: u64,
}

impl<'v> Blocks<'v> {
    pub(super) fn new(volume: &'v Volume<'v>, reads_data: bool) -> Self {
        Self {
            volume,
            reads_data,
            marked: HashMap::new(),
            of_zeros: HashMap::new(),
            page_count: 0,
            bad_page_count: 0,
        }
    }

    /// How many pages there are, and how many of them are damaged.
    pub(super) const fn counts(&self) -> (u64, u64) {
        (self.page_count, self.bad_page_count)
    }

    fn of_zeros(&mut self, len_bytes: u32) -> u32 {
        let make = || checksum(&vec![0; len_bytes as usize]);
        *self.of_zeros.entry(len_bytes).or_insert_with(make)
    }

    /// The checksum of a page of the map in the copy. In the page, the file ends at byte
    /// `end_bytes`. If there is data behind that, the copy has some there too, unless the page is
    /// compressed to less than that.
    pub(super) fn of_map(&mut self, page: PageRef, end_bytes: usize) -> (u32, Option<Mark>) {
        self.page_count += 1;
        if let Some(crc32c) = self.marked.get(&page.addr) {
            return (*crc32c, None);
        }
        let len_bytes = u32::from(page.len_bytes);
        if !self.reads_data {
            return (self.of_zeros(len_bytes), None);
        }
        // What lies behind the end of a file in a frame is not shown.
        let end_bytes = if page.is_in_frame() { PAGE_SIZE } else { end_bytes };
        match self.sound_bytes(page) {
            None => {
                self.bad_page_count += 1;
                (!self.of_zeros(len_bytes), None)
            }
            Some(bytes) => match bytes.iter().rposition(|&byte| byte != 0) {
                Some(last) if last >= end_bytes && last < usize::from(page.len_bytes) => {
                    let mut marked = vec![0; page.len_bytes.into()];
                    marked[last] = 1;
                    let crc32c = checksum(&marked);
                    self.marked.insert(page.addr, crc32c);
                    (crc32c, Some(Mark { offset: page.addr.bytes() + last as u64 }))
                }
                _ => (self.of_zeros(len_bytes), None),
            },
        }
    }

    /// The checksum of a block that the log names.
    pub(super) fn of_log(&mut self, block: PageRef) -> u32 {
        let is_sound = self.sound_bytes(block).is_some();
        let zeros = self.of_zeros(block.len_bytes.into());
        if is_sound { zeros } else { !zeros }
    }

    /// The bytes of a page, if they are those that were written there.
    fn sound_bytes(&self, block: PageRef) -> Option<Vec<u8>> {
        let len_bytes = usize::from(block.len_bytes);
        let bytes = self.volume.read("block", block.addr, len_bytes as u64).ok()?;
        let bytes = bytes[..len_bytes].to_vec();
        if checksum(&bytes) != block.crc32c {
            return None;
        }
        if block.compression == 0 {
            return Some(bytes);
        }
        let mut page = vec![0; PAGE_SIZE];
        Unpacker::new().unpack(&block, &bytes, &mut page).ok()?;
        Some(page)
    }
}
