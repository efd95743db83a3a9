//! The arguments of the commands that find and mend damage, or report it: `check`, `rebuild` and
//! `image`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::Args;
use dendro_daemon::text;

#[derive(Debug, Args)]
#[command(
    after_help = "Exit status, as fsck(8) has it, added up: 0 nothing is wrong, 1 what was wrong was \
                        mended, 4 something is wrong and stays so, 8 it could not be checked, 16 \
                        the command line is wrong. With -p, what snapshots alone have does not count.\n\
                        Repair leaves snapshots as they are: what they have ends when they are deleted.\n\
                        fsck(8) checks only what is named by a path that begins with a slash: fsck -t dendro /srv/home.img"
)]
pub(crate) struct CheckArgs {
    /// The image file or block device, also as UUID=… or LABEL=…
    pub(crate) target: PathBuf,
    /// Change nothing, which is so without -y and -p, too
    #[arg(short = 'n', conflicts_with = "yes")]
    pub(crate) no_changes: bool,
    /// Mend what can be mended; how it was before stays as a snapshot
    #[arg(short = 'y')]
    pub(crate) yes: bool,
    /// At boot: only say how it was left; with -f, mend what takes no decision
    #[arg(short = 'p', short_alias = 'a')]
    pub(crate) preen: bool,
    /// Check it however it was left
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Read the contents of all files, too
    #[arg(short, long)]
    pub(crate) data: bool,
    /// Print what is found as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// What fsck(8) passes on, and people are used to
    #[arg(short = 'r', hide = true)]
    pub(crate) interactive: bool,
    #[arg(short = 'v', hide = true)]
    pub(crate) verbose: bool,
    /// Tell progress at this descriptor, a line each: pass, how much is done, how much there is,
    /// and the device; 0, which is so without a descriptor, shows a bar on the terminal
    #[arg(short = 'C', num_args = 0..=1, default_missing_value = "0", value_name = "FD",
          value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) progress: Option<i32>,
    /// The memory that it may take, as 200M; without it, a quarter of the machine's. A million
    /// files take 40M in memory, and else in a temporary file ($TMPDIR, or /tmp)
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) memory: Option<u64>,
}

/// Makes a `-C` of `dendro check` that no number follows a `-C 0`: what follows it is the target.
pub(super) fn complete(arguments: &mut [OsString]) {
    let verb = arguments.iter().skip(1).find(|argument| !argument.as_bytes().starts_with(b"-"));
    if verb.is_none_or(|verb| verb != "check") {
        return;
    }
    let is_number = |text: &OsString| text.to_str().is_some_and(|text| text.parse::<i32>().is_ok());
    for at in 0..arguments.len() {
        if arguments[at] == "-C" && !arguments.get(at + 1).is_some_and(is_number) {
            arguments[at] = "-C0".into();
        }
    }
}

/// The least memory with which a check, a rebuild or a scrub works.
const MIN_MEMORY_BYTES: u64 = 8 << 20;

pub(super) fn memory(text: &str) -> Result<u64, String> {
    match text::parse_size(text)? {
        bytes if bytes < MIN_MEMORY_BYTES => {
            Err(format!("it takes {} at least", text::size(MIN_MEMORY_BYTES)))
        }
        bytes => Ok(bytes),
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 nothing had to be rebuilt, 1 rebuilt without loss, 4 something is lost, \
                        or with -n would be changed, 8 it could not be rebuilt, 2 the command line is wrong."
)]
pub(crate) struct RebuildArgs {
    /// The image file or block device, also as UUID=… or LABEL=…
    pub(crate) target: PathBuf,
    /// Leave the volume as it is: rebuild a copy in this new file, or copy all files into this
    /// directory; then IMAGE@NAME and IMAGE:BRANCH name a version
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) to: Option<PathBuf>,
    /// Change nothing; say what would be done
    #[arg(short = 'n')]
    pub(crate) no_changes: bool,
    /// The memory that it may take, as 200M; without it, a quarter of the machine's. If what is
    /// left of the volume takes more, nothing is changed
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) memory: Option<u64>,
    /// Print what was done as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Letters and digits of names are replaced, the same by the same; sizes, modes, owners, \
                        times and ACLs stay. The copy is sparse: cp --sparse=always, tar -S or xz keep it small.\n\
                        Exit status: 0 copied, 4 copied, and something in the volume is damaged, 1 it could \
                        not be copied, 2 the command line is wrong."
)]
pub(crate) struct ImageArgs {
    /// The image file or block device, also as UUID=… or LABEL=…
    pub(crate) source: PathBuf,
    /// The file to be made
    pub(crate) to: PathBuf,
    /// Copy the metadata alone: no contents of files, and no names
    #[arg(long, required = true)]
    pub(crate) metadata: bool,
    /// Read the contents of files, so that the copy has the same damage there
    #[arg(short, long)]
    pub(crate) data: bool,
    /// Print what was copied as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
