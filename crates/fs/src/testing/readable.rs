//! What can be read of a file system of which parts are damaged.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{PAGE, Tree, TreeNode, attributes_of, digest, join};
use crate::error::FsError;
use crate::filesystem::FileSystem;
use crate::types::{FileKind, Ino};

/// The pages of a file that are looked at.
const MAX_PAGES: u64 = 256;

/// What can be read of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadableNode {
    /// Its number.
    pub ino: Ino,
    /// What can be read of it; `None` if its attributes cannot be.
    pub node: Option<TreeNode>,
    /// The pages that cannot be read, among the first 256.
    pub bad_pages: BTreeSet<u64>,
    /// A symbolic link's target cannot be read, or not all extended attributes.
    pub lacks_records: bool,
    /// Not all entries of the directory can be read.
    pub lacks_entries: bool,
}

impl ReadableNode {
    /// Whether all of it can be read.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.node.is_some()
            && self.bad_pages.is_empty()
            && !self.lacks_records
            && !self.lacks_entries
    }
}

/// What can be read of a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadableTree {
    /// The files that can be found, by their paths.
    pub nodes: BTreeMap<String, ReadableNode>,
}

/// Whether an error says that something is damaged, rather than that it is not there.
fn is_damage(error: &FsError) -> bool {
    matches!(error, FsError::Corrupted(_) | FsError::Disk(_))
}

/// What was read; `None` if it is damaged.
fn readable<T>(answer: Result<T, FsError>, what: &str) -> Result<Option<T>, String> {
    match answer {
        Ok(read) => Ok(Some(read)),
        Err(error) if is_damage(&error) => Ok(None),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

impl ReadableTree {
    /// What can be read of `fs`, which must not change meanwhile.
    ///
    /// # Errors
    /// What `fs` says of a file that neither is so nor is damage: that something which was listed
    /// is not there.
    pub fn of_fs(fs: &FileSystem) -> Result<Self, String> {
        let mut tree = Self::default();
        let mut first_paths = BTreeMap::new();
        // Of directories that are inside each other each is visited once.
        let mut visited = BTreeSet::new();
        let mut queue = vec![(String::new(), Ino::ROOT)];
        while let Some((path, ino)) = queue.pop() {
            let mut found = read_node(fs, ino).map_err(|why| format!("/{path}: {why}"))?;
            let first: &String = first_paths.entry(ino).or_insert_with(|| path.clone());
            if let Some(node) = &mut found.node {
                node.same_as = (*first != path).then(|| first.clone());
                if node.kind == FileKind::Directory && visited.insert(ino) {
                    let mut children = children_of(fs, ino, &mut found)
                        .map_err(|why| format!("/{path}: {why}"))?;
                    children.sort_by(|a, b| b.0.cmp(&a.0));
                    let child = |(name, ino): (String, Ino)| (join(&path, &name), ino);
                    queue.extend(children.into_iter().map(child));
                }
            }
            tree.nodes.insert(path, found);
        }
        Ok(tree)
    }

    /// Whether all of it can be read.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.nodes.values().all(ReadableNode::is_whole)
    }

    /// What contradicts that the file system was `tree`, if anything does.
    #[must_use]
    pub fn contradiction(&self, fs: &FileSystem, tree: &Tree) -> Option<String> {
        let is_whole = self.is_whole();
        for (path, found) in &self.nodes {
            let Some(expected) = tree.nodes.get(path) else {
                return Some(format!("/{path} is not there"));
            };
            let Some(node) = &found.node else { continue };
            let mut node = node.clone();
            if !is_whole {
                // The first name may be one that cannot be read.
                node.same_as.clone_from(&expected.same_as);
            }
            for page in &found.bad_pages {
                node.pages.remove(page);
                if let Some(digest) = expected.pages.get(page) {
                    node.pages.insert(*page, *digest);
                }
            }
            if found.lacks_records {
                node.target.clone_from(&expected.target);
                for (name, digest) in &expected.xattrs {
                    node.xattrs.entry(name.clone()).or_insert(*digest);
                }
            }
            if node != *expected {
                return Some(format!("/{path} is {expected:?}, not {:?}", found.node));
            }
        }
        tree.nodes.keys().find_map(|path| self.absence(fs, path))
    }

    /// Says so if `path` is not there, although its directory can be read, or answers another file.
    fn absence(&self, fs: &FileSystem, path: &str) -> Option<String> {
        if self.nodes.contains_key(path) {
            return None;
        }
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.nodes.get(parent)?;
        if parent.node.is_some() && !parent.lacks_entries {
            return Some(format!("/{path} is there"));
        }
        match fs.lookup(parent.ino, name.as_bytes()) {
            Ok(attr) => {
                fs.forget(attr.ino, 1);
                None
            }
            Err(error) if is_damage(&error) => None,
            Err(error) => Some(format!("/{path} is there, which answers: {error}")),
        }
    }
}

/// The entries of a directory that can be listed.
fn children_of(
    fs: &FileSystem,
    ino: Ino,
    found: &mut ReadableNode,
) -> Result<Vec<(String, Ino)>, String> {
    let mut children = Vec::new();
    let listed = fs.readdir(ino, 0, &mut |entry| {
        if entry.cookie > 2 {
            children.push((String::from_utf8_lossy(entry.name).into_owned(), entry.ino));
        }
        true
    });
    found.lacks_entries = readable(listed, "its entries")?.is_none();
    for (name, child) in &children {
        match fs.lookup(ino, name.as_bytes()) {
            Ok(attr) if attr.ino == *child => fs.forget(attr.ino, 1),
            Ok(attr) => return Err(format!("{name} is {child} and, looked up, {}", attr.ino)),
            Err(error) if is_damage(&error) => {}
            Err(error) => return Err(format!("{name} is listed, and looked up: {error}")),
        }
    }
    Ok(children)
}

fn read_node(fs: &FileSystem, ino: Ino) -> Result<ReadableNode, String> {
    let mut found = ReadableNode {
        ino,
        node: None,
        bad_pages: BTreeSet::new(),
        lacks_records: false,
        lacks_entries: false,
    };
    let Some(attr) = readable(fs.getattr(ino), "its attributes")? else { return Ok(found) };
    let mut node = attributes_of(&attr);
    if attr.kind == FileKind::Symlink {
        match readable(fs.readlink(ino), "its target")? {
            Some(target) => node.target = target,
            None => found.lacks_records = true,
        }
    }
    match readable(fs.listxattr(ino), "its attributes' names")? {
        Some(names) => {
            for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
                match readable(fs.getxattr(ino, name), "an extended attribute")? {
                    Some(value) => drop(node.xattrs.insert(name.to_vec(), digest(&value))),
                    None => found.lacks_records = true,
                }
            }
        }
        None => found.lacks_records = true,
    }
    if attr.kind == FileKind::Regular {
        let page_count = attr.size_bytes.div_ceil(PAGE as u64).min(MAX_PAGES);
        for page in 0..page_count {
            let mut bytes = [0; PAGE];
            match readable(fs.read(ino, page * PAGE as u64, &mut bytes), "a page")? {
                Some(len) => {
                    bytes[len..].fill(0);
                    if bytes != [0; PAGE] {
                        node.pages.insert(page, digest(&bytes));
                    }
                }
                None => drop(found.bad_pages.insert(page)),
            }
        }
    }
    found.node = Some(node);
    Ok(found)
}
