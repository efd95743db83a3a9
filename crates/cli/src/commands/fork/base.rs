//! Forks, the snapshots that they were made from, and their names.

use dendro_control::versions::{
    BranchInfo, Moment, SnapshotInfo, VersionList, VersionName, VersionsReply, VersionsRequest,
};

use crate::failure::Failure;
use crate::target::{Keeper, unexpected};

/// The prefix of the names of snapshots that forks were made from.
pub(super) const BASE: &str = "fork-";

pub(super) fn moment(text: String) -> VersionName {
    VersionName { branch: None, moment: Some(Moment { text, unix_ns: None }) }
}

pub(super) fn branch_name(name: &str) -> VersionName {
    VersionName { branch: Some(name.to_owned()), moment: None }
}

/// All versions of a volume.
pub(super) fn versions(keeper: &Keeper) -> Result<VersionList, Failure> {
    match keeper.ask(VersionsRequest::List)? {
        VersionsReply::List(list) => Ok(list),
        other => Err(unexpected(&other)),
    }
}

/// The snapshot that a branch was made from, if it is still there.
pub(super) fn base_of<'a>(branch: &BranchInfo, list: &'a VersionList) -> Option<&'a SnapshotInfo> {
    let parent = (branch.parent?, branch.parent_epoch?);
    list.snapshots.iter().find(|snapshot| (snapshot.branch, snapshot.epoch) == parent)
}
