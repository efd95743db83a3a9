//! A file system in memory that is just large enough to check each request.

pub(crate) mod mounting;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use dendro_fuse_transport::{
    Agreed, Attr, AttrReply, CopyRange, CreateHow, Entries, EntriesPlus, Entry, Errno, FileSystem,
    OpenHow, Opened, OpenedFlags, Request, Result, SetAttr, SetTime, SetxattrHow, StatFs, Time,
    WriteHow,
};

pub(crate) const VALID: Duration = Duration::from_secs(3600);
const ROOT: u64 = 1;
const S_IFDIR: u32 = libc::S_IFDIR;

#[derive(Default)]
struct Node {
    attr: Attr,
    data: Vec<u8>,
    names: BTreeMap<Vec<u8>, u64>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    lookups: u64,
}

#[derive(Default)]
pub(crate) struct Memory {
    nodes: Mutex<BTreeMap<u64, Node>>,
    last: AtomicU64,
    pub forgotten: AtomicU64,
    pub syncs: AtomicU64,
    pub lookups: AtomicU64,
    pub kills: AtomicU64,
    pub attribute_changes: AtomicU64,
    /// The number of reads of attributes, extended ones included.
    pub attribute_reads: AtomicU64,
    /// The offset and length of each write.
    pub writes: Mutex<Vec<(u64, u64)>>,
    pub agreed: Mutex<Option<Agreed>>,
}

fn reply(node: &Node) -> AttrReply {
    AttrReply { attr: node.attr, valid: VALID }
}

impl Memory {
    pub(crate) fn new() -> Self {
        let memory = Self { last: AtomicU64::new(ROOT), ..Self::default() };
        let attr = Attr { ino: ROOT, mode: S_IFDIR | 0o777, nlink: 2, ..Attr::default() };
        let root = Node { attr, ..Node::default() };
        memory.nodes().insert(ROOT, root);
        memory
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<u64, Node>> {
        self.nodes.lock().unwrap()
    }

    /// Changes a file's data, but not through the mount.
    pub(crate) fn change(&self, name: &[u8], data: &[u8]) -> u64 {
        let mut nodes = self.nodes();
        let id = nodes[&ROOT].names[name];
        let node = nodes.get_mut(&id).unwrap();
        node.data = data.to_vec();
        node.attr.size_bytes = data.len() as u64;
        id
    }

    /// Removes a name, but not through the mount.
    pub(crate) fn take_away(&self, name: &[u8]) -> u64 {
        self.nodes().get_mut(&ROOT).unwrap().names.remove(name).unwrap()
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes().len()
    }

    fn make(
        &self,
        request: &Request,
        parent: u64,
        name: Option<&[u8]>,
        mode: u32,
    ) -> Result<Entry> {
        let mut nodes = self.nodes();
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(name) = name {
            let names = &mut nodes.get_mut(&parent).ok_or(Errno::NOENT)?.names;
            if names.contains_key(name) {
                return Err(Errno::EXIST);
            }
            names.insert(name.to_vec(), id);
        }
        let mut node = Node { lookups: 1, ..Node::default() };
        node.attr = Attr {
            ino: id,
            mode,
            uid: request.uid,
            gid: request.gid,
            nlink: if mode & libc::S_IFMT == S_IFDIR { 2 } else { u32::from(name.is_some()) },
            blksize_bytes: 4096,
            btime: Time { secs: 1_234_567_890, nanos: 123_456_789 },
            ..Attr::default()
        };
        let entry = self.entry(id, &node);
        nodes.insert(id, node);
        Ok(entry)
    }

    fn entry(&self, id: u64, node: &Node) -> Entry {
        Entry { node: id, generation: 0, entry_valid: VALID, attr: node.attr, attr_valid: VALID }
    }

    fn remove(&self, parent: u64, name: &[u8]) -> Result<()> {
        let mut nodes = self.nodes();
        let id = nodes.get_mut(&parent).unwrap().names.remove(name).ok_or(Errno::NOENT)?;
        let node = nodes.get_mut(&id).unwrap();
        node.attr.nlink = node.attr.nlink.saturating_sub(1);
        Ok(())
    }
}

impl FileSystem for &Memory {
    fn init(&self, agreed: &Agreed) {
        *self.agreed.lock().unwrap() = Some(*agreed);
    }

    fn lookup(&self, _: &Request, parent: u64, name: &[u8]) -> Result<Entry> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        let mut nodes = self.nodes();
        let Some(&id) = nodes.get(&parent).ok_or(Errno::NOENT)?.names.get(name) else {
            return Ok(Entry::absent(VALID));
        };
        let node = nodes.get_mut(&id).unwrap();
        node.lookups += 1;
        Ok(self.entry(id, node))
    }

    fn forget(&self, node: u64, count: u64) {
        self.forgotten.fetch_add(count, Ordering::Relaxed);
        let mut nodes = self.nodes();
        if let Some(known) = nodes.get_mut(&node) {
            known.lookups -= count;
            if known.lookups == 0 && known.attr.nlink == 0 {
                nodes.remove(&node);
            }
        }
    }

    fn getattr(&self, _: &Request, node: u64, _: Option<u64>) -> Result<AttrReply> {
        self.attribute_reads.fetch_add(1, Ordering::Relaxed);
        self.nodes().get(&node).map(reply).ok_or(Errno::NOENT)
    }

    fn statx(
        &self,
        request: &Request,
        node: u64,
        handle: Option<u64>,
        _: u32,
    ) -> Result<AttrReply> {
        self.getattr(request, node, handle)
    }

    fn setattr(&self, _: &Request, node: u64, changes: &SetAttr) -> Result<AttrReply> {
        let mut nodes = self.nodes();
        let node = nodes.get_mut(&node).ok_or(Errno::NOENT)?;
        self.kills.fetch_add(u64::from(changes.kill_priv), Ordering::Relaxed);
        self.attribute_changes.fetch_add(1, Ordering::Relaxed);
        let attr = &mut node.attr;
        attr.mode = changes.mode.unwrap_or(attr.mode);
        attr.uid = changes.uid.unwrap_or(attr.uid);
        attr.gid = changes.gid.unwrap_or(attr.gid);
        for (time, change) in [(&mut attr.atime, changes.atime), (&mut attr.mtime, changes.mtime)] {
            match change {
                Some(SetTime::At(at)) => *time = at,
                Some(SetTime::Now) => *time = Time { secs: 1, nanos: 1 },
                None => (),
            }
        }
        if let Some(size_bytes) = changes.size_bytes {
            attr.size_bytes = size_bytes;
            node.data.resize(size_bytes as usize, 0);
        }
        Ok(reply(node))
    }

    fn readlink(&self, _: &Request, node: u64, out: &mut [u8]) -> Result<usize> {
        let nodes = self.nodes();
        let target = &nodes[&node].data;
        out[..target.len()].copy_from_slice(target);
        Ok(target.len())
    }

    fn symlink(&self, request: &Request, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        let mut entry = self.make(request, parent, Some(name), libc::S_IFLNK | 0o777)?;
        let mut nodes = self.nodes();
        let node = nodes.get_mut(&entry.node).unwrap();
        node.data = target.to_vec();
        node.attr.size_bytes = target.len() as u64;
        entry.attr = node.attr;
        Ok(entry)
    }

    fn mknod(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
        _: u32,
    ) -> Result<Entry> {
        self.make(request, parent, Some(name), mode & !umask)
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
    ) -> Result<Entry> {
        self.make(request, parent, Some(name), S_IFDIR | (mode & !umask))
    }

    fn unlink(&self, _: &Request, parent: u64, name: &[u8]) -> Result<()> {
        self.remove(parent, name)
    }

    fn rmdir(&self, _: &Request, parent: u64, name: &[u8]) -> Result<()> {
        self.remove(parent, name)
    }

    fn rename(
        &self,
        _: &Request,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        flags: u32,
    ) -> Result<()> {
        let mut nodes = self.nodes();
        if flags & libc::RENAME_NOREPLACE != 0 && nodes[&new_parent].names.contains_key(new_name) {
            return Err(Errno::EXIST);
        }
        let id = nodes.get_mut(&parent).unwrap().names.remove(name).ok_or(Errno::NOENT)?;
        nodes.get_mut(&new_parent).unwrap().names.insert(new_name.to_vec(), id);
        Ok(())
    }

    fn link(&self, _: &Request, node: u64, new_parent: u64, new_name: &[u8]) -> Result<Entry> {
        let mut nodes = self.nodes();
        nodes.get_mut(&new_parent).unwrap().names.insert(new_name.to_vec(), node);
        let linked = nodes.get_mut(&node).unwrap();
        linked.attr.nlink += 1;
        linked.lookups += 1;
        Ok(self.entry(node, linked))
    }

    fn read(&self, _: &Request, node: u64, _: u64, offset: u64, out: &mut [u8]) -> Result<usize> {
        let nodes = self.nodes();
        let data = &nodes.get(&node).ok_or(Errno::NOENT)?.data;
        let from = data.get(offset as usize..).unwrap_or_default();
        let len = from.len().min(out.len());
        out[..len].copy_from_slice(&from[..len]);
        Ok(len)
    }

    fn write(&self, _: &Request, node: u64, how: &WriteHow, data: &[u8]) -> Result<usize> {
        self.kills.fetch_add(u64::from(how.kill_priv), Ordering::Relaxed);
        self.writes.lock().unwrap().push((how.offset, data.len() as u64));
        let mut nodes = self.nodes();
        let node = nodes.get_mut(&node).ok_or(Errno::NOENT)?;
        let end = how.offset as usize + data.len();
        if node.data.len() < end {
            node.data.resize(end, 0);
            node.attr.size_bytes = end as u64;
        }
        node.data[how.offset as usize..end].copy_from_slice(data);
        Ok(data.len())
    }

    fn statfs(&self, _: &Request, _: u64) -> Result<StatFs> {
        Ok(StatFs {
            blocks: 1000,
            blocks_free: 500,
            blocks_available: 400,
            files: 7,
            files_free: 6,
            block_bytes: 65536,
            fragment_bytes: 4096,
            name_max_bytes: 255,
        })
    }

    fn fsync(&self, _: &Request, _: u64, _: u64, _: bool) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn fsyncdir(&self, _: &Request, _: u64, _: u64, _: bool) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn setxattr(
        &self,
        _: &Request,
        node: u64,
        name: &[u8],
        value: &[u8],
        _: SetxattrHow,
    ) -> Result<()> {
        let mut nodes = self.nodes();
        nodes.get_mut(&node).unwrap().xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    fn getxattr(&self, _: &Request, node: u64, name: &[u8], out: &mut [u8]) -> Result<usize> {
        self.attribute_reads.fetch_add(1, Ordering::Relaxed);
        let nodes = self.nodes();
        let value = nodes[&node].xattrs.get(name).ok_or(Errno::NODATA)?;
        if let Some(out) = out.get_mut(..value.len()) {
            out.copy_from_slice(value);
        }
        Ok(value.len())
    }

    fn listxattr(&self, _: &Request, node: u64, out: &mut [u8]) -> Result<usize> {
        let nodes = self.nodes();
        let list: Vec<u8> =
            nodes[&node].xattrs.keys().flat_map(|name| [name, &[0][..]].concat()).collect();
        if let Some(out) = out.get_mut(..list.len()) {
            out.copy_from_slice(&list);
        }
        Ok(list.len())
    }

    fn removexattr(&self, _: &Request, node: u64, name: &[u8]) -> Result<()> {
        let mut nodes = self.nodes();
        let removed = nodes.get_mut(&node).unwrap().xattrs.remove(name);
        removed.map(drop).ok_or(Errno::NODATA)
    }

    fn opendir(&self, _: &Request, _: u64, _: OpenHow) -> Result<Opened> {
        Ok(Opened::default())
    }

    fn readdir(
        &self,
        _: &Request,
        node: u64,
        _: u64,
        offset: u64,
        entries: &mut Entries<'_>,
    ) -> Result<()> {
        let nodes = self.nodes();
        for (at, (name, id)) in nodes[&node].names.iter().enumerate().skip(offset as usize) {
            if !entries.add(*id, at as u64 + 1, nodes[id].attr.mode, name) {
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
        offset: u64,
        entries: &mut EntriesPlus<'_>,
    ) -> Result<()> {
        let mut nodes = self.nodes();
        let names: Vec<_> = nodes[&node].names.clone().into_iter().collect();
        for (at, (name, id)) in names.iter().enumerate().skip(offset as usize) {
            let known = nodes.get_mut(id).unwrap();
            if !entries.add(&self.entry(*id, known), at as u64 + 1, name) {
                break;
            }
            known.lookups += 1;
        }
        Ok(())
    }

    fn create(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        how: &CreateHow,
    ) -> Result<(Entry, Opened)> {
        let entry = self.make(request, parent, Some(name), how.mode & !how.umask)?;
        Ok((entry, Opened { handle: 0, flags: OpenedFlags::KEEP_CACHE }))
    }

    fn tmpfile(&self, request: &Request, parent: u64, how: &CreateHow) -> Result<(Entry, Opened)> {
        let entry = self.make(request, parent, None, how.mode & !how.umask)?;
        Ok((entry, Opened { handle: 0, flags: OpenedFlags::KEEP_CACHE }))
    }

    fn fallocate(
        &self,
        _: &Request,
        node: u64,
        _: u64,
        offset: u64,
        length: u64,
        mode: u32,
    ) -> Result<()> {
        if mode != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let mut nodes = self.nodes();
        let node = nodes.get_mut(&node).unwrap();
        let end = (offset + length) as usize;
        node.data.resize(node.data.len().max(end), 0);
        node.attr.size_bytes = node.data.len() as u64;
        Ok(())
    }

    fn lseek(&self, _: &Request, node: u64, _: u64, offset: u64, whence: u32) -> Result<u64> {
        let len = self.nodes()[&node].data.len() as u64;
        match whence as i32 {
            _ if offset >= len => Err(Errno::NXIO),
            libc::SEEK_DATA => Ok(offset),
            _ => Ok(len),
        }
    }

    fn copy_file_range(&self, _: &Request, range: &CopyRange) -> Result<u64> {
        let mut nodes = self.nodes();
        let source = nodes[&range.source.node].data.get(range.source.offset as usize..);
        let source = source.unwrap_or_default();
        let copied = source[..source.len().min(range.len_bytes as usize)].to_vec();
        let target = nodes.get_mut(&range.target.node).unwrap();
        let start = range.target.offset as usize;
        let end = start + copied.len();
        target.data.resize(target.data.len().max(end), 0);
        target.data[start..end].copy_from_slice(&copied);
        target.attr.size_bytes = target.data.len() as u64;
        Ok(copied.len() as u64)
    }
}
