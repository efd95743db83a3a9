//! Processes that have files open in a mount.
//!
//! The file system gets no requests to open files ([`dendro_fuse`] explains why), so it does not
//! know; the tables of the processes do. A daemon that does not run as root cannot read those of
//! other users' processes.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dendro_control::versions::OpenFileInfo;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::table;
use crate::text;

/// Which open files matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All files, mapped ones too, but no directories.
    All,
    /// Files that are open for writing.
    Writable,
    /// All that keeps the mount busy: directories too, and those that processes work in.
    Busy,
}

/// The most processes that are reported.
const MAX_FOUND: usize = 64;
/// So many are named in a message.
const MAX_NAMED: usize = 4;

const ACCESS_MODE: u32 = 0o3;
const READ_ONLY: u32 = 0;
const DIRECTORY: u32 = 0o200_000;
/// `O_PATH`: the descriptor only names a file.
const PATH_ONLY: u32 = 0o10_000_000;

/// The size of the buffer for the table of a process's memory.
const BUFFER_BYTES: usize = 1 << 16;

/// The processes that have a file open in the file system with this number (`0:52`), each with one
/// such file. Only processes that this one may inspect are found; this one does not count.
pub fn find(device: &str, which: Which) -> Vec<OpenFileInfo> {
    let Some(device) = parse_device(device) else { return Vec::new() };
    let mut buffer = Vec::with_capacity(BUFFER_BYTES);
    let found = other_processes().filter_map(|(pid, process)| {
        let path = open_in(&process, device, which)
            .or_else(|| mapped_in(&process, device, which, &mut buffer))
            .or_else(|| worked_in(&process, device).filter(|_| which == Which::Busy))?;
        let command = fs::read_to_string(process.join("comm")).unwrap_or_default();
        let command = text::printable(command.trim());
        let path = text::printable(&path.to_string_lossy());
        Some(OpenFileInfo { pid, command, user: user_of(&process), path })
    });
    found.take(MAX_FOUND).collect()
}

/// Opens and closes each file that a process has open for writing in the file system with this
/// number. Only files of processes that this one may inspect are found.
pub fn close_each_written(device: &str) {
    let Some(device) = parse_device(device) else { return };
    for (_, process) in other_processes() {
        let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        for link in files.map(|entry| entry.path()) {
            if is_in(&link, device)
                && is_open_for(&process, &link, Which::Writable)
                && fs::metadata(&link).is_ok_and(|file| file.is_file())
            {
                drop(File::open(link));
            }
        }
    }
}

fn parse_device(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The processes besides this one, each with its directory.
fn other_processes() -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let own = std::process::id();
    pids.filter(move |&pid| pid != own).map(|pid| (pid, PathBuf::from(format!("/proc/{pid}"))))
}

/// The user of the process, by name, or by number if there is no name.
fn user_of(process: &Path) -> Option<String> {
    let uid = fs::metadata(process).ok()?.uid().to_string();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    });
    Some(name.unwrap_or_else(|| format!("user {uid}")))
}

/// A file of the file system `device` that the process has open.
fn open_in(process: &Path, device: (u32, u32), which: Which) -> Option<PathBuf> {
    let files = fs::read_dir(process.join("fd")).ok()?.flatten();
    files.map(|entry| entry.path()).find_map(|link| {
        if !is_in(&link, device) {
            return None;
        }
        if which == Which::Busy {
            return Some(fs::read_link(&link).unwrap_or_default());
        }
        let counts = is_open_for(process, &link, which);
        counts.then(|| fs::read_link(&link).unwrap_or_default())
    })
}

/// Whether the process has a file open there, and so that it counts.
fn is_open_for(process: &Path, link: &Path, which: Which) -> bool {
    let flags = || {
        let text = fs::read_to_string(process.join("fdinfo").join(link.file_name()?)).ok()?;
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
        u32::from_str_radix(flags.trim(), 8).ok()
    };
    flags().is_some_and(|flags| {
        flags & (DIRECTORY | PATH_ONLY) == 0
            && (which == Which::All || flags & ACCESS_MODE != READ_ONLY)
    })
}

/// Whether what the link names is in the file system `device`: without asking the one behind it,
/// which may be this process, or one that does not answer.
fn is_in(link: &Path, device: (u32, u32)) -> bool {
    let flags = AtFlags::STATX_DONT_SYNC;
    statx(CWD, link, flags, StatxFlags::empty())
        .is_ok_and(|file| (file.stx_dev_major, file.stx_dev_minor) == device)
}

/// The directory of the file system `device` that the process works in, or has as its root.
fn worked_in(process: &Path, device: (u32, u32)) -> Option<PathBuf> {
    let links = ["cwd", "root"].map(|name| process.join(name));
    links.iter().find(|link| is_in(link, device)).and_then(|link| fs::read_link(link).ok())
}

/// That the mount on `mount_point`, of the file system with this number, is busy: what keeps it so,
/// and what takes it away all the same.
pub fn busy_text(mount_point: &Path, device: &str, advice: &str) -> String {
    let place = mount_point.display();
    let mut used: Vec<String> = find(device, Which::Busy).iter().map(describe).collect();
    let table = table::read().unwrap_or_default();
    let is_below = |place: &PathBuf| place.starts_with(mount_point) && place != mount_point;
    let below = table.into_iter().map(|entry| entry.mount_point).filter(is_below);
    used.extend(below.map(|place| format!("a mount on {}", place.display())));
    if used.is_empty() {
        return format!(
            "{place} is busy: a process has a file open there or works in that directory; root can \
             see which"
        );
    }
    let more = match used.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    used.truncate(MAX_NAMED);
    format!(
        "{place} is busy: in use are {}{more}; end that first, or use {advice}",
        used.join(", ")
    )
}

/// A file of the file system `device` that the process has mapped.
fn mapped_in(
    process: &Path,
    device: (u32, u32),
    which: Which,
    buffer: &mut Vec<u8>,
) -> Option<PathBuf> {
    buffer.clear();
    File::open(process.join("maps")).ok()?.read_to_end(buffer).ok()?;
    let mut lines = buffer.split(|&byte| byte == b'\n');
    lines.find_map(|line| mapped_path(&String::from_utf8_lossy(line), device, which))
}

/// The path in a line of `/proc/PID/maps`, if it counts.
fn mapped_path(line: &str, device: (u32, u32), which: Which) -> Option<PathBuf> {
    let mut fields = line.split_ascii_whitespace();
    let permissions = fields.nth(1)?;
    let (major, minor) = fields.nth(1)?.split_once(':')?;
    let number = |hexadecimal| u32::from_str_radix(hexadecimal, 16).ok();
    let is_there = (number(major)?, number(minor)?) == device;
    let is_shared_and_writable = permissions.as_bytes().get(1) == Some(&b'w')
        && permissions.as_bytes().get(3) == Some(&b's');
    let counts = which != Which::Writable || is_shared_and_writable;
    (is_there && counts).then(|| fields.skip(1).collect::<Vec<_>>().join(" ").into())
}

/// Describes an open file and its process.
#[must_use]
pub fn describe(file: &OpenFileInfo) -> String {
    let user = file.user.as_ref().map(|user| format!(" of {user}")).unwrap_or_default();
    format!("{} by process {} ({}{user})", file.path, file.pid, file.command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_files_are_found_by_their_device() {
        let line = "7f00-7f01 rw-s 00001000 00:35 17                 /mnt/a b";
        assert_eq!(mapped_path(line, (0, 53), Which::All), Some("/mnt/a b".into()));
        assert_eq!(mapped_path(line, (0, 53), Which::Writable), Some("/mnt/a b".into()));
        assert_eq!(mapped_path(line, (0, 35), Which::All), None);
        let private = line.replace("rw-s", "rw-p");
        assert!(mapped_path(&private, (0, 53), Which::All).is_some());
        assert_eq!(mapped_path(&private, (0, 53), Which::Writable), None);
        assert_eq!(mapped_path("7f00-7f01 rw-p 0 00:00 0", (0, 53), Which::All), None);
    }

    #[test]
    fn an_open_file_of_another_process_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = fs::File::create(&path).unwrap();
        let device = file.metadata().unwrap().dev();
        let device = (rustix::fs::major(device), rustix::fs::minor(device));
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .stdin(std::process::Stdio::from(file))
            .spawn()
            .unwrap();
        let process = PathBuf::from(format!("/proc/{}", child.id()));
        let written = open_in(&process, device, Which::Writable);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(written, Some(path.canonicalize().unwrap()));
        assert_eq!(parse_device("0:52"), Some((0, 52)));
        assert_eq!(parse_device("52"), None);
    }
}
