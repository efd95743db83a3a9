//! `dendro ls`: what directories contain.

use std::collections::BTreeSet;

use dendro_control::versions::path_text;
use dendro_fs::{Attr, FileKind, FileSystem, FsError};
use serde::Serialize;

use super::state;
use super::tree::{Entry, absolute, entries, find, joined, shown};
use crate::args::files::LsArgs;
use crate::failure::Failure;
use crate::output::local_time::time;
use crate::output::{self, columns, json};

const NS_PER_S: i64 = 1_000_000_000;

/// A file in a listing.
struct Row {
    name: Vec<u8>,
    inode: u64,
    /// What is known of it; an error if it cannot be read.
    found: Result<(Attr, Option<Vec<u8>>), FsError>,
}

/// A listing.
#[derive(Serialize)]
struct Listing {
    path: String,
    entries: Vec<FileFacts>,
}

/// A file. All but its name and number is `None` if it cannot be read.
#[derive(Serialize)]
struct FileFacts {
    name: String,
    inode: u64,
    kind: Option<&'static str>,
    mode: Option<String>,
    link_count: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size_bytes: Option<u64>,
    allocated_bytes: Option<u64>,
    modified_unix_ns: Option<i64>,
    target: Option<String>,
    problem: Option<String>,
}

/// A run of the command.
struct Lister<'a> {
    fs: &'a FileSystem,
    args: &'a LsArgs,
    problem_count: u64,
    /// Whether a listing was printed, so that an empty line goes before the next one.
    has_printed: bool,
    /// Directories that were listed: on a damaged volume one may be below itself.
    seen: BTreeSet<u64>,
}

pub(crate) fn run(args: &LsArgs, quiet: bool) -> Result<(), Failure> {
    let opened = state::open(&args.target, quiet)?;
    let mut lister = Lister {
        fs: &opened.fs,
        args,
        problem_count: 0,
        has_printed: false,
        seen: BTreeSet::new(),
    };
    for path in &args.paths {
        lister.list(&absolute(path))?;
    }
    match lister.problem_count {
        0 => Ok(()),
        _ => Err(opened.fail("not all could be read, see above")),
    }
}

impl Lister<'_> {
    fn problem(&mut self, path: &[u8], why: &dyn std::fmt::Display) {
        self.problem_count += 1;
        output::message(format_args!("dendro: {}: {why}", shown(path)));
    }

    fn list(&mut self, path: &[u8]) -> Result<(), Failure> {
        // As ls(1) does: a link is followed unless it is described itself.
        let follows = !self.args.long && !self.args.directory;
        match find(self.fs, path, follows) {
            Err(error) => {
                self.problem(path, &error);
                Ok(())
            }
            Ok(attr) if attr.kind == FileKind::Directory && !self.args.directory => {
                self.list_directories(path, attr)
            }
            Ok(attr) => {
                let row = self.row(path, Entry { name: path.to_vec(), ino: attr.ino });
                self.print(path, vec![row])
            }
        }
    }

    fn list_directories(&mut self, path: &[u8], attr: Attr) -> Result<(), Failure> {
        let mut rest = vec![(path.to_vec(), attr.ino)];
        while let Some((path, directory)) = rest.pop() {
            if !self.seen.insert(directory.0) && self.args.recursive {
                self.problem(&path, &"a directory that was listed before, under another name");
                continue;
            }
            let (entries, problem) = entries(self.fs, directory);
            let mut rows = Vec::with_capacity(entries.len());
            for entry in entries {
                let below = joined(&path, &entry.name);
                rows.push(self.row(&below, entry));
            }
            if self.args.recursive {
                let is_directory = |row: &&Row| matches!(&row.found, Ok((attr, _)) if attr.kind == FileKind::Directory);
                let below = rows.iter().rev().filter(is_directory);
                rest.extend(below.map(|row| (joined(&path, &row.name), dendro_fs::Ino(row.inode))));
            }
            self.print(&path, rows)?;
            if let Some(problem) = problem {
                self.problem(&path, &format_args!("there may be more in it: {problem}"));
            }
        }
        Ok(())
    }

    fn row(&mut self, path: &[u8], entry: Entry) -> Row {
        let look = || {
            let attr = self.fs.getattr(entry.ino)?;
            let is_link = attr.kind == FileKind::Symlink;
            let target = is_link.then(|| self.fs.readlink(entry.ino)).transpose()?;
            Ok((attr, target))
        };
        let found = look();
        if let Err(error) = &found {
            self.problem(path, error);
        }
        Row { name: entry.name, inode: entry.ino.0, found }
    }

    fn print(&mut self, path: &[u8], rows: Vec<Row>) -> Result<(), Failure> {
        if self.args.json {
            let entries = rows.into_iter().map(FileFacts::from).collect();
            return output::print(&json::line(&Listing { path: path_text(path), entries })?);
        }
        let mut text = String::new();
        if self.args.recursive || self.args.paths.len() > 1 {
            let gap = if self.has_printed { "\n" } else { "" };
            text += &format!("{gap}{}:\n", shown(path));
        }
        self.has_printed = true;
        match self.args.long {
            true => text += &long(&rows),
            false => rows.iter().for_each(|row| text += &format!("{}\n", path_text(&row.name))),
        }
        output::print(&text)
    }
}

fn long(rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let cells = |row: &Row| {
        let name = path_text(&row.name);
        match &row.found {
            Err(_) => ["?", "?", "?", "?", "?", "?"].map(str::to_owned).to_vec(),
            Ok((attr, _)) => vec![
                mode_text(attr),
                attr.nlink.to_string(),
                attr.uid.to_string(),
                attr.gid.to_string(),
                match attr.kind {
                    FileKind::BlockDevice | FileKind::CharDevice => device_text(attr.rdev),
                    _ => attr.size_bytes.to_string(),
                },
                time(modified_unix_ns(attr)),
            ],
        }
        .into_iter()
        .chain([match &row.found {
            Ok((_, Some(target))) => format!("{name} -> {}", path_text(target)),
            _ => name,
        }])
        .collect::<Vec<_>>()
        .try_into()
        .unwrap_or_else(|_| unreachable!("seven cells"))
    };
    let rows: Vec<[String; 7]> = rows.iter().map(cells).collect();
    columns(["MODE", "LINKS", "OWNER", "GROUP", "SIZE", "WRITTEN", "NAME"], &rows, &[1, 4])
}

fn modified_unix_ns(attr: &Attr) -> i64 {
    attr.mtime.secs.saturating_mul(NS_PER_S).saturating_add(attr.mtime.nanos.into())
}

/// `major, minor`, from Linux's 32-bit encoding.
fn device_text(rdev: u32) -> String {
    let (major, minor) = ((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00));
    format!("{major}, {minor}")
}

/// `-rwxr-xr-x`
fn mode_text(attr: &Attr) -> String {
    let kind = match attr.kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::BlockDevice => 'b',
        FileKind::CharDevice => 'c',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = attr.perm >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (attr.perm & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

impl From<Row> for FileFacts {
    fn from(row: Row) -> Self {
        let name = path_text(&row.name);
        let (found, problem) = match row.found {
            Ok(found) => (Some(found), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let attr = found.as_ref().map(|(attr, _)| attr);
        Self {
            name,
            inode: row.inode,
            kind: attr.map(|attr| attr.kind.name()),
            mode: attr.map(|attr| format!("{:04o}", attr.perm)),
            link_count: attr.map(|attr| attr.nlink),
            uid: attr.map(|attr| attr.uid),
            gid: attr.map(|attr| attr.gid),
            size_bytes: attr.map(|attr| attr.size_bytes),
            allocated_bytes: attr.map(|attr| attr.blocks_512.saturating_mul(512)),
            modified_unix_ns: attr.map(modified_unix_ns),
            problem,
            target: found.and_then(|(_, target)| target).map(|target| path_text(&target)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendro_fs::{FileFlags, FileTime, Ino};

    #[test]
    fn modes_are_written_as_ls_writes_them() {
        let attr = |kind, perm| Attr {
            ino: Ino(1),
            generation: 0,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size_bytes: 0,
            blocks_512: 0,
            atime: FileTime::default(),
            mtime: FileTime::default(),
            ctime: FileTime::default(),
            btime: FileTime::default(),
            flags: FileFlags::empty(),
        };
        assert_eq!(mode_text(&attr(FileKind::Directory, 0o1777)), "drwxrwxrwt");
        assert_eq!(mode_text(&attr(FileKind::Regular, 0o4644)), "-rwSr--r--");
        assert_eq!(mode_text(&attr(FileKind::Symlink, 0o777)), "lrwxrwxrwx");
        // makedev(8, 17) and makedev(259, 300).
        assert_eq!(device_text(0x811), "8, 17");
        assert_eq!(device_text(0x11_032c), "259, 300");
    }
}
