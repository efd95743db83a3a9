//! The names of files, as the directories in streams have them.
//!
//! A stream with a base has only the entries of directories that changed. With the streams before
//! it all names are known; without them the paths of some files are not, or not from the root on.

use std::collections::BTreeMap;

use dendro_base::Origin;
use dendro_fs::{Ino, names_in};
use dendro_stream::{Header, Item, ListChange};

/// The most names that are kept. Each takes some 150 bytes.
pub(super) const MAX_NAMES: usize = 1 << 20;

/// The most directories on a path: those of a forged stream may have a loop.
const MAX_DEPTH: usize = 4096;

/// A directory, and a record of it: where names are.
type Place = (u64, u64);

/// The names of files in the versions whose streams were read.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// The names in each record of a directory.
    records: BTreeMap<Place, Vec<(Ino, Vec<u8>)>>,
    /// The records that name each file.
    places: BTreeMap<u64, Vec<Place>>,
    /// Names that the present stream has taken away: of each file the directory and the name.
    gone: BTreeMap<u64, (u64, Vec<u8>)>,
    /// Lists that the present stream deletes. What was in them is known until the next one.
    deleted: Vec<u64>,
    count: usize,
    has_more: bool,
    /// The version whose names these are.
    version: Option<Origin>,
    list: u64,
}

impl Names {
    /// Begins with the names of the next stream. If that does not go on from the version before,
    /// those names are forgotten.
    pub(super) fn begin(&mut self, header: &Header) {
        let base = header.base.as_ref().map(|base| base.origin);
        if header.rest.is_none() && base != self.version {
            *self = Self { has_more: self.has_more, ..Self::default() };
        }
        for list in std::mem::take(&mut self.deleted) {
            let of_list: Vec<Place> =
                self.records.range((list, 0)..=(list, u64::MAX)).map(|(place, _)| *place).collect();
            of_list.into_iter().for_each(|place| self.put(place, Vec::new()));
        }
        self.gone.clear();
        self.version = Some(header.version.origin);
        self.list = 0;
    }

    pub(super) fn take(&mut self, item: &Item<'_>) {
        match item {
            Item::List { list, change, .. } => {
                self.list = *list;
                if *change == ListChange::Deleted {
                    self.deleted.push(*list);
                }
            }
            Item::Record { index, value } => {
                let names: Vec<(Ino, Vec<u8>)> = names_in(*index, value.unwrap_or_default())
                    .map(|(ino, name)| (ino, name.to_vec()))
                    .collect();
                self.put((self.list, *index), names);
            }
            _ => {}
        }
    }

    fn put(&mut self, place: Place, names: Vec<(Ino, Vec<u8>)>) {
        for (ino, name) in self.records.remove(&place).unwrap_or_default() {
            self.count -= 1;
            if let Some(places) = self.places.get_mut(&ino.0) {
                places.retain(|of| *of != place);
            }
            self.gone.insert(ino.0, (place.0, name));
        }
        if names.is_empty() {
            return;
        }
        if self.count + names.len() > MAX_NAMES {
            self.has_more = true;
            return;
        }
        self.count += names.len();
        for (ino, _) in &names {
            self.places.entry(ino.0).or_default().push(place);
        }
        self.records.insert(place, names);
    }

    /// Whether all names were kept.
    pub(super) const fn are_complete(&self) -> bool {
        !self.has_more
    }

    /// A path of a file, or with `is_gone` of one that the present stream deletes. It begins with
    /// `/` if it is known from the root on, and otherwise with `.../`.
    pub(super) fn path_of(&self, file: u64, is_gone: bool) -> Option<Vec<u8>> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut at = file;
        while at != Ino::ROOT.0 && names.len() < MAX_DEPTH {
            // What is in a directory that is gone is gone, too.
            let Some((directory, name)) = self.entry_of(at, is_gone) else { break };
            names.push(name);
            at = directory;
        }
        let start: &[u8] = match (at == Ino::ROOT.0, names.is_empty()) {
            (true, true) => b"/",
            (true, false) => b"",
            (false, true) => return None,
            (false, false) => b"...",
        };
        let mut path = start.to_vec();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        Some(path)
    }

    fn entry_of(&self, file: u64, is_gone: bool) -> Option<(u64, &[u8])> {
        let present = || {
            let place = self.places.get(&file)?.iter().min()?;
            let (_, name) = self.records.get(place)?.iter().find(|(ino, _)| ino.0 == file)?;
            Some((place.0, &name[..]))
        };
        let gone = || self.gone.get(&file).map(|(directory, name)| (*directory, &name[..]));
        if is_gone { gone().or_else(present) } else { present() }
    }
}
