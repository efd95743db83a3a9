//! The i-node: its record, and what must hold of any i-node.

use std::ops::Range;

use dendro_disk::{ListCompression, ListHints, MAX_PAGE_COUNT, PAGE_SIZE, Record};
use zerocopy::IntoBytes;

use super::format::{
    InodeV1, ORPHAN_PUNCH, ORPHAN_TRUNCATE, PunchedV1, RECORD_VERSION, STATE_ALL, STATE_CAPABILITY,
    STATE_EOF_PAGES, STATE_INLINE, STATE_PUNCHING, STATE_TRUNCATING, split_bytes, split_head,
};
use crate::error::{FsError, Result};
use crate::types::{
    Attr, FileFlags, FileKind, FileTime, Ino, MAX_FILE_SIZE_BYTES, MAX_SYMLINK_LEN_BYTES,
};

/// The longest data of a regular file that are stored inline, in the i-node's record. Up to this
/// length a record costs less than a page, and each write puts the i-node's record anyway.
pub(crate) const MAX_INLINE_FILE_LEN: usize = 200;

/// The set-user-id bit.
pub(crate) const S_ISUID: u32 = 0o4000;
/// The set-group-id bit. New files in a directory that has it get the directory's group.
pub(crate) const S_ISGID: u32 = 0o2000;
/// The bit that lets the group execute a file.
pub(crate) const S_IXGRP: u32 = 0o010;

/// The longest target of a symbolic link that is stored inline.
pub(crate) const MAX_INLINE_LINK_LEN: usize = 512;

bitflags::bitflags! {
    /// What the file system itself records about the state of a file.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct InodeState: u32 {
        const INLINE = STATE_INLINE;
        const CAPABILITY = STATE_CAPABILITY;
        const EOF_PAGES = STATE_EOF_PAGES;
        const TRUNCATING = STATE_TRUNCATING;
        const PUNCHING = STATE_PUNCHING;
        /// Pages are still to be freed, and the file is on the orphan list for that.
        const FREEING = STATE_TRUNCATING | STATE_PUNCHING;
    }
}

/// An i-node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    pub(crate) kind: FileKind,
    /// Permission, set-id and sticky bits.
    pub(crate) perm: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u32,
    pub(crate) flags: FileFlags,
    pub(crate) state: InodeState,
    pub(crate) generation: u32,
    pub(crate) size: u64,
    pub(crate) pages: u64,
    /// A directory's parent. For any other file the directory that last gave it a name, or 0: a
    /// hint where to look for one of its names.
    pub(crate) parent: u64,
    pub(crate) atime: FileTime,
    pub(crate) mtime: FileTime,
    pub(crate) ctime: FileTime,
    pub(crate) btime: FileTime,
    pub(crate) rdev: u32,
    pub(crate) project: u32,
    pub(crate) xattr_names_len: u32,
    /// The range of pages that is being freed and reads as zeros, while [`InodeState::PUNCHING`] is
    /// set.
    pub(crate) punched: Option<Box<Range<u64>>>,
    /// The data of a short file or link: `size` bytes if [`InodeState::INLINE`] is set, else none.
    pub(crate) inline: Vec<u8>,
}

impl Inode {
    /// A new file of `kind` without contents or names.
    pub(crate) fn new(kind: FileKind, perm: u32, now: FileTime) -> Self {
        Self {
            kind,
            perm: perm & 0o7777,
            uid: 0,
            gid: 0,
            nlink: 0,
            flags: FileFlags::empty(),
            state: InodeState::empty(),
            // A number is reused only if a crash lost the list that had it. The time tells the two
            // files apart.
            generation: (now.secs as u32).rotate_left(20) ^ now.nanos,
            size: 0,
            pages: 0,
            parent: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            rdev: 0,
            project: 0,
            xattr_names_len: 0,
            punched: None,
            inline: Vec::new(),
        }
    }

    /// The record of the i-node.
    pub(crate) fn encode(&self) -> Record {
        debug_assert!(self.state.contains(InodeState::INLINE) || self.inline.is_empty());
        debug_assert_eq!(self.state.contains(InodeState::PUNCHING), self.punched.is_some());
        let punched = self
            .punched
            .as_ref()
            .map(|range| PunchedV1 { first_page: range.start.into(), end_page: range.end.into() });
        let header_len = size_of::<InodeV1>() + punched.map_or(0, |_| size_of::<PunchedV1>());
        let head = InodeV1 {
            version: RECORD_VERSION,
            reserved0: 0,
            header_len: (header_len as u16).into(),
            mode: (self.kind.mode_bits() | self.perm).into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            nlink: self.nlink.into(),
            flags: self.flags.bits().into(),
            state: self.state.bits().into(),
            generation: self.generation.into(),
            size: self.size.into(),
            pages: self.pages.into(),
            parent: self.parent.into(),
            atime_secs: self.atime.secs.into(),
            mtime_secs: self.mtime.secs.into(),
            ctime_secs: self.ctime.secs.into(),
            btime_secs: self.btime.secs.into(),
            atime_nanos: self.atime.nanos.into(),
            mtime_nanos: self.mtime.nanos.into(),
            ctime_nanos: self.ctime.nanos.into(),
            btime_nanos: self.btime.nanos.into(),
            rdev: self.rdev.into(),
            project: self.project.into(),
            xattr_names_len: self.xattr_names_len.into(),
            reserved1: 0.into(),
        };
        let punched = punched.as_ref().map_or(&[][..], PunchedV1::as_bytes);
        if header_len + self.inline.len() == size_of::<InodeV1>() {
            return Record::from(head.as_bytes());
        }
        [head.as_bytes(), punched, &self.inline].concat().into()
    }

    /// The i-node that a record holds.
    pub(crate) fn decode(ino: Ino, bytes: &[u8]) -> Result<Self> {
        let (inode, inline) = Self::decode_without_inline(ino, bytes)?;
        Ok(Self { inline: inline.to_vec(), ..inode })
    }

    /// The i-node that a record holds, and apart from it its inline data, which it lacks.
    pub(crate) fn decode_without_inline(ino: Ino, bytes: &[u8]) -> Result<(Self, &[u8])> {
        let corrupted = |what: &str| FsError::Corrupted(format!("i-node {ino}: {what}"));
        let (head, _) = split_head::<InodeV1>(bytes, "an i-node")
            .map_err(|error| corrupted(&error.to_string()))?;
        if head.version != RECORD_VERSION {
            return Err(corrupted("unknown version"));
        }
        let header_len = usize::from(head.header_len.get());
        if header_len < size_of::<InodeV1>() {
            return Err(corrupted("its head is too short"));
        }
        let (fields, inline) = split_bytes(bytes, header_len, "a head")
            .map_err(|error| corrupted(&error.to_string()))?;
        let kind = FileKind::from_mode(head.mode.get()).ok_or_else(|| corrupted("unknown type"))?;
        if head.state.get() & !STATE_ALL != 0 {
            return Err(corrupted("unknown state"));
        }
        let mut punched = None;
        if head.state.get() & STATE_PUNCHING != 0 {
            let (range, _) = split_head::<PunchedV1>(&fields[size_of::<InodeV1>()..], "a range")
                .map_err(|error| corrupted(&error.to_string()))?;
            punched = Some(Box::new(range.first_page.get()..range.end_page.get()));
        }
        let time = |secs: i64, nanos: u32| match nanos {
            0..1_000_000_000 => Ok(FileTime { secs, nanos }),
            _ => Err(corrupted("a time has too many nanoseconds")),
        };
        let inode = Self {
            kind,
            perm: head.mode.get() & 0o7777,
            uid: head.uid.get(),
            gid: head.gid.get(),
            nlink: head.nlink.get(),
            flags: FileFlags::from_bits_retain(head.flags.get()),
            state: InodeState::from_bits_retain(head.state.get()),
            generation: head.generation.get(),
            size: head.size.get(),
            pages: head.pages.get(),
            parent: head.parent.get(),
            atime: time(head.atime_secs.get(), head.atime_nanos.get())?,
            mtime: time(head.mtime_secs.get(), head.mtime_nanos.get())?,
            ctime: time(head.ctime_secs.get(), head.ctime_nanos.get())?,
            btime: time(head.btime_secs.get(), head.btime_nanos.get())?,
            rdev: head.rdev.get(),
            project: head.project.get(),
            xattr_names_len: head.xattr_names_len.get(),
            punched,
            inline: Vec::new(),
        };
        inode.check(inline.len()).map_err(corrupted)?;
        Ok((inode, inline))
    }

    /// What can be made of a malformed record; `None` if not even its type can be told.
    pub(crate) fn salvage(ino: Ino, record: &[u8]) -> Option<Self> {
        let (head, _) = split_head::<InodeV1>(record, "an i-node").ok()?;
        let header_len = usize::from(head.header_len.get());
        let header_len = header_len.clamp(size_of::<InodeV1>(), record.len());
        let mut head = *head;
        head.version = RECORD_VERSION;
        head.header_len = (header_len as u16).into();
        let mut inline_len = record.len() - header_len;
        let is_inline = head.state.get() & STATE_INLINE != 0 && inline_len > 0;
        if is_inline && !matches!(FileKind::from_mode(head.mode.get())?, FileKind::Symlink) {
            // Only files and links have data.
            head.mode = (FileKind::Regular.mode_bits() | head.mode.get() & 0o7777).into();
        }
        // What was punched is not known, so what is left of it is data again.
        let known = head.state.get() & STATE_ALL & !STATE_INLINE & !STATE_PUNCHING;
        head.state = (if is_inline { known | STATE_INLINE } else { known }).into();
        if is_inline {
            head.size = (inline_len as u64).into();
        } else {
            inline_len = 0;
        }
        if is_inline || head.pages.get() > MAX_PAGE_COUNT {
            head.pages = 0.into();
        }
        if head.size.get() > MAX_FILE_SIZE_BYTES {
            head.size = 0.into();
        }
        let is_link = FileKind::from_mode(head.mode.get()) == Some(FileKind::Symlink);
        if is_link && head.size.get() > MAX_SYMLINK_LEN_BYTES as u64 {
            // Where its target ends is not known. As a file it leads nowhere.
            head.mode = (FileKind::Regular.mode_bits() | head.mode.get() & 0o7777).into();
            head.size = 0.into();
        }
        for nanos in [
            &mut head.atime_nanos,
            &mut head.mtime_nanos,
            &mut head.ctime_nanos,
            &mut head.btime_nanos,
        ] {
            if nanos.get() >= 1_000_000_000 {
                *nanos = 0.into();
            }
        }
        let between = &record[size_of::<InodeV1>()..header_len + inline_len];
        Self::decode(ino, &[head.as_bytes(), between].concat()).ok()
    }

    /// Checks what must hold of any i-node, with so much inline data.
    fn check(&self, found_inline_len: usize) -> std::result::Result<(), &'static str> {
        if self.size > MAX_FILE_SIZE_BYTES {
            return Err("its size is past the limit");
        }
        if self.kind == FileKind::Symlink && self.size > MAX_SYMLINK_LEN_BYTES as u64 {
            return Err("it is a link with a target that is too long");
        }
        if self.pages > MAX_PAGE_COUNT {
            return Err("it has more pages than there are");
        }
        let has_inline = self.state.contains(InodeState::INLINE);
        if has_inline && !matches!(self.kind, FileKind::Regular | FileKind::Symlink) {
            return Err("it is of a type without data, but has inline data");
        }
        if has_inline && self.pages != 0 {
            return Err("it has both inline data and pages");
        }
        if self.state.contains(InodeState::FREEING) {
            return Err("it is both being truncated and being punched");
        }
        if let Some(range) = &self.punched {
            if self.kind != FileKind::Regular || has_inline {
                return Err("it is of a type without pages, but pages of it are being freed");
            }
            if range.start >= range.end || range.end > MAX_PAGE_COUNT {
                return Err("the range of pages that is being freed is no range");
            }
        }
        let inline_len = if has_inline { self.size } else { 0 };
        if inline_len != found_inline_len as u64 {
            return Err("its inline data are not as long as its size");
        }
        Ok(())
    }

    /// The kind of entry that the orphan list has of the file if pages of it are still to be freed:
    /// one of the `ORPHAN_*` numbers.
    pub(crate) fn freeing_orphan(&self) -> Option<u8> {
        match self.state & InodeState::FREEING {
            InodeState::TRUNCATING => Some(ORPHAN_TRUNCATE),
            InodeState::PUNCHING => Some(ORPHAN_PUNCH),
            _ => None,
        }
    }

    /// The range of pages that reads as zeros though some of them may not be freed yet. It is empty
    /// in nearly all files.
    pub(crate) fn punched_pages(&self) -> Range<u64> {
        self.punched.as_ref().map_or(0..0, |range| Range::clone(range))
    }

    /// Pages from the start of the file to its end.
    pub(crate) const fn size_pages(&self) -> u64 {
        self.size.div_ceil(PAGE_SIZE as u64)
    }

    /// The attributes that callers see.
    pub(crate) fn attr(&self, ino: Ino) -> Attr {
        // Inline data take no page. Tools that look for holes take a file of 0 blocks for one that
        // is all hole, so inline data are counted too.
        let inline_blocks = (self.inline.len() as u64).div_ceil(512);
        Attr {
            ino,
            generation: self.generation,
            kind: self.kind,
            perm: self.perm,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size_bytes: self.size,
            blocks_512: self.pages.saturating_mul(PAGE_SIZE as u64 / 512) + inline_blocks,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
            flags: self.flags,
        }
    }

    /// The hints of its list.
    pub(crate) fn hints(&self) -> ListHints {
        let compression = if self.flags.contains(FileFlags::NO_COMPRESS) {
            ListCompression::Never
        } else if self.flags.contains(FileFlags::COMPRESS) {
            ListCompression::Zstd
        } else {
            ListCompression::AsOthers
        };
        ListHints { compression, ..ListHints::default() }
    }

    /// Refuses any change of an immutable file.
    pub(crate) fn check_changeable(&self) -> Result<()> {
        if self.flags.contains(FileFlags::IMMUTABLE) {
            return Err(FsError::NotPermitted("it is immutable"));
        }
        Ok(())
    }

    /// Refuses a change other than growth of a file that is immutable or append-only.
    pub(crate) fn check_rewritable(&self) -> Result<()> {
        self.check_changeable()?;
        if self.flags.contains(FileFlags::APPEND) {
            return Err(FsError::NotPermitted("it is append-only"));
        }
        Ok(())
    }

    /// Refuses anything but a directory.
    pub(crate) fn check_directory(&self) -> Result<()> {
        match self.kind {
            FileKind::Directory => Ok(()),
            _ => Err(FsError::NotDirectory),
        }
    }

    /// Refuses what has no data of its own.
    pub(crate) fn check_regular(&self) -> Result<()> {
        match self.kind {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(FsError::IsDirectory),
            _ => Err(FsError::Invalid("not a regular file")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Inode {
        let mut inode =
            Inode::new(FileKind::Regular, 0o4755, FileTime { secs: -5, nanos: 999_999_999 });
        inode.state = InodeState::INLINE;
        inode.inline = b"hello".to_vec();
        inode.size = 5;
        inode.nlink = 1;
        inode
    }

    #[test]
    fn an_inode_reads_back_what_was_written() {
        let inode = sample();
        assert_eq!(Inode::decode(Ino(9), &inode.encode()).unwrap(), inode);
    }

    #[test]
    fn an_inode_names_the_range_that_is_being_freed() {
        let mut inode = Inode::new(FileKind::Regular, 0o600, FileTime::default());
        inode.state = InodeState::PUNCHING;
        inode.punched = Some(Box::new(3..MAX_PAGE_COUNT));
        let bytes = inode.encode();
        assert_eq!(Inode::decode(Ino(9), &bytes).unwrap(), inode);
        for len in size_of::<InodeV1>()..bytes.len() {
            assert!(Inode::decode(Ino(9), &bytes[..len]).is_err());
        }
        let salvaged = Inode::salvage(Ino(9), &bytes[..size_of::<InodeV1>()]).unwrap();
        assert_eq!(salvaged.state, InodeState::empty());
        for (start, end) in [(3, 3), (4, 3), (3, MAX_PAGE_COUNT + 1)] {
            let inode = Inode { punched: Some(Box::new(start..end)), ..inode.clone() };
            assert!(Inode::decode(Ino(9), &inode.encode()).is_err());
        }
        inode.state |= InodeState::INLINE;
        assert!(Inode::decode(Ino(9), &inode.encode()).is_err());
    }

    #[test]
    fn a_link_with_a_target_that_is_too_long_is_no_link() {
        let mut link = Inode::new(FileKind::Symlink, 0o777, FileTime::default());
        (link.size, link.pages) = (MAX_SYMLINK_LEN_BYTES as u64, 1);
        assert_eq!(Inode::decode(Ino(9), &link.encode()).unwrap(), link);
        link.size += 1;
        assert!(Inode::decode(Ino(9), &link.encode()).is_err());
        let salvaged = Inode::salvage(Ino(9), &link.encode()).unwrap();
        assert_eq!((salvaged.kind, salvaged.size), (FileKind::Regular, 0));
    }

    #[test]
    fn no_damage_to_an_inode_panics() {
        let bytes = sample().encode();
        for len in 0..bytes.len() {
            assert!(Inode::decode(Ino(9), &bytes[..len]).is_err());
            let _ = Inode::salvage(Ino(9), &bytes[..len]);
        }
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = bytes.to_vec();
                damaged[at] ^= flip;
                let _ = Inode::decode(Ino(9), &damaged);
                // Whatever is made of it is an i-node.
                if let Some(salvaged) = Inode::salvage(Ino(9), &damaged) {
                    assert_eq!(Inode::decode(Ino(9), &salvaged.encode()).unwrap(), salvaged);
                }
            }
        }
    }

    #[test]
    fn a_later_minor_version_may_have_a_longer_head() {
        let inode = sample();
        let mut bytes = inode.encode().to_vec();
        bytes[2] += 8;
        bytes.splice(120..120, [0xaa; 8]);
        assert_eq!(Inode::decode(Ino(9), &bytes).unwrap(), inode);
    }

    #[test]
    fn blocks_count_data_that_take_no_page() {
        assert_eq!(sample().attr(Ino(9)).blocks_512, 1);
    }
}
