//! The requests of external cleaners, translated for the engine, and its replies.

use std::sync::Arc;
use std::time::Duration;

use dendro_base::{Clock, SystemClock};
use dendro_control::AdminError;
use dendro_control::cleaning::{
    self as wire, BlockOutcome, BlockSource, Blocks, BlocksRequest, CleanerChange, CleanerSettings,
    CleaningStatus, Marked, NodeName, Places, Released, SegmentOutcome, SegmentState, Segments,
    SegmentsRequest,
};
use dendro_control::coalescing::{CoalesceRequest, Coalesced, PagePlace, USUAL_COMPRESSION};
use dendro_disk::{Lid, Versions, View};
use dendro_format::{Addr, Head, Key, Space};
use dendro_logdisk::external::{
    self as engine, BlockName, MAX_BLOCKS_PER_CALL, MAX_SEGMENTS_PER_CALL, MapCursor, Rewritten,
    SegmentStatus, SummaryCursor,
};
use dendro_logdisk::{CleanSettings, CoalesceSettings, Compression, LogDisk, Place};
use dendro_policy::{Kind, UnknownPolicy};
use dendro_versions::name;

const _: () = assert!(wire::MAX_BLOCKS == MAX_BLOCKS_PER_CALL);
const _: () = assert!(wire::MAX_SEGMENTS == MAX_SEGMENTS_PER_CALL);

/// A request to coalesce lists ends after so many bytes moved or compressed, or so many read.
const ENOUGH_MOVED_BYTES: u64 = 16 << 20;
const ENOUGH_BYTES: u64 = 1 << 30;

/// Bytes of a grain, the unit of addresses on the device.
const GRAIN_SIZE: u64 = dendro_base::units::GRAIN_SIZE as u64;

fn refuse(why: impl std::fmt::Display) -> AdminError {
    AdminError(why.to_string())
}

pub(crate) fn present(disk: &LogDisk) -> CleaningStatus {
    let engine::VolumeFacts {
        clock,
        live_bytes,
        segment_bytes,
        segment_count,
        clean_count,
        reserved_count,
        fast_clean_count,
        fast_wanted_count,
    } = disk.volume_facts();
    CleaningStatus {
        clock,
        live_bytes,
        segment_bytes,
        segment_count,
        clean_count,
        reserved_count,
        fast_clean_count,
        fast_wanted_count,
    }
}

/// How many clean segments are missing from the number that the cleaner keeps ready beyond the
/// reserve.
pub(crate) fn debt_segments(facts: &engine::VolumeFacts, settings: &CleanSettings) -> u32 {
    // The engine's default.
    let default = (facts.segment_count / 128).clamp(2, 64);
    let wanted = settings.min_clean_segments.unwrap_or(default).min(facts.segment_count);
    wanted.saturating_add(facts.reserved_count).saturating_sub(facts.clean_count)
}

pub(crate) fn segments(disk: &LogDisk, request: &SegmentsRequest) -> Segments {
    let max = request.max.unwrap_or(wire::MAX_SEGMENTS);
    let segments: Vec<_> = disk.segments(request.from, max).into_iter().map(segment).collect();
    let present = present(disk);
    let next = match segments.last() {
        Some(last) => Some(last.number + 1).filter(|&next| next < present.segment_count),
        None => None,
    };
    Segments { present, segments, next }
}

/// All segments, in one reply.
pub fn all_segments(disk: &LogDisk) -> Segments {
    let mut all = segments(disk, &SegmentsRequest::default());
    while let Some(from) = all.next {
        let more = segments(disk, &SegmentsRequest { from, max: None });
        all.segments.extend(more.segments);
        (all.present, all.next) = (more.present, more.next);
    }
    all
}

fn segment(facts: engine::SegmentFacts) -> wire::SegmentFacts {
    let engine::SegmentFacts {
        number,
        status,
        live_bytes,
        head,
        class,
        written_at,
        last_death,
        filled_at,
        deaths,
        is_fast,
    } = facts;
    let head = match head {
        Head::Main => wire::Head::Main,
        Head::Map => wire::Head::Map,
        Head::Payload => wire::Head::Payload,
    };
    let state = match status {
        SegmentStatus::Clean => SegmentState::Clean,
        SegmentStatus::Open => SegmentState::Open,
        SegmentStatus::Dirty => SegmentState::Dirty,
        SegmentStatus::Pending => SegmentState::Pending,
        SegmentStatus::Retired => SegmentState::Retired,
        SegmentStatus::Mirror => SegmentState::Mirror,
    };
    wire::SegmentFacts {
        number,
        state,
        live_bytes,
        head,
        class,
        written_at,
        last_death,
        filled_at,
        deaths,
        is_fast,
    }
}

pub(crate) fn blocks(disk: &LogDisk, request: &BlocksRequest) -> Result<Blocks, AdminError> {
    let max = request.max.unwrap_or(wire::MAX_BLOCKS);
    let (one, two) = match &request.cursor {
        Some(cursor) => parse_cursor(cursor)
            .ok_or_else(|| AdminError("the cursor is none that a reply had".into()))?,
        None => (0, 0),
    };
    let (blocks, next) = match request.source {
        BlockSource::Summaries => {
            let (Ok(offset_bytes), Ok(skip)) = (u32::try_from(one), u32::try_from(two)) else {
                return Err(AdminError("the cursor is none that a reply had".into()));
            };
            let from = SummaryCursor { offset_bytes, skip };
            let found = disk.segment_blocks(request.segment, from, max).map_err(refuse)?;
            (found.blocks, found.next.map(|at| (u64::from(at.offset_bytes), u64::from(at.skip))))
        }
        BlockSource::Map => {
            let from = MapCursor { list: one, chunk: two };
            let found = disk.mapped_blocks(request.segment, from).map_err(refuse)?;
            (found.blocks, found.next.map(|at| (at.list, at.chunk)))
        }
    };
    Ok(Blocks {
        blocks: blocks.iter().map(pack).collect(),
        next: next.map(|(one, two)| format!("{one}.{two}")),
    })
}

fn parse_cursor(cursor: &str) -> Option<(u64, u64)> {
    let (one, two) = cursor.split_once('.')?;
    Some((one.parse().ok()?, two.parse().ok()?))
}

pub(crate) fn bmapv(disk: &LogDisk, blocks: &[wire::NamedBlock]) -> Result<Places, AdminError> {
    // A name that no block can have is answered like an unknown one.
    let unpacked: Vec<Option<engine::Block>> = blocks.iter().map(unpack).collect();
    let names: Vec<BlockName> = unpacked.iter().flatten().map(|block| block.name).collect();
    let mut found = disk.locate(&names).map_err(refuse)?.into_iter();
    let mut places = Places::default();
    for (block, unpacked) in blocks.iter().zip(&unpacked) {
        let place = unpacked.and_then(|_| found.next().flatten()).map(Addr::bytes);
        places.live.push(place == Some(addr_of(block)));
        places.addrs.push(place);
    }
    Ok(places)
}

pub(crate) fn markv(disk: &LogDisk, blocks: &[wire::NamedBlock]) -> Result<Marked, AdminError> {
    let unpacked: Vec<Option<engine::Block>> = blocks.iter().map(unpack).collect();
    let sound: Vec<engine::Block> = unpacked.iter().flatten().copied().collect();
    let mut outcomes = disk.rewrite(&sound).map_err(refuse)?.into_iter();
    let outcome = |unpacked: &Option<engine::Block>| match unpacked
        .and_then(|_| outcomes.next())
        .unwrap_or(Rewritten::Dead)
    {
        Rewritten::Moved => BlockOutcome::Moved,
        Rewritten::Dead => BlockOutcome::Dead,
        Rewritten::Open => BlockOutcome::Open,
        Rewritten::Unreadable => BlockOutcome::Unreadable,
        Rewritten::NoRoom => BlockOutcome::NoRoom,
    };
    Ok(Marked { blocks: unpacked.iter().map(outcome).collect() })
}

pub(crate) fn segclean(disk: &LogDisk, segments: &[u32]) -> Result<Released, AdminError> {
    let released = disk.release(segments).map_err(refuse)?;
    let outcome = |released: &engine::Released| match released {
        engine::Released::Clean => SegmentOutcome::Clean,
        engine::Released::Pending => SegmentOutcome::Pending,
        engine::Released::Open => SegmentOutcome::Open,
        engine::Released::Live(_) => SegmentOutcome::Live,
        engine::Released::Unknown => SegmentOutcome::Unknown,
    };
    Ok(Released { segments: released.iter().map(outcome).collect() })
}

/// Changes what `change` names; returns the settings of the engine's cleaner.
pub(crate) fn change_cleaner(
    disk: &LogDisk,
    change: &CleanerChange,
) -> Result<CleanerSettings, AdminError> {
    let kind: Option<Kind> = change
        .policy
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|error: UnknownPolicy| refuse(error))?;
    let now = disk.clean_settings();
    let was = now.coalescing;
    let settings = CleanSettings {
        min_clean_segments: change.min_clean_segments.or(now.min_clean_segments),
        max_clean_segments: change.max_clean_segments.or(now.max_clean_segments),
        is_suspended: change.suspended.unwrap_or(now.is_suspended),
        coalescing: CoalesceSettings {
            is_on: change.coalesce.unwrap_or(was.is_on),
            after: change.coalesce_after_ms.map_or(was.after, Duration::from_millis),
            piece_bytes: change.coalesce_piece_bytes.unwrap_or(was.piece_bytes),
            share_percent: change.coalesce_share_percent.unwrap_or(was.share_percent),
            ..was
        },
    };
    if let (Some(min), Some(max)) = (settings.min_clean_segments, settings.max_clean_segments)
        && min > max
    {
        return Err(refuse(format_args!(
            "min_clean_segments would be {min}, more than max_clean_segments, {max}: set both"
        )));
    }
    if let Some(kind) = kind {
        disk.set_policy(Arc::from(kind.policy()));
    }
    if settings != now {
        disk.set_clean_settings(settings);
    }
    Ok(CleanerSettings {
        policy: disk.policy().kind().name().into(),
        min_clean_segments: settings.min_clean_segments,
        max_clean_segments: settings.max_clean_segments,
        suspended: settings.is_suspended,
        coalesce: settings.coalescing.is_on,
        coalesce_after_ms: settings.coalescing.after.as_millis() as u64,
        coalesce_piece_bytes: settings.coalescing.piece_bytes,
        coalesce_share_percent: settings.coalescing.share_percent,
    })
}

/// Coalesces a part of what `request` names, in the version `here` if it names none.
pub fn coalesce(
    disk: &LogDisk,
    here: View,
    request: &CoalesceRequest,
) -> Result<Coalesced, AdminError> {
    let view = match &request.of {
        None => here,
        Some(version) => {
            name::resolve(&disk.versions(), here, version, SystemClock.now()).map_err(refuse)?
        }
    };
    let with = match request.compress.as_deref() {
        None => None,
        Some(USUAL_COMPRESSION) => Some(disk.usual_compression()),
        Some(name) => Some(name.parse::<Compression>().map_err(refuse)?),
    };
    let place = |place: Place| PagePlace { list: place.list, page: place.page };
    let from = request.from.unwrap_or_default();
    let from = Place { list: from.list, page: from.page };
    let some = |from: Place, until: Lid| {
        let done = match with {
            None => disk.coalesce(view, from, until, request.dry_run),
            Some(with) => disk.compress(view, from, until, with, request.dry_run),
        };
        let done = done.map_err(refuse)?;
        Ok(Coalesced {
            page_bytes: done.page_bytes,
            stored_bytes: done.stored_bytes,
            plain_bytes: done.plain_bytes,
            pieces_before: done.reads_before,
            pieces_after: done.reads_after,
            moved_bytes: done.moved_bytes,
            saved_bytes: Some(done.saved_bytes),
            compress: with.map(|with| with.to_string()),
            unreadable: done.unreadable,
            next: done.next.map(place),
            lacks_room: done.lacks_room,
        })
    };
    let Some(lists) = &request.lists else { return some(from, Lid::CLIENT_END) };
    // There may be none.
    let (saved_bytes, compress) = (Some(0), with.map(|with| with.to_string()));
    let mut all = Coalesced { saved_bytes, compress, ..Coalesced::default() };
    for &list in lists.iter().filter(|&&list| list >= from.list && list < Lid::CLIENT_END.0) {
        let start = Place { list, page: 0 }.max(from);
        let moved_bytes = if with.is_some() { all.plain_bytes } else { all.moved_bytes };
        if moved_bytes >= ENOUGH_MOVED_BYTES || all.page_bytes >= ENOUGH_BYTES {
            all.next = Some(place(start));
            break;
        }
        all.add(&some(start, Lid(list + 1))?);
        if all.next.is_some() {
            break;
        }
    }
    Ok(all)
}

fn pack(block: &engine::Block) -> wire::NamedBlock {
    let addr = block.addr.bytes();
    match block.name {
        BlockName::Page { list, page_index, branch, epoch } => {
            wire::NamedBlock::Page { list, page: page_index, branch, epoch, addr }
        }
        BlockName::Node { level, first_key } => {
            let Key { list, space, index, branch, epoch } = first_key;
            let node = NodeName { level, list, space: space as u8, index, branch, epoch };
            wire::NamedBlock::Node { node, addr }
        }
    }
}

/// `None` if no block can be there: the address is not that of a grain, or the space of the key is
/// unknown.
fn unpack(block: &wire::NamedBlock) -> Option<engine::Block> {
    let name = match *block {
        wire::NamedBlock::Page { list, page, branch, epoch, .. } => {
            BlockName::Page { list, page_index: page, branch, epoch }
        }
        wire::NamedBlock::Node { node, .. } => {
            let NodeName { level, list, space, index, branch, epoch } = node;
            let space = Space::from_number(space)?;
            BlockName::Node { level, first_key: Key { list, space, index, branch, epoch } }
        }
    };
    let addr = addr_of(block);
    addr.is_multiple_of(GRAIN_SIZE).then(|| engine::Block { name, addr: Addr::from_bytes(addr) })
}

const fn addr_of(block: &wire::NamedBlock) -> u64 {
    match *block {
        wire::NamedBlock::Page { addr, .. } | wire::NamedBlock::Node { addr, .. } => addr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_survive_being_packed_and_what_can_be_none_is_seen() {
        let first_key = Key { list: 5, space: Space::Chunks, index: 7, branch: 1, epoch: 9 };
        for name in [
            BlockName::Page { list: u64::MAX, page_index: 3, branch: 2, epoch: 8 },
            BlockName::Node { level: 2, first_key },
        ] {
            let block = engine::Block { name, addr: Addr(100) };
            assert_eq!(unpack(&pack(&block)), Some(block));
        }
        assert_eq!(
            unpack(&wire::NamedBlock::Page { list: 1, page: 1, branch: 0, epoch: 1, addr: 65 }),
            None
        );
        let node = NodeName { level: 0, list: 0, space: 3, index: 0, branch: 0, epoch: 0 };
        assert_eq!(unpack(&wire::NamedBlock::Node { node, addr: 64 }), None);
    }

    #[test]
    fn cursors_are_two_numbers() {
        assert_eq!(parse_cursor("4096.7"), Some((4096, 7)));
        for wrong in ["", ".", "1", "1.", "-1.2", "1.2.3", "99999999999999999999.1", "a.b"] {
            assert_eq!(parse_cursor(wrong), None, "{wrong}");
        }
    }
}
