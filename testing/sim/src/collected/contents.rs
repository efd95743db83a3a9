//! What is collected of a file, and what a crash may leave of that.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use dendro_base::sync::Arc;
use dendro_fs::testing::{PAGE, TreeNode, digest};

/// The bytes of a page at one moment, as far as the file had any there.
#[derive(Clone, Debug)]
struct PageState {
    bytes: Arc<[u8]>,
    /// As in [`TreeNode::pages`], where pages of zeros are left out.
    digest: Option<u64>,
}

impl PageState {
    fn new(bytes: Vec<u8>) -> Self {
        let mut page = bytes.clone();
        page.resize(PAGE, 0);
        let digest = page.iter().any(|&byte| byte != 0).then(|| digest(&page));
        Self { bytes: bytes.into(), digest }
    }
}

/// A file of which something is collected.
#[derive(Clone, Debug)]
pub(super) struct Contents {
    /// How long programs see it.
    size_bytes: u64,
    /// How long the file system has it.
    handed_bytes: u64,
    /// Pages of which something is collected: what the file system has, and what the page held
    /// after each later write. Programs see the last.
    pages: BTreeMap<u64, Vec<PageState>>,
}

impl Contents {
    /// A file so long of which nothing is collected.
    pub(super) const fn new(size_bytes: u64) -> Self {
        Self { size_bytes, handed_bytes: size_bytes, pages: BTreeMap::new() }
    }

    pub(super) const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(super) fn pages(&self) -> impl Iterator<Item = u64> {
        self.pages.keys().copied()
    }

    /// Collects a write. `read` reads a page of the file system.
    pub(super) fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        read: impl Fn(u64) -> Result<Vec<u8>, i32>,
    ) -> Result<(), i32> {
        let end = offset + data.len() as u64;
        let (first, last) = (offset / PAGE as u64, (end - 1) / PAGE as u64);
        let old_end = self.size_bytes / PAGE as u64;
        if old_end < first {
            self.fill_up(old_end);
        }
        self.size_bytes = self.size_bytes.max(end);
        for page in first..=last {
            if let Entry::Vacant(unknown) = self.pages.entry(page) {
                unknown.insert(vec![PageState::new(read(page)?)]);
            }
            let mut bytes = self.bytes_of(page);
            let start = page * PAGE as u64;
            let (from, to) = (offset.max(start), end.min(start + PAGE as u64));
            let written = &data[(from - offset) as usize..(to - offset) as usize];
            bytes[(from - start) as usize..(to - start) as usize].copy_from_slice(written);
            self.add(page, bytes);
        }
        Ok(())
    }

    /// The file goes on behind this page, which has zeros up to its end then.
    fn fill_up(&mut self, page: u64) {
        if let Some(last) = self.pages.get(&page).and_then(|states| states.last()) {
            let mut bytes = last.bytes.to_vec();
            bytes.resize(PAGE, 0);
            self.add(page, bytes);
        }
    }

    fn add(&mut self, page: u64, bytes: Vec<u8>) {
        self.pages.entry(page).or_default().push(PageState::new(bytes));
    }

    /// What programs see of a page of which something is collected.
    pub(super) fn bytes_of(&self, page: u64) -> Vec<u8> {
        let len = (self.size_bytes - page * PAGE as u64).min(PAGE as u64) as usize;
        let last = self.pages[&page].last().expect("a page has its first state");
        let mut bytes = last.bytes.to_vec();
        bytes.resize(len, 0);
        bytes
    }

    /// The file system was given a page.
    pub(super) fn hand_over(&mut self, page: u64) {
        let end = page * PAGE as u64 + self.bytes_of(page).len() as u64;
        self.handed_bytes = self.handed_bytes.max(end);
        self.pages.remove(&page);
    }

    /// The file system has made the file so long, or so short.
    pub(super) fn resize(&mut self, size_bytes: u64) {
        self.pages.retain(|page, _| page * (PAGE as u64) < size_bytes);
        if let Some(mut last) = self.pages.last_entry() {
            let len = size_bytes - last.key() * PAGE as u64;
            for state in last.get_mut() {
                let len = (len as usize).min(state.bytes.len());
                *state = PageState::new(state.bytes[..len].to_vec());
            }
        }
        (self.size_bytes, self.handed_bytes) = (size_bytes, size_bytes);
    }

    /// The file system has made the file so long, unless it is longer.
    pub(super) fn extend(&mut self, end: u64) {
        self.size_bytes = self.size_bytes.max(end);
        self.handed_bytes = self.handed_bytes.max(end);
    }

    /// Whether a crash may leave `found` of the file, of which programs saw `seen`.
    pub(super) fn allows(&self, found: &TreeNode, seen: &TreeNode) -> bool {
        let elsewhere = |node: &TreeNode| {
            let mut node = node.clone();
            node.pages.retain(|page, _| !self.pages.contains_key(page));
            // The kernel tells the times after the data.
            (node.size, node.mtime, node.ctime) = (0, seen.mtime, seen.ctime);
            node
        };
        let holds = |page: &u64, state: &PageState| state.digest == found.pages.get(page).copied();
        let ends = |page: &u64, state: &PageState| {
            holds(page, state) && page * PAGE as u64 + state.bytes.len() as u64 == found.size
        };
        let is_known =
            |(page, states): (&u64, &Vec<PageState>)| states.iter().any(|state| holds(page, state));
        let has_end = found.size == self.handed_bytes
            || self
                .pages
                .iter()
                .any(|(page, states)| states[1..].iter().any(|state| ends(page, state)));
        has_end && self.pages.iter().all(is_known) && elsewhere(found) == elsewhere(seen)
    }
}
