//! Frames: pages that lie side by side in a list and are moved together are compressed together
//! where that takes less room than each alone. A frame of which pages are gone is opened and made
//! anew of those that are left.

use std::ops::Range;

use dendro_base::units::PAGE_SIZE;
use dendro_format::chunk::MAX_FRAME_LEN_BYTES;
use dendro_format::{PageRef, checksum};

use super::named_page::NamedPage;
use super::packed::{LEAST_SAVED_PART, Packed, Place, footprint, may_gain};
use crate::compression::Recompression;
use crate::log::partial::Content;
use crate::volume::Volume;

/// What becomes of a page's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is no frame.
    Alone,
    /// It is a frame that stays.
    Kept,
    /// It is a frame whose pages are stored anew.
    Opened,
    /// It cannot be decompressed. It stays as it is, so that the damage is not hidden.
    Damaged,
}

/// Blocks of one chunk that are moved together.
pub(super) struct Group<'a> {
    volume: &'a Volume,
    how: &'a Recompression,
    pub(super) blocks: &'a [(NamedPage, Content<'a>)],
    opens_frames: bool,
    fates: Vec<Fate>,
    pages: Vec<[u8; PAGE_SIZE]>,
}

impl<'a> Group<'a> {
    /// Blocks of one chunk, at least one.
    pub(super) const fn new(
        volume: &'a Volume,
        how: &'a Recompression,
        blocks: &'a [(NamedPage, Content<'a>)],
        opens_frames: bool,
    ) -> Self {
        Self { volume, how, blocks, opens_frames, fates: Vec::new(), pages: Vec::new() }
    }

    /// Whether some block may become smaller, alone or with others.
    pub(super) fn may_gain(&self) -> bool {
        let may_join = self.blocks.len() > 1;
        self.blocks.iter().any(|(block, _)| match block.page.is_in_frame() {
            true => self.opens_frames && !self.is_settled(&block.page),
            false => may_gain(self.how, &block.page) || (may_join && !self.is_settled(&block.page)),
        })
    }

    /// Whether nothing else was found for a block when it was moved last. For a frame this holds as
    /// long as it keeps its pages.
    fn is_settled(&self, page: &PageRef) -> bool {
        self.how.is_settled(self.settled_as(page))
    }

    fn settled_as(&self, page: &PageRef) -> u32 {
        if !page.is_in_frame() {
            return page.crc32c;
        }
        settled_frame(page.crc32c, self.sharing(page).count())
    }

    /// The pages of the frame of `page`.
    fn sharing(&self, page: &PageRef) -> impl Iterator<Item = usize> {
        let shares = |(_, (block, _)): &(usize, &(NamedPage, Content<'_>))| {
            block.page.shares_frame_with(page)
        };
        self.blocks.iter().enumerate().filter(shares).map(|(at, _)| at)
    }

    /// Decompresses the blocks, and decides which frames are opened.
    pub(super) fn unpack(&mut self) {
        self.pages = vec![[0; PAGE_SIZE]; self.blocks.len()];
        self.fates = vec![Fate::Damaged; self.blocks.len()];
        self.volume.compressors().unpackers.with(|unpacker| {
            for (at, (block, content)) in self.blocks.iter().enumerate() {
                let (page, stored) = (&block.page, content.bytes());
                if !page.is_in_frame() {
                    if unpacker.unpack(page, stored, &mut self.pages[at]).is_ok() {
                        self.fates[at] = Fate::Alone;
                    }
                } else if self.sharing(page).next() == Some(at)
                    && let Ok(frame) = unpacker.unpack_frame(page, stored)
                {
                    let left: Vec<usize> = self.sharing(page).collect();
                    let is_worth_it =
                        left.len() < frame.count() || self.how.is_harder(page.compression);
                    let opens = self.opens_frames && is_worth_it && !self.is_settled(page);
                    for at in left {
                        if let Ok(bytes) = frame.page(&self.blocks[at].0.page) {
                            self.pages[at].copy_from_slice(bytes);
                            self.fates[at] = if opens { Fate::Opened } else { Fate::Kept };
                        }
                    }
                }
            }
        });
    }

    /// The page at `at`, if what is stored of it may be replaced.
    pub(super) fn page(&self, at: usize) -> Option<&[u8; PAGE_SIZE]> {
        matches!(self.fates[at], Fate::Alone | Fate::Opened).then(|| &self.pages[at])
    }

    pub(super) fn is_opened(&self, at: usize) -> bool {
        self.fates[at] == Fate::Opened
    }

    pub(super) fn opens_any(&self) -> bool {
        self.fates.contains(&Fate::Opened)
    }

    /// Bytes that the blocks take.
    pub(super) fn len_bytes(&self) -> usize {
        self.len_bytes_with(&vec![None; self.blocks.len()])
    }

    /// Bytes that the blocks will take with what is to be stored instead.
    pub(super) fn len_bytes_with(&self, places: &[Option<Place>]) -> usize {
        let len = |at: usize| match &places[at] {
            Some(Place::InFrame(_, index)) if *index > 0 => 0,
            Some(Place::InFrame(range, _) | Place::Alone(range) | Place::Plain(range)) => {
                footprint(range.len())
            }
            None => {
                let page = &self.blocks[at].0.page;
                // A frame counts with the first page that stays in it.
                let first = self.sharing(page).find(|at| places[*at].is_none());
                if first.is_none_or(|first| first == at) {
                    page.footprint_bytes() as usize
                } else {
                    0
                }
            }
        };
        (0..self.blocks.len()).map(len).sum()
    }

    /// Notes that nothing better will be found for what is stored of the pages now, as long as
    /// frames keep their pages.
    pub(super) fn note_settled(&self, places: &[Option<Place>], bytes: &[u8]) {
        for (at, (block, _)) in self.blocks.iter().enumerate() {
            self.how.settle(self.settled_as(&block.page));
            if let Some(Place::InFrame(range, 0)) = &places[at] {
                let is_in_it = |place: &&Option<Place>| matches!(place, Some(Place::InFrame(other, _)) if other == range);
                let count = places.iter().filter(is_in_it).count();
                self.how.settle(settled_frame(checksum(&bytes[range.clone()]), count));
            }
        }
    }
}

/// By what it is known that nothing better is found for a frame of which so many pages are left.
const fn settled_frame(crc32c: u32, page_count: usize) -> u32 {
    crc32c.wrapping_add((page_count as u32).wrapping_mul(0x9e37_79b9))
}

/// Puts pages of a group into frames where that takes less than what `places` says of them.
pub(super) fn frames_of(to: &mut Packed, group: &Group<'_>, places: &mut [Option<Place>]) {
    let mut at = 0;
    while at < places.len() {
        let run = at..run_end(group, places, at);
        at = run.end.max(at + 1);
        let is_open = |at: &usize| {
            let page = &group.blocks[*at].0.page;
            group.is_opened(*at) || places[*at].is_some() || !group.is_settled(page)
        };
        if run.len() > 1 && run.clone().any(|at| is_open(&at)) {
            frames_of_run(to, group, run, places);
        }
    }
}

/// The end of the pages from `at` on that lie side by side and take less than a page each.
fn run_end(group: &Group<'_>, places: &[Option<Place>], at: usize) -> usize {
    let first = group.blocks[at].0.page_index;
    let is_in_run = |other: &usize| {
        let is_next = group.blocks[*other].0.page_index - first == (other - at) as u64;
        is_next && group.page(*other).is_some() && len_alone(group, places, *other) < PAGE_SIZE
    };
    at + (at..places.len()).take_while(is_in_run).count()
}

/// Bytes that the page at `at` takes alone.
fn len_alone(group: &Group<'_>, places: &[Option<Place>], at: usize) -> usize {
    match &places[at] {
        Some(Place::Alone(range) | Place::Plain(range) | Place::InFrame(range, _)) => {
            footprint(range.len())
        }
        None => group.blocks[at].0.page.footprint_bytes() as usize,
    }
}

/// Makes frames of pages that lie side by side, each of as many as fit.
fn frames_of_run(
    to: &mut Packed,
    group: &Group<'_>,
    mut run: Range<usize>,
    places: &mut [Option<Place>],
) {
    while run.len() > 1 {
        let Some((bytes, count)) = frame_from(to, group, run.clone()) else {
            run.start += 1;
            continue;
        };
        let of_frame = run.start..run.start + count;
        run.start += count;
        let alone = of_frame.clone().map(|at| len_alone(group, places, at)).sum::<usize>();
        if footprint(bytes.len()) > alone - alone / LEAST_SAVED_PART {
            to.bytes.truncate(bytes.start);
            continue;
        }
        for (index, at) in of_frame.enumerate() {
            places[at] = Some(Place::InFrame(bytes.clone(), index as u32));
        }
    }
}

/// Appends a frame of the first pages of a run, as many as fit. Returns its place, and how many
/// they are: two or more.
fn frame_from(
    to: &mut Packed,
    group: &Group<'_>,
    run: Range<usize>,
) -> Option<(Range<usize>, usize)> {
    let compressors = group.volume.compressors();
    let mut count = run.len();
    while count > 1 {
        let pages = group.pages[run.start..run.start + count].as_flattened();
        let from = to.bytes.len();
        let len =
            compressors.packers.with(|packer| packer.pack_frame(to.with, pages, &mut to.bytes))?;
        if len <= MAX_FRAME_LEN_BYTES {
            let bytes = from..to.bytes.len();
            if to.is_frame_right(group.volume, &bytes, pages) {
                return Some((bytes, count));
            }
        }
        to.bytes.truncate(from);
        count = (count - 1).min(count * MAX_FRAME_LEN_BYTES / len);
    }
    None
}
