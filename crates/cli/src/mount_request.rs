//! Asks the daemon that has a volume open to serve one more mount.
//!
//! This process makes the mount, because that must happen in its own mount namespace and with its
//! own rights, and passes the connection to the daemon. The daemon of another user makes the mount
//! itself, if this user may have it.

use std::os::fd::AsFd;

use dendro_control::{Client, ClientError, MountReply, MountRequest, Pong, ViewInfo};
use dendro_daemon::mount_config::{Config, fuse_options};
use dendro_daemon::mounts;
use dendro_fuse::{UnmountMode, mount_for_others, unmount};
use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::mount::{MoveMountFlags, move_mount};

use crate::failure::Failure;
use crate::output;

/// The outcome of a request.
pub(crate) enum Requested {
    /// It is mounted.
    Served(Box<ViewInfo>),
    /// No daemon has the volume, or it is about to end.
    NoDaemon,
}

/// Mounts `config`, whose options were given as `options`, and has the daemon that has the volume
/// serve it.
pub(crate) fn request_mount(
    client: &Client,
    pong: &Pong,
    config: &Config,
    options: &[String],
) -> Result<Requested, Failure> {
    let request = MountRequest {
        mount_point: config.mount_point.display().to_string(),
        device: String::new(),
        mount_id: None,
        namespace: mounts::namespace(),
        of: config.options.version.clone(),
        options: options.join(","),
        dry_run: true,
    };
    let fail = |error| failure(config, error);
    if is_foreign(client) {
        return request_mount_by_daemon(client, config, request);
    }
    // A dry run: a refusal comes before anybody sees a mount.
    match client.mount(request.clone(), None) {
        Ok(MountReply::Served(_)) => {}
        Ok(MountReply::Ending) => return Ok(Requested::NoDaemon),
        Err(error) if is_gone(&error) => return Ok(Requested::NoDaemon),
        Err(error) => return Err(fail(error)),
    }
    let of_volume = config.options.of_volume();
    if !of_volume.is_empty() {
        output::message(format_args!(
            "dendro: {}: {} hold for the whole volume, which process {} has open already; passed \
             over",
            config.source.display(),
            of_volume.join(" "),
            pong.pid
        ));
    }
    let mounted = mount_for_others(&config.mount_point, &fuse_options(config))?;
    let (device, mount_id) = mounts::numbers_of(&config.mount_point);
    let request = MountRequest { device, mount_id, dry_run: false, ..request };
    let answer = client.mount(request, Some(mounted.as_fd()));
    drop(mounted);
    if !matches!(answer, Ok(MountReply::Served(_))) {
        // The mount has no server; the error that matters is why.
        let _ = unmount(&config.mount_point, UnmountMode::Detach);
    }
    match answer {
        Ok(MountReply::Served(view)) => Ok(Requested::Served(view)),
        Ok(MountReply::Ending) => Ok(Requested::NoDaemon),
        Err(error) if is_gone(&error) => Ok(Requested::NoDaemon),
        Err(error) => Err(fail(error)),
    }
}

fn failure(config: &Config, error: ClientError) -> Failure {
    match error {
        ClientError::Refused(why) => {
            Failure::new(format_args!("{}: {why}", config.source.display()))
        }
        other => Failure::new(other),
    }
}

/// Whether the daemon belongs to another user and takes no connections of this one.
pub(crate) fn is_foreign(client: &Client) -> bool {
    !rustix::process::geteuid().is_root() && matches!(client.foreign_owner(), Ok(Some(_)))
}

/// Has the daemon make the mount.
fn request_mount_by_daemon(
    client: &Client,
    config: &Config,
    request: MountRequest,
) -> Result<Requested, Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = open(&config.mount_point, flags, Mode::empty())
        .map_err(|error| Failure::new(format_args!("{}: {error}", config.mount_point.display())))?;
    let request = MountRequest { dry_run: false, ..request };
    match client.mount_by_daemon(request, Some(directory.as_fd())) {
        Ok((MountReply::Served(view), _)) => Ok(Requested::Served(view)),
        Ok((MountReply::Ending, _)) => Ok(Requested::NoDaemon),
        Err(error) if is_gone(&error) => Ok(Requested::NoDaemon),
        Err(error) => Err(failure(config, error)),
    }
}

/// Has the daemon make a mount that is visible only in this process's mount namespace, which
/// belongs to this user.
pub(crate) fn request_private_mount(
    client: &Client,
    config: &Config,
    options: &[String],
) -> Result<Requested, Failure> {
    let request = MountRequest {
        mount_point: config.mount_point.display().to_string(),
        namespace: mounts::namespace(),
        of: config.options.version.clone(),
        options: options.join(","),
        ..MountRequest::default()
    };
    let (view, mount) = match client.mount_by_daemon(request, None) {
        Ok((MountReply::Served(view), Some(mount))) => (view, mount),
        Ok(_) => return Ok(Requested::NoDaemon),
        Err(error) => return Err(failure(config, error)),
    };
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&mount, "", CWD, &config.mount_point, flags).map_err(|error| {
        Failure::new(format_args!("cannot mount on {}: {error}", config.mount_point.display()))
    })?;
    Ok(Requested::Served(view))
}

/// Whether the daemon that was asked has ended; another one may have its socket by now.
const fn is_gone(error: &ClientError) -> bool {
    matches!(error, ClientError::Unreachable { .. } | ClientError::NotMeant(_))
}
