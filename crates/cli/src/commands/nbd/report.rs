//! What is said of a server once it listens.

use serde::Serialize;

use crate::args::block::NbdArgs;
use crate::failure::Failure;
use crate::output::{self, json};

/// Where it listens.
#[derive(Serialize)]
pub(super) struct Serving {
    pub(super) source: String,
    pub(super) uuid: String,
    pub(super) pid: u32,
    pub(super) uri: String,
    pub(super) export_count: u64,
}

/// Says where it listens.
pub(super) fn report(serving: &Serving, args: &NbdArgs, quiet: bool) -> Result<(), Failure> {
    match (args.json, quiet) {
        (true, _) => json::print(serving)?,
        (false, false) => output::message(format_args!(
            "{} is served at {}; Ctrl-C ends it",
            serving.source, serving.uri
        )),
        (false, true) => {}
    }
    Ok(())
}
