//! A partial segment under construction, in memory.
//!
//! Payload gets its address at once. Whole pages lie one after the other from the second block on.
//! Shorter blocks lie in grains behind the header, and then in blocks of their own. The records are
//! collected separately and are placed when the partial segment is closed, wherever they fit. Until
//! then, a page or record that is written again is changed in place, because the partial segment
//! takes effect whole or not at all (engine invariant 2).

mod tables;

use dendro_base::units::{GRAIN_SIZE, PAGE_SIZE, align_up_usize};
use dendro_base::{Timestamp, Uuid};
use dendro_device::AlignedBuf;
use dendro_format::partial::HEADER_LEN_BYTES;
use dendro_format::record::{
    self, LEN_OFFSET, PUT_RECORD_LEN_BYTES, VERSION_LEN_BYTES, WRITE_BLOCK_COMPRESSION_OFFSET,
    WRITE_BLOCK_CRC_OFFSET, WRITE_BLOCK_LEN_BYTES, WRITE_RUN_LEN_BYTES,
};
use dendro_format::{
    Addr, Compression, Head, Key, PageRef, PartialHeader, Record, SegmentNo, checksum,
    checksum_append,
};
use rustc_hash::{FxHashMap, FxHashSet};

use tables::{Placed, Short};
pub(crate) use tables::{RecordRef, Tables};

/// The minimum room in which a partial segment is begun: any single change fits in it.
pub(crate) const MIN_CAPACITY_BYTES: usize = 4 * PAGE_SIZE;

/// The version that the following records belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordContext {
    pub(crate) branch: u32,
    pub(crate) epoch: u64,
    /// Whether the cleaner moved the blocks that the records name.
    pub(crate) is_moved: bool,
}

impl RecordContext {
    /// The context of the first records of a partial segment that has no version record.
    pub(crate) const fn start(epoch: u64) -> Self {
        Self { branch: 0, epoch, is_moved: false }
    }

    /// The context of records that name where the cleaner moved blocks of the entry `key`.
    pub(crate) const fn of_moved(key: &Key) -> Self {
        Self { branch: key.branch, epoch: key.epoch, is_moved: true }
    }
}

/// The header of the first partial segment of a stream of kind `head`; the caller sets what
/// differs, and [`Partial::close`] sets lengths and place.
pub(crate) const fn header_of(head: Head, uuid: Uuid) -> PartialHeader {
    PartialHeader {
        head,
        class: 0,
        len_bytes: 0,
        uuid,
        seq: 0,
        segment: SegmentNo(0),
        offset_bytes: 0,
        prev_crc32c: 0,
        next_segment: SegmentNo(0),
        records_offset_bytes: 0,
        records_len_bytes: 0,
        complete_len_bytes: 0,
        commit_seq: 0,
        durable_seq: 0,
        time: Timestamp(0),
        epoch: 0,
    }
}

/// Where the next blocks go: whole pages at `tail`, short blocks from `short_at` to `short_end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockRoom {
    tail: usize,
    short_at: usize,
    short_end: usize,
}

/// How much had been added to a partial segment at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    base: Addr,
    records_len: usize,
    room: BlockRoom,
    page_count: usize,
    short_count: usize,
    context: RecordContext,
    run: Option<Run>,
}

/// An open partial segment.
#[derive(Debug)]
pub(crate) struct Partial {
    buf: AlignedBuf,
    segment: SegmentNo,
    /// Its start, in bytes from the start of the segment.
    offset_bytes: u32,
    /// Its start on the device.
    base: Addr,
    /// Its maximum length in bytes.
    capacity: usize,
    /// Where the next whole page goes.
    tail: usize,
    /// Where the next short block goes, and the end of the room for it.
    short_at: usize,
    short_end: usize,
    records: Vec<u8>,
    /// The epoch in its header, and the context of the last record.
    epoch: u64,
    context: RecordContext,
    /// Bytes of `records` that were voided.
    void_bytes: usize,
    complete_len: usize,
    /// The room for blocks behind the last complete unit.
    complete: BlockRoom,
    /// The run of whole pages that the next page may extend.
    run: Option<Run>,
    /// The whole pages that may still be changed, by ascending offset.
    pages: Vec<Placed>,
    /// The index in `pages` of the page that the main log is expected to name next.
    next_named: usize,
    /// The short blocks that may still be changed, by ascending offset.
    shorts: Vec<Short>,
    /// Put records that may still be changed, by branch, list and index.
    puts: FxHashMap<(u32, u64, u64), usize>,
    deleted_lists: FxHashSet<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    record_at: usize,
    list: u64,
    next_page: u64,
    next_addr: Addr,
}

/// The length that is stored of a page: trailing zeros are cut off if that saves a grain.
pub(crate) fn stored_len(page: &[u8]) -> usize {
    let mut len = page.len();
    // This compares words first, because most pages do not end in zeros.
    while len >= 8 && page[len - 8..len] == [0; 8] {
        len -= 8;
    }
    while len > 0 && page[len - 1] == 0 {
        len -= 1;
    }
    if len + GRAIN_SIZE > PAGE_SIZE { PAGE_SIZE } else { len }
}

/// What is stored of a page that is not compressed.
pub(crate) fn without_zeros(page: &[u8]) -> &[u8] {
    &page[..stored_len(page).min(page.len())]
}

/// What is stored of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content<'a> {
    /// If the page is stored whole, zeros at the end may be missing here.
    bytes: &'a [u8],
    len_bytes: usize,
    crc32c: u32,
    /// How the bytes are compressed; 0: not. Compressed bytes are fewer than a page has, unless
    /// they are those of a frame.
    compression: u8,
    /// Which page of a frame it is, as in a [`PageRef`].
    flags: u8,
}

impl<'a> Content<'a> {
    /// The content of a page; zeros at the end of `page` may be missing.
    pub(crate) fn of_page(page: &'a [u8]) -> Self {
        Self::of(page, stored_len(page))
    }

    /// The content of a page whose stored length ([`stored_len`]) is `len_bytes`.
    pub(crate) fn of(page: &'a [u8], len_bytes: usize) -> Self {
        let bytes = &page[..len_bytes.min(page.len())];
        let crc32c = padded_checksum(bytes, len_bytes);
        Self { bytes, len_bytes, crc32c, compression: 0, flags: 0 }
    }

    /// The content of a page that was compressed with `compression` to `bytes`.
    pub(crate) fn compressed(bytes: &'a [u8], compression: Compression) -> Self {
        debug_assert!(bytes.len() < PAGE_SIZE, "it takes less than the page");
        let (len_bytes, crc32c) = (bytes.len(), checksum(bytes));
        Self { bytes, len_bytes, crc32c, compression: compression.kind(), flags: 0 }
    }

    /// The content of page `index` of a frame that was compressed with `compression` to `bytes`.
    pub(crate) fn in_frame(bytes: &'a [u8], compression: Compression, index: u32) -> Self {
        let (len_bytes, crc32c) = (bytes.len(), checksum(bytes));
        let flags = PageRef::ZERO.of_frame(index).flags;
        Self { bytes, len_bytes, crc32c, compression: compression.kind(), flags }
    }

    /// The content of `block`, which is stored as the first of `bytes`.
    pub(crate) fn stored(bytes: &'a [u8], block: &PageRef) -> Self {
        let PageRef { len_bytes, crc32c, compression, flags, .. } = *block;
        let len_bytes = usize::from(len_bytes);
        Self { bytes: &bytes[..len_bytes], len_bytes, crc32c, compression, flags }
    }

    /// The page that this is in `block`, which was placed for it, or for another page of its frame.
    pub(crate) const fn page_in(&self, block: &PageRef) -> PageRef {
        PageRef { flags: self.flags, ..*block }
    }

    /// The content of another page of the frame, which is called so in a block like this.
    pub(crate) const fn of_other(&self, page: &PageRef) -> Self {
        Self { flags: page.flags, ..*self }
    }

    pub(crate) const fn is_in_frame(&self) -> bool {
        self.flags != 0
    }

    /// Whether this is stored of `page` already.
    pub(crate) fn is_of(&self, page: &PageRef) -> bool {
        let Self { len_bytes, crc32c, compression, flags, .. } = *self;
        let PageRef { addr, .. } = *page;
        PageRef { addr, len_bytes: len_bytes as u16, crc32c, compression, flags } == *page
    }

    /// Whether both are pages of one frame: the same bytes in memory.
    pub(crate) fn shares_frame_with(&self, other: &Self) -> bool {
        self.is_in_frame() && other.is_in_frame() && std::ptr::eq(self.bytes, other.bytes)
    }

    /// The bytes that are stored; zeros at the end of a whole page may be missing.
    pub(crate) const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) const fn is_whole(&self) -> bool {
        self.len_bytes == PAGE_SIZE && self.compression == 0 && self.flags == 0
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// What is counted for the page: what its block takes on the device, or a whole page for one
    /// that is all zeros, because that is what it may take later.
    pub(crate) const fn counted_bytes(&self) -> u64 {
        let bytes =
            if self.is_empty() { PAGE_SIZE } else { align_up_usize(self.len_bytes, GRAIN_SIZE) };
        bytes as u64
    }

    /// The whole pages, and the bytes of a short block, that the content takes.
    pub(crate) const fn room(&self) -> (usize, usize) {
        if self.is_whole() { (1, 0) } else { (0, self.len_bytes) }
    }
}

/// The checksum of `bytes` followed by zeros up to `len_bytes`, which is at most a page.
fn padded_checksum(bytes: &[u8], len_bytes: usize) -> u32 {
    let crc32c = checksum(bytes);
    match len_bytes - bytes.len() {
        0 => crc32c,
        missing => checksum_append(crc32c, &[0; PAGE_SIZE][..missing]),
    }
}

/// Copies `bytes` into a slot and fills the rest of the slot with zeros.
fn copy_padded(slot: &mut [u8], bytes: &[u8]) {
    let (data, rest) = slot.split_at_mut(bytes.len());
    data.copy_from_slice(bytes);
    rest.fill(0);
}

impl Partial {
    /// An empty partial segment at `offset_bytes` of `segment`, which starts at `segment_offset` on
    /// the device.
    pub(crate) fn new(
        buf: AlignedBuf,
        capacity: usize,
        segment: SegmentNo,
        segment_offset: u64,
        offset_bytes: u32,
        epoch: u64,
        Tables { records, pages, shorts, puts, deleted_lists }: Tables,
    ) -> Self {
        let capacity = capacity.min(buf.len());
        Self {
            buf,
            segment,
            offset_bytes,
            base: Addr::from_bytes(segment_offset + u64::from(offset_bytes)),
            capacity,
            tail: PAGE_SIZE,
            short_at: HEADER_LEN_BYTES,
            short_end: PAGE_SIZE,
            records,
            epoch,
            context: RecordContext::start(epoch),
            void_bytes: 0,
            complete_len: 0,
            complete: BlockRoom {
                tail: PAGE_SIZE,
                short_at: HEADER_LEN_BYTES,
                short_end: PAGE_SIZE,
            },
            run: None,
            pages,
            next_named: 0,
            shorts,
            puts,
            deleted_lists,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether some of its blocks are shorter than a page.
    pub(crate) const fn has_short_blocks(&self) -> bool {
        self.short_at > HEADER_LEN_BYTES
    }

    /// The approximate length on the device if it were closed now.
    pub(crate) fn used_bytes(&self) -> usize {
        self.tail + self.records.len() - self.void_bytes
    }

    /// Whether this much more certainly fits: whole pages, bytes of a short block, and records.
    pub(crate) fn fits(&self, pages: usize, short_bytes: usize, record_bytes: usize) -> bool {
        let short = align_up_usize(short_bytes, GRAIN_SIZE);
        let short = if self.short_at + short <= self.short_end {
            0
        } else {
            align_up_usize(short, PAGE_SIZE)
        };
        let records = self.records.len() - self.void_bytes + record_bytes;
        self.tail + pages * PAGE_SIZE + short + align_up_usize(records, PAGE_SIZE) <= self.capacity
    }

    /// Whether this much more fits if the records get no block of their own, because all of them
    /// lie behind the header, where no short blocks are. Until it is closed, no other records and
    /// no short blocks may be added then, unless [`Self::fits`] allows them.
    pub(crate) fn fits_up_to_the_end(&self, pages: usize, record_bytes: usize) -> bool {
        let records = self.records.len() - self.void_bytes + record_bytes;
        !self.has_short_blocks()
            && HEADER_LEN_BYTES + records <= PAGE_SIZE
            && self.tail + pages * PAGE_SIZE <= self.capacity
    }

    /// The offset of `addr` in the buffer, if `addr` lies in this partial segment.
    pub(crate) fn offset_of(&self, addr: Addr) -> Option<usize> {
        let offset = addr.0.checked_sub(self.base.0)?.checked_mul(GRAIN_SIZE as u64)?;
        usize::try_from(offset).ok().filter(|&offset| offset < self.tail)
    }

    /// The stored bytes of a block in this partial segment.
    pub(crate) fn block(&self, offset: usize, len_bytes: usize) -> &[u8] {
        &self.buf[offset..offset + len_bytes]
    }

    /// Sets the context of the records that are added from now on.
    pub(crate) fn set_context(&mut self, context: RecordContext) {
        if self.context == context {
            return;
        }
        self.context = context;
        self.run = None;
        let RecordContext { branch, epoch, is_moved } = context;
        Record::Version { branch, epoch, is_moved }.encode(&mut self.records);
    }

    /// Adds a record as it is.
    pub(crate) fn push(&mut self, record: &Record<'_>) {
        match *record {
            Record::DeleteRecord { list, index } => {
                self.take_back_put(list, index);
            }
            // The earlier records of this list can no longer be changed, so that a list created
            // again under the same number is not mistaken for it.
            Record::DeleteList { list } => {
                self.deleted_lists.insert(list);
            }
            Record::CreateList { list, .. } if self.deleted_lists.contains(&list) => {
                self.puts.clear();
            }
            _ => {}
        }
        self.run = None;
        record.encode(&mut self.records);
    }

    /// Adds a put record, or replaces an earlier one of the same record that may still be changed.
    pub(crate) fn push_put(&mut self, list: u64, index: u64, value: &[u8]) {
        if let Some(&at) = self.puts.get(&(self.context.branch, list, index)) {
            let old_len = self.u16_at(at + LEN_OFFSET);
            if old_len == value.len() {
                let start = at + PUT_RECORD_LEN_BYTES;
                self.records[start..start + old_len].copy_from_slice(value);
                return;
            }
            self.take_back_put(list, index);
        }
        self.puts.insert((self.context.branch, list, index), self.records.len());
        self.run = None;
        Record::PutRecord { list, index, value }.encode(&mut self.records);
    }

    fn u16_at(&self, at: usize) -> usize {
        usize::from(u16::from_le_bytes([self.records[at], self.records[at + 1]]))
    }

    fn take_back_put(&mut self, list: u64, index: u64) {
        if let Some(at) = self.puts.remove(&(self.context.branch, list, index)) {
            let len = self.u16_at(at + LEN_OFFSET);
            record::void(&mut self.records[at..]);
            self.void_bytes += PUT_RECORD_LEN_BYTES + len;
        }
    }

    /// Makes everything that has been added so far unchangeable. A unit follows that ends in a
    /// later partial segment, and its changes must not take effect with this one (engine invariant
    /// 2).
    pub(crate) fn forget_changeable(&mut self) {
        self.puts.clear();
        self.pages.clear();
        self.shorts.clear();
        self.run = None;
    }

    /// Places what is stored of a page. The block counts once [`Self::record_page`] was called with
    /// it. The caller has checked [`Self::fits`].
    pub(crate) fn place(&mut self, content: &Content<'_>) -> PageRef {
        let offset = if content.is_whole() {
            let offset = self.tail;
            self.tail += PAGE_SIZE;
            copy_padded(&mut self.buf[offset..offset + PAGE_SIZE], content.bytes);
            // So that copying the next page does not wait for memory, with the lock held.
            self.buf.prefetch(self.tail..self.tail + PAGE_SIZE);
            offset
        } else {
            self.place_block(content.bytes)
        };
        PageRef {
            addr: self.base.plus_bytes(offset as u64),
            crc32c: content.crc32c,
            len_bytes: content.len_bytes as u16,
            compression: content.compression,
            flags: content.flags,
        }
    }

    /// Records that a page was written as `block`, which was placed here or in the open partial
    /// segment of another stream. Blocks are recorded in the order in which they were placed.
    pub(crate) fn record_page(&mut self, list: u64, page_index: u64, block: &PageRef) -> RecordRef {
        let record_ref = if block.is_whole() {
            self.record_whole(list, page_index, block)
        } else {
            self.record_short(list, page_index, block)
        };
        // Nothing is written in the place of a frame.
        if !block.is_in_frame()
            && let Some(offset) = self.offset_of(block.addr)
        {
            let placed = Placed { offset: offset as u32, record_ref, named: None };
            if block.is_whole() {
                self.pages.push(placed);
            } else {
                let room = align_up_usize(usize::from(block.len_bytes), GRAIN_SIZE) as u32;
                self.shorts.push(Short { placed, room });
            }
        }
        record_ref
    }

    /// Records that a page was written whole, as part of the current run if it continues that run.
    fn record_whole(&mut self, list: u64, page_index: u64, block: &PageRef) -> RecordRef {
        let joins = self.run.filter(|run| {
            run.list == list && run.next_page == page_index && run.next_addr == block.addr
        });
        let record_at = if let Some(run) = joins {
            self.records.extend_from_slice(&block.crc32c.to_le_bytes());
            self.set_run_count(run.record_at);
            run.record_at
        } else {
            let at = self.records.len();
            let crcs = [block.crc32c.into()];
            Record::encode_run(&mut self.records, list, page_index, block.addr, &crcs);
            at
        };
        let is_full = self.records.len() - record_at > WRITE_RUN_LEN_BYTES + 4 * 60_000;
        self.run = (!is_full).then_some(Run {
            record_at,
            list,
            next_page: page_index + 1,
            next_addr: block.addr.plus_bytes(PAGE_SIZE as u64),
        });
        RecordRef(self.records.len() as u32 - 4)
    }

    /// Sets the count of the run at `record_at`, which is the last record, to the number of its
    /// checksums.
    fn set_run_count(&mut self, record_at: usize) {
        let count = ((self.records.len() - record_at - WRITE_RUN_LEN_BYTES) / 4) as u16;
        let at = record_at + LEN_OFFSET;
        self.records[at..at + 2].copy_from_slice(&count.to_le_bytes());
    }

    /// Records that a page was written as a block shorter than a page.
    fn record_short(&mut self, list: u64, page_index: u64, block: &PageRef) -> RecordRef {
        let at = self.records.len();
        self.run = None;
        Record::WriteBlock { list, page: page_index, block: *block }.encode(&mut self.records);
        RecordRef(at as u32)
    }

    /// Notes that the main log names `block`, which lies here, at `named`.
    pub(crate) fn set_named(&mut self, block: &PageRef, named: RecordRef) {
        let Some(offset) = self.offset_of(block.addr).filter(|_| !block.is_in_frame()) else {
            return;
        };
        // Whole pages are mostly named in the order in which they were placed.
        if let Some(next) = self.pages.get_mut(self.next_named)
            && next.offset == offset as u32
        {
            next.named = Some(named);
            self.next_named += 1;
        } else if let Some(placed) = self.placed_at(offset, block.is_whole()) {
            placed.named = Some(named);
            self.next_named = self.pages.partition_point(|page| page.offset <= offset as u32);
        }
    }

    /// The block at `offset`, if it may still be changed.
    fn placed_at(&mut self, offset: usize, is_whole: bool) -> Option<&mut Placed> {
        let offset = offset as u32;
        if is_whole {
            let at = self.pages.binary_search_by_key(&offset, |page| page.offset).ok()?;
            Some(&mut self.pages[at])
        } else {
            let at = self.shorts.binary_search_by_key(&offset, |short| short.placed.offset).ok()?;
            Some(&mut self.shorts[at].placed)
        }
    }

    /// Updates what the records state about a block.
    pub(crate) fn update_record(&mut self, record_ref: RecordRef, block: &PageRef) {
        let mut crc_at = record_ref.0 as usize;
        if !block.is_whole() {
            let (len_at, compression_at) =
                (crc_at + LEN_OFFSET, crc_at + WRITE_BLOCK_COMPRESSION_OFFSET);
            self.records[len_at..len_at + 2].copy_from_slice(&block.len_bytes.to_le_bytes());
            self.records[compression_at] = block.compression;
            crc_at += WRITE_BLOCK_CRC_OFFSET;
        }
        self.records[crc_at..crc_at + 4].copy_from_slice(&block.crc32c.to_le_bytes());
    }

    /// Places a block in grains; returns its offset. The caller has checked [`Self::fits`].
    pub(crate) fn place_block(&mut self, bytes: &[u8]) -> usize {
        let room = align_up_usize(bytes.len(), GRAIN_SIZE);
        if self.short_at + room > self.short_end {
            if self.short_end == self.tail {
                self.short_end = align_up_usize(self.short_at + room, PAGE_SIZE);
            } else {
                self.buf[self.short_at..self.short_end].fill(0);
                self.short_at = self.tail;
                self.short_end = self.tail + align_up_usize(room, PAGE_SIZE);
            }
            self.tail = self.short_end;
        }
        let offset = self.short_at;
        self.short_at += room;
        self.buf[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.buf[offset + bytes.len()..offset + room].fill(0);
        offset
    }

    /// Fills a block that was placed before its contents were known.
    pub(crate) fn fill_block(&mut self, offset: usize, bytes: &[u8]) {
        self.buf[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Returns the buffer without writing anything.
    pub(crate) fn into_buf(self) -> AlignedBuf {
        self.buf
    }

    /// The size of its buffer.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buf.len()
    }

    /// The address of an offset in it.
    pub(crate) const fn addr_at(&self, offset: usize) -> Addr {
        self.base.plus_bytes(offset as u64)
    }

    /// The page reference that [`Self::change_page`] would give the page at `old` with this
    /// content, if that page lies here, may still be changed, and the content fits its place.
    pub(crate) fn fit_into(&mut self, old: &PageRef, content: &Content<'_>) -> Option<PageRef> {
        let offset = self.offset_of(old.addr).filter(|_| !old.is_in_frame())?;
        if old.is_whole() {
            // Its record states no compression.
            if content.compression != 0 {
                return None;
            }
            self.placed_at(offset, true)?;
            let crc32c = if content.is_whole() {
                content.crc32c
            } else {
                padded_checksum(content.bytes, PAGE_SIZE)
            };
            return Some(PageRef { crc32c, ..*old });
        }
        let at =
            self.shorts.binary_search_by_key(&(offset as u32), |short| short.placed.offset).ok()?;
        let room = self.shorts[at].room as usize;
        let len = content.len_bytes;
        let is_last = offset + room == self.short_at;
        let needed = align_up_usize(len, GRAIN_SIZE);
        let limit = if is_last { self.short_end - offset } else { room };
        if len == 0 || len == PAGE_SIZE || needed > limit {
            return None;
        }
        if needed > room {
            self.short_at = offset + needed;
            self.shorts[at].room = needed as u32;
            self.buf[offset + room..offset + needed].fill(0);
        }
        let Content { crc32c, compression, .. } = *content;
        Some(PageRef { crc32c, len_bytes: len as u16, compression, ..*old })
    }

    /// Changes a page in place to `block`, which [`Self::fit_into`] returned. Returns where the
    /// main log also names the page, or nothing if the page does not lie here.
    pub(crate) fn change_page(
        &mut self,
        block: &PageRef,
        content: &Content<'_>,
    ) -> Option<Option<RecordRef>> {
        let offset = self.offset_of(block.addr)?;
        let (Placed { record_ref, named, .. }, room) = if block.is_whole() {
            (*self.placed_at(offset, true)?, PAGE_SIZE)
        } else {
            let by_offset = |short: &Short| short.placed.offset;
            let at = self.shorts.binary_search_by_key(&(offset as u32), by_offset).ok()?;
            (self.shorts[at].placed, self.shorts[at].room as usize)
        };
        copy_padded(&mut self.buf[offset..offset + room], content.bytes);
        self.update_record(record_ref, block);
        Some(named)
    }

    /// Notes that the units of all records so far are complete.
    pub(crate) fn complete(&mut self) {
        self.complete_len = self.records.len();
        self.complete = self.block_room();
    }

    /// Takes back the blocks that were placed for a unit which has no records and will have none.
    pub(crate) fn take_back_placed(&mut self) {
        let BlockRoom { tail, short_at, short_end } = self.complete;
        if self.complete == self.block_room() {
            return;
        }
        (self.tail, self.short_at, self.short_end) = (tail, short_at, short_end);
        // The last short block may have been given more room.
        if let Some(last) = self.shorts.last_mut() {
            let offset = last.placed.offset as usize;
            if (offset..=offset + last.room as usize).contains(&short_at) {
                last.room = (short_at - offset) as u32;
            }
        }
    }

    /// The amount that has been added so far.
    pub(crate) const fn mark(&self) -> Mark {
        Mark {
            base: self.base,
            records_len: self.records.len(),
            room: self.block_room(),
            page_count: self.pages.len(),
            short_count: self.shorts.len(),
            context: self.context,
            run: self.run,
        }
    }

    /// Takes back the pages that were added since `mark`, if the mark is one of this partial
    /// segment. Only pages were added since then.
    pub(crate) fn take_back_to(&mut self, mark: &Mark) {
        if mark.base != self.base {
            return;
        }
        self.records.truncate(mark.records_len);
        self.pages.truncate(mark.page_count);
        self.shorts.truncate(mark.short_count);
        self.context = mark.context;
        self.run = mark.run;
        if let Some(run) = mark.run {
            self.set_run_count(run.record_at);
        }
        self.complete = mark.room;
        self.take_back_placed();
    }

    const fn block_room(&self) -> BlockRoom {
        BlockRoom { tail: self.tail, short_at: self.short_at, short_end: self.short_end }
    }

    /// The length on the device if `more_record_bytes` of records are added.
    pub(crate) fn final_len(&self, more_record_bytes: usize) -> usize {
        let records = self.records.len() - self.void_bytes + more_record_bytes;
        let at = self.records_place(records);
        align_up_usize(at + records, PAGE_SIZE).max(self.tail)
    }

    /// The offset of the records: behind the short blocks if they fit there, else at the end.
    const fn records_place(&self, records_len: usize) -> usize {
        if self.short_end == self.tail || self.short_at + records_len <= self.short_end {
            self.short_at
        } else {
            self.tail
        }
    }

    /// Closes it: places the records and writes the header, whose lengths and place are set here.
    /// Returns the buffer, the length in use, the header's checksum, and the tables.
    pub(crate) fn close(mut self, header: PartialHeader) -> (AlignedBuf, usize, u32, Tables) {
        let complete_len = if self.void_bytes > 0 {
            record::compact(&mut self.records, self.complete_len)
        } else {
            self.complete_len
        };
        self.void_bytes = 0;
        let records_at = self.records_place(self.records.len());
        let records_end = records_at + self.records.len();
        let len = self.final_len(0);
        debug_assert!(len <= self.capacity, "a partial segment keeps within its room");
        if records_at != self.short_at {
            self.buf[self.short_at..self.short_end].fill(0);
        }
        self.buf[records_at..records_end].copy_from_slice(&self.records);
        let pad_end = if records_at == self.short_at && self.short_end < self.tail {
            self.short_end
        } else {
            len
        };
        self.buf[records_end..pad_end].fill(0);
        let header = PartialHeader {
            len_bytes: len as u32,
            segment: self.segment,
            offset_bytes: self.offset_bytes,
            records_offset_bytes: records_at as u32,
            records_len_bytes: self.records.len() as u32,
            complete_len_bytes: complete_len as u32,
            epoch: self.epoch,
            ..header
        };
        let crc32c = header.encode_into(&mut self.buf[..len]);
        let Self { records, pages, shorts, puts, deleted_lists, .. } = self;
        let mut tables = Tables { records, pages, shorts, puts, deleted_lists };
        tables.clear();
        (self.buf, len, crc32c, tables)
    }

    pub(crate) const fn segment(&self) -> SegmentNo {
        self.segment
    }

    pub(crate) const fn offset_bytes(&self) -> u32 {
        self.offset_bytes
    }

    pub(crate) const fn base(&self) -> Addr {
        self.base
    }
}

/// The maximum bytes of records that `pages` pages take: each has a record of its own, in another
/// context than the one before.
pub(crate) const fn page_record_bytes(pages: usize) -> usize {
    const LONGEST: usize = if WRITE_BLOCK_LEN_BYTES > WRITE_RUN_LEN_BYTES + 4 {
        WRITE_BLOCK_LEN_BYTES
    } else {
        WRITE_RUN_LEN_BYTES + 4
    };
    pages * (LONGEST + VERSION_LEN_BYTES)
}
