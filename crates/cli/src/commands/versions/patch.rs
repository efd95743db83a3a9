//! A difference as a patch for git-apply(1).
//!
//! The volume reports which paths may differ; the contents of both versions are then compared in
//! both trees. So a renamed file appears as deleted and added, and so does everything below a
//! renamed directory.
//!
//! - [`git`]: the format of a patch.
//! - [`tree`]: the files of a version.

mod git;
mod tree;

use std::collections::BTreeSet;
use std::io::{self, Write};

use dendro_control::versions::{ChangeInfo, DiffInfo, path_bytes, path_text};

use self::git::Side;
use self::tree::{Found, Kind, Tree};
use crate::failure::Failure;
use crate::output;
use crate::target::Keeper;

/// A longer file is an error: git takes no patch of a GiB.
const MAX_FILE_BYTES: u64 = 512 << 20;

/// Prints the patch from one version to the other. `ask` returns the changes between them from a
/// given number on, with the two versions.
pub(super) fn print(
    keeper: &Keeper,
    mut ask: impl FnMut(u64) -> Result<DiffInfo, Failure>,
) -> Result<(), Failure> {
    let mut answer = ask(0)?;
    let (Some(old), Some(new)) = (answer.old, answer.new) else {
        return Err(Failure::new("the daemon is older than this command; mount the volume anew"));
    };
    let (old, new) = (tree::open(keeper, old)?, tree::open(keeper, new)?);
    let trees = Trees::new(old, new)?;
    let mut paths = BTreeSet::new();
    let mut linked = BTreeSet::new();
    let mut count = 0;
    loop {
        count += answer.changes.len() as u64;
        for change in &answer.changes {
            trees.note_paths(change, &mut paths, &mut linked)?;
        }
        if !answer.more || answer.changes.is_empty() {
            break;
        }
        answer = ask(count)?;
    }
    if !linked.is_empty() {
        trees.note_names_of(&linked, &mut paths)?;
    }
    let mut left_out = LeftOut::default();
    let mut out = io::stdout().lock();
    for path in &paths {
        let patch = trees.patch_of(path, &mut left_out)?;
        match out.write_all(&patch) {
            // The reader has gone.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
    }
    out.flush()?;
    left_out.report();
    Ok(())
}

/// Files that no patch can contain.
#[derive(Default)]
struct LeftOut {
    special: u64,
    empty_directories: u64,
}

impl LeftOut {
    fn report(&self) {
        let Self { special, empty_directories } = self;
        if *special > 0 {
            output::message(format_args!(
                "dendro: left out {special} devices, pipes or sockets, which no patch can have"
            ));
        }
        if *empty_directories > 0 {
            output::message(format_args!(
                "dendro: left out {empty_directories} empty directories, which no patch can have"
            ));
        }
    }
}

/// Two trees, and the directory of the volume that the patch is about.
struct Trees {
    old: Tree,
    new: Tree,
    /// That directory, in the form of paths in changes: with a slash at the beginning and none at
    /// the end.
    prefix: Vec<u8>,
}

impl Trees {
    /// A fork of a directory shows only that directory, and the patch is about it.
    fn new(old: Tree, new: Tree) -> Result<Self, Failure> {
        let (of_old, of_new) = (old.shown().to_vec(), new.shown().to_vec());
        let prefix = match of_old.len() > of_new.len() {
            true => of_old,
            false => of_new,
        };
        if !is_below(&prefix, old.shown()) || !is_below(&prefix, new.shown()) {
            return Err(Failure::new(format_args!(
                "{} and {} are different directories of the volume, which have no patch",
                path_text(old.shown()),
                path_text(new.shown())
            )));
        }
        Ok(Self { old, new, prefix })
    }

    /// Records the paths that a change is about, and the changed i-nodes that may have other names,
    /// too.
    fn note_paths(
        &self,
        change: &ChangeInfo,
        paths: &mut BTreeSet<Vec<u8>>,
        linked: &mut BTreeSet<u64>,
    ) -> Result<(), Failure> {
        let path = bytes_of(&change.path)?;
        let is_renamed = change.old_path.is_some();
        if let Some(old_path) = &change.old_path {
            let old_path = bytes_of(old_path)?;
            self.note(&self.old, &old_path, is_renamed, paths)?;
        }
        self.note(&self.new, &path, is_renamed, paths)?;
        if change.change == 'M'
            && is_below(&path, &self.prefix)
            && let Some(found) = self.new.look(&path)?
            && found.kind == Kind::File
            && found.links > 1
        {
            linked.insert(found.inode);
        }
        Ok(())
    }

    /// Records a path, and with `is_deep` everything below it.
    fn note(
        &self,
        tree: &Tree,
        path: &[u8],
        is_deep: bool,
        paths: &mut BTreeSet<Vec<u8>>,
    ) -> Result<(), Failure> {
        let mut rest = vec![path.to_vec()];
        while let Some(path) = rest.pop() {
            // Of a directory above the shown one, only the shown one counts.
            let path = if is_below(&self.prefix, &path) { self.prefix.clone() } else { path };
            if !is_below(&path, &self.prefix) {
                continue;
            }
            let is_directory =
                is_deep && tree.look(&path)?.is_some_and(|found| found.kind == Kind::Directory);
            if is_directory {
                let names = tree.names(&path)?;
                rest.extend(names.iter().map(|name| joined(&path, name)));
            }
            paths.insert(path);
        }
        Ok(())
    }

    /// Records all names of changed files: a change names only one of several.
    fn note_names_of(
        &self,
        inodes: &BTreeSet<u64>,
        paths: &mut BTreeSet<Vec<u8>>,
    ) -> Result<(), Failure> {
        let mut rest = vec![self.prefix.clone()];
        while let Some(directory) = rest.pop() {
            for name in self.new.names(&directory)? {
                let path = joined(&directory, &name);
                match self.new.look(&path)? {
                    Some(found) if found.kind == Kind::Directory => rest.push(path),
                    Some(found) if inodes.contains(&found.inode) => drop(paths.insert(path)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// The patch for one path; empty if both versions are equal.
    fn patch_of(&self, path: &[u8], left_out: &mut LeftOut) -> Result<Vec<u8>, Failure> {
        let (old, new) = (self.old.look(path)?, self.new.look(path)?);
        let is_special =
            |found: &Option<Found>| matches!(found, Some(of) if of.kind == Kind::Other);
        left_out.special += u64::from(is_special(&old) || is_special(&new));
        let is_new_directory = |found: &Found| found.kind == Kind::Directory && old.is_none();
        if new.as_ref().is_some_and(is_new_directory) && self.new.names(path)?.is_empty() {
            left_out.empty_directories += 1;
        }
        let (old, new) = (side(&self.old, path, old)?, side(&self.new, path, new)?);
        let name = path[self.prefix.len()..].strip_prefix(b"/").unwrap_or_default();
        Ok(git::patch(name, old.as_ref(), new.as_ref()))
    }
}

/// A file or a symbolic link for a patch; `None` for other kinds.
fn side(tree: &Tree, path: &[u8], found: Option<Found>) -> Result<Option<Side>, Failure> {
    let Some(found) = found else { return Ok(None) };
    let mode = match found.kind {
        Kind::File if found.is_executable => git::EXECUTABLE,
        Kind::File => git::FILE,
        Kind::Symlink => git::SYMLINK,
        Kind::Directory | Kind::Other => return Ok(None),
    };
    if found.len_bytes > MAX_FILE_BYTES {
        return Err(Failure::new(format_args!(
            "{}: is too long for a patch, which git takes up to 1 GiB; rsync(1) copies it",
            path_text(path)
        )));
    }
    Ok(Some(Side { mode, content: tree.content(path, &found)? }))
}

fn bytes_of(path: &str) -> Result<Vec<u8>, Failure> {
    let bytes = path_bytes(path);
    let mut bytes =
        bytes.ok_or_else(|| Failure::new(format_args!("{path} has a stray backslash")))?;
    // The root is the only path that ends with a slash.
    if bytes == b"/" {
        bytes.clear();
    }
    Ok(bytes)
}

/// Whether `path` is `directory` or lies below it.
fn is_below(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    [directory, b"/", name].concat()
}
