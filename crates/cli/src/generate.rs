//! Man pages and completions, from the same definitions as the help.

use std::fs;
use std::path::Path;

use clap::CommandFactory;

use crate::args::{Cli, LINKED_NAMES};
use crate::failure::Failure;
use crate::output;

/// Prints the completions of `shell`.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "dendro", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

/// Writes `man1/dendro.1`, one page for each command, and pages for the linked names into
/// `directory`.
pub(crate) fn man_pages(directory: &Path) -> Result<(), Failure> {
    let fail = |path: &Path, error| Failure::new(format_args!("{}: {error}", path.display()));
    let (commands, helpers) = (directory.join("man1"), directory.join("man8"));
    for made in [&commands, &helpers] {
        fs::create_dir_all(made).map_err(|error| fail(made, error))?;
    }
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    clap_mangen::generate_to(cli, &commands).map_err(|error| fail(&commands, error))?;
    for (name, verb) in LINKED_NAMES {
        let path = helpers.join(format!("{name}.8"));
        let page = format!(".so man1/dendro-{verb}.1\n");
        fs::write(&path, page).map_err(|error| fail(&path, error))?;
    }
    Ok(())
}
