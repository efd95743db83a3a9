//! The heads of branches as snapshots, because only what does not change can be sent.

use std::collections::BTreeSet;

use dendro_control::streams::SentHead;
use dendro_control::versions::{
    BranchInfo, Moment, SnapshotInfo, VersionList, VersionName, VersionsReply, VersionsRequest,
};
use dendro_daemon::local_time;

use crate::commands::versions::versions;
use crate::failure::Failure;
use crate::target::{Keeper, unexpected};

/// The longest name of a branch that becomes a part of a snapshot's name.
const MAX_PART_LEN_BYTES: usize = 200;

/// For each branch a snapshot that is like its head, that of the main branch last. A head that has
/// changed since the last snapshot with a name gets a new one.
pub(super) fn snapshots(keeper: &Keeper) -> Result<Vec<SentHead>, Failure> {
    let list = versions(keeper)?;
    let now = local_time::now()?.strftime("%Y-%m-%dT%H.%M.%S%.3f").to_string();
    let (main, others): (Vec<_>, Vec<_>) = list.branches.iter().partition(|branch| branch.main);
    let mut heads: Vec<SentHead> = Vec::new();
    let mut taken = BTreeSet::new();
    for branch in others.into_iter().chain(main) {
        let last = last_named(&list, branch).filter(|last| !taken.contains(&last.epoch));
        // Retention may delete snapshots without a name meanwhile. The last that is sent must stay.
        let is_automatic_behind =
            |epoch| list.snapshots.iter().any(|of| of.name.is_none() && of.epoch > epoch);
        let epoch = match last {
            Some(last)
                if !(branch.main && is_automatic_behind(last.epoch))
                    && is_like(keeper, last, branch)? =>
            {
                last.epoch
            }
            _ => keep(keeper, branch, &now)?,
        };
        taken.insert(epoch);
        heads.push(SentHead { epoch, branch: branch.name.clone(), main: branch.main });
    }
    Ok(heads)
}

/// The newest snapshot of a branch that has a name, or the one that the branch was made from.
fn last_named<'l>(list: &'l VersionList, branch: &BranchInfo) -> Option<&'l SnapshotInfo> {
    let named = || list.snapshots.iter().filter(|snapshot| snapshot.name.is_some());
    let own = named().filter(|snapshot| snapshot.branch == branch.branch);
    own.max_by_key(|snapshot| snapshot.epoch).or_else(|| {
        named().find(|of| Some(of.branch) == branch.parent && Some(of.epoch) == branch.parent_epoch)
    })
}

fn head_of(branch: &BranchInfo) -> VersionName {
    VersionName { branch: Some(branch.name.clone()), moment: None }
}

/// Whether the head of a branch is as a snapshot of its past.
fn is_like(keeper: &Keeper, last: &SnapshotInfo, branch: &BranchInfo) -> Result<bool, Failure> {
    let moment = Some(Moment { text: last.epoch.to_string(), unix_ns: None });
    let old = VersionName { branch: None, moment };
    match keeper.ask(VersionsRequest::Diff { old, new: head_of(branch), skip: 0 })? {
        VersionsReply::Diff(diff) => Ok(diff.changes.is_empty()),
        other => Err(unexpected(&other)),
    }
}

/// Makes a snapshot of a head. Returns its epoch.
fn keep(keeper: &Keeper, branch: &BranchInfo, now: &str) -> Result<u64, Failure> {
    let name = match branch.name.len() {
        0..=MAX_PART_LEN_BYTES => format!("sent-{}-{now}", branch.name),
        _ => format!("sent-{}-{now}", branch.branch),
    };
    match keeper.ask(VersionsRequest::Snapshot { of: head_of(branch), name: Some(name) })? {
        VersionsReply::Snapshot(made) => Ok(made.epoch),
        other => Err(unexpected(&other)),
    }
}
