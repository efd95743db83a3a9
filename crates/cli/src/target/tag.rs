//! `UUID=…` and `LABEL=…` instead of a device.
//!
//! mount(8) resolves these itself if udev has made its links. This module asks all block devices,
//! so it also works without udev, and for loop devices of images.

use std::io;
use std::path::{Path, PathBuf};

use dendro_base::Uuid;
use dendro_daemon::{holder, mounts};
use dendro_format::Superblock;
use dendro_set::roster_on;

use super::find;
use super::identity::{self, BlockDevice};
use crate::failure::Failure;

/// A tag that names a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tag {
    Uuid(Uuid),
    Label(String),
}

impl Tag {
    /// Parses `UUID=…` or `LABEL=…`; `None` for anything else.
    fn parse(source: &Path) -> Result<Option<Self>, String> {
        let Some((name, value)) = source.to_str().and_then(|text| text.split_once('=')) else {
            return Ok(None);
        };
        let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let value = quoted.unwrap_or(value);
        match name {
            "UUID" => match value.parse() {
                Ok(uuid) => Ok(Some(Self::Uuid(uuid))),
                Err(_) => Err(format!("\"{value}\" is no UUID")),
            },
            "LABEL" => Ok(Some(Self::Label(value.to_owned()))),
            _ => Ok(None),
        }
    }

    fn is_of(&self, superblock: &Superblock) -> bool {
        match self {
            Self::Uuid(uuid) => *uuid == superblock.uuid,
            Self::Label(label) => *label == superblock.label,
        }
    }
}

/// The device that `source` names by UUID or label; `source` itself if it is no tag. Refuses a
/// device in a mount whose daemon does not answer, because looking there would take forever.
pub(crate) fn resolve(source: &Path) -> Result<PathBuf, Failure> {
    let fail = |why: String| Failure::new(format_args!("{}: {why}", source.display()));
    find::check_path(&mounts::read()?, source)?;
    if source.exists() {
        return Ok(source.to_path_buf());
    }
    let Some(tag) = Tag::parse(source).map_err(fail)? else {
        return Ok(source.to_path_buf());
    };
    let devices = identity::block_devices()
        .map_err(|error| fail(format!("cannot look for it in /sys/class/block: {error}")))?;
    let mut unread = Vec::new();
    let mut found = Vec::new();
    for BlockDevice { path, .. } in devices.into_iter().filter(|of| !of.is_part_of_another) {
        match identity::of(&path) {
            Ok(Some(superblock)) if tag.is_of(&superblock) => found.push((path, superblock.uuid)),
            Ok(_) => {}
            // It has no name in /dev, as in a container.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => unread.push(path.display().to_string()),
        }
    }
    if let Some(path) = newest_of_set(&found) {
        return Ok(path);
    }
    let names =
        || -> Vec<String> { found.iter().map(|(path, _)| path.display().to_string()).collect() };
    match &found[..] {
        [] if unread.is_empty() => Err(fail("no block device holds this volume".into())),
        [] => Err(fail(format!(
            "no block device holds this volume, of those that can be read; {} cannot",
            unread.join(", ")
        ))),
        [(path, _)] => Ok(path.clone()),
        [(path, _), rest @ ..] if rest.iter().all(|(other, _)| is_same_image(path, other)) => {
            Ok(path.clone())
        }
        _ => Err(fail(format!(
            "{} all say that they are this; name the device, or its UUID",
            names().join(", ")
        ))),
    }
}

/// If all are devices of one volume, one that knows most of the others.
fn newest_of_set(found: &[(PathBuf, Uuid)]) -> Option<PathBuf> {
    let (_, uuid) = found.first()?;
    let generation = |path: &Path| Some(roster_on(path).filter(|it| it.set == *uuid)?.generation);
    let known: Option<Vec<_>> =
        found.iter().map(|(path, _)| Some((generation(path)?, path))).collect();
    known?.into_iter().max().map(|(_, path)| path.clone())
}

/// Whether both are loop devices of the same image.
fn is_same_image(one: &Path, other: &Path) -> bool {
    let behind = dendro_device::loop_backing_file;
    match (behind(one), behind(other)) {
        (Some(one), Some(other)) => holder::is_same_file(&one, &other),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_told_from_paths() {
        let parse = |text: &str| Tag::parse(Path::new(text));
        let uuid = "123e4567-e89b-42d3-a456-426614174000";
        let expected = Tag::Uuid(uuid.parse().unwrap());
        assert_eq!(parse(&format!("UUID={uuid}")), Ok(Some(expected.clone())));
        assert_eq!(parse(&format!("UUID=\"{uuid}\"")), Ok(Some(expected)));
        assert_eq!(parse("LABEL=my disk"), Ok(Some(Tag::Label("my disk".into()))));
        assert_eq!(parse("/srv/a=b.img"), Ok(None));
        assert_eq!(parse("home.img"), Ok(None));
        assert!(parse("UUID=home").unwrap_err().contains("\"home\""));
    }
}
