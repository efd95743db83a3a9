//! The arguments of `dendro resize`.

use std::path::PathBuf;

use clap::Args;
use dendro_control::resizing::ResizeTo;
use dendro_daemon::text;

#[derive(Debug, Args)]
#[command(after_help = "\
The volume goes on being used meanwhile if it is mounted. An image file becomes as long as the
volume; of a block device, which has to be that long, the volume takes the first part. What would lie
behind the new end of a smaller volume is moved first; whether it fits is said before. If that is
interrupted the volume keeps its size. After a power cut it has the old size or the new one. Devices
that hold the same become longer together. A volume that is spread over devices can be as large as
these have room for; what a device got since, it takes in. With --device an image file becomes longer.")]
pub(crate) struct ResizeArgs {
    /// An image file, a block device, a mount point or a path inside a mount
    pub(crate) target: PathBuf,
    /// The size, such as 10G; +SIZE: by so much more; max: as much as the file or devices have.
    /// Rounded down to whole segments
    #[arg(value_parser = parse)]
    pub(crate) size: ResizeTo,
    /// Make this device of a spread volume longer, an image file, if the devices lack room
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse(text: &str) -> Result<ResizeTo, String> {
    match (text, text.strip_prefix('+')) {
        ("max", _) => Ok(ResizeTo::Max),
        (_, Some(more)) => text::parse_size(more).map(ResizeTo::More),
        (size, None) => text::parse_size(size).map(ResizeTo::Bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_absolute_or_more_or_all() {
        assert_eq!(parse("max"), Ok(ResizeTo::Max));
        assert_eq!(parse("+1G"), Ok(ResizeTo::More(1 << 30)));
        assert_eq!(parse("1.5G"), Ok(ResizeTo::Bytes(3 << 29)));
        assert!(parse("+").is_err() && parse("-1G").is_err() && parse("maximum").is_err());
    }
}
