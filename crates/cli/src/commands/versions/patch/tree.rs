//! The files of a version: in a mount that shows it, or in a volume that is not mounted.

use std::io::Read;
use std::path::{Path, PathBuf};

use dendro_control::ViewInfo;
use dendro_control::versions::{SnapshotInfo, VersionsReply, VersionsRequest, ViewName, path_text};
use dendro_daemon::mounts;
use dendro_fs::{Attr, FileKind, FileSystem, FsError, Ino};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::failure::Failure;
use crate::offline;
use crate::target::{Keeper, Served};

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Symlink,
    Other,
}

/// The file at a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) kind: Kind,
    pub(super) is_executable: bool,
    pub(super) len_bytes: u64,
    pub(super) inode: u64,
    pub(super) links: u32,
}

/// All files of a version. Paths begin with a slash, from the root of the volume; the root is
/// empty.
pub(super) enum Tree {
    Mounted {
        root: OwnedFd,
        /// The directory of the volume that it shows.
        shown: Vec<u8>,
    },
    Unmounted(Box<FileSystem>),
}

/// Opens the tree of a version.
pub(super) fn open(keeper: &Keeper, version: ViewName) -> Result<Tree, Failure> {
    match keeper {
        Keeper::Offline(source) => {
            Ok(Tree::Unmounted(Box::new(offline::open_view(source, version)?)))
        }
        Keeper::Daemon(served) => {
            let (place, shown) = find(served, version)?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let root = rustix::fs::open(&place, flags, Mode::empty())
                .map_err(|error| Failure::new(format_args!("{}: {error}", place.display())))?;
            Ok(Tree::Mounted { root, shown: shown_as(&shown) })
        }
    }
}

/// Where a version can be read: in a mount of it, or below `.dendro` in the mount of a head; and
/// the directory of the volume that is shown there.
fn find(served: &Served, version: ViewName) -> Result<(PathBuf, PathBuf), Failure> {
    let here = mounts::namespace();
    let is_here = |view: &&ViewInfo| view.namespace == here;
    let views: Vec<&ViewInfo> = served.pong.views.iter().filter(is_here).collect();
    let shows = |view: &&&ViewInfo| (view.branch, view.epoch) == (version.branch, version.epoch);
    if let Some(view) = views.iter().find(shows) {
        let place = PathBuf::from(&view.mount_point);
        let shown = mounts::root_at(&place);
        return Ok((place, shown));
    }
    let request = VersionsRequest::List;
    let VersionsReply::List(list) = Keeper::Daemon(Box::new(served.clone())).ask(request)? else {
        return Err(Failure::new("the daemon did not tell which versions there are"));
    };
    let is_it = |of: &&SnapshotInfo| (of.branch, Some(of.epoch)) == (version.branch, version.epoch);
    let snapshot = list.snapshots.iter().find(is_it);
    let of_head = |view: &&&ViewInfo| {
        view.epoch.is_none() && mounts::root_at(Path::new(&view.mount_point)) == Path::new("/")
    };
    let below = |view: &&ViewInfo| {
        let hidden = Path::new(&view.mount_point).join(".dendro");
        let snapshot = snapshot?;
        let time = || jiff::Timestamp::from_nanosecond(i128::from(snapshot.created_unix_ns)).ok();
        let place = match &snapshot.name {
            Some(name) => hidden.join("snapshots").join(name),
            None => hidden.join("at").join(time()?.to_string()),
        };
        place.is_dir().then_some(place)
    };
    let found = views.iter().filter(of_head).find_map(below);
    found.map(|place| (place, "/".into())).ok_or_else(|| {
        let branch = list.branches.iter().find(|branch| branch.branch == version.branch);
        let name = |snapshot: &SnapshotInfo| {
            format!("@{}", snapshot.name.clone().unwrap_or_else(|| snapshot.epoch.to_string()))
        };
        let what = match (snapshot, branch) {
            (Some(snapshot), _) => name(snapshot),
            (None, Some(branch)) => format!(":{}", branch.name),
            (None, None) => "one of the versions".into(),
        };
        Failure::new(format_args!(
            "{}: {what} is mounted nowhere, and no mount of the volume shows it below .dendro; mount it \
             to have its files",
            served.place()
        ))
    })
}

impl Tree {
    /// The directory of the volume that it shows; other files are not accessible.
    pub(super) fn shown(&self) -> &[u8] {
        match self {
            Self::Mounted { shown, .. } => shown,
            Self::Unmounted(_) => b"",
        }
    }

    /// The file at `path`; links are not followed.
    pub(super) fn look(&self, path: &[u8]) -> Result<Option<Found>, Failure> {
        let fail = |why: &dyn std::fmt::Display| fail(path, why);
        match self {
            Self::Mounted { .. } => {
                let Some(fd) = self.open_path(path, OFlags::PATH)? else { return Ok(None) };
                let flags = AtFlags::EMPTY_PATH;
                let stat = rustix::fs::statat(&fd, "", flags).map_err(|error| fail(&error))?;
                Ok(Some(Found {
                    kind: match FileType::from_raw_mode(stat.st_mode) {
                        FileType::RegularFile => Kind::File,
                        FileType::Directory => Kind::Directory,
                        FileType::Symlink => Kind::Symlink,
                        _ => Kind::Other,
                    },
                    is_executable: stat.st_mode & 0o100 != 0,
                    len_bytes: u64::try_from(stat.st_size).unwrap_or(0),
                    inode: stat.st_ino,
                    links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
                }))
            }
            Self::Unmounted(fs) => {
                let attr = follow(fs, path).map_err(|error| fail(&error))?;
                Ok(attr.map(|attr| Found {
                    kind: match attr.kind {
                        FileKind::Regular => Kind::File,
                        FileKind::Directory => Kind::Directory,
                        FileKind::Symlink => Kind::Symlink,
                        _ => Kind::Other,
                    },
                    is_executable: attr.perm & 0o100 != 0,
                    len_bytes: attr.size_bytes,
                    inode: attr.ino.0,
                    links: attr.nlink,
                }))
            }
        }
    }

    /// The content of a file, or the target of a symbolic link.
    pub(super) fn content(&self, path: &[u8], found: &Found) -> Result<Vec<u8>, Failure> {
        let fail = |why: &dyn std::fmt::Display| fail(path, why);
        let gone = || fail(&"has gone while it was read");
        match (self, found.kind) {
            (Self::Mounted { .. }, Kind::Symlink) => {
                let fd = self.open_path(path, OFlags::PATH)?.ok_or_else(gone)?;
                let target = rustix::fs::readlinkat(fd, "", Vec::new());
                target.map(|target| target.into_bytes()).map_err(|error| fail(&error))
            }
            (Self::Mounted { .. }, _) => {
                let fd = self.open_path(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
                let mut content = Vec::new();
                let mut file = std::fs::File::from(fd.ok_or_else(gone)?);
                file.read_to_end(&mut content).map_err(|error| fail(&error))?;
                Ok(content)
            }
            (Self::Unmounted(fs), Kind::Symlink) => {
                fs.readlink(Ino(found.inode)).map_err(|error| fail(&error))
            }
            (Self::Unmounted(fs), _) => {
                let mut content = vec![0; usize::try_from(found.len_bytes).unwrap_or(0)];
                let mut done = 0;
                while done < content.len() {
                    let read = fs.read(Ino(found.inode), done as u64, &mut content[done..]);
                    match read.map_err(|error| fail(&error))? {
                        0 => return Err(fail(&"is shorter than it says")),
                        count => done += count,
                    }
                }
                Ok(content)
            }
        }
    }

    /// The names in a directory; none if it is not there.
    pub(super) fn names(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let fail = |why: &dyn std::fmt::Display| fail(path, why);
        let mut names = Vec::new();
        let mut keep = |name: &[u8]| {
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        };
        match self {
            Self::Mounted { .. } => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let Some(fd) = self.open_path(path, flags)? else { return Ok(names) };
                for entry in rustix::fs::Dir::new(fd).map_err(|error| fail(&error))? {
                    keep(entry.map_err(|error| fail(&error))?.file_name().to_bytes());
                }
            }
            Self::Unmounted(fs) => {
                let Some(attr) = follow(fs, path).map_err(|error| fail(&error))? else {
                    return Ok(names);
                };
                let listed = fs.readdir(attr.ino, 0, &mut |entry| {
                    keep(entry.name);
                    true
                });
                listed.map_err(|error| fail(&error))?;
            }
        }
        Ok(names)
    }

    /// Opens the file at `path` in a mount. Links in directories are not followed, and other mounts
    /// are not entered.
    fn open_path(&self, path: &[u8], flags: OFlags) -> Result<Option<OwnedFd>, Failure> {
        let Self::Mounted { root, shown } = self else { return Ok(None) };
        let below = path.strip_prefix(&shown[..]).unwrap_or(path);
        let below = below.strip_prefix(b"/").unwrap_or(below);
        let below: &[u8] = if below.is_empty() { b"." } else { below };
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        match rustix::fs::openat2(root, below, flags, Mode::empty(), how) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(None),
            Err(error) => Err(fail(path, &error)),
        }
    }
}

/// The attributes of the file at `path` in a file system.
fn follow(fs: &FileSystem, path: &[u8]) -> Result<Option<Attr>, FsError> {
    let mut attr = fs.getattr(Ino::ROOT)?;
    for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        if attr.kind != FileKind::Directory {
            return Ok(None);
        }
        attr = match fs.lookup(attr.ino, name) {
            Ok(found) => found,
            Err(FsError::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
    }
    Ok(Some(attr))
}

fn fail(path: &[u8], why: &dyn std::fmt::Display) -> Failure {
    let path = if path.is_empty() { "/".into() } else { path_text(path) };
    Failure::new(format_args!("{path}: {why}"))
}

/// A directory of a volume, in the form that is used here.
fn shown_as(root: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = root.as_os_str().as_bytes();
    bytes.strip_suffix(b"/").unwrap_or(bytes).to_vec()
}
