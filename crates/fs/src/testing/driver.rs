//! Executes steps on a file system.

use dendro_base::sync::Arc;
use dendro_disk::{Chore as _, ChoreStep};

use super::{Answer, EBADF, EINVAL, FileRef, Operation, Outcome, SLOT_COUNT, Step, split_path};
use crate::error::{FsError, Result};
use crate::filesystem::FileSystem;
use crate::types::{Attr, Caller, FileKind, Ino, LongChange, OpenOptions, SetAttr, SetTime};

/// Executes steps on a file system with the calls that a kernel would make: each name is looked up,
/// and forgotten when the step ends.
pub struct Driver {
    fs: Arc<FileSystem>,
    slots: [Option<Ino>; SLOT_COUNT],
    /// The files that this step has looked up.
    looked_up: Vec<Ino>,
}

/// Why a step did not succeed.
enum Failure {
    Fs(FsError),
    Errno(i32),
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Self {
        Self::Fs(error)
    }
}

impl Driver {
    /// A driver for `fs`, without open files.
    #[must_use]
    pub fn new(fs: Arc<FileSystem>) -> Self {
        Self { fs, slots: [None; SLOT_COUNT], looked_up: Vec::new() }
    }

    /// The file system.
    #[must_use]
    pub fn fs(&self) -> &Arc<FileSystem> {
        &self.fs
    }

    /// Executes a step.
    pub fn run(&mut self, step: &Step) -> Outcome {
        let outcome = self.try_run(step).map_err(|failure| match failure {
            Failure::Fs(error) => error.errno(),
            Failure::Errno(number) => number,
        });
        self.forget_looked_up();
        outcome
    }

    /// Frees some of what steps have left to be freed in the background, as the disk would. Returns
    /// whether there was anything.
    pub fn free_some(&self) -> bool {
        self.fs.state().step() == ChoreStep::Done
    }

    /// The number of a file that exists.
    pub fn ino(&mut self, file: &FileRef) -> Option<Ino> {
        let found = self.file(file).ok();
        self.forget_looked_up();
        found
    }

    fn forget_looked_up(&mut self) {
        for ino in std::mem::take(&mut self.looked_up) {
            self.fs.forget(ino, 1);
        }
    }

    fn counted(&mut self, attr: Attr) -> Attr {
        self.looked_up.push(attr.ino);
        attr
    }

    fn resolve(&mut self, path: &str) -> Result<Attr> {
        let mut attr = self.fs.getattr(Ino::ROOT)?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            attr = self.fs.lookup(attr.ino, name.as_bytes())?;
            self.counted(attr);
        }
        Ok(attr)
    }

    fn place<'p>(&mut self, path: &'p str) -> std::result::Result<(Ino, &'p [u8]), Failure> {
        let (parent, name) = split_path(path).ok_or(Failure::Errno(EINVAL))?;
        Ok((self.resolve(parent)?.ino, name.as_bytes()))
    }

    fn file(&mut self, file: &FileRef) -> std::result::Result<Ino, Failure> {
        match file {
            FileRef::Path(path) => Ok(self.resolve(path)?.ino),
            FileRef::Slot(slot) => self.slots[*slot].ok_or(Failure::Errno(EBADF)),
        }
    }

    fn close(&mut self, slot: usize) {
        if let Some(ino) = self.slots[slot].take() {
            self.fs.release(ino);
        }
    }

    fn keep_open(&mut self, slot: usize, ino: Ino) {
        self.close(slot);
        self.slots[slot] = Some(ino);
    }

    fn set(
        &mut self,
        caller: &Caller<'_>,
        file: &FileRef,
        changes: SetAttr,
    ) -> std::result::Result<Answer, Failure> {
        let ino = self.file(file)?;
        self.fs.setattr(caller, ino, &changes)?;
        Ok(Answer::Done)
    }

    fn try_run(&mut self, step: &Step) -> std::result::Result<Answer, Failure> {
        let fs = Arc::clone(&self.fs);
        let caller = &step.caller;
        match &step.operation {
            Operation::Unlink { path } => {
                let (parent, name) = self.place(path)?;
                // The kernel has looked up what it unlinks.
                if let Ok(attr) = fs.lookup(parent, name) {
                    self.counted(attr);
                }
                fs.unlink(parent, name)?;
            }
            Operation::Rmdir { path } => {
                let (parent, name) = self.place(path)?;
                fs.rmdir(parent, name)?;
            }
            Operation::Rename { from, to, flags } => {
                let (parent, name) = self.place(from)?;
                let (new_parent, new_name) = self.place(to)?;
                fs.rename(caller, parent, name, new_parent, new_name, *flags)?;
            }
            Operation::Open { path, slot } => {
                let attr = self.resolve(path)?;
                if attr.kind != FileKind::Regular {
                    return Err(Failure::Errno(EINVAL));
                }
                fs.open(attr.ino, OpenOptions::default())?;
                self.keep_open(*slot, attr.ino);
            }
            Operation::Close { slot } => self.close(*slot),
            Operation::Fsync { file } => {
                let ino = self.file(file)?;
                fs.fsync(ino, false)?;
            }
            Operation::Sync => fs.sync_all()?,
            Operation::Create { .. }
            | Operation::Mknod { .. }
            | Operation::Mkdir { .. }
            | Operation::Symlink { .. }
            | Operation::Link { .. }
            | Operation::Tmpfile { .. } => return self.run_creation(step),
            Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::Truncate { .. }
            | Operation::Fallocate { .. }
            | Operation::CopyRange { .. } => return self.run_data(step),
            Operation::Chmod { .. }
            | Operation::Chown { .. }
            | Operation::Utimes { .. }
            | Operation::SetXattr { .. }
            | Operation::RemoveXattr { .. } => return self.run_attributes(step),
        }
        Ok(Answer::Done)
    }

    fn run_creation(&mut self, step: &Step) -> std::result::Result<Answer, Failure> {
        let fs = Arc::clone(&self.fs);
        let caller = &step.caller;
        match &step.operation {
            Operation::Create { path, mode, exclusive, slot } => {
                let (parent, name) = self.place(path)?;
                let options = OpenOptions { exclusive: *exclusive, ..OpenOptions::default() };
                let attr = fs.create(caller, parent, name, *mode, options)?;
                self.counted(attr);
                match slot {
                    Some(slot) => self.keep_open(*slot, attr.ino),
                    None => fs.release(attr.ino),
                }
            }
            Operation::Mknod { path, kind, mode, rdev } => {
                let (parent, name) = self.place(path)?;
                let attr = fs.mknod(caller, parent, name, kind.mode_bits() | mode, *rdev)?;
                self.counted(attr);
            }
            Operation::Mkdir { path, mode } => {
                let (parent, name) = self.place(path)?;
                let attr = fs.mkdir(caller, parent, name, *mode)?;
                self.counted(attr);
            }
            Operation::Symlink { path, target } => {
                let (parent, name) = self.place(path)?;
                let attr = fs.symlink(caller, parent, name, target.as_bytes())?;
                self.counted(attr);
            }
            Operation::Link { from, path } => {
                let ino = self.file(from)?;
                let (parent, name) = self.place(path)?;
                let attr = fs.link(ino, parent, name)?;
                self.counted(attr);
            }
            Operation::Tmpfile { path, mode, slot } => {
                let parent = self.resolve(path)?.ino;
                let attr = fs.tmpfile(caller, parent, *mode)?;
                self.counted(attr);
                self.keep_open(*slot, attr.ino);
            }
            other => unreachable!("{other:?} makes nothing"),
        }
        Ok(Answer::Done)
    }

    fn run_data(&mut self, step: &Step) -> std::result::Result<Answer, Failure> {
        let fs = Arc::clone(&self.fs);
        match &step.operation {
            Operation::Read { file, offset, len } => {
                let ino = self.file(file)?;
                let mut bytes = vec![0xee; *len];
                let read = fs.read(ino, *offset, &mut bytes)?;
                bytes.truncate(read);
                Ok(Answer::Bytes(bytes))
            }
            Operation::Write { file, offset, data, kill_priv } => {
                let ino = self.file(file)?;
                let written = fs.write(ino, *offset, &data.bytes(), *kill_priv)?;
                Ok(Answer::Len(written as u64))
            }
            Operation::Truncate { file, size, kill_priv } => {
                let changes = SetAttr {
                    size_bytes: Some(*size),
                    kill_priv: *kill_priv,
                    ..SetAttr::default()
                };
                self.set(&step.caller, file, changes)
            }
            Operation::Fallocate { file, offset, len, flags } => {
                let ino = self.file(file)?;
                fs.fallocate(ino, *offset, *len, *flags, &LongChange::uncancelled(false))?;
                Ok(Answer::Done)
            }
            Operation::CopyRange { from, offset_in, to, offset_out, len } => {
                let (from, to) = (self.file(from)?, self.file(to)?);
                let copied = fs.copy_file_range(
                    from,
                    *offset_in,
                    to,
                    *offset_out,
                    *len,
                    &LongChange::uncancelled(false),
                )?;
                Ok(Answer::Len(copied))
            }
            other => unreachable!("{other:?} does not change data"),
        }
    }

    fn run_attributes(&mut self, step: &Step) -> std::result::Result<Answer, Failure> {
        let fs = Arc::clone(&self.fs);
        match &step.operation {
            Operation::Chmod { file, mode } => {
                let changes = SetAttr { mode: Some(*mode), ..SetAttr::default() };
                self.set(&step.caller, file, changes)
            }
            Operation::Chown { file, uid, gid } => {
                let changes = SetAttr { uid: *uid, gid: *gid, ..SetAttr::default() };
                self.set(&step.caller, file, changes)
            }
            Operation::Utimes { file, atime, mtime } => {
                let changes = SetAttr {
                    atime: Some(SetTime::At(*atime)),
                    mtime: Some(SetTime::At(*mtime)),
                    ..SetAttr::default()
                };
                self.set(&step.caller, file, changes)
            }
            Operation::SetXattr { file, name, value, flags } => {
                let ino = self.file(file)?;
                fs.setxattr(ino, name.as_bytes(), &value.bytes(), *flags)?;
                Ok(Answer::Done)
            }
            Operation::RemoveXattr { file, name } => {
                let ino = self.file(file)?;
                fs.removexattr(ino, name.as_bytes())?;
                Ok(Answer::Done)
            }
            other => unreachable!("{other:?} does not change attributes"),
        }
    }
}
