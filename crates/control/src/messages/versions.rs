//! Versions of a volume: requests about them, and the replies.
//!
//! Paths and names of files are bytes on Linux. Here they are text, in which a backslash is `\\`,
//! and a byte that is not UTF-8 or is a control character is `\x` and two digits: see [`path_text`]
//! and [`path_bytes`].

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// The most changes in one reply.
pub const MAX_CHANGES: usize = 10_000;

/// A version, as a user names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionName {
    /// The branch's name; `None`: the branch of the mount that the request is about, else the main
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The moment; `None`: now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moment: Option<Moment>,
}

/// A moment, as a user names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// A snapshot's name, an epoch, `head`, or a time as it was written.
    pub text: String,
    /// The time that the text means in the client's time zone, nanoseconds since 1970; `None` when
    /// it is no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix_ns: Option<i64>,
}

/// A request about versions, and the mount that it refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionsAsked {
    /// The device ([`ViewInfo::device`](crate::ViewInfo::device)) of the mount: names without a
    /// branch refer to the branch that is mounted there. `None`: to the main branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// The request.
    #[serde(flatten)]
    pub request: VersionsRequest,
}

/// The requests about versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum VersionsRequest {
    /// List the versions.
    List,
    /// Report the space that each takes.
    Usage,
    /// Make a snapshot of a branch.
    Snapshot {
        /// The branch.
        of: VersionName,
        /// Its name; `None`: retention may delete it later.
        name: Option<String>,
    },
    /// Delete all of these, or none.
    Delete {
        /// Snapshots and branches.
        versions: Vec<VersionName>,
        /// Only report what would be deleted.
        dry_run: bool,
    },
    /// Rename a snapshot or a branch.
    Rename {
        /// Which.
        of: VersionName,
        /// The new name.
        name: String,
    },
    /// Protect a snapshot from deletion, or end that.
    Hold {
        /// Which.
        of: VersionName,
        /// Whether it must not be deleted.
        held: bool,
    },
    /// Make a branch that starts from a version.
    Clone {
        /// The version.
        of: VersionName,
        /// The branch's name.
        name: String,
    },
    /// Make a branch the main branch; it takes over that name.
    Promote {
        /// Its name.
        branch: String,
        /// How.
        #[serde(default, flatten)]
        how: Replacing,
    },
    /// Replace the head of the branch that names without a branch refer to by another branch;
    /// unless that head has changed.
    Replace {
        /// The branch's name.
        with: String,
        /// The moment since when the head must not have changed; `None`: it may have.
        since: Option<VersionName>,
        /// How.
        #[serde(default, flatten)]
        how: Replacing,
    },
    /// Put a branch back to a moment in its past, or undo an earlier rollback.
    Rollback {
        /// The branch and the moment. With `undo`, the moment may be missing: the state that was
        /// kept last.
        to: VersionName,
        /// The moment is a state that a rollback or a try has kept.
        #[serde(default)]
        undo: bool,
        /// How.
        #[serde(default, flatten)]
        how: Replacing,
    },
    /// List what changed from one version to another.
    Diff {
        /// The earlier version.
        old: VersionName,
        /// The later version.
        new: VersionName,
        /// How many changes to skip: those that earlier replies have listed.
        #[serde(default)]
        skip: u64,
    },
    /// List the versions of the file that a path names.
    History {
        /// The version whose history is listed.
        of: VersionName,
        /// From the root of the volume.
        path: String,
    },
    /// List the names that a directory once had and no longer has.
    Removed {
        /// The version in which the directory is looked up.
        of: VersionName,
        /// From the root of the volume.
        path: String,
    },
    /// List the clients of the volume.
    Clients,
    /// Make a client.
    CreateClient {
        /// Its name, which is that of its branch.
        name: String,
        /// What it keeps: `files` or `application`. Block devices have a size, and are not made so.
        kind: String,
        /// The user to whom the root directory of files belongs,
        #[serde(default)]
        uid: u32,
        /// and the group.
        #[serde(default)]
        gid: u32,
        /// Its quota; `None`: it has none.
        #[serde(default)]
        quota_bytes: Option<u64>,
    },
    /// Give a client a quota, or none.
    SetQuota {
        /// Its name.
        client: String,
        /// The most that it may use; `None`: it has no quota any more.
        quota_bytes: Option<u64>,
    },
    /// Delete all branches and snapshots of a client.
    DeleteClient {
        /// Its name.
        name: String,
        /// Only report what would be deleted.
        dry_run: bool,
    },
    /// Give a client another name.
    RenameClient {
        /// Its name.
        client: String,
        /// The new name.
        name: String,
    },
    /// Copy a file or a tree out of the past.
    Undelete {
        /// The version to copy from; `None`: the newest one that has it.
        from: Option<VersionName>,
        /// From the root of the volume.
        path: String,
        /// The path of the copy; `None`: the same.
        to: Option<String>,
    },
}

impl VersionsRequest {
    /// Whether the answer, or what is made, depends on the contents that files have now. What the
    /// kernel holds of programs' writes must have reached the volume before.
    #[must_use]
    pub const fn sees_files(&self) -> bool {
        !matches!(
            self,
            Self::List
                | Self::Delete { .. }
                | Self::Rename { .. }
                | Self::Hold { .. }
                | Self::Promote { .. }
                | Self::Rollback { .. }
                | Self::Clients
                | Self::CreateClient { .. }
                | Self::DeleteClient { .. }
                | Self::RenameClient { .. }
                | Self::SetQuota { .. }
        )
    }
}

/// How a head is replaced by another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacing {
    /// Discard the former head; otherwise it is kept as a snapshot or a branch.
    #[serde(default)]
    pub discard: bool,
    /// Even while files are open.
    #[serde(default)]
    pub force: bool,
}

impl VersionsRequest {
    /// Whether it changes the volume.
    #[must_use]
    pub const fn is_change(&self) -> bool {
        match self {
            Self::List | Self::Usage | Self::Diff { .. } => false,
            Self::History { .. } | Self::Removed { .. } => false,
            Self::Delete { dry_run, .. } | Self::DeleteClient { dry_run, .. } => !*dry_run,
            Self::Clients => false,
            Self::CreateClient { .. } | Self::RenameClient { .. } => true,
            Self::SetQuota { .. } => true,
            Self::Snapshot { .. } | Self::Rename { .. } | Self::Hold { .. } => true,
            Self::Clone { .. } | Self::Promote { .. } | Self::Rollback { .. } => true,
            Self::Replace { .. } => true,
            Self::Undelete { .. } => true,
        }
    }
}

/// The replies about versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "about", content = "facts", rename_all = "snake_case")]
pub enum VersionsReply {
    /// To [`VersionsRequest::List`].
    List(VersionList),
    /// To [`VersionsRequest::Usage`].
    Usage(Vec<UsageInfo>),
    /// To [`VersionsRequest::Snapshot`]: what was made.
    Snapshot(SnapshotInfo),
    /// To [`VersionsRequest::Clone`]: what was made. To [`VersionsRequest::Promote`],
    /// [`VersionsRequest::Replace`] and [`VersionsRequest::Rollback`]: the branch as it is now, and
    /// what became of its former head.
    Branch(BranchInfo),
    /// To [`VersionsRequest::Delete`] and [`VersionsRequest::DeleteClient`]: what was, or would be,
    /// deleted.
    Deleted(Vec<DeletedInfo>),
    /// To [`VersionsRequest::Clients`]: the one that the volume was made for is the first.
    Clients(Vec<ClientInfo>),
    /// To [`VersionsRequest::CreateClient`] and [`VersionsRequest::SetQuota`]: the client as it is
    /// now.
    Client(ClientInfo),
    /// To [`VersionsRequest::Diff`]. To [`VersionsRequest::Replace`] when nothing was done because
    /// of these changes.
    Diff(DiffInfo),
    /// To [`VersionsRequest::History`]: newest first.
    History(Vec<HistoryInfo>),
    /// To [`VersionsRequest::Removed`]: in order of names.
    Removed(Vec<RemovedInfo>),
    /// To [`VersionsRequest::Undelete`].
    Restored(RestoredInfo),
    /// It was done, and there is nothing more to report.
    Done,
}

/// All versions of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionList {
    /// The current epoch.
    pub epoch: u64,
    /// The branches, the main one among them.
    pub branches: Vec<BranchInfo>,
    /// Other branches that those here, and the snapshots' branches, were made from: their heads are
    /// gone, or not to be seen.
    #[serde(default)]
    pub ancestors: Vec<AncestorInfo>,
    /// The snapshots, by branch and age, the oldest first.
    pub snapshots: Vec<SnapshotInfo>,
}

/// A branch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchInfo {
    /// Its number.
    pub branch: u32,
    /// Its name.
    pub name: String,
    /// Whether it is the main branch, which names without a branch refer to.
    pub main: bool,
    /// The number of the branch that it was made from; `None` for the first.
    pub parent: Option<u32>,
    /// The epoch that it was made from; `None` for the first.
    pub parent_epoch: Option<u64>,
    /// When it was made, nanoseconds since 1970.
    pub created_unix_ns: i64,
    /// In replies to [`VersionsRequest::List`], what the client keeps that it belongs to, as
    /// [`ClientInfo::kind`]; `None` for the client that the volume was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_kind: Option<String>,
    /// What it has replaced just now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<ReplacedInfo>,
}

/// A client of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientInfo {
    /// Its number: that of the branch that it began with.
    pub client: u32,
    /// Its name, that of its branch; `None` if it has snapshots only.
    pub name: Option<String>,
    /// What it keeps: `files`, `block` or `application`; `unknown` for what this version of the
    /// program does not know, or cannot read.
    pub kind: String,
    /// Whether it is the one that the volume was made for, which cannot be deleted.
    pub original: bool,
    /// How many branches with a head it has.
    pub branch_count: usize,
    /// How many snapshots it has.
    pub snapshot_count: usize,
    /// When its branch was made, nanoseconds since 1970; `None` without one.
    pub created_unix_ns: Option<i64>,
    /// Its quota; `None` if it has none.
    #[serde(default)]
    pub quota_bytes: Option<u64>,
    /// What it uses of its quota; `None` if it has none, or that is not known.
    #[serde(default)]
    pub used_bytes: Option<u64>,
}

/// A branch of which only its place in the history is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AncestorInfo {
    /// Its number.
    pub branch: u32,
    /// The number of the branch that it was made from; nothing for the first.
    pub parent: Option<u32>,
    /// The epoch that it was made from; nothing for the first.
    pub parent_epoch: Option<u64>,
}

/// What became of a head that was replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacedInfo {
    /// What the branch continues from: a snapshot as `@name` or `@epoch`, or a branch as `:name`.
    pub like: String,
    /// The version that keeps the former head; `None`: it was discarded, or did not differ.
    pub kept: Option<KeptInfo>,
    /// Files that were open nevertheless.
    #[serde(default)]
    pub open_files: Vec<OpenFileInfo>,
}

/// The version that keeps a head that was replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptInfo {
    /// The number of its branch.
    pub branch: u32,
    /// Its epoch; `None`: it is a branch, not a snapshot.
    pub epoch: Option<u64>,
    /// The name of the snapshot or the branch.
    pub name: String,
}

/// A file that a process has open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFileInfo {
    /// The process.
    pub pid: u32,
    /// Its command.
    pub command: String,
    /// The user whose process it is, where that is known.
    pub user: Option<String>,
    /// The file.
    pub path: String,
}

/// A snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotInfo {
    /// The number of its branch.
    pub branch: u32,
    /// The last epoch that is visible in it.
    pub epoch: u64,
    /// Its name; `None` for one that retention may delete.
    pub name: Option<String>,
    /// When it was made, nanoseconds since 1970.
    pub created_unix_ns: i64,
    /// Whether it must not be deleted.
    pub held: bool,
    /// In replies to [`VersionsRequest::List`], the name of its branch. If that is deleted: the
    /// name of the branch in whose past it is, or from which it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_name: Option<String>,
}

/// The space that a version takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageInfo {
    /// The number of its branch.
    pub branch: u32,
    /// Its epoch; `None` for a head.
    pub epoch: Option<u64>,
    /// The name of the snapshot or the branch, if it has one.
    pub name: Option<String>,
    /// Bytes that deleting it alone would free.
    pub exclusive_bytes: u64,
    /// Bytes of all that is visible in it.
    pub seen_bytes: u64,
    /// Bytes that this would take if nothing were compressed. `None`: an older daemon does not
    /// say.
    #[serde(default)]
    pub seen_plain_bytes: Option<u64>,
}

/// A version that was, or would be, deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedInfo {
    /// The number of its branch.
    pub branch: u32,
    /// Its epoch; `None` for a head.
    pub epoch: Option<u64>,
    /// The name of the snapshot or the branch, if it has one.
    pub name: Option<String>,
    /// Bytes that deleting it alone would free; `None` when it was deleted without counting them.
    pub exclusive_bytes: Option<u64>,
    /// Bytes that deleting all versions of the request would free; `None` as above.
    #[serde(default)]
    pub together_bytes: Option<u64>,
}

/// What changed between two versions, or a part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffInfo {
    /// The changes, in order of paths.
    pub changes: Vec<ChangeInfo>,
    /// Whether there are more.
    pub more: bool,
    /// The earlier version;
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<ViewName>,
    /// and the later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<ViewName>,
}

/// A version by the disk's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewName {
    /// The number of the branch.
    pub branch: u32,
    /// The last epoch that is visible in it; `None`: a head.
    pub epoch: Option<u64>,
}

/// A difference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeInfo {
    /// `-`, `+`, `M` or `R`, as in zfs-diff(8).
    pub change: char,
    /// `file`, `directory`, `symlink`, `fifo`, `socket`, `block` or `character`; `list` in versions
    /// of clients that keep no files.
    pub kind: String,
    /// The path in the later version, or the number of the list; for something that was removed, in
    /// the earlier one.
    pub path: String,
    /// The path in the earlier version, for something that was renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_path: Option<String>,
}

/// What a path named for some time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryInfo {
    /// The number of the branch of the newest version that has it.
    pub branch: u32,
    /// The epoch of the newest version that has it; `None`: the path names it now.
    pub epoch: Option<u64>,
    /// The name of that snapshot, if it has one.
    pub snapshot: Option<String>,
    /// When the oldest snapshot that has it was made, nanoseconds since 1970.
    pub since_unix_ns: Option<i64>,
    /// When the newest one was made; `None`: the path names it now.
    pub until_unix_ns: Option<i64>,
    /// How many snapshots have it.
    pub snapshots: usize,
    /// The file; `None` when the path named nothing.
    pub file: Option<FileInfo>,
}

/// A file as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    /// Its i-node.
    pub inode: u64,
    /// Its kind, as in [`ChangeInfo`].
    pub kind: String,
    /// Its size.
    pub size_bytes: u64,
    /// When it was last written, seconds since 1970.
    pub modified_unix_s: i64,
    /// Nanoseconds past that.
    pub modified_ns: u32,
}

/// A name that a directory had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedInfo {
    /// The name.
    pub name: String,
    /// The newest snapshot that has it.
    pub snapshot: SnapshotInfo,
    /// The file that the name referred to.
    pub file: FileInfo,
}

/// What was restored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredInfo {
    /// The path of the copy.
    pub path: String,
    /// The epoch that it was copied from.
    pub epoch: Option<u64>,
    /// Files other than directories.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Bytes of data.
    pub data_bytes: u64,
}

/// The bytes of a path as text.
#[must_use]
pub fn path_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                control if control.is_ascii_control() => escape(&mut text, control as u8),
                other => text.push(other),
            }
        }
        chunk.invalid().iter().for_each(|&byte| escape(&mut text, byte));
    }
    text
}

fn escape(text: &mut String, byte: u8) {
    // Writing to a string does not fail.
    let _ = write!(text, "\\x{byte:02x}");
}

/// The path that `text` stands for; `None` when a backslash in it is followed by neither another
/// one nor `x` and two digits.
#[must_use]
pub fn path_bytes(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest {
            [b'\\', behind @ ..] => {
                bytes.push(b'\\');
                rest = behind;
            }
            [b'x', high, low, behind @ ..] => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                bytes.push((digit(*high)? << 4 | digit(*low)?) as u8);
                rest = behind;
            }
            _ => return None,
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_text_and_back() {
        let all: Vec<u8> = (0..=255).collect();
        for path in
            [&b"/plain/path"[..], "/Äpfel/目".as_bytes(), b"\\x41", b"a\nb", b"\xff\xfe", &all]
        {
            let text = path_text(path);
            assert_eq!(path_bytes(&text).as_deref(), Some(path), "{text}");
            assert!(!text.contains('\n'));
        }
        assert_eq!(path_text("/Äpfel".as_bytes()), "/Äpfel");
        assert_eq!(path_text(b"a\n\xff\\"), "a\\x0a\\xff\\\\");
        for wrong in ["\\", "\\x", "\\x1", "\\xg0", "\\n"] {
            assert_eq!(path_bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn requests_travel_beside_the_version_of_the_protocol() {
        let name = || VersionName::default();
        let requests = [
            VersionsRequest::Rename { of: name(), name: "n".into() },
            VersionsRequest::Hold { of: name(), held: true },
            VersionsRequest::Clone { of: name(), name: "n".into() },
            VersionsRequest::Rollback { to: name(), undo: true, how: Replacing::default() },
            VersionsRequest::Promote {
                branch: "b".into(),
                how: Replacing { discard: true, force: false },
            },
            VersionsRequest::Diff { old: name(), new: name(), skip: 3 },
            VersionsRequest::Usage,
        ];
        for request in requests {
            let command = crate::Command::Versions(VersionsAsked { mount: None, request });
            let line = serde_json::to_string(&crate::Request::new(command.clone())).unwrap();
            let request = crate::parse_request(line.as_bytes()).map(|request| request.command);
            assert_eq!(request, Ok(command), "{line}");
        }
    }

    #[test]
    fn requests_read_back_as_they_were_written() {
        let at = |text: &str| VersionName {
            branch: Some("b".into()),
            moment: Some(Moment { text: text.into(), unix_ns: Some(-5) }),
        };
        let requests = [
            VersionsRequest::List,
            VersionsRequest::Clients,
            VersionsRequest::DeleteClient { name: "c".into(), dry_run: false },
            VersionsRequest::RenameClient { client: "c".into(), name: "d".into() },
            VersionsRequest::SetQuota { client: "c".into(), quota_bytes: Some(1 << 40) },
            VersionsRequest::SetQuota { client: "c".into(), quota_bytes: None },
            VersionsRequest::Snapshot { of: VersionName::default(), name: None },
            VersionsRequest::Delete { versions: vec![at("x"), at("7")], dry_run: true },
            VersionsRequest::Undelete { from: None, path: "/a".into(), to: Some("/b".into()) },
        ];
        for request in requests {
            let text = serde_json::to_string(&request).unwrap();
            assert_eq!(serde_json::from_str::<VersionsRequest>(&text).unwrap(), request, "{text}");
        }
        let short = r#"{"action":"diff","old":{"moment":{"text":"a"}},"new":{}}"#;
        assert!(serde_json::from_str::<VersionsRequest>(short).is_ok());
        let short = r#"{"action":"rollback","to":{"moment":{"text":"a"}}}"#;
        let read = serde_json::from_str::<VersionsRequest>(short).unwrap();
        let keeps = |how: Replacing| !how.discard && !how.force;
        assert!(matches!(read, VersionsRequest::Rollback { how, undo: false, .. } if keeps(how)));
    }
}
