//! Where the files of a volume get their names: in the root, or in directories in directories, with
//! other things beside them.

use dendro_base::Rng;
use dendro_fs::{Attr, Caller, FileKind, FileSystem, FsError, Ino, RenameFlags, XattrFlags};

/// Who makes everything.
pub(super) const ROOT: Caller<'static> = Caller { uid: 0, gid: 0, umask: 0, security_context: &[] };

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

    /// The directory that the next file is made in.
    pub(super) fn directory_for_file(&mut self, fs: &FileSystem) -> Result<Ino, FsError> {
        if let Some((current, files)) = &mut self.current
            && *files < self.files_each
        {
            *files += 1;
            return Ok(*current);
        }
        let above = match self.current.take() {
            Some((current, _)) if !self.made.is_multiple_of(self.depth) => current,
            _ => Ino::ROOT,
        };
        self.made += 1;
        let name = format!("directory-{:06}", self.made);
        let made = fs.mkdir(&ROOT, above, name.as_bytes(), 0o755)?.ino;
        fs.forget(made, 1);
        self.current = Some((made, 1));
        Ok(made)
    }

    /// Beside some files, makes something else: one more name, a symbolic link, an attribute, or
    /// another name in place of the first one.
    pub(super) fn add_other(
        &mut self,
        fs: &FileSystem,
        ino: Ino,
        parent: Ino,
        name: &str,
    ) -> Result<(), FsError> {
        if self.rng.below(100) >= self.other_percent {
            return Ok(());
        }
        let other = format!("{name}-other");
        let bytes = vec![b'x'; 1 + self.rng.below(3000) as usize];
        let is_made = |attr: Attr| fs.forget(attr.ino, 1);
        match self.rng.below(4) {
            0 => fs.link(ino, parent, other.as_bytes()).map(is_made),
            1 => fs.symlink(&ROOT, parent, other.as_bytes(), &bytes).map(is_made),
            2 => fs.setxattr(ino, b"user.other", &bytes, XattrFlags::default()),
            _ => {
                let (from, to) = (name.as_bytes(), other.as_bytes());
                fs.rename(&ROOT, parent, from, parent, to, RenameFlags::default())
            }
        }
    }
}

/// The names in a directory; none if it was removed.
pub(super) fn names_in(fs: &FileSystem, directory: Ino) -> Result<Vec<Name>, FsError> {
    let mut names = Vec::new();
    let read = fs.readdir(directory, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            let name = entry.name.to_vec();
            names.push(Name { ino: entry.ino, kind: entry.kind, name });
        }
        true
    });
    match read {
        Ok(()) | Err(FsError::NotFound | FsError::Stale) => Ok(names),
        Err(error) => Err(error),
    }
}
