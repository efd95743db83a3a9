//! Applying the log's records to the state, through the functions that applied the units at first.

use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Error, Lid, MAX_PAGE_COUNT, Result};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::record::Records;
use dendro_format::versions::VERSIONS_LIST;
use dendro_format::{Head, Layout, PageRef, PartialHeader, Record, SegmentNo};

use super::roll_forward::Chain;
use crate::fault::{Fault, Outcome};
use crate::log::partial::RecordContext;
use crate::map::Nodes;
use crate::state::State;
use crate::state::deletion::Remains;
use crate::state::item::ItemKey;
use crate::state::pages::{ChunkBudget, page_range, zeroed_map_bytes};

/// Applies the complete units of the chain. What follows the last complete unit is dropped.
///
/// # Errors
/// The index in the chain of the partial segment that ends the unit which cannot be applied, and
/// why.
pub(super) fn replay(
    state: &mut State,
    chain: &Chain,
    layout: Layout,
    nodes: &dyn Nodes,
) -> std::result::Result<(), (usize, Error)> {
    let mut pending: Vec<(RecordContext, &[u8])> = Vec::new();
    for (at, partial) in chain.partials.iter().enumerate() {
        let (complete, begun) =
            partial.records.split_at(partial.header.complete_len_bytes as usize);
        let start = RecordContext::start(partial.header.epoch);
        let mut context = start;
        if !complete.is_empty() {
            for (start, records) in pending.drain(..).chain([(start, complete)]) {
                context = start;
                apply_records(state, records, &mut context, layout, nodes).map_err(|error| {
                    let PartialHeader { offset_bytes, segment, .. } = partial.header;
                    let place = format!("the log at byte {offset_bytes} of segment {segment}");
                    (at, Error::Corrupted(format!("{place}: {error}")))
                })?;
            }
        }
        if !begun.is_empty() {
            pending.push((context, begun));
        }
    }
    Ok(())
}

fn apply_records(
    state: &mut State,
    records: &[u8],
    context: &mut RecordContext,
    layout: Layout,
    nodes: &dyn Nodes,
) -> Result<()> {
    for record in Records::new(records) {
        let record = record.map_err(|malformed| Error::Corrupted(malformed.to_string()))?;
        apply_record(state, &record, context, layout, nodes).map_err(Fault::into_error)?;
        state.account_for_nodes();
        // What was committed fits on the volume. A log that does not was forged to fill the memory.
        if state.map().dirty_len_bytes() > layout.len_bytes() {
            return Err(Error::Corrupted("its changes do not fit on the volume".into()));
        }
    }
    Ok(())
}

pub(super) fn apply_record(
    state: &mut State,
    record: &Record<'_>,
    context: &mut RecordContext,
    layout: Layout,
    nodes: &dyn Nodes,
) -> Outcome<()> {
    if let Record::PutRecord { list: VERSIONS_LIST, .. }
    | Record::DeleteRecord { list: VERSIONS_LIST, .. } = record
    {
        return apply_version(state, record, nodes);
    }
    let branch = context.branch;
    match *record {
        Record::CreateList { list, hints } | Record::SetHints { list, hints } => {
            if list >= Lid::CLIENT_END.0 {
                return Err(Error::Corrupted("a list has a number of the disk's own".into()).into());
            }
            if matches!(record, Record::CreateList { .. }) {
                state.create_list(branch, list, hints, Remains::Either, nodes)
            } else {
                state.put_list_again(branch, list, hints, nodes)
            }
        }
        Record::DeleteList { list } => state.delete_list(branch, list, nodes),
        Record::PutRecord { list, index, value } => {
            state.put_record(branch, list, index, value.into(), nodes).map(drop)
        }
        Record::DeleteRecord { list, index } => {
            state.delete_record(branch, list, index, nodes).map(drop)
        }
        Record::WriteRun { .. }
        | Record::WriteBlock { .. }
        | Record::ZeroPages { .. }
        | Record::PunchPages { .. }
        | Record::MovePages { .. }
        | Record::SwapPages { .. }
        | Record::SwapRange { .. } => apply_to_pages(state, record, *context, layout, nodes),
        Record::Version { branch, epoch, is_moved } => {
            if !is_moved && epoch != state.versions().epoch() {
                let now = state.versions().epoch();
                let what = format!(
                    "it continues in epoch {epoch} of branch {branch}, but the state is in epoch {now}"
                );
                return Err(Error::Corrupted(what).into());
            }
            *context = RecordContext { branch, epoch, is_moved };
            Ok(())
        }
        Record::Reuse { segment } => {
            if !is_emptied(state, segment) {
                // A deletion may leave entries to be removed here that it removed at once when it
                // was first applied. That depends on where leaves end and on what was collected
                // meanwhile, which the log does not record.
                state.finish_removals(nodes)?;
            }
            is_emptied(state, segment).then_some(()).ok_or_else(|| {
                let what =
                    format!("it releases segment {segment} for reuse, but blocks in it are live");
                Error::Corrupted(what).into()
            })
        }
        Record::Node { .. } | Record::Checkpoint { .. } => {
            Err(Error::Corrupted("the main log names a node of the map".into()).into())
        }
    }
}

/// Applies a record of a change of pages.
fn apply_to_pages(
    state: &mut State,
    record: &Record<'_>,
    context: RecordContext,
    layout: Layout,
    nodes: &dyn Nodes,
) -> Outcome<()> {
    let branch = context.branch;
    let check_block = |block: &PageRef| {
        let holds = layout.holds(block.addr, u64::from(block.footprint_bytes()));
        holds.then_some(()).ok_or_else(|| Error::Corrupted("a block is not on the device".into()))
    };
    let write = |state: &mut State, list, page: u64, block: PageRef| {
        check_block(&block)?;
        if context.is_moved {
            let key = ItemKey::chunk(list, page / CHUNK_PAGES).key(branch, context.epoch);
            let slot = (page % CHUNK_PAGES) as u32;
            state.move_blocks_of(&key, &[(slot, block)], nodes)
        } else {
            state.set_page(branch, list, page, block, nodes)
        }
    };
    match *record {
        Record::WriteRun { list, first_page, addr, crcs } => {
            for (index, crc) in (0_u64..).zip(crcs) {
                let block = PageRef {
                    addr: addr.plus_bytes(index * PAGE_SIZE as u64),
                    crc32c: crc.get(),
                    len_bytes: PAGE_SIZE as u16,
                    ..PageRef::ZERO
                };
                write(state, list, first_page.saturating_add(index), block)?;
            }
            Ok(())
        }
        Record::WriteBlock { list, page, block } => write(state, list, page, block),
        Record::ZeroPages { list, first_page, count } => {
            if zeroed_map_bytes(count) > layout.len_bytes() {
                return Err(Error::Corrupted("more pages than the volume can map".into()).into());
            }
            state.zero_pages(branch, list, page_range(first_page, count), nodes)
        }
        Record::PunchPages { list, first_page, count } => {
            let pages = page_range(first_page, count);
            let budget = &mut ChunkBudget::unlimited();
            state.punch_pages(branch, list, pages, budget, nodes).map(drop)
        }
        Record::MovePages { from, from_page, to, to_page, count } => {
            let budget = &mut ChunkBudget::unlimited();
            let (from, to) = ((from, from_page), (to, to_page));
            state.move_pages(branch, from, to, count, budget, nodes).map(drop)
        }
        Record::SwapPages { a, b } => {
            let (pages, budget) = (0..MAX_PAGE_COUNT, &mut ChunkBudget::unlimited());
            state.swap_pages(branch, (a, b), &pages, budget, nodes).map(drop)
        }
        Record::SwapRange { a, b, first_page, count } => {
            let (pages, budget) = (page_range(first_page, count), &mut ChunkBudget::unlimited());
            state.swap_pages(branch, (a, b), &pages, budget, nodes).map(drop)
        }
        _ => Ok(()),
    }
}

/// Whether nothing is live in a segment that the log releases for reuse.
fn is_emptied(state: &State, segment: SegmentNo) -> bool {
    // If the record was durable before the checkpoint was written, the checkpoint may have put its
    // own nodes there.
    state.segments().layout().is_log_segment(segment)
        && (state.segments().head(segment) == Head::Map
            || state.segments().live_bytes_of(segment) == 0)
}

/// Applies a record that changes the table of versions.
pub(super) fn apply_version(
    state: &mut State,
    record: &Record<'_>,
    nodes: &dyn Nodes,
) -> Outcome<()> {
    let (index, value) = match *record {
        Record::PutRecord { index, value, .. } => (index, Some(value)),
        Record::DeleteRecord { index, .. } => (index, None),
        _ => return Ok(()),
    };
    state.enter_version(index, value, nodes)
}
