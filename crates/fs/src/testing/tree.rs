//! Everything that users can see of a file system.

use std::collections::BTreeMap;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::error::{FsError, Result};
use crate::filesystem::FileSystem;
use crate::types::{Attr, FileKind, FileTime, Ino, Seek};

/// The length of the units of data in [`TreeNode::pages`].
pub const PAGE: usize = 4096;

/// Everything that users can see of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named as in Attr")]
pub struct TreeNode {
    pub kind: FileKind,
    pub perm: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    /// 0 for directories, whose size depends on the implementation.
    pub size: u64,
    pub atime: FileTime,
    pub mtime: FileTime,
    pub ctime: FileTime,
    pub btime: FileTime,
    /// Hashes of the pages that are not all zeros.
    pub pages: BTreeMap<u64, u64>,
    /// A symbolic link's target.
    pub target: Vec<u8>,
    /// Extended attributes: names and hashes of their values.
    pub xattrs: BTreeMap<Vec<u8>, u64>,
    /// The first path of the same file, if that is an earlier one.
    pub same_as: Option<String>,
}

/// Everything that users can see of a file system: its files by their paths. The path of the root
/// is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The files.
    pub nodes: BTreeMap<String, TreeNode>,
}

/// A hash to compare contents, as in [`TreeNode::pages`] and [`TreeNode::xattrs`].
#[must_use]
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish()
}

/// The path of `name` in the directory `parent`.
pub(super) fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") }
}

impl Tree {
    /// The tree of `fs`, which must not change meanwhile.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn of_fs(fs: &FileSystem) -> Result<Self> {
        let mut tree = Self::default();
        let mut seen = BTreeMap::new();
        let mut queue = vec![(String::new(), Ino::ROOT)];
        // Names are visited in the order of their paths, so that `same_as` is comparable.
        while let Some((path, ino)) = queue.pop() {
            let mut node = read_node(fs, ino)?;
            node.same_as = seen.get(&ino).cloned();
            if node.same_as.is_none() {
                seen.insert(ino, path.clone());
            }
            if node.kind == FileKind::Directory {
                let mut children = Vec::new();
                fs.readdir(ino, 0, &mut |entry| {
                    let name = String::from_utf8_lossy(entry.name).into_owned();
                    if entry.cookie > 2 {
                        children.push((join(&path, &name), entry.ino));
                    }
                    true
                })?;
                children.sort_by(|a, b| b.0.cmp(&a.0));
                queue.extend(children);
            }
            tree.nodes.insert(path, node);
        }
        Ok(tree)
    }

    /// A description of the first difference to `other`; `None` if they are equal.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        for (path, node) in &self.nodes {
            match other.nodes.get(path) {
                None => return Some(format!("/{path} is there, and not in the other")),
                Some(theirs) if theirs != node => {
                    return Some(format!("/{path} differs:\n{node:?}\n{theirs:?}"));
                }
                Some(_) => (),
            }
        }
        let extra = other.nodes.keys().find(|path| !self.nodes.contains_key(*path));
        extra.map(|path| format!("/{path} is in the other, and not here"))
    }
}

/// A file of which nothing but the attributes is known.
pub(super) fn attributes_of(attr: &Attr) -> TreeNode {
    TreeNode {
        kind: attr.kind,
        perm: attr.perm,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        size: if attr.kind == FileKind::Directory { 0 } else { attr.size_bytes },
        atime: attr.atime,
        mtime: attr.mtime,
        ctime: attr.ctime,
        btime: attr.btime,
        pages: BTreeMap::new(),
        target: Vec::new(),
        xattrs: BTreeMap::new(),
        same_as: None,
    }
}

fn read_node(fs: &FileSystem, ino: Ino) -> Result<TreeNode> {
    let attr = fs.getattr(ino)?;
    let mut node = attributes_of(&attr);
    if attr.kind == FileKind::Symlink {
        node.target = fs.readlink(ino)?;
    }
    for name in fs.listxattr(ino)?.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        node.xattrs.insert(name.to_vec(), digest(&fs.getxattr(ino, name)?));
    }
    if attr.kind == FileKind::Regular {
        node.pages = read_pages(fs, ino)?;
    }
    Ok(node)
}

/// The pages that are not zeros, found as by a program that skips holes.
fn read_pages(fs: &FileSystem, ino: Ino) -> Result<BTreeMap<u64, u64>> {
    let mut pages = BTreeMap::new();
    let mut at = 0;
    loop {
        let data = match fs.lseek(ino, at, Seek::Data) {
            Ok(data) => data,
            Err(FsError::NoData) => return Ok(pages),
            Err(error) => return Err(error),
        };
        let end = fs.lseek(ino, data, Seek::Hole)?;
        let mut page = data / PAGE as u64;
        while page * (PAGE as u64) < end {
            let mut bytes = [0; PAGE];
            let len = fs.read(ino, page * PAGE as u64, &mut bytes)?;
            bytes[len..].fill(0);
            if bytes != [0; PAGE] {
                pages.insert(page, digest(&bytes));
            }
            page += 1;
        }
        at = end;
    }
}
