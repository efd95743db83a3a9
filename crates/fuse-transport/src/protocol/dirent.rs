//! Directory entries, as the replies to READDIR and READDIRPLUS contain them.

use zerocopy::IntoBytes;

use super::abi::{DirentHead, EntryOut};
use super::encode;
use super::types::Entry;

/// The alignment of records.
const ALIGN: usize = 8;

/// The reply to a READDIR while it is being filled.
#[derive(Debug)]
pub struct Entries<'a> {
    out: Writer<'a>,
}

impl<'a> Entries<'a> {
    pub(crate) fn new(out: &'a mut [u8]) -> Self {
        Self { out: Writer { out, len: 0 } }
    }

    pub(crate) fn len(&self) -> usize {
        self.out.len
    }

    /// Adds an entry. Returns false if there is no room for it: the kernel will request it again.
    ///
    /// `cookie` is where a listing goes on behind this entry. `mode` has the type bits of
    /// `st_mode`.
    pub fn add(&mut self, ino: u64, cookie: u64, mode: u32, name: &[u8]) -> bool {
        self.out.add(&[], &head(ino, cookie, mode, name), name)
    }
}

/// The reply to a READDIRPLUS while it is being filled.
#[derive(Debug)]
pub struct EntriesPlus<'a> {
    out: Writer<'a>,
}

impl<'a> EntriesPlus<'a> {
    pub(crate) fn new(out: &'a mut [u8]) -> Self {
        Self { out: Writer { out, len: 0 } }
    }

    pub(crate) fn len(&self) -> usize {
        self.out.len
    }

    /// Adds an entry with the reply that a LOOKUP of it would get. Returns false if there is no
    /// room for it: the kernel will request it again, and has no reference to it.
    pub fn add(&mut self, entry: &Entry, cookie: u64, name: &[u8]) -> bool {
        let wire: EntryOut = encode::entry(entry);
        self.out.add(wire.as_bytes(), &head(entry.attr.ino, cookie, entry.attr.mode, name), name)
    }
}

fn head(ino: u64, cookie: u64, mode: u32, name: &[u8]) -> DirentHead {
    let name_len = u32::try_from(name.len()).unwrap_or(u32::MAX);
    DirentHead { ino, offset: cookie, name_len, kind: (mode & libc::S_IFMT) >> 12 }
}

#[derive(Debug)]
struct Writer<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl Writer<'_> {
    fn add(&mut self, before: &[u8], head: &DirentHead, name: &[u8]) -> bool {
        let head = head.as_bytes();
        let len = (before.len() + head.len() + name.len()).next_multiple_of(ALIGN);
        let Some(record) = self.out.get_mut(self.len..).and_then(|free| free.get_mut(..len)) else {
            return false;
        };
        let (start, rest) = record.split_at_mut(before.len());
        start.copy_from_slice(before);
        let (start, rest) = rest.split_at_mut(head.len());
        start.copy_from_slice(head);
        let (start, rest) = rest.split_at_mut(name.len());
        start.copy_from_slice(name);
        rest.fill(0);
        self.len += len;
        true
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromBytes;

    use super::*;

    #[test]
    fn entries_are_aligned_and_end_where_the_room_does() {
        let mut out = [0xff; 24 + 8 + 24 + 7];
        let mut entries = Entries::new(&mut out);
        assert!(entries.add(7, 1, libc::S_IFDIR | 0o755, b"abc"));
        assert!(!entries.add(8, 2, libc::S_IFREG, b"x"));
        assert_eq!(entries.len(), 32);
        let (head, rest) = DirentHead::read_from_prefix(&out).unwrap();
        assert_eq!((head.ino, head.offset, head.name_len, head.kind), (7, 1, 3, 4));
        assert_eq!(&rest[..8], b"abc\0\0\0\0\0");
    }

    #[test]
    fn entries_with_attributes_carry_both() {
        let mut out = [0; 512];
        let mut entries = EntriesPlus::new(&mut out);
        let mut entry = Entry::absent(std::time::Duration::MAX);
        entry.node = 5;
        entry.attr.ino = 6;
        assert!(entries.add(&entry, 3, b"12345678"));
        assert_eq!(entries.len(), 128 + 24 + 8);
        let (wire, rest) = EntryOut::read_from_prefix(&out).unwrap();
        assert_eq!((wire.node, wire.attr.ino), (5, 6));
        assert_eq!(DirentHead::read_from_prefix(rest).unwrap().0.offset, 3);
    }
}
