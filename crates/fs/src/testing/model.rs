//! A file system on plain maps, written to be obviously correct: no cache, no locks, no encoding.

use std::collections::BTreeMap;

use super::tree::{PAGE, Tree, TreeNode, digest, join};
use super::{Answer, EBADF, EINVAL, FileRef, Operation, Outcome, SLOT_COUNT, Step, split_path};
use crate::types::{Caller, FallocateFlags, FileKind, FileTime, RenameFlags, XattrFlags};

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const E2BIG: i32 = 7;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EFBIG: i32 = 27;
const ERANGE: i32 = 34;
const ENAMETOOLONG: i32 = 36;
const ENOTEMPTY: i32 = 39;
const ENODATA: i32 = 61;
const EOPNOTSUPP: i32 = 95;

const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;
const MAX_SIZE: u64 = i64::MAX as u64;

type Id = u64;
type Try<T> = Result<T, i32>;

/// A file's bytes: those that were written, by page; all others up to the size are zeros.
#[derive(Clone, Debug, Default)]
struct Data {
    size: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Data {
    fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let len = self.size.saturating_sub(offset).min(len as u64);
        let mut bytes = vec![0; len as usize];
        self.each_page(offset, len, |page, in_page, at, count| {
            if let Some(content) = self.pages.get(&page) {
                bytes[at..at + count].copy_from_slice(&content[in_page..in_page + count]);
            }
        });
        bytes
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut pages = std::mem::take(&mut self.pages);
        self.each_page(offset, bytes.len() as u64, |page, in_page, at, count| {
            let content = pages.entry(page).or_insert_with(|| vec![0; PAGE]);
            content[in_page..in_page + count].copy_from_slice(&bytes[at..at + count]);
        });
        self.pages = pages;
        self.size = self.size.max(offset + bytes.len() as u64);
    }

    /// Zeroes the range where there are bytes.
    fn zero(&mut self, offset: u64, end: u64) {
        for (&page, content) in &mut self.pages {
            let start = page * PAGE as u64;
            let from = offset.clamp(start, start + PAGE as u64) - start;
            let to = end.clamp(start, start + PAGE as u64) - start;
            content[from as usize..to.max(from) as usize].fill(0);
        }
    }

    fn truncate(&mut self, size: u64) {
        self.zero(size, u64::MAX);
        self.size = size;
    }

    /// Moves all pages from `from` on by some pages. Pages that nothing is moved to become zeros.
    fn shift(&mut self, from: u64, by: i64) {
        let tail = self.pages.split_off(&from);
        self.pages.extend(tail.into_iter().map(|(page, c)| (page.wrapping_add_signed(by), c)));
    }

    /// Calls `each` with a page, the offset in it, the offset in the range, and the length.
    fn each_page(&self, offset: u64, len: u64, mut each: impl FnMut(u64, usize, usize, usize)) {
        let mut at = 0;
        while at < len {
            let position = offset + at;
            let in_page = (position % PAGE as u64) as usize;
            let count = (len - at).min((PAGE - in_page) as u64);
            each(position / PAGE as u64, in_page, at as usize, count as usize);
            at += count;
        }
    }
}

#[derive(Clone, Debug)]
struct Node {
    kind: FileKind,
    perm: u32,
    uid: u32,
    gid: u32,
    rdev: u32,
    nlink: u32,
    /// It was created without a name, and not linked since.
    is_linkable: bool,
    parent: Id,
    entries: BTreeMap<String, Id>,
    data: Data,
    target: String,
    xattrs: BTreeMap<String, Vec<u8>>,
    atime: FileTime,
    mtime: FileTime,
    ctime: FileTime,
    btime: FileTime,
}

/// The reference model.
#[derive(Clone, Debug)]
pub struct Model {
    nodes: BTreeMap<Id, Node>,
    next: Id,
    slots: [Option<Id>; SLOT_COUNT],
    now: FileTime,
}

const ROOT: Id = 1;

impl Model {
    /// An empty file system whose root directory was created at `now` for `uid`, `gid` and `mode`.
    #[must_use]
    pub fn new(now: FileTime, uid: u32, gid: u32, mode: u32) -> Self {
        let mut model = Self { nodes: BTreeMap::new(), next: ROOT, slots: [None; SLOT_COUNT], now };
        let root = model.add(FileKind::Directory, mode, uid, gid);
        let root = model.node_mut(root);
        root.parent = ROOT;
        root.nlink = 2;
        model
    }

    /// Closes all open files, as an unmount or a crash does.
    pub fn close_all(&mut self) {
        self.slots = [None; SLOT_COUNT];
        self.collect();
    }

    /// The number of files.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is only the root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    /// All paths with the kinds of their files, in order. The path of the root is empty.
    #[must_use]
    pub fn paths(&self) -> Vec<(String, FileKind)> {
        self.walk().into_iter().map(|(path, id)| (path, self.node(id).kind)).collect()
    }

    /// The size of `file`, if it exists.
    #[must_use]
    pub fn size_of(&self, file: &FileRef) -> Option<u64> {
        self.file(file).ok().map(|id| self.node(id).data.size)
    }

    /// The numbers under which files are open.
    #[must_use]
    pub fn open_slots(&self) -> Vec<usize> {
        (0..SLOT_COUNT).filter(|&slot| self.slots[slot].is_some()).collect()
    }

    /// The paths of a file; none if it does not exist, or has no name.
    #[must_use]
    pub fn paths_of(&self, file: &FileRef) -> Vec<String> {
        let Ok(wanted) = self.file(file) else { return Vec::new() };
        self.walk().into_iter().filter(|(_, id)| *id == wanted).map(|(path, _)| path).collect()
    }

    /// Everything that users can see.
    #[must_use]
    pub fn tree(&self) -> Tree {
        let mut seen: BTreeMap<Id, String> = BTreeMap::new();
        let mut tree = Tree::default();
        for (path, id) in self.walk() {
            let node = self.node(id);
            let same_as = seen.get(&id).cloned();
            seen.entry(id).or_insert_with(|| path.clone());
            let nonzero = node.data.pages.iter().filter(|(_, page)| page.iter().any(|&b| b != 0));
            let size = match node.kind {
                FileKind::Symlink => node.target.len() as u64,
                _ => node.data.size,
            };
            let seen_node = TreeNode {
                kind: node.kind,
                perm: node.perm,
                nlink: node.nlink,
                uid: node.uid,
                gid: node.gid,
                rdev: node.rdev,
                size,
                atime: node.atime,
                mtime: node.mtime,
                ctime: node.ctime,
                btime: node.btime,
                pages: nonzero.map(|(&page, content)| (page, digest(content))).collect(),
                target: node.target.clone().into_bytes(),
                xattrs: node
                    .xattrs
                    .iter()
                    .map(|(name, value)| (name.clone().into_bytes(), digest(value)))
                    .collect(),
                same_as,
            };
            tree.nodes.insert(path, seen_node);
        }
        tree
    }

    fn walk(&self) -> Vec<(String, Id)> {
        let mut found = Vec::new();
        let mut queue = vec![(String::new(), ROOT)];
        while let Some((path, id)) = queue.pop() {
            let entries = self.node(id).entries.iter().rev();
            queue.extend(entries.map(|(name, &child)| (join(&path, name), child)));
            found.push((path, id));
        }
        found
    }

    fn node(&self, id: Id) -> &Node {
        &self.nodes[&id]
    }

    fn node_mut(&mut self, id: Id) -> &mut Node {
        self.nodes.get_mut(&id).expect("ids are only kept of nodes that are there")
    }

    fn add(&mut self, kind: FileKind, perm: u32, uid: u32, gid: u32) -> Id {
        let id = self.next;
        self.next += 1;
        let node = Node {
            kind,
            perm: perm & 0o7777,
            uid,
            gid,
            rdev: 0,
            nlink: 0,
            is_linkable: false,
            parent: 0,
            entries: BTreeMap::new(),
            data: Data::default(),
            target: String::new(),
            xattrs: BTreeMap::new(),
            atime: self.now,
            mtime: self.now,
            ctime: self.now,
            btime: self.now,
        };
        self.nodes.insert(id, node);
        id
    }

    /// Deletes files without a name that are not open.
    fn collect(&mut self) {
        let slots = self.slots;
        self.nodes.retain(|id, node| node.nlink > 0 || slots.contains(&Some(*id)));
    }

    fn child(&self, dir: Id, name: &str) -> Try<Id> {
        if name.len() > 255 {
            return Err(ENAMETOOLONG);
        }
        if self.node(dir).kind != FileKind::Directory {
            return Err(ENOTDIR);
        }
        self.node(dir).entries.get(name).copied().ok_or(ENOENT)
    }

    fn resolve(&self, path: &str) -> Try<Id> {
        path.split('/')
            .filter(|name| !name.is_empty())
            .try_fold(ROOT, |dir, name| self.child(dir, name))
    }

    fn file(&self, file: &FileRef) -> Try<Id> {
        match file {
            FileRef::Path(path) => self.resolve(path),
            FileRef::Slot(slot) => self.slots[*slot].ok_or(EBADF),
        }
    }

    fn place<'p>(&self, path: &'p str) -> Try<(Id, &'p str)> {
        let (parent, name) = split_path(path).ok_or(EINVAL)?;
        Ok((self.resolve(parent)?, name))
    }

    fn regular(&self, id: Id) -> Try<()> {
        match self.node(id).kind {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(EISDIR),
            _ => Err(EINVAL),
        }
    }

    /// Creates a file in `dir` under a name that does not exist.
    fn make(
        &mut self,
        caller: &Caller<'_>,
        (dir, name): (Id, &str),
        kind: FileKind,
        mode: u32,
    ) -> Try<Id> {
        match self.child(dir, name) {
            Ok(_) => return Err(EEXIST),
            Err(ENOENT) => (),
            Err(other) => return Err(other),
        }
        let id = self.make_unnamed(caller, dir, kind, mode);
        self.enter(dir, name, id);
        self.node_mut(id).nlink = 1;
        if kind == FileKind::Directory {
            let node = self.node_mut(id);
            node.nlink = 2;
            node.parent = dir;
            self.node_mut(dir).nlink += 1;
        }
        Ok(id)
    }

    fn make_unnamed(&mut self, caller: &Caller<'_>, dir: Id, kind: FileKind, mode: u32) -> Id {
        let (dir_perm, dir_gid) = (self.node(dir).perm, self.node(dir).gid);
        let umask = if kind == FileKind::Symlink { 0 } else { caller.umask & 0o777 };
        let id = self.add(kind, mode & !umask, caller.uid, caller.gid);
        if dir_perm & S_ISGID != 0 {
            self.node_mut(id).gid = dir_gid;
            if kind == FileKind::Directory {
                self.node_mut(id).perm |= S_ISGID;
            }
        }
        id
    }

    fn enter(&mut self, dir: Id, name: &str, id: Id) {
        self.node_mut(dir).entries.insert(name.to_owned(), id);
        self.touch(dir);
    }

    /// Records that the contents changed.
    fn touch(&mut self, id: Id) {
        let now = self.now;
        let node = self.node_mut(id);
        (node.mtime, node.ctime) = (now, now);
    }

    fn touch_ctime(&mut self, id: Id) {
        let now = self.now;
        self.node_mut(id).ctime = now;
    }

    fn drop_name(&mut self, id: Id) {
        self.touch_ctime(id);
        let node = self.node_mut(id);
        node.nlink = if node.kind == FileKind::Directory { 0 } else { node.nlink - 1 };
    }

    fn drop_privileges(&mut self, id: Id, set_id: bool) {
        let node = self.node_mut(id);
        node.xattrs.remove("security.capability");
        if set_id {
            node.perm &= !S_ISUID;
            if node.perm & 0o010 != 0 {
                node.perm &= !S_ISGID;
            }
        }
    }

    /// Executes a step at the time `now`.
    pub fn run(&mut self, step: &Step, now: FileTime) -> Outcome {
        self.now = now;
        let outcome = self.try_run(step);
        self.collect();
        outcome
    }

    fn keep_open(&mut self, slot: usize, id: Id) {
        self.slots[slot] = Some(id);
    }

    fn try_run(&mut self, step: &Step) -> Outcome {
        let caller = &step.caller;
        match &step.operation {
            Operation::Unlink { path } => {
                let (dir, name) = self.place(path)?;
                let id = self.child(dir, name)?;
                if self.node(id).kind == FileKind::Directory {
                    return Err(EISDIR);
                }
                self.node_mut(dir).entries.remove(name);
                self.touch(dir);
                self.drop_name(id);
            }
            Operation::Rmdir { path } => {
                let (dir, name) = self.place(path)?;
                let id = self.child(dir, name)?;
                if self.node(id).kind != FileKind::Directory {
                    return Err(ENOTDIR);
                }
                if !self.node(id).entries.is_empty() {
                    return Err(ENOTEMPTY);
                }
                self.node_mut(dir).entries.remove(name);
                self.node_mut(dir).nlink -= 1;
                self.touch(dir);
                self.drop_name(id);
            }
            Operation::Rename { from, to, flags } => self.rename(caller, from, to, *flags)?,
            Operation::Open { path, slot } => {
                let id = self.resolve(path)?;
                if self.node(id).kind != FileKind::Regular {
                    return Err(EINVAL);
                }
                self.keep_open(*slot, id);
            }
            Operation::Close { slot } => self.slots[*slot] = None,
            Operation::Fsync { file } => {
                self.file(file)?;
            }
            Operation::Sync => (),
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
            | Operation::CopyRange { .. } => return self.run_data(&step.operation),
            Operation::Chmod { .. }
            | Operation::Chown { .. }
            | Operation::Utimes { .. }
            | Operation::SetXattr { .. }
            | Operation::RemoveXattr { .. } => return self.run_attributes(&step.operation),
        }
        Ok(Answer::Done)
    }

    fn run_creation(&mut self, step: &Step) -> Outcome {
        let caller = &step.caller;
        match &step.operation {
            Operation::Create { path, mode, exclusive, slot } => {
                let place = self.place(path)?;
                let id = match self.make(caller, place, FileKind::Regular, *mode) {
                    Err(EEXIST) if !exclusive => {
                        let id = self.child(place.0, place.1)?;
                        match self.node(id).kind {
                            FileKind::Regular => id,
                            FileKind::Directory => return Err(EISDIR),
                            _ => return Err(EEXIST),
                        }
                    }
                    other => other?,
                };
                if let Some(slot) = slot {
                    self.keep_open(*slot, id);
                }
            }
            Operation::Mknod { path, kind, mode, rdev } => {
                let place = self.place(path)?;
                let id = self.make(caller, place, *kind, *mode)?;
                if matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) {
                    self.node_mut(id).rdev = *rdev;
                }
            }
            Operation::Mkdir { path, mode } => {
                let place = self.place(path)?;
                self.make(caller, place, FileKind::Directory, *mode)?;
            }
            Operation::Symlink { path, target } => {
                let place = self.place(path)?;
                let id = self.make(caller, place, FileKind::Symlink, 0o777)?;
                self.node_mut(id).target.clone_from(target);
            }
            Operation::Link { from, path } => self.link(from, path)?,
            Operation::Tmpfile { path, mode, slot } => {
                let dir = self.resolve(path)?;
                if self.node(dir).kind != FileKind::Directory {
                    return Err(ENOTDIR);
                }
                let id = self.make_unnamed(caller, dir, FileKind::Regular, *mode);
                self.node_mut(id).is_linkable = true;
                self.keep_open(*slot, id);
            }
            other => unreachable!("{other:?} makes nothing"),
        }
        Ok(Answer::Done)
    }

    fn link(&mut self, from: &FileRef, path: &str) -> Try<()> {
        let id = self.file(from)?;
        let (dir, name) = self.place(path)?;
        if name.len() > 255 {
            return Err(ENAMETOOLONG);
        }
        if self.node(id).kind == FileKind::Directory {
            return Err(EPERM);
        }
        match self.child(dir, name) {
            Ok(_) => return Err(EEXIST),
            Err(ENOENT) => (),
            Err(other) => return Err(other),
        }
        if self.node(id).nlink == 0 && !self.node(id).is_linkable {
            return Err(ENOENT);
        }
        self.enter(dir, name, id);
        self.touch_ctime(id);
        let node = self.node_mut(id);
        node.nlink += 1;
        node.is_linkable = false;
        Ok(())
    }

    /// Whether `above` is `dir` or above it.
    fn leads_to(&self, mut dir: Id, above: Id) -> bool {
        loop {
            if dir == above {
                return true;
            }
            if dir == ROOT {
                return false;
            }
            dir = self.node(dir).parent;
        }
    }

    fn rename(&mut self, caller: &Caller<'_>, from: &str, to: &str, flags: RenameFlags) -> Try<()> {
        let (old_dir, old) = self.place(from)?;
        let (new_dir, new) = self.place(to)?;
        if old.len() > 255 || new.len() > 255 {
            return Err(ENAMETOOLONG);
        }
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if exchange && flags != RenameFlags::EXCHANGE {
            return Err(EINVAL);
        }
        for dir in [old_dir, new_dir] {
            if self.node(dir).kind != FileKind::Directory {
                return Err(ENOTDIR);
            }
        }
        let source = self.child(old_dir, old)?;
        let target = match self.child(new_dir, new) {
            Ok(target) => Some(target),
            Err(ENOENT) if !exchange => None,
            Err(error) => return Err(error),
        };
        if target.is_some() && flags.contains(RenameFlags::NO_REPLACE) {
            return Err(EEXIST);
        }
        if target == Some(source) {
            return Ok(());
        }
        if self.leads_to(new_dir, source) {
            return Err(EINVAL);
        }
        if target.is_some_and(|target| self.leads_to(old_dir, target)) {
            return Err(if exchange { EINVAL } else { ENOTEMPTY });
        }
        let is_dir = |model: &Self, id: Id| model.node(id).kind == FileKind::Directory;
        if let (Some(target), false) = (target, exchange) {
            match (is_dir(self, source), is_dir(self, target)) {
                (true, false) => return Err(ENOTDIR),
                (false, true) => return Err(EISDIR),
                (true, true) if !self.node(target).entries.is_empty() => return Err(ENOTEMPTY),
                _ => (),
            }
        }
        // Each directory is subtracted from the link count of its old parent, and added to that of
        // the new one.
        let moves = [(Some(source), old_dir, Some(new_dir)), {
            (target, new_dir, exchange.then_some(old_dir))
        }];
        for (id, from, to) in moves {
            let Some(id) = id.filter(|&id| is_dir(self, id)) else { continue };
            self.node_mut(from).nlink -= 1;
            if let Some(to) = to {
                self.node_mut(to).nlink += 1;
                self.node_mut(id).parent = to;
            }
        }
        self.node_mut(old_dir).entries.remove(old);
        self.node_mut(new_dir).entries.insert(new.to_owned(), source);
        self.touch(old_dir);
        self.touch(new_dir);
        self.touch_ctime(source);
        if let Some(target) = target {
            if exchange {
                self.node_mut(old_dir).entries.insert(old.to_owned(), target);
                self.touch_ctime(target);
            } else {
                self.drop_name(target);
            }
        }
        if flags.contains(RenameFlags::WHITEOUT) {
            self.make(caller, (old_dir, old), FileKind::CharDevice, 0)?;
        }
        Ok(())
    }

    fn run_data(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Read { file, offset, len } => {
                let id = self.file(file)?;
                self.regular(id)?;
                Ok(Answer::Bytes(self.node(id).data.read(*offset, *len)))
            }
            Operation::Write { file, offset, data, kill_priv } => {
                let id = self.file(file)?;
                self.regular(id)?;
                if data.len == 0 {
                    return Ok(Answer::Len(0));
                }
                if *offset >= MAX_SIZE {
                    return Err(EFBIG);
                }
                let len = (MAX_SIZE - offset).min(data.len as u64);
                self.node_mut(id).data.write(*offset, &data.bytes()[..len as usize]);
                self.touch(id);
                self.drop_privileges(id, *kill_priv);
                Ok(Answer::Len(len))
            }
            Operation::Truncate { file, size, kill_priv } => {
                let id = self.file(file)?;
                self.regular(id)?;
                if *size > MAX_SIZE {
                    return Err(EFBIG);
                }
                self.node_mut(id).data.truncate(*size);
                self.touch(id);
                self.drop_privileges(id, *kill_priv);
                Ok(Answer::Done)
            }
            Operation::Fallocate { file, offset, len, flags } => {
                self.fallocate(file, *offset, *len, *flags)?;
                Ok(Answer::Done)
            }
            Operation::CopyRange { from, offset_in, to, offset_out, len } => {
                let (from, to) = (self.file(from)?, self.file(to)?);
                if *offset_in > MAX_SIZE || *offset_out > MAX_SIZE {
                    return Err(EFBIG);
                }
                let len = (*len).min(MAX_SIZE - offset_in).min(MAX_SIZE - offset_out);
                if from == to && offset_in.abs_diff(*offset_out) < len {
                    return Err(EINVAL);
                }
                self.regular(from)?;
                self.regular(to)?;
                let bytes = self.node(from).data.read(*offset_in, len as usize);
                if !bytes.is_empty() {
                    self.node_mut(to).data.write(*offset_out, &bytes);
                    self.touch(to);
                    self.drop_privileges(to, false);
                }
                Ok(Answer::Len(bytes.len() as u64))
            }
            other => unreachable!("{other:?} does not change data"),
        }
    }

    fn fallocate(
        &mut self,
        file: &FileRef,
        offset: u64,
        len: u64,
        flags: FallocateFlags,
    ) -> Try<()> {
        let id = self.file(file)?;
        if len == 0 {
            return Err(EINVAL);
        }
        let end = offset.checked_add(len).filter(|&end| end <= MAX_SIZE).ok_or(EFBIG)?;
        self.regular(id)?;
        let data = &mut self.nodes.get_mut(&id).ok_or(ENOENT)?.data;
        let is_aligned = [offset, len].iter().all(|at| at.is_multiple_of(PAGE as u64));
        let keep = flags.contains(FallocateFlags::KEEP_SIZE);
        let change = flags - FallocateFlags::KEEP_SIZE;
        if change.is_empty() || change == FallocateFlags::ZERO_RANGE {
            if !change.is_empty() {
                data.zero(offset, end);
            }
            if !keep {
                data.size = data.size.max(end);
            }
        } else if change == FallocateFlags::PUNCH_HOLE && keep {
            data.zero(offset, end);
        } else if change == FallocateFlags::COLLAPSE_RANGE && !keep {
            if !is_aligned || end >= data.size {
                return Err(EINVAL);
            }
            data.pages.retain(|page, _| !(offset..end).contains(&(page * PAGE as u64)));
            data.shift(end / PAGE as u64, -((len / PAGE as u64) as i64));
            data.size -= len;
        } else if change == FallocateFlags::INSERT_RANGE && !keep {
            if !is_aligned || offset >= data.size {
                return Err(EINVAL);
            }
            data.size.checked_add(len).filter(|&size| size <= MAX_SIZE).ok_or(EFBIG)?;
            data.shift(offset / PAGE as u64, (len / PAGE as u64) as i64);
            data.size += len;
        } else {
            return Err(EOPNOTSUPP);
        }
        self.touch(id);
        self.drop_privileges(id, false);
        Ok(())
    }

    fn run_attributes(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Chmod { file, mode } => {
                let id = self.file(file)?;
                self.node_mut(id).perm = mode & 0o7777;
                self.touch_ctime(id);
            }
            Operation::Chown { file, uid, gid } => {
                let id = self.file(file)?;
                if uid.is_none() && gid.is_none() {
                    return Ok(Answer::Done);
                }
                let node = self.node_mut(id);
                node.uid = uid.unwrap_or(node.uid);
                node.gid = gid.unwrap_or(node.gid);
                let set_id = node.kind != FileKind::Directory;
                self.drop_privileges(id, set_id);
                self.touch_ctime(id);
            }
            Operation::Utimes { file, atime, mtime } => {
                let id = self.file(file)?;
                self.touch_ctime(id);
                let node = self.node_mut(id);
                (node.atime, node.mtime) = (*atime, *mtime);
            }
            Operation::SetXattr { file, name, value, flags } => {
                let id = self.file(file)?;
                if value.len > 65_536 {
                    return Err(E2BIG);
                }
                check_xattr_name(name, self.node(id).kind)?;
                let exists = self.node(id).xattrs.contains_key(name);
                if exists && flags.contains(XattrFlags::CREATE) {
                    return Err(EEXIST);
                }
                if !exists && flags.contains(XattrFlags::REPLACE) {
                    return Err(ENODATA);
                }
                self.node_mut(id).xattrs.insert(name.clone(), value.bytes());
                self.touch_ctime(id);
            }
            Operation::RemoveXattr { file, name } => {
                let id = self.file(file)?;
                check_xattr_name(name, self.node(id).kind)?;
                self.node_mut(id).xattrs.remove(name).ok_or(ENODATA)?;
                self.touch_ctime(id);
            }
            other => unreachable!("{other:?} does not change attributes"),
        }
        Ok(Answer::Done)
    }
}

fn check_xattr_name(name: &str, kind: FileKind) -> Try<()> {
    if name.is_empty() || name.len() > 255 {
        return Err(ERANGE);
    }
    match name.split_once('.') {
        Some(("user" | "trusted" | "security", "")) => Err(EINVAL),
        Some(("user", _)) if !matches!(kind, FileKind::Regular | FileKind::Directory) => Err(EPERM),
        Some(("user" | "trusted" | "security", _)) => Ok(()),
        _ => Err(EOPNOTSUPP),
    }
}
