//! Copying pages that other versions also see, or that lie in frames, so that a head can move or
//! exchange them.

use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Aru, Error, Lid, Result, View};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::record::MAX_FIXED_LEN_BYTES;
use dendro_format::versions::quota_bytes_of;
use dendro_format::{PageRef, Record};

use crate::engine::Engine;
use crate::fault::Outcome;
use crate::log::partial::{Content, page_record_bytes};
use crate::log::segments::Pin;
use crate::map::Nodes;
use crate::reclaim::make_room::SeenPruning;
use crate::reclaim::no_space::Reclaimer;
use crate::space::reserve::Accounts;
use crate::space::shortage::Need;
use crate::volume::Volume;

/// What pays for copies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payer<'u, 'a> {
    /// Nothing more: their space was reserved before, and they count already.
    Reserved,
    /// The unit that needs them.
    Unit(&'u Aru<'a>),
}

impl<'u, 'a> Payer<'u, 'a> {
    /// The need of copies that take so many bytes of log.
    fn need(self, accounts: &Accounts, len_bytes: u64) -> Need {
        match self {
            Self::Reserved => Need::reclaiming(len_bytes),
            Self::Unit(aru) => {
                Need::space(len_bytes).beside(accounts.reserved_by_others_bytes(aru.reservation()))
            }
        }
    }

    /// The unit whose client must have so much left of its quota.
    const fn within_quota(self) -> Option<&'u Aru<'a>> {
        match self {
            Self::Unit(aru) => Some(aru),
            Self::Reserved => None,
        }
    }
}

/// Gives the head of `view` copies of its own of those pages of group `number` of `list` that
/// cannot be moved.
pub(crate) fn unshare(
    volume: &Volume,
    reclaimer: &Reclaimer,
    (view, payer): (View, Payer<'_, '_>),
    (list, number): (Lid, u64),
) -> Result<()> {
    let shared = volume.look(|engine, nodes| engine.shared_pages(view, list.0, number, nodes))?;
    let mut copies = Vec::with_capacity(shared.len());
    for (slot, page, in_memory, _pin) in shared {
        let bytes = match in_memory {
            Some(bytes) => bytes,
            None => {
                let mut bytes = vec![0; usize::from(page.len_bytes)];
                volume.read_device(page.addr, &mut bytes)?;
                bytes
            }
        };
        let page_index = number * CHUNK_PAGES + u64::from(slot);
        if page.len_bytes > 0 {
            volume.check_block(list, page_index, &page, &bytes)?;
        }
        let content = if page.is_in_frame() {
            let mut content = vec![0; PAGE_SIZE];
            volume.unpack(list, page_index, &page, &bytes, &mut content)?;
            content
        } else {
            bytes
        };
        copies.push((slot, page, content));
    }
    let needed_bytes = (copies.len() * (PAGE_SIZE + page_record_bytes(1)) + 4 * PAGE_SIZE) as u64;
    let quota_bytes = copies.iter().map(|(_, page, content)| match page.is_in_frame() {
        true => content.len() as u64,
        false => quota_bytes_of(*page),
    });
    let quota_bytes = quota_bytes.sum();
    let need = payer.need(reclaimer.accounts(), needed_bytes);
    let mut seen = SeenPruning::default();
    loop {
        let copied = reclaimer.with_room(need, |engine, nodes| {
            if let Some(aru) = payer.within_quota() {
                engine.check_quota_for(aru, quota_bytes)?;
            }
            copies.iter().try_for_each(|(slot, page, bytes)| {
                engine.write_copy(view.branch, (list.0, number, *slot), page, bytes, nodes)
            })
        });
        match copied {
            // What was deleted may not have been given back yet.
            Err(Error::OverQuota { .. }) if reclaimer.free_for_quota(&mut seen)? => {}
            Err(error) => return Err(error),
            Ok(()) => return volume.relieve_writer(),
        }
    }
}

/// A page that is copied: its slot, its place, its bytes if they are in memory, and a pin that
/// keeps its segment from being filled again.
type Shared = (u32, PageRef, Option<Vec<u8>>, Pin);

impl Engine {
    fn shared_pages(
        &self,
        view: View,
        list: u64,
        number: u64,
        nodes: &dyn Nodes,
    ) -> Outcome<Vec<Shared>> {
        let slots = 0..CHUNK_PAGES as u32;
        let edit =
            self.state().edit_chunk_whole(view.branch, list, number, slots.clone(), nodes)?;
        let mut shared = Vec::new();
        for slot in slots.filter(|slot| self.state().is_shared(&edit, *slot)) {
            let Some(page) = edit.page(slot) else { continue };
            let in_memory = match usize::from(page.len_bytes) {
                0 => Some(Vec::new()),
                len => self.block_in_memory(page.addr, len).map(<[u8]>::to_vec),
            };
            shared.push((slot, page, in_memory, self.state().segments().pin(page.addr)));
        }
        Ok(shared)
    }

    /// Writes a page of the head again, as a unit of its own, if the page has not changed. `stored`
    /// is what is stored of it; of a page in a frame it is the page.
    fn write_copy(
        &mut self,
        branch: u32,
        (list, number, slot): (u64, u64, u32),
        page: &PageRef,
        stored: &[u8],
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let content = match page.is_in_frame() {
            true => Content::of_page(stored),
            false => Content::stored(stored, page),
        };
        let record_bytes = page_record_bytes(1) + MAX_FIXED_LEN_BYTES;
        let unit = self.begin_unit(self.head_context(branch), 1, 0, record_bytes)?;
        self.transact(nodes, |engine| {
            let slots = 0..CHUNK_PAGES as u32;
            let mut edit = engine.state().edit_chunk_whole(branch, list, number, slots, nodes)?;
            if edit.page(slot) != Some(*page) || !engine.state().is_shared(&edit, slot) {
                return Ok(());
            }
            let block = match content.is_empty() {
                true => PageRef::ZERO,
                false => engine.partial().place(&content),
            };
            engine.state_mut().replace(&mut edit, slot, block);
            engine.state_mut().put_edit(&edit, nodes)?;
            let page_index = number * CHUNK_PAGES + u64::from(slot);
            engine.partial().set_context(unit.context());
            if block.len_bytes == 0 {
                let record = Record::ZeroPages { list, first_page: page_index, count: 1 };
                engine.partial().push(&record);
            } else {
                engine.record_page(&unit, list, page_index, &block);
            }
            Ok(())
        })?;
        self.end_unit(unit);
        Ok(())
    }
}
