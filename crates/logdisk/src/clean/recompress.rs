//! Compressing what is moved: what has survived so far is cold, and is worth more time than what
//! was just written; or a client asks for it. This runs without the engine's lock.

use std::ops::Range;

use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Lid, ListCompression, Result};
use dendro_format::{PageRef, checksum};

use super::frames::{Group, frames_of};
use super::named_page::NamedPage;
use super::packed::{LEAST_SAVED_PART, Packed, Place, footprint, may_gain};
use crate::compression::Recompression;
use crate::fault::Outcome;
use crate::log::partial::{Content, stored_len};
use crate::space::reserve::Accounts;
use crate::volume::Volume;

/// Blocks that are about to be moved, with their contents.
type Moving<'a> = Vec<(NamedPage, Content<'a>)>;

/// Contents that take less room than what is stored.
pub(super) struct Recompressed<'a> {
    how: &'a Recompression,
    packed: Packed,
    /// The place there of each of the blocks that is stored in another way.
    places: Vec<Option<Place>>,
}

impl<'a> Recompressed<'a> {
    /// Compresses blocks harder than they are, unless their list is not to be compressed. `None`:
    /// no block becomes smaller. While clean segments are so few that commits assist cleaning,
    /// blocks are left as they are unless a client asks for it: nobody is to wait for it. Pages are
    /// taken out of frames only if `opens_frames`: then all pages of a frame that are left must be
    /// among the blocks.
    ///
    /// What becomes smaller may be stored after [`Self::mark`].
    pub(super) fn of(
        volume: &Volume,
        accounts: &Accounts,
        how: &'a Recompression,
        blocks: &[(NamedPage, Content<'_>)],
        opens_frames: bool,
    ) -> Option<Self> {
        let places = Vec::with_capacity(blocks.len());
        let mut all = Self { how, packed: Packed::new(how.with()), places };
        for chunk in blocks.chunk_by(|(a, _), (b, _)| a.is_in_chunk_of(b)) {
            // Who is asked for it has looked.
            if !how.is_asked_for() && is_urgent(volume, accounts) {
                break;
            }
            // Blocks of a list that cannot be read are moved all the same.
            let group = Group::new(volume, how, chunk, opens_frames);
            if group.may_gain() && volume.may_be_compressed(&chunk[0].0).unwrap_or(false) {
                all.add_group(volume, group, opens_frames);
            } else {
                all.places.resize(all.places.len() + chunk.len(), None);
            }
        }
        all.places.resize(blocks.len(), None);
        all.gains_at(0..blocks.len()).then_some(all)
    }

    /// States on the device that there are such blocks, before they are stored.
    ///
    /// # Errors
    /// As [`Volume::mark_compression`]. The blocks must stay as they are then.
    pub(super) fn mark(&self, volume: &Volume) -> Result<()> {
        let is_framed = |place: &Option<Place>| matches!(place, Some(Place::InFrame(..)));
        volume.mark_compression(self.places.iter().any(is_framed))
    }

    /// Whether one of these blocks became smaller.
    pub(super) fn gains_at(&self, blocks: Range<usize>) -> bool {
        self.places[blocks].iter().any(Option::is_some)
    }

    /// The blocks with the contents that became smaller.
    pub(super) fn in_place_of<'b>(&'b self, blocks: &[(NamedPage, Content<'b>)]) -> Moving<'b> {
        let pairs = blocks.iter().zip(&self.places);
        let moved = pairs.map(|((block, stored), place)| {
            (*block, place.as_ref().map_or(*stored, |place| self.packed.content(place)))
        });
        moved.collect()
    }

    /// Adds blocks of one chunk.
    fn add_group(&mut self, volume: &Volume, mut group: Group<'_>, opens_frames: bool) {
        let start = self.packed.bytes.len();
        group.unpack();
        let mut places = self.each_alone(volume, &group);
        frames_of(&mut self.packed, &group, &mut places);
        self.keep_whole(&group, &mut places);
        if group.opens_any() && group.len_bytes_with(&places) >= group.len_bytes() {
            // What leaves a frame takes more than it gives back.
            self.packed.bytes.truncate(start);
            debug_assert!(opens_frames, "or none would be opened");
            let group = Group::new(volume, self.how, group.blocks, false);
            return self.add_group(volume, group, false);
        }
        group.note_settled(&places, &self.packed.bytes);
        self.places.append(&mut places);
    }

    /// What is to be stored of each page of a group if it is alone.
    fn each_alone(&mut self, volume: &Volume, group: &Group<'_>) -> Vec<Option<Place>> {
        let place = |(at, (block, _)): (usize, &(NamedPage, Content<'_>))| {
            let page = group.page(at)?;
            if !group.is_opened(at) {
                return self.pack(volume, block, page).map(Place::Alone);
            }
            let from = self.packed.bytes.len();
            let packed = self.packed.pack_alone(volume, page);
            Some(packed.map(Place::Alone).unwrap_or_else(|| {
                // A page of zeros has a block as long as it is one in a frame.
                self.packed.bytes.extend_from_slice(&page[..stored_len(page).max(1)]);
                Place::Plain(from..self.packed.bytes.len())
            }))
        };
        group.blocks.iter().enumerate().map(place).collect()
    }

    /// Whole pages begin at blocks of the device, so few shorter blocks among them save nothing:
    /// they stay whole if they do not save a page together.
    fn keep_whole(&self, group: &Group<'_>, places: &mut [Option<Place>]) {
        let mut saved_bytes = 0;
        for ((block, _), place) in group.blocks.iter().zip(&*places) {
            match place {
                // A frame is worth it by itself.
                Some(Place::InFrame(..)) => return,
                Some(Place::Alone(range)) if block.page.is_whole() => {
                    saved_bytes += PAGE_SIZE - footprint(range.len());
                }
                _ => {}
            }
        }
        if saved_bytes >= PAGE_SIZE || group.blocks.len() == 1 {
            return;
        }
        for ((block, _), place) in group.blocks.iter().zip(places) {
            if block.page.is_whole() && place.take().is_some() {
                self.how.settle(block.page.crc32c);
            }
        }
    }

    /// Appends the compressed form of a block to the bytes, if it takes less than what is stored.
    fn pack(
        &mut self,
        volume: &Volume,
        block: &NamedPage,
        page: &[u8; PAGE_SIZE],
    ) -> Option<Range<usize>> {
        let (how, list) = (self.how, Lid(block.list));
        if !may_gain(how, &block.page) || !how.is_worth_trying(list) {
            return None;
        }
        let packed = self.packed.pack_alone(volume, page);
        let gains = packed.clone().filter(|place| self.saves(&block.page, place.len()));
        how.note_tried(list, gains.is_some());
        // What did not become smaller will not, nor will what became as small as this makes it.
        let settled = match &gains {
            Some(place) => checksum(&self.packed.bytes[place.clone()]),
            None => block.page.crc32c,
        };
        how.settle(settled);
        if let (Some(packed), None) = (packed, &gains) {
            self.packed.bytes.truncate(packed.start);
        }
        gains
    }

    /// Whether so many bytes are enough less than a block takes.
    fn saves(&self, block: &PageRef, len_bytes: usize) -> bool {
        let (before, after) = (block.footprint_bytes() as usize, footprint(len_bytes));
        let is_same_kind = block.compression == self.packed.with.kind();
        after < before && (is_same_kind || after <= before - before / LEAST_SAVED_PART)
    }
}

/// Whether cleaning must not take longer than it has to: commits assist it, or somebody waits for
/// the segments that are left.
fn is_urgent(volume: &Volume, accounts: &Accounts) -> bool {
    let engine = volume.read();
    let ready = accounts.scarce_segments(&engine).saturating_add(accounts.pace_segments());
    accounts.is_claimed() || engine.state().segments().clean_count() < ready
}

impl Volume {
    /// Whether the list of a page may be compressed: as the head of its branch has it, or, where
    /// that does not have the list, as the version in which it was written.
    fn may_be_compressed(&self, page: &NamedPage) -> Result<bool> {
        let (branch, epoch) = page.version;
        self.look(|engine, nodes| -> Outcome<_> {
            let (state, versions) = (engine.state(), engine.state().versions());
            let in_head = match versions.head_ancestry(branch) {
                Ok(head) => state.list_hints(head, page.list, nodes)?,
                Err(_) => None,
            };
            let hints = match in_head {
                Some(hints) => Some(hints),
                None => {
                    state.list_hints(versions.tree().ancestry(branch, epoch), page.list, nodes)?
                }
            };
            Ok(hints.is_some_and(|hints| hints.compression != ListCompression::Never))
        })
    }
}

#[cfg(test)]
mod tests {
    use dendro_base::Rng;
    use dendro_disk::{Aru, ListHints, LogicalDisk, Op, View};
    use dendro_format::compression::{Compression, Unpacker};

    use super::*;
    use crate::disk::LogDisk;
    use crate::testing::{disk_in_memory, make_list};
    use crate::{CleanSettings, OpenOptions};

    const ZSTD: Compression = Compression::Zstd { level: 9 };

    fn disk() -> LogDisk {
        let options = OpenOptions { cold_compression: Some(Some(ZSTD)), ..OpenOptions::default() };
        disk_in_memory(16, 128, options)
    }

    fn noise(seed: u64) -> Vec<u8> {
        let mut page = vec![0; PAGE_SIZE];
        Rng::new(seed).fill(&mut page);
        page
    }

    fn text(seed: u64) -> Vec<u8> {
        let lines = (0..).flat_map(|line: u64| format!("line {line} of {seed}\n").into_bytes());
        lines.take(PAGE_SIZE).collect()
    }

    /// What moving a list's pages, which are stored as `pages` with these kinds of compression,
    /// stores of them.
    fn recompress(disk: &LogDisk, list: Lid, pages: &[(u8, Vec<u8>)]) -> Vec<(u8, Vec<u8>)> {
        // They do not lie side by side, so none are put into frames.
        let indexes = (0..).step_by(2);
        let named = pages.iter().zip(indexes).map(|((compression, stored), page_index)| {
            let page = PageRef {
                len_bytes: stored.len() as u16,
                compression: *compression,
                crc32c: checksum(stored),
                ..PageRef::ZERO
            };
            let block = NamedPage { list: list.0, page_index, version: (0, 1), page };
            (block, Content::stored(stored, &page))
        });
        let named: Vec<_> = named.collect();
        let how = disk.volume().compressors().cold().expect("the options name it");
        let Some(found) = Recompressed::of(disk.volume(), disk.accounts(), how, &named, true)
        else {
            return pages.to_vec();
        };
        let moved = found.in_place_of(&named);
        let stored = moved.iter().zip(&found.places).zip(pages);
        let kind = |is_new: bool, before: u8| if is_new { ZSTD.kind() } else { before };
        stored
            .map(|(((_, content), place), (before, _))| {
                (kind(place.is_some(), *before), content.bytes().to_vec())
            })
            .collect()
    }

    /// How often in a row compressing pages of a list has gained nothing.
    fn doubt(disk: &LogDisk, list: Lid) -> u8 {
        disk.volume().compressors().cold().map_or(0, |how| how.in_vain(list))
    }

    #[test]
    fn what_does_not_become_smaller_is_not_tried_again() {
        let disk = disk();
        let list = make_list(&disk);
        let pages: Vec<_> = (0..8).map(|seed| (0, noise(seed))).collect();
        assert_eq!(recompress(&disk, list, &pages), pages);
        assert_eq!(doubt(&disk, list), 8);
        assert_eq!(recompress(&disk, list, &pages), pages);
        assert_eq!(doubt(&disk, list), 8, "nothing was tried");
        // What is new in the list is.
        let texts: Vec<_> = (0..8).map(|seed| (0, text(seed))).collect();
        let smaller = recompress(&disk, list, &texts);
        assert!(smaller.iter().all(|(kind, stored)| *kind == 2 && stored.len() < 2000));
        for ((compression, stored), (_, page)) in smaller.iter().zip(&texts) {
            let (len_bytes, compression) = (stored.len() as u16, *compression);
            let block = PageRef { len_bytes, compression, ..PageRef::ZERO };
            let mut again = vec![1; PAGE_SIZE];
            Unpacker::new().unpack(&block, stored, &mut again).unwrap();
            assert!(again == *page);
        }
        // It is as small as it gets then.
        assert_eq!(recompress(&disk, list, &smaller), smaller);
        assert_eq!(doubt(&disk, list), 0, "nothing was tried");
    }

    #[test]
    fn pages_that_save_less_than_a_page_together_stay_whole_and_are_not_tried_again() {
        let disk = disk();
        let list = make_list(&disk);
        let mut pages: Vec<_> = (0..8).map(|seed| (0, noise(seed))).collect();
        pages[3].1[2048..].fill(1);
        assert_eq!(recompress(&disk, list, &pages), pages);
        let before = doubt(&disk, list);
        assert_eq!(recompress(&disk, list, &pages), pages);
        assert_eq!(doubt(&disk, list), before, "nothing was tried");
        // Alone it takes less.
        pages[3].1[2047] ^= 1;
        assert_ne!(recompress(&disk, list, &pages[3..4]), pages[3..4]);
    }

    #[test]
    fn what_is_no_page_stays_as_it_is() {
        let disk = disk();
        let list = make_list(&disk);
        for kind in [1, 2] {
            let garbage = vec![(kind, noise(kind.into())[..3000].to_vec())];
            assert_eq!(recompress(&disk, list, &garbage), garbage);
        }
    }

    #[test]
    fn blocks_are_left_while_clean_segments_are_few_or_claimed_and_if_their_list_is() {
        let disk = disk();
        let list = make_list(&disk);
        let texts: Vec<_> = (0..8).map(|seed| (0, text(seed))).collect();
        {
            let _claim = disk.accounts().claim();
            assert_eq!(recompress(&disk, list, &texts), texts);
        }
        let urgent = CleanSettings { min_clean_segments: Some(1000), ..CleanSettings::default() };
        disk.accounts().set_clean_settings(urgent);
        assert_eq!(recompress(&disk, list, &texts), texts);
        disk.accounts().set_clean_settings(CleanSettings::default());
        let mut aru = Aru::new(View::HEAD);
        let never = ListHints { compression: ListCompression::Never, ..ListHints::default() };
        aru.push(Op::SetHints { list, hints: never });
        disk.commit(aru).unwrap();
        assert_eq!(recompress(&disk, list, &texts), texts);
        let mut aru = Aru::new(View::HEAD);
        aru.push(Op::SetHints { list, hints: ListHints::default() });
        disk.commit(aru).unwrap();
        assert_ne!(recompress(&disk, list, &texts), texts);
    }
}
