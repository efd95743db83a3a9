//! A disk with versions under test beside the model, and random work on both.

use std::collections::{BTreeMap, BTreeSet};

use dendro_base::{Origin, Rng, Timestamp, Uuid};

use super::rig::add_letters;
use crate::model::{ModelState, ModelVersions};
use crate::testgen::{Generator, Profile};
use crate::{
    Aru, Branch, ClientKind, FIRST_CLIENT, GROUP_PAGES, Lid, ListHints, Op, Result, Snapshot,
    Versions, View,
};

/// What is done to the disk is done to the model too, the answers must be alike, and
/// [`Rig::check`] compares every version whole.
pub(super) struct Rig<'d> {
    pub(super) disk: &'d dyn Versions,
    pub(super) model: ModelVersions,
    /// The numbers of lists that branches which receive have, or had, unless they have them from
    /// their base, and those that clients have or had.
    received: BTreeMap<u32, BTreeSet<Lid>>,
}

impl<'d> Rig<'d> {
    pub(super) fn new(disk: &'d dyn Versions) -> Self {
        let created = disk.versions().branches().next().expect("there is one").time;
        let model = ModelVersions::new(ModelState::default(), created);
        let rig = Self { disk, model, received: BTreeMap::new() };
        rig.check();
        rig
    }

    /// Commits a unit to a head.
    pub(super) fn try_commit<'a>(
        &mut self,
        view: View,
        build: impl FnOnce(&mut Aru<'a>),
    ) -> Result<()> {
        let mut aru = Aru::new(view);
        build(&mut aru);
        let ops = aru.ops().to_vec();
        let answer = self.disk.commit(aru).map(drop);
        self.follow_epochs(&ops);
        let expected = self.model.apply(view, &ops);
        assert_eq!(answer, expected, "for {:.300} in {view}", format!("{ops:?}"));
        expected
    }

    /// Ends the epochs that the disk has ended to commit `unit`, whatever became of it: one that
    /// makes a list again may end some.
    fn follow_epochs(&mut self, unit: &[Op<'_>]) {
        let makes_list = |op: &Op<'_>| matches!(op, Op::CreateList { .. } | Op::RestoreList { .. });
        if unit.iter().any(makes_list) {
            let epoch = self.disk.versions().epoch;
            while self.model.table().epoch < epoch {
                self.model.end_epoch();
            }
        }
    }

    /// Commits a unit that must be accepted.
    pub(super) fn commit<'a>(&mut self, view: View, build: impl FnOnce(&mut Aru<'a>)) {
        self.try_commit(view, build).expect("the case is right");
    }

    /// Commits one change that must be accepted.
    pub(super) fn push(&mut self, view: View, op: Op<'_>) {
        self.commit(view, |aru| {
            aru.push(op);
        });
    }

    /// A new list in `view`.
    pub(super) fn list(&mut self, view: View) -> Lid {
        let list = self.disk.allocate_list().expect("a number");
        self.push(view, Op::CreateList { list, hints: ListHints::default() });
        list
    }

    /// Writes one page for each letter: full of the letter, of zeros for `0`; none for a dot.
    pub(super) fn write(&mut self, view: View, list: Lid, first_page: u64, letters: &str) {
        self.commit(view, |aru| add_letters(aru, list, first_page, letters));
    }

    pub(super) fn try_snapshot(&mut self, branch: u32, name: Option<&str>) -> Result<Snapshot> {
        let answer = self.disk.snapshot(branch, name);
        let time = answer.as_ref().map_or(Timestamp(0), |snapshot| snapshot.time);
        assert_eq!(answer, self.model.snapshot(branch, name, time), "{name:?} of {branch}");
        answer
    }

    pub(super) fn try_begin_receive(
        &mut self,
        base: Option<View>,
        kind: Option<ClientKind>,
    ) -> Result<Branch> {
        let answer = self.disk.begin_receive(base, kind);
        let time = answer.as_ref().map_or(Timestamp(0), |branch| branch.time);
        assert_eq!(answer, self.model.begin_receive(base, kind, time), "{kind:?} from {base:?}");
        answer
    }

    pub(super) fn name_client(&mut self, branch: u32, name: &str) -> Result<Branch> {
        let answer = self.disk.name_client(branch, name);
        assert_eq!(answer, self.model.name_client(branch, name), "{name} of {branch}");
        answer
    }

    pub(super) fn try_new_client(&mut self, name: &str, kind: ClientKind) -> Result<Branch> {
        let answer = self.disk.new_client(name, kind);
        let time = answer.as_ref().map_or(Timestamp(0), |branch| branch.time);
        let mut after = self.model.clone();
        let head = after.begin_receive(None, Some(kind), time).expect("a branch").head();
        let create = Op::CreateList { list: Lid::FIRST, hints: ListHints::default() };
        after.apply(head, &[create]).expect("its numbers are its own");
        assert_eq!(answer, after.name_client(head.branch, name), "{kind} {name}");
        if answer.is_ok() {
            self.received.entry(head.branch).or_default().insert(Lid::FIRST);
            self.model = after;
        }
        answer
    }

    pub(super) fn note_receive(&mut self, branch: u32, note: &str) -> Result<()> {
        let answer = self.disk.note_receive(branch, note);
        assert_eq!(answer, self.model.note_receive(branch, note), "{note} of {branch}");
        answer
    }

    pub(super) fn set_quota(&mut self, branch: u32, limit_bytes: Option<u64>) -> Result<()> {
        let answer = self.disk.set_quota(branch, limit_bytes);
        assert_eq!(answer, self.model.set_quota(branch, limit_bytes), "{limit_bytes:?} {branch}");
        answer
    }

    /// A number for a new list in `head`. What is received from another disk, and what a client
    /// makes that is not the first, has any numbers.
    fn new_number(&mut self, head: View, rng: &mut Rng) -> Option<Lid> {
        let table = self.model.table();
        let is_first = table.branch(head.branch).is_some_and(|branch| branch.parent.is_none());
        let who = match table.client_of(head.branch).0 {
            FIRST_CLIENT if is_first && table.is_receiving(head.branch) => head.branch,
            FIRST_CLIENT => return self.disk.allocate_list().ok(),
            client => client,
        };
        let list = Lid(1 + rng.below(self.model.last_list().map_or(0, |last| last.0) + 3));
        self.received.entry(who).or_default().insert(list).then_some(list)
    }

    /// A new branch to receive into.
    pub(super) fn begin_receive(&mut self, base: Option<View>) -> View {
        self.try_begin_receive(base, None).expect("the case is right").head()
    }

    pub(super) fn try_end_receive(
        &mut self,
        branch: u32,
        name: Option<&str>,
        origin: Origin,
        time: Timestamp,
    ) -> Result<Snapshot> {
        let answer = self.disk.end_receive(branch, name, origin, time);
        let expected = self.model.end_receive(branch, name, origin, time);
        assert_eq!(answer, expected, "{name:?} of {branch}");
        answer
    }

    pub(super) fn try_branch_off(&mut self, view: View, name: &str) -> Result<Branch> {
        let answer = self.disk.branch_off(view, name);
        let time = answer.as_ref().map_or(Timestamp(0), |branch| branch.time);
        assert_eq!(answer, self.model.branch_off(view, name, time), "{name:?} from {view}");
        answer
    }

    pub(super) fn rename(&mut self, view: View, name: &str) -> Result<()> {
        let answer = self.disk.rename(view, name);
        assert_eq!(answer, self.model.rename(view, name), "{view} to {name:?}");
        answer
    }

    pub(super) fn hold(&mut self, view: View, is_held: bool) -> Result<()> {
        let answer = self.disk.hold(view, is_held);
        assert_eq!(answer, self.model.hold(view, is_held), "{view}: {is_held}");
        answer
    }

    pub(super) fn try_delete(&mut self, view: View) -> Result<()> {
        let answer = self.disk.delete(view);
        assert_eq!(answer, self.model.delete(view), "{view}");
        answer
    }

    pub(super) fn promote(&mut self, branch: u32) -> Result<()> {
        let answer = self.disk.promote(branch);
        assert_eq!(answer, self.model.promote(branch), "{branch}");
        answer
    }

    pub(super) fn try_roll_back(&mut self, branch: u32, to: View) -> Result<Branch> {
        let answer = self.disk.roll_back(branch, to);
        let time = answer.as_ref().map_or(Timestamp(0), |branch| branch.time);
        assert_eq!(answer, self.model.roll_back(branch, to, time), "{branch} to {to}");
        answer
    }

    /// Makes a snapshot that must be accepted.
    pub(super) fn snapshot(&mut self, branch: u32) -> View {
        self.try_snapshot(branch, None).expect("a snapshot").view()
    }

    /// Makes a branch that must be accepted.
    pub(super) fn branch_off(&mut self, view: View, name: &str) -> View {
        self.try_branch_off(view, name).expect("a branch").head()
    }

    /// Rolls back, which must be accepted.
    pub(super) fn roll_back(&mut self, branch: u32, to: View) -> View {
        self.try_roll_back(branch, to).expect("a branch").head()
    }

    /// Deletes what must be there and free.
    pub(super) fn delete(&mut self, view: View) {
        self.try_delete(view).expect("it can be deleted");
    }

    /// Sees that every version is as the model's.
    pub(super) fn check(&self) {
        if let Some(difference) = self.difference() {
            panic!("disk (left) and model (right) differ: {difference}");
        }
    }

    fn difference(&self) -> Option<String> {
        ModelVersions::read_from(self.disk).expect("readable").diff(&self.model)
    }

    /// Sees that one version is as the model's.
    pub(super) fn check_view(&self, view: View) {
        let found = ModelState::read_view(self.disk, view).expect("readable");
        let expected = self.model.state(view).expect("it is there");
        if let Some(difference) = found.diff(expected) {
            panic!("{view}: disk (left) and model (right) differ: {difference}");
        }
    }
}

/// How often, in a hundred steps, versions are made, changed and deleted.
#[derive(Clone, Copy, Debug)]
struct Mix {
    snapshots: u64,
    branches: u64,
    /// Deletions of a random version, which grow more when there are many.
    deletions: u64,
    /// Versions beyond which only deletions follow.
    max_versions: u64,
}

/// Commits random units to random heads, between snapshots, branches, deletions, rollbacks and
/// promotions, some of them wrong; compares each answer, and every version now and then and at the
/// end. In the end it deletes all versions but the main head, in random order. `background` is
/// called after each step for the work that a disk does on the side.
///
/// # Panics
/// When disk and model differ. The message says where; the same `seed` does it again.
pub fn differential(
    disk: &dyn Versions,
    seed: u64,
    step_count: u64,
    profile: &Profile,
    background: &mut dyn FnMut(),
) {
    let mix = Mix { snapshots: 8, branches: 4, deletions: 8, max_versions: 20 };
    random_work(disk, seed, step_count, profile, mix, background);
}

fn random_work(
    disk: &dyn Versions,
    seed: u64,
    step_count: u64,
    profile: &Profile,
    mix: Mix,
    background: &mut dyn FnMut(),
) {
    let mut rng = Rng::new(seed);
    let mut generator = Generator::new(rng.fork(), profile.clone()).beside_versions();
    let model = ModelVersions::read_from(disk).expect("readable");
    let mut rig = Rig { disk, model, received: BTreeMap::new() };
    for step in 0..step_count {
        random_step(&mut rig, &mut rng, &mut generator, mix, step);
        background();
        if rng.chance(4) || step + 1 == step_count {
            if let Some(difference) = rig.difference() {
                panic!("seed {seed}, step {step}: {difference} (disk left, model right)");
            }
            changed_lists_hold_all_that_differ(&rig, &mut rng);
            changes_along_views_are_those_of_pairs(&rig, &mut rng);
        }
    }
    loop {
        let main = rig.model.table().main_head();
        let others: Vec<_> = rig.model.table().views().filter(|view| *view != main).collect();
        if others.is_empty() {
            break;
        }
        let view = others[rng.below(others.len() as u64) as usize];
        drop(rig.try_delete(view).or_else(|_| rig.hold(view, false)));
        background();
        let survivors: Vec<_> = rig.model.table().views().collect();
        rig.check_view(survivors[rng.below(survivors.len() as u64) as usize]);
    }
    rig.check();
}

fn random_step(rig: &mut Rig<'_>, rng: &mut Rng, generator: &mut Generator, mix: Mix, step: u64) {
    let views: Vec<_> = rig.model.table().views().collect();
    let heads = rig.model.table().branches().len() as u64;
    let view = views[rng.below(views.len() as u64) as usize];
    let head = views[rng.below(heads) as usize];
    if views.len() as u64 > mix.max_versions {
        drop(rig.try_delete(view).or_else(|_| rig.hold(view, false)));
        return;
    }
    let dice = rng.below(100);
    if dice < mix.snapshots {
        // A name that is taken or wrong is among them.
        let name = match rng.below(3) {
            0 => None,
            1 => Some(format!("s{}", rng.below(step + 1))),
            _ => Some(format!("s{step}")),
        };
        drop(rig.try_snapshot(view.branch, name.as_deref()));
    } else if dice < mix.snapshots + mix.branches {
        drop(rig.try_branch_off(view, &format!("b{}", rng.below(2 * step + 1))));
    } else if dice < mix.snapshots + mix.branches + mix.deletions {
        drop(rig.try_delete(view));
    } else {
        match rng.below(60) {
            0 => drop(rig.try_roll_back(head.branch, view)),
            1 => drop(rig.promote(view.branch)),
            2 => drop(rig.rename(view, &format!("r{step}"))),
            3 => drop(rig.hold(view, rng.chance(30))),
            4 | 5 => {
                let kind = rng.chance(50).then_some(ClientKind::Files);
                drop(rig.try_begin_receive(rng.chance(40).then_some(view), kind));
            }
            9 => drop(rig.name_client(head.branch, &format!("c{}", rng.below(step + 1)))),
            10 => drop(rig.try_new_client(&format!("c{step}"), ClientKind::Block)),
            11 | 12 => {
                let limit_bytes = rng.chance(70).then(|| (1 << 40) + rng.below(3));
                drop(rig.set_quota(view.branch, limit_bytes));
            }
            6 => drop(rig.note_receive(head.branch, &format!("n{step}"))),
            7 | 8 => {
                let origin = Origin { volume: Uuid([9; 16]), epoch: 1 + rng.below(9) };
                drop(rig.try_end_receive(head.branch, None, origin, Timestamp(1)));
            }
            _ => {
                let state = rig.model.state(head).expect("a head").clone();
                let ops = generator.unit(&state, &mut || rig.new_number(head, rng));
                drop(rig.try_commit(head, |aru| {
                    for op in ops {
                        aru.push(op);
                    }
                }));
            }
        }
    }
}

fn changed_lists_hold_all_that_differ(rig: &Rig<'_>, rng: &mut Rng) {
    let views: Vec<_> = rig.model.table().views().collect();
    let mut any = || views[rng.below(views.len() as u64) as usize];
    let (a, b) = (any(), any());
    let found = rig.disk.changed_lists(a, b, Lid(0), usize::MAX).expect("two views");
    assert!(found.is_sorted_by(|one, next| one < next), "{found:?}");
    for list in rig.model.changed_lists(a, b, Lid(0)).expect("two views") {
        assert!(found.contains(&list), "{list} differs between {a} and {b}; {found:?} were told");
        let has = |view| rig.model.state(view).is_ok_and(|state| state.list(list).is_some());
        if has(a) && has(b) {
            changes_of_a_list_hold_all_that_differs(rig, a, b, list);
        }
    }
}

fn changes_of_a_list_hold_all_that_differs(rig: &Rig<'_>, a: View, b: View, list: Lid) {
    let found = rig.disk.changed_records(a, b, list, 0, usize::MAX).expect("two views");
    assert!(found.is_sorted_by(|one, next| one < next), "{found:?}");
    for index in rig.model.changed_records(a, b, list, 0).expect("two views") {
        assert!(found.contains(&index), "record {index} of {list}: {a}, {b}; {found:?} were told");
    }
    let (mut from, mut found) = (0, Vec::new());
    while let Some(pages) = rig.disk.changed_pages(a, b, list, from).expect("two views") {
        assert!(pages.start >= from && !pages.is_empty(), "{pages:?} from {from}");
        assert_eq!(pages.start / GROUP_PAGES, (pages.end - 1) / GROUP_PAGES, "{pages:?}");
        from = pages.end;
        found.extend(pages);
    }
    for page in rig.model.changed_pages(a, b, list, 0).expect("two views") {
        assert!(found.contains(&page), "page {page} of {list}: {a}, {b}; {found:?} were told");
    }
}

/// Changes along a series of views are those of each pair, or those of the first pairs.
fn changes_along_views_are_those_of_pairs(rig: &Rig<'_>, rng: &mut Rng) {
    let mut views: Vec<_> = rig.model.table().views().collect();
    if rng.chance(30) {
        let any = |_| views[rng.below(views.len() as u64) as usize];
        views = (0..12).map(any).collect();
    }
    let of_pair = |(index, pair): (usize, &[View])| {
        let lists = rig.disk.changed_lists(pair[0], pair[1], Lid(0), usize::MAX);
        let lists = lists.expect("two views");
        lists.into_iter().map(move |list| (index, list)).collect::<Vec<_>>()
    };
    let all: Vec<_> = (1..).zip(views.windows(2)).flat_map(of_pair).collect();
    let found = rig.disk.changes_along(&views, usize::MAX).expect("views");
    assert_eq!(found, (all.clone(), views.len()));
    let max = rng.below(all.len() as u64 + 2) as usize;
    let (first, end) = rig.disk.changes_along(&views, max).expect("views");
    assert!(first.len() <= max && (1..=views.len()).contains(&end), "{} of {max}", first.len());
    let expected: Vec<_> = all.into_iter().filter(|(index, _)| *index < end).collect();
    assert_eq!(first, expected);
}

/// A few branches, and snapshots that come and go.
pub fn random_versions_are_as_the_model_has_them(disk: &dyn Versions) {
    let profile = Profile {
        max_write_bytes: 64 << 10,
        max_large_write_bytes: 300 << 10,
        target_bytes: 512 << 10,
        ..Profile::default()
    };
    for seed in 1..=4 {
        differential(disk, seed, 500, &profile, &mut || ());
    }
}

/// Little data, and many versions that build on each other.
pub fn random_deep_versions_are_as_the_model_has_them(disk: &dyn Versions) {
    let profile = Profile {
        max_lists: 3,
        max_ops: 20,
        max_write_bytes: 20 << 10,
        max_large_write_bytes: 100 << 10,
        target_bytes: 64 << 10,
        wrong_percent: 3,
    };
    let mix = Mix { snapshots: 20, branches: 15, deletions: 10, max_versions: 60 };
    for seed in 20..24 {
        random_work(disk, seed, 500, &profile, mix, &mut || ());
    }
}
