//! Reading blocks from the device, and verifying them.

use std::ops::Range;

use dendro_base::units::PAGE_SIZE;
use dendro_device::{AlignedBuf, BLOCK_SIZE, IoSliceMut, ReadOf};
use dendro_disk::{Error, Lid, Result};
use dendro_format::chunk::MAX_FRAME_LEN_BYTES;
use dendro_format::{Addr, Malformed, PageRef, checksum, compression};

use crate::damage::Part;
use crate::log::segments::Pin;
use crate::volume::Volume;

/// A page to be read from the device, and its place in the caller's buffer.
pub(crate) struct Fetch {
    list: Lid,
    page_index: u64,
    block: PageRef,
    at: usize,
    /// Keeps the block's segment from being filled again until the block has been read.
    _pin: Pin,
}

impl Fetch {
    /// Makes a fetch of a block whose segment has been pinned.
    pub(crate) const fn new(
        list: Lid,
        page_index: u64,
        block: PageRef,
        at: usize,
        pin: Pin,
    ) -> Self {
        Self { list, page_index, block, at, _pin: pin }
    }

    pub(crate) const fn addr(&self) -> Addr {
        self.block.addr
    }

    /// Whether `next` follows directly behind this one, on the device and in the buffer.
    fn is_continued_by(&self, next: &Self) -> bool {
        self.block.is_whole()
            && next.block.is_whole()
            && next.at == self.at + PAGE_SIZE
            && next.block.addr == self.block.addr.plus_bytes(PAGE_SIZE as u64)
    }
}

/// Up to so many bytes between two runs are read with them, which is faster than beginning another
/// read. The header and the records of a partial segment are such a gap.
const MAX_GAP_BYTES: u64 = 16 << 10;

/// Bytes that a block takes in the buffer: whole pages.
pub(crate) const fn room_bytes(block: &PageRef) -> usize {
    if block.len_bytes as usize > PAGE_SIZE { MAX_FRAME_LEN_BYTES } else { PAGE_SIZE }
}

/// Bytes that a run takes in the buffer.
fn run_len(run: &[Fetch]) -> usize {
    run.iter().map(|fetch| room_bytes(&fetch.block)).sum()
}

/// Bytes that the blocks of a run take on the device, where they are contiguous.
fn stored_len(run: &[Fetch]) -> usize {
    match run {
        [short] => usize::from(short.block.len_bytes),
        whole => run_len(whole),
    }
}

/// The number of bytes between two blocks on the device, if one call reads both.
pub(crate) fn gap_between(a: &PageRef, b: &PageRef) -> Option<u64> {
    if a.shares_frame_with(b) {
        return Some(0);
    }
    let end = a.addr.plus_bytes(u64::from(a.footprint_bytes()));
    let gap_bytes = b.addr.bytes().checked_sub(end.bytes())?;
    (a.is_whole() == b.is_whole() && gap_bytes <= MAX_GAP_BYTES).then_some(gap_bytes)
}

/// The number of bytes between two runs on the device, if one call reads both.
fn gap(a: &[Fetch], b: &[Fetch]) -> Option<usize> {
    gap_between(&a.last()?.block, &b.first()?.block).map(|gap_bytes| gap_bytes as usize)
}

/// The bytes between runs of a group that one call reads.
fn gaps_in<'r>(group: &'r [&[Fetch]]) -> impl Iterator<Item = usize> + 'r {
    group.windows(2).filter_map(|pair| gap(pair[0], pair[1]))
}

/// The range of the device, in whole blocks of it, in which a group of short blocks lies.
fn span_of(group: &[&[Fetch]]) -> Range<u64> {
    let end = |block: &PageRef| block.addr.bytes() + u64::from(block.len_bytes);
    let (first, last) = (&group[0][0].block, &group[group.len() - 1][0].block);
    let unit = BLOCK_SIZE as u64;
    first.addr.bytes() / unit * unit..end(last).next_multiple_of(unit)
}

/// Copies short blocks, each a run, out of the `bytes` that were read from `start` on. Zeros fill
/// their room.
fn copy_short(runs: &[&[Fetch]], start: u64, bytes: &[u8], buf: &mut [u8]) {
    for Fetch { block, at, .. } in runs.iter().map(|run| &run[0]) {
        let from = (block.addr.bytes() - start) as usize;
        let len = usize::from(block.len_bytes);
        let room = &mut buf[*at..*at + room_bytes(block)];
        room[..len].copy_from_slice(&bytes[from..from + len]);
        room[len..].fill(0);
    }
}

/// The part of `buf` for each run, in the order of the runs.
fn parts_of<'b>(buf: &'b mut [u8], runs: &[&[Fetch]]) -> Vec<&'b mut [u8]> {
    let mut by_place: Vec<usize> = (0..runs.len()).collect();
    by_place.sort_by_key(|&run| runs[run][0].at);
    let mut parts: Vec<(usize, &mut [u8])> = Vec::with_capacity(runs.len());
    let (mut rest, mut rest_at) = (buf, 0);
    for number in by_place {
        let (at, len) = (runs[number][0].at, run_len(runs[number]));
        let (part, behind) = rest.split_at_mut(at - rest_at).1.split_at_mut(len);
        (rest, rest_at) = (behind, at + len);
        parts.push((number, part));
    }
    parts.sort_by_key(|(number, _)| *number);
    parts.into_iter().map(|(_, part)| part).collect()
}

/// Checks that a block is stored in a way that is known.
fn check_kind(list: Lid, page_index: u64, block: &PageRef) -> Result<()> {
    compression::check_kind(block).map_err(|malformed| {
        Error::Corrupted(format!("page {page_index} of list {list}: {}", malformed.problem))
    })
}

impl Volume {
    /// Reads blocks, as they are stored. Whole pages that are contiguous on the device and in the
    /// buffer are read with one call. So are runs of such pages with little between them on the
    /// device, wherever they go in the buffer, and shorter blocks. Behind these are zeros in the
    /// buffer, up to the end of the page.
    pub(crate) fn fetch(&self, fetches: &[Fetch], buf: &mut [u8]) -> Result<()> {
        let mut runs: Vec<&[Fetch]> = fetches.chunk_by(Fetch::is_continued_by).collect();
        runs.sort_by_key(|run| (!run[0].block.is_whole(), run[0].block.addr));
        // If that fails, what cannot be read may be what lies between the runs. They are read one
        // by one then, which tells.
        if runs.len() > 1 && self.read_together(&runs, buf).is_ok() {
            return runs.iter().try_for_each(|run| self.check_run(run, buf));
        }
        for run in runs {
            self.read_run(run, buf).inspect_err(|error| self.note_unreadable(run, error))?;
            self.check_run(run, buf)?;
        }
        Ok(())
    }

    /// Reads a run: whole pages, or a shorter block.
    fn read_run(&self, run: &[Fetch], buf: &mut [u8]) -> Result<()> {
        let Fetch { block, at, .. } = &run[0];
        let (stored, rest) = buf[*at..*at + run_len(run)].split_at_mut(stored_len(run));
        rest.fill(0);
        self.read_device(block.addr, stored)
    }

    /// Reads runs, those of whole pages before shorter blocks, each by place. What lies near each
    /// other is one read, with the bytes between. The device makes as many reads at a time as it
    /// can.
    fn read_together(&self, runs: &[&[Fetch]], buf: &mut [u8]) -> dendro_device::Result<()> {
        let whole_count = runs.partition_point(|run| run[0].block.is_whole());
        let (whole, short) = runs.split_at(whole_count);
        let is_near = |a: &&[Fetch], b: &&[Fetch]| gap(a, b).is_some();
        let mut pages = parts_of(buf, whole).into_iter();
        let whole: Vec<_> = whole.chunk_by(is_near).collect();
        let short: Vec<_> = short.chunk_by(is_near).collect();
        let gaps_bytes = whole.iter().flat_map(|group| gaps_in(group)).sum::<usize>();
        let spans: Vec<_> = short.iter().map(|group| span_of(group)).collect();
        let spans_bytes = spans.iter().map(|span| (span.end - span.start) as usize).sum::<usize>();
        let mut scratch = AlignedBuf::zeroed(gaps_bytes + spans_bytes);
        let (mut unwanted, mut rest) = scratch.split_at_mut(gaps_bytes);
        let mut reads: Vec<(u64, Vec<IoSliceMut<'_>>)> = Vec::new();
        for group in &whole {
            let mut parts = Vec::with_capacity(2 * group.len());
            for (gap_bytes, bytes) in gaps_in(group).chain([0]).zip(pages.by_ref()) {
                parts.push(IoSliceMut::new(bytes));
                let (between, others) = unwanted.split_at_mut(gap_bytes);
                unwanted = others;
                parts.push(IoSliceMut::new(between));
            }
            reads.push((group[0][0].block.addr.bytes(), parts));
        }
        for span in &spans {
            let (bytes, others) = rest.split_at_mut((span.end - span.start) as usize);
            rest = others;
            reads.push((span.start, vec![IoSliceMut::new(bytes)]));
        }
        let mut reads: Vec<_> =
            reads.iter_mut().map(|(offset, parts)| ReadOf { offset: *offset, parts }).collect();
        match &mut reads[..] {
            [read] => self.device().read_vectored_at(read.offset, read.parts)?,
            reads => self.device().read_each(reads)?,
        }
        let mut rest = &scratch[gaps_bytes..];
        for (group, span) in short.iter().zip(&spans) {
            let (bytes, others) = rest.split_at((span.end - span.start) as usize);
            rest = others;
            copy_short(group, span.start, bytes, buf);
        }
        Ok(())
    }

    /// Verifies the checksums of a run that has been read. A block that is wrong is read in
    /// another copy, if the device has one.
    fn check_run(&self, run: &[Fetch], buf: &mut [u8]) -> Result<()> {
        run.iter().try_for_each(|fetch| {
            let Fetch { list, page_index, block, at, .. } = fetch;
            let stored = &mut buf[*at..at + usize::from(block.len_bytes)];
            let is_right = |bytes: &[u8]| checksum(bytes) == block.crc32c;
            check_kind(*list, *page_index, block)?;
            if is_right(stored) {
                return Ok(());
            }
            self.device().mend(block.addr.bytes(), stored, &is_right);
            self.check_block(*list, *page_index, block, stored)
        })
    }

    pub(crate) fn check_block(
        &self,
        list: Lid,
        page_index: u64,
        block: &PageRef,
        stored: &[u8],
    ) -> Result<()> {
        check_kind(list, page_index, block)?;
        if checksum(stored) == block.crc32c {
            return Ok(());
        }
        let error = Error::Corrupted(format!(
            "page {page_index} of list {list}, {} bytes at {} of the device: the checksum is wrong",
            block.len_bytes, block.addr
        ));
        self.damage().note(block.addr, Part::Page(list, page_index), &error);
        Err(error)
    }

    /// Logs the blocks of a run that cannot be read, after the run could not be read with one call.
    fn note_unreadable(&self, run: &[Fetch], error: &Error) {
        for Fetch { list, page_index, block, .. } in run {
            let mut bytes = vec![0; usize::from(block.len_bytes)];
            if self.device().read_at(block.addr.bytes(), &mut bytes).is_err() {
                self.damage().note(block.addr, Part::Page(*list, *page_index), error);
            }
        }
    }
}

impl Volume {
    /// Fills `page` with the page that `block` stores as `stored`, whose checksum is right.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when these bytes are no page.
    pub(crate) fn unpack(
        &self,
        list: Lid,
        page_index: u64,
        block: &PageRef,
        stored: &[u8],
        page: &mut [u8],
    ) -> Result<()> {
        let unpacked =
            self.compressors().unpackers.with(|unpacker| unpacker.unpack(block, stored, page));
        unpacked.map_err(|malformed| self.note_malformed(list, page_index, block, &malformed))
    }

    /// Puts pages of a frame, which is stored as `stored`, with a right checksum, to their places
    /// in `buf`.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when the frame does not have them.
    pub(crate) fn unpack_frame(
        &self,
        list: Lid,
        frame: &PageRef,
        stored: &[u8],
        pages: &[(u64, PageRef, usize)],
        buf: &mut [u8],
    ) -> Result<()> {
        self.compressors().unpackers.with(|unpacker| {
            let unpacked = unpacker.unpack_frame(frame, stored);
            pages.iter().try_for_each(|(page_index, page, at)| {
                let bytes = unpacked.as_ref().map_err(Malformed::clone);
                let bytes = bytes.and_then(|frame| frame.page(page)).map_err(|malformed| {
                    self.note_malformed(list, *page_index, page, &malformed)
                })?;
                buf[*at..*at + PAGE_SIZE].copy_from_slice(bytes);
                Ok(())
            })
        })
    }

    fn note_malformed(
        &self,
        list: Lid,
        page_index: u64,
        block: &PageRef,
        malformed: &Malformed,
    ) -> Error {
        let error = Error::Corrupted(format!(
            "page {page_index} of list {list}, {} bytes at {} of the device: {}",
            block.len_bytes, block.addr, malformed.problem
        ));
        self.damage().note(block.addr, Part::Page(list, page_index), &error);
        error
    }

    /// As [`Self::unpack`], of a block that is no frame. What is stored lies at the start of
    /// `page`.
    pub(crate) fn unpack_in_place(
        &self,
        list: Lid,
        page_index: u64,
        block: &PageRef,
        page: &mut [u8],
    ) -> Result<()> {
        let mut stored = [0; PAGE_SIZE];
        let stored = &mut stored[..usize::from(block.len_bytes)];
        stored.copy_from_slice(&page[..stored.len()]);
        self.unpack(list, page_index, block, stored, page)
    }
}
