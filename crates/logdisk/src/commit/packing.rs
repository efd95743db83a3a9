//! Compressing a unit's pages, before the engine's lock is taken.

use std::iter;
use std::ops::Range;

use dendro_base::units::{GRAIN_SIZE, PAGE_SIZE, align_up_usize};
use dendro_disk::{Aru, Lid, ListCompression, ListHints, Op, Result, View};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::compression::{Compression, Packer};
use dendro_format::superblock::{INCOMPATIBLE_COMPRESSION, INCOMPATIBLE_FRAMES};
use smallvec::SmallVec;

use crate::fault::Outcome;
use crate::log::partial::{Content, without_zeros};
use crate::volume::Volume;

/// The pages of a unit that are stored compressed.
pub(super) struct Packed {
    bytes: Vec<u8>,
    /// For each page of the unit its place in `bytes`, if it is compressed.
    pages: Vec<Option<(Range<usize>, Compression)>>,
}

impl Packed {
    /// What is stored of these pages, which are all of the unit, in its order.
    #[inline(never)]
    pub(super) fn contents<'a>(
        &'a self,
        pages: impl Iterator<Item = &'a [u8]>,
    ) -> SmallVec<[Content<'a>; 1]> {
        // Pages after the last compressed one may not be listed.
        let packed = self.pages.iter().map(Option::as_ref).chain(iter::repeat(None));
        let content = |(page, packed): (&'a [u8], Option<&'a (Range<usize>, Compression)>)| {
            packed.map_or_else(
                || Content::of_page(page),
                |(range, with)| Content::compressed(&self.bytes[range.clone()], *with),
            )
        };
        pages.zip(packed).map(content).collect()
    }

    /// Adds pages of one list, some of which may be compressed.
    fn add(&mut self, with: Compression, first_page: u64, data: &[u8], tries: &mut Tries<'_>) {
        let mut page_index = first_page;
        let mut rest = data;
        while !rest.is_empty() {
            let count = (CHUNK_PAGES - page_index % CHUNK_PAGES) as usize;
            let (group, others) = rest.split_at(rest.len().min(count * PAGE_SIZE));
            self.add_group(with, group, tries);
            page_index += count as u64;
            rest = others;
        }
    }

    /// Adds pages of one chunk.
    fn add_group(&mut self, with: Compression, group: &[u8], tries: &mut Tries<'_>) {
        let (first, start) = (self.pages.len(), self.bytes.len());
        let mut saved_bytes = 0;
        for page in group.chunks(PAGE_SIZE) {
            let content = without_zeros(page);
            let from = self.bytes.len();
            let is_packed = !content.is_empty() && tries.pack(with, content, &mut self.bytes);
            let range = from..self.bytes.len();
            saved_bytes +=
                if is_packed { footprint(content.len()) - footprint(range.len()) } else { 0 };
            self.pages.push(is_packed.then_some((range, with)));
        }
        // Whole pages begin at blocks of the device, so few shorter blocks among them save nothing.
        if saved_bytes < PAGE_SIZE && group.len() > PAGE_SIZE {
            self.bytes.truncate(start);
            self.pages[first..].fill(None);
        }
    }
}

const fn footprint(len_bytes: usize) -> usize {
    align_up_usize(len_bytes, GRAIN_SIZE)
}

/// Compresses pages of one list, unless that has often gained nothing.
struct Tries<'a> {
    volume: &'a Volume,
    packer: &'a mut Packer,
    list: Lid,
}

impl Tries<'_> {
    fn pack(&mut self, with: Compression, content: &[u8], out: &mut Vec<u8>) -> bool {
        let compressors = self.volume.compressors();
        if !compressors.new_doubts().is_worth_trying(self.list) {
            return false;
        }
        let is_packed = self.packer.pack(with, content, out);
        compressors.new_doubts().note_tried(self.list, is_packed);
        is_packed
    }
}

impl Volume {
    /// Compresses those pages of a unit that are to be compressed and gain by that. `None`: there
    /// are none.
    ///
    /// # Errors
    /// The hints of a list cannot be read.
    #[inline]
    pub(super) fn pack(&self, aru: &Aru<'_>) -> Result<Option<Packed>> {
        let asks = aru.ops().iter().any(asks_for_compression);
        if asks || self.compressors().may_compress() {
            self.pack_if_marked(aru, asks)
        } else {
            Ok(None)
        }
    }

    #[inline(never)]
    fn pack_if_marked(&self, aru: &Aru<'_>, asks: bool) -> Result<Option<Packed>> {
        let writes = aru.ops().iter().any(|op| matches!(op, Op::WritePages { .. }));
        let packed = if writes { self.pack_pages(aru)? } else { None };
        if packed.is_none() && !asks {
            return Ok(None);
        }
        // What older software cannot read follows. If that cannot be stated, as on a full host, or
        // on a disk that takes no changes, nothing is compressed.
        let may_compress = self.mark_compression(false).is_ok();
        Ok(packed.filter(|_| may_compress))
    }

    /// States on the device that blocks may be compressed, and with `has_frames` that they may be
    /// frames.
    ///
    /// # Errors
    /// The disk takes no changes, or as [`Self::mark_features`].
    pub(crate) fn mark_compression(&self, has_frames: bool) -> Result<()> {
        let frames = if has_frames { INCOMPATIBLE_FRAMES } else { 0 };
        let features = INCOMPATIBLE_COMPRESSION | frames;
        let compressors = self.compressors();
        if !compressors.are_marked(features) {
            self.check_writable(&self.read())?;
            self.mark_features(features)?;
            compressors.note_marked(features);
        }
        Ok(())
    }

    fn pack_pages(&self, aru: &Aru<'_>) -> Result<Option<Packed>> {
        let mut packed = Packed { bytes: Vec::new(), pages: Vec::new() };
        let mut last = None;
        for (at, op) in aru.ops().iter().enumerate() {
            let Op::WritePages { list, first_page, data } = op else { continue };
            let with = match last {
                Some((of, with)) if of == *list => with,
                _ => self.compression_of(aru, at, *list)?,
            };
            last = Some((*list, with));
            match with {
                None => {
                    let count = packed.pages.len() + data.len().div_ceil(PAGE_SIZE);
                    packed.pages.resize(count, None);
                }
                Some(with) => self.compressors().packers.with(|packer| {
                    let mut tries = Tries { volume: self, packer, list: *list };
                    packed.add(with, *first_page, data, &mut tries);
                }),
            }
        }
        Ok((!packed.bytes.is_empty()).then_some(packed))
    }

    /// How the pages are compressed that the operation at `at` of a unit writes to a list.
    fn compression_of(&self, aru: &Aru<'_>, at: usize, list: Lid) -> Result<Option<Compression>> {
        let before = aru.ops()[..at].iter().rev().filter_map(hints_of);
        let hints = match before.clone().find(|(of, _)| *of == list) {
            Some((_, hints)) => hints,
            None => self.hints_of(aru.view(), list)?.unwrap_or_default(),
        };
        Ok(self.compressors().choose(hints.compression))
    }

    fn hints_of(&self, view: View, list: Lid) -> Result<Option<ListHints>> {
        self.look(|engine, nodes| -> Outcome<_> {
            let ancestry = engine.state().versions().ancestry(view)?;
            engine.state().list_hints(ancestry, list.0, nodes)
        })
    }
}

/// Whether an operation puts a list near another.
#[inline]
pub(super) const fn names_a_neighbour(op: &Op<'_>) -> bool {
    match hints_of(op) {
        Some((_, hints)) => hints.near.is_some(),
        None => false,
    }
}

/// Whether an operation makes a list one whose pages are to be compressed.
const fn asks_for_compression(op: &Op<'_>) -> bool {
    match hints_of(op) {
        Some((_, hints)) => {
            matches!(hints.compression, ListCompression::Lz4 | ListCompression::Zstd)
        }
        None => false,
    }
}

/// The list whose hints an operation sets, and the hints.
#[inline]
const fn hints_of(op: &Op<'_>) -> Option<(Lid, ListHints)> {
    match *op {
        Op::CreateList { list, hints }
        | Op::RestoreList { list, hints }
        | Op::SetHints { list, hints } => Some((list, hints)),
        _ => None,
    }
}
