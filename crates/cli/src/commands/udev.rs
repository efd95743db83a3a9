//! `dendro udev`: the properties of a device for udev, in the form of its rules.
//!
//! libblkid sets the same properties for formats that it knows. This leaves the same characters
//! unescaped.

use std::path::Path;
use std::process::ExitCode;

use dendro_format::Superblock;

use crate::failure::{Failure, code};
use crate::output;
use crate::target::identity;

/// Characters that stay unescaped in a name in /dev, besides letters and digits.
const PLAIN: &str = "#+-.:=@_";
/// Characters that also stay unescaped in a property for users.
const PLAIN_FOR_PEOPLE: &str = "/$%?,";

/// Prints a property per line; nothing if the device holds something else.
pub(crate) fn run(device: &Path) -> Result<ExitCode, Failure> {
    let found = identity::of(device)
        .map_err(|error| Failure::new(format_args!("{}: {error}", device.display())))?;
    let Some(superblock) = found else {
        return Ok(ExitCode::from(code::FAILED));
    };
    output::print(&properties(&superblock))?;
    Ok(ExitCode::SUCCESS)
}

fn properties(superblock: &Superblock) -> String {
    let uuid = superblock.uuid.to_string();
    let version = format!(
        "{}.{}",
        dendro_format::superblock::MAJOR_VERSION,
        dendro_format::superblock::MINOR_VERSION
    );
    let mut lines = format!(
        "ID_FS_TYPE=dendro\nID_FS_USAGE=filesystem\nID_FS_VERSION={version}\n\
         ID_FS_UUID={uuid}\nID_FS_UUID_ENC={uuid}\n"
    );
    if !superblock.label.is_empty() {
        lines += &format!(
            "ID_FS_LABEL={}\nID_FS_LABEL_ENC={}\n",
            for_people(&superblock.label),
            for_dev(&superblock.label)
        );
    }
    lines
}

fn is_plain(one: char) -> bool {
    !one.is_ascii() || one.is_ascii_alphanumeric() || PLAIN.contains(one)
}

/// `text` with underscores instead of special characters.
fn for_people(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let plain = |one| is_plain(one) || PLAIN_FOR_PEOPLE.contains(one);
    words.join("_").chars().map(|one| if plain(one) { one } else { '_' }).collect()
}

/// `text` as a name in /dev/disk, with reversible escapes.
fn for_dev(text: &str) -> String {
    let one = |one: char| match is_plain(one) {
        true => one.to_string(),
        false => format!("\\x{:02x}", u32::from(one)),
    };
    text.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_as_libblkid_writes_them() {
        for (label, people, dev) in [
            ("home", "home", "home"),
            ("my disk", "my_disk", "my\\x20disk"),
            ("  a \t b ", "a_b", "\\x20\\x20a\\x20\\x09\\x20b\\x20"),
            ("a/b\\c", "a/b_c", "a\\x2fb\\x5cc"),
            ("50% $HOME", "50%_$HOME", "50\\x25\\x20\\x24HOME"),
            ("\"x'", "_x_", "\\x22x\\x27"),
            ("Bäume", "Bäume", "Bäume"),
        ] {
            assert_eq!(for_people(label), people);
            assert_eq!(for_dev(label), dev);
        }
    }
}
