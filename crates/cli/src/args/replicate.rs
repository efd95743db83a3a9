//! The arguments of `dendro replicate`.

use std::time::Duration;

use clap::Args;
use dendro_daemon::text;
use dendro_versions::Retention;

#[derive(Debug, Args)]
#[command(after_help = "\
It makes a snapshot of the source at each interval in which something changed, sends what is new in
it, and deletes the snapshots that it made before. STANDBY is a volume that was made with dendro
mkfs, mounted or not, on this machine or as HOST:PATH on another one, where dendro is called
through ssh. After an interruption it goes on with what the standby has. To use the standby, make a
branch of what was sent last, and that the main one: on its machine, dendro clone
STANDBY@replica-… BRANCH, and dendro promote STANDBY:BRANCH.")]
pub(crate) struct ReplicateArgs {
    /// The volume, or a branch of it as TARGET:BRANCH
    #[arg(value_name = "TARGET")]
    pub(crate) source: String,
    /// The volume that is kept like it: PATH or HOST:PATH
    #[arg(value_name = "STANDBY")]
    pub(crate) standby: String,
    /// How often, such as 10s or 5m
    #[arg(short, long, value_name = "PERIOD", default_value = "10s",
          value_parser = text::parse_interval)]
    pub(crate) every: Duration,
    /// Replicate once, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Which snapshots the standby keeps besides the last one, as -o retain has it: 1d:1h,30d:1d
    #[arg(short, long, value_name = "RULE")]
    pub(crate) keep: Option<Retention>,
    /// Compress what is sent with zstd, with a level from 1 to 19
    #[arg(short = 'z', long, value_name = "LEVEL", num_args = 0..=1, require_equals = true,
          default_missing_value = "3", value_parser = clap::value_parser!(u8).range(1..=19))]
    pub(crate) compress: Option<u8>,
    /// The command that runs others on HOST
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    pub(crate) rsh: String,
    /// The command on HOST
    #[arg(long, value_name = "COMMAND", default_value = "dendro")]
    pub(crate) remote_dendro: String,
    /// Print an object a line after each interval
    #[arg(long)]
    pub(crate) json: bool,
}
