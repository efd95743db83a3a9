//! What a disk with versions holds at one moment: a whole state for each head and each snapshot.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use dendro_base::{ClientKind, Origin, Timestamp};

use super::state::ModelState;
use crate::{
    Branch, Error, Lid, MAX_PAGE_COUNT, Op, Result, Snapshot, VersionTable, VersionUsage, Versions,
    View,
};

/// The versions of a disk and what each of them holds. Cheap to clone, comparable with `==`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelVersions {
    table: VersionTable,
    /// What each view of `table` holds.
    states: BTreeMap<(u32, Option<u64>), ModelState>,
}

const fn key(view: View) -> (u32, Option<u64>) {
    (view.branch, view.epoch)
}

impl ModelVersions {
    /// A disk made at `time`, whose only head holds `state`.
    #[must_use]
    pub fn new(state: ModelState, time: Timestamp) -> Self {
        let table = VersionTable::new(time);
        let states = BTreeMap::from([(key(table.main_head()), state)]);
        Self { table, states }
    }

    /// The versions that there are.
    #[must_use]
    pub const fn table(&self) -> &VersionTable {
        &self.table
    }

    /// What `view` holds.
    ///
    /// # Errors
    /// [`Error::NoSuchView`].
    pub fn state(&self, view: View) -> Result<&ModelState> {
        self.states.get(&key(view)).ok_or(Error::NoSuchView(view))
    }

    /// What the main head holds.
    #[must_use]
    pub fn main(&self) -> &ModelState {
        self.state(self.table.main_head()).expect("the main branch has a head")
    }

    /// The highest number of a list in any version.
    #[must_use]
    pub fn last_list(&self) -> Option<Lid> {
        self.states.values().filter_map(ModelState::last_list).max()
    }

    /// Says whether [`Self::apply`] would succeed.
    ///
    /// # Errors
    /// What [`Self::apply`] would answer.
    pub fn check(&self, view: View, ops: &[Op<'_>]) -> Result<()> {
        if view.epoch.is_some() {
            return Err(Error::NoSuchView(view));
        }
        // What is received has the numbers that it had elsewhere. Other clients may have any.
        let is_receiving = self.table.is_receiving(view.branch);
        let (client, _) = self.table.client_of(view.branch);
        let is_other =
            |of: &(u32, Option<u64>)| *of != key(view) && self.table.client_of(of.0).0 == client;
        let has_elsewhere = |list| {
            let mut others = self.states.iter().filter(|(of, _)| is_other(of));
            !is_receiving && others.any(|(_, state)| state.list(list).is_some())
        };
        self.state(view)?.check_beside(ops, &has_elsewhere)
    }

    /// Makes the changes of `ops` to a head, in their order, all or none.
    ///
    /// # Errors
    /// As [`LogicalDisk::commit`](crate::LogicalDisk::commit) for a unit that is wrong; nothing was
    /// changed.
    pub fn apply(&mut self, view: View, ops: &[Op<'_>]) -> Result<()> {
        self.check(view, ops)?;
        let state = self.states.get_mut(&key(view)).ok_or(Error::NoSuchView(view))?;
        ops.iter().for_each(|op| state.apply_checked(op));
        Ok(())
    }

    /// Ends the epoch, as a disk may do of its own accord. No version changes by it.
    ///
    /// # Panics
    /// No epoch follows.
    pub fn end_epoch(&mut self) {
        self.table.end_epoch().expect("an epoch follows");
    }

    /// As [`Versions::snapshot`], made at `time`.
    ///
    /// # Errors
    /// As [`Versions::snapshot`].
    pub fn snapshot(
        &mut self,
        branch: u32,
        name: Option<&str>,
        time: Timestamp,
    ) -> Result<Snapshot> {
        let snapshot = self.table.snapshot(branch, name, time)?;
        self.copy(View { branch, epoch: None }, snapshot.view());
        Ok(snapshot)
    }

    /// As [`Versions::branch_off`], made at `time`.
    ///
    /// # Errors
    /// As [`Versions::branch_off`].
    pub fn branch_off(&mut self, view: View, name: &str, time: Timestamp) -> Result<Branch> {
        let branch = self.table.branch_off(view, name, time)?;
        self.copy(view, branch.head());
        Ok(branch)
    }

    /// As [`Versions::begin_receive`], done at `time`.
    ///
    /// # Errors
    /// As [`Versions::begin_receive`].
    pub fn begin_receive(
        &mut self,
        base: Option<View>,
        kind: Option<ClientKind>,
        time: Timestamp,
    ) -> Result<Branch> {
        let branch = self.table.begin_receive(base, kind, time)?;
        let state = base.map_or_else(ModelState::default, |base| self.states[&key(base)].clone());
        self.states.insert(key(branch.head()), state);
        Ok(branch)
    }

    /// As [`Versions::name_client`].
    ///
    /// # Errors
    /// As [`Versions::name_client`].
    pub fn name_client(&mut self, branch: u32, name: &str) -> Result<Branch> {
        self.table.name_client(branch, name)
    }

    /// As [`Versions::set_quota`].
    ///
    /// # Errors
    /// As [`Versions::set_quota`].
    pub fn set_quota(&mut self, branch: u32, limit_bytes: Option<u64>) -> Result<()> {
        self.table.set_quota(branch, limit_bytes)
    }

    /// What the versions of a client hold.
    pub(super) fn states_of(&self, client: u32) -> impl Iterator<Item = &ModelState> {
        let is_of = move |of: &u32| self.table.client_of(*of).0 == client;
        self.states.iter().filter(move |((of, _), _)| is_of(of)).map(|(_, state)| state)
    }

    /// As [`Versions::note_receive`].
    ///
    /// # Errors
    /// As [`Versions::note_receive`].
    pub fn note_receive(&mut self, branch: u32, note: &str) -> Result<()> {
        self.table.note_receive(branch, note)
    }

    /// As [`Versions::end_receive`].
    ///
    /// # Errors
    /// As [`Versions::end_receive`].
    pub fn end_receive(
        &mut self,
        branch: u32,
        name: Option<&str>,
        origin: Origin,
        time: Timestamp,
    ) -> Result<Snapshot> {
        let snapshot = self.table.end_receive(branch, name, origin, time)?;
        if let Some(state) = self.states.remove(&(branch, None)) {
            self.states.insert(key(snapshot.view()), state);
        }
        Ok(snapshot)
    }

    /// As [`Versions::rename`].
    ///
    /// # Errors
    /// As [`Versions::rename`].
    pub fn rename(&mut self, view: View, name: &str) -> Result<()> {
        self.table.rename(view, name)
    }

    /// As [`Versions::hold`].
    ///
    /// # Errors
    /// As [`Versions::hold`].
    pub fn hold(&mut self, view: View, is_held: bool) -> Result<()> {
        self.table.hold(view, is_held)
    }

    /// As [`Versions::delete`].
    ///
    /// # Errors
    /// As [`Versions::delete`].
    pub fn delete(&mut self, view: View) -> Result<()> {
        self.table.delete(view)?;
        self.states.remove(&key(view));
        Ok(())
    }

    /// As [`Versions::promote`].
    ///
    /// # Errors
    /// As [`Versions::promote`].
    pub fn promote(&mut self, branch: u32) -> Result<()> {
        self.table.promote(branch)
    }

    /// As [`Versions::roll_back`], done at `time`.
    ///
    /// # Errors
    /// As [`Versions::roll_back`].
    pub fn roll_back(&mut self, branch: u32, to: View, time: Timestamp) -> Result<Branch> {
        let new = self.table.roll_back(branch, to, time)?;
        self.copy(to, new.head());
        self.states.remove(&(branch, None));
        Ok(new)
    }

    /// The lists that the two views do not hold alike, with numbers from `from` on.
    ///
    /// # Errors
    /// [`Error::NoSuchView`].
    pub fn changed_lists(&self, a: View, b: View, from: Lid) -> Result<Vec<Lid>> {
        let (a, b) = (self.state(a)?, self.state(b)?);
        let mut lists: Vec<_> = a.lists(from).chain(b.lists(from)).map(|(list, _)| list).collect();
        lists.sort_unstable();
        lists.dedup();
        lists.retain(|list| a.list(*list) != b.list(*list));
        Ok(lists)
    }

    /// The records of `list`, from index `from` on, that the two views do not hold alike.
    ///
    /// # Errors
    /// [`Error::NoSuchView`].
    pub fn changed_records(&self, a: View, b: View, list: Lid, from: u64) -> Result<Vec<u64>> {
        let records = |view| -> Result<BTreeMap<_, _>> {
            let list = self.state(view)?.list(list);
            Ok(list.into_iter().flat_map(|list| list.records(from)).collect())
        };
        Ok(differing(&records(a)?, &records(b)?))
    }

    /// The pages of `list`, from page `from` on, that the two views do not hold alike.
    ///
    /// # Errors
    /// [`Error::NoSuchView`].
    pub fn changed_pages(&self, a: View, b: View, list: Lid, from: u64) -> Result<Vec<u64>> {
        let pages = |view| -> Result<BTreeMap<_, _>> {
            let list = self.state(view)?.list(list);
            Ok(list.into_iter().flat_map(|list| list.pages(from..MAX_PAGE_COUNT)).collect())
        };
        Ok(differing(&pages(a)?, &pages(b)?))
    }

    /// Bytes in records, and in pages without their trailing zeros; what several versions share
    /// counts once.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        match self.states.len() {
            1 => self.main().live_bytes(),
            _ => self.holders().values().map(|(len_bytes, _)| len_bytes).sum(),
        }
    }

    /// What each version takes.
    #[must_use]
    pub fn version_usage(&self) -> Vec<VersionUsage> {
        let holders = self.holders();
        let share = |view: View| {
            let state = &self.states[&key(view)];
            let alone = |(address, len_bytes): (usize, u64)| match holders[&address] {
                (_, 1) => len_bytes,
                _ => 0,
            };
            VersionUsage {
                view,
                exclusive_bytes: state.values().map(alone).sum(),
                seen_bytes: state.live_bytes(),
                seen_plain_bytes: state.live_bytes(),
            }
        };
        self.table.views().map(share).collect()
    }

    /// What deleting all of `views` would free.
    ///
    /// # Errors
    /// [`Error::NoSuchView`].
    pub fn freed_by(&self, views: &[View]) -> Result<u64> {
        let mut rest = self.holders();
        let views: BTreeMap<_, _> = views.iter().map(|view| (key(*view), *view)).collect();
        for (key, view) in views {
            let state = self.states.get(&key).ok_or(Error::NoSuchView(view))?;
            for (address, _) in state.values() {
                rest.entry(address).and_modify(|(_, holders)| *holders -= 1);
            }
        }
        Ok(rest.values().filter(|(_, holders)| *holders == 0).map(|(len, _)| len).sum())
    }

    /// Reads everything that `disk` holds. Nobody may change the disk meanwhile.
    ///
    /// # Errors
    /// What a read answers; [`Error::Corrupted`] when what two calls say does not fit together.
    pub fn read_from(disk: &dyn Versions) -> Result<Self> {
        let table = disk.versions();
        let states = table
            .views()
            .map(|view| Ok((key(view), ModelState::read_view(disk, view)?)))
            .collect::<Result<_>>()?;
        Ok(Self { table, states })
    }

    /// Says in words where `self` first differs from `other`; `None` when they are equal.
    #[must_use]
    pub fn diff(&self, other: &Self) -> Option<String> {
        if self.table != other.table {
            return Some(format!("{:?} left, {:?} right", self.table, other.table));
        }
        self.table.views().find_map(|view| {
            let difference = self.states[&key(view)].diff(&other.states[&key(view)])?;
            Some(format!("{view}: {difference}"))
        })
    }

    fn copy(&mut self, from: View, to: View) {
        let state = self.states[&key(from)].clone();
        self.states.insert(key(to), state);
    }

    /// Every value that is stored, by its address: its length, and how many versions have it.
    fn holders(&self) -> HashMap<usize, (u64, u32)> {
        let mut holders = HashMap::new();
        for (address, len_bytes) in self.states.values().flat_map(ModelState::values) {
            holders.entry(address).or_insert((len_bytes, 0)).1 += 1;
        }
        holders
    }
}

/// The keys that only one of the maps has, or under which they have different values.
fn differing<T: PartialEq>(a: &BTreeMap<u64, T>, b: &BTreeMap<u64, T>) -> Vec<u64> {
    let keys: BTreeSet<u64> = a.keys().chain(b.keys()).copied().collect();
    keys.into_iter().filter(|key| a.get(key) != b.get(key)).collect()
}
