//! `dendro clean` and `cleanerd`: cleaning over the control socket, and coalescing.

pub(crate) mod clean;
mod cleaner;
pub(crate) mod cleanerd;
pub(crate) mod coalesce;
mod settings;

use crate::args::cleaning::CleanVerb;
use crate::failure::Failure;

/// `dendro clean`.
pub(crate) fn run(verb: &CleanVerb, quiet: bool) -> Result<(), Failure> {
    match verb {
        CleanVerb::Status(args) => settings::status(args),
        CleanVerb::Run(args) => clean::run(args, quiet),
        CleanVerb::Coalesce(args) => coalesce::run(args, quiet),
        CleanVerb::Suspend(args) => settings::suspend(args, true, quiet),
        CleanVerb::Resume(args) => settings::suspend(args, false, quiet),
        CleanVerb::Set(args) => settings::set(args, quiet),
    }
}
