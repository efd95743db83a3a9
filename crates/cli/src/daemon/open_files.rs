//! Who has files open in a mount.
//!
//! Files are not opened by the file system ([`dendro_fuse`] says why), so it does not know; the
//! processes' own tables do. Those of other users' processes cannot be read by a daemon that is not
//! root's.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Which open files matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// All, mapped ones too. Directories are none.
    All,
    /// Those that can be written to.
    Writable,
}

/// A process and one of the files that it has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenFile {
    pub(super) pid: u32,
    pub(super) command: String,
    pub(super) path: PathBuf,
}

const ACCESS_MODE: u32 = 0o3;
const READ_ONLY: u32 = 0;
const DIRECTORY: u32 = 0o200_000;
/// Names a file without opening it.
const PATH_ONLY: u32 = 0o10_000_000;

/// Some process that has a file open in the file system with this number (`0:52`), of those that this
/// one may look into; itself it does not count.
pub(super) fn find(device: &str, which: Which) -> Option<OpenFile> {
    let mut mounts = Mounts { device, by_namespace: HashMap::new() };
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let own = std::process::id();
    pids.filter(|&pid| pid != own).find_map(|pid| {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let path =
            open_in(&process, &mut mounts, which).or_else(|| mapped_in(&process, device, which))?;
        let command = fs::read_to_string(process.join("comm")).unwrap_or_default();
        Some(OpenFile { pid, command: command.trim().to_owned(), path })
    })
}

/// The mounts of one file system, in the mount namespaces that were met.
struct Mounts<'a> {
    device: &'a str,
    by_namespace: HashMap<PathBuf, HashSet<String>>,
}

impl Mounts<'_> {
    /// The numbers of the mounts that a process sees.
    fn of(&mut self, process: &Path) -> Option<&HashSet<String>> {
        let namespace = fs::read_link(process.join("ns/mnt")).ok()?;
        if !self.by_namespace.contains_key(&namespace) {
            let table = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
            let numbers = table.lines().filter_map(|line| {
                let mut fields = line.split(' ');
                let number = fields.next()?;
                (fields.nth(1)? == self.device).then(|| number.to_owned())
            });
            self.by_namespace.insert(namespace.clone(), numbers.collect());
        }
        self.by_namespace.get(&namespace)
    }
}

/// A file that the process has open in one of `mounts`.
fn open_in(process: &Path, mounts: &mut Mounts<'_>, which: Which) -> Option<PathBuf> {
    let numbers = mounts.of(process)?;
    if numbers.is_empty() {
        return None;
    }
    fs::read_dir(process.join("fdinfo")).ok()?.flatten().find_map(|entry| {
        let text = fs::read_to_string(entry.path()).ok()?;
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let flags = u32::from_str_radix(field("flags")?, 8).ok()?;
        let counts = flags & (DIRECTORY | PATH_ONLY) == 0
            && (which == Which::All || flags & ACCESS_MODE != READ_ONLY);
        if !counts || !numbers.contains(field("mnt_id")?) {
            return None;
        }
        let link = process.join("fd").join(entry.file_name());
        Some(fs::read_link(link).unwrap_or_default())
    })
}

/// A file of the file system `device` that the process has mapped.
fn mapped_in(process: &Path, device: &str, which: Which) -> Option<PathBuf> {
    let maps = fs::read_to_string(process.join("maps")).ok()?;
    maps.lines().find_map(|line| mapped_path(line, device, which))
}

/// The path in a line of `/proc/PID/maps`, if it counts.
fn mapped_path(line: &str, device: &str, which: Which) -> Option<PathBuf> {
    let mut fields = line.split_ascii_whitespace();
    let permissions = fields.nth(1)?;
    let (major, minor) = fields.nth(1)?.split_once(':')?;
    let number = |hexadecimal| u32::from_str_radix(hexadecimal, 16).ok();
    let is_there = format!("{}:{}", number(major)?, number(minor)?) == device;
    let is_shared_and_writable = permissions.as_bytes().get(1) == Some(&b'w')
        && permissions.as_bytes().get(3) == Some(&b's');
    let counts = which == Which::All || is_shared_and_writable;
    (is_there && counts).then(|| fields.skip(1).collect::<Vec<_>>().join(" ").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_files_are_found_by_their_device() {
        let line = "7f00-7f01 rw-s 00001000 00:35 17                 /mnt/a b";
        assert_eq!(mapped_path(line, "0:53", Which::All), Some("/mnt/a b".into()));
        assert_eq!(mapped_path(line, "0:53", Which::Writable), Some("/mnt/a b".into()));
        assert_eq!(mapped_path(line, "0:35", Which::All), None);
        let private = line.replace("rw-s", "rw-p");
        assert!(mapped_path(&private, "0:53", Which::All).is_some());
        assert_eq!(mapped_path(&private, "0:53", Which::Writable), None);
        assert_eq!(mapped_path("7f00-7f01 rw-p 0 00:00 0", "0:53", Which::All), None);
    }

    #[test]
    fn an_open_file_of_another_process_is_found() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = fs::File::create(&path).unwrap();
        let device = file.metadata().unwrap().dev();
        let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .stdin(std::process::Stdio::from(file))
            .spawn()
            .unwrap();
        let process = PathBuf::from(format!("/proc/{}", child.id()));
        let mut mounts = Mounts { device: &device, by_namespace: HashMap::new() };
        let written = open_in(&process, &mut mounts, Which::Writable);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(written, Some(path.canonicalize().unwrap()));
    }
}
