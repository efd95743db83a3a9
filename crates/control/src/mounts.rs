//! What is said about mounts: which there are, and that there is to be one more.

use serde::{Deserialize, Serialize};

use crate::versions::VersionName;

/// Asks a daemon to serve one more view of its volume. The one who asks has mounted, in its own mount
/// namespace, and passes the descriptor of the connection (`/dev/fuse`) beside the request
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
    /// How, in the words of `dendro mount -o`. What they say about the version is passed over.
    #[serde(default)]
    pub options: String,
    /// Only say whether it would be done; nothing is mounted yet, and no descriptor passed.
    #[serde(default)]
    pub dry_run: bool,
}

/// What came of a [`MountRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountReply {
    /// It is, or would be, served.
    Served(Box<ViewInfo>),
    /// The last mount is gone and the daemon about to end: another one can have the volume soon.
    Ending,
}

/// One mount of a view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewInfo {
    /// Which of the daemon's mounts it is; it gives no number again. 0: an older daemon's.
    #[serde(default)]
    pub id: u64,
    /// The directory, as an absolute path without symbolic links.
    pub mount_point: String,
    /// The mounted file system's number in `/proc/self/mountinfo`, such as `0:52`; empty when it is
    /// not known. The kernel gives it to another one as soon as this is unmounted.
    #[serde(default)]
    pub device: String,
    /// The mount's own number, which the kernel never gives again (`STATX_MNT_ID_UNIQUE`, from Linux
    /// 6.8 on); that of the mount as it was made, if it is bound to other places too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_id: Option<u64>,
    /// The mount namespace, as `/proc/PID/ns/mnt` says it.
    #[serde(default)]
    pub namespace: String,
    /// The number of the branch.
    pub branch: u32,
    /// The last epoch that is seen; nothing: the head.
    pub epoch: Option<u64>,
    /// Whether that is the main branch; not said in the answer to [`Ping`](crate::Command::Ping).
    #[serde(default)]
    pub is_main: bool,
    /// What the version is called, `:BRANCH` or `@SNAPSHOT`; empty in the answer to
    /// [`Ping`](crate::Command::Ping).
    #[serde(default)]
    pub version: String,
    /// Why it takes no writes, if it takes none.
    #[serde(default)]
    pub read_only: Option<String>,
    /// When it was mounted, seconds since 1970.
    pub since_unix_s: i64,
    /// Which way the kernel's requests come.
    #[serde(default)]
    pub transport: String,
    /// The options in force, as `dendro mount -o` has them, those of the whole volume too; not said in
    /// the answer to [`Ping`](crate::Command::Ping).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// Asks a daemon to unmount the mount that the request is meant for. Whoever has mounted can do that by itself;
/// it is for mounts that the daemon has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmountRequest {
    /// Cut off those who use it.
    #[serde(default)]
    pub force: bool,
}

/// Asks to change how a mount is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRequest {
    /// The mount's [`ViewInfo::device`]; nothing: the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// What is to be, in the words of `dendro mount -o`. All of it is done, or nothing.
    #[serde(default)]
    pub options: Vec<String>,
    /// What the kernel alone heeds is passed over, since it is told by the one who asks; and what the
    /// table of mounts says of all mounts is no wish.
    #[serde(default)]
    pub remount: bool,
    /// What the kernel has been told of the mount, to be told on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<String>,
}

impl ViewInfo {
    /// Whether both are one mount of one daemon; older ones do not number theirs.
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
