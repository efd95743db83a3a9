//! From a request's bytes to an operation.
//!
//! A request consists of a header, arguments of fixed length, and the rest: names, each with a zero
//! byte behind it, and data. A ring has the three in different places. From `/dev/fuse` they come
//! in one piece, which [`split`] divides.
//!
//! The kernel may have bugs, so nothing is assumed of the bytes: the result is an operation or an
//! error.

use zerocopy::FromBytes;

use super::abi::{self, InHeader, fattr, opcode};
use super::security_context::SecurityContext;
use super::types::{
    CopyRange, CreateHow, FileRange, OpenHow, SetAttr, SetTime, SetxattrHow, Time, WriteHow,
};
use crate::errno::Errno;

/// The longest copy whose length fits the reply (`fuse_write_out` has 32 bits): a multiple of a
/// page.
const MAX_COPY_BYTES: u64 = 0xffff_f000;

/// The operation that a request is for. All but the first three get a reply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operation<'a> {
    Forget {
        count: u64,
    },
    BatchForget(Forgets<'a>),
    /// The reply to a notification that this server never sends.
    NotifyReply,
    Interrupt {
        unique: u64,
    },
    Destroy,
    Lookup {
        name: &'a [u8],
    },
    Getattr {
        handle: Option<u64>,
    },
    Statx {
        handle: Option<u64>,
        mask: u32,
    },
    Setattr(SetAttr),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        rdev: u32,
    },
    Mkdir {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_parent: u64,
        new_name: &'a [u8],
        flags: u32,
    },
    Link {
        old_node: u64,
        new_name: &'a [u8],
    },
    Open(OpenHow),
    Read {
        handle: u64,
        offset: u64,
        len: usize,
    },
    Write {
        how: WriteHow,
        data: &'a [u8],
    },
    Statfs,
    Release {
        handle: u64,
        flags: u32,
    },
    Fsync {
        handle: u64,
        data_only: bool,
    },
    Setxattr {
        name: &'a [u8],
        value: &'a [u8],
        how: SetxattrHow,
    },
    Getxattr {
        name: &'a [u8],
        len: usize,
    },
    Listxattr {
        len: usize,
    },
    Removexattr {
        name: &'a [u8],
    },
    Flush {
        handle: u64,
    },
    Opendir(OpenHow),
    Readdir {
        handle: u64,
        offset: u64,
        len: usize,
    },
    Readdirplus {
        handle: u64,
        offset: u64,
        len: usize,
    },
    Releasedir {
        handle: u64,
        flags: u32,
    },
    Fsyncdir {
        handle: u64,
        data_only: bool,
    },
    Access {
        mask: u32,
    },
    Create {
        name: &'a [u8],
        how: CreateHow,
    },
    Tmpfile(CreateHow),
    Fallocate {
        handle: u64,
        offset: u64,
        length: u64,
        mode: u32,
    },
    Lseek {
        handle: u64,
        offset: u64,
        whence: u32,
    },
    CopyFileRange {
        range: CopyRange,
        is_wide: bool,
    },
    Ioctl {
        command: u32,
        input: &'a [u8],
        out_len: usize,
    },
    Syncfs,
}

/// The lookups that a BATCH_FORGET takes back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Forgets<'a> {
    bytes: &'a [u8],
}

impl Forgets<'_> {
    /// Nodes, and the number of lookups of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.bytes.chunks_exact(size_of::<abi::ForgetOne>()).filter_map(|chunk| {
            abi::ForgetOne::read_from_bytes(chunk).ok().map(|one| (one.node, one.count))
        })
    }
}

/// The length of the arguments of fixed length.
fn fixed_len(opcode: u32, setxattr_ext: bool) -> usize {
    match opcode {
        opcode::FORGET => size_of::<abi::ForgetIn>(),
        opcode::BATCH_FORGET => size_of::<abi::BatchForgetIn>(),
        opcode::INTERRUPT => size_of::<abi::InterruptIn>(),
        opcode::INIT => size_of::<abi::InitIn>(),
        opcode::GETATTR => size_of::<abi::GetattrIn>(),
        opcode::STATX => size_of::<abi::StatxIn>(),
        opcode::SETATTR => size_of::<abi::SetattrIn>(),
        opcode::MKNOD => size_of::<abi::MknodIn>(),
        opcode::MKDIR => size_of::<abi::MkdirIn>(),
        opcode::RENAME => size_of::<abi::RenameIn>(),
        opcode::RENAME2 => size_of::<abi::Rename2In>(),
        opcode::LINK => size_of::<abi::LinkIn>(),
        opcode::OPEN | opcode::OPENDIR => size_of::<abi::OpenIn>(),
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => size_of::<abi::ReadIn>(),
        opcode::WRITE => size_of::<abi::WriteIn>(),
        opcode::RELEASE | opcode::RELEASEDIR => size_of::<abi::ReleaseIn>(),
        opcode::FSYNC | opcode::FSYNCDIR => size_of::<abi::FsyncIn>(),
        opcode::SETXATTR if setxattr_ext => size_of::<abi::SetxattrIn>(),
        opcode::SETXATTR => size_of::<abi::SetxattrIn>() / 2,
        opcode::GETXATTR | opcode::LISTXATTR => size_of::<abi::GetxattrIn>(),
        opcode::FLUSH => size_of::<abi::FlushIn>(),
        opcode::ACCESS => size_of::<abi::AccessIn>(),
        opcode::CREATE | opcode::TMPFILE => size_of::<abi::CreateIn>(),
        opcode::FALLOCATE => size_of::<abi::FallocateIn>(),
        opcode::IOCTL => size_of::<abi::IoctlIn>(),
        opcode::LSEEK => size_of::<abi::LseekIn>(),
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => size_of::<abi::CopyFileRangeIn>(),
        _ => 0,
    }
}

/// A request's header, its arguments of fixed length, and the rest.
type Parts<'a> = (InHeader, &'a [u8], &'a [u8]);

/// Divides a request from `/dev/fuse` into its parts. An error comes with the request's number.
pub(crate) fn split(message: &[u8], setxattr_ext: bool) -> Result<Parts<'_>, (u64, Errno)> {
    let (header, rest) = InHeader::read_from_prefix(message).map_err(|_| (0, Errno::IO))?;
    if header.len as usize != message.len() {
        return Err((header.unique, Errno::IO));
    }
    let (fixed, rest) = rest
        .split_at_checked(fixed_len(header.opcode, setxattr_ext))
        .ok_or((header.unique, Errno::IO))?;
    Ok((header, fixed, rest))
}

/// The security context that a request has in its extensions, at the end.
pub(crate) fn security_context<'a>(
    header: &InHeader,
    rest: &'a [u8],
) -> Result<SecurityContext<'a>, Errno> {
    let extension_len = usize::from(header.extension_len_8) * abi::EXTENSION_ALIGN;
    let start = rest.len().checked_sub(extension_len).ok_or(Errno::IO)?;
    SecurityContext::parse(&rest[start..])
}

fn fixed<T: FromBytes>(bytes: &[u8]) -> Result<T, Errno> {
    T::read_from_prefix(bytes).map(|(value, _)| value).map_err(|_| Errno::IO)
}

/// Takes a string that ends with a zero byte from the front of `bytes`.
fn take_string<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Errno> {
    let len = bytes.iter().position(|&byte| byte == 0).ok_or(Errno::IO)?;
    let string = &bytes[..len];
    *bytes = &bytes[len + 1..];
    Ok(string)
}

/// Takes the name of a directory entry.
fn take_name<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Errno> {
    let name = take_string(bytes)?;
    if name.is_empty() || name.contains(&b'/') { Err(Errno::INVAL) } else { Ok(name) }
}

/// Parses the operation of the request with this header. `arguments` begins with the arguments of
/// fixed length, `rest` is what follows them.
pub(crate) fn parse<'a>(
    header: &InHeader,
    arguments: &[u8],
    rest: &'a [u8],
    setxattr_ext: bool,
) -> Result<Operation<'a>, Errno> {
    let extension_len = usize::from(header.extension_len_8) * abi::EXTENSION_ALIGN;
    let rest_len = rest.len().checked_sub(extension_len).ok_or(Errno::IO)?;
    let mut rest = &rest[..rest_len];
    match header.opcode {
        opcode::FORGET | opcode::BATCH_FORGET | opcode::NOTIFY_REPLY => {
            unanswered(header, arguments, rest)
        }
        opcode::INTERRUPT => {
            Ok(Operation::Interrupt { unique: fixed::<abi::InterruptIn>(arguments)?.unique })
        }
        opcode::DESTROY => Ok(Operation::Destroy),
        opcode::STATFS => Ok(Operation::Statfs),
        opcode::SYNCFS => Ok(Operation::Syncfs),
        opcode::GETATTR | opcode::STATX | opcode::SETATTR | opcode::ACCESS => {
            attributes(header, arguments)
        }
        opcode::READLINK => Ok(Operation::Readlink),
        opcode::SETXATTR | opcode::GETXATTR | opcode::LISTXATTR | opcode::REMOVEXATTR => {
            extended_attributes(header, arguments, rest, setxattr_ext)
        }
        opcode::LOOKUP => Ok(Operation::Lookup { name: take_name(&mut rest)? }),
        opcode::UNLINK => Ok(Operation::Unlink { name: take_name(&mut rest)? }),
        opcode::RMDIR => Ok(Operation::Rmdir { name: take_name(&mut rest)? }),
        opcode::RENAME | opcode::RENAME2 | opcode::LINK => moving(header, arguments, rest),
        opcode::SYMLINK | opcode::MKNOD | opcode::MKDIR | opcode::CREATE | opcode::TMPFILE => {
            making(header, arguments, rest)
        }
        _ => open_file(header, arguments, rest),
    }
}

fn unanswered<'a>(
    header: &InHeader,
    arguments: &[u8],
    rest: &'a [u8],
) -> Result<Operation<'a>, Errno> {
    match header.opcode {
        opcode::FORGET => Ok(Operation::Forget { count: fixed::<abi::ForgetIn>(arguments)?.count }),
        opcode::BATCH_FORGET => {
            let count = fixed::<abi::BatchForgetIn>(arguments)?.count as usize;
            let len = count.checked_mul(size_of::<abi::ForgetOne>()).ok_or(Errno::IO)?;
            let bytes = rest.get(..len).ok_or(Errno::IO)?;
            Ok(Operation::BatchForget(Forgets { bytes }))
        }
        _ => Ok(Operation::NotifyReply),
    }
}

const fn time(secs: i64, nanos: u32) -> Time {
    Time { secs, nanos }
}

fn set_attr(wire: &abi::SetattrIn) -> Result<SetAttr, Errno> {
    for nanos in [wire.atime_nsec, wire.mtime_nsec, wire.ctime_nsec] {
        if nanos > 999_999_999 {
            return Err(Errno::INVAL);
        }
    }
    let has = |bit| wire.valid & bit != 0;
    let set_time = |bit, now_bit, secs, nanos| {
        has(bit).then_some(if has(now_bit) { SetTime::Now } else { SetTime::At(time(secs, nanos)) })
    };
    Ok(SetAttr {
        mode: has(fattr::MODE).then_some(wire.mode),
        uid: has(fattr::UID).then_some(wire.uid),
        gid: has(fattr::GID).then_some(wire.gid),
        size_bytes: has(fattr::SIZE).then_some(wire.size),
        atime: set_time(fattr::ATIME, fattr::ATIME_NOW, wire.atime, wire.atime_nsec),
        mtime: set_time(fattr::MTIME, fattr::MTIME_NOW, wire.mtime, wire.mtime_nsec),
        ctime: has(fattr::CTIME).then_some(time(wire.ctime, wire.ctime_nsec)),
        handle: has(fattr::FH).then_some(wire.handle),
        kill_priv: has(fattr::KILL_SUIDGID),
    })
}

fn attributes<'a>(header: &InHeader, arguments: &[u8]) -> Result<Operation<'a>, Errno> {
    match header.opcode {
        opcode::GETATTR => {
            let wire: abi::GetattrIn = fixed(arguments)?;
            let has_handle = wire.flags & abi::GETATTR_FH != 0;
            Ok(Operation::Getattr { handle: has_handle.then_some(wire.handle) })
        }
        opcode::STATX => {
            let wire: abi::StatxIn = fixed(arguments)?;
            let has_handle = wire.flags & abi::GETATTR_FH != 0;
            let handle = has_handle.then_some(wire.handle);
            Ok(Operation::Statx { handle, mask: wire.statx_mask })
        }
        opcode::SETATTR => Ok(Operation::Setattr(set_attr(&fixed(arguments)?)?)),
        _ => Ok(Operation::Access { mask: fixed::<abi::AccessIn>(arguments)?.mask }),
    }
}

fn extended_attributes<'a>(
    header: &InHeader,
    arguments: &[u8],
    mut rest: &'a [u8],
    setxattr_ext: bool,
) -> Result<Operation<'a>, Errno> {
    let mut take_name = || match take_string(&mut rest)? {
        b"" => Err(Errno::INVAL),
        name => Ok(name),
    };
    match header.opcode {
        opcode::SETXATTR => {
            // The second half exists only if that was agreed on. The first half has the layout of
            // `GetxattrIn`.
            let wire: abi::GetxattrIn = fixed(arguments)?;
            let (len, flags) = (wire.size as usize, wire.padding);
            let kill_sgid = setxattr_ext
                && fixed::<abi::SetxattrIn>(arguments)?.setxattr_flags
                    & abi::SETXATTR_ACL_KILL_SGID
                    != 0;
            let name = take_name()?;
            let value = rest.get(..len).ok_or(Errno::IO)?;
            Ok(Operation::Setxattr { name, value, how: SetxattrHow { flags, kill_sgid } })
        }
        opcode::REMOVEXATTR => Ok(Operation::Removexattr { name: take_name()? }),
        opcode::GETXATTR => {
            let len = fixed::<abi::GetxattrIn>(arguments)?.size as usize;
            Ok(Operation::Getxattr { name: take_name()?, len })
        }
        _ => Ok(Operation::Listxattr { len: fixed::<abi::GetxattrIn>(arguments)?.size as usize }),
    }
}

fn moving<'a>(
    header: &InHeader,
    arguments: &[u8],
    mut rest: &'a [u8],
) -> Result<Operation<'a>, Errno> {
    let (new_parent, flags) = match header.opcode {
        opcode::LINK => {
            let old_node = fixed::<abi::LinkIn>(arguments)?.old_node;
            return Ok(Operation::Link { old_node, new_name: take_name(&mut rest)? });
        }
        opcode::RENAME => (fixed::<abi::RenameIn>(arguments)?.new_parent, 0),
        _ => {
            let wire: abi::Rename2In = fixed(arguments)?;
            (wire.new_parent, wire.flags)
        }
    };
    let name = take_name(&mut rest)?;
    Ok(Operation::Rename { name, new_parent, new_name: take_name(&mut rest)?, flags })
}

const fn open_how(flags: u32, open_flags: u32) -> OpenHow {
    OpenHow { flags, kill_priv: open_flags & abi::OPEN_KILL_SUIDGID != 0 }
}

fn making<'a>(
    header: &InHeader,
    arguments: &[u8],
    mut rest: &'a [u8],
) -> Result<Operation<'a>, Errno> {
    match header.opcode {
        opcode::SYMLINK => {
            let name = take_name(&mut rest)?;
            Ok(Operation::Symlink { name, target: take_string(&mut rest)? })
        }
        opcode::MKNOD => {
            let abi::MknodIn { mode, rdev, umask, .. } = fixed(arguments)?;
            Ok(Operation::Mknod { name: take_name(&mut rest)?, mode, umask, rdev })
        }
        opcode::MKDIR => {
            let abi::MkdirIn { mode, umask } = fixed(arguments)?;
            Ok(Operation::Mkdir { name: take_name(&mut rest)?, mode, umask })
        }
        _ => {
            let wire: abi::CreateIn = fixed(arguments)?;
            let open = open_how(wire.flags, wire.open_flags);
            let how = CreateHow { mode: wire.mode, umask: wire.umask, open };
            if header.opcode == opcode::TMPFILE {
                // There is a placeholder in place of a name.
                return Ok(Operation::Tmpfile(how));
            }
            Ok(Operation::Create { name: take_name(&mut rest)?, how })
        }
    }
}

fn open_file<'a>(
    header: &InHeader,
    arguments: &[u8],
    rest: &'a [u8],
) -> Result<Operation<'a>, Errno> {
    match header.opcode {
        opcode::OPEN | opcode::OPENDIR => {
            let wire: abi::OpenIn = fixed(arguments)?;
            let how = open_how(wire.flags, wire.open_flags);
            let is_dir = header.opcode == opcode::OPENDIR;
            Ok(if is_dir { Operation::Opendir(how) } else { Operation::Open(how) })
        }
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => {
            let abi::ReadIn { handle, offset, size, .. } = fixed(arguments)?;
            let len = size as usize;
            Ok(match header.opcode {
                opcode::READ => Operation::Read { handle, offset, len },
                opcode::READDIR => Operation::Readdir { handle, offset, len },
                _ => Operation::Readdirplus { handle, offset, len },
            })
        }
        opcode::WRITE => {
            let wire: abi::WriteIn = fixed(arguments)?;
            let how = WriteHow {
                handle: wire.handle,
                offset: wire.offset,
                flags: wire.flags,
                is_cached: wire.write_flags & abi::WRITE_CACHE != 0,
                kill_priv: wire.write_flags & abi::WRITE_KILL_SUIDGID != 0,
            };
            let data = rest.get(..wire.size as usize).ok_or(Errno::IO)?;
            Ok(Operation::Write { how, data })
        }
        opcode::RELEASE | opcode::RELEASEDIR => {
            let abi::ReleaseIn { handle, flags, .. } = fixed(arguments)?;
            let is_dir = header.opcode == opcode::RELEASEDIR;
            Ok(if is_dir {
                Operation::Releasedir { handle, flags }
            } else {
                Operation::Release { handle, flags }
            })
        }
        opcode::FSYNC | opcode::FSYNCDIR => {
            let abi::FsyncIn { handle, flags, .. } = fixed(arguments)?;
            let data_only = flags & abi::FSYNC_FDATASYNC != 0;
            let is_dir = header.opcode == opcode::FSYNCDIR;
            Ok(if is_dir {
                Operation::Fsyncdir { handle, data_only }
            } else {
                Operation::Fsync { handle, data_only }
            })
        }
        opcode::FLUSH => Ok(Operation::Flush { handle: fixed::<abi::FlushIn>(arguments)?.handle }),
        opcode::IOCTL => {
            let abi::IoctlIn { command, in_size, out_size, .. } = fixed(arguments)?;
            let input = rest.get(..in_size as usize).ok_or(Errno::IO)?;
            Ok(Operation::Ioctl { command, input, out_len: out_size as usize })
        }
        _ => ranges(header, arguments),
    }
}

fn ranges<'a>(header: &InHeader, arguments: &[u8]) -> Result<Operation<'a>, Errno> {
    match header.opcode {
        opcode::FALLOCATE => {
            let abi::FallocateIn { handle, offset, length, mode, .. } = fixed(arguments)?;
            Ok(Operation::Fallocate { handle, offset, length, mode })
        }
        opcode::LSEEK => {
            let abi::LseekIn { handle, offset, whence, .. } = fixed(arguments)?;
            Ok(Operation::Lseek { handle, offset, whence })
        }
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            let wire: abi::CopyFileRangeIn = fixed(arguments)?;
            let is_wide = header.opcode == opcode::COPY_FILE_RANGE_64;
            let source =
                FileRange { node: header.node, handle: wire.handle_in, offset: wire.offset_in };
            let target =
                FileRange { node: wire.node_out, handle: wire.handle_out, offset: wire.offset_out };
            let len_bytes = if is_wide { wire.len } else { wire.len.min(MAX_COPY_BYTES) };
            let range = CopyRange { source, target, len_bytes, flags: wire.flags };
            Ok(Operation::CopyFileRange { range, is_wide })
        }
        // The kernel does not send requests again that are not known here.
        _ => Err(Errno::NOSYS),
    }
}

#[cfg(test)]
mod tests;
