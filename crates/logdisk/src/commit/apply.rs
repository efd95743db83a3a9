//! Applying a unit: to the state first, then to the log.
//!
//! Invariants:
//! 1. (apply 1) A unit is whole. What it changes in the state can be undone until all of it has
//!    been changed; only then are its records entered in the log, which cannot fail.
//! 2. (apply 2) Nothing is read from the device while the engine's lock is held. A node that is not
//!    in memory ends the attempt, which leaves no trace; the caller loads the node and tries again.
//!
//! The map can name a page only when the page has an address. So the blocks of a unit's pages are
//! put into the open partial segments first. If the unit fails, no record names these blocks, and
//! they are only unused room.
//!
//! A unit that does not fit into one partial segment of the main log cannot delay its records until
//! the end. Such a unit is rehearsed: it is applied to the state alone and undone, which leaves
//! every node that it changes dirty. When it is applied after that, it needs no other node, so
//! nothing can stop it half-way.

use dendro_base::sync::Arc;
use dendro_base::units::PAGE_SIZE;
use dendro_disk::{Aru, CommitSeq, Error, Lid, MAX_PAGE_COUNT, MAX_UNIT_GROUPS, Op, VersionTable};
use dendro_format::chunk::CHUNK_PAGES;
use dendro_format::record::{MAX_FIXED_LEN_BYTES, PUT_RECORD_LEN_BYTES};
use dendro_format::{PageRef, Record, SegmentNo};
use dendro_policy::Class;
use smallvec::SmallVec;

use crate::commit::deferral::{Deferral, can_be_put_off};
use crate::commit::quota::Tally;
use crate::commit::unit::{Contents, WorstCase, chunks_in, names};
use crate::engine::open_unit::OpenUnit;
use crate::engine::{Engine, PARTIAL_LEN_BYTES};
use crate::fault::{Fault, Outcome};
use crate::log::partial::{Content, page_record_bytes};
use crate::map::Nodes;
use crate::state::chunk_edit::OwnPage;
use crate::state::deletion::{MAX_REMOVED_AT_ONCE, Remains};
use crate::state::hints::stored;
use crate::state::item::ItemKey;
use crate::state::pages::{ChunkBudget, chunks_of, page_range};
use crate::versions::rearrangement::Rearrangement;

/// When the records of a unit are entered in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logging {
    /// Never: the unit is rehearsed.
    Rehearsal,
    /// After all of the unit has been applied to the state (apply 1).
    AtEnd,
    /// With each change: the unit takes several partial segments, and has been rehearsed.
    Along,
}

/// How one page that a unit writes was stored.
#[derive(Clone, Copy, Debug)]
enum Placed {
    /// It is all zeros, and has no block.
    Zeros,
    /// It lies in a new block.
    New(PageRef),
    /// It replaces the content of a block that has not been written yet.
    InPlace(PageRef),
}

/// The state of applying one unit.
struct Application<'e, 'a> {
    engine: &'e mut Engine,
    unit: &'e OpenUnit,
    nodes: &'e dyn Nodes,
    contents: &'e Contents<'a>,
    branch: u32,
    logging: Logging,
    /// Whether its pages go to payload streams.
    is_apart: bool,
    /// Whether nothing was written in the current epoch before the unit.
    is_new_epoch: bool,
    /// The last segment that the policy was asked about (none for pages written first), and the
    /// class that it named. Pages that follow each other mostly replace blocks of the same segment.
    last_class: Option<(Option<SegmentNo>, Class)>,
    /// The groups that the unit may still change (space 2).
    budget: ChunkBudget,
    /// What is put off because it is too much to be done at once; `None` if that is refused.
    deferral: Option<Deferral>,
    /// Lists that are known to exist, and lists that the unit itself has deleted.
    known: SmallVec<[Lid; 4]>,
    deleted: SmallVec<[Lid; 2]>,
    /// Lists that the branch has lost, and that were put again.
    put_again: SmallVec<[Lid; 1]>,
    /// How many of the pages have been applied to the state.
    page_count: usize,
    placed: SmallVec<[Placed; 1]>,
    /// What is charged to a quota, if the unit is rehearsed for that.
    tally: Option<Tally>,
}

impl Engine {
    /// Applies a unit that fits.
    ///
    /// # Errors
    /// The reason why the unit cannot be applied, or not now; nothing has changed then.
    /// [`Fault::Unfinished`] when the log holds a part of the unit: no other unit may follow.
    pub(super) fn apply(
        &mut self,
        aru: &Aru<'_>,
        contents: &Contents<'_>,
        worst: WorstCase,
        nodes: &dyn Nodes,
    ) -> Outcome<CommitSeq> {
        if worst.begins_epoch() {
            self.change_versions(&VersionTable::end_epoch, nodes)?;
        }
        let context = self.head_context(aru.view().branch);
        let is_apart = worst.pages > 0 && self.streams().are_used() && self.has_segments_for(worst);
        let pages = if is_apart { 0 } else { worst.pages };
        let unit = self.begin_unit(context, pages, 0, worst.record_bytes)?;
        let quota = self.tight_quota(aru);
        if unit.spans() || quota.is_some() {
            let charged_bytes = self.rehearse(|engine| {
                let mut application =
                    Application::new(engine, &unit, nodes, contents, Logging::Rehearsal);
                application.follow(worst);
                application.tally = quota.map(|quota| quota.tally(aru));
                application.change_state(aru.ops())?;
                Ok(application.tally.as_ref().map_or(0, Tally::charged_bytes))
            })?;
            quota.map_or(Ok(()), |quota| quota.check(charged_bytes))?;
        }
        let logging = if unit.spans() { Logging::Along } else { Logging::AtEnd };
        let applied = self.transact(nodes, |engine| {
            let mut application = Application::new(engine, &unit, nodes, contents, logging);
            application.is_apart = is_apart;
            application.follow(worst);
            application.change_state(aru.ops())?;
            application.enter_records(aru.ops());
            application.keep_pages();
            if let Some(deferred) = application.deferred() {
                engine.state_mut().set_rearrangement(Some(deferred));
            }
            Ok(())
        });
        match applied {
            Err(fault) if unit.spans() => return Err(Fault::Unfinished(fault.into_error())),
            outcome => outcome?,
        }
        self.count_unit(worst.user_page_bytes, worst.user_record_bytes);
        self.end_unit(unit);
        if self.partial().used_bytes() >= PARTIAL_LEN_BYTES {
            self.close_partial();
        }
        Ok(CommitSeq(self.commit_seq()))
    }

    /// Whether the payload streams will find enough segments for the unit, whatever classes its
    /// pages get.
    fn has_segments_for(&self, worst: WorstCase) -> bool {
        let size = self.state().segments().layout().segment_size_bytes();
        // In each segment, headers take a part, and the end may be too short for another partial
        // segment.
        let bytes = worst.len_bytes() + worst.len_bytes() / 4;
        // This bound is cheap to compute, and mostly there are more free segments than that.
        let at_most = bytes.div_ceil(size) as usize + worst.pages;
        if self.state().segments().has_free(at_most.max(self.kept_segments())) {
            return true;
        }
        let filled_up = self.streams().filled_up_by(worst.pages, bytes, size);
        let needed = bytes.div_ceil(size) as usize + filled_up;
        self.state().segments().has_free(needed.max(self.kept_segments()))
    }
}

impl<'e, 'a> Application<'e, 'a> {
    fn new(
        engine: &'e mut Engine,
        unit: &'e OpenUnit,
        nodes: &'e dyn Nodes,
        contents: &'e Contents<'a>,
        logging: Logging,
    ) -> Self {
        Self {
            engine,
            unit,
            nodes,
            contents,
            branch: unit.context().branch,
            logging,
            is_apart: false,
            is_new_epoch: false,
            last_class: None,
            budget: ChunkBudget::of_unit(),
            deferral: None,
            known: SmallVec::new(),
            deleted: SmallVec::new(),
            put_again: SmallVec::new(),
            page_count: 0,
            placed: SmallVec::new(),
            tally: None,
        }
    }

    /// Takes over what is known about the unit from attempts before.
    fn follow(&mut self, worst: WorstCase) {
        self.is_new_epoch = worst.begins_epoch();
        self.deferral = worst.defers_above().map(Deferral::above);
    }

    fn change_state(&mut self, ops: &[Op<'_>]) -> Outcome<()> {
        let mut shared = None;
        for (at, op) in ops.iter().enumerate() {
            let applied = self.apply_op(&ops[..at], op);
            if let Some(tally) = &mut self.tally {
                tally.note_op(op, self.engine.used_of_quota(self.branch));
            }
            match applied {
                // The pages are copied for the unit only if it has no other fault.
                Err(fault @ Fault::Shared(..)) => {
                    shared.get_or_insert(fault);
                }
                applied => applied?,
            }
        }
        shared.map_or(Ok(()), Err)?;
        self.put_deferred()
    }

    /// Applies `op`, which follows the operations `before` of the unit.
    fn apply_op(&mut self, before: &[Op<'_>], op: &Op<'_>) -> Outcome<()> {
        if op.concerns_pages() && !self.is_due(before.len(), op)? {
            return Ok(());
        }
        let (branch, nodes) = (self.branch, self.nodes);
        match op {
            Op::WriteBytes { .. } => unreachable!("the unit writes whole pages by now"),
            Op::CreateList { list, hints } => {
                let remains = self.check_new(*list, before)?;
                let hints = stored(*hints);
                self.engine.state_mut().create_list(branch, list.0, hints, remains, nodes)?;
                self.known.push(*list);
            }
            Op::RestoreList { list, hints } => {
                if !self.is_lost(*list)? {
                    return self.apply_op(before, &Op::CreateList { list: *list, hints: *hints });
                }
                self.engine.state_mut().put_list_again(branch, list.0, stored(*hints), nodes)?;
                self.known.push(*list);
                self.put_again.push(*list);
            }
            Op::DeleteList { list } => {
                self.require(*list)?;
                self.engine.state_mut().delete_list(branch, list.0, nodes)?;
                self.known.retain(|known| known != list);
                self.deleted.push(*list);
            }
            Op::SetHints { list, hints } => {
                self.require(*list)?;
                self.engine.state_mut().put_list_again(branch, list.0, stored(*hints), nodes)?;
            }
            Op::PutRecord { list, index, value } => {
                let (index, value) = (*index, Arc::clone(value));
                let is_own =
                    self.engine.state_mut().put_record(branch, list.0, index, value, nodes)?;
                self.require_of(*list, is_own)?;
            }
            Op::DeleteRecord { list, index } => {
                let is_own =
                    self.engine.state_mut().delete_record(branch, list.0, *index, nodes)?;
                self.require_of(*list, is_own)?;
            }
            Op::WritePages { list, first_page, data } => {
                let count = data.len().div_ceil(PAGE_SIZE);
                self.budget.take(chunks_in(*first_page, count as u64))?;
                let contents: &Contents<'a> = self.contents;
                let pages = &contents.pages[self.page_count..self.page_count + count];
                let is_own = self.write_pages(list.0, *first_page, pages)?;
                self.page_count += count;
                self.require_of(*list, is_own)?;
            }
            Op::ZeroPages { list, first_page, count } => {
                self.budget.take(chunks_in(*first_page, *count))?;
                self.require(*list)?;
                let pages = page_range(*first_page, *count);
                self.engine.state_mut().zero_pages(branch, list.0, pages, nodes)?;
            }
            Op::PunchPages { list, first_page, count } => {
                self.require(*list)?;
                let pages = page_range(*first_page, *count);
                let budget = &mut self.budget;
                self.engine.state_mut().punch_pages(branch, list.0, pages, budget, nodes)?;
            }
            Op::MovePages { from, from_page, to, to_page, count } => {
                self.require(*from)?;
                self.require(*to)?;
                let (from, to) = ((from.0, *from_page), (to.0, *to_page));
                let budget = &mut self.budget;
                self.engine.state_mut().move_pages(branch, from, to, *count, budget, nodes)?;
            }
            Op::SwapPages { a, b } => {
                self.require(*a)?;
                self.require(*b)?;
                let budget = &mut self.budget;
                let (lists, pages) = ((a.0, b.0), 0..MAX_PAGE_COUNT);
                self.engine.state_mut().swap_pages(branch, lists, &pages, budget, nodes)?;
            }
        }
        if self.logging == Logging::Along && !matches!(op, Op::WritePages { .. }) {
            let len = match op {
                Op::PutRecord { value, .. } => PUT_RECORD_LEN_BYTES + value.len(),
                _ => MAX_FIXED_LEN_BYTES,
            };
            self.engine.make_room(self.unit, 0, 0, len)?;
            self.enter_record(op);
        }
        Ok(())
    }

    /// Whether `op`, which concerns pages and is at `place` in the unit, is done now. Otherwise it
    /// is put off.
    ///
    /// # Errors
    /// [`Fault::Rearranged`] when what another unit has put off must be finished first.
    fn is_due(&mut self, place: usize, op: &Op<'_>) -> Outcome<bool> {
        let (a, b) = op.lists();
        let state = self.engine.state();
        if state.is_rearranged(self.branch, a.0) || state.is_rearranged(self.branch, b.0) {
            return Err(Fault::Rearranged);
        }
        let Some(mut deferral) = self.deferral.take() else { return Ok(true) };
        if can_be_put_off(op) {
            self.require(a)?;
            self.require(b)?;
        }
        let (state, branch) = (self.engine.state(), self.branch);
        let is_put_off =
            deferral.put_off((place, op), (state, branch), &self.budget, self.nodes)?;
        if is_put_off && state.versions().rearrangement().is_some() {
            return Err(Fault::Rearranged);
        }
        self.deferral = Some(deferral);
        Ok(!is_put_off)
    }

    /// What the unit puts off, if anything.
    fn deferred(&self) -> Option<Rearrangement> {
        self.deferral.as_ref()?.rearrangement(self.branch)
    }

    /// Enters in the state what is put off, and in the log, if the unit is entered along.
    fn put_deferred(&mut self) -> Outcome<()> {
        let Some(deferred) = self.deferred() else { return Ok(()) };
        self.engine.state_mut().put_rearrangement(Some(&deferred), self.nodes)?;
        if self.logging == Logging::Along {
            let len = PUT_RECORD_LEN_BYTES + deferred.encode().len();
            self.engine.make_room(self.unit, 0, 0, len)?;
            self.enter_deferred();
        }
        Ok(())
    }

    /// Enters in the log what is put off.
    fn enter_deferred(&mut self) {
        if let Some(deferred) = self.deferred() {
            self.engine.push_rearrangement(Some(&deferred));
        }
    }

    /// Returns an error unless the list exists.
    fn require(&mut self, list: Lid) -> Outcome<()> {
        if self.known.contains(&list) {
            return Ok(());
        }
        let state = self.engine.state();
        let ancestry = state.versions().head_ancestry(self.branch)?;
        if !state.has_list(ancestry, list.0, self.nodes)? {
            return Err(Error::NoSuchList(list).into());
        }
        self.known.push(list);
        Ok(())
    }

    /// As [`Self::require`]. If the head had an entry of its own in the list, written in its epoch,
    /// the list exists: such an entry is there only while the list exists or is being removed.
    fn require_of(&mut self, list: Lid, is_own_found: bool) -> Outcome<()> {
        let is_own_found = is_own_found && self.deleted.is_empty();
        if is_own_found && !self.engine.state().removals().contains(list.0) {
            return Ok(());
        }
        self.require(list)
    }

    /// Whether the branch has neither the list, nor anything that says that it was deleted. So all
    /// that the branch would see of it belongs to it.
    fn is_lost(&self, list: Lid) -> Outcome<bool> {
        let state = self.engine.state();
        let ancestry = state.versions().head_ancestry(self.branch)?;
        let is_known = list < Lid::FIRST
            || self.deleted.contains(&list)
            || state.removals().contains(list.0)
            || state.newest(ancestry, ItemKey::list(list.0), self.nodes)?.is_some();
        Ok(!is_known)
    }

    /// Returns an error if the list cannot be created after the operations `before` of the unit.
    /// Otherwise returns what becomes of what deleted lists of its number have left.
    fn check_new(&self, list: Lid, before: &[Op<'_>]) -> Outcome<Remains> {
        let exists = Error::ListExists(list);
        if list < Lid::FIRST {
            return Err(exists.into());
        }
        let state = self.engine.state();
        let ancestry = state.versions().head_ancestry(self.branch)?;
        if state.has_list(ancestry, list.0, self.nodes)? {
            return Err(exists.into());
        }
        if state.is_beside_others(self.branch, list.0, self.nodes)? {
            // Other versions may have the number. But what the branch would see of another list of
            // it, or what is still to be removed of one, would become visible in the new list.
            let had_one = state.newest(ancestry, ItemKey::list(list.0), self.nodes)?.is_some();
            if had_one || self.deleted.contains(&list) {
                return Err(exists.into());
            }
            if state.removals().contains(list.0) {
                return Err(Fault::BeingRemoved(list));
            }
            return Ok(Remains::TakenOut);
        }
        let may_have_remains = self.deleted.contains(&list) || state.may_have_remains(list.0);
        if !may_have_remains {
            return Ok(Remains::TakenOut);
        }
        let may_be_elsewhere = state.versions().epoch() > 1 && list.0 < state.next_list();
        if may_be_elsewhere && state.is_in_some_version(list.0, self.nodes)? {
            return Err(exists.into());
        }
        // The unit removes what is left of the list if that is little. Otherwise it is set aside,
        // which needs an epoch in which nothing of it was written.
        let writes = |op: &Op<'_>| {
            let is_of_content = !matches!(
                op,
                Op::CreateList { .. } | Op::RestoreList { .. } | Op::DeleteList { .. }
            );
            is_of_content && names(op, list)
        };
        let is_written_by_unit = before.iter().any(writes);
        let most = if is_written_by_unit { MAX_UNIT_GROUPS as usize } else { MAX_REMOVED_AT_ONCE };
        if !state.has_more_entries(list.0, most, self.nodes)? {
            return Ok(Remains::TakenOut);
        }
        match (is_written_by_unit, self.is_new_epoch) {
            (true, _) => Err(Error::UnitTooLong.into()),
            (false, true) => Ok(Remains::SetAside),
            (false, false) => Err(Fault::NeedsNewEpoch),
        }
    }

    /// Writes pages. Returns whether the head had an entry of its epoch for one of their chunks.
    fn write_pages(&mut self, list: u64, first_page: u64, pages: &[Content<'_>]) -> Outcome<bool> {
        let mut is_own_found = false;
        let content_of = |page_index: u64| &pages[(page_index - first_page) as usize];
        for (number, slots) in chunks_of(first_page..first_page + pages.len() as u64) {
            let item = ItemKey::chunk(list, number);
            self.last_class = None;
            if slots.len() == 1 {
                let slot = slots.start;
                let state = self.engine.state();
                let (is_own, found) = state.look_at_page(self.branch, item, slot, self.nodes)?;
                is_own_found |= is_own;
                if let Some(OwnPage { own, seen }) = found {
                    let page_index = number * CHUNK_PAGES + u64::from(slot);
                    let block =
                        self.put_page(list, page_index, content_of(page_index), (own, seen))?;
                    let state = self.engine.state_mut();
                    state.replace_own(self.branch, item, (slot, own), block, self.nodes)?;
                    continue;
                }
            }
            let state = self.engine.state();
            let mut edit =
                state.edit_chunk(self.branch, list, number, slots.clone(), self.nodes)?;
            is_own_found |= edit.has_own();
            for slot in slots {
                let page_index = number * CHUNK_PAGES + u64::from(slot);
                let old = (edit.own_page(slot), edit.page(slot));
                let block = self.put_page(list, page_index, content_of(page_index), old)?;
                self.engine.state_mut().replace(&mut edit, slot, block);
            }
            self.engine.state_mut().put_edit(&edit, self.nodes)?;
        }
        Ok(is_own_found)
    }

    /// Stores a page. `own` is the page that the head wrote in its epoch, and `old` is the page
    /// that it sees.
    fn put_page(
        &mut self,
        list: u64,
        page_index: u64,
        content: &Content<'_>,
        (own, old): (Option<PageRef>, Option<PageRef>),
    ) -> Outcome<PageRef> {
        if self.logging == Logging::Rehearsal {
            if let Some(tally) = &mut self.tally {
                tally.note_page(Lid(list), page_index, content, own);
            }
            return Ok(PageRef::ZERO);
        }
        if let Some(old) = old.filter(|_| !self.contents.kept.is_empty()) {
            self.engine.forget_recent(&old);
        }
        let unit_pages = self.contents.pages.len();
        let placed = match own.and_then(|own| self.engine.fit_into(&own, content, unit_pages)) {
            Some(changed) => Placed::InPlace(changed),
            None if content.is_empty() => Placed::Zeros,
            None => Placed::New(self.place(list, page_index, content, old)?),
        };
        match self.logging {
            Logging::Along => {
                if matches!(placed, Placed::Zeros) {
                    self.engine.make_room(self.unit, 0, 0, MAX_FIXED_LEN_BYTES)?;
                }
                self.enter_page(list, page_index, content, placed);
            }
            _ => self.placed.push(placed),
        }
        Ok(match placed {
            Placed::Zeros => PageRef::ZERO,
            Placed::New(block) | Placed::InPlace(block) => block,
        })
    }

    /// Places a new block for a page, and reserves room for its record.
    fn place(
        &mut self,
        list: u64,
        page_index: u64,
        content: &Content<'_>,
        old: Option<PageRef>,
    ) -> Outcome<PageRef> {
        let class = if self.is_apart { self.user_class(old) } else { Class::MAIN };
        let engine = &mut *self.engine;
        let is_main = class == Class::MAIN;
        if self.logging == Logging::Along {
            let (pages, short_bytes) = if is_main { content.room() } else { (0, 0) };
            engine.make_room(self.unit, pages, short_bytes, page_record_bytes(1))?;
        }
        let block = if is_main {
            engine.partial().place(content)
        } else {
            engine.place_apart(self.unit, class, list, &[(page_index, *content)]).ok_or_else(
                || {
                    Error::Failed(format!(
                        "class {class} found no segment in which it can continue"
                    ))
                },
            )?
        };
        engine.note_placed(&block);
        Ok(block)
    }

    /// The class of payload stream that the policy chooses for a page that replaces `old`.
    fn user_class(&mut self, old: Option<PageRef>) -> Class {
        let layout = self.engine.state().segments().layout();
        let left = old.filter(|old| old.len_bytes > 0).map(|old| layout.segment_of(old.addr));
        let class = match self.last_class {
            Some((last, class)) if last == left => class,
            _ => self.engine.user_class(left),
        };
        self.last_class = Some((left, class));
        match class {
            // The room in the main log was checked for the unit's records alone.
            Class::MAIN => self.engine.streams().any_user_class(),
            class => class,
        }
    }

    /// Keeps the pages in memory that are likely to be read soon. A long unit keeps none.
    fn keep_pages(&self) {
        for (at, bytes) in &self.contents.kept {
            if let Some(Placed::New(block) | Placed::InPlace(block)) = self.placed.get(*at) {
                self.engine.keep_recent(block, Arc::clone(bytes));
            }
        }
    }

    /// Enters the unit's records, unless they were entered along with its changes.
    fn enter_records(&mut self, ops: &[Op<'_>]) {
        if self.logging == Logging::Along {
            return;
        }
        self.page_count = 0;
        self.engine.partial().set_context(self.unit.context());
        for (place, op) in ops.iter().enumerate() {
            match op {
                _ if self.deferral.as_ref().is_some_and(|deferral| deferral.has(place)) => {}
                Op::WritePages { list, first_page, data } => {
                    let count = data.len().div_ceil(PAGE_SIZE);
                    for page_index in *first_page..*first_page + count as u64 {
                        let contents: &Contents<'a> = self.contents;
                        let (content, placed) =
                            (&contents.pages[self.page_count], self.placed[self.page_count]);
                        self.enter_page(list.0, page_index, content, placed);
                        self.page_count += 1;
                    }
                }
                op => self.enter_record(op),
            }
        }
        self.enter_deferred();
    }

    fn enter_page(&mut self, list: u64, page_index: u64, content: &Content<'_>, placed: Placed) {
        let engine = &mut *self.engine;
        match placed {
            Placed::Zeros => {
                let record = Record::ZeroPages { list, first_page: page_index, count: 1 };
                engine.partial().push(&record);
            }
            Placed::New(block) => engine.record_page(self.unit, list, page_index, &block),
            Placed::InPlace(block) => engine.change_page(&block, content),
        }
    }

    /// Enters the record of any change except written pages.
    fn enter_record(&mut self, op: &Op<'_>) {
        let record = match op {
            Op::RestoreList { list, hints } if self.put_again.contains(list) => {
                Record::SetHints { list: list.0, hints: stored(*hints) }
            }
            Op::CreateList { list, hints } | Op::RestoreList { list, hints } => {
                Record::CreateList { list: list.0, hints: stored(*hints) }
            }
            Op::DeleteList { list } => Record::DeleteList { list: list.0 },
            Op::SetHints { list, hints } => {
                Record::SetHints { list: list.0, hints: stored(*hints) }
            }
            Op::PutRecord { list, index, value } => {
                return self.engine.partial().push_put(list.0, *index, value);
            }
            Op::DeleteRecord { list, index } => {
                Record::DeleteRecord { list: list.0, index: *index }
            }
            Op::ZeroPages { list, first_page, count } => {
                Record::ZeroPages { list: list.0, first_page: *first_page, count: *count }
            }
            Op::PunchPages { list, first_page, count } => {
                Record::PunchPages { list: list.0, first_page: *first_page, count: *count }
            }
            Op::MovePages { from, from_page, to, to_page, count } => Record::MovePages {
                from: from.0,
                from_page: *from_page,
                to: to.0,
                to_page: *to_page,
                count: *count,
            },
            Op::SwapPages { a, b } => Record::SwapPages { a: a.0, b: b.0 },
            Op::WritePages { .. } | Op::WriteBytes { .. } => {
                unreachable!("pages are entered one by one")
            }
        };
        self.engine.partial().push(&record);
    }
}
