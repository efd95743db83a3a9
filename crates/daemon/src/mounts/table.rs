//! The kernel's table of mounts.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use dendro_control::versions::VersionName;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::failure::Failure;

const TABLE: &str = "/proc/self/mountinfo";

/// The types of our mounts: plain ones, and those of block devices.
const FS_TYPES: [&str; 2] = ["fuse.dendro", "fuseblk.dendro"];

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// The number of the mount, which the kernel reuses after its end.
    pub id: u64,
    /// The device number of the mounted file system, the same for all its mounts.
    pub device: (u32, u32),
    /// The mount point.
    pub mount_point: PathBuf,
    /// The directory of the file system that the mount shows.
    pub root: PathBuf,
    /// The type of the file system.
    pub fs_type: String,
    /// The source, as the table has it.
    pub source: OsString,
    /// The user who mounted it, or for whom it was mounted; `None`: the file system does not say.
    pub user: Option<u32>,
}

impl MountEntry {
    /// The device number, as the table has it.
    pub fn device_text(&self) -> String {
        format!("{}:{}", self.device.0, self.device.1)
    }

    /// Whether it is a dendrofs mount of a block device, which it has claimed.
    pub fn is_fuseblk(&self) -> bool {
        self.fs_type == FS_TYPES[1]
    }

    /// The image file or block device: the source without the version that may follow
    /// ([`source_name`]).
    pub fn volume(&self) -> PathBuf {
        let source = PathBuf::from(&self.source);
        let Some(text) = self.source.to_str().filter(|_| !exists(&source)) else { return source };
        let cuts = text.match_indices(['@', ':']).map(|(at, _)| PathBuf::from(&text[..at]));
        cuts.rev().find(|path| exists(path)).unwrap_or(source)
    }

    /// Whether its source names a version of `volume` ([`source_name`]).
    pub fn is_named_after(&self, volume: &Path) -> bool {
        let rest = self.source.as_bytes().strip_prefix(volume.as_os_str().as_bytes());
        rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'@' | b':')))
    }

    /// Whether it is a dendrofs mount.
    pub fn is_dendro(&self) -> bool {
        FS_TYPES.contains(&self.fs_type.as_str())
    }
}

/// Whether there is such a file. The file system that holds it gets no more requests than a look-up
/// takes, since it may not answer.
fn exists(path: &Path) -> bool {
    statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).is_ok()
}

/// The source of a mount in the table: the image or device, and the version unless it is the main
/// branch's head.
pub fn source_name(volume: &Path, version: &VersionName) -> String {
    let branch = version.branch.iter().map(|branch| format!(":{branch}"));
    let moment = version.moment.iter().map(|moment| format!("@{}", moment.text));
    branch.chain(moment).fold(volume.display().to_string(), |text, more| text + &more)
}

/// The mount namespace of this process; empty if it is unknown.
pub fn namespace() -> String {
    let link = fs::read_link("/proc/self/ns/mnt");
    link.map(|link| link.display().to_string()).unwrap_or_default()
}

/// The directory that the mount on `mount_point` shows, as a path from the root of its file system.
pub fn root_at(mount_point: &Path) -> PathBuf {
    let table = read().unwrap_or_default();
    let topmost = table.iter().rev().find(|entry| entry.mount_point == mount_point);
    topmost.map_or_else(|| "/".into(), |entry| entry.root.clone())
}

/// All mounts that this process sees, the oldest first.
pub fn read() -> Result<Vec<MountEntry>, Failure> {
    let bytes = fs::read(TABLE).map_err(|error| Failure::new(format_args!("{TABLE}: {error}")))?;
    Ok(parse(&bytes))
}

fn parse(bytes: &[u8]) -> Vec<MountEntry> {
    bytes.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

/// Parses a line: id, parent, device, root, mount point, options, tags …, `-`, type, source,
/// options (proc(5)).
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?;
    let device = std::str::from_utf8(fields.nth(1)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let root = PathBuf::from(unescape(fields.next()?));
    let mount_point = PathBuf::from(unescape(fields.next()?));
    let mut fields = fields.skip_while(|&field| field != b"-").skip(1);
    Some(MountEntry {
        id: id.parse().ok()?,
        device: (major.parse().ok()?, minor.parse().ok()?),
        mount_point,
        root,
        fs_type: String::from_utf8_lossy(fields.next()?).into_owned(),
        source: unescape(fields.next()?),
        user: fields.next().and_then(user_of),
    })
}

/// The user that the options of a FUSE file system name.
fn user_of(options: &[u8]) -> Option<u32> {
    let mut options = options.split(|&byte| byte == b',');
    let user = options.find_map(|option| option.strip_prefix(b"user_id="))?;
    std::str::from_utf8(user).ok()?.parse().ok()
}

/// Replaces the kernel's `\040` and other escapes.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| first == b'\\').and_then(|digits| {
            digits.iter().try_fold(0u32, |sum, digit| {
                digit.checked_sub(b'0').filter(|&digit| digit < 8).map(|d| sum * 8 + u32::from(d))
            })
        });
        match octal.and_then(|octal| u8::try_from(octal).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use dendro_control::versions::Moment;

    use super::*;

    #[test]
    fn lines_with_tags_and_escapes_are_read() {
        let table = parse(
            b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:7 - ext3 /dev/root rw\n\
              99 35 0:51 / /mnt/a\\040b rw - fuse.dendro /images/x\\134y rw,user_id=1000\n\
              nonsense\n",
        );
        assert_eq!(table.len(), 2);
        assert_eq!((table[0].id, table[0].device), (36, (98, 0)));
        assert_eq!(table[0].fs_type, "ext3");
        assert_eq!((table[0].user, table[1].user), (None, Some(1000)));
        assert!(!table[0].is_dendro() && table[1].is_dendro());
        assert_eq!(table[1].mount_point, PathBuf::from("/mnt/a b"));
        assert_eq!(table[1].source, "/images/x\\y");
        assert_eq!((&*table[0].root, &*table[1].root), (Path::new("/mnt1"), Path::new("/")));
    }

    #[test]
    fn the_volume_is_found_in_front_of_the_version() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("a:b@c");
        fs::write(&image, "").unwrap();
        let version = |branch: Option<&str>, moment: Option<&str>| VersionName {
            branch: branch.map(str::to_owned),
            moment: moment.map(|text| Moment { text: text.into(), unix_ns: None }),
        };
        for (branch, moment, behind) in [
            (None, None, ""),
            (Some("x"), None, ":x"),
            (None, Some("2026-11-24T10:00"), "@2026-11-24T10:00"),
            (Some("x"), Some("y"), ":x@y"),
        ] {
            let source = source_name(&image, &version(branch, moment));
            assert_eq!(source, format!("{}{behind}", image.display()));
            let line = format!("99 35 0:51 / /mnt rw - fuse.dendro {source} rw");
            assert_eq!(parse(line.as_bytes())[0].volume(), image);
        }
    }
}
