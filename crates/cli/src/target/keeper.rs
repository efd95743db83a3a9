//! The volume, the version and the file that an argument names, and who carries out requests about
//! them.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use dendro_control::cleaning::Segments;
use dendro_control::versions::{UsageInfo, VersionName, VersionsReply, VersionsRequest, path_text};
use dendro_control::{SpaceInfo, ViewInfo};
use dendro_daemon::{local_time, mounts};
use dendro_versions::name;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::find::{self, Served, Target};
use super::identity;
use crate::failure::{Failure, usage};
use crate::offline;

/// Who carries out requests about a volume.
#[derive(Debug)]
pub(crate) enum Keeper {
    /// The daemon that has the volume mounted.
    Daemon(Box<Served>),
    /// This process, for an unmounted image file or device.
    Offline(PathBuf),
}

/// A volume, and one of its versions.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) keeper: Keeper,
    pub(crate) version: VersionName,
    /// The path by which the volume was named.
    pub(crate) path: PathBuf,
}

/// Finds the version that `text` names; see [`name::parse_target`].
pub(crate) fn find_version(text: &str) -> Result<Place, Failure> {
    // The file system gets no more requests than a look-up takes, and none if it does not answer;
    // `find` reports that.
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let table = mounts::read()?;
    let exists = |path: &Path| {
        find::check_path(&table, path).is_ok() && statx(CWD, path, flags, StatxFlags::TYPE).is_ok()
    };
    let parsed = name::parse_target(text, &local_time::now()?, &exists).map_err(usage)?;
    Ok(Place { keeper: keeper(&parsed.path)?, version: parsed.version, path: parsed.path })
}

pub(super) fn keeper(path: &Path) -> Result<Keeper, Failure> {
    Ok(match find::find_open(path)? {
        Target::Mounted(served) => Keeper::Daemon(served),
        Target::Unmounted(source) => Keeper::Offline(source),
    })
}

impl Keeper {
    /// Who carries out requests about the volume on `source`.
    pub(crate) fn of(source: &Path) -> Result<Self, Failure> {
        keeper(source)
    }

    /// The name in messages.
    fn name(&self) -> String {
        match self {
            Self::Daemon(served) => served.place().to_owned(),
            Self::Offline(source) => source.display().to_string(),
        }
    }

    /// Carries out `request`.
    pub(crate) fn ask(&self, request: VersionsRequest) -> Result<VersionsReply, Failure> {
        let fail = |why: String| Failure::new(format_args!("{}: {why}", self.name()));
        match self {
            Self::Daemon(served) => {
                if request.sees_files() {
                    flush_kernel(served);
                }
                let answer = served.client.versions(served.device(), request);
                answer.map_err(|error| fail(error.to_string()))
            }
            Self::Offline(source) => offline::versions(source, &request),
        }
    }

    /// The image file or block device.
    pub(crate) fn source(&self) -> String {
        match self {
            Self::Daemon(served) => served.pong.source.clone(),
            Self::Offline(source) => source.display().to_string(),
        }
    }

    /// The UUID of the volume.
    pub(crate) fn uuid(&self) -> Result<String, Failure> {
        match self {
            Self::Daemon(served) => Ok(served.pong.uuid.clone()),
            Self::Offline(source) => Ok(offline::info(source)?.uuid),
        }
    }

    /// The segments of the volume.
    pub(crate) fn segments(&self) -> Result<Segments, Failure> {
        match self {
            Self::Daemon(served) => Ok(served.client.all_segments()?),
            Self::Offline(source) => offline::segments(source),
        }
    }

    /// How the volume's bytes are used.
    pub(crate) fn space(&self) -> Result<SpaceInfo, Failure> {
        match self {
            Self::Daemon(served) => Ok(served.client.info()?.space),
            Self::Offline(source) => Ok(offline::info(source)?.space),
        }
    }
}

/// Has the kernel write what it still holds of programs' writes to the daemon, so that a version
/// made now contains it. If that fails, the volume is read-only, or its daemon reports the failure.
pub(crate) fn flush_kernel(served: &Served) {
    let here = mounts::namespace();
    for view in &served.pong.views {
        let can_change = view.epoch.is_none() && view.read_only.is_none();
        if !can_change || view.namespace != here {
            continue;
        }
        if let Ok(root) = File::open(&view.mount_point) {
            let _ = rustix::fs::syncfs(&root);
        }
    }
}

/// A file in a volume; it need not exist.
#[derive(Debug)]
pub(crate) struct FilePlace {
    pub(crate) keeper: Keeper,
    pub(crate) version: VersionName,
    /// The path from the root of the volume, as requests have it.
    pub(crate) path: String,
    /// The path in the mount; `None` if the volume is not mounted.
    pub(crate) mounted_path: Option<PathBuf>,
    named: Named,
}

/// How paths are given.
#[derive(Debug)]
enum Named {
    /// As paths in a mount, which has this mount point and shows this directory.
    InMount(String, PathBuf),
    /// From the volume's root, which may be mounted here.
    FromRoot(Option<PathBuf>),
}

impl Named {
    /// The path in the volume, and the path in its mount.
    fn find(&self, path: &Path) -> Result<(String, Option<PathBuf>), Failure> {
        match self {
            Self::InMount(mount_point, root) => {
                let (_, full) = full_path(path)?;
                Ok((inside(&full, mount_point, root)?, Some(full)))
            }
            Self::FromRoot(root) => {
                let below = path.strip_prefix("/").unwrap_or(path);
                let mounted = root.as_deref().map(|root| root.join(below));
                Ok((path_text(path.as_os_str().as_bytes()), mounted))
            }
        }
    }
}

/// Finds the volume that `text` names; a version is an error.
pub(crate) fn find_whole(text: &str) -> Result<Keeper, Failure> {
    let Place { keeper, version, path } = find_version(text)?;
    if version != VersionName::default() {
        return Err(usage(format_args!(
            "{text}: this is about the whole volume: name {}, without a version",
            path.display()
        )));
    }
    Ok(keeper)
}

/// Finds the file `path`: in the volume `volume`, or without one in the mount that it lies in.
pub(crate) fn find_file(path: &Path, volume: Option<&str>) -> Result<FilePlace, Failure> {
    let (keeper, version, named) = match volume {
        Some(volume) => {
            let Place { keeper, version, .. } = find_version(volume)?;
            let root = match &keeper {
                Keeper::Daemon(served) => mounted_root(served).map(PathBuf::from),
                Keeper::Offline(_) => None,
            };
            (keeper, version, Named::FromRoot(root))
        }
        None => {
            let (existing, _) = full_path(path)?;
            let served = find_mount_of(path, &existing)?;
            let root = mounts::root_at(Path::new(served.place()));
            let named = Named::InMount(served.place().to_owned(), root);
            (Keeper::Daemon(Box::new(served)), VersionName::default(), named)
        }
    };
    let (path, mounted_path) = named.find(path)?;
    Ok(FilePlace { keeper, version, path, mounted_path, named })
}

/// The mount that `path` lies in; `existing` is the part of `path` that exists.
fn find_mount_of(path: &Path, existing: &Path) -> Result<Served, Failure> {
    let named = path.display();
    let looked_for = || match find::find(path) {
        // An image or a device holds files, but is none of them.
        Ok(Target::Mounted(served)) if served.view.is_none() => Some(format!(
            "{named}: is the volume itself; name a path below {}, where it is mounted, or, from \
             the root of the volume, --volume {named} /PATH",
            served.place()
        )),
        Ok(Target::Unmounted(source))
            if identity::of(&source).is_ok_and(|found| found.is_some()) =>
        {
            Some(format!(
                "{named}: is the volume itself; name a path in it: --volume {named} /PATH"
            ))
        }
        _ => None,
    };
    if let Some(why) = looked_for() {
        return Err(usage(why));
    }
    let is_ours =
        mounts::containing(&mounts::read()?, existing).is_some_and(mounts::MountEntry::is_dendro);
    match is_ours {
        true => find::find_mounted(existing),
        false => Err(Failure::new(format_args!(
            "{named}: lies in no dendrofs mount; of a volume that is not mounted, name it from the \
             root of the volume: --volume IMAGE /PATH"
        ))),
    }
}

impl FilePlace {
    /// Another path, given in the same way: its path in the volume, and in its mount.
    pub(crate) fn find_beside(&self, path: &Path) -> Result<(String, Option<PathBuf>), Failure> {
        self.named.find(path)
    }
}

/// `path` with symbolic links resolved except for the last name, and its deepest part that exists.
fn full_path(path: &Path) -> Result<(PathBuf, PathBuf), Failure> {
    find::check_path(&mounts::read()?, path)?;
    let absolute = std::path::absolute(path)?;
    if absolute.components().any(|part| part == Component::ParentDir) {
        return Err(usage(format_args!("{}: name it without ..", path.display())));
    }
    let names: Vec<_> = absolute.components().collect();
    // The last name is taken literally, even if it is a link now.
    for count in (1..names.len().max(2)).rev() {
        let existing: PathBuf = names[..count.min(names.len())].iter().collect();
        let Ok(canonical) = existing.canonicalize() else { continue };
        let full = canonical.join(names[count.min(names.len())..].iter().collect::<PathBuf>());
        // The root of a mount is itself the last name.
        let own = full.canonicalize().ok().filter(|own| *own == full && full.is_dir());
        return Ok((own.unwrap_or(canonical), full));
    }
    Err(usage(format_args!("{}: nothing of it is there", path.display())))
}

/// The mount in which requests about files look: the mount that was named, or one of the main
/// branch's head if the image or device was named.
fn mounted_root(served: &Served) -> Option<&str> {
    if let Some(view) = &served.view {
        return Some(&view.mount_point);
    }
    let here = mounts::namespace();
    let main = served
        .client
        .info()
        .ok()?
        .mount?
        .views
        .into_iter()
        .find(|view| view.is_main && view.epoch.is_none() && view.namespace == here)?;
    let same = |view: &&ViewInfo| view.device == main.device;
    served.pong.views.iter().find(same).map(|view| &*view.mount_point)
}

/// The part of `full` below the mount point, which shows the directory `root`.
fn inside(full: &Path, mount_point: &str, root: &Path) -> Result<String, Failure> {
    let below = full.strip_prefix(mount_point).map_err(|_| {
        usage(format_args!(
            "{}: the volume is mounted on {mount_point}; name the path below that",
            full.display(),
        ))
    })?;
    let path = if below.as_os_str().is_empty() { root.to_path_buf() } else { root.join(below) };
    Ok(path_text(path.as_os_str().as_bytes()))
}

/// Asks whoever has the volume on `target`, or the volume itself.
pub(crate) fn ask(target: &Path, request: VersionsRequest) -> Result<VersionsReply, Failure> {
    keeper(target)?.ask(request)
}

/// What each version of the volume on `target` takes. Goes through the whole map.
pub(crate) fn usage_of_versions(target: &Path) -> Result<Vec<UsageInfo>, Failure> {
    match ask(target, VersionsRequest::Usage)? {
        VersionsReply::Usage(versions) => Ok(versions),
        other => Err(unexpected(&other)),
    }
}

/// An answer to another question than was asked.
pub(crate) fn unexpected(reply: &VersionsReply) -> Failure {
    Failure::new(format_args!("an answer to another question: {reply:?}"))
}
