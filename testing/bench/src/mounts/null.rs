//! A file system that answers everything from memory and keeps no data: as fast as a mount over the
//! same transport can be. It agrees with the kernel on what dendrofs does, so that the round trips
//! are the same.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dendro_fuse_transport::{
    Attr, AttrReply, Entries, EntriesPlus, Entry, Errno, FileSystem, InitFlags, OpenHow, Opened,
    Request, Result, SetAttr, StatFs, Wishes, WriteHow,
};

const ROOT: u64 = 1;
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);
const FOLDER: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const TYPE_BITS: u32 = 0o170_000;

/// What dendrofs asks of the kernel, for everyone's requests; `collects` what `order=close` asks.
pub(super) fn wishes(collects: bool) -> Wishes {
    let mut wishes = dendro_fuse::wishes();
    wishes.flags |= InitFlags::ALLOW_IDMAP;
    wishes.flags.set(InitFlags::WRITEBACK_CACHE, collects);
    wishes
}

/// Names, sizes and modes.
pub(crate) struct Null {
    state: Mutex<State>,
}

struct State {
    nodes: HashMap<u64, Node>,
    last: u64,
}

#[derive(Default)]
struct Node {
    mode: u32,
    size_bytes: u64,
    entries: Directory,
    target: Vec<u8>,
}

/// A directory's names, also in the order in which they came.
#[derive(Default)]
struct Directory {
    by_name: HashMap<Vec<u8>, (u64, u64)>,
    by_cookie: BTreeMap<u64, Vec<u8>>,
    last_cookie: u64,
}

impl Directory {
    fn put(&mut self, name: &[u8], node: u64) -> Option<u64> {
        let replaced = self.take(name);
        self.last_cookie += 1;
        self.by_name.insert(name.to_vec(), (node, self.last_cookie));
        self.by_cookie.insert(self.last_cookie, name.to_vec());
        replaced
    }

    fn take(&mut self, name: &[u8]) -> Option<u64> {
        let (node, cookie) = self.by_name.remove(name)?;
        self.by_cookie.remove(&cookie);
        Some(node)
    }
}

impl Default for Null {
    fn default() -> Self {
        let root = Node { mode: FOLDER | 0o777, ..Node::default() };
        Self { state: Mutex::new(State { nodes: HashMap::from([(ROOT, root)]), last: ROOT }) }
    }
}

impl State {
    fn node(&self, node: u64) -> Result<&Node> {
        self.nodes.get(&node).ok_or(Errno::NOENT)
    }

    fn node_mut(&mut self, node: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&node).ok_or(Errno::NOENT)
    }

    fn attr(&self, node: u64) -> Result<Attr> {
        let found = self.node(node)?;
        Ok(Attr {
            ino: node,
            size_bytes: found.size_bytes,
            blocks_512: found.size_bytes.div_ceil(512),
            mode: found.mode,
            nlink: 1 + u32::from(found.mode & TYPE_BITS == FOLDER),
            blksize_bytes: 64 << 10,
            ..Attr::default()
        })
    }

    fn entry(&self, node: u64) -> Result<Entry> {
        let attr = self.attr(node)?;
        Ok(Entry { node, generation: 0, entry_valid: FOREVER, attr, attr_valid: FOREVER })
    }

    fn reply(&self, node: u64) -> Result<AttrReply> {
        Ok(AttrReply { attr: self.attr(node)?, valid: FOREVER })
    }

    fn make(&mut self, parent: u64, name: &[u8], mode: u32, target: &[u8]) -> Result<Entry> {
        self.last += 1;
        let made = self.last;
        let size_bytes = target.len() as u64;
        let node = Node { mode, size_bytes, target: target.to_vec(), ..Node::default() };
        self.node_mut(parent)?.entries.put(name, made);
        self.nodes.insert(made, node);
        self.entry(made)
    }

    fn remove(&mut self, parent: u64, name: &[u8]) -> Result<()> {
        let node = self.node_mut(parent)?.entries.take(name).ok_or(Errno::NOENT)?;
        self.nodes.remove(&node);
        Ok(())
    }
}

impl Null {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileSystem for Null {
    fn lookup(&self, _: &Request, parent: u64, name: &[u8]) -> Result<Entry> {
        let state = self.state();
        match state.node(parent)?.entries.by_name.get(name) {
            Some(&(node, _)) => state.entry(node),
            None => Ok(Entry::absent(FOREVER)),
        }
    }

    fn getattr(&self, _: &Request, node: u64, _: Option<u64>) -> Result<AttrReply> {
        self.state().reply(node)
    }

    fn statx(&self, _: &Request, node: u64, _: Option<u64>, _: u32) -> Result<AttrReply> {
        self.state().reply(node)
    }

    fn setattr(&self, _: &Request, node: u64, changes: &SetAttr) -> Result<AttrReply> {
        let mut state = self.state();
        let Some(found) = state.nodes.get_mut(&node) else {
            // What the kernel has collected of a file that is removed meanwhile: its times.
            let attr = Attr { ino: node, mode: REGULAR, ..Attr::default() };
            return Ok(AttrReply { attr, valid: FOREVER });
        };
        found.size_bytes = changes.size_bytes.unwrap_or(found.size_bytes);
        if let Some(mode) = changes.mode {
            found.mode = found.mode & TYPE_BITS | mode & !TYPE_BITS;
        }
        state.reply(node)
    }

    fn readlink(&self, _: &Request, node: u64, out: &mut [u8]) -> Result<usize> {
        let state = self.state();
        let target = &state.node(node)?.target;
        out.get_mut(..target.len()).ok_or(Errno::INVAL)?.copy_from_slice(target);
        Ok(target.len())
    }

    fn symlink(&self, _: &Request, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        self.state().make(parent, name, SYMLINK | 0o777, target)
    }

    fn mkdir(&self, _: &Request, parent: u64, name: &[u8], mode: u32, umask: u32) -> Result<Entry> {
        self.state().make(parent, name, FOLDER | mode & !umask & !TYPE_BITS, &[])
    }

    fn unlink(&self, _: &Request, parent: u64, name: &[u8]) -> Result<()> {
        self.state().remove(parent, name)
    }

    fn rmdir(&self, _: &Request, parent: u64, name: &[u8]) -> Result<()> {
        let mut state = self.state();
        let &(node, _) = state.node(parent)?.entries.by_name.get(name).ok_or(Errno::NOENT)?;
        if !state.node(node)?.entries.by_name.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        state.remove(parent, name)
    }

    fn rename(
        &self,
        _: &Request,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        _: u32,
    ) -> Result<()> {
        let mut state = self.state();
        let node = state.node_mut(parent)?.entries.take(name).ok_or(Errno::NOENT)?;
        if let Some(replaced) = state.node_mut(new_parent)?.entries.put(new_name, node) {
            state.nodes.remove(&replaced);
        }
        Ok(())
    }

    fn read(&self, _: &Request, node: u64, _: u64, at: u64, out: &mut [u8]) -> Result<usize> {
        let left = self.state().node(node)?.size_bytes.saturating_sub(at);
        Ok(out.len().min(usize::try_from(left).unwrap_or(usize::MAX)))
    }

    fn write(&self, _: &Request, node: u64, how: &WriteHow, data: &[u8]) -> Result<usize> {
        let mut state = self.state();
        let found = state.node_mut(node)?;
        found.size_bytes = found.size_bytes.max(how.offset + data.len() as u64);
        Ok(data.len())
    }

    fn statfs(&self, _: &Request, _: u64) -> Result<StatFs> {
        Ok(StatFs {
            block_bytes: 4096,
            fragment_bytes: 4096,
            name_max_bytes: 255,
            ..StatFs::default()
        })
    }

    fn fsync(&self, _: &Request, _: u64, _: u64, _: bool) -> Result<()> {
        Ok(())
    }

    fn getxattr(&self, _: &Request, _: u64, _: &[u8], _: &mut [u8]) -> Result<usize> {
        Err(Errno::NODATA)
    }

    fn opendir(&self, _: &Request, _: u64, _: OpenHow) -> Result<Opened> {
        Ok(Opened::default())
    }

    fn readdir(
        &self,
        _: &Request,
        node: u64,
        _: u64,
        at: u64,
        out: &mut Entries<'_>,
    ) -> Result<()> {
        let state = self.state();
        let entries = &state.node(node)?.entries;
        for (cookie, name) in entries.by_cookie.range(at + 1..) {
            let Some(&(child, _)) = entries.by_name.get(name) else { continue };
            if !out.add(child, *cookie, state.node(child)?.mode, name) {
                break;
            }
        }
        Ok(())
    }

    fn readdirplus(
        &self,
        _: &Request,
        node: u64,
        _: u64,
        at: u64,
        out: &mut EntriesPlus<'_>,
    ) -> Result<()> {
        let state = self.state();
        let entries = &state.node(node)?.entries;
        for (cookie, name) in entries.by_cookie.range(at + 1..) {
            let Some(&(child, _)) = entries.by_name.get(name) else { continue };
            if !out.add(&state.entry(child)?, *cookie, name) {
                break;
            }
        }
        Ok(())
    }

    fn fsyncdir(&self, _: &Request, _: u64, _: u64, _: bool) -> Result<()> {
        Ok(())
    }

    fn mknod(
        &self,
        _: &Request,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
        _: u32,
    ) -> Result<Entry> {
        self.state().make(parent, name, REGULAR | mode & !umask & !TYPE_BITS, &[])
    }
}
