//! `dendro drop`.

use std::fs;
use std::path::{Path, PathBuf};

use dendro_control::versions::{BranchInfo, VersionName, VersionsRequest};
use dendro_daemon::mounts::{self, MountEntry};
use dendro_fuse::UnmountMode;
use serde::Serialize;

use super::base::{BASE, base_of, branch_name, moment, versions};
use crate::args::fork::DropArgs;
use crate::commands::umount;
use crate::failure::Failure;
use crate::mount_request;
use crate::output::{self, json};
use crate::target::{self, Behind, Keeper, Place, Served, find_version};

/// A fork that is gone.
#[derive(Debug, Serialize)]
struct Dropped {
    branch_name: String,
    /// Where it was mounted.
    mount_point: Option<PathBuf>,
}

pub(crate) fn run(args: &DropArgs, quiet: bool) -> Result<(), Failure> {
    let mode = if args.force { UnmountMode::Abort } else { UnmountMode::Idle };
    let mut dropped = Vec::new();
    let outcome = args.forks.iter().try_for_each(|fork| drop_named(fork, mode, &mut dropped));
    if args.json {
        json::print_list("dropped", &dropped)?;
    } else if !quiet {
        let line = |of: &Dropped| match &of.mount_point {
            Some(place) => {
                format!("dropped :{}, which was on {}\n", of.branch_name, place.display())
            }
            None => format!("dropped :{}\n", of.branch_name),
        };
        output::print(&dropped.iter().map(line).collect::<String>())?;
    }
    outcome
}

fn drop_named(text: &str, mode: UnmountMode, dropped: &mut Vec<Dropped>) -> Result<(), Failure> {
    let fail = |why: &str| Failure::new(format_args!("{text}: {why}"));
    let table = mounts::read()?;
    target::check_alive(&table, Path::new(text))?;
    let Ok(path) = Path::new(text).canonicalize() else {
        let Place { keeper, version, .. } = find_version(text)?;
        let VersionName { branch: Some(branch), moment: None } = version else {
            return Err(fail("name a fork, by its mount point or as TARGET:NAME"));
        };
        let found = versions(&keeper)?.branches.into_iter().find(|of| of.name == branch);
        let found = found.ok_or_else(|| {
            fail(&format!("there is no branch called {branch}; `dendro forks` lists them"))
        })?;
        delete(&keeper, &found)?;
        dropped.push(Dropped { branch_name: branch, mount_point: None });
        return Ok(());
    };
    let is_ours = |entry: &&MountEntry| entry.is_dendro();
    let here = table.iter().rev().filter(is_ours).find(|entry| entry.mount_point == path);
    if let Some(entry) = here {
        dropped.push(drop_mounted(&table, entry, mode)?);
        return Ok(());
    }
    // Several forks are numbered.
    let is_numbered = |entry: &&MountEntry| {
        let number = entry.mount_point.file_name().and_then(|name| name.to_str());
        entry.mount_point.parent() == Some(&path)
            && number.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let numbered: Vec<_> = table.iter().filter(is_ours).filter(is_numbered).collect();
    if numbered.is_empty() {
        return Err(fail(
            "no fork is mounted there; `dendro forks` lists them, and TARGET:NAME names one that is \
             not mounted",
        ));
    }
    for entry in numbered {
        dropped.push(drop_mounted(&table, entry, mode)?);
    }
    // The directory stays if it contains anything else.
    let _ = fs::remove_dir(&path);
    Ok(())
}

fn drop_mounted(
    table: &[MountEntry],
    entry: &MountEntry,
    mode: UnmountMode,
) -> Result<Dropped, Failure> {
    let place = &entry.mount_point;
    let fail = |why: &str| Failure::new(format_args!("{}: {why}", place.display()));
    let mut served = match target::daemon_behind(table, entry, place) {
        Behind::Daemon(served) => served,
        Behind::Unresponsive(mute) => return Err(target::silent(place, &mute)),
        Behind::Nobody => {
            return Err(fail("its daemon does not answer; `dendro umount` clears it away"));
        }
    };
    let branch = branch_shown(&served).map_err(|why| fail(&why))?;
    let source = PathBuf::from(&served.pong.source);
    let doomed = to_delete(&Keeper::Daemon(served.clone()), &branch)?;
    served.client = served.client.without_root();
    umount::run_for_drop(place, mode)?;
    let keeper = match mount_request::is_foreign(&served.client) {
        // The daemon has other mounts, so it can name the branch without this one.
        true => {
            let Served { client, pong, .. } = *served;
            let client = client.about_volume();
            Keeper::Daemon(Box::new(Served { client, pong, view: None }))
        }
        // The daemon may have ended with that mount.
        false => Keeper::of(&source)?,
    };
    delete_all(&keeper, doomed)?;
    // The directory stays if it contained something below the mount.
    let _ = fs::remove_dir(place);
    Ok(Dropped { branch_name: branch.name, mount_point: Some(place.clone()) })
}

/// The branch whose head is mounted, unless it is the main one.
fn branch_shown(served: &Served) -> Result<BranchInfo, String> {
    let view = served.view.as_ref().ok_or("it is not known what is mounted there")?;
    if view.epoch.is_some() {
        return Err("shows the past, and is no fork; `dendro umount` unmounts it".into());
    }
    let keeper = Keeper::Daemon(Box::new(served.clone()));
    let list = versions(&keeper).map_err(|failure| failure.message)?;
    let branch = list.branches.into_iter().find(|of| of.branch == view.branch);
    match branch {
        Some(branch) if branch.main => {
            Err("shows the main branch, and is no fork; `dendro umount` unmounts it".into())
        }
        Some(branch) => Ok(branch),
        None => Err("its branch is gone".into()),
    }
}

fn delete(keeper: &Keeper, branch: &BranchInfo) -> Result<(), Failure> {
    delete_all(keeper, to_delete(keeper, branch)?)
}

fn delete_all(keeper: &Keeper, versions: Vec<VersionName>) -> Result<(), Failure> {
    keeper.ask(VersionsRequest::Delete { versions, dry_run: false }).map(drop)
}

/// A branch, and the snapshot that was made for it, unless other branches continue that too.
fn to_delete(keeper: &Keeper, branch: &BranchInfo) -> Result<Vec<VersionName>, Failure> {
    let list = versions(keeper)?;
    let is_alone = || {
        let from = |of: &&BranchInfo| (of.parent, of.parent_epoch);
        list.branches.iter().filter(|of| from(of) == from(&branch)).count() == 1
    };
    let base = base_of(branch, &list).filter(|base| !base.held && is_alone());
    let base = base.and_then(|base| base.name.clone()).filter(|name| {
        // A killed `dendro try` leaves a branch and a snapshot of the same name.
        name.starts_with(BASE) || (*name == branch.name && name.starts_with("try-"))
    });
    Ok([branch_name(&branch.name)].into_iter().chain(base.map(moment)).collect())
}
