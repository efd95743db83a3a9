//! Pages that units under construction have read: a write of a part of a page writes the rest of it
//! again, so nobody may have changed it in between.

use dendro_base::sync::atomic::{AtomicBool, Ordering};
use dendro_base::sync::{Arc, Weak};
use dendro_disk::{Lid, Op, PAGE_SIZE, View};

/// Says whether pages have changed since they are watched.
#[derive(Debug, Default)]
pub(crate) struct Watch(Arc<AtomicBool>);

impl Watch {
    /// Whether one of the pages may have changed. Whoever asks holds the engine's lock.
    pub(crate) fn has_changed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Watched {
    branch: u32,
    list: Lid,
    page_index: u64,
    /// It is gone with the watch.
    has_changed: Weak<AtomicBool>,
}

/// The pages that are watched: few, and for a short time.
#[derive(Debug, Default)]
pub(crate) struct WatchedPages(Vec<Watched>);

impl WatchedPages {
    /// Watches a page of the head of a branch, until `watch` is dropped.
    pub(crate) fn add(&mut self, view: View, list: Lid, page_index: u64, watch: &Watch) {
        let has_changed = Arc::downgrade(&watch.0);
        self.0.push(Watched { branch: view.branch, list, page_index, has_changed });
    }

    /// Notes the changes of a unit.
    #[inline]
    pub(crate) fn note(&mut self, view: View, ops: &[Op<'_>]) {
        if !self.0.is_empty() {
            self.note_each(view, ops);
        }
    }

    #[inline(never)]
    fn note_each(&mut self, view: View, ops: &[Op<'_>]) {
        self.0.retain(|watched| {
            let Some(has_changed) = watched.has_changed.upgrade() else { return false };
            if watched.branch == view.branch && ops.iter().any(|op| changes(op, watched)) {
                has_changed.store(true, Ordering::Relaxed);
            }
            !has_changed.load(Ordering::Relaxed)
        });
    }
}

/// Whether a change may be one of the page.
fn changes(op: &Op<'_>, watched: &Watched) -> bool {
    let (a, b) = op.lists();
    if a != watched.list && b != watched.list {
        return false;
    }
    let within =
        |first: u64, count: u64| watched.page_index.checked_sub(first).is_some_and(|at| at < count);
    match op {
        Op::SetHints { .. } | Op::PutRecord { .. } | Op::DeleteRecord { .. } => false,
        Op::WritePages { first_page, data, .. } => {
            within(*first_page, data.len().div_ceil(PAGE_SIZE) as u64)
        }
        Op::ZeroPages { first_page, count, .. } | Op::PunchPages { first_page, count, .. } => {
            within(*first_page, *count)
        }
        Op::CreateList { .. }
        | Op::RestoreList { .. }
        | Op::DeleteList { .. }
        | Op::WriteBytes { .. }
        | Op::MovePages { .. }
        | Op::SwapPages { .. } => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_tells_of_changes_to_its_pages_alone_and_is_forgotten_when_dropped() {
        let mut pages = WatchedPages::default();
        let (view, other) = (View::HEAD, View { branch: 2, epoch: None });
        let (list, page) = (Lid(7), 3);
        let write = |first_page, count: usize| Op::WritePages {
            list,
            first_page,
            data: vec![1; count * PAGE_SIZE].into(),
        };
        let watch = Watch::default();
        pages.add(view, list, page, &watch);
        pages.add(view, list, 9, &watch);
        pages.note(
            view,
            &[write(0, 3), write(4, 5), Op::PutRecord { list, index: 3, value: [1].into() }],
        );
        pages.note(view, &[Op::DeleteList { list: Lid(8) }]);
        pages.note(other, &[write(0, 20)]);
        assert!(!watch.has_changed());
        assert_eq!(pages.0.len(), 2);
        pages.note(view, &[Op::PunchPages { list, first_page: 9, count: 1 }]);
        assert!(watch.has_changed());
        pages.note(view, &[]);
        assert!(pages.0.is_empty(), "nobody needs to hear of it again");
        for op in [Op::DeleteList { list }, Op::SwapPages { a: Lid(8), b: list }] {
            let watch = Watch::default();
            pages.add(view, list, page, &watch);
            pages.note(view, &[op]);
            assert!(watch.has_changed());
        }
        let watch = Watch::default();
        pages.add(view, list, page, &watch);
        pages.add(view, list, page + 1, &watch);
        drop(watch);
        pages.note(view, &[write(0, 1)]);
        assert!(pages.0.is_empty(), "its watch was dropped");
    }
}
