//! Writes of parts of pages, and what they are in whole pages.

use std::borrow::Cow;
use std::ops::Range;

use dendro_base::units::PAGE_SIZE;

use crate::aru::{Aru, Op};
use crate::error::{Error, Result};
use crate::types::{Lid, MAX_PAGE_COUNT};

const PAGE_BYTES: u64 = PAGE_SIZE as u64;

/// A part of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePart {
    /// The page.
    pub page_index: u64,
    /// The first byte in it.
    pub from: usize,
    /// The first byte behind the part.
    pub to: usize,
}

impl PagePart {
    /// The bytes of the page.
    #[must_use]
    pub const fn bytes(self) -> Range<usize> {
        self.from..self.to
    }

    /// How many bytes it has.
    #[must_use]
    pub const fn len_bytes(self) -> usize {
        self.to - self.from
    }
}

/// A range of bytes, cut into whole pages and the parts of pages before and behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageParts {
    /// The part before the whole pages; the only one, if the range lies inside one page.
    pub head: Option<PagePart>,
    /// The whole pages.
    pub body: Range<u64>,
    /// The part behind them.
    pub tail: Option<PagePart>,
}

impl PageParts {
    /// Cuts the range of `len_bytes` from `offset_bytes` on.
    ///
    /// # Panics
    /// When the range ends past what 64 bits can name.
    #[must_use]
    pub fn of(offset_bytes: u64, len_bytes: u64) -> Self {
        let end = offset_bytes + len_bytes;
        let (first, last) = (offset_bytes / PAGE_BYTES, end / PAGE_BYTES);
        let (from, to) = ((offset_bytes % PAGE_BYTES) as usize, (end % PAGE_BYTES) as usize);
        if first == last {
            let head = (from < to).then_some(PagePart { page_index: first, from, to });
            return Self { head, body: first..first, tail: None };
        }
        let head = (from > 0).then_some(PagePart { page_index: first, from, to: PAGE_SIZE });
        let tail = (to > 0).then_some(PagePart { page_index: last, from: 0, to });
        Self { head, body: first + u64::from(from > 0)..last, tail }
    }

    /// The bytes before the whole pages.
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        self.head.map_or(0, PagePart::len_bytes)
    }

    /// The bytes of the whole pages.
    #[must_use]
    pub const fn body_bytes(&self) -> usize {
        (self.body.end - self.body.start) as usize * PAGE_SIZE
    }

    /// All pages that have a part of it.
    #[must_use]
    pub fn pages(&self) -> Range<u64> {
        let first = self.head.map_or(self.body.start, |part| part.page_index);
        let last = self.tail.or_else(|| self.head.filter(|_| self.body.is_empty()));
        first..last.map_or(self.body.end, |part| part.page_index + 1)
    }
}

/// Where [`Op::WriteBytes`] writes.
///
/// # Errors
/// [`Error::OutOfRange`]: past the last page.
pub(crate) fn check_bytes(offset_bytes: u64, data: &[u8]) -> Result<PageParts> {
    let len_bytes = data.len() as u64;
    let end = offset_bytes.checked_add(len_bytes);
    if end.is_none_or(|end| end > MAX_PAGE_COUNT * PAGE_BYTES) {
        let first_page = offset_bytes / PAGE_BYTES;
        let count = (offset_bytes % PAGE_BYTES + len_bytes).div_ceil(PAGE_BYTES);
        return Err(Error::OutOfRange { first_page, count });
    }
    Ok(PageParts::of(offset_bytes, len_bytes))
}

/// The unit that makes the same changes with writes of whole pages: each [`Op::WriteBytes`] becomes
/// up to three writes of pages. Reservation and conditions stay behind. `read` fills a page with
/// what it holds before the unit.
///
/// # Errors
/// [`Error::OutOfRange`], and those of `read`.
pub fn in_whole_pages<'u>(
    aru: &'u Aru<'_>,
    mut read: impl FnMut(Lid, u64, &mut [u8]) -> Result<()>,
) -> Result<Aru<'u>> {
    let mut whole = Aru::new(aru.view());
    if aru.reclaims() {
        whole.set_reclaims();
    }
    for (at, op) in (0..).zip(aru.ops()) {
        let (list, offset_bytes, data) = match op {
            Op::WriteBytes { list, offset_bytes, data } => (*list, *offset_bytes, &data[..]),
            Op::WritePages { list, first_page, data } => {
                let data = Cow::Borrowed(&data[..]);
                if aru.kept().contains(&at) {
                    whole.write_pages_to_change(*list, *first_page, data);
                } else {
                    whole.write_pages(*list, *first_page, data);
                }
                continue;
            }
            op => {
                whole.push(op.clone());
                continue;
            }
        };
        let parts = check_bytes(offset_bytes, data)?;
        let (of_head, rest) = data.split_at(parts.head_bytes());
        let (of_body, of_tail) = rest.split_at(parts.body_bytes());
        // It changes nothing, but the list must be there.
        if data.is_empty() || !of_body.is_empty() {
            whole.write_pages(list, parts.body.start, of_body);
        }
        for (part, data) in [(parts.head, of_head), (parts.tail, of_tail)] {
            let Some(part) = part else { continue };
            let mut page = vec![0; PAGE_SIZE];
            match found_in(whole.ops(), list, part.page_index) {
                Found::Page(found) => page[..found.len()].copy_from_slice(found),
                Found::Zeros => {}
                Found::Before(list, page_index) => read(list, page_index, &mut page)?,
            }
            page[part.bytes()].copy_from_slice(data);
            whole.write_pages_to_change(list, part.page_index, page);
        }
    }
    Ok(whole)
}

/// What a page holds after some changes.
enum Found<'a> {
    /// This; zeros fill the rest.
    Page(&'a [u8]),
    Zeros,
    /// What this page held before them.
    Before(Lid, u64),
}

/// What a page holds after `ops`, which write whole pages.
fn found_in<'a>(ops: &'a [Op<'_>], mut list: Lid, mut page_index: u64) -> Found<'a> {
    let within =
        |page: u64, first: u64, count: u64| page.checked_sub(first).filter(|at| *at < count);
    for op in ops.iter().rev() {
        match op {
            Op::CreateList { list: of, .. }
            | Op::RestoreList { list: of, .. }
            | Op::DeleteList { list: of } => {
                if *of == list {
                    return Found::Zeros;
                }
            }
            Op::WritePages { list: of, first_page, data } => {
                let count = data.len().div_ceil(PAGE_SIZE) as u64;
                if let Some(at) = within(page_index, *first_page, count).filter(|_| *of == list) {
                    let from = at as usize * PAGE_SIZE;
                    return Found::Page(&data[from..data.len().min(from + PAGE_SIZE)]);
                }
            }
            Op::ZeroPages { list: of, first_page, count }
            | Op::PunchPages { list: of, first_page, count } => {
                if *of == list && within(page_index, *first_page, *count).is_some() {
                    return Found::Zeros;
                }
            }
            Op::MovePages { from, from_page, to, to_page, count } => {
                if let Some(at) = within(page_index, *to_page, *count).filter(|_| *to == list) {
                    // A range that does not exist is refused when the unit is applied.
                    (list, page_index) = (*from, from_page.saturating_add(at));
                } else if *from == list && within(page_index, *from_page, *count).is_some() {
                    return Found::Zeros;
                }
            }
            Op::SwapPages { a, b } => {
                list = match list {
                    of if of == *a => *b,
                    of if of == *b => *a,
                    of => of,
                };
            }
            Op::SetHints { .. }
            | Op::PutRecord { .. }
            | Op::DeleteRecord { .. }
            | Op::WriteBytes { .. } => {}
        }
    }
    Found::Before(list, page_index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_pages() {
        let part = |page_index, from, to| Some(PagePart { page_index, from, to });
        let cut = |offset, len_bytes| {
            let parts = PageParts::of(offset, len_bytes);
            let pages = parts.pages();
            (parts.head, parts.body, parts.tail, pages)
        };
        assert_eq!(cut(4096, 8192), (None, 1..3, None, 1..3));
        assert_eq!(cut(100, 50), (part(0, 100, 150), 0..0, None, 0..1));
        assert_eq!(cut(100, 3996), (part(0, 100, 4096), 1..1, None, 0..1));
        assert_eq!(cut(8192, 10), (part(2, 0, 10), 2..2, None, 2..3));
        assert_eq!(cut(4000, 200), (part(0, 4000, 4096), 1..1, part(1, 0, 104), 0..2));
        assert_eq!(cut(1, 12288), (part(0, 1, 4096), 1..3, part(3, 0, 1), 0..4));
        assert_eq!(cut(4096, 4097), (None, 1..2, part(2, 0, 1), 1..3));
        assert_eq!(cut(4097, 0), (None, 1..1, None, 1..1));
    }
}
