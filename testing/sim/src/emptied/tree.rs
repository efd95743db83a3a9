//! Where the files of a volume get their names: in the root, or in directories in directories, with
//! other things beside them.

use dendro_base::Rng;
use dendro_fs::{Attr, FileKind, FsError, Ino, RenameFlags, XattrFlags};

use super::{ROOT, Session, text};
use crate::system::Outcome;

/// The directories that files are made in.
#[derive(Debug)]
pub(super) struct Tree {
    /// How many files each directory gets.
    files_each: u64,
    /// How many directories lie in each other before the next one lies in the root.
    depth: u64,
    /// Beside how many of a hundred files something else is made.
    other_percent: u64,
    /// How many directories have been made.
    made: u64,
    /// The directory that gets files, and how many it has.
    current: Option<(Ino, u64)>,
    rng: Rng,
}

/// A name in a directory.
pub(super) struct Name {
    pub(super) ino: Ino,
    pub(super) kind: FileKind,
    pub(super) name: Vec<u8>,
}

impl Tree {
    /// The directories of `seed`; half of the volumes have none.
    pub(super) fn draw(seed: u64) -> Option<Self> {
        let mut rng = Rng::new(seed ^ 0x7ee5);
        let most_files = if rng.chance(50) { 3 } else { 300 };
        rng.chance(50).then(|| Self {
            files_each: 1 + rng.below(most_files),
            depth: 1 + rng.below(30),
            other_percent: [0, 10, 60][rng.below(3) as usize],
            made: 0,
            current: None,
            rng,
        })
    }

    /// Forgets the directory that gets files, which a crash may have taken away.
    pub(super) fn begin_again(&mut self) {
        self.current = None;
    }
}

impl Session {
    /// The directory that the next file is made in; `None` if there is no room for it.
    pub(super) fn directory_for_file(&mut self) -> Outcome<Option<Ino>> {
        let Some(tree) = &mut self.tree else { return Ok(Some(Ino::ROOT)) };
        if let Some((current, files)) = &mut tree.current
            && *files < tree.files_each
        {
            *files += 1;
            return Ok(Some(*current));
        }
        let above = match tree.current {
            Some((current, _)) if !tree.made.is_multiple_of(tree.depth) => current,
            _ => Ino::ROOT,
        };
        tree.made += 1;
        let name = format!("directory-{:06}", tree.made);
        let made = Self::fits(self.fs.mkdir(&ROOT, above, name.as_bytes(), 0o755))?;
        tree.current = made.map(|attr| (attr.ino, 1));
        Ok(made.map(|attr| {
            self.fs.forget(attr.ino, 1);
            attr.ino
        }))
    }

    /// Beside some files, makes something else: one more name, a symbolic link, an attribute, or
    /// another name in place of the first one.
    pub(super) fn add_other(&mut self, ino: Ino, parent: Ino, name: &str) -> Outcome<()> {
        let Some(tree) = &mut self.tree else { return Ok(()) };
        if tree.rng.below(100) >= tree.other_percent {
            return Ok(());
        }
        let other = format!("{name}-other");
        let bytes = vec![b'x'; 1 + tree.rng.below(3000) as usize];
        let is_made = |attr: Attr| self.fs.forget(attr.ino, 1);
        let made = match tree.rng.below(4) {
            0 => self.fs.link(ino, parent, other.as_bytes()).map(is_made),
            1 => self.fs.symlink(&ROOT, parent, other.as_bytes(), &bytes).map(is_made),
            2 => self.fs.setxattr(ino, b"user.other", &bytes, XattrFlags::default()),
            _ => {
                let (from, to) = (name.as_bytes(), other.as_bytes());
                self.fs.rename(&ROOT, parent, from, parent, to, RenameFlags::default())
            }
        };
        Self::fits(made).map(|_| ())
    }

    /// The names in a directory; none if it was removed.
    pub(super) fn names_in(&self, directory: Ino) -> Outcome<Vec<Name>> {
        let mut names = Vec::new();
        let read = self.fs.readdir(directory, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                let name = entry.name.to_vec();
                names.push(Name { ino: entry.ino, kind: entry.kind, name });
            }
            true
        });
        match read {
            Ok(()) | Err(FsError::NotFound | FsError::Stale) => Ok(names),
            Err(error) => Err(text(error)),
        }
    }

    /// Removes a directory, whose names have been removed. `crashes` had happened before they were.
    pub(super) fn remove_directory(
        &self,
        parent: Ino,
        name: &[u8],
        crashes: u64,
    ) -> Result<bool, FsError> {
        match self.fs.rmdir(parent, name) {
            Ok(()) => Ok(true),
            // A crash has brought back what was in it, or the directory was above this one.
            Err(FsError::NotFound | FsError::Stale) => Ok(false),
            Err(FsError::NotEmpty) if self.crashes != crashes => Ok(false),
            Err(error) => Err(error),
        }
    }
}
