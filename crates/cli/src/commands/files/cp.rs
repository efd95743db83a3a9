//! `dendro cp`: copies files out of a volume, with all that they have.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use dendro_daemon::text;
use dendro_fs::{Attr, FileKind, FileSystem, FsError, Ino};
use serde::Serialize;

use super::content::{Part, for_each_part};
use super::place::{Destination, Names, Xattr, is_sound_name};
use super::state;
use super::tree::{absolute, entries, find, joined, shown};
use crate::args::files::CpArgs;
use crate::failure::Failure;
use crate::output::{self, json};

/// How many problems the JSON output lists; all are reported on standard error.
const MAX_LISTED_PROBLEMS: usize = 10_000;

/// What was copied, and what was not.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Outcome {
    copied_files: u64,
    copied_directories: u64,
    copied_bytes: u64,
    lost_bytes: u64,
    problem_count: u64,
    problems: Vec<Problem>,
}

/// A file that was not copied, or not all of it.
#[derive(Debug, Serialize)]
struct Problem {
    path: String,
    problem: String,
}

/// A file to copy: where it lies in the volume, and where it goes.
struct Task {
    path: Vec<u8>,
    ino: Ino,
    to: Names,
}

/// A run of the command.
struct Copier<'a> {
    fs: &'a FileSystem,
    destination: &'a Destination,
    keep_going: bool,
    outcome: Outcome,
    /// Copies of files with several names.
    linked: BTreeMap<Ino, Names>,
    /// Directories that were copied: on a damaged volume one may be below itself.
    seen: BTreeSet<Ino>,
    /// Directories that get their attributes when all is in them.
    unfinished: Vec<(Vec<u8>, Names, Attr)>,
}

pub(crate) fn run(args: &CpArgs, quiet: bool) -> Result<(), Failure> {
    let opened = state::open(&args.target, quiet)?;
    let Some((to, paths)) = args.paths.split_last() else {
        unreachable!("two are required");
    };
    let CpArgs { recursive, keep_going, json, .. } = *args;
    let output = if json { Output::Json } else { Output::Text { quiet } };
    match copy(&opened.fs, paths, to, How { recursive, keep_going }, output)? {
        0 => Ok(()),
        1 => Err(opened.fail("one file was not copied, or not all of it, see above")),
        count => {
            Err(opened.fail(format_args!("{count} files were not copied, or not all, see above")))
        }
    }
}

/// How files are copied.
#[derive(Clone, Copy)]
pub(crate) struct How {
    /// Directories with all that is in them.
    pub(crate) recursive: bool,
    /// With holes for what cannot be read.
    pub(crate) keep_going: bool,
}

/// How the outcome is printed.
#[derive(Clone, Copy)]
pub(crate) enum Output {
    Json,
    Text { quiet: bool },
}

/// Copies the files at `paths` to `to`, a directory or a new name. Prints what was copied, and
/// returns how many files were not.
pub(crate) fn copy(
    fs: &FileSystem,
    paths: &[OsString],
    to: &OsStr,
    how: How,
    output: Output,
) -> Result<u64, Failure> {
    let (destination, new_name) = Destination::find(to)?;
    if new_name.is_some() && paths.len() > 1 {
        return Err(Failure::new(format_args!(
            "{}: there is no such directory, into which several files go",
            to.display()
        )));
    }
    let mut copier = Copier::new(fs, &destination, how.keep_going);
    let copied = paths.iter().try_for_each(|path| {
        let name = new_name.as_ref().map(|name| name.as_bytes());
        copier.copy_named(&absolute(path), name, how.recursive)
    });
    let finished = copier.finish_directories();
    let outcome = copier.outcome;
    if matches!(output, Output::Json) {
        json::print(&outcome)?;
    }
    copied.and(finished)?;
    if matches!(output, Output::Text { quiet: false }) {
        output::print(&format!("{}\n", outcome.text()))?;
    }
    Ok(outcome.problem_count)
}

/// Copies all files of a version into the directory `to`, as far as they can be read.
pub(crate) fn copy_all(fs: &FileSystem, to: &Path) -> Result<Outcome, Failure> {
    let (destination, new_name) = Destination::find(to.as_os_str())?;
    if new_name.is_some() {
        return Err(Failure::new(format_args!("{}: there is no such directory", to.display())));
    }
    let mut copier = Copier::new(fs, &destination, true);
    copier.copy_named(b"/", None, true)?;
    copier.finish_directories()?;
    Ok(copier.outcome)
}

impl Outcome {
    /// Whether something was not copied, or not all of it.
    pub(crate) const fn is_partial(&self) -> bool {
        self.problem_count > 0
    }

    /// How much was copied.
    pub(crate) fn text(&self) -> String {
        format!(
            "{}, {}, {}",
            text::counted(self.copied_files, "file", "files"),
            text::counted(self.copied_directories, "directory", "directories"),
            text::size(self.copied_bytes)
        )
    }
}

impl<'a> Copier<'a> {
    fn new(fs: &'a FileSystem, destination: &'a Destination, keep_going: bool) -> Self {
        Self {
            fs,
            destination,
            keep_going,
            outcome: Outcome::default(),
            linked: BTreeMap::new(),
            seen: BTreeSet::new(),
            unfinished: Vec::new(),
        }
    }

    /// Reports a problem. The copy goes on if the user wants that.
    fn problem(&mut self, path: &[u8], why: &dyn std::fmt::Display) -> Result<(), Failure> {
        let name = shown(path);
        self.outcome.problem_count += 1;
        if self.outcome.problems.len() < MAX_LISTED_PROBLEMS {
            let problem = Problem { path: name.clone(), problem: why.to_string() };
            self.outcome.problems.push(problem);
        }
        if !self.keep_going {
            return Err(Failure::new(format_args!(
                "{name}: {why}; --keep-going goes on with the rest"
            )));
        }
        output::message(format_args!("dendro: {name}: {why}"));
        Ok(())
    }

    /// Copies what the user has named. The root of the volume has no name: what is in it is copied
    /// into a directory that exists.
    fn copy_named(
        &mut self,
        path: &[u8],
        new_name: Option<&[u8]>,
        recursive: bool,
    ) -> Result<(), Failure> {
        let attr = match find(self.fs, path, false) {
            Ok(attr) => attr,
            Err(error) => return self.problem(path, &error),
        };
        let own_name = path.rsplit(|&byte| byte == b'/').find(|name| !name.is_empty());
        if attr.kind == FileKind::Directory && !recursive {
            return self.problem(path, &"is a directory, which -r copies");
        }
        let mut tasks = Vec::new();
        match new_name.or(own_name).filter(|name| is_sound_name(name)) {
            Some(name) => {
                let to = vec![name.to_vec()];
                tasks.push(Task { path: path.to_vec(), ino: attr.ino, to });
            }
            None => self.add_entries(path, attr.ino, &[], &mut tasks)?,
        }
        while let Some(task) = tasks.pop() {
            self.copy(task, &mut tasks)?;
        }
        Ok(())
    }

    fn copy(&mut self, task: Task, tasks: &mut Vec<Task>) -> Result<(), Failure> {
        let Task { path, ino, to } = task;
        let attr = match self.fs.getattr(ino) {
            Ok(attr) => attr,
            Err(error) => return self.problem(&path, &error),
        };
        if attr.kind == FileKind::Directory {
            if let Err(error) = self.destination.make_directory(&to) {
                return self.problem(&path, &format_args!("cannot be made: {error}"));
            }
            self.outcome.copied_directories += 1;
            self.unfinished.push((path.clone(), to.clone(), attr));
            return self.add_entries(&path, ino, &to, tasks);
        }
        if let Some(first) = self.linked.get(&ino) {
            return match self.destination.link(first, &to) {
                Ok(()) => Ok(()),
                Err(error) => self.problem(&path, &format_args!("cannot be linked: {error}")),
            };
        }
        let made = match attr.kind {
            FileKind::Regular => return self.copy_file(&path, to, &attr),
            FileKind::Symlink => match self.fs.readlink(ino) {
                Ok(target) => self.destination.make_symlink(&to, &target),
                Err(error) => return self.problem(&path, &error),
            },
            _ => self.destination.make_special(&to, &attr),
        };
        if let Err(error) = made {
            return self.problem(&path, &format_args!("cannot be made: {error}"));
        }
        self.outcome.copied_files += 1;
        self.finish(&path, &to, &attr)?;
        self.note_links(&attr, to);
        Ok(())
    }

    fn note_links(&mut self, attr: &Attr, to: Names) {
        if attr.nlink > 1 {
            self.linked.insert(attr.ino, to);
        }
    }

    fn add_entries(
        &mut self,
        path: &[u8],
        directory: Ino,
        to: &[Vec<u8>],
        tasks: &mut Vec<Task>,
    ) -> Result<(), Failure> {
        if !self.seen.insert(directory) {
            return self.problem(path, &"a directory that was copied before, under another name");
        }
        let (entries, problem) = entries(self.fs, directory);
        for entry in entries.into_iter().rev() {
            let path = joined(path, &entry.name);
            if !is_sound_name(&entry.name) {
                self.problem(&path, &"a name that no file can have")?;
                continue;
            }
            let to = to.iter().cloned().chain([entry.name]).collect();
            tasks.push(Task { path, ino: entry.ino, to });
        }
        match problem {
            Some(why) => self.problem(path, &format_args!("there may be more in it: {why}")),
            None => Ok(()),
        }
    }

    fn copy_file(&mut self, path: &[u8], to: Names, attr: &Attr) -> Result<(), Failure> {
        let file = match self.destination.make_file(&to) {
            Ok(fd) => File::from(fd),
            Err(error) => return self.problem(path, &format_args!("cannot be made: {error}")),
        };
        let name = shown(path);
        let (mut data_bytes, mut lost_bytes) = (0, 0);
        let mut first_loss: Option<(u64, FsError)> = None;
        let keep_going = self.keep_going;
        let written = for_each_part(self.fs, attr, |offset_bytes, len_bytes, part| {
            match part {
                Part::Hole => {}
                Part::Data(bytes) => {
                    file.write_all_at(bytes, offset_bytes)
                        .map_err(|error| Failure::new(format_args!("writing {name}: {error}")))?;
                    data_bytes += len_bytes;
                }
                Part::Lost(why) if keep_going => {
                    lost_bytes += len_bytes;
                    first_loss.get_or_insert_with(|| (offset_bytes, why.clone()));
                }
                Part::Lost(why) => {
                    return Err(Failure::new(format_args!(
                        "{name}: {len_bytes} bytes from byte {offset_bytes} on cannot be read: \
                         {why}; --keep-going leaves a hole for them"
                    )));
                }
            }
            Ok(())
        });
        let written = written.and_then(|()| {
            file.set_len(attr.size_bytes)
                .map_err(|error| Failure::new(format_args!("writing {name}: {error}")))
        });
        if let Err(failure) = written {
            // Half a file would be taken for a whole one.
            let _ = self.destination.remove(&to);
            return Err(failure);
        }
        self.outcome.copied_files += 1;
        self.outcome.copied_bytes += data_bytes;
        self.outcome.lost_bytes += lost_bytes;
        self.finish(path, &to, attr)?;
        self.note_links(attr, to);
        match first_loss {
            None => Ok(()),
            Some((offset, why)) => self.problem(
                path,
                &format_args!(
                    "{lost_bytes} bytes cannot be read, the first at byte {offset}: {why}; they are \
                     holes in the copy"
                ),
            ),
        }
    }

    /// Sets the attributes of a copy.
    fn finish(&mut self, path: &[u8], to: &[Vec<u8>], attr: &Attr) -> Result<(), Failure> {
        let xattrs = match self.xattrs(attr.ino) {
            Ok(xattrs) => xattrs,
            Err(error) => {
                self.problem(path, &format_args!("its extended attributes: {error}"))?;
                Vec::new()
            }
        };
        match self.destination.finish(to, attr, &xattrs) {
            Err(error) => self.problem(path, &format_args!("its attributes: {error}")),
            Ok(refused) => refused.iter().try_for_each(|(name, error)| {
                self.problem(path, &format_args!("its attribute {}: {error}", shown(name)))
            }),
        }
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>, FsError> {
        let list = self.fs.listxattr(ino)?;
        let names = list.split(|&byte| byte == 0).filter(|name| !name.is_empty());
        names.map(|name| Ok((name.to_vec(), self.fs.getxattr(ino, name)?))).collect()
    }

    /// Sets the attributes of directories, those below first.
    fn finish_directories(&mut self) -> Result<(), Failure> {
        while let Some((path, to, attr)) = self.unfinished.pop() {
            self.finish(&path, &to, &attr)?;
        }
        Ok(())
    }
}
