//! What clients read: the map is searched first, and then the blocks that it names are read.

use std::ops::{ControlFlow, Range};

use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicU64, Ordering};
use dendro_base::units::PAGE_SIZE;
use dendro_device::AlignedBuf;
use dendro_disk::{
    Lid, ListHints, MAX_PAGE_COUNT, PageRange, Record, Result, ScanPoint, Scanned, View,
};
use dendro_format::chunk::{CHUNK_PAGES, MAX_FRAME_LEN_BYTES};
use dendro_format::{Key, PageRef, Space};

use crate::blocks::Fetch;
use crate::engine::Engine;
use crate::fault::{Fault, Outcome};
use crate::log::segments::Pin;
use crate::map::Nodes;
use crate::state::chunk_edit::mask;
use crate::state::pages::{check_range, slots_of};
use crate::state::slice::{SLICE_LEN, Slice};
use crate::versions::ancestry::Ancestry;
use crate::volume::Volume;

/// Longer reads do not look for pages that are kept for changes in part: one read of the device
/// costs less than the search.
const MAX_RECENT_PAGES: u64 = 8;

/// Reads on behalf of clients.
pub(crate) struct Reader {
    volume: Arc<Volume>,
    device_reads: AtomicU64,
}

impl Reader {
    pub(crate) const fn new(volume: Arc<Volume>) -> Self {
        Self { volume, device_reads: AtomicU64::new(0) }
    }

    /// The number of reads of the device on behalf of clients.
    pub(crate) fn device_reads(&self) -> u64 {
        self.device_reads.load(Ordering::Relaxed)
    }

    /// As [`Volume::look`], for `view`.
    #[inline]
    fn look_from<T>(
        &self,
        view: View,
        mut look: impl FnMut(&Engine, Ancestry<'_>, &dyn Nodes) -> Outcome<T>,
    ) -> Result<T> {
        self.volume.look(|engine, nodes| {
            let ancestry = engine.state().versions().ancestry(view)?;
            look(engine, ancestry, nodes)
        })
    }

    /// As [`Self::look_from`], for the pages of `list`.
    fn look_at_pages<T>(
        &self,
        view: View,
        list: Lid,
        mut look: impl FnMut(&Engine, Ancestry<'_>, &dyn Nodes) -> Outcome<T>,
    ) -> Result<T> {
        self.look_from(view, |engine, ancestry, nodes| {
            check_settled(engine, view, list)?;
            look(engine, ancestry, nodes)
        })
    }

    pub(crate) fn read_hints(&self, view: View, list: Lid) -> Result<Option<ListHints>> {
        self.look_from(view, |engine, ancestry, nodes| {
            if list >= Lid::CLIENT_END {
                return Ok(None);
            }
            engine.state().list_hints(ancestry, list.0, nodes)
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
                engine.state().map().visit(&start, &end, nodes, &mut |key, _| {
                    found = Some(key.list);
                    ControlFlow::Break(())
                })?;
                let Some(list) = found else { return Ok(None) };
                Ok(Some((list, engine.state().has_list(ancestry, list, nodes)?)))
            })?;
            let Some((list, exists)) = found else { break };
            if exists {
                lists.push(Lid(list));
            }
            next = list + 1;
        }
        Ok(lists)
    }

    #[inline]
    pub(crate) fn read_record(&self, view: View, list: Lid, index: u64) -> Result<Option<Record>> {
        self.look_from(view, |engine, ancestry, nodes| {
            engine.state().record(ancestry, list, index, nodes)
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
        self.volume.look_in_slices(from, |engine, slice, nodes| {
            let ancestry = engine.state().versions().ancestry(view)?;
            if !engine.state().may_have(ancestry, list.0, nodes)? {
                return Ok(());
            }
            engine.state().visit_records(ancestry, list.0, slice, nodes, &mut |index, bytes| {
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
        self.volume.look_in_slices(pages.start / CHUNK_PAGES, |engine, slice, nodes| {
            check_settled(engine, view, list)?;
            let ancestry = engine.state().versions().ancestry(view)?;
            if !engine.state().may_have(ancestry, list.0, nodes)? {
                return Ok(());
            }
            let rest = pages.start.max(slice.next() * CHUNK_PAGES)..pages.end;
            engine.state().visit_chunks(
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

    pub(crate) fn scan(
        &self,
        view: View,
        from: ScanPoint,
        max: usize,
    ) -> Result<(Vec<Scanned>, Option<ScanPoint>)> {
        let mut items = Vec::with_capacity(max.min(SLICE_LEN));
        let mut point = from;
        let scanned = self.volume.walk_slices(&mut point, |engine, point, nodes| {
            check_all_settled(engine, view)?;
            let ancestry = engine.state().versions().ancestry(view)?;
            let is_done = engine.state().scan(ancestry, point, (&mut items, max), nodes)?;
            let ends = is_done || items.len() >= max;
            Ok(if ends { ControlFlow::Break(is_done) } else { ControlFlow::Continue(()) })
        });
        match scanned {
            Ok(is_done) => Ok((items, (!is_done).then_some(point))),
            Err(error) if items.is_empty() => Err(error),
            Err(_) => Ok((items, Some(point))),
        }
    }

    /// See [`LogDisk::page_addr`](crate::LogDisk::page_addr).
    pub(crate) fn page_addr(&self, view: View, list: Lid, page_index: u64) -> Result<Option<u64>> {
        check_range(page_index, 1)?;
        let pages = page_index..page_index + 1;
        self.look_at_pages(view, list, |engine, ancestry, nodes| {
            let mut addr = None;
            if !engine.state().may_have(ancestry, list.0, nodes)? {
                return Ok(addr);
            }
            let mut slice = Slice::whole(0);
            engine.state().visit_chunks(
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

    pub(crate) fn read_range(&self, view: View, range: PageRange, buf: &mut [u8]) -> Result<()> {
        let mut stored = Stored::default();
        self.find_range(view, range, buf, 0, &mut stored)?;
        self.read_stored(stored, buf)
    }

    /// Reads the ranges into `buf`, one after the other. All that lies on the device is read
    /// together.
    pub(crate) fn read_ranges(
        &self,
        view: View,
        ranges: &[PageRange],
        buf: &mut [u8],
    ) -> Result<()> {
        let mut stored = Stored::default();
        let mut rest_at = 0;
        for range in ranges {
            let end = rest_at + range.count as usize * PAGE_SIZE;
            self.find_range(view, *range, &mut buf[rest_at..end], rest_at, &mut stored)?;
            rest_at = end;
        }
        self.read_stored(stored, buf)
    }

    /// Fills `buf` with the pages of `range`, as far as they are in memory, and adds the others to
    /// `stored`. `buf` begins at `buf_at` in the buffer that those are read into.
    #[inline]
    fn find_range(
        &self,
        view: View,
        range: PageRange,
        buf: &mut [u8],
        buf_at: usize,
        stored: &mut Stored,
    ) -> Result<()> {
        let PageRange { list, first_page, count } = range;
        check_range(first_page, count)?;
        let pages = first_page..first_page + count;
        let may_be_recent = count <= MAX_RECENT_PAGES;
        let recent = |engine: &Engine, block: &PageRef| {
            if may_be_recent { engine.recent_block(block) } else { None }
        };
        let before = (stored.fetches.len(), stored.packed.len(), stored.frames.len());
        self.look_at_pages(view, list, |engine, ancestry, nodes| {
            stored.fetches.truncate(before.0);
            stored.packed.truncate(before.1);
            stored.frames.truncate(before.2);
            let mut filled = 0;
            if !engine.state().may_have(ancestry, list.0, nodes)? {
                buf.fill(0);
                return Ok(());
            }
            let mut slice = Slice::whole(0);
            engine.state().visit_chunks(
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
                            continue;
                        }
                        if block.is_in_frame() {
                            let frames = (&mut stored.frames, before.2);
                            add_to_frame(engine, list, (page_index, block, buf_at + at), frames);
                            continue;
                        }
                        let len = usize::from(block.len_bytes);
                        let in_memory = engine
                            .block_in_memory(block.addr, len)
                            .or_else(|| engine.block_lately_written(&block));
                        // What is kept is the page itself.
                        if (in_memory.is_none() || block.compression != 0)
                            && let Some(bytes) = recent(engine, &block)
                        {
                            page[..bytes.len()].copy_from_slice(&bytes);
                            page[bytes.len()..].fill(0);
                            continue;
                        }
                        if block.compression != 0 {
                            stored.packed.push((list, page_index, block, buf_at + at));
                        }
                        if let Some(found) = in_memory {
                            page[..found.len()].copy_from_slice(found);
                            page[found.len()..].fill(0);
                        } else {
                            let pin = engine.state().segments().pin(block.addr);
                            let fetch = Fetch::new(list, page_index, block, buf_at + at, pin);
                            stored.fetches.push(fetch);
                        }
                    }
                    ControlFlow::Continue(())
                },
            )?;
            buf[filled..].fill(0);
            Ok(())
        })
    }

    /// Reads what was found on the device, and unpacks what is compressed.
    fn read_stored(&self, stored: Stored, buf: &mut [u8]) -> Result<()> {
        if !stored.fetches.is_empty() {
            self.device_reads.fetch_add(1, Ordering::Relaxed);
        }
        self.volume.fetch(&stored.fetches, buf)?;
        if !stored.frames.is_empty() {
            self.read_frames(stored.frames, buf)?;
        }
        // That takes time, so it is done without the lock.
        stored.packed.iter().try_for_each(|(list, page_index, block, at)| {
            let page = &mut buf[*at..*at + PAGE_SIZE];
            self.volume.unpack_in_place(*list, *page_index, block, page)
        })
    }

    /// Reads frames, each once, and puts their pages to their places in `buf`.
    #[inline(never)]
    fn read_frames(&self, mut frames: Vec<Frame>, buf: &mut [u8]) -> Result<()> {
        let mut scratch = AlignedBuf::zeroed(frames.len() * MAX_FRAME_LEN_BYTES);
        let rooms = (0..).step_by(MAX_FRAME_LEN_BYTES);
        let fetch = |(frame, at): (&mut Frame, usize)| {
            let pin = frame.pin.take()?;
            let (page_index, block, _) = frame.pages[0];
            Some(Fetch::new(frame.list, page_index, block, at, pin))
        };
        let fetches: Vec<Fetch> = frames.iter_mut().zip(rooms).filter_map(fetch).collect();
        if !fetches.is_empty() {
            self.device_reads.fetch_add(1, Ordering::Relaxed);
        }
        self.volume.fetch(&fetches, &mut scratch)?;
        frames.iter().zip(scratch.chunks(MAX_FRAME_LEN_BYTES)).try_for_each(|(frame, room)| {
            let Frame { list, in_memory, pages, .. } = frame;
            let block = &pages[0].1;
            let read = &room[..usize::from(block.len_bytes)];
            let stored = in_memory.as_deref().unwrap_or(read);
            self.volume.unpack_frame(*list, block, stored, pages, buf)
        })
    }
}

/// Checks that nobody rearranges the pages of `list`.
///
/// # Errors
/// [`Fault::Rearranged`].
pub(crate) fn check_settled(engine: &Engine, view: View, list: Lid) -> Outcome<()> {
    match view.epoch.is_none() && engine.state().is_rearranged(view.branch, list.0) {
        true => Err(Fault::Rearranged),
        false => Ok(()),
    }
}

/// As [`check_settled`], for the pages of all lists.
pub(crate) fn check_all_settled(engine: &Engine, view: View) -> Outcome<()> {
    let rearrangement = engine.state().versions().rearrangement();
    match view.epoch.is_none() && rearrangement.is_some_and(|of| of.branch == view.branch) {
        true => Err(Fault::Rearranged),
        false => Ok(()),
    }
}

/// A frame of which pages are wanted.
struct Frame {
    list: Lid,
    /// What is stored, if that is in memory; otherwise its segment is pinned.
    in_memory: Option<Vec<u8>>,
    pin: Option<Pin>,
    /// The wanted pages, at least one, with their places in the reader's buffer.
    pages: Vec<(u64, PageRef, usize)>,
}

/// Adds a page to the last one of `frames` if it lies in that, or else its frame; those before
/// `first` belong to another range.
fn add_to_frame(
    engine: &Engine,
    list: Lid,
    page: (u64, PageRef, usize),
    (frames, first): (&mut Vec<Frame>, usize),
) {
    let block = page.1;
    if let Some(last) = frames[first..].last_mut()
        && last.pages[0].1.shares_frame_with(&block)
    {
        last.pages.push(page);
        return;
    }
    let in_memory = engine.block_in_memory(block.addr, usize::from(block.len_bytes));
    let in_memory = in_memory.map(<[u8]>::to_vec);
    let pin = in_memory.is_none().then(|| engine.state().segments().pin(block.addr));
    frames.push(Frame { list, in_memory, pin, pages: vec![page] });
}

/// Pages that the map has named: where they lie, and their places in the reader's buffer.
#[derive(Default)]
struct Stored {
    fetches: Vec<Fetch>,
    /// Those that are compressed, on the device or in memory.
    packed: Vec<(Lid, u64, PageRef, usize)>,
    frames: Vec<Frame>,
}
