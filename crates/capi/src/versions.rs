//! Snapshots and branches.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};
use std::vec::IntoIter;

use dendrofs::ClientKind;
use dendrofs::disk::{self, Branch, Snapshot, VersionTable};

use crate::border::{Handle, Health, close, hand_out, on, place};
use crate::types::{
    DENDRO_CLIENT_APPLICATION, DENDRO_CLIENT_BLOCK, DENDRO_CLIENT_FILES, DENDRO_CLIENT_UNKNOWN,
    DENDRO_HEAD, DENDRO_NO_QUOTA, DENDRO_VERSION_HAS_PARENT, DENDRO_VERSION_HEAD,
    DENDRO_VERSION_HELD, DENDRO_VERSION_MAIN, DENDRO_VERSION_UNNAMED, Quota, Usage, Version, View,
    name_of,
};
use crate::volume::Volume;

/// The versions of a volume, as they were when this was made.
pub struct Versions {
    health: Health,
    versions: Mutex<IntoIter<Version>>,
}

impl Handle for Versions {
    fn health(&self) -> &Health {
        &self.health
    }
}

fn of_branch(table: &VersionTable, branch: &Branch) -> Version {
    let mut flags = DENDRO_VERSION_HEAD;
    if table.main_head() == branch.head() {
        flags |= DENDRO_VERSION_MAIN;
    }
    if branch.parent.is_some() {
        flags |= DENDRO_VERSION_HAS_PARENT;
    }
    let (branch_number, epoch) = branch.parent.unwrap_or((0, DENDRO_HEAD));
    Version {
        view: branch.head().into(),
        parent: View { branch: branch_number, epoch },
        created: branch.time.into(),
        flags,
        name: name_of(branch.name.as_bytes()),
    }
}

fn of_snapshot(snapshot: &Snapshot) -> Version {
    let mut flags = 0;
    if snapshot.is_held {
        flags |= DENDRO_VERSION_HELD;
    }
    if snapshot.name.is_none() {
        flags |= DENDRO_VERSION_UNNAMED;
    }
    let name = snapshot.name.clone().unwrap_or_else(|| snapshot.epoch.to_string());
    Version {
        view: snapshot.view().into(),
        parent: View { branch: 0, epoch: DENDRO_HEAD },
        created: snapshot.time.into(),
        flags,
        name: name_of(name.as_bytes()),
    }
}

/// Puts the head of the main branch into `*view`.
///
/// Returns: 0.
///
/// Errors: none but those of any call.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_version_main(
    volume: Option<&Volume>,
    view: Option<&mut MaybeUninit<View>>,
) -> c_int {
    on(volume, |_, volume| {
        place(view)?.write(volume.inner().main().into());
        Ok(0)
    })
}

/// Puts the version of a name into `*view`: the head of a `branch`, or a snapshot as `@snapshot` or
/// `branch@snapshot`. A snapshot without a name is named by its epoch.
///
/// Returns: 0.
///
/// Errors: ENOENT: there is none of that name. EINVAL: the name is not UTF-8.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_version_find(
    volume: Option<&Volume>,
    name: *const c_char,
    view: Option<&mut MaybeUninit<View>>,
) -> c_int {
    on(volume, |call, volume| {
        let place = place(view)?;
        place.write(volume.inner().view(call.text(name)?)?.into());
        Ok(0)
    })
}

/// Makes a snapshot called `name` of the branch with the head `head`, and puts it into `*view`,
/// which may be NULL. It takes some microseconds, whatever the volume holds. A name has from 1 to
/// 255 bytes, and no '/', '@', ':' or "..".
///
/// Returns: 0.
///
/// Errors: EEXIST: there is a snapshot of that name. EINVAL: that cannot be a name. ESTALE: there
/// is no such head. ENOSPC, EROFS, EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_version_snapshot(
    volume: Option<&Volume>,
    head: View,
    name: *const c_char,
    view: Option<&mut MaybeUninit<View>>,
) -> c_int {
    on(volume, |call, volume| {
        let made = volume.inner().snapshot_of(head.into(), call.text(name)?)?;
        put(made.into(), view)
    })
}

/// Makes a branch called `name` that starts from the version `from`, a clone that can be changed,
/// and puts its head into `*view`, which may be NULL. Names and time are as with
/// dendro_version_snapshot().
///
/// Returns: 0.
///
/// Errors: EEXIST: there is a branch of that name. EINVAL: that cannot be a name. ESTALE: there is
/// no such version. ENOSPC, EROFS, EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_version_clone(
    volume: Option<&Volume>,
    from: View,
    name: *const c_char,
    view: Option<&mut MaybeUninit<View>>,
) -> c_int {
    on(volume, |call, volume| {
        let made = volume.inner().branch(from.into(), call.text(name)?)?;
        put(made.into(), view)
    })
}

/// Deletes a snapshot, or the head of a branch. Its space is freed in the background.
///
/// Returns: 0.
///
/// Errors: EBUSY: it is the main branch, or a snapshot that is held. ESTALE: there is no such
/// version. ENOSPC, EROFS, EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_version_delete(volume: Option<&Volume>, version: View) -> c_int {
    on(volume, |_, volume| {
        volume.inner().delete(version.into())?;
        Ok(0)
    })
}

/// Renames a snapshot or a branch.
///
/// Returns: 0.
///
/// Errors: as dendro_version_snapshot().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_version_rename(
    volume: Option<&Volume>,
    version: View,
    name: *const c_char,
) -> c_int {
    on(volume, |call, volume| {
        volume.disk().rename(version.into(), call.text(name)?)?;
        Ok(0)
    })
}

/// Protects a snapshot from deletion if `is_held` is not 0, or ends that.
///
/// Returns: 0.
///
/// Errors: ESTALE: there is no such snapshot. ENOSPC, EROFS, EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_version_hold(
    volume: Option<&Volume>,
    snapshot: View,
    is_held: c_int,
) -> c_int {
    on(volume, |_, volume| {
        volume.disk().hold(snapshot.into(), is_held != 0)?;
        Ok(0)
    })
}

/// Replaces the branch with the head `head` by a new one that starts from the snapshot `to` and
/// takes over its name, and puts the new head into `*view`, which may be NULL. All snapshots stay.
///
/// Returns: 0.
///
/// Errors: ESTALE: there is no such head or snapshot. ENOSPC, EROFS, EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_version_roll_back(
    volume: Option<&Volume>,
    head: View,
    to: View,
    view: Option<&mut MaybeUninit<View>>,
) -> c_int {
    on(volume, |_, volume| {
        let made = volume.inner().roll_back(head.into(), to.into())?;
        put(made.into(), view)
    })
}

/// Makes the branch with the head `head` the main one. It and the former main branch exchange their
/// names.
///
/// Returns: 0.
///
/// Errors: ESTALE: there is no such head. EXDEV: the branch belongs to another client than the main
/// branch. ENOSPC, EROFS, EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_version_promote(volume: Option<&Volume>, head: View) -> c_int {
    on(volume, |_, volume| {
        volume.inner().promote(head.into())?;
        Ok(0)
    })
}

/// Writes the snapshot `of` as a stream to the descriptor `fd`, as `dendro send` does: all that it
/// has, or if `base` is not NULL what it has and the snapshot `*base` has not. The stream is not
/// compressed.
///
/// Returns: 0.
///
/// Errors: ESTALE: there is no such snapshot. What write(2) answers. EAGAIN: the system refuses a
/// thread. EIO. The stream is worth nothing then.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_version_send(
    volume: Option<&Volume>,
    of: View,
    base: Option<&View>,
    fd: c_int,
) -> c_int {
    on(volume, |call, volume| {
        let base = base.map(|base| (*base).into());
        volume.inner().send(of.into(), base, call.descriptor(fd))?;
        Ok(0)
    })
}

/// Receives the version of a stream from the descriptor `fd`, as dendro_version_send() and
/// `dendro send` write it, as a snapshot, and puts that into `*view`, which may be NULL. The
/// snapshot is called `name`, or if that is NULL as it was on the volume that it was sent from. If
/// several streams follow each other, each version keeps its name, those that are here are passed
/// over, and `*view` is the last one. `fd` is read to the end of the stream, and no further.
///
/// Returns: 0. The version is durable, and there whole.
///
/// Errors: EEXIST: it is here already, or there is a snapshot of that name. ENOENT: it is based on
/// a version that is not here. EBADMSG: the stream is wrong, or cut off. EINVAL: that cannot be a
/// name. What read(2) answers. ENOSPC, EROFS, EIO. Nothing has changed then, but that of several
/// versions those before are here.
///
/// Threads: any. One receives at a time.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_version_receive(
    volume: Option<&Volume>,
    fd: c_int,
    name: *const c_char,
    view: Option<&mut MaybeUninit<View>>,
) -> c_int {
    on(volume, |call, volume| {
        let name = if name.is_null() { None } else { Some(call.text(name)?) };
        let made = volume.inner().receive(call.descriptor(fd), name)?;
        put(made.into(), view)
    })
}

/// Puts what up to `max` versions take into `usages`: the snapshots and the heads of branches. It
/// reads the whole map.
///
/// Returns: how many versions there are, which may be more than `max`.
///
/// Errors: EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_versions_usage(
    volume: Option<&Volume>,
    usages: *mut Usage,
    max: usize,
) -> i64 {
    on(volume, |call, volume| {
        let places = call.room(usages, max)?;
        let found = volume.disk().version_usage()?;
        for (place, usage) in places.iter_mut().zip(&found) {
            let disk::VersionUsage { view, exclusive_bytes, seen_bytes, .. } = *usage;
            place.write(Usage { view: view.into(), exclusive_bytes, seen_bytes });
        }
        Ok(found.len() as i64)
    })
}

/// Puts into `*bytes` how many bytes deleting all of `count` versions would free. That can be more
/// than their `exclusive_bytes` together, which leave out what several of them share. It reads the
/// whole map.
///
/// Returns: 0.
///
/// Errors: ESTALE: there is no such version. EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_versions_freed_by(
    volume: Option<&Volume>,
    views: *const View,
    count: usize,
    bytes: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    on(volume, |call, volume| {
        let place = place(bytes)?;
        let views: Vec<disk::View> =
            call.views(views, count)?.iter().map(|view| (*view).into()).collect();
        place.write(volume.disk().freed_by(&views)?);
        Ok(0)
    })
}

/// Makes a client called `name` beside the one that the volume was made for, and puts the head of
/// its branch into `*view`, which may be NULL. `kind` is one of DENDRO_CLIENT_FILES and
/// DENDRO_CLIENT_APPLICATION; dendro_block_device_create() makes a block device. A client of files
/// has an empty root directory; one of a program has the list DENDRO_ROOT_LIST. Its lists may have
/// numbers that lists of other clients have. It is there whole or not at all. dendro_version_find()
/// finds it by its name again.
///
/// Returns: 0.
///
/// Errors: EEXIST: there is a branch of that name. EINVAL: that cannot be a name, or there is no
/// such kind, or it is DENDRO_CLIENT_BLOCK. ENOSPC, EROFS, EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_client_create(
    volume: Option<&Volume>,
    name: *const c_char,
    kind: u32,
    view: Option<&mut MaybeUninit<View>>,
) -> c_int {
    on(volume, |call, volume| {
        let kind = u8::try_from(kind).ok().and_then(ClientKind::from_code);
        let kind = kind.unwrap_or(ClientKind::Unknown(0));
        let made = volume.inner().create_client(call.text(name)?, kind)?;
        put(made.into(), view)
    })
}

/// Makes a client called `name` that is a block device of `len_bytes`, a multiple of 4,096, all
/// zeros, and puts the head of its branch into `*view`, which may be NULL. Its contents are the
/// pages of the list DENDRO_ROOT_LIST; record 0 of that list describes the device, and is not to be
/// changed. It is there whole or not at all.
///
/// Returns: 0.
///
/// Errors: EEXIST: there is a branch of that name. EINVAL: that cannot be a name, or no block
/// device can have that length. ENOSPC, EROFS, EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_block_device_create(
    volume: Option<&Volume>,
    name: *const c_char,
    len_bytes: u64,
    view: Option<&mut MaybeUninit<View>>,
) -> c_int {
    on(volume, |call, volume| {
        let made = volume.inner().create_block_device(call.text(name)?, len_bytes)?;
        put(made.into(), view)
    })
}

/// Puts the length of the block device that a version is into `*len_bytes`.
///
/// Returns: 0.
///
/// Errors: EOPNOTSUPP: it is none. ESTALE: there is no such version. EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_block_device_len(
    volume: Option<&Volume>,
    view: View,
    len_bytes: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    on(volume, |_, volume| {
        let place = place(len_bytes)?;
        place.write(volume.inner().block_device_len_bytes(view.into())?);
        Ok(0)
    })
}

/// Puts the kind of the client that a version belongs to into `*kind`.
///
/// Returns: 0.
///
/// Errors: ESTALE: there is no such version. EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_client_kind(
    volume: Option<&Volume>,
    version: View,
    kind: Option<&mut MaybeUninit<u32>>,
) -> c_int {
    on(volume, |_, volume| {
        let place = place(kind)?;
        place.write(match volume.inner().client_kind(version.into())? {
            ClientKind::Files => DENDRO_CLIENT_FILES,
            ClientKind::Block => DENDRO_CLIENT_BLOCK,
            ClientKind::Application => DENDRO_CLIENT_APPLICATION,
            ClientKind::Unknown(_) => DENDRO_CLIENT_UNKNOWN,
        });
        Ok(0)
    })
}

/// Puts the quota of the client that a version belongs to into `*quota`, with what it uses of it.
///
/// Returns: 1, or 0 if it has no quota, or if it is not known what it uses: a volume that is opened
/// for reading does not count that where a crash has left it open. Then `*quota` stays as it was.
///
/// Errors: ESTALE: there is no such version.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_client_quota(
    volume: Option<&Volume>,
    version: View,
    quota: Option<&mut MaybeUninit<Quota>>,
) -> c_int {
    on(volume, |_, volume| {
        let place = place(quota)?;
        let Some(quota) = volume.inner().quota(version.into())? else { return Ok(0) };
        let disk::Quota { limit_bytes, used_bytes, reserved_bytes } = quota;
        place.write(Quota { limit_bytes, used_bytes, reserved_bytes });
        Ok(1)
    })
}

/// Bounds what all versions of the client that a version belongs to take together, by `limit_bytes`
/// or, with DENDRO_NO_QUOTA, no more. Changes that would exceed it answer EDQUOT. A client may use
/// more already: then only changes that free something work. The first quota of a client reads the
/// whole map, unless the client was made a moment ago.
///
/// Returns: 0.
///
/// Errors: ESTALE: there is no such version. ENOSPC, EROFS, EIO.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_client_set_quota(
    volume: Option<&Volume>,
    version: View,
    limit_bytes: u64,
) -> c_int {
    on(volume, |_, volume| {
        let limit_bytes = (limit_bytes != DENDRO_NO_QUOTA).then_some(limit_bytes);
        volume.inner().set_quota(version.into(), limit_bytes)?;
        Ok(0)
    })
}

/// Lists the versions of a volume: the heads, then the snapshots. Later changes do not show.
///
/// Returns: 0, with the handle in `*versions`; it is given back by dendro_versions_close(). After
/// an error `*versions` is NULL.
///
/// Errors: none but those of any call.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_versions_open(
    volume: Option<&Volume>,
    versions: Option<&mut MaybeUninit<Option<Box<Versions>>>>,
) -> c_int {
    on(volume, |_, volume| {
        hand_out(versions, || {
            let table = volume.inner().versions();
            let heads = table.branches().map(|branch| of_branch(&table, branch));
            let all: Vec<_> = heads.chain(table.snapshots().map(of_snapshot)).collect();
            let health = volume.health().clone();
            Ok(Versions { health, versions: Mutex::new(all.into_iter()) })
        })
    })
}

/// Puts the next version into `*version`.
///
/// Returns: 1, or 0 if there is none left.
///
/// Errors: none but those of any call.
///
/// Threads: any. Each version is given to one of them.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_versions_next(
    versions: Option<&Versions>,
    version: Option<&mut MaybeUninit<Version>>,
) -> c_int {
    on(versions, |_, versions| {
        let place = place(version)?;
        let mut left = versions.versions.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(c_int::from(left.next().map(|version| place.write(version)).is_some()))
    })
}

/// Gives a list of versions back. NULL does nothing.
///
/// Returns: 0.
///
/// Errors: none but those of any call.
///
/// Threads: one, and no other may use the handle at the time or later.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_versions_close(versions: Option<Box<Versions>>) -> c_int {
    close(versions, |_| Ok(()))
}

/// Puts a version that was made where the caller wants it, if it does.
fn put(made: View, view: Option<&mut MaybeUninit<View>>) -> crate::failure::Result<c_int> {
    if let Some(place) = view {
        place.write(made);
    }
    Ok(0)
}
