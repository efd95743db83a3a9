//! Man pages and completions. They are made from the same definitions as the help.
//!
//! - [`pages`] renders the man pages. [`manual`] has the text that the help does not have: examples
//!   and exit status.
//! - [`findings`] renders the page of what a check finds, from the checkers' own tables.
//! - [`roff`] is the language of pages.
//! - [`completions`] prints scripts for shells. [`candidates`] answers these scripts while a user
//!   types.

mod candidates;
mod completions;
mod findings;
mod manual;
mod pages;
mod roff;

pub(crate) use candidates::print as print_candidates;
pub(crate) use completions::print as print_completions;
pub(crate) use pages::write as man_pages;

use clap::CommandFactory;

use crate::args::Cli;

/// The command line that users see, with the arguments and commands that clap adds.
fn shown() -> clap::Command {
    let mut shown = visible();
    shown.build();
    shown
}

/// The command line without the commands that are hidden from users.
fn visible() -> clap::Command {
    let cli = Cli::command().disable_help_subcommand(true);
    let visible: Vec<clap::Command> =
        cli.get_subcommands().filter(|of| !of.is_hide_set()).cloned().collect();
    let mut shown = clap::Command::new("dendro")
        .disable_help_subcommand(true)
        .subcommand_required(true)
        .version(env!("CARGO_PKG_VERSION"));
    if let Some(about) = cli.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(about) = cli.get_long_about() {
        shown = shown.long_about(about.clone());
    }
    shown.args(cli.get_arguments().cloned()).subcommands(visible)
}
