//! Random snapshots, branches and quotas.

use dendro_disk::model::ModelVersions;
use dendro_disk::{Aru, ClientKind, Error, Result, Versions, View};

use super::engine::{Engine, NOW};
use super::session::Session;
use crate::system::Outcome;

/// The kinds of clients. Which one begins is not drawn, so that seeds do what they always did.
const KINDS: [ClientKind; 3] = [ClientKind::Files, ClientKind::Block, ClientKind::Application];

/// More versions than this are deleted again: every crash image reads them all.
const MAX_SNAPSHOTS: usize = 5;
const MAX_BRANCHES: usize = 3;

/// What is done to the versions.
#[derive(Clone, Debug)]
enum Change {
    Snapshot(u32, Option<String>),
    BranchOff(View, String),
    Rename(View, String),
    Hold(View, bool),
    Delete(View),
    Promote(u32),
    RollBack(u32, View),
    BeginClient(ClientKind),
    NameClient(u32, String),
    Quota(u32, Option<u64>),
}

impl Change {
    fn make(&self, disk: &dyn Versions) -> Result<()> {
        match self {
            Self::Snapshot(branch, name) => disk.snapshot(*branch, name.as_deref()).map(drop),
            Self::BranchOff(view, name) => disk.branch_off(*view, name).map(drop),
            Self::Rename(view, name) => disk.rename(*view, name),
            Self::Hold(view, is_held) => disk.hold(*view, *is_held),
            Self::Delete(view) => disk.delete(*view),
            Self::Promote(branch) => disk.promote(*branch),
            Self::RollBack(branch, to) => disk.roll_back(*branch, *to).map(drop),
            Self::BeginClient(kind) => disk.begin_receive(None, Some(*kind)).map(drop),
            Self::NameClient(branch, name) => disk.name_client(*branch, name).map(drop),
            Self::Quota(branch, limit_bytes) => disk.set_quota(*branch, *limit_bytes),
        }
    }

    fn apply(&self, model: &mut ModelVersions) -> Result<()> {
        match self {
            Self::Snapshot(branch, name) => model.snapshot(*branch, name.as_deref(), NOW).map(drop),
            Self::BranchOff(view, name) => model.branch_off(*view, name, NOW).map(drop),
            Self::Rename(view, name) => model.rename(*view, name),
            Self::Hold(view, is_held) => model.hold(*view, *is_held),
            Self::Delete(view) => model.delete(*view),
            Self::Promote(branch) => model.promote(*branch),
            Self::RollBack(branch, to) => model.roll_back(*branch, *to, NOW).map(drop),
            Self::BeginClient(kind) => model.begin_receive(None, Some(*kind), NOW).map(drop),
            Self::NameClient(branch, name) => model.name_client(*branch, name).map(drop),
            Self::Quota(branch, limit_bytes) => model.set_quota(*branch, *limit_bytes),
        }
    }
}

impl<E: Engine> Session<'_, E> {
    fn draw_change(&mut self) -> Change {
        let table = self.life.state.contents.table();
        let views: Vec<View> = table.views().collect();
        let view = views[self.rng.below(views.len() as u64) as usize];
        let mut branches = table.branches();
        let branch_count = branches.len();
        let at = self.rng.below(branch_count as u64) as usize;
        let branch = branches.nth(at).expect("it is one of them").branch;
        // A few names, so that some are taken.
        let name = format!("v{}", self.rng.below(12));
        let is_full = table.snapshots().len() > MAX_SNAPSHOTS || branch_count > MAX_BRANCHES;
        let begun = self.life.state.contents.table().branches().find(|of| of.is_receiving());
        if let Some(branch) = begun.map(|of| of.branch).filter(|_| self.rng.chance(30)) {
            return Change::NameClient(branch, name);
        }
        match self.rng.below(if is_full { 21 } else { 13 }) {
            0..4 => Change::Snapshot(branch, self.rng.chance(50).then_some(name)),
            4..6 => Change::BranchOff(view, name),
            6 => Change::Rename(view, name),
            7 => Change::Hold(view, self.rng.chance(30)),
            8 => Change::Promote(branch),
            9 => {
                let past: Vec<View> = table
                    .past(View { branch, epoch: None })
                    .iter()
                    .map(|snapshot| snapshot.view())
                    .collect();
                let at = self.rng.below(past.len().max(1) as u64) as usize;
                Change::RollBack(branch, past.get(at).copied().unwrap_or(view))
            }
            10 => Change::BeginClient(KINDS[self.life.commits.len() % KINDS.len()]),
            _ => Change::Delete(view),
        }
    }

    /// None, or a quota about as large as what a client has, so that it is soon used up.
    fn draw_quota(&mut self) -> Change {
        let branch = self.draw_head().branch;
        let contents = &self.life.state.contents;
        let used_bytes = contents.used_bytes(contents.table().client_of(branch).0);
        let spare_bytes = 1 << self.rng.below(20);
        let limit_bytes = used_bytes / 2 + self.rng.below(used_bytes + spare_bytes);
        Change::Quota(branch, self.rng.chance(80).then_some(limit_bytes))
    }

    /// Makes, changes or deletes a version.
    pub(super) fn change_versions(&mut self) -> Outcome<()> {
        let quotas_percent = self.system.quotas_percent;
        let is_quota = quotas_percent > 0 && self.rng.chance(quotas_percent);
        let change = if is_quota { self.draw_quota() } else { self.draw_change() };
        let Some(disk) = self.system.engine.versions(&self.life.disk) else { return Ok(()) };
        let mut after = self.life.state.clone();
        let expected = change.apply(&mut after.contents);
        let event_count = self.device.recorded_count();
        match (change.make(disk), expected) {
            (Ok(()), Ok(())) => {
                let head = after.contents.table().main_head();
                self.life.state = after.clone();
                let entry = self.trace.push(after, event_count);
                // An empty unit changes nothing and tells the number of the last commit.
                let seq = disk.commit(Aru::new(head)).map_err(|error| error.to_string())?;
                self.life.commits.push((seq, entry));
                Ok(())
            }
            (Err(answer), Err(expected)) if answer == expected => Ok(()),
            (Err(Error::Io(_)), _) if self.has_struck() => Ok(()),
            (Err(Error::NoSpace { .. }), _) if !matches!(change, Change::Delete(_)) => Ok(()),
            (Err(error @ Error::Failed(_)), Ok(())) => {
                self.notice(&format!("{change:?} failed: {error}"))?;
                self.trace.push(after.clone(), event_count);
                self.doubtful = Some(after.contents);
                Ok(())
            }
            // Room is made before the table is looked at.
            (Err(error @ Error::Failed(_)), Err(_)) => {
                self.notice(&format!("{change:?} failed: {error}"))
            }
            (answer, expected) => {
                Err(format!("{change:?} answered {answer:?} rather than {expected:?}"))
            }
        }
    }
}
