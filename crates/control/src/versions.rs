//! What is said about versions of a volume.
//!
//! Paths and names of files are bytes on Linux. Here they are text, in which a backslash is `\\`, and
//! a byte that is no UTF-8 or that would control a terminal is `\x` and two digits: see
//! [`path_text`] and [`path_bytes`].

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// The most changes that one reply tells.
pub const MAX_CHANGES: usize = 10_000;

/// A version, as somebody names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionName {
    /// The branch's name; nothing: that of the mount that is asked in, else the main one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The moment; nothing: how it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moment: Option<Moment>,
}

/// A moment, as somebody names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// A snapshot's name, an epoch, `head`, or a time as it was written.
    pub text: String,
    /// The time that the text means to the one who asks, nanoseconds since 1970; nothing when it
    /// means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix_ns: Option<i64>,
}

/// A question about versions, and where it is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionsAsked {
    /// The device ([`ViewInfo::device`](crate::ViewInfo::device)) of the mount that it is asked in:
    /// names without a branch refer to what is mounted there; nothing: to the main branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// The question.
    #[serde(flatten)]
    pub request: VersionsRequest,
}

/// What can be asked about versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum VersionsRequest {
    /// Which are there?
    List,
    /// What do they take?
    Usage,
    /// Keep how a branch is now.
    Snapshot {
        /// The branch.
        of: VersionName,
        /// What to call it; nothing: one that retention may thin out.
        name: Option<String>,
    },
    /// Delete all of these, or none.
    Delete {
        /// Snapshots and branches.
        versions: Vec<VersionName>,
        /// Only say what would be deleted.
        dry_run: bool,
    },
    /// Call a snapshot or a branch otherwise.
    Rename {
        /// Which.
        of: VersionName,
        /// The new name.
        name: String,
    },
    /// Say whether a snapshot must not be deleted.
    Hold {
        /// Which.
        of: VersionName,
        /// Whether it must not.
        held: bool,
    },
    /// Make a branch that goes on from a version.
    Clone {
        /// From which.
        of: VersionName,
        /// What to call it.
        name: String,
    },
    /// Make a branch the main one, which takes its name.
    Promote {
        /// Its name.
        branch: String,
        /// How.
        #[serde(default, flatten)]
        how: Replacing,
    },
    /// Put a branch in the place of the head that is meant where none is named; unless that has
    /// changed.
    Replace {
        /// The branch's name.
        with: String,
        /// The moment since when the head must be the same; nothing: it may have changed.
        since: Option<VersionName>,
        /// How.
        #[serde(default, flatten)]
        how: Replacing,
    },
    /// Put a branch back to a moment in its past, or to what an earlier one has kept.
    Rollback {
        /// The branch and the moment; without a moment, with `undo`, what was kept last.
        to: VersionName,
        /// The moment is what a rollback or a try has kept.
        #[serde(default)]
        undo: bool,
        /// How.
        #[serde(default, flatten)]
        how: Replacing,
    },
    /// What changed from one version to another?
    Diff {
        /// The one.
        old: VersionName,
        /// The other.
        new: VersionName,
        /// How many changes to pass over, as they were told before.
        #[serde(default)]
        skip: u64,
    },
    /// Which versions are there of what a path names?
    History {
        /// Where the line of history ends.
        of: VersionName,
        /// From the root of the volume.
        path: String,
    },
    /// What had a directory that it has no more?
    Removed {
        /// Where it is looked for now.
        of: VersionName,
        /// From the root of the volume.
        path: String,
    },
    /// Copy a file or a tree out of the past.
    Undelete {
        /// From when; nothing: the newest moment that has it.
        from: Option<VersionName>,
        /// From the root of the volume.
        path: String,
        /// Under which path to put it; nothing: the same.
        to: Option<String>,
    },
}

/// How another head takes the place of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacing {
    /// Throw the one away that was there; else it is kept as a snapshot or a branch.
    #[serde(default)]
    pub discard: bool,
    /// Even where files are open.
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
            Self::Delete { dry_run, .. } => !*dry_run,
            Self::Snapshot { .. } | Self::Rename { .. } | Self::Hold { .. } => true,
            Self::Clone { .. } | Self::Promote { .. } | Self::Rollback { .. } => true,
            Self::Replace { .. } => true,
            Self::Undelete { .. } => true,
        }
    }
}

/// What is answered about versions.
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
    /// [`VersionsRequest::Replace`] and [`VersionsRequest::Rollback`]: what is there now, and what
    /// became of what was.
    Branch(BranchInfo),
    /// To [`VersionsRequest::Delete`]: what was, or would be, deleted.
    Deleted(Vec<DeletedInfo>),
    /// To [`VersionsRequest::Diff`]; to [`VersionsRequest::Replace`] when nothing was done, as all
    /// of this has changed.
    Diff(DiffInfo),
    /// To [`VersionsRequest::History`]: newest first.
    History(Vec<HistoryInfo>),
    /// To [`VersionsRequest::Removed`]: in order of names.
    Removed(Vec<RemovedInfo>),
    /// To [`VersionsRequest::Undelete`].
    Restored(RestoredInfo),
    /// It was done, and there is nothing to tell.
    Done,
}

/// All versions of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionList {
    /// The epoch that is written in now.
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
    /// Whether it is meant where none is named.
    pub main: bool,
    /// The number of the branch that it was made from; nothing for the first.
    pub parent: Option<u32>,
    /// The epoch that it was made from; nothing for the first.
    pub parent_epoch: Option<u64>,
    /// When it was made, nanoseconds since 1970.
    pub created_unix_ns: i64,
    /// What it has taken the place of just now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<ReplacedInfo>,
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

/// What became of a head that another one took the place of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacedInfo {
    /// What the branch goes on from: a snapshot as `@name` or `@epoch`, or a branch as `:name`.
    pub like: String,
    /// What keeps the former head; nothing: it was thrown away, or did not differ.
    pub kept: Option<KeptInfo>,
    /// Files that were open all the same.
    #[serde(default)]
    pub open_files: Vec<OpenFileInfo>,
}

/// What keeps a head that another one took the place of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptInfo {
    /// The number of its branch.
    pub branch: u32,
    /// Its epoch; nothing: a branch, not a snapshot.
    pub epoch: Option<u64>,
    /// The name of the snapshot or the branch.
    pub name: String,
}

/// A file that a process has open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFileInfo {
    /// The process.
    pub pid: u32,
    /// What it runs.
    pub command: String,
    /// The user whose process it is, where that can be told.
    pub user: Option<String>,
    /// The file.
    pub path: String,
}

/// A snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotInfo {
    /// The number of its branch.
    pub branch: u32,
    /// The last epoch that it sees.
    pub epoch: u64,
    /// Its name; nothing for one that retention may thin out.
    pub name: Option<String>,
    /// When it was made, nanoseconds since 1970.
    pub created_unix_ns: i64,
    /// Whether it must not be deleted.
    pub held: bool,
    /// In answers to [`VersionsRequest::List`], the name of its branch; where that is gone, of the one
    /// in whose past it is, or from which it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_name: Option<String>,
}

/// What a version takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageInfo {
    /// The number of its branch.
    pub branch: u32,
    /// Its epoch; nothing for a head.
    pub epoch: Option<u64>,
    /// The name of the snapshot or the branch, if it has one.
    pub name: Option<String>,
    /// Bytes that deleting it alone would free.
    pub exclusive_bytes: u64,
    /// Bytes of what it sees.
    pub seen_bytes: u64,
}

/// What was, or would be, deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedInfo {
    /// The number of its branch.
    pub branch: u32,
    /// Its epoch; nothing for a head.
    pub epoch: Option<u64>,
    /// The name of the snapshot or the branch, if it has one.
    pub name: Option<String>,
    /// Bytes that deleting it alone would free; nothing when it was deleted without a look.
    pub exclusive_bytes: Option<u64>,
    /// Bytes that deleting all that were named would free; nothing as above.
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
    /// What was compared;
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<ViewName>,
    /// with what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<ViewName>,
}

/// A version, as the disk numbers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewName {
    /// The number of the branch.
    pub branch: u32,
    /// The last epoch that it sees; nothing: a head.
    pub epoch: Option<u64>,
}

/// A difference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeInfo {
    /// `-`, `+`, `M` or `R`, as in zfs-diff(8).
    pub change: char,
    /// `file`, `directory`, `symlink`, `fifo`, `socket`, `block` or `character`.
    pub kind: String,
    /// The path in the new version, or in the old one of what was removed.
    pub path: String,
    /// The path in the old version, of what was renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_path: Option<String>,
}

/// What a path named for a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryInfo {
    /// The number of the branch of the newest version that has it.
    pub branch: u32,
    /// The epoch of the newest version that has it; nothing: it is so now.
    pub epoch: Option<u64>,
    /// The name of that snapshot, if it has one.
    pub snapshot: Option<String>,
    /// When the oldest snapshot that has it was made, nanoseconds since 1970.
    pub since_unix_ns: Option<i64>,
    /// When the newest was made; nothing: it is so now.
    pub until_unix_ns: Option<i64>,
    /// How many snapshots have it.
    pub snapshots: usize,
    /// What it was; nothing when the path named nothing.
    pub file: Option<FileInfo>,
}

/// A file as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    /// Its i-node.
    pub inode: u64,
    /// As in [`ChangeInfo`].
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
    /// What it was there.
    pub file: FileInfo,
}

/// What was brought back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredInfo {
    /// Where it was put.
    pub path: String,
    /// The epoch that it came from.
    pub epoch: Option<u64>,
    /// Files that are no directories.
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

/// The path that `text` stands for; `None` when it has a backslash with neither another one nor `x`
/// and two digits behind it.
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
