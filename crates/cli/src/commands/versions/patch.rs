//! A difference as a patch that git-apply(1) takes.
//!
//! Which paths can differ the volume tells; what is there in either version is looked at in both trees.
//! So a file that was renamed is told as deleted and added, and so is all below a directory that was.
//!
//! - [`git`]: what a patch looks like.
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

/// A file that is longer is in no patch: git takes no patch of a GiB.
const MAX_FILE_BYTES: u64 = 512 << 20;

/// Prints the patch from one version to the other. `ask` tells the changes between them from the one on of
/// that number, with the two versions.
pub(super) fn print(
    keeper: &Keeper,
    mut ask: impl FnMut(u64) -> Result<DiffInfo, Failure>,
) -> Result<(), Failure> {
    let mut told = ask(0)?;
    let (Some(old), Some(new)) = (told.old, told.new) else {
        return Err(Failure::new("the daemon is older than this command; mount the volume anew"));
    };
    let (old, new) = (tree::open(keeper, old)?, tree::open(keeper, new)?);
    let trees = Trees::new(old, new)?;
    let mut paths = BTreeSet::new();
    let mut linked = BTreeSet::new();
    let mut count = 0;
    loop {
        count += told.changes.len() as u64;
        for change in &told.changes {
            trees.note_paths(change, &mut paths, &mut linked)?;
        }
        if !told.more || told.changes.is_empty() {
            break;
        }
        told = ask(count)?;
    }
    if !linked.is_empty() {
        trees.note_names_of(&linked, &mut paths)?;
    }
    let mut left_out = LeftOut::default();
    let mut out = io::stdout().lock();
    for path in &paths {
        let patch = trees.patch_of(path, &mut left_out)?;
        match out.write_all(&patch) {
            // A reader that has gone.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
    }
    out.flush()?;
    left_out.tell();
    Ok(())
}

/// What no patch can have.
#[derive(Default)]
struct LeftOut {
    special: u64,
    empty_directories: u64,
}

impl LeftOut {
    fn tell(&self) {
        let Self { special, empty_directories } = self;
        if *special > 0 {
            output::tell(format_args!(
                "dendro: left out {special} devices, pipes or sockets, which no patch can have"
            ));
        }
        if *empty_directories > 0 {
            output::tell(format_args!(
                "dendro: left out {empty_directories} empty directories, which no patch can have"
            ));
        }
    }
}

/// Two trees, and which directory of the volume the patch is of.
struct Trees {
    old: Tree,
    new: Tree,
    /// That directory, as paths in changes begin: with a slash, and without one at the end.
    prefix: Vec<u8>,
}

impl Trees {
    /// A fork of a directory shows that directory alone; then it is what the patch is of.
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

    /// Notes which paths a change is about, and which i-nodes have changed that other names may have, too.
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

    /// Notes a path, and with `is_deep` all below it.
    fn note(
        &self,
        tree: &Tree,
        path: &[u8],
        is_deep: bool,
        paths: &mut BTreeSet<Vec<u8>>,
    ) -> Result<(), Failure> {
        let mut rest = vec![path.to_vec()];
        while let Some(path) = rest.pop() {
            // Of a directory above the one that is shown, that one is all that counts.
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

    /// Notes all names that files have which have changed: of one with several, a change is told of one.
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

    /// What turns what `path` named into what it names; nothing if that is the same.
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

/// A file or a symbolic link as a patch has it; nothing for what none has.
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
    // The root is the one that ends with a slash.
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
