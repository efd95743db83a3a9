//! Reading: the map is searched first, and then the blocks that it names are read.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::Ordering;

use dendro_base::units::PAGE_SIZE;
use dendro_device::{AlignedBuf, IoSliceMut};
use dendro_disk::{Error, Lid, MAX_PAGE_COUNT, Record, Result, View};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::{Addr, Key, PageRef, Space, Value, checksum};

use crate::commit::unit::{check_range, decode_hints};
use crate::disk::LogDisk;
use crate::engine::Engine;
use crate::fault::Outcome;
use crate::log::segments::Pin;
use crate::map::Nodes;
use crate::state::chunk_edit::mask;
use crate::state::pages::slots_of;
use crate::state::slice::Slice;
use crate::state::visibility::ItemKey;
use crate::versions::ancestry::Ancestry;

/// A page to be read from the device, and its place in the caller's buffer.
pub(crate) struct Fetch {
    page_index: u64,
    block: PageRef,
    at: usize,
    /// Keeps the block's segment from being filled again until the block has been read.
    _pin: Pin,
}

impl Fetch {
    /// Makes a fetch of a block whose segment has been pinned.
    pub(crate) const fn new(page_index: u64, block: PageRef, at: usize, pin: Pin) -> Self {
        Self { page_index, block, at, _pin: pin }
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

/// Bytes that the blocks of a run take on the device, where they are contiguous.
fn stored_len(run: &[Fetch]) -> usize {
    match run {
        [short] => usize::from(short.block.len_bytes),
        whole => whole.len() * PAGE_SIZE,
    }
}

/// The number of bytes between two pages on the device, if one call reads both.
pub(crate) fn gap_between(a: &PageRef, b: &PageRef) -> Option<u64> {
    let end = a.addr.plus_bytes(PAGE_SIZE as u64);
    let gap_bytes = b.addr.bytes().checked_sub(end.bytes())?;
    (a.is_whole() && b.is_whole() && gap_bytes <= MAX_GAP_BYTES).then_some(gap_bytes)
}

/// The number of bytes between two runs on the device, if one call reads both.
fn gap(a: &[Fetch], b: &[Fetch]) -> Option<usize> {
    gap_between(&a.last()?.block, &b.first()?.block).map(|gap_bytes| gap_bytes as usize)
}

/// The part of `buf` for each run, in the order of the runs.
fn parts_of<'b>(buf: &'b mut [u8], runs: &[&[Fetch]]) -> Vec<&'b mut [u8]> {
    let mut by_place: Vec<usize> = (0..runs.len()).collect();
    by_place.sort_by_key(|&run| runs[run][0].at);
    let mut parts: Vec<(usize, &mut [u8])> = Vec::with_capacity(runs.len());
    let (mut rest, mut rest_at) = (buf, 0);
    for number in by_place {
        let (at, len) = (runs[number][0].at, stored_len(runs[number]));
        let (part, behind) = rest.split_at_mut(at - rest_at).1.split_at_mut(len);
        (rest, rest_at) = (behind, at + len);
        parts.push((number, part));
    }
    parts.sort_by_key(|(number, _)| *number);
    parts.into_iter().map(|(_, part)| part).collect()
}

impl LogDisk {
    /// As [`Self::look`], for `view`.
    fn look_from<T>(
        &self,
        view: View,
        mut look: impl FnMut(&Engine, Ancestry<'_>, &dyn Nodes) -> Outcome<T>,
    ) -> Result<T> {
        self.look(|engine, nodes| {
            let ancestry = engine.state.versions.ancestry(view)?;
            look(engine, ancestry, nodes)
        })
    }

    pub(crate) fn read_hints(
        &self,
        view: View,
        list: Lid,
    ) -> Result<Option<dendro_disk::ListHints>> {
        self.look_from(view, |engine, ancestry, nodes| {
            match engine.state.newest(ancestry, ItemKey::list(list.0), nodes)? {
                Some((_, Value::List(hints))) if list < Lid::CLIENT_END => {
                    Ok(Some(decode_hints(hints)))
                }
                _ => Ok(None),
            }
        })
    }

    /// Lists are not neighbours in the map, because the records and pages of each lie between. So
    /// each search begins behind the last key of the list before.
    pub(crate) fn read_lists(&self, view: View, from: Lid, max: usize) -> Result<Vec<Lid>> {
        let mut lists = Vec::new();
        let mut next = from.0;
        while lists.len() < max {
            let found = self.look_from(view, |engine, ancestry, nodes| {
                let mut found = None;
                let start = Key::first(next, Space::List, 0);
                let end = Key::first(Lid::CLIENT_END.0, Space::List, 0);
                engine.state.map.visit(&start, &end, nodes, &mut |key, _| {
                    found = Some(key.list);
                    ControlFlow::Break(())
                })?;
                let Some(list) = found else { return Ok(None) };
                Ok(Some((list, engine.state.has_list(ancestry, list, nodes)?)))
            })?;
            let Some((list, exists)) = found else { break };
            if exists {
                lists.push(Lid(list));
            }
            next = list + 1;
        }
        Ok(lists)
    }

    pub(crate) fn read_record(&self, view: View, list: Lid, index: u64) -> Result<Option<Record>> {
        self.look_from(view, |engine, ancestry, nodes| {
            if list >= Lid::CLIENT_END {
                return Ok(None);
            }
            let item = ItemKey::record(list.0, index);
            let may_be_left = engine.state.removals.contains(list.0);
            if let Some(key) = engine.state.sole_key(ancestry, item).filter(|_| !may_be_left) {
                return engine.state.map.look(&key, nodes, |value| match value {
                    Some(Value::Record(bytes)) => Some(Record::clone(bytes)),
                    _ => None,
                });
            }
            let newest = engine.state.newest(ancestry, item, nodes)?;
            let Some((key, Value::Record(bytes))) = newest else { return Ok(None) };
            // What the head wrote in this epoch disappears with its list.
            let own = (ancestry.nearest().branch, engine.state.versions.epoch());
            let is_own = own == (key.branch, key.epoch) && !may_be_left;
            let is_there = is_own || engine.state.may_have(ancestry, list.0, nodes)?;
            Ok(is_there.then_some(bytes))
        })
    }

    pub(crate) fn read_records(
        &self,
        view: View,
        list: Lid,
        from: u64,
        max: usize,
    ) -> Result<Vec<(u64, Record)>> {
        let mut records = Vec::new();
        if max == 0 || list >= Lid::CLIENT_END {
            return Ok(records);
        }
        self.look_in_slices(from, |engine, slice, nodes| {
            let ancestry = engine.state.versions.ancestry(view)?;
            if !engine.state.may_have(ancestry, list.0, nodes)? {
                return Ok(());
            }
            engine.state.visit_records(ancestry, list.0, slice, nodes, &mut |index, bytes| {
                records.push((index, Record::clone(bytes)));
                if records.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
        })?;
        Ok(records)
    }

    /// Calls `visit` with the chunks of `pages`, in order. Each is seen in its state at the moment
    /// when the walk reaches it.
    fn visit_chunks(
        &self,
        view: View,
        list: Lid,
        pages: &Range<u64>,
        mut visit: impl FnMut(u64, u32) -> ControlFlow<()>,
    ) -> Result<()> {
        self.look_in_slices(pages.start / CHUNK_PAGES, |engine, slice, nodes| {
            let ancestry = engine.state.versions.ancestry(view)?;
            if !engine.state.may_have(ancestry, list.0, nodes)? {
                return Ok(());
            }
            let rest = pages.start.max(slice.next * CHUNK_PAGES)..pages.end;
            engine.state.visit_chunks(
                ancestry,
                list.0,
                &rest,
                slice,
                nodes,
                &mut |number, chunk| visit(number, chunk.present()),
            )
        })
    }

    pub(crate) fn find_data(&self, view: View, list: Lid, from: u64) -> Result<Option<u64>> {
        let mut found = None;
        let pages = from.min(MAX_PAGE_COUNT)..MAX_PAGE_COUNT;
        self.visit_chunks(view, list, &pages, |number, present| {
            let slots = slots_of(number, &pages);
            let mut owned = slots.filter(|slot| present >> slot & 1 == 1);
            found = owned.next().map(|slot| number * CHUNK_PAGES + u64::from(slot));
            if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }

    pub(crate) fn find_hole(&self, view: View, list: Lid, from: u64) -> Result<u64> {
        let pages = from.min(MAX_PAGE_COUNT)..MAX_PAGE_COUNT;
        let mut hole = pages.start;
        self.visit_chunks(view, list, &pages, |number, present| {
            // A gap between chunks is a hole too.
            for slot in slots_of(number, &pages) {
                let page_index = number * CHUNK_PAGES + u64::from(slot);
                if page_index != hole || present >> slot & 1 == 0 {
                    return ControlFlow::Break(());
                }
                hole = page_index + 1;
            }
            ControlFlow::Continue(())
        })?;
        Ok(hole)
    }

    pub(crate) fn count_present(&self, view: View, list: Lid, pages: &Range<u64>) -> Result<u64> {
        let mut count = 0;
        self.visit_chunks(view, list, pages, |number, present| {
            let owned = slots_of(number, pages).filter(|slot| present >> slot & 1 == 1);
            count += owned.count() as u64;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    /// Finds the block of a page on the device without reading it: its address in bytes. `None` for
    /// a hole, and for a page of zeros, which takes no block.
    pub fn page_addr(&self, view: View, list: Lid, page_index: u64) -> Result<Option<u64>> {
        check_range(page_index, 1)?;
        let pages = page_index..page_index + 1;
        self.look_from(view, |engine, ancestry, nodes| {
            let mut addr = None;
            if !engine.state.may_have(ancestry, list.0, nodes)? {
                return Ok(addr);
            }
            let mut slice = Slice::whole(0);
            engine.state.visit_chunks(
                ancestry,
                list.0,
                &pages,
                &mut slice,
                nodes,
                &mut |number, chunk| {
                    let mut blocks = chunk.iter_masked(mask(slots_of(number, &pages)));
                    let block = blocks.next().map(|(_, block)| block);
                    addr = block.filter(|of| of.len_bytes > 0).map(|of| of.addr.bytes());
                    ControlFlow::Break(())
                },
            )?;
            Ok(addr)
        })
    }

    pub(crate) fn read_range(
        &self,
        view: View,
        list: Lid,
        first_page: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let count = (buf.len() / PAGE_SIZE) as u64;
        check_range(first_page, count)?;
        let pages = first_page..first_page + count;
        let fetches = self.look_from(view, |engine, ancestry, nodes| {
            let mut fetches = Vec::new();
            let mut filled = 0;
            if !engine.state.may_have(ancestry, list.0, nodes)? {
                buf.fill(0);
                return Ok(fetches);
            }
            let mut slice = Slice::whole(0);
            engine.state.visit_chunks(
                ancestry,
                list.0,
                &pages,
                &mut slice,
                nodes,
                &mut |number, chunk| {
                    for (slot, block) in chunk.iter_masked(mask(slots_of(number, &pages))) {
                        let page_index = number * CHUNK_PAGES + u64::from(slot);
                        let at = (page_index - first_page) as usize * PAGE_SIZE;
                        buf[filled..at].fill(0);
                        filled = at + PAGE_SIZE;
                        let page = &mut buf[at..filled];
                        if block.len_bytes == 0 {
                            page.fill(0);
                        } else if let Some(stored) =
                            engine.block_in_memory(block.addr, usize::from(block.len_bytes))
                        {
                            page[..stored.len()].copy_from_slice(stored);
                            page[stored.len()..].fill(0);
                        } else {
                            let pin = engine.state.segments.pin(block.addr);
                            fetches.push(Fetch { page_index, block, at, _pin: pin });
                        }
                    }
                    ControlFlow::Continue(())
                },
            )?;
            buf[filled..].fill(0);
            Ok(fetches)
        })?;
        if !fetches.is_empty() {
            self.client_reads.fetch_add(1, Ordering::Relaxed);
        }
        self.fetch(list, &fetches, buf)
    }

    /// Reads blocks. Whole pages that are contiguous on the device and in the buffer are read with
    /// one call. So are runs of such pages with little between them on the device, wherever they go
    /// in the buffer.
    pub(crate) fn fetch(&self, list: Lid, fetches: &[Fetch], buf: &mut [u8]) -> Result<()> {
        let mut runs: Vec<&[Fetch]> = fetches.chunk_by(Fetch::is_continued_by).collect();
        runs.sort_by_key(|run| (!run[0].block.is_whole(), run[0].block.addr));
        for near in runs.chunk_by(|a, b| gap(a, b).is_some()) {
            // If that fails, the unreadable part may be what lies between the runs.
            if near.len() > 1 && self.read_near(near, buf).is_ok() {
                for run in near {
                    self.check_run(list, run, buf)?;
                }
                continue;
            }
            for run in near {
                let first = &run[0];
                let len = stored_len(run);
                self.read_device(first.block.addr, &mut buf[first.at..first.at + len])
                    .inspect_err(|error| self.note_unreadable(list, run, error))?;
                if !first.block.is_whole() {
                    buf[first.at + len..first.at + PAGE_SIZE].fill(0);
                }
                self.check_run(list, run, buf)?;
            }
        }
        Ok(())
    }

    /// Reads runs of whole pages with one call, together with the bytes between them.
    fn read_near(&self, runs: &[&[Fetch]], buf: &mut [u8]) -> dendro_device::Result<()> {
        let gaps = || runs.windows(2).filter_map(|pair| gap(pair[0], pair[1]));
        let mut unwanted = AlignedBuf::zeroed(gaps().sum());
        let mut unwanted = &mut unwanted[..];
        let mut parts = Vec::with_capacity(2 * runs.len());
        let mut gaps = gaps();
        for bytes in parts_of(buf, runs) {
            parts.push(IoSliceMut::new(bytes));
            let (between, others) = unwanted.split_at_mut(gaps.next().unwrap_or(0));
            unwanted = others;
            parts.push(IoSliceMut::new(between));
        }
        self.device.read_vectored_at(runs[0][0].block.addr.bytes(), &mut parts)
    }

    /// Verifies the checksums of a run that has been read.
    fn check_run(&self, list: Lid, run: &[Fetch], buf: &[u8]) -> Result<()> {
        run.iter().try_for_each(|fetch| {
            let stored = &buf[fetch.at..fetch.at + usize::from(fetch.block.len_bytes)];
            self.check_block(list, fetch.page_index, &fetch.block, stored)
        })
    }

    pub(crate) fn read_device(&self, addr: Addr, bytes: &mut [u8]) -> Result<()> {
        self.device.read_at(addr.bytes(), bytes).map_err(|error| Error::Io(error.to_string()))
    }

    pub(crate) fn check_block(
        &self,
        list: Lid,
        page_index: u64,
        block: &PageRef,
        stored: &[u8],
    ) -> Result<()> {
        if block.compression != 0 || block.flags != 0 {
            return Err(Error::Corrupted(format!(
                "page {page_index} of list {list} is stored in a way that this version does not know"
            )));
        }
        if checksum(stored) == block.crc32c {
            return Ok(());
        }
        let error = Error::Corrupted(format!(
            "page {page_index} of list {list}, {} bytes at {} of the device: the checksum is wrong",
            block.len_bytes, block.addr
        ));
        self.damage().note(block.addr, Some((list, page_index)), &error);
        Err(error)
    }

    /// Logs the blocks of a run that cannot be read, after the run could not be read with one call.
    fn note_unreadable(&self, list: Lid, run: &[Fetch], error: &Error) {
        for Fetch { page_index, block, .. } in run {
            let mut bytes = vec![0; usize::from(block.len_bytes)];
            if self.device.read_at(block.addr.bytes(), &mut bytes).is_err() {
                self.damage().note(block.addr, Some((list, *page_index)), error);
            }
        }
    }
}
