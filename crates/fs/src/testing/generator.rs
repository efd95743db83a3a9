//! Random steps. The same seed gives the same steps.

use dendro_base::Rng;

use super::tree::join;
use super::{FileRef, Model, Operation, Pattern, SLOT_COUNT, Step};
use crate::types::{Caller, FallocateFlags, FileKind, FileTime, RenameFlags, XattrFlags};

/// Which steps to generate.
#[derive(Clone, Debug)]
pub struct Profile {
    /// With more files than this, removals are more frequent than creations.
    pub target_files: usize,
    /// The longest write.
    pub max_write_len: usize,
    /// Nearly all offsets are below this.
    pub max_offset: u64,
    /// The percentage of steps with a far offset.
    pub far_percent: u64,
    /// The longest value of an extended attribute.
    pub max_xattr_len: usize,
    /// The percentage of steps that make earlier ones durable.
    pub sync_percent: u64,
    /// Leave out operations of several atomic recovery units between which users can see a
    /// difference: `copy_file_range`.
    pub one_unit_only: bool,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            target_files: 40,
            max_write_len: 40_000,
            max_offset: 200_000,
            far_percent: 3,
            max_xattr_len: 5_000,
            sync_percent: 3,
            one_unit_only: false,
        }
    }
}

/// A source of steps, most of which succeed in the state of a model.
#[derive(Clone, Debug)]
pub struct Generator {
    rng: Rng,
    profile: Profile,
}

/// Only a few names, so that steps often use the same ones.
const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "long", "x y", "ü", "zz"];
const XATTRS: [&str; 7] = [
    "user.a",
    "user.b",
    "trusted.c",
    "security.capability",
    "security.selinux",
    "user.",
    "system.unknown",
];

impl Generator {
    /// The steps of `seed`.
    #[must_use]
    pub const fn new(seed: u64, profile: Profile) -> Self {
        Self { rng: Rng::new(seed), profile }
    }

    fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.rng.below(choices.len() as u64) as usize].clone()
    }

    fn name(&mut self) -> String {
        match self.rng.below(60) {
            0 => "n".repeat(255),
            1 => "n".repeat(256),
            _ => self.pick(&NAMES).to_owned(),
        }
    }

    /// A path that exists, of a kind that `wanted` accepts if there is one.
    fn existing(&mut self, model: &Model, wanted: impl Fn(FileKind) -> bool) -> String {
        let paths = model.paths();
        let fitting: Vec<_> = paths.iter().filter(|(_, kind)| wanted(*kind)).collect();
        if fitting.is_empty() || self.rng.chance(4) {
            return self.pick(&paths).0;
        }
        self.pick(&fitting).0.clone()
    }

    fn directory(&mut self, model: &Model) -> String {
        self.existing(model, |kind| kind == FileKind::Directory)
    }

    /// A path that may exist or not, mostly in a directory that exists.
    fn path(&mut self, model: &Model) -> String {
        let parent = self.directory(model);
        let name = self.name();
        join(&parent, &name)
    }

    fn any_file(&mut self, model: &Model) -> FileRef {
        if self.rng.chance(10) {
            self.slot_file()
        } else {
            FileRef::Path(self.existing(model, |_| true))
        }
    }

    fn slot_file(&mut self) -> FileRef {
        FileRef::Slot(self.slot())
    }

    fn slot(&mut self) -> usize {
        self.rng.below(SLOT_COUNT as u64) as usize
    }

    fn regular(&mut self, model: &Model) -> FileRef {
        if self.rng.chance(25) && !model.open_slots().is_empty() {
            return FileRef::Slot(self.pick(&model.open_slots()));
        }
        FileRef::Path(self.existing(model, |kind| kind == FileKind::Regular))
    }

    /// An offset: small, at the file's end, at a page's edge, or far.
    fn offset(&mut self, model: &Model, file: &FileRef) -> u64 {
        if self.rng.chance(self.profile.far_percent) {
            let far = 1 << (20 + self.rng.below(43));
            return far + self.rng.below(10_000);
        }
        let size = model.size_of(file).unwrap_or(0).min(self.profile.max_offset);
        match self.rng.below(8) {
            0..3 => size,
            3 => self.rng.below(300),
            4 => self.rng.below(size + 1),
            5 => self.rng.below(self.profile.max_offset),
            6 => self.rng.below(self.profile.max_offset / 4096 + 1) * 4096,
            _ => (self.rng.below(self.profile.max_offset / 4096 + 1) * 4096).saturating_sub(1),
        }
    }

    /// A length. All magnitudes are equally frequent.
    fn len(&mut self, max: usize) -> usize {
        let bits = self.rng.below(u64::from(usize::BITS - max.leading_zeros()) + 1);
        (self.rng.below(1 << bits) as usize).min(max)
    }

    fn mode(&mut self) -> u32 {
        let special = if self.rng.chance(25) { self.rng.below(8) as u32 } else { 0 };
        special << 9 | self.rng.below(512) as u32
    }

    fn id(&mut self) -> Option<u32> {
        (!self.rng.chance(40)).then(|| self.rng.below(3) as u32 * 1000)
    }

    fn time(&mut self) -> FileTime {
        let secs = match self.rng.below(4) {
            0 => -(self.rng.below(1 << 40) as i64),
            1 => self.rng.below(1 << 40) as i64,
            2 => 1_800_000_000,
            _ => 0,
        };
        FileTime { secs, nanos: self.rng.below(1_000_000_000) as u32 }
    }

    fn pattern(&mut self, max: usize) -> Pattern {
        Pattern { len: self.len(max), seed: self.rng.next_u64() }
    }

    /// The next step, for a file system in the state of `model`.
    pub fn next(&mut self, model: &Model) -> Step {
        let caller = Caller {
            uid: self.rng.below(3) as u32 * 1000,
            gid: self.rng.below(3) as u32 * 100,
            umask: self.pick(&[0, 0o022, 0o077]),
            security_context: &[],
        };
        Step { caller, operation: self.operation(model) }
    }

    fn operation(&mut self, model: &Model) -> Operation {
        if self.rng.chance(self.profile.sync_percent) {
            return match self.rng.below(2) {
                0 => Operation::Sync,
                _ => Operation::Fsync { file: self.any_file(model) },
            };
        }
        let is_full = model.len() > self.profile.target_files;
        match self.rng.below(100) {
            0..22 if is_full => self.removal(model),
            0..22 => self.creation(model),
            22..32 => self.removal(model),
            32..42 => {
                let from = self.existing(model, |_| true);
                let (to, exchange) = match self.rng.below(3) {
                    0 => (self.existing(model, |_| true), self.rng.chance(50)),
                    _ => (self.path(model), false),
                };
                let flags = match self.rng.below(8) {
                    _ if exchange => RenameFlags::EXCHANGE,
                    0 => RenameFlags::NO_REPLACE,
                    1 => RenameFlags::WHITEOUT,
                    2 if self.rng.chance(10) => RenameFlags::EXCHANGE | RenameFlags::NO_REPLACE,
                    _ => RenameFlags::empty(),
                };
                Operation::Rename { from, to, flags }
            }
            42..84 => self.data(model),
            _ => self.attributes(model),
        }
    }

    fn creation(&mut self, model: &Model) -> Operation {
        let path = self.path(model);
        let mode = self.mode();
        match self.rng.below(20) {
            0..8 => Operation::Create {
                path,
                mode,
                exclusive: self.rng.chance(30),
                slot: self.rng.chance(30).then(|| self.slot()),
            },
            8..13 => Operation::Mkdir { path, mode },
            13 => Operation::Mknod {
                path,
                kind: self.pick(&[FileKind::Fifo, FileKind::Socket, FileKind::BlockDevice]),
                mode,
                rdev: self.rng.below(1 << 20) as u32,
            },
            14..16 => {
                let target = "t/".repeat(1 + self.len(2047));
                Operation::Symlink { path, target: target[1..].to_owned() }
            }
            16..18 => Operation::Link { from: self.any_file(model), path },
            18 => Operation::Tmpfile { path: self.directory(model), mode, slot: self.slot() },
            _ => Operation::Open {
                path: self.existing(model, |kind| kind == FileKind::Regular),
                slot: self.slot(),
            },
        }
    }

    fn removal(&mut self, model: &Model) -> Operation {
        match self.rng.below(6) {
            0..3 => {
                Operation::Unlink { path: self.existing(model, |kind| kind != FileKind::Directory) }
            }
            3 => Operation::Close { slot: self.slot() },
            _ => Operation::Rmdir { path: self.directory(model) },
        }
    }

    fn data(&mut self, model: &Model) -> Operation {
        let file = self.regular(model);
        let offset = self.offset(model, &file);
        match self.rng.below(20) {
            0..8 => {
                let max = self.profile.max_write_len;
                let data = self.pattern(max);
                Operation::Write { file, offset, data, kill_priv: self.rng.chance(20) }
            }
            8..11 => Operation::Truncate { file, size: offset, kill_priv: self.rng.chance(20) },
            11..14 => {
                let max = self.profile.max_write_len;
                Operation::Read { file, offset, len: self.len(max) }
            }
            14..17 if !self.profile.one_unit_only => {
                let to = self.regular(model);
                let offset_out = self.offset(model, &to);
                let max = self.profile.max_write_len;
                let len = self.len(max) as u64;
                Operation::CopyRange { from: file, offset_in: offset, to, offset_out, len }
            }
            _ => self.fallocation(model, file, offset),
        }
    }

    fn fallocation(&mut self, model: &Model, file: FileRef, offset: u64) -> Operation {
        let flags = self.pick(&[
            FallocateFlags::empty(),
            FallocateFlags::KEEP_SIZE,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            FallocateFlags::ZERO_RANGE,
            FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
            FallocateFlags::COLLAPSE_RANGE,
            FallocateFlags::INSERT_RANGE,
            FallocateFlags::PUNCH_HOLE,
        ]);
        let mut range = (offset, self.len(self.profile.max_write_len) as u64);
        let moves = FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE;
        if flags.intersects(moves) && self.rng.chance(90) {
            let pages = model.size_of(&file).unwrap_or(0).min(1 << 20) / 4096 + 1;
            range = (self.rng.below(pages) * 4096, (1 + self.rng.below(8)) * 4096);
        }
        // A hole over many pages is made in several units.
        if flags.contains(FallocateFlags::PUNCH_HOLE) && self.rng.chance(20) {
            range.1 = 1 << (20 + self.rng.below(43));
        }
        Operation::Fallocate { file, offset: range.0, len: range.1, flags }
    }

    fn attributes(&mut self, model: &Model) -> Operation {
        let file = self.any_file(model);
        match self.rng.below(16) {
            0..3 => Operation::Chmod { file, mode: self.mode() },
            3..6 => Operation::Chown { file, uid: self.id(), gid: self.id() },
            6..9 => Operation::Utimes { file, atime: self.time(), mtime: self.time() },
            9..14 => {
                let max = self.profile.max_xattr_len;
                let value = self.pattern(max);
                let flags = self.pick(&[
                    XattrFlags::empty(),
                    XattrFlags::empty(),
                    XattrFlags::CREATE,
                    XattrFlags::REPLACE,
                ]);
                let name = self.pick(&XATTRS).to_owned();
                Operation::SetXattr { file, name, value, flags }
            }
            _ => Operation::RemoveXattr { file, name: self.pick(&XATTRS).to_owned() },
        }
    }
}
