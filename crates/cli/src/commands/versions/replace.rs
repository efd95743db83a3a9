//! `dendro promote` and `rollback`: replace one head by another.

use std::fmt::Write;

use dendro_control::versions::{
    BranchInfo, KeptInfo, OpenFileInfo, Replacing, VersionName, VersionsReply, VersionsRequest,
};

use crate::args::versions::{PromoteArgs, ReplacingArgs, RollbackArgs};
use crate::failure::{Failure, usage as wrong_usage};
use crate::output::{self, json};
use crate::target::{self, Place, unexpected};

const fn how(args: &ReplacingArgs) -> Replacing {
    Replacing { discard: args.discard, force: args.force }
}

pub(crate) fn promote(args: &PromoteArgs, quiet: bool) -> Result<(), Failure> {
    let target = &args.target;
    let place = target::find_version(target)?;
    match place.version.clone() {
        VersionName { branch: Some(branch), moment: None } => {
            let request = VersionsRequest::Promote { branch, how: how(&args.how) };
            replace(&place, request, &args.how, quiet)
        }
        _ => Err(wrong_usage(format_args!(
            "{target}: name a branch, as in {}:BRANCH",
            place.path.display()
        ))),
    }
}

pub(crate) fn rollback(args: &RollbackArgs, quiet: bool) -> Result<(), Failure> {
    let place = target::find_version(&args.target)?;
    if place.version.moment.is_none() && !args.undo {
        let target = &args.target;
        return Err(wrong_usage(format_args!(
            "{target}: say how far back, as in {target}@NAME; --undo takes a rollback back"
        )));
    }
    let to = place.version.clone();
    let request = VersionsRequest::Rollback { to, undo: args.undo, how: how(&args.how) };
    replace(&place, request, &args.how, quiet)
}

fn replace(
    place: &Place,
    request: VersionsRequest,
    args: &ReplacingArgs,
    quiet: bool,
) -> Result<(), Failure> {
    let made = match place.keeper.ask(request)? {
        VersionsReply::Branch(made) => made,
        other => return Err(unexpected(&other)),
    };
    match (args.json, quiet) {
        (true, _) => json::print(&made),
        (false, true) => Ok(()),
        (false, false) => output::print(&replaced_text(&made, place, args.discard)),
    }
}

/// The new state, what became of the old one, and what can be done about it.
fn replaced_text(made: &BranchInfo, place: &Place, discard: bool) -> String {
    let Some(replaced) = &made.replaced else { return String::new() };
    let volume = place.path.display().to_string();
    let name = &made.name;
    let mut text = match replaced.like.starts_with(':') {
        true => format!("{} is {} now; ", replaced.like, called(name, made.main)),
        false => format!("{} is as it was at {}; ", called(name, made.main), replaced.like),
    };
    text += &match (&replaced.kept, discard) {
        (Some(kept), _) => kept_text(kept, &volume, &place.version),
        (None, true) => "what was there until now was thrown away\n".into(),
        (None, false) => "it was so before\n".into(),
    };
    if !replaced.open_files.is_empty() {
        text += "files were open there:\n";
        for file in &replaced.open_files {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {}", open_file_text(file));
        }
    }
    text
}

fn called(branch: &str, is_main: bool) -> String {
    if is_main { format!("the main branch, {branch},") } else { format!("branch {branch}") }
}

fn kept_text(kept: &KeptInfo, volume: &str, version: &VersionName) -> String {
    let name = &kept.name;
    if kept.epoch.is_none() {
        return format!(
            "what was the main branch is kept as :{name}\n  \
             dendro promote {volume}:{name}   takes it back\n  \
             dendro snapshot delete {volume}:{name}   throws that away, and gives its space back\n"
        );
    }
    if !name.starts_with("before-") {
        return format!("what was there until now is still there as @{name}\n");
    }
    let branch = version.branch.as_ref().map(|branch| format!(":{branch}")).unwrap_or_default();
    format!(
        "what was there until now is kept as @{name}\n  \
         dendro rollback --undo {volume}{branch}   puts it back\n  \
         dendro snapshot delete {volume}@{name}   throws it away, and gives its space back\n"
    )
}

/// A file that is open, and whose it is.
pub(crate) fn open_file_text(file: &OpenFileInfo) -> String {
    let user = file.user.as_ref().map(|user| format!(" of {user}")).unwrap_or_default();
    format!("{} by process {} ({}{user})", file.path, file.pid, file.command)
}
