//! The volume's description: label, hash key and feature flags.

use dendro_disk::{Aru, ClientKind, LogicalDisk, View};
use zerocopy::IntoBytes;

use super::format::{
    HEAD_INDEX, HIDDEN_NAMES, LISTS, PUNCHED_RANGES, VOLUME_LIST, VOLUME_MAGIC, VolumeV1,
    split_bytes, split_head,
};
use super::names::NameHasher;
use crate::error::{FsError, Result};
use crate::types::FileTime;

/// What the volume's description contains.
pub(crate) struct Volume {
    label: String,
    hasher: NameHasher,
}

impl Volume {
    /// Reads the description. `is_written` says whether the caller will change the file system, for
    /// which it must know more features than a reader.
    pub(crate) fn read(disk: &dyn LogicalDisk, view: View, is_written: bool) -> Result<Self> {
        check_kind(disk, view)?;
        let record = disk
            .record(view, VOLUME_LIST, HEAD_INDEX)?
            .ok_or_else(|| FsError::Corrupted("the disk has no file system".into()))?;
        let (head, _) = split_head::<VolumeV1>(&record, "the volume's description")?;
        if head.magic != VOLUME_MAGIC || head.version.get() != 1 {
            return Err(FsError::Corrupted("not a file system that is known here".into()));
        }
        if head.incompatible.get() & LISTS != 0 {
            return Err(FsError::NoFiles(ClientKind::Application));
        }
        let read_only = head.read_only_compatible.get();
        let is_hidden = read_only & HIDDEN_NAMES != 0;
        if is_hidden && is_written {
            return Err(FsError::NotSupported("a copy with hidden names can be read only"));
        }
        let unknown = head.incompatible.get() & !PUNCHED_RANGES;
        if unknown | if is_written { read_only } else { 0 } != 0 {
            return Err(FsError::NotSupported("features of a later version"));
        }
        let header_len = usize::from(head.header_len.get()).max(size_of::<VolumeV1>());
        let (_, rest) = split_bytes(&record, header_len, "the volume's description")?;
        let (label, _) = split_bytes(rest, usize::from(head.label_len.get()), "the label")?;
        Ok(Self {
            label: String::from_utf8_lossy(label).into_owned(),
            hasher: match is_hidden {
                true => NameHasher::of_hidden_names(),
                false => NameHasher::new(&head.hash_key),
            },
        })
    }

    /// The volume's label.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// The hash of names on this volume.
    pub(crate) const fn hasher(&self) -> NameHasher {
        self.hasher
    }
}

/// Checks that `view` is not of a client of another kind, whose lists may have anything.
///
/// # Errors
/// [`FsError::NoFiles`].
pub(crate) fn check_kind(disk: &dyn LogicalDisk, view: View) -> Result<()> {
    match disk.client_kind(view).unwrap_or(ClientKind::Files) {
        ClientKind::Files => Ok(()),
        other => Err(FsError::NoFiles(other)),
    }
}

/// What is in `view`: as its client says, or for the client that the disk was made for the
/// description there.
///
/// # Errors
/// [`FsError::Corrupted`] if there is none; errors of the disk.
pub fn contents_of(disk: &dyn LogicalDisk, view: View) -> Result<ClientKind> {
    match (disk.client_kind(view), Volume::read(disk, view, false)) {
        (Some(kind), _) | (None, Err(FsError::NoFiles(kind))) => Ok(kind),
        (None, Ok(_) | Err(FsError::NotSupported(_))) => Ok(ClientKind::Files),
        (None, Err(error)) => Err(error),
    }
}

/// Sets the feature [`PUNCHED_RANGES`] in `aru`, if it is not set yet.
///
/// # Errors
/// As reading the description.
pub(crate) fn set_punched_ranges(
    disk: &dyn LogicalDisk,
    view: View,
    aru: &mut Aru<'_>,
) -> Result<()> {
    let record = disk
        .record(view, VOLUME_LIST, HEAD_INDEX)?
        .ok_or_else(|| FsError::Corrupted("the disk has no file system".into()))?;
    let changed = with_punched_ranges(&record)?;
    if *changed != *record {
        aru.put_record(VOLUME_LIST, HEAD_INDEX, changed);
    }
    Ok(())
}

/// The record of a description with the feature [`PUNCHED_RANGES`].
///
/// # Errors
/// [`FsError::Corrupted`] if it is too short.
pub(crate) fn with_punched_ranges(record: &[u8]) -> Result<Vec<u8>> {
    let (head, rest) = split_head::<VolumeV1>(record, "the volume's description")?;
    let mut head = *head;
    head.incompatible = (head.incompatible.get() | PUNCHED_RANGES).into();
    Ok([head.as_bytes(), rest].concat())
}

/// The record of a new volume's description, with incompatible `features`.
pub(crate) fn encode(label: &str, hash_key: [u8; 16], created: FileTime, features: u32) -> Vec<u8> {
    let head = VolumeV1 {
        magic: VOLUME_MAGIC,
        version: 1.into(),
        header_len: (size_of::<VolumeV1>() as u16).into(),
        compatible: 0.into(),
        read_only_compatible: 0.into(),
        incompatible: features.into(),
        hash_key,
        created_secs: created.secs.into(),
        created_nanos: created.nanos.into(),
        label_len: (label.len() as u16).into(),
        reserved: [0; 10],
    };
    let mut record = head.as_bytes().to_vec();
    record.extend_from_slice(label.as_bytes());
    record
}
