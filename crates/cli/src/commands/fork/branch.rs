//! `dendro branch`.

use dendro_control::versions::VersionName;

use super::list;
use crate::args::fork::{BranchArgs, BranchVerb};
use crate::commands::versions::{delete_versions, rename_version};
use crate::failure::{Failure, usage};
use crate::target::find_version;

pub(crate) fn run(args: &BranchArgs, quiet: bool) -> Result<(), Failure> {
    match &args.verb {
        BranchVerb::List(args) => list::show(args, true),
        BranchVerb::Rename { target, name, json } => {
            check_names_branch(target)?;
            rename_version(target, name, *json)
        }
        BranchVerb::Delete { target, more, dry_run, json } => {
            check_names_branch(target)?;
            if let Some(other) = more.iter().find(|text| !text.starts_with(':')) {
                return Err(usage(format_args!("{other}: name a branch, as in :BRANCH")));
            }
            delete_versions(target, more, [*dry_run, *dry_run && !quiet, *json])
        }
    }
}

fn check_names_branch(target: &str) -> Result<(), Failure> {
    match find_version(target)?.version {
        VersionName { branch: Some(_), moment: None } => Ok(()),
        _ => Err(usage(format_args!("{target}: name a branch, as in {target}:BRANCH"))),
    }
}
