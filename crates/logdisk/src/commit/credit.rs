//! The space that a unit gives back.
//!
//! What replaces a page that no other version sees takes the space of that page, if it is stored in
//! as few bytes. So on a full volume, pages that were written, or allocated as zeros, can be
//! written again.

use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Aru, Op};
use dendro_format::versions::quota_bytes_of;
use rustc_hash::FxHashSet;

use crate::commit::unit::{Contents, WorstCase};
use crate::engine::Engine;
use crate::fault::Outcome;
use crate::map::Nodes;
use crate::space::reserve::{Accounts, KeptSegments};
use crate::space::shortage::{Need, Shortage};
use crate::state::State;
use crate::state::pages::{chunks_of, page_range};

/// Returns what a unit of these contents needs and which shortage there is, if any.
///
/// # Errors
/// [`Fault::Miss`](crate::fault::Fault::Miss) when a node must be read to compute that.
#[inline]
pub(super) fn shortage(
    accounts: &Accounts,
    engine: &Engine,
    (aru, contents): (&Aru<'_>, &Contents<'_>),
    worst: WorstCase,
    kept: KeptSegments,
    nodes: &dyn Nodes,
) -> Outcome<(Need, Option<Shortage>)> {
    // A page that another version sees still takes space after it is replaced.
    let keeps_pages = || worst.has_pages() && engine.state().versions().are_several();
    let need = Need::space(worst.len_bytes())
        .keeping(worst.zero_pages_bytes())
        .beside(accounts.reserved_by_others_bytes(aru.reservation()))
        .reclaiming_if(aru.reclaims() && !keeps_pages());
    let shortage = accounts.shortage(engine, need, kept);
    if !matches!(shortage, Some(Shortage::OfSpace(_))) {
        return Ok((need, shortage));
    }
    let given_back = engine.state().given_back(aru, nodes)?;
    let counted_bytes = contents.counted_bytes().saturating_add(worst.zero_pages_bytes());
    let reclaims = counted_bytes > 0
        && given_back.by_each_page
        && given_back.bytes >= counted_bytes
        && aru.ops().iter().all(changes_in_place);
    let need = need.giving_back(given_back.bytes).reclaiming_if(reclaims);
    Ok((need, accounts.shortage(engine, need, kept)))
}

/// Whether a change takes no space if all pages that the unit writes existed before. A record that
/// is put in such a unit counts as none, because it replaces an i-node.
const fn changes_in_place(op: &Op<'_>) -> bool {
    !matches!(
        op,
        Op::CreateList { .. }
            | Op::RestoreList { .. }
            | Op::SetHints { .. }
            | Op::MovePages { .. }
            | Op::SwapPages { .. }
    )
}

/// What a unit gives back by writing pages.
struct GivenBack {
    /// What is counted for the pages that it replaces.
    bytes: u64,
    /// Whether each page that it writes replaces one. A page that is new, or beside which the old
    /// one is kept, takes an entry of the map and a record too, which no bytes of others pay for.
    by_each_page: bool,
}

impl State {
    /// What comes back of the pages that the unit replaces and that no other version sees. A page
    /// that it writes twice counts once.
    fn given_back(&self, aru: &Aru<'_>, nodes: &dyn Nodes) -> Outcome<GivenBack> {
        let branch = aru.view().branch;
        let moves = |op: &Op<'_>| matches!(op, Op::MovePages { .. } | Op::SwapPages { .. });
        if aru.ops().iter().any(moves) {
            // A page that the unit moved before does not become dead.
            return Ok(GivenBack { bytes: 0, by_each_page: false });
        }
        let mut counted = FxHashSet::default();
        let mut given_back = GivenBack { bytes: 0, by_each_page: true };
        for op in aru.ops() {
            let (list, pages) = match op {
                Op::WritePages { list, first_page, data } => {
                    (list, page_range(*first_page, data.len().div_ceil(PAGE_SIZE) as u64))
                }
                Op::ZeroPages { list, first_page, count } => {
                    (list, page_range(*first_page, *count))
                }
                _ => continue,
            };
            for (number, slots) in chunks_of(pages) {
                let edit = self.edit_chunk(branch, list.0, number, slots.clone(), nodes)?;
                for slot in slots.filter(|&slot| counted.insert((*list, number, slot))) {
                    let freed = self.freed_page(&edit, slot);
                    given_back.by_each_page &= freed.is_some();
                    given_back.bytes += freed.map_or(0, quota_bytes_of);
                }
            }
        }
        Ok(given_back)
    }
}
