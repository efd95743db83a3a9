//! The order in which blocks are laid down: list by list, and neighbours together
//! ([`dendro_disk::ListHints::place`]).

use std::collections::HashMap;
use std::ops::ControlFlow;

use dendro_disk::{Lid, Result};
use dendro_format::superblock::INCOMPATIBLE_NEIGHBOURS;

use super::named_page::NamedPage;
use crate::volume::Volume;

/// The number of lists that are looked up while the lock is held.
const LISTS_LOOKED_AT: usize = 64;

/// Sorts the blocks of lists by the places of the lists, and within them by page. They are sorted
/// by list and page already.
///
/// # Errors
/// When the map cannot be read.
pub(super) fn sort_by_place(volume: &Volume, blocks: &mut [NamedPage]) -> Result<()> {
    if volume.newest_superblock().incompatible & INCOMPATIBLE_NEIGHBOURS == 0 {
        return Ok(());
    }
    let mut neighbours = HashMap::new();
    let mut visited = 0;
    volume.walk(&mut visited, |engine, visited, nodes| {
        for _ in 0..LISTS_LOOKED_AT {
            let mut lists = blocks[*visited..].chunk_by(|a, b| a.list == b.list);
            let Some(of_list) = lists.next() else { return Ok(ControlFlow::Break(())) };
            let NamedPage { list, version: (branch, _), .. } = of_list[0];
            // What only snapshots of a branch have stays in the order of the lists.
            if let Ok(ancestry) = engine.state().versions().head_ancestry(branch)
                && let Some(hints) = engine.state().list_hints(ancestry, list, nodes)?
                && hints.near.is_some()
            {
                neighbours.insert(list, hints.place(Lid(list)).0);
            }
            *visited += of_list.len();
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let neighbourhood = |list| neighbours.get(&list).copied().unwrap_or(Lid(list));
    blocks.sort_by_key(|block| (neighbourhood(block.list), block.key(), block.page_index));
    Ok(())
}
