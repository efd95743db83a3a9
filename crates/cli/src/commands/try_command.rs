//! `dendro try`: runs a command on a clone of the tree, which becomes the tree if the command
//! succeeds.
//!
//! The clone continues a snapshot of the head, and both have the same name. It is mounted over the
//! tree, in a mount namespace that only the command sees. At the end the clone replaces the head,
//! if the head has not changed since the snapshot: a transaction over any number of files.
//!
//! - [`namespace`]: the private namespace. [`process`]: runs the command in it.

mod namespace;
mod process;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{env, thread};

use dendro_control::versions::{
    ChangeInfo, DiffInfo, KeptInfo, Moment, Replacing, VersionName, VersionsReply, VersionsRequest,
};
use dendro_control::{Pong, ViewInfo};
use dendro_daemon::mount_config::Config;
use dendro_daemon::mounts;
use dendro_daemon::options::MountOptions;
use dendro_fuse::{UnmountMode, unmount};
use serde::Serialize;

use crate::args::{OnConflict, TryArgs};
use crate::failure::{Failure, code};
use crate::mount_request::{self, Requested};
use crate::output::{self, json};
use crate::target::{self, Served, flush_kernel};

/// How many names are tried for the clone.
const NAMES: u32 = 100;
/// The most changes by others that are printed.
const MAX_PRINTED_CHANGES: usize = 10;
/// The first and the longest pause between two questions whether the daemon has closed the clone,
/// and the number of questions.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(3);
const CLOSED_TRIES: u32 = 10_000;

/// What became of the clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    /// It is the tree now.
    Committed,
    /// It is gone.
    Discarded,
    /// It is there, as requested.
    Kept,
    /// It is there, because it could not be committed.
    Conflict,
}

#[derive(Serialize)]
struct Report {
    branch_name: String,
    outcome: Outcome,
    exit_status: u8,
    /// What others changed meanwhile, or a part of it.
    changed_meanwhile: Vec<ChangeInfo>,
    /// The snapshot that keeps the earlier state of the tree; `None` if it did not change, or was
    /// not to be kept.
    kept: Option<KeptInfo>,
}

/// The outcome of replacing the tree by the clone.
enum Committed {
    /// The tree was replaced; this keeps its earlier state.
    Done(Option<KeptInfo>),
    /// The tree has changed meanwhile, in this way.
    Changed(DiffInfo),
}

/// The tree, and the clone of it.
struct TryRun<'a> {
    args: &'a TryArgs,
    tree: Served,
    mount_point: PathBuf,
    /// The name of the clone and of the snapshot.
    name: String,
}

pub(crate) fn run(args: &TryArgs, quiet: bool) -> Result<ExitCode, Failure> {
    let report = try_it(args, quiet).map_err(|failure| match failure.code {
        // The exit code of `try`, not of the command.
        code::FAILED => failure.with_code(code::TRY_FAILED),
        _ => failure,
    })?;
    if args.json {
        json::print(&report)?;
    }
    Ok(match report.outcome {
        Outcome::Conflict => ExitCode::from(code::TRY_FAILED),
        _ => ExitCode::from(report.exit_status),
    })
}

fn try_it(args: &TryArgs, quiet: bool) -> Result<Report, Failure> {
    let (tree, mount_point) = find_tree(args)?;
    let options = clone_options(args)?;
    let directory = env::current_dir()?;
    namespace::enter()?;
    let try_run = TryRun::begin(args, tree, mount_point)?;
    let status = try_run.run_command(options, &directory)?;
    try_run.end(status, quiet)
}

/// The mount of the head that the user names.
fn find_tree(args: &TryArgs) -> Result<(Served, PathBuf), Failure> {
    target::check_path(&mounts::read()?, &args.directory)?;
    let path = args
        .directory
        .canonicalize()
        .map_err(|error| Failure::new(format_args!("{}: {error}", args.directory.display())))?;
    let fail = |why: &str| Err(Failure::new(format_args!("{}: {why}", args.directory.display())));
    let tree = target::find_mounted(&path)?;
    let Some(view) = tree.view.clone() else { return fail("name a directory in the mount") };
    let mount_point = PathBuf::from(&view.mount_point);
    if !path.starts_with(&mount_point) || mounts::device_at(&mount_point) != view.device {
        return fail(&format!("name it by its mount point, {}", mount_point.display()));
    }
    match (view.epoch, &view.read_only) {
        (Some(_), _) => {
            fail("shows the past, which does not change; name a tree in the mount of a branch")
        }
        (None, Some(why)) => fail(&format!("is read-only, and nothing can become of it: {why}")),
        (None, None) => Ok((tree, mount_point)),
    }
}

/// The options of the clone's mount.
fn clone_options(args: &TryArgs) -> Result<MountOptions, Failure> {
    let options = MountOptions::parse(args.options.iter().map(String::as_str));
    let options = options.map_err(Failure::new)?;
    match options.version == VersionName::default() && !options.read_only {
        true => Ok(options),
        false => Err(Failure::new(
            "-o: COMMAND works on a clone of the tree, and changes it; leave clone=, snapshot=, at= and \
             ro out",
        )),
    }
}

fn moment(name: &str) -> VersionName {
    let moment = Moment { text: name.to_owned(), unix_ns: None };
    VersionName { branch: None, moment: Some(moment) }
}

fn branch(name: &str) -> VersionName {
    VersionName { branch: Some(name.to_owned()), moment: None }
}

impl<'a> TryRun<'a> {
    /// Makes the snapshot and the clone.
    fn begin(args: &'a TryArgs, tree: Served, mount_point: PathBuf) -> Result<Self, Failure> {
        flush_kernel(&tree);
        let mut try_run = Self { args, tree, mount_point, name: String::new() };
        let pid = std::process::id();
        let mut number = 1;
        loop {
            try_run.name = match (&args.name, number) {
                (Some(name), _) => name.clone(),
                (None, 1) => format!("try-{pid}"),
                (None, number) => format!("try-{pid}-{number}"),
            };
            match try_run.make() {
                Ok(()) => return Ok(try_run),
                // An earlier run may have left something with that name.
                Err(_) if args.name.is_none() && number < NAMES => number += 1,
                Err(failure) => return Err(failure),
            }
        }
    }

    fn make(&self) -> Result<(), Failure> {
        let name = self.name.clone();
        self.ask(VersionsRequest::Snapshot { of: VersionName::default(), name: Some(name) })?;
        let request = VersionsRequest::Clone { of: moment(&self.name), name: self.name.clone() };
        self.ask(request).map(drop).inspect_err(|_| {
            // The error that matters is why there is no clone.
            let _ = self.delete(vec![moment(&self.name)]);
        })
    }

    fn ask(&self, request: VersionsRequest) -> Result<VersionsReply, Failure> {
        let answer = self.tree.client.versions(self.tree.device(), request);
        answer.map_err(|error| Failure::new(format_args!("{}: {error}", self.place())))
    }

    fn delete(&self, versions: Vec<VersionName>) -> Result<(), Failure> {
        self.ask(VersionsRequest::Delete { versions, dry_run: false }).map(drop)
    }

    fn delete_all(&self) -> Result<(), Failure> {
        self.delete(vec![branch(&self.name), moment(&self.name)])
    }

    fn place(&self) -> std::path::Display<'_> {
        self.mount_point.display()
    }

    /// Mounts the clone over the tree, runs the command in it, and unmounts the clone.
    fn run_command(&self, options: MountOptions, directory: &Path) -> Result<u8, Failure> {
        let view = self.mount(options).inspect_err(|_| {
            // The error that matters is why it is not mounted.
            let _ = self.delete_all();
        })?;
        let ran = env::set_current_dir(directory)
            .map_err(|error| Failure::new(format_args!("{}: {error}", directory.display())))
            .and_then(|()| process::run(&self.args.command));
        // Leaves the clone, which is to be unmounted.
        let _ = env::set_current_dir("/");
        let status = match &ran {
            Ok(status) => *status,
            Err(failure) => failure.code,
        };
        if let Err(failure) = self.unmount(&view, status == 0 || self.args.keep) {
            return Err(Failure::new(format_args!(
                "{}; what it did stays in branch {}",
                failure.message, self.name
            )));
        }
        if ran.is_err() && !self.args.keep {
            self.delete_all()?;
        }
        ran
    }

    /// Mounts the clone; returns the daemon's description of the mount.
    fn mount(&self, mut options: MountOptions) -> Result<Box<ViewInfo>, Failure> {
        options.version = branch(&self.name);
        let config = Config {
            source: PathBuf::from(&self.tree.pong.source),
            mount_point: self.mount_point.clone(),
            options,
        };
        let (client, pong) = (&self.tree.client, &self.tree.pong);
        let joined = match mount_request::is_foreign(client) {
            true => mount_request::request_private_mount(client, &config, &self.args.options)?,
            false => mount_request::request_mount(client, pong, &config, &self.args.options)?,
        };
        match joined {
            Requested::Served(view) => Ok(view),
            Requested::NoDaemon => {
                Err(Failure::new(format_args!("{}: its daemon is gone", self.place())))
            }
        }
    }

    /// Unmounts the clone, and waits until the daemon has closed it.
    fn unmount(&self, view: &ViewInfo, is_wanted: bool) -> Result<(), Failure> {
        match unmount(&self.mount_point, UnmountMode::Idle) {
            Ok(()) => {}
            Err(dendro_fuse::Error::Busy(_)) if is_wanted => {
                let _ = unmount(&self.mount_point, UnmountMode::Detach);
                return Err(Failure::new(format_args!(
                    "{}: the command has left processes behind that work there",
                    self.place()
                )));
            }
            Err(_) => unmount(&self.mount_point, UnmountMode::Abort)?,
        }
        let mut pause = FIRST_PAUSE;
        for _ in 0..CLOSED_TRIES {
            let is_there = |pong: Pong| pong.has(view);
            if !self.tree.client.ping().is_ok_and(is_there) {
                return Ok(());
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Err(Failure::new(format_args!("{}: its daemon does not close the clone", self.place())))
    }

    /// Commits, keeps or discards the clone.
    fn end(&self, status: u8, quiet: bool) -> Result<Report, Failure> {
        let report = |outcome, changed_meanwhile| Report {
            branch_name: self.name.clone(),
            outcome,
            exit_status: status,
            changed_meanwhile,
            kept: None,
        };
        if self.args.keep {
            self.message(quiet, &format!("what the command did is in branch {}", self.name));
            return Ok(report(Outcome::Kept, Vec::new()));
        }
        if status != 0 {
            self.delete_all()?;
            self.message(quiet, &format!("exit status {status}; nothing of it was kept"));
            return Ok(report(Outcome::Discarded, Vec::new()));
        }
        let DiffInfo { changes, more, .. } = match self.commit(true) {
            Ok(Committed::Done(kept)) => {
                self.report_kept(quiet, kept.as_ref());
                return Ok(Report { kept, ..report(Outcome::Committed, Vec::new()) });
            }
            Ok(Committed::Changed(changed)) => changed,
            Err(failure) => {
                self.message(false, &format!("{}\n{}", failure.message, self.choices()));
                return Ok(report(Outcome::Conflict, Vec::new()));
            }
        };
        self.message(quiet, &format!("it has changed meanwhile:\n{}", some_of(&changes, more)));
        let outcome = match self.args.on_conflict {
            OnConflict::Discard => {
                self.delete_all()?;
                self.message(quiet, "what the command did was thrown away");
                Outcome::Conflict
            }
            OnConflict::Promote => {
                let kept = match self.commit(false)? {
                    Committed::Done(kept) => kept,
                    Committed::Changed(_) => None,
                };
                self.message(quiet, "what the command did has taken the place of that");
                self.report_kept(quiet, kept.as_ref());
                return Ok(Report { kept, ..report(Outcome::Committed, changes) });
            }
            OnConflict::Keep => {
                self.message(quiet, &self.choices());
                Outcome::Conflict
            }
        };
        Ok(report(outcome, changes))
    }

    /// Replaces the tree by the clone, unless the tree has changed and that matters.
    fn commit(&self, unless_changed: bool) -> Result<Committed, Failure> {
        flush_kernel(&self.tree);
        let since = unless_changed.then(|| moment(&self.name));
        let with = self.name.clone();
        let how = Replacing { discard: self.args.discard, force: false };
        let kept = match self.ask(VersionsRequest::Replace { with, since, how })? {
            VersionsReply::Diff(changed) => return Ok(Committed::Changed(changed)),
            VersionsReply::Branch(made) => made.replaced.and_then(|replaced| replaced.kept),
            _ => None,
        };
        self.delete(vec![moment(&self.name)])?;
        Ok(Committed::Done(kept))
    }

    fn report_kept(&self, quiet: bool, kept: Option<&KeptInfo>) {
        if let Some(kept) = kept {
            self.message(
                quiet,
                &format!(
                    "how it was before is kept as @{}; `dendro rollback --undo {}` puts it back",
                    kept.name,
                    self.place()
                ),
            );
        }
    }

    fn message(&self, quiet: bool, what: &str) {
        if !quiet {
            output::message(format_args!("dendro: {}: {what}", self.place()));
        }
    }

    /// Advice on a clone that was not committed.
    fn choices(&self) -> String {
        let (place, name) = (self.place(), &self.name);
        format!(
            "what the command did is in branch {name}:\n  \
             dendro diff {place}@{name} :{name}   shows it\n  \
             dendro promote {place}:{name}   puts it in the place of the main branch, which takes \
             that name\n  \
             dendro snapshot delete {place}:{name} @{name}   throws it away"
        )
    }
}

/// A few changes, as lines.
fn some_of(changes: &[ChangeInfo], more: bool) -> String {
    let printed = changes.iter().take(MAX_PRINTED_CHANGES);
    let mut lines: Vec<_> =
        printed.map(|change| format!("  {}\t{}", change.change, change.path)).collect();
    let rest = changes.len().saturating_sub(MAX_PRINTED_CHANGES);
    if rest > 0 || more {
        lines.push(format!("  and {}{rest} more", if more { "over " } else { "" }));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_of_many_changes_are_told() {
        let change = |number| ChangeInfo {
            change: '+',
            path: format!("/{number}"),
            ..ChangeInfo::default()
        };
        let changes: Vec<_> = (0..12).map(change).collect();
        assert_eq!(some_of(&changes[..2], false), "  +\t/0\n  +\t/1");
        assert!(some_of(&changes, false).ends_with("/9\n  and 2 more"));
        assert!(some_of(&changes, true).ends_with("and over 2 more"));
    }
}
