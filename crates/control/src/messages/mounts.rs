//! Requests about mounts, and what a daemon reports about them.

use serde::{Deserialize, Serialize};

use super::versions::VersionName;

/// Asks a daemon to serve one more view of its volume. The client has made the mount, in its own
/// mount namespace, and passes the descriptor of the FUSE connection (`/dev/fuse`) with the request
/// (`SCM_RIGHTS`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountRequest {
    /// The directory, as an absolute path without symbolic links.
    pub mount_point: String,
    /// The mounted file system's number, as [`ViewInfo::device`].
    #[serde(default)]
    pub device: String,
    /// The mount's own number, as [`ViewInfo::mount_id`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_id: Option<u64>,
    /// The mount namespace, as `/proc/self/ns/mnt` says it.
    #[serde(default)]
    pub namespace: String,
    /// Which version.
    #[serde(default)]
    pub of: VersionName,
    /// The options, as in `dendro mount -o`. Options that name a version are ignored.
    #[serde(default)]
    pub options: String,
    /// Only report whether it would be done; nothing is mounted yet, and no descriptor is passed.
    #[serde(default)]
    pub dry_run: bool,
}

/// The reply to a [`MountRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountReply {
    /// It is, or would be, served.
    Served(Box<ViewInfo>),
    /// The last mount is gone and the daemon is about to end. Another one can open the volume soon.
    Ending,
}

/// One mount of a view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewInfo {
    /// The number of the mount, which the daemon never uses again. 0: a daemon of an older release.
    #[serde(default)]
    pub id: u64,
    /// The directory, as an absolute path without symbolic links.
    pub mount_point: String,
    /// The mounted file system's device number in `/proc/self/mountinfo`, such as `0:52`; empty
    /// when it is not known. The kernel uses it again as soon as the file system is unmounted.
    #[serde(default)]
    pub device: String,
    /// The mount's own number, which the kernel never uses again (`STATX_MNT_ID_UNIQUE`, from Linux
    /// 6.8 on). If the mount is bound to other places too, this is the number of the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_id: Option<u64>,
    /// The mount namespace, as `/proc/PID/ns/mnt` says it.
    #[serde(default)]
    pub namespace: String,
    /// The number of the branch.
    pub branch: u32,
    /// The last epoch that is visible; `None`: the head.
    pub epoch: Option<u64>,
    /// Whether that is the main branch; not set in the reply to [`Ping`](crate::Command::Ping).
    #[serde(default)]
    pub is_main: bool,
    /// The version's name, `:BRANCH` or `@SNAPSHOT`; empty in the reply to
    /// [`Ping`](crate::Command::Ping).
    #[serde(default)]
    pub version: String,
    /// Why it is read-only, if it is.
    #[serde(default)]
    pub read_only: Option<String>,
    /// When it was mounted, seconds since 1970.
    pub since_unix_s: i64,
    /// How the kernel's requests arrive.
    #[serde(default)]
    pub transport: String,
    /// The options in force, as in `dendro mount -o`, those of the whole volume included; empty in
    /// the reply to [`Ping`](crate::Command::Ping).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// Where and how a volume is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountInfo {
    /// The directory.
    pub mount_point: String,
    /// The daemon's process.
    pub pid: u32,
    /// The daemon's version.
    pub software: String,
    /// Why it is read-only, if it is.
    pub read_only: Option<String>,
    /// When it was mounted, seconds since 1970.
    pub since_unix_s: i64,
    /// How the kernel's requests arrive. Empty: a daemon of an older release.
    #[serde(default)]
    pub transport: String,
    /// Where messages go: `syslog`, `standard error`, or a file. Empty: a daemon of an older
    /// release.
    #[serde(default)]
    pub log: String,
    /// Its control socket, by the path that the client has used.
    #[serde(default)]
    pub socket: String,
    /// All its mounts, the oldest first.
    #[serde(default)]
    pub views: Vec<ViewInfo>,
}

/// Asks a daemon to unmount the mount that the request is meant for. It is for mounts that the
/// daemon has made; a client can unmount those that it has made by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmountRequest {
    /// Even while processes use it.
    #[serde(default)]
    pub force: bool,
}

/// Asks to change how a mount is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRequest {
    /// The mount's [`ViewInfo::device`]; `None`: the first mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// The options to set, as in `dendro mount -o`. All of them are set, or none.
    #[serde(default)]
    pub options: Vec<String>,
    /// Whether this comes from `mount -o remount`. Options of the kernel's are ignored then, as the
    /// client sets those itself; so are options that the table of mounts shows for every mount.
    #[serde(default)]
    pub remount: bool,
    /// The kernel's options of the mount after a remount. The daemon applies `sync` and reports the
    /// others. Empty: there was no remount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<String>,
}

impl ViewInfo {
    /// Whether both are the same mount of one daemon. Daemons of older releases do not number their
    /// mounts, so their device and directory are compared.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self.id, other.id) {
            (0, _) | (_, 0) => {
                (&self.device, &self.mount_point) == (&other.device, &other.mount_point)
            }
            (own, others) => own == others,
        }
    }
}

/// The mount that a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountNamed<'a> {
    /// By its [`ViewInfo::id`].
    View(u64),
    /// By its [`ViewInfo::device`].
    Device(&'a str),
}
