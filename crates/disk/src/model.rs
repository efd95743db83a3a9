//! A logical disk in memory, simple enough to be obviously correct: the reference that others are
//! compared with, and a disk for the tests of clients.
//!
//! - [`ModelState`]: what one version holds at one moment. Cheap to clone, comparable with `==`.
//! - [`ModelVersions`]: the versions of a disk, and a state for each.
//! - [`ModelDisk`]: a [`LogicalDisk`] with [`Versions`] around them. It can keep the state after
//!   every commit ([`ModelDisk::recording`]), which is every state that a crash may leave.
//!
//! The model checks the operations of a unit in order, each against the state that the earlier ones
//! leave. Within one operation it checks sizes and ranges before it looks for lists, and the source
//! before the destination. The first mistake that it finds is the error.

mod quota;
mod scan;
mod state;
#[cfg(test)]
mod tests;
mod versions;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use dendro_base::sync::RwLock;
use dendro_base::{Clock, ManualClock, Origin, Timestamp};

pub use state::{ModelList, ModelState, apply};
pub use versions::ModelVersions;

use crate::{
    Aru, Branch, ChangedLists, ClientKind, CommitSeq, Completion, Condition, Error, GROUP_PAGES,
    Ledger, Lid, ListHints, LogicalDisk, MAX_PAGE_COUNT, Op, PAGE_SIZE, Quota, Record, Reservation,
    Result, ScanPoint, Scanned, Snapshot, Space, VersionTable, VersionUsage, Versions, View,
};

/// Why a disk that was shut down is read-only.
const SHUT_DOWN: &str = "the disk was shut down";

/// The state behind the lock.
#[derive(Debug)]
struct Inner {
    versions: ModelVersions,
    next_list: Lid,
    last_commit: CommitSeq,
    flushed: CommitSeq,
    /// The state after each commit, when it is kept; the first is the one before any.
    history: Option<Vec<(CommitSeq, ModelVersions)>>,
    shut_down: bool,
    failure: Option<String>,
    changed_lists: ChangedLists,
    /// What is reserved of the quotas of clients.
    ledgers: BTreeMap<u32, Arc<Ledger>>,
}

impl Inner {
    fn check_writable(&self) -> Result<()> {
        match &self.failure {
            Some(why) => Err(Error::Failed(why.clone())),
            None if self.shut_down => Err(Error::ReadOnly(SHUT_DOWN.into())),
            None => Ok(()),
        }
    }

    fn check_conditions(&self, aru: &Aru<'_>) -> Result<()> {
        let state = self.versions.state(aru.view())?;
        let differs = |condition: &Condition| match condition {
            Condition::RecordIs { list, index, value } => {
                let found = state.shared_list(*list);
                let found = found.as_ref().and_then(|list| list.record(*index));
                (found != value.as_ref()).then_some(*list)
            }
            Condition::Unchanged { .. } => None,
        };
        let differs = aru.conditions().iter().find_map(differs);
        match differs.or_else(|| self.changed_lists.changed(aru)) {
            Some(list) => Err(Error::ConditionFailed(list)),
            None => Ok(()),
        }
    }

    /// Counts what was just done as a commit.
    fn committed(&mut self) -> CommitSeq {
        self.last_commit = CommitSeq(self.last_commit.0 + 1);
        if let Some(history) = &mut self.history {
            history.push((self.last_commit, self.versions.clone()));
        }
        self.last_commit
    }

    /// Makes a change to the versions, which is a commit.
    fn change<T>(&mut self, change: impl FnOnce(&mut ModelVersions) -> Result<T>) -> Result<T> {
        self.check_writable()?;
        let done = change(&mut self.versions)?;
        self.committed();
        Ok(done)
    }
}

/// A [`LogicalDisk`] with [`Versions`] in memory.
///
/// It counts as space the bytes of records and of pages without their trailing zeros; what
/// versions share counts once. A unit needs at worst what it puts and writes, whatever that
/// replaces; making a version needs nothing.
pub struct ModelDisk {
    capacity_bytes: Option<u64>,
    clock: Arc<dyn Clock>,
    ledger: Arc<Ledger>,
    inner: RwLock<Inner>,
}

impl ModelDisk {
    /// An empty disk that holds `capacity_bytes`, or any number when `None`.
    #[must_use]
    pub fn new(capacity_bytes: Option<u64>) -> Self {
        Self::from_state(ModelState::default(), capacity_bytes)
    }

    /// A disk that holds `state`, as if it was opened after a crash: new numbers begin behind the
    /// last list that exists.
    #[must_use]
    pub fn from_state(state: ModelState, capacity_bytes: Option<u64>) -> Self {
        let clock = Arc::new(ManualClock::default());
        let versions = ModelVersions::new(state, clock.now());
        Self::from_versions(versions, capacity_bytes).with_clock(clock)
    }

    /// As [`Self::from_state`], with several versions.
    #[must_use]
    pub fn from_versions(versions: ModelVersions, capacity_bytes: Option<u64>) -> Self {
        let next_list = versions.last_list().map_or(Lid::FIRST, |last| Lid(last.0 + 1));
        Self {
            capacity_bytes,
            clock: Arc::new(ManualClock::default()),
            ledger: Arc::default(),
            inner: RwLock::new(Inner {
                versions,
                next_list,
                last_commit: CommitSeq(0),
                flushed: CommitSeq(0),
                history: None,
                shut_down: false,
                failure: None,
                changed_lists: ChangedLists::new(CommitSeq(0), usize::MAX),
                ledgers: BTreeMap::new(),
            }),
        }
    }

    /// The same disk, taking the times of its versions from `clock` instead of a
    /// [`ManualClock`].
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The same disk, keeping the state after every commit from now on, for [`Self::history`].
    #[must_use]
    pub fn recording(mut self) -> Self {
        let inner = self.inner.get_mut();
        inner.history = Some(vec![(inner.last_commit, inner.versions.clone())]);
        self
    }

    /// What the main head holds now.
    #[must_use]
    pub fn state(&self) -> ModelState {
        self.inner.read().versions.main().clone()
    }

    /// What all versions hold now.
    #[must_use]
    pub fn model_versions(&self) -> ModelVersions {
        self.inner.read().versions.clone()
    }

    /// The state of the main head before the first commit and after each one, since
    /// [`Self::recording`]; empty if that was not called. After a crash, the disk would be as in
    /// one of them, not before [`Self::flushed`].
    #[must_use]
    pub fn history(&self) -> Vec<(CommitSeq, ModelState)> {
        let history = self.version_history().into_iter();
        history.map(|(seq, versions)| (seq, versions.main().clone())).collect()
    }

    /// As [`Self::history`], with all versions.
    #[must_use]
    pub fn version_history(&self) -> Vec<(CommitSeq, ModelVersions)> {
        self.inner.read().history.clone().unwrap_or_default()
    }

    /// The last commit that is durable.
    #[must_use]
    pub fn flushed(&self) -> CommitSeq {
        self.inner.read().flushed
    }

    /// Makes the disk behave as after a failed device write: every later change and flush fails
    /// with [`Error::Failed`] and `why`; reads still work.
    pub fn fail(&self, why: &str) {
        self.inner.write().failure = Some(why.to_owned());
    }

    fn available_bytes(&self, versions: &ModelVersions) -> u64 {
        self.capacity_bytes
            .unwrap_or(u64::MAX >> 1)
            .saturating_sub(versions.live_bytes())
            .saturating_sub(self.ledger.reserved_bytes())
    }

    fn check_space(&self, versions: &ModelVersions, aru: &Aru<'_>) -> Result<()> {
        if self.capacity_bytes.is_none() || aru.reclaims() {
            return Ok(());
        }
        let needed_bytes = aru
            .ops()
            .iter()
            .map(|op| match op {
                Op::PutRecord { value, .. } => value.len() as u64,
                Op::WritePages { data, .. } | Op::WriteBytes { data, .. } => data.len() as u64,
                _ => 0,
            })
            .sum();
        let others_bytes = self.ledger.reserved_by_others_bytes(aru.reservation());
        let own_bytes = self.ledger.reserved_bytes() - others_bytes;
        let available_bytes = self.available_bytes(versions).saturating_add(own_bytes);
        if needed_bytes > available_bytes {
            return Err(Error::NoSpace { needed_bytes, available_bytes });
        }
        Ok(())
    }

    /// What `view` has of `list`.
    fn look(&self, view: View, list: Lid) -> Result<Option<Arc<ModelList>>> {
        Ok(self.inner.read().versions.state(view)?.shared_list(list))
    }
}

impl fmt::Debug for ModelDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelDisk")
            .field("capacity_bytes", &self.capacity_bytes)
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl LogicalDisk for ModelDisk {
    fn allocate_list(&self) -> Result<Lid> {
        let mut inner = self.inner.write();
        inner.check_writable()?;
        let list = inner.next_list;
        inner.next_list = Lid(list.0 + 1);
        Ok(list)
    }

    fn try_commit(&self, aru: &mut Aru<'_>) -> Result<CommitSeq> {
        let mut guard = self.inner.write();
        let inner = &mut *guard;
        inner.check_writable()?;
        inner.check_conditions(aru)?;
        inner.versions.check(aru.view(), aru.ops())?;
        self.check_space(&inner.versions, aru)?;
        inner.check_quota(aru)?;
        inner.versions.apply(aru.view(), aru.ops())?;
        for op in aru.ops() {
            if let Op::CreateList { list, .. } | Op::RestoreList { list, .. } = op {
                inner.next_list = inner.next_list.max(Lid(list.0 + 1));
            }
        }
        let seq = inner.committed();
        inner.changed_lists.note(aru.view(), aru.ops(), seq);
        aru.clear();
        Ok(seq)
    }

    fn last_commit(&self) -> CommitSeq {
        self.inner.read().last_commit
    }

    fn when_durable(&self, up_to: CommitSeq, then: Completion) {
        then(self.flush(up_to));
    }

    fn flush_list(&self, view: View, list: Lid) -> Result<()> {
        let last = self.inner.read().changed_lists.last_change(view, list);
        self.flush(last)
    }

    fn flush(&self, up_to: CommitSeq) -> Result<()> {
        let mut inner = self.inner.write();
        if let Some(why) = &inner.failure {
            return Err(Error::Failed(why.clone()));
        }
        inner.flushed = inner.flushed.max(up_to.min(inner.last_commit));
        Ok(())
    }

    fn reserve(&self, len_bytes: u64) -> Result<Reservation> {
        // With the write lock, no commit can use the space between the check and the reservation.
        let inner = self.inner.write();
        inner.check_writable()?;
        let available_bytes = self.available_bytes(&inner.versions);
        let limit_bytes = self.ledger.reserved_bytes().saturating_add(available_bytes);
        self.ledger
            .reserve(len_bytes, limit_bytes)
            .ok_or(Error::NoSpace { needed_bytes: len_bytes, available_bytes })
    }

    fn reserve_in(&self, view: View, len_bytes: u64) -> Result<Reservation> {
        let reserved = self.reserve(len_bytes)?;
        let of_quota = self.reserve_of_quota(view, len_bytes)?;
        Ok(match of_quota {
            Some(of_quota) => reserved.with_quota(of_quota),
            None => reserved,
        })
    }

    fn quota(&self, view: View) -> Option<Quota> {
        Some(self.inner.read().quota(view)?.0)
    }

    fn client_kind(&self, view: View) -> Option<ClientKind> {
        self.inner.read().versions.table().kind_of(view.branch)
    }

    fn space(&self) -> Space {
        let inner = self.inner.read();
        Space {
            capacity_bytes: self.capacity_bytes.unwrap_or(u64::MAX >> 1),
            live_bytes: inner.versions.live_bytes(),
            available_bytes: self.available_bytes(&inner.versions),
            reserved_bytes: self.ledger.reserved_bytes(),
        }
    }

    fn read_only_reason(&self) -> Option<String> {
        let inner = self.inner.read();
        inner.failure.clone().or_else(|| inner.shut_down.then(|| SHUT_DOWN.to_owned()))
    }

    fn shut_down(&self) -> Result<()> {
        self.flush(CommitSeq::LATEST)?;
        self.inner.write().shut_down = true;
        Ok(())
    }

    fn hints(&self, view: View, list: Lid) -> Result<Option<ListHints>> {
        Ok(self.look(view, list)?.map(|list| list.hints()))
    }

    fn lists(&self, view: View, from: Lid, max: usize) -> Result<Vec<Lid>> {
        let inner = self.inner.read();
        let lists = inner.versions.state(view)?.lists(from);
        Ok(lists.map(|(list, _)| list).take(max).collect())
    }

    fn record(&self, view: View, list: Lid, index: u64) -> Result<Option<Record>> {
        Ok(self.look(view, list)?.and_then(|list| list.record(index).cloned()))
    }

    fn records(&self, view: View, list: Lid, from: u64, max: usize) -> Result<Vec<(u64, Record)>> {
        let list = self.look(view, list)?;
        let Some(list) = list else { return Ok(Vec::new()) };
        Ok(list.records(from).map(|(index, value)| (index, value.clone())).take(max).collect())
    }

    fn read_pages(&self, view: View, list: Lid, first_page: u64, buf: &mut [u8]) -> Result<()> {
        assert!(buf.len().is_multiple_of(PAGE_SIZE), "a read of {} bytes", buf.len());
        let list = self.look(view, list)?;
        let count = (buf.len() / PAGE_SIZE) as u64;
        let range = state::page_range(first_page, count)?;
        buf.fill(0);
        let Some(list) = list else { return Ok(()) };
        for (page, data) in list.pages(range) {
            // Inside `buf`, whose length is a usize.
            let offset = (page - first_page) as usize * PAGE_SIZE;
            buf[offset..offset + data.len()].copy_from_slice(data);
        }
        Ok(())
    }

    fn next_data(&self, view: View, list: Lid, from: u64) -> Result<Option<u64>> {
        let list = self.look(view, list)?;
        let Some(list) = list else { return Ok(None) };
        Ok(list.pages(from..MAX_PAGE_COUNT).next().map(|(page, _)| page))
    }

    fn next_hole(&self, view: View, list: Lid, from: u64) -> Result<u64> {
        let list = self.look(view, list)?;
        let Some(list) = list else { return Ok(from) };
        let mut hole = from;
        for (page, _) in list.pages(from..MAX_PAGE_COUNT) {
            if page != hole {
                break;
            }
            hole += 1;
        }
        Ok(hole)
    }

    fn count_pages(&self, view: View, list: Lid, range: Range<u64>) -> Result<u64> {
        let list = self.look(view, list)?;
        Ok(list.map_or(0, |list| list.pages(range).count() as u64))
    }

    fn scan(
        &self,
        view: View,
        from: ScanPoint,
        max: usize,
    ) -> Result<(Vec<Scanned>, Option<ScanPoint>)> {
        Ok(self.inner.read().versions.state(view)?.scan(from, max))
    }
}

impl Versions for ModelDisk {
    fn versions(&self) -> VersionTable {
        self.inner.read().versions.table().clone()
    }

    fn snapshot(&self, branch: u32, name: Option<&str>) -> Result<Snapshot> {
        let now = self.clock.now();
        self.inner.write().change(|versions| versions.snapshot(branch, name, now))
    }

    fn branch_off(&self, view: View, name: &str) -> Result<Branch> {
        let now = self.clock.now();
        self.inner.write().change(|versions| versions.branch_off(view, name, now))
    }

    fn rename(&self, view: View, name: &str) -> Result<()> {
        self.inner.write().change(|versions| versions.rename(view, name))
    }

    fn hold(&self, view: View, is_held: bool) -> Result<()> {
        self.inner.write().change(|versions| versions.hold(view, is_held))
    }

    fn delete(&self, view: View) -> Result<()> {
        self.inner.write().change(|versions| versions.delete(view))
    }

    fn promote(&self, branch: u32) -> Result<()> {
        self.inner.write().change(|versions| versions.promote(branch))
    }

    fn roll_back(&self, branch: u32, to: View) -> Result<Branch> {
        let now = self.clock.now();
        self.inner.write().change(|versions| versions.roll_back(branch, to, now))
    }

    fn begin_receive(&self, base: Option<View>, kind: Option<ClientKind>) -> Result<Branch> {
        let now = self.clock.now();
        self.inner.write().change(|versions| versions.begin_receive(base, kind, now))
    }

    fn name_client(&self, branch: u32, name: &str) -> Result<Branch> {
        self.inner.write().change(|versions| versions.name_client(branch, name))
    }

    fn set_quota(&self, branch: u32, limit_bytes: Option<u64>) -> Result<()> {
        self.inner.write().change(|versions| versions.set_quota(branch, limit_bytes))
    }

    fn note_receive(&self, branch: u32, note: &str) -> Result<()> {
        self.inner.write().change(|versions| versions.note_receive(branch, note))
    }

    fn end_receive(
        &self,
        branch: u32,
        name: Option<&str>,
        origin: Origin,
        time: Timestamp,
    ) -> Result<Snapshot> {
        self.inner.write().change(|versions| versions.end_receive(branch, name, origin, time))
    }

    fn version_usage(&self) -> Result<Vec<VersionUsage>> {
        Ok(self.inner.read().versions.version_usage())
    }

    fn freed_by(&self, views: &[View]) -> Result<u64> {
        self.inner.read().versions.freed_by(views)
    }

    fn changed_lists(&self, a: View, b: View, from: Lid, max: usize) -> Result<Vec<Lid>> {
        let mut lists = self.inner.read().versions.changed_lists(a, b, from)?;
        lists.truncate(max);
        Ok(lists)
    }

    fn changed_records(
        &self,
        a: View,
        b: View,
        list: Lid,
        from: u64,
        max: usize,
    ) -> Result<Vec<u64>> {
        let mut records = self.inner.read().versions.changed_records(a, b, list, from)?;
        records.truncate(max);
        Ok(records)
    }

    fn changed_pages(&self, a: View, b: View, list: Lid, from: u64) -> Result<Option<Range<u64>>> {
        let pages = self.inner.read().versions.changed_pages(a, b, list, from)?;
        let Some(first) = pages.first().copied() else { return Ok(None) };
        let group_end = (first / GROUP_PAGES + 1) * GROUP_PAGES;
        let end = (first..group_end).zip(pages).take_while(|(at, page)| at == page).count();
        Ok(Some(first..first + end as u64))
    }
}
