//! `dendro fork`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use dendro_control::versions::{VersionName, VersionsReply, VersionsRequest};
use dendro_daemon::mounts;
use dendro_fuse::{UnmountMode, unmount};
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use serde::Serialize;

use super::base::{BASE, branch_name, moment, versions};
use crate::args::MountArgs;
use crate::args::fork::ForkArgs;
use crate::commands::mount;
use crate::failure::Failure;
use crate::mount_request::{self, Requested};
use crate::output::{self, json};
use crate::target::{self, Keeper, Place, find_version, unexpected};

/// A fork that was made.
#[derive(Debug, Serialize)]
struct Fork {
    /// Its branch.
    branch_name: String,
    /// The version that it continues.
    base: String,
    /// Where it is mounted.
    mount_point: PathBuf,
    /// The directory in the mount that was forked.
    path: PathBuf,
}

/// The origin of forks.
struct Origin {
    keeper: Keeper,
    version: VersionName,
    /// The image file or block device.
    source: PathBuf,
    /// The forked directory, from the volume's root; `None`: the whole volume.
    directory: PathBuf,
}

pub(crate) fn run(args: &ForkArgs, quiet: bool) -> Result<(), Failure> {
    target::check_alive(&mounts::read()?, &args.dest)?;
    let origin = find_origin(&args.tree)?;
    let taken = Taken::look(&origin.keeper)?;
    let name = chosen_name(args)?;
    let places: Vec<_> = match args.count {
        None => vec![(taken.branch(name.clone()), args.dest.clone())],
        Some(count) => {
            let numbered = |number: u32| {
                let branch = taken.branch(format!("{name}-{number}"));
                (branch, args.dest.join(number.to_string()))
            };
            (1..=count).map(numbered).collect()
        }
    };
    let mut directories = Directories::default();
    if args.count.is_some() {
        directories.make(&args.dest)?;
    }
    for (_, place) in &places {
        directories.make(place)?;
    }
    let (base, is_own) = base(&origin, &taken, &name)?;
    let mut forks = Vec::new();
    for (branch, place) in places {
        let made = make(&origin, &base, branch, &place, args);
        match made {
            Ok(fork) => forks.push(fork),
            Err(failure) if forks.is_empty() => {
                if is_own {
                    // The error that matters is why there is no fork.
                    let _ = delete(&origin.keeper, base);
                }
                return Err(failure);
            }
            Err(failure) => {
                directories.keep_used();
                print_forks(&forks, args, quiet)?;
                return Err(failure);
            }
        }
    }
    directories.keep();
    print_forks(&forks, args, quiet)
}

fn print_forks(forks: &[Fork], args: &ForkArgs, quiet: bool) -> Result<(), Failure> {
    if args.json {
        return json::print_list("forks", &forks);
    }
    let line = |fork: &Fork| format!("{}\tbranch {}\n", fork.path.display(), fork.branch_name);
    if quiet { Ok(()) } else { output::print(&forks.iter().map(line).collect::<String>()) }
}

fn find_origin(tree: &str) -> Result<Origin, Failure> {
    let Place { keeper, version, path } = find_version(tree)?;
    let (source, directory) = match &keeper {
        Keeper::Offline(source) => (source.clone(), PathBuf::new()),
        Keeper::Daemon(served) => {
            let directory = match served.view.is_some() {
                true => mounts::below_root(&path)?,
                false => PathBuf::new(),
            };
            (PathBuf::from(&served.pong.source), directory)
        }
    };
    if !directory.as_os_str().is_empty() && !path.is_dir() {
        return Err(Failure::new(format_args!("{tree}: is not a directory")));
    }
    Ok(Origin { keeper, version, source, directory })
}

/// The name of the branch. It must be a valid name, and valid in mount options.
fn chosen_name(args: &ForkArgs) -> Result<String, Failure> {
    let last = args.dest.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = match &args.name {
        Some(name) => name.clone(),
        None => last.unwrap_or_default().replace([',', '@', ':', '\\'], "_").replace("..", "_"),
    };
    let name = match name.starts_with('-') || name.bytes().all(|byte| byte.is_ascii_digit()) {
        true if args.name.is_none() => format!("fork{name}"),
        _ => name,
    };
    dendro_disk::check_name(&name)?;
    match name.contains(',') {
        true => Err(Failure::new(format_args!("{name}: a comma ends a mount option"))),
        false => Ok(name),
    }
}

/// Names that are in use.
struct Taken {
    branches: BTreeSet<String>,
    snapshots: BTreeSet<String>,
}

impl Taken {
    fn look(keeper: &Keeper) -> Result<Self, Failure> {
        let list = versions(keeper)?;
        Ok(Self {
            branches: list.branches.into_iter().map(|of| of.name).collect(),
            snapshots: list.snapshots.into_iter().filter_map(|of| of.name).collect(),
        })
    }

    fn branch(&self, name: String) -> String {
        free(&self.branches, name)
    }
}

/// The name, followed by a number if it is taken.
fn free(taken: &BTreeSet<String>, name: String) -> String {
    let numbered = (2_u32..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.clone()).chain(numbered);
    names.find(|name| !taken.contains(name)).unwrap_or(name)
}

/// The version that forks are made from, and whether it is a snapshot made for them.
fn base(origin: &Origin, taken: &Taken, name: &str) -> Result<(VersionName, bool), Failure> {
    let shows_the_past = match &origin.keeper {
        Keeper::Daemon(served) => {
            served.view.as_ref().is_some_and(|view| view.epoch.is_some())
                && origin.version.branch.is_none()
        }
        Keeper::Offline(_) => false,
    };
    if origin.version.moment.is_some() || shows_the_past {
        return Ok((origin.version.clone(), false));
    }
    let name = free(&taken.snapshots, format!("{BASE}{name}"));
    let request =
        VersionsRequest::Snapshot { of: origin.version.clone(), name: Some(name.clone()) };
    match origin.keeper.ask(request)? {
        VersionsReply::Snapshot(_) => Ok((moment(name), true)),
        other => Err(unexpected(&other)),
    }
}

fn delete(keeper: &Keeper, version: VersionName) -> Result<(), Failure> {
    let request = VersionsRequest::Delete { versions: vec![version], dry_run: false };
    keeper.ask(request).map(drop)
}

fn make(
    origin: &Origin,
    base: &VersionName,
    branch: String,
    place: &Path,
    args: &ForkArgs,
) -> Result<Fork, Failure> {
    let now;
    let keeper = match &origin.keeper {
        Keeper::Daemon(_) => &origin.keeper,
        // The first fork starts a daemon.
        Keeper::Offline(_) => {
            now = Keeper::of(&origin.source)?;
            &now
        }
    };
    keeper.ask(VersionsRequest::Clone { of: base.clone(), name: branch.clone() })?;
    let mounted = show(origin, &branch, place, args);
    let path = mounted.inspect_err(|_| {
        let _ = unmount(place, UnmountMode::Detach);
        // The error that matters is why it is not mounted.
        let _ = Keeper::of(&origin.source).and_then(|keeper| delete(&keeper, branch_name(&branch)));
    })?;
    let text = base.moment.as_ref().map_or_else(|| "head".into(), |moment| moment.text.clone());
    let mount_point = place.canonicalize()?;
    Ok(Fork { branch_name: branch, base: format!("@{text}"), mount_point, path })
}

/// Mounts the branch; returns the path of the forked directory.
fn show(origin: &Origin, branch: &str, place: &Path, args: &ForkArgs) -> Result<PathBuf, Failure> {
    let mut options = args.options.clone();
    options.push(format!("clone={branch}"));
    let mount_args = MountArgs {
        source: origin.source.clone(),
        directory: place.to_path_buf(),
        options,
        foreground: false,
        log_file: None,
        daemon: false,
        json: false,
        fake: false,
        kind: None,
    };
    let place = place.canonicalize()?;
    match &origin.keeper {
        Keeper::Daemon(served) if mount_request::is_foreign(&served.client) => {
            let config = mount::config_of(&mount_args, origin.source.clone())?;
            match mount_request::request_mount(
                &served.client,
                &served.pong,
                &config,
                &mount_args.options,
            )? {
                Requested::Served(_) => {}
                Requested::NoDaemon => return Err(Failure::new("its daemon is gone")),
            }
        }
        _ => mount::run(&mount_args, true)?,
    }
    if origin.directory.as_os_str().is_empty() {
        return Ok(place);
    }
    let inside = place.join(&origin.directory);
    if !rustix::process::geteuid().is_root() {
        return Ok(inside);
    }
    show_directory(&inside, &place).map(|()| place.clone()).map_err(|error| {
        Failure::new(format_args!("{}: cannot be shown on its own: {error}", inside.display()))
    })
}

/// Reduces the mount on `place` to the directory `inside` of it: a bind mount of that directory
/// takes its place and keeps the file system mounted.
fn show_directory(inside: &Path, place: &Path) -> io::Result<()> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, inside, clone)?;
    rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH)?;
    Ok(move_mount(&tree, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Directories that were created; those without a mount are removed again.
#[derive(Default)]
struct Directories(Vec<PathBuf>);

impl Directories {
    /// Creates a directory, unless there is an empty one.
    fn make(&mut self, path: &Path) -> Result<(), Failure> {
        let fail =
            |why: &dyn std::fmt::Display| Failure::new(format_args!("{}: {why}", path.display()));
        match fs::create_dir(path) {
            Ok(()) => self.0.push(path.to_path_buf()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut entries = fs::read_dir(path).map_err(|error| fail(&error))?;
                if entries.next().is_some() {
                    return Err(fail(&"is there and not empty; name another directory"));
                }
            }
            Err(error) => return Err(fail(&error)),
        }
        Ok(())
    }

    fn keep(&mut self) {
        self.0.clear();
    }

    /// Keeps all directories that are not empty.
    fn keep_used(&mut self) {
        let is_empty = |path: &PathBuf| fs::read_dir(path).is_ok_and(|mut of| of.next().is_none());
        self.0.retain(is_empty);
    }
}

impl Drop for Directories {
    fn drop(&mut self) {
        for path in self.0.iter().rev() {
            // A directory in use stays.
            let _ = fs::remove_dir(path);
        }
    }
}
