//! The volume that is meant, and paths in it.

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

/// Who carries out what is asked of a volume.
#[derive(Debug)]
pub(crate) enum Keeper {
    /// The daemon that has it mounted.
    Daemon(Box<Served>),
    /// This process, on an image file or device that nobody has mounted.
    Offline(PathBuf),
}

/// A volume, and one of its versions.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) keeper: Keeper,
    pub(crate) version: VersionName,
    /// How the volume was named.
    pub(crate) path: PathBuf,
}

/// Finds the volume that `text` names; see [`name::parse_target`].
pub(crate) fn find_version(text: &str) -> Result<Place, Failure> {
    // Without asking the file system more than it takes to find it, nor one that does not answer: that is
    // said where the volume is looked for.
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let table = mounts::read()?;
    let exists = |path: &Path| {
        find::check_way(&table, path).is_ok() && statx(CWD, path, flags, StatxFlags::TYPE).is_ok()
    };
    let parsed = name::parse_target(text, &local_time::now()?, &exists).map_err(usage)?;
    Ok(Place { keeper: keeper(&parsed.path)?, version: parsed.version, path: parsed.path })
}

pub(super) fn keeper(path: &Path) -> Result<Keeper, Failure> {
    Ok(match find::find(path)? {
        Target::Mounted(served) => Keeper::Daemon(served),
        Target::Unmounted(source) => Keeper::Offline(source),
    })
}

impl Keeper {
    /// Who carries out what is asked of the volume on `source`.
    pub(crate) fn of(source: &Path) -> Result<Self, Failure> {
        keeper(source)
    }

    /// What it is called in messages.
    fn name(&self) -> String {
        match self {
            Self::Daemon(served) => served.place().to_owned(),
            Self::Offline(source) => source.display().to_string(),
        }
    }

    /// Does what `request` asks.
    pub(crate) fn ask(&self, request: VersionsRequest) -> Result<VersionsReply, Failure> {
        let fail = |why: String| Failure::new(format_args!("{}: {why}", self.name()));
        match self {
            Self::Daemon(served) => {
                if sees_files(&request) {
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

/// Whether the answer depends on what is in files now.
const fn sees_files(request: &VersionsRequest) -> bool {
    !matches!(
        request,
        VersionsRequest::List
            | VersionsRequest::Delete { .. }
            | VersionsRequest::Rename { .. }
            | VersionsRequest::Hold { .. }
            | VersionsRequest::Promote { .. }
            | VersionsRequest::Rollback { .. }
    )
}

/// Hands what programs wrote and the kernel still holds to the daemon, so that it is in a version
/// made now. Where that fails, the volume is read-only or its daemon says so by itself.
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

/// A file in a volume, which need not be there.
#[derive(Debug)]
pub(crate) struct FilePlace {
    pub(crate) keeper: Keeper,
    pub(crate) version: VersionName,
    /// From the root of the volume, as requests have it.
    pub(crate) path: String,
    /// The same in the mount; nothing when it is not mounted.
    pub(crate) mounted_path: Option<PathBuf>,
    named: Named,
}

/// How paths are named.
#[derive(Debug)]
enum Named {
    /// As anybody names what is in a mount, which is at this place and shows this directory.
    InMount(String, PathBuf),
    /// From the volume's root, which may be mounted somewhere.
    FromRoot(Option<PathBuf>),
}

impl Named {
    /// Where `path` lies in the volume, and in its mount.
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

/// Finds the volume that `text` names, of which nothing less is meant.
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

/// Finds the file `path`, in the volume that `volume` names if it does.
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

/// The mount that `path` lies in, of which `existing` is there.
fn find_mount_of(path: &Path, existing: &Path) -> Result<Served, Failure> {
    let named = path.display();
    let looked_for = || match find::find(path) {
        // An image, or a device, holds files, but is none of them.
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
    /// Where another `path`, named as this one was, lies in the volume, and in its mount.
    pub(crate) fn find_beside(&self, path: &Path) -> Result<(String, Option<PathBuf>), Failure> {
        self.named.find(path)
    }
}

/// `path` without symbolic links but for the last name, and the deepest part of it that is there.
fn full_path(path: &Path) -> Result<(PathBuf, PathBuf), Failure> {
    find::check_way(&mounts::read()?, path)?;
    let absolute = std::path::absolute(path)?;
    if absolute.components().any(|part| part == Component::ParentDir) {
        return Err(usage(format_args!("{}: name it without ..", path.display())));
    }
    let names: Vec<_> = absolute.components().collect();
    // The last name is meant as it stands, even if it is a link now.
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

/// Where requests that name the volume as `served` does are about files: the mount that was named, or
/// one of the main branch's head, which is meant by the image or the device.
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
