//! The space that a unit gives back.
//!
//! A page that replaces one that no other version sees takes no more space than that page did. So
//! on a full volume, pages that were written, or allocated as zeros, can be written again.

use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Aru, Op};
use dendro_format::PageRef;

use crate::commit::unit::WorstCase;
use crate::engine::Engine;
use crate::fault::Outcome;
use crate::map::Nodes;
use crate::space::reserve::{Accounts, KeptSegments};
use crate::space::shortage::{Need, Shortage};
use crate::state::State;
use crate::state::pages::{chunks_of, page_range};

/// Returns what a unit needs and which shortage there is, if any.
///
/// # Errors
/// [`Fault::Miss`](crate::fault::Fault::Miss) when a node must be read to compute that.
#[inline]
pub(super) fn shortage_of(
    accounts: &Accounts,
    engine: &Engine,
    aru: &Aru<'_>,
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
    let given_back_bytes = engine.state().given_back_bytes(aru, nodes)?;
    let reclaims = worst.pages_bytes() > 0
        && given_back_bytes >= worst.pages_bytes()
        && aru.ops().iter().all(changes_in_place);
    let need = need.giving_back(given_back_bytes).reclaiming_if(reclaims);
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

impl State {
    /// Bytes of the pages that the unit replaces and that no other version sees.
    fn given_back_bytes(&self, aru: &Aru<'_>, nodes: &dyn Nodes) -> Outcome<u64> {
        let branch = aru.view().branch;
        let moves = |op: &Op<'_>| matches!(op, Op::MovePages { .. } | Op::SwapPages { .. });
        if aru.ops().iter().any(moves) {
            // A page that the unit moved before does not become dead.
            return Ok(0);
        }
        let mut bytes = 0;
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
                bytes +=
                    slots.filter_map(|slot| self.freed_page(&edit, slot)).map(charge).sum::<u64>();
            }
        }
        Ok(bytes)
    }
}

/// The bytes that are counted for a page.
fn charge(page: PageRef) -> u64 {
    if page.len_bytes == 0 { PAGE_SIZE as u64 } else { u64::from(page.footprint_bytes()) }
}
