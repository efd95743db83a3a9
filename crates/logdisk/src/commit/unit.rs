//! A recovery unit before it is applied: whether its arguments are valid, what it stores, and the
//! most that it can take.

use dendro_base::sync::Arc;
use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Aru, CHANGE_BYTES, Error, GROUP_PAGES, Lid, MAX_RECORD_LEN_BYTES, Op};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::rearrangement::MAX_REARRANGEMENT_LEN_BYTES;
use dendro_format::record::{MAX_FIXED_LEN_BYTES, PUT_RECORD_LEN_BYTES, VERSION_LEN_BYTES};
use smallvec::SmallVec;

use crate::commit::packing::Packed;
use crate::log::partial::{Content, page_record_bytes, without_zeros};
use crate::state::pages::{check_range, zeroed_map_bytes};

/// A group of the interface is a chunk of the map.
const _: () = assert!(GROUP_PAGES == CHUNK_PAGES, "a unit is counted in what it changes");

/// Checks the arguments of a change without looking at the volume.
///
/// # Errors
/// [`Error::RecordTooLong`], [`Error::OutOfRange`], or the error for a list number that is reserved
/// for the disk itself.
#[inline]
pub(super) fn check_arguments(op: &Op<'_>) -> Result<(), Error> {
    let (a, b) = op.lists();
    let list = a.max(b);
    if list >= Lid::CLIENT_END {
        let is_new = matches!(op, Op::CreateList { .. } | Op::RestoreList { .. });
        return Err(if is_new { Error::ListExists(list) } else { Error::NoSuchList(list) });
    }
    match op {
        Op::PutRecord { value, .. } if !(1..=MAX_RECORD_LEN_BYTES).contains(&value.len()) => {
            Err(Error::RecordTooLong(value.len()))
        }
        Op::WritePages { first_page, data, .. } => {
            check_range(*first_page, data.len().div_ceil(PAGE_SIZE) as u64)
        }
        Op::ZeroPages { first_page, count, .. } | Op::PunchPages { first_page, count, .. } => {
            check_range(*first_page, *count)
        }
        Op::MovePages { from_page, to_page, count, .. } => {
            check_range(*from_page, *count)?;
            check_range(*to_page, *count)
        }
        Op::CreateList { hints, .. }
        | Op::RestoreList { hints, .. }
        | Op::SetHints { hints, .. } => match hints.near {
            Some(near) if !near.may_be_a_clients() => Err(Error::NoSuchList(near)),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Whether a change is of `list`.
pub(crate) fn names(op: &Op<'_>, list: Lid) -> bool {
    let (a, b) = op.lists();
    a == list || b == list
}

/// The number of chunks in which these pages lie.
pub(super) const fn chunks_in(first_page: u64, count: u64) -> u64 {
    match count {
        0 => 0,
        count => (first_page + (count - 1)) / CHUNK_PAGES - first_page / CHUNK_PAGES + 1,
    }
}

/// The pages that a unit writes, in its order. Computing checksums and copies takes most of the
/// time of a commit and needs no lock, so it is done before.
pub(super) struct Contents<'a> {
    pub(super) pages: SmallVec<[Content<'a>; 1]>,
    /// Pages that are kept in memory, by their place among the pages.
    pub(super) kept: SmallVec<[(usize, Arc<[u8]>); 1]>,
}

impl<'a> Contents<'a> {
    /// The contents of the pages; those that are in `packed` are compressed.
    pub(crate) fn of(aru: &'a Aru<'_>, packed: Option<&'a Packed>) -> Self {
        let pages = match packed {
            Some(packed) => packed.contents(pages_of(aru)),
            None => pages_of(aru).map(Content::of_page).collect(),
        };
        let kept = if aru.kept().is_empty() { SmallVec::new() } else { kept_of(aru, &pages) };
        Self { pages, kept }
    }

    /// What is counted for the pages: what they take on the device, or as much as a page that is
    /// all zeros may take later.
    pub(super) fn counted_bytes(&self) -> u64 {
        self.pages.iter().map(Content::counted_bytes).sum()
    }
}

/// The pages that a unit writes, in its order; the last one of an operation may be shorter.
fn pages_of<'a>(aru: &'a Aru<'_>) -> impl Iterator<Item = &'a [u8]> {
    aru.ops().iter().flat_map(|op| match op {
        Op::WritePages { data, .. } => data.chunks(PAGE_SIZE),
        _ => [].chunks(PAGE_SIZE),
    })
}

/// The pages of a unit that are kept in memory: copies, with their places among `pages`.
#[inline(never)]
fn kept_of(aru: &Aru<'_>, pages: &[Content<'_>]) -> SmallVec<[(usize, Arc<[u8]>); 1]> {
    let mut kept = SmallVec::new();
    let mut count = 0;
    for (index, op) in (0..).zip(aru.ops()) {
        let Op::WritePages { data, .. } = op else { continue };
        count += data.len().div_ceil(PAGE_SIZE);
        let is_kept = aru.kept().contains(&index);
        if let Some(last) = count.checked_sub(1).filter(|_| is_kept)
            && !pages[last].is_empty()
            && let Some(page) = data.chunks(PAGE_SIZE).next_back()
        {
            kept.push((last, Arc::from(without_zeros(page))));
        }
    }
    kept
}

/// The most log and map that a unit of this payload can take ([`Aru::payload_bytes`]).
pub(crate) const fn most_bytes_of(payload_bytes: u64) -> u64 {
    let pages = payload_bytes.div_ceil(PAGE_SIZE as u64);
    let of_pages = pages.saturating_mul(page_record_bytes(1) as u64);
    let bytes = payload_bytes.saturating_add(of_pages).saturating_add(VERSION_LEN_BYTES as u64);
    let units = 2 * 4 * PAGE_SIZE as u64;
    bytes.saturating_add(bytes / 64).saturating_add(units)
}

const _: () = assert!(
    PUT_RECORD_LEN_BYTES as u64 <= CHANGE_BYTES && MAX_FIXED_LEN_BYTES as u64 <= CHANGE_BYTES,
    "what a change counts pays for its record"
);

/// The most that a unit can take.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorstCase {
    pub(super) pages: usize,
    pub(super) record_bytes: usize,
    map_bytes: u64,
    begins_epoch: bool,
    /// The groups above which the unit puts off what it can; `None` if it puts off nothing.
    defers_above: Option<u64>,
    zero_pages: u64,
    /// What clients wrote with it: bytes of pages, and of records.
    pub(super) user_page_bytes: u64,
    pub(super) user_record_bytes: u64,
}

impl WorstCase {
    pub(crate) fn of(aru: &Aru<'_>) -> Self {
        let mut worst = Self { record_bytes: VERSION_LEN_BYTES, ..Self::default() };
        for op in aru.ops() {
            match op {
                Op::PutRecord { value, .. } => {
                    worst.record_bytes += PUT_RECORD_LEN_BYTES + value.len();
                    worst.user_record_bytes += value.len() as u64;
                }
                Op::WritePages { data, .. } => {
                    let pages = data.len().div_ceil(PAGE_SIZE);
                    worst.user_page_bytes += data.len() as u64;
                    worst.pages += pages;
                    worst.record_bytes += page_record_bytes(pages);
                }
                Op::ZeroPages { count, .. } => {
                    worst.record_bytes += MAX_FIXED_LEN_BYTES;
                    worst.map_bytes += zeroed_map_bytes(*count);
                    worst.zero_pages = worst.zero_pages.saturating_add(*count);
                }
                _ => worst.record_bytes += MAX_FIXED_LEN_BYTES,
            }
        }
        worst
    }

    /// Makes the unit begin an epoch.
    pub(super) const fn begin_epoch(&mut self) {
        self.begins_epoch = true;
    }

    pub(super) const fn begins_epoch(self) -> bool {
        self.begins_epoch
    }

    /// Makes the unit put off what it can that changes more than `groups`, or nothing.
    pub(super) const fn defer_above(&mut self, groups: Option<u64>) {
        const RECORD_BYTES: usize = PUT_RECORD_LEN_BYTES + MAX_REARRANGEMENT_LEN_BYTES;
        match (self.defers_above, groups) {
            (None, Some(_)) => self.record_bytes += RECORD_BYTES,
            (Some(_), None) => self.record_bytes -= RECORD_BYTES,
            _ => {}
        }
        self.defers_above = groups;
    }

    pub(super) const fn defers_above(self) -> Option<u64> {
        self.defers_above
    }

    pub(super) const fn has_pages(self) -> bool {
        self.pages > 0
    }

    /// The bytes that its pages of zeros take when they are written later.
    pub(crate) const fn zero_pages_bytes(self) -> u64 {
        self.zero_pages.saturating_mul(PAGE_SIZE as u64)
    }

    /// The bytes of log, with what partial segments leave unused.
    pub(crate) const fn len_bytes(self) -> u64 {
        let bytes = self.pages * PAGE_SIZE + self.record_bytes;
        // The beginning of an epoch is a unit of its own.
        let units = if self.begins_epoch { 2 } else { 1 };
        (bytes + bytes / 64 + units * 4 * PAGE_SIZE) as u64 + self.map_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendro_base::Rng;
    use dendro_disk::View;

    #[test]
    fn what_a_unit_takes_at_most_fits_into_what_is_reserved_for_its_payload() {
        let mut rng = Rng::new(30);
        for _ in 0..20_000 {
            let mut aru = Aru::new(View::HEAD);
            for _ in 0..=rng.below(40) {
                let list = Lid(1 + rng.below(3));
                match rng.below(6) {
                    0 => aru.put_record(list, 0, vec![1; 1 + rng.below(1024) as usize]),
                    1 => aru.write_pages(list, 0, vec![1; 1 + rng.below(9 << 12) as usize]),
                    2 => aru.push(Op::ZeroPages { list, first_page: 0, count: rng.below(1 << 20) }),
                    3 => aru.push(Op::MovePages {
                        from: list,
                        from_page: rng.below(99),
                        to: list,
                        to_page: 200,
                        count: rng.below(1 << 20),
                    }),
                    4 => aru.push(Op::SwapPages { a: list, b: list }),
                    _ => aru.delete_record(list, 0),
                };
            }
            let mut worst = WorstCase::of(&aru);
            if rng.below(2) == 0 {
                worst.begin_epoch();
            }
            let needed = worst.len_bytes() + worst.zero_pages_bytes();
            assert!(needed <= most_bytes_of(aru.payload_bytes()), "{needed}: {:?}", aru.ops());
        }
    }
}
