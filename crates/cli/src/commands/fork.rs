//! `dendro fork`, `forks`, `drop` and `branch`: working trees that go on from another one.
//!
//! A fork is a branch, made from a snapshot of its own, and mounted. The snapshot says what the fork has
//! changed; it is called `fork-` and the fork's name, and goes with the last branch that was made of it.
//!
//! - [`make`]: `fork`. [`remove`]: `drop`. [`list`]: `forks`.
//! - [`mod@branch`]: `branch list`, `rename` and `delete`.

mod branch;
mod list;
mod make;
mod remove;

use dendro_control::versions::{
    BranchInfo, Moment, SnapshotInfo, VersionList, VersionName, VersionsReply, VersionsRequest,
};

use crate::failure::Failure;
use crate::target::{Keeper, unexpected};

pub(crate) use branch::run as branch;
pub(crate) use list::run as forks;
pub(crate) use make::run as fork;
pub(crate) use remove::run as drop_forks;

/// What the names of snapshots begin with that forks were made from.
const BASE: &str = "fork-";

fn moment(text: String) -> VersionName {
    VersionName { branch: None, moment: Some(Moment { text, unix_ns: None }) }
}

fn branch_name(name: &str) -> VersionName {
    VersionName { branch: Some(name.to_owned()), moment: None }
}

/// All versions of a volume.
fn versions(keeper: &Keeper) -> Result<VersionList, Failure> {
    match keeper.ask(VersionsRequest::List)? {
        VersionsReply::List(list) => Ok(list),
        other => Err(unexpected(&other)),
    }
}

/// The snapshot that a branch was made from, if it is still there.
fn base_of<'a>(branch: &BranchInfo, list: &'a VersionList) -> Option<&'a SnapshotInfo> {
    let parent = (branch.parent?, branch.parent_epoch?);
    list.snapshots.iter().find(|snapshot| (snapshot.branch, snapshot.epoch) == parent)
}
