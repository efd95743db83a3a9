//! What is read from a disk, compared with the model.

use dendro_base::Rng;
use dendro_disk::model::{ModelList, ModelState};
use dendro_disk::{
    Error, GROUP_PAGES, Lid, LogicalDisk, MAX_PAGE_COUNT, PAGE_SIZE, PageRange, View,
};

use super::engine::Engine;
use super::session::{Session, head_state};
use crate::system::Outcome;

/// The most ranges that are read at once.
const MAX_RANGES: u64 = 8;

fn unexpected(what: &str, error: &Error) -> String {
    format!("{what} failed: {error}")
}

/// What reading pages of a list answers.
fn bytes_of(held: Option<&ModelList>, first_page: u64, count: u64) -> Vec<u8> {
    let mut bytes = vec![0; count as usize * PAGE_SIZE];
    for (page, data) in held.into_iter().flat_map(|list| list.pages(first_page..first_page + count))
    {
        bytes[(page - first_page) as usize * PAGE_SIZE..][..data.len()].copy_from_slice(data);
    }
    bytes
}

/// Some pages of a list of `state`, or of one that it may not have; mostly beside data.
fn draw_range(rng: &mut Rng, state: &ModelState, highest: Lid) -> PageRange {
    let list = Lid(1 + rng.below(highest.0 + 1));
    let count = 1 + rng.below(20);
    let somewhere = rng.below(MAX_PAGE_COUNT) >> rng.below(51);
    let data = state.list(list).and_then(|held| held.pages(somewhere..MAX_PAGE_COUNT).next());
    let near = data.map_or(somewhere, |(page, _)| page.saturating_sub(rng.below(5)));
    PageRange { list, first_page: near.min(MAX_PAGE_COUNT - count), count }
}

impl<E: Engine> Session<'_, E> {
    pub(super) fn compare_some(&mut self) -> Outcome<()> {
        // Drawn apart, so that a seed does the same work whatever is read.
        let mut rng = self.rng.clone().fork();
        if self.rng.chance(20) {
            return self.compare_all();
        }
        let view = self.draw_view();
        self.compare_list(view)?;
        self.compare_scattered(&mut rng, view)?;
        self.compare_changes(&mut rng)
    }

    pub(super) fn compare_all(&self) -> Outcome<()> {
        let found =
            self.system.read(&self.life.disk).map_err(|error| unexpected("reading", &error))?;
        let difference = found.diff(&self.life.state.contents);
        difference.map_or(Ok(()), |text| Err(format!("without a crash: {text}")))
    }

    /// Reads a record and some pages of a list.
    fn compare_list(&mut self, view: View) -> Outcome<()> {
        let state = head_state(&self.life.state.contents, view);
        let lists: Vec<Lid> = state.lists(Lid(0)).map(|(list, _)| list).collect();
        let Some(&list) = lists.get(self.rng.below(lists.len().max(1) as u64) as usize) else {
            return Ok(());
        };
        let held = state.list(list).expect("it is one of them");
        let index = self.rng.below(64);
        let record = self
            .life
            .disk
            .record(view, list, index)
            .map_err(|error| unexpected("reading a record", &error))?;
        if record.as_ref() != held.record(index) {
            return Err(format!("record {index} of list {list} is wrong: {record:?}"));
        }
        let (first, count) = (self.rng.below(150), 1 + self.rng.below(40));
        let mut buf = vec![0xa5; count as usize * PAGE_SIZE];
        self.life
            .disk
            .read_pages(view, list, first, &mut buf)
            .map_err(|error| unexpected("reading pages", &error))?;
        if buf != bytes_of(Some(held), first, count) {
            return Err(format!("pages {first} to {} of list {list} are wrong", first + count));
        }
        Ok(())
    }

    /// Reads several ranges of pages at once, which may be of the same list and overlap.
    fn compare_scattered(&self, rng: &mut Rng, view: View) -> Outcome<()> {
        let state = head_state(&self.life.state.contents, view);
        let highest = self.life.state.highest_list;
        let ranges: Vec<PageRange> =
            (0..rng.below(MAX_RANGES + 1)).map(|_| draw_range(rng, state, highest)).collect();
        let mut buf = vec![0xa5; PageRange::len_bytes_of(&ranges) as usize];
        self.life
            .disk
            .read_scattered(view, &ranges, &mut buf)
            .map_err(|error| unexpected("reading scattered pages", &error))?;
        let mut rest = &buf[..];
        for &PageRange { list, first_page, count } in &ranges {
            let (found, others) = rest.split_at(count as usize * PAGE_SIZE);
            if found != bytes_of(state.list(list), first_page, count) {
                return Err(format!("{count} pages from {first_page} of list {list} are wrong"));
            }
            rest = others;
        }
        Ok(())
    }

    /// Asks for the pages in which two versions differ. Each that does must be told; others may be.
    fn compare_changes(&self, rng: &mut Rng) -> Outcome<()> {
        let Some(disk) = self.system.engine.versions(&self.life.disk) else { return Ok(()) };
        let contents = &self.life.state.contents;
        let views: Vec<View> = contents.table().views().collect();
        let mut any = || views[rng.below(views.len() as u64) as usize];
        let (a, b) = (any(), any());
        let has = |list: &Lid| head_state(contents, b).list(*list).is_some();
        let lists = head_state(contents, a).lists(Lid(0)).map(|(list, _)| list);
        let lists: Vec<Lid> = lists.filter(has).collect();
        let Some(&list) = lists.get(rng.below(lists.len().max(1) as u64) as usize) else {
            return Ok(());
        };
        let from = if rng.chance(50) { 0 } else { rng.below(MAX_PAGE_COUNT) >> rng.below(51) };
        let what = format!("changes of list {list} from {a} to {b}, from page {from} on");
        let (mut next, mut told) = (from, Vec::new());
        while let Some(pages) = disk
            .changed_pages(a, b, list, next)
            .map_err(|error| unexpected(&format!("reading {what}"), &error))?
        {
            let is_of_a_group = pages.start / GROUP_PAGES + 1 == pages.end.div_ceil(GROUP_PAGES);
            if pages.start < next || pages.is_empty() || !is_of_a_group {
                return Err(format!("{what}: {pages:?} are told from {next} on"));
            }
            next = pages.end;
            told.push(pages);
        }
        let expected = contents.changed_pages(a, b, list, from).expect("they are two views");
        let is_told = |page: &u64| told.iter().any(|pages| pages.contains(page));
        match expected.iter().find(|page| !is_told(page)) {
            None => Ok(()),
            Some(page) => Err(format!("{what}: page {page} is not told, but {told:?}")),
        }
    }
}
