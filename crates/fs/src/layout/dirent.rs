//! Directory entries, and the records that hold them: one record for all names with one hash.

use zerocopy::IntoBytes;

use dendro_disk::{LogicalDisk, MAX_RECORD_LEN_BYTES, View};

use super::format::{
    DIR_BASE, DIR_SLOT_BITS, DirEntryV1, MISPLACED, RECORD_VERSION, split_bytes, split_head,
    split_version,
};
use super::names::{Name, NameHasher};
use crate::error::{FsError, Result};
use crate::types::{FileKind, Ino};

/// The cookie of `.`. The cookie of the start of a listing is 0.
pub(crate) const COOKIE_DOT: u64 = 1;
/// The cookie of `..`. All other cookies are larger.
pub(crate) const COOKIE_DOTDOT: u64 = 2;

/// How many records a search reads at a time.
const BATCH_LEN: usize = 256;

/// The bytes that an entry adds to its directory's size.
pub(crate) const fn entry_len(name: &[u8]) -> usize {
    size_of::<DirEntryV1>() + name.len()
}

/// A directory entry, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) ino: Ino,
    pub(crate) slot: u8,
    pub(crate) kind: FileKind,
    pub(crate) name: &'a [u8],
    /// The name is hidden, and was in the wrong record.
    is_misplaced: bool,
}

impl Entry<'_> {
    /// Whether the record at `index` is where the name is looked up.
    pub(crate) fn is_placed(&self, hasher: &NameHasher, index: u64) -> bool {
        match hasher.is_hidden() {
            true => !self.is_misplaced,
            false => hasher.dir_index(self.name) == index,
        }
    }
}

/// The cookie of the entry in `slot` of the record at `index`.
pub(crate) const fn cookie(index: u64, slot: u8) -> u64 {
    (index & !DIR_BASE) << DIR_SLOT_BITS | slot as u64
}

/// Where a listing goes on after `cookie`: the index of a record, and the slot in it behind which
/// the next entry is. `None` behind the last possible entry.
pub(crate) const fn position_after(cookie: u64) -> Option<(u64, Option<u8>)> {
    if cookie <= COOKIE_DOTDOT {
        return Some((DIR_BASE, None));
    }
    let hash = cookie >> DIR_SLOT_BITS;
    if hash >= 1 << super::format::DIR_HASH_BITS {
        return None;
    }
    Some((DIR_BASE | hash, Some((cookie & ((1 << DIR_SLOT_BITS) - 1)) as u8)))
}

/// The entries of a record, in the order of their slots. A malformed entry is the last item.
pub(crate) struct Entries<'a> {
    rest: Result<&'a [u8]>,
}

/// The entries of `record`, which may be empty.
pub(crate) fn entries(record: &[u8]) -> Entries<'_> {
    let rest =
        if record.is_empty() { Ok(record) } else { split_version(record, "a directory record") };
    Entries { rest }
}

impl<'a> Entries<'a> {
    fn decode(bytes: &'a [u8]) -> Result<(Entry<'a>, &'a [u8])> {
        let (head, rest) = split_head::<DirEntryV1>(bytes, "a directory entry")?;
        let (name, rest) = split_bytes(rest, usize::from(head.name_len), "a name")?;
        let kind = FileKind::from_dirent_type(head.kind)
            .ok_or_else(|| FsError::Corrupted("a directory entry of unknown type".into()))?;
        if name.is_empty() || head.slot >> DIR_SLOT_BITS != 0 {
            return Err(FsError::Corrupted("a directory entry without name or slot".into()));
        }
        let is_misplaced = head.reserved & MISPLACED != 0;
        Ok((Entry { ino: Ino(head.ino.get()), slot: head.slot, kind, name, is_misplaced }, rest))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = match std::mem::replace(&mut self.rest, Ok(&[])) {
            Ok([]) => return None,
            Ok(bytes) => bytes,
            Err(error) => return Some(Err(error)),
        };
        Some(Self::decode(bytes).map(|(entry, rest)| {
            self.rest = Ok(rest);
            entry
        }))
    }
}

/// The names in the record at `index` of a list, with the files that they name, for tools that see
/// records without a disk: none if it is no directory's, or malformed.
pub fn names_in(index: u64, record: &[u8]) -> impl Iterator<Item = (Ino, &[u8])> {
    let record = if index >= DIR_BASE { record } else { &[] };
    entries(record).map_while(Result::ok).map(|entry| (entry.ino, entry.name))
}

/// `bytes` as a name in the directory `dir`, with the index of the record that holds its entry, or
/// would hold it.
pub(crate) fn locate<'n>(
    disk: &dyn LogicalDisk,
    view: View,
    hasher: &NameHasher,
    dir: Ino,
    bytes: &'n [u8],
) -> Result<Name<'n>> {
    let mut name = hasher.name(bytes);
    let mut from = DIR_BASE;
    while hasher.is_hidden() {
        let batch = disk.records(view, dir.lid(), from, BATCH_LEN)?;
        for (index, record) in &batch {
            if find(record, bytes)?.is_some() {
                name.index = *index;
                return Ok(name);
            }
        }
        match batch.last().and_then(|(last, _)| last.checked_add(1)) {
            Some(next) if batch.len() == BATCH_LEN => from = next,
            _ => break,
        }
    }
    Ok(name)
}

/// The entry of `name` in `record`.
pub(crate) fn find<'a>(record: &'a [u8], name: &[u8]) -> Result<Option<Entry<'a>>> {
    for entry in entries(record) {
        let entry = entry?;
        if entry.name == name {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

fn push(record: &mut Vec<u8>, entry: &Entry<'_>) {
    if record.is_empty() {
        record.push(RECORD_VERSION);
    }
    let head = DirEntryV1 {
        ino: entry.ino.0.into(),
        slot: entry.slot,
        kind: entry.kind.dirent_type(),
        name_len: entry.name.len() as u8,
        reserved: 0,
    };
    record.extend_from_slice(head.as_bytes());
    record.extend_from_slice(entry.name);
}

/// Adds an entry whose name is not in `record`, in the lowest free slot. The other entries keep
/// their slots, so their cookies stay valid.
pub(crate) fn insert(record: &mut Vec<u8>, name: &[u8], ino: Ino, kind: FileKind) -> Result<()> {
    let mut new = Vec::with_capacity(record.len() + 1 + entry_len(name));
    let mut slot = 0;
    let mut pending = true;
    for entry in entries(record) {
        let entry = entry?;
        if pending && entry.slot > slot {
            push(&mut new, &Entry { ino, slot, kind, name, is_misplaced: false });
            pending = false;
        }
        slot = slot.max(entry.slot + 1);
        push(&mut new, &entry);
    }
    if pending {
        push(&mut new, &Entry { ino, slot, kind, name, is_misplaced: false });
    }
    if new.len() > MAX_RECORD_LEN_BYTES || slot >> DIR_SLOT_BITS != 0 {
        return Err(FsError::Full("too many names of this directory have the same hash"));
    }
    *record = new;
    Ok(())
}

/// Removes the entry of `name`, and returns whether there was one. A record without entries is
/// empty.
pub(crate) fn remove(record: &mut Vec<u8>, name: &[u8]) -> Result<bool> {
    let mut new = Vec::with_capacity(record.len());
    let mut found = false;
    for entry in entries(record) {
        let entry = entry?;
        if entry.name == name {
            found = true;
        } else {
            push(&mut new, &entry);
        }
    }
    *record = new;
    Ok(found)
}

/// Makes the entry of `name` name another file, and returns whether there was one.
pub(crate) fn replace(record: &mut Vec<u8>, name: &[u8], ino: Ino, kind: FileKind) -> Result<bool> {
    let mut new = Vec::with_capacity(record.len());
    let mut found = false;
    for entry in entries(record) {
        let mut entry = entry?;
        if entry.name == name {
            found = true;
            (entry.ino, entry.kind) = (ino, kind);
        }
        push(&mut new, &entry);
    }
    *record = new;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(record: &[u8]) -> Vec<(u8, Vec<u8>)> {
        entries(record).map(|entry| entry.map(|e| (e.slot, e.name.to_vec())).unwrap()).collect()
    }

    #[test]
    fn names_that_share_a_record_keep_their_slots() {
        let mut record = Vec::new();
        for (ino, name) in [b"a", b"b", b"c"].into_iter().enumerate() {
            insert(&mut record, name, Ino(ino as u64), FileKind::Regular).unwrap();
        }
        assert!(remove(&mut record, b"b").unwrap());
        assert!(!remove(&mut record, b"b").unwrap());
        assert_eq!(names(&record), [(0, b"a".to_vec()), (2, b"c".to_vec())]);
        insert(&mut record, b"d", Ino(9), FileKind::Directory).unwrap();
        assert_eq!(names(&record), [(0, b"a".into()), (1, b"d".into()), (2, b"c".into())]);
        assert!(replace(&mut record, b"d", Ino(10), FileKind::Fifo).unwrap());
        let found = find(&record, b"d").unwrap().unwrap();
        assert_eq!((found.ino, found.kind, found.slot), (Ino(10), FileKind::Fifo, 1));
        for name in [b"a", b"c", b"d"] {
            assert!(remove(&mut record, name).unwrap());
        }
        assert!(record.is_empty());
    }

    #[test]
    fn collisions_are_bounded_by_the_record() {
        let mut record = Vec::new();
        for n in 0..3_u8 {
            insert(&mut record, &[b'a' + n; 255], Ino(1), FileKind::Regular).unwrap();
        }
        let before = record.clone();
        let full = insert(&mut record, &[b'x'; 255], Ino(1), FileKind::Regular);
        assert!(matches!(full, Err(FsError::Full(_))));
        assert_eq!(record, before);
        assert!(record.len() <= MAX_RECORD_LEN_BYTES);
        let mut record = Vec::new();
        let count = (0..=255_u8)
            .take_while(|&n| insert(&mut record, &[n], Ino(1), FileKind::Regular).is_ok())
            .count();
        assert_eq!(count, (MAX_RECORD_LEN_BYTES - 1) / 13);
    }

    #[test]
    fn no_damage_to_a_record_panics() {
        let mut record = Vec::new();
        insert(&mut record, b"name", Ino(1), FileKind::Regular).unwrap();
        insert(&mut record, b"other", Ino(2), FileKind::Regular).unwrap();
        for at in 0..record.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = record.clone();
                damaged[at] ^= flip;
                let _ = find(&damaged, b"absent");
                let _ = insert(&mut damaged, b"x", Ino(3), FileKind::Regular);
            }
            let _ = find(&record[..at], b"absent");
        }
    }

    #[test]
    fn cookies_lead_back_to_where_they_came_from() {
        let index = DIR_BASE | 5;
        let cookie = cookie(index, 3);
        assert!(cookie > COOKIE_DOTDOT && cookie < 1 << 62);
        assert_eq!(position_after(cookie), Some((index, Some(3))));
        assert_eq!(position_after(COOKIE_DOTDOT), Some((DIR_BASE, None)));
        assert_eq!(position_after(u64::MAX), None);
    }
}
