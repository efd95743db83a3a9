//! For fuzzers and hostile tests: any bytes, served as requests of the kernel.

use std::time::Duration;

use crate::errno::{Errno, Result};
use crate::filesystem::FileSystem;
use crate::protocol::abi::InHeader;
use crate::protocol::dirent::{Entries, EntriesPlus};
use crate::protocol::init::{self, Agreed, Wishes};
use crate::protocol::parse;
use crate::protocol::types::{
    Attr, AttrReply, CopyRange, CreateHow, Entry, InitFlags, OpenHow, Opened, Request, SetAttr,
    SetxattrHow, StatFs, WriteHow,
};
use crate::server::dispatch::{Body, Dispatcher};

/// The space for replies. Miri takes long for each byte.
const OUT_LEN: usize = if cfg!(miri) { 512 } else { 8192 };

/// Serves `bytes` as a request, as from `/dev/fuse` and as from a ring, with a file system that
/// reads every byte it gets and fills every buffer.
///
/// # Panics
/// If a reply is longer than its buffer, or if the two replies differ.
pub fn request(bytes: &[u8]) {
    for setxattr_ext in [false, true] {
        let flags = if setxattr_ext { InitFlags::SETXATTR_EXT } else { InitFlags::empty() };
        let agreed =
            Agreed { kernel_minor: 45, offered: flags, flags, max_write_bytes: OUT_LEN as u32 };
        let dispatcher = Dispatcher::new(Touches, agreed, Some(1000));
        let Ok((header, arguments, rest)) = parse::split(bytes, setxattr_ext) else { continue };
        let mut out = vec![0; OUT_LEN];
        let apart =
            dispatcher.serve(&header, arguments, Body::Apart { request: rest, out: &mut out });
        assert!(
            apart.is_none_or(|answer| answer.is_ok_and(|len| len <= OUT_LEN) || answer.is_err())
        );
        let mut buffer = vec![0; OUT_LEN.max(rest.len())];
        buffer[..rest.len()].copy_from_slice(rest);
        let mut op_in = [0; 128];
        op_in[..arguments.len()].copy_from_slice(arguments);
        let body = Body::Shared { buffer: &mut buffer, len: rest.len() };
        let shared = dispatcher.serve(&header, &op_in, body);
        if rest.len() <= OUT_LEN {
            assert_eq!(apart, shared);
            if let Some(Ok(len)) = apart {
                assert!(out[..len] == buffer[..len]);
            }
        }
    }
    if let Ok(offer) = init::parse(bytes) {
        let wishes = Wishes::default();
        if let Some(agreed) = init::agree(&offer, &wishes, true) {
            let _ = init::answer(&offer, &agreed, &wishes);
        }
    }
}

/// Serves the three parts of a ring's entry, whose lengths need not fit together.
///
/// # Panics
/// If a reply is longer than its buffer.
pub fn arrival(header: [u8; 40], op_in: &[u8; 128], len: usize, payload: &[u8]) {
    let header: InHeader = zerocopy::transmute!(header);
    let agreed = Agreed {
        kernel_minor: 45,
        offered: InitFlags::SETXATTR_EXT,
        flags: InitFlags::SETXATTR_EXT,
        max_write_bytes: OUT_LEN as u32,
    };
    let mut buffer = payload.to_vec();
    let room = buffer.len();
    let body = Body::Shared { buffer: &mut buffer, len };
    let answer = Dispatcher::new(Touches, agreed, None).serve(&header, op_in, body);
    assert!(answer.is_none_or(|answer| answer.map_or(true, |len| len <= room)));
}

/// A file system that has all files, and reads all its input.
struct Touches;

fn touch(bytes: &[u8]) -> u64 {
    bytes.iter().fold(bytes.len() as u64, |sum, &byte| sum.rotate_left(5) ^ u64::from(byte))
}

/// Reads the caller and the security context of a request.
fn touch_request(request: &Request) -> u64 {
    request.security_context.iter().fold(u64::from(request.uid), |sum, (name, value)| {
        assert!(!name.is_empty() && !name.contains(&0));
        sum ^ touch(name) ^ touch(value)
    })
}

fn entry(seed: u64) -> Result<Entry> {
    let attr = Attr { ino: seed, size_bytes: seed, ..Attr::default() };
    let valid = Duration::from_secs(1);
    Ok(Entry { node: seed | 1, generation: 0, entry_valid: valid, attr, attr_valid: valid })
}

fn fill(out: &mut [u8], seed: u64) -> Result<usize> {
    out.fill(seed.to_le_bytes()[0]);
    Ok(out.len())
}

fn attributes(seed: u64) -> Result<AttrReply> {
    entry(seed).map(|entry| AttrReply { attr: entry.attr, valid: entry.attr_valid })
}

impl FileSystem for Touches {
    fn lookup(&self, _: &Request, parent: u64, name: &[u8]) -> Result<Entry> {
        assert!(!name.is_empty() && !name.contains(&0) && !name.contains(&b'/'));
        entry(parent ^ touch(name))
    }

    fn getattr(&self, _: &Request, node: u64, handle: Option<u64>) -> Result<AttrReply> {
        attributes(node ^ handle.unwrap_or(1))
    }

    fn statx(
        &self,
        request: &Request,
        node: u64,
        handle: Option<u64>,
        mask: u32,
    ) -> Result<AttrReply> {
        self.getattr(request, node ^ u64::from(mask), handle)
    }

    fn setattr(&self, _: &Request, node: u64, changes: &SetAttr) -> Result<AttrReply> {
        attributes(node ^ changes.size_bytes.unwrap_or(3))
    }

    fn readlink(&self, _: &Request, node: u64, out: &mut [u8]) -> Result<usize> {
        fill(out, node)
    }

    fn symlink(&self, request: &Request, _: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        entry(touch_request(request) ^ touch(name) ^ touch(target))
    }

    fn mknod(&self, _: &Request, _: u64, name: &[u8], _: u32, _: u32, _: u32) -> Result<Entry> {
        entry(touch(name))
    }

    fn mkdir(&self, _: &Request, _: u64, name: &[u8], _: u32, _: u32) -> Result<Entry> {
        entry(touch(name))
    }

    fn unlink(&self, _: &Request, _: u64, name: &[u8]) -> Result<()> {
        if touch(name) & 1 == 0 { Ok(()) } else { Err(Errno::NOENT) }
    }

    fn rmdir(&self, request: &Request, parent: u64, name: &[u8]) -> Result<()> {
        self.unlink(request, parent, name)
    }

    fn rename(&self, _: &Request, _: u64, name: &[u8], _: u64, new: &[u8], _: u32) -> Result<()> {
        if touch(name) & touch(new) & 1 == 0 { Ok(()) } else { Err(Errno::EXIST) }
    }

    fn link(&self, _: &Request, node: u64, _: u64, new_name: &[u8]) -> Result<Entry> {
        entry(node ^ touch(new_name))
    }

    fn open(&self, _: &Request, node: u64, _: OpenHow) -> Result<Opened> {
        Ok(Opened { handle: node, ..Opened::default() })
    }

    fn read(&self, _: &Request, _: u64, _: u64, offset: u64, out: &mut [u8]) -> Result<usize> {
        fill(out, offset)
    }

    fn write(&self, _: &Request, _: u64, how: &WriteHow, data: &[u8]) -> Result<usize> {
        // This may be more than there was.
        Ok((touch(data) ^ how.offset) as usize)
    }

    fn statfs(&self, _: &Request, _: u64) -> Result<StatFs> {
        Ok(StatFs::default())
    }

    fn setxattr(
        &self,
        _: &Request,
        _: u64,
        name: &[u8],
        value: &[u8],
        _: SetxattrHow,
    ) -> Result<()> {
        if touch(name) & touch(value) & 1 == 0 { Ok(()) } else { Err(Errno::NODATA) }
    }

    fn getxattr(&self, _: &Request, _: u64, name: &[u8], out: &mut [u8]) -> Result<usize> {
        let len = touch(name) as usize & 0xfff;
        if let Some(out) = out.get_mut(..len) {
            fill(out, 7)?;
        }
        Ok(len)
    }

    fn listxattr(&self, _: &Request, node: u64, out: &mut [u8]) -> Result<usize> {
        fill(out, node)
    }

    fn removexattr(&self, request: &Request, node: u64, name: &[u8]) -> Result<()> {
        self.unlink(request, node, name)
    }

    fn opendir(&self, request: &Request, node: u64, how: OpenHow) -> Result<Opened> {
        self.open(request, node, how)
    }

    fn readdir(
        &self,
        _: &Request,
        node: u64,
        _: u64,
        offset: u64,
        entries: &mut Entries<'_>,
    ) -> Result<()> {
        while entries.add(node, offset, libc::S_IFREG, b"a name") {}
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
        while entries.add(&entry(node)?, offset, b"a name") {}
        Ok(())
    }

    fn create(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        how: &CreateHow,
    ) -> Result<(Entry, Opened)> {
        Ok((entry(touch_request(request) ^ touch(name))?, self.open(request, parent, how.open)?))
    }

    fn tmpfile(&self, request: &Request, parent: u64, how: &CreateHow) -> Result<(Entry, Opened)> {
        Ok((entry(parent)?, self.open(request, parent, how.open)?))
    }

    fn lseek(&self, _: &Request, _: u64, _: u64, offset: u64, _: u32) -> Result<u64> {
        Ok(offset)
    }

    fn copy_file_range(&self, _: &Request, range: &CopyRange) -> Result<u64> {
        Ok(range.source.offset ^ range.target.offset)
    }
}
