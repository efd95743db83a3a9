//! From a request to the file system's method, and from its result to the reply's bytes.

use zerocopy::{Immutable, IntoBytes};

use crate::errno::{Errno, Result};
use crate::filesystem::FileSystem;
use crate::protocol::abi::{
    AttrOut, CreateOut, EntryOut, GetxattrOut, InHeader, IoctlOut, OpenOut, StatfsOut, StatxOut,
    U64Out, WriteOut,
};
use crate::protocol::dirent::{Entries, EntriesPlus};
use crate::protocol::encode;
use crate::protocol::init::Agreed;
use crate::protocol::parse::{self, Operation};
use crate::protocol::security_context::SecurityContext;
use crate::protocol::types::{InitFlags, Request};

/// The longest name of an extended attribute (`XATTR_NAME_MAX`).
const XATTR_NAME_MAX: usize = 255;

/// The longest input and the longest output of an ioctl that is passed on.
const IOCTL_MAX: usize = 64;

/// Where the names and data of a request are, and where the reply goes.
pub(crate) enum Body<'a> {
    /// In the same buffer, as in a ring: the reply overwrites the request.
    Shared {
        /// The whole buffer.
        buffer: &'a mut [u8],
        /// How many bytes of it belong to the request.
        len: usize,
    },
    /// In two buffers.
    Apart {
        /// The request.
        request: &'a [u8],
        /// The space for the reply.
        out: &'a mut [u8],
    },
}

impl Body<'_> {
    fn request(&self) -> Result<&[u8]> {
        match self {
            Self::Shared { buffer, len } => buffer.get(..*len).ok_or(Errno::IO),
            Self::Apart { request, .. } => Ok(request),
        }
    }

    fn out(&mut self) -> &mut [u8] {
        match self {
            Self::Shared { buffer, .. } => buffer,
            Self::Apart { out, .. } => out,
        }
    }

    fn put(&mut self, reply: &(impl IntoBytes + Immutable)) -> Result<usize> {
        put(self.out(), reply)
    }
}

fn put(out: &mut [u8], reply: &(impl IntoBytes + Immutable)) -> Result<usize> {
    let bytes = reply.as_bytes();
    out.get_mut(..bytes.len()).ok_or(Errno::IO)?.copy_from_slice(bytes);
    Ok(bytes.len())
}

/// A reply of fixed length, or a call that writes its result to the buffer. That buffer may be the
/// one that contains the request, so nothing is borrowed from the request here.
enum Reply {
    Empty,
    Entry(EntryOut),
    Attr(AttrOut),
    Statx(StatxOut),
    Created(CreateOut),
    Opened(OpenOut),
    Written(WriteOut),
    U64(U64Out),
    Statfs(StatfsOut),
    Readlink,
    Read { handle: u64, offset: u64, len: usize },
    Readdir { handle: u64, offset: u64, len: usize },
    Readdirplus { handle: u64, offset: u64, len: usize },
    Getxattr { name: [u8; XATTR_NAME_MAX], name_len: usize, len: usize },
    Listxattr { len: usize },
    Ioctl { command: u32, input: [u8; IOCTL_MAX], input_len: usize, out_len: usize },
}

/// A file system, with what was agreed on for its mount.
pub(crate) struct Dispatcher<F> {
    fs: F,
    agreed: Agreed,
    /// If set, only this user and root are served.
    only_user: Option<u32>,
}

impl<F: FileSystem> Dispatcher<F> {
    pub(crate) fn new(fs: F, agreed: Agreed, only_user: Option<u32>) -> Self {
        fs.init(&agreed);
        Self { fs, agreed, only_user }
    }

    pub(crate) const fn file_system(&self) -> &F {
        &self.fs
    }

    pub(crate) const fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    pub(crate) const fn setxattr_ext(&self) -> bool {
        self.agreed.flags.contains(InitFlags::SETXATTR_EXT)
    }

    /// Serves a request. Returns the length of the reply, which is in the buffer of `body`, or why
    /// the request fails. `None`: requests of this kind get no reply.
    pub(crate) fn serve(
        &self,
        header: &InHeader,
        arguments: &[u8],
        body: Body<'_>,
    ) -> Option<Result<usize>> {
        match self.fs.timings() {
            Some(timings) => {
                timings.count(header.opcode, || self.serve_uncounted(header, arguments, body))
            }
            None => self.serve_uncounted(header, arguments, body),
        }
    }

    fn serve_uncounted(
        &self,
        header: &InHeader,
        arguments: &[u8],
        mut body: Body<'_>,
    ) -> Option<Result<usize>> {
        let parsed = body
            .request()
            .and_then(|rest| parse::parse(header, arguments, rest, self.setxattr_ext()));
        let operation = match parsed {
            Ok(operation) => operation,
            Err(errno) => return Some(Err(errno)),
        };
        match operation {
            Operation::Forget { count } => self.fs.forget(header.node, count),
            Operation::BatchForget(forgets) => {
                for (node, count) in forgets.iter() {
                    self.fs.forget(node, count);
                }
            }
            Operation::NotifyReply => (),
            // There is no reply to success. An error makes the kernel send no more of these.
            Operation::Interrupt { unique } => {
                return self.fs.interrupt(unique).err().map(Err);
            }
            Operation::Destroy => {
                self.fs.destroy();
                return Some(Ok(0));
            }
            _ if !self.is_served(header, &operation) => return Some(Err(Errno::ACCES)),
            _ => {
                let InHeader { unique, uid, gid, pid, .. } = *header;
                let called = body.request().and_then(|rest| {
                    let security_context = parse::security_context(header, rest)?;
                    let request = Request { unique, uid, gid, pid, security_context };
                    self.call(&request, header.node, operation)
                });
                return Some(called.and_then(|reply| {
                    // The reply may overwrite the security context.
                    let security_context = SecurityContext::default();
                    let request = Request { unique, uid, gid, pid, security_context };
                    self.write_out(&request, header.node, &reply, &mut body)
                }));
            }
        }
        None
    }

    /// Whether the caller is served at all. Operations on open files may come from other users to
    /// whom a file was passed, and from the kernel itself, which reads ahead and writes back.
    fn is_served(&self, header: &InHeader, operation: &Operation<'_>) -> bool {
        let Some(user) = self.only_user else { return true };
        header.uid == 0
            || header.uid == user
            || matches!(
                operation,
                Operation::Read { .. }
                    | Operation::Write { .. }
                    | Operation::Readdir { .. }
                    | Operation::Readdirplus { .. }
                    | Operation::Release { .. }
                    | Operation::Releasedir { .. }
                    | Operation::Flush { .. }
                    | Operation::Fsync { .. }
                    | Operation::Fsyncdir { .. }
            )
    }

    /// Calls the file system if the reply has a fixed length. Otherwise returns what to call with
    /// the buffer.
    fn call(&self, request: &Request, node: u64, operation: Operation<'_>) -> Result<Reply> {
        let fs = &self.fs;
        let attributes = |attr| Reply::Attr(encode::attributes(&attr));
        match operation {
            Operation::Lookup { name } => {
                fs.lookup(request, node, name).map(|entry| Reply::Entry(encode::entry(&entry)))
            }
            Operation::Getattr { handle } => fs.getattr(request, node, handle).map(attributes),
            Operation::Statx { handle, mask } => {
                fs.statx(request, node, handle, mask).map(|attr| Reply::Statx(encode::statx(&attr)))
            }
            Operation::Setattr(changes) => fs.setattr(request, node, &changes).map(attributes),
            Operation::Statfs => {
                fs.statfs(request, node).map(|stat| Reply::Statfs(encode::statfs(&stat)))
            }
            Operation::Access { mask } => empty(fs.access(request, node, mask)),
            Operation::Syncfs => empty(fs.syncfs(request, node)),
            Operation::Setxattr { name, value, how } => {
                empty(fs.setxattr(request, node, name, value, how))
            }
            Operation::Removexattr { name } => empty(fs.removexattr(request, node, name)),
            Operation::Getxattr { name, len } => {
                let mut space = [0; XATTR_NAME_MAX];
                space.get_mut(..name.len()).ok_or(Errno::RANGE)?.copy_from_slice(name);
                Ok(Reply::Getxattr { name: space, name_len: name.len(), len })
            }
            Operation::Listxattr { len } => Ok(Reply::Listxattr { len }),
            Operation::Ioctl { command, input, out_len } => {
                let mut space = [0; IOCTL_MAX];
                if out_len > IOCTL_MAX {
                    return Err(Errno::NOTTY);
                }
                space.get_mut(..input.len()).ok_or(Errno::NOTTY)?.copy_from_slice(input);
                Ok(Reply::Ioctl { command, input: space, input_len: input.len(), out_len })
            }
            Operation::Readlink => Ok(Reply::Readlink),
            Operation::Read { handle, offset, len } => Ok(Reply::Read { handle, offset, len }),
            Operation::Readdir { handle, offset, len } => {
                Ok(Reply::Readdir { handle, offset, len })
            }
            Operation::Readdirplus { handle, offset, len } => {
                Ok(Reply::Readdirplus { handle, offset, len })
            }
            _ => self.call_on_names(request, node, operation),
        }
    }

    fn call_on_names(
        &self,
        request: &Request,
        node: u64,
        operation: Operation<'_>,
    ) -> Result<Reply> {
        let fs = &self.fs;
        let entry = |entry| Reply::Entry(encode::entry(&entry));
        let created = |(entry, opened)| Reply::Created(encode::created(&entry, &opened));
        match operation {
            Operation::Symlink { name, target } => {
                fs.symlink(request, node, name, target).map(entry)
            }
            Operation::Mknod { name, mode, umask, rdev } => {
                fs.mknod(request, node, name, mode, umask, rdev).map(entry)
            }
            Operation::Mkdir { name, mode, umask } => {
                fs.mkdir(request, node, name, mode, umask).map(entry)
            }
            Operation::Link { old_node, new_name } => {
                fs.link(request, old_node, node, new_name).map(entry)
            }
            Operation::Create { name, how } => fs.create(request, node, name, &how).map(created),
            Operation::Tmpfile(how) => fs.tmpfile(request, node, &how).map(created),
            Operation::Unlink { name } => empty(fs.unlink(request, node, name)),
            Operation::Rmdir { name } => empty(fs.rmdir(request, node, name)),
            Operation::Rename { name, new_parent, new_name, flags } => {
                empty(fs.rename(request, node, name, new_parent, new_name, flags))
            }
            _ => self.call_on_open_file(request, node, operation),
        }
    }

    fn call_on_open_file(
        &self,
        request: &Request,
        node: u64,
        operation: Operation<'_>,
    ) -> Result<Reply> {
        let fs = &self.fs;
        let opened = |opened| Reply::Opened(encode::opened(&opened));
        match operation {
            Operation::Open(how) => fs.open(request, node, how).map(opened),
            Operation::Opendir(how) => fs.opendir(request, node, how).map(opened),
            Operation::Write { how, data } => {
                let count = fs.write(request, node, &how, data)?;
                let size = u32::try_from(count.min(data.len())).map_err(|_| Errno::IO)?;
                Ok(Reply::Written(WriteOut { size, padding: 0 }))
            }
            Operation::Release { handle, flags } => empty(fs.release(request, node, handle, flags)),
            Operation::Releasedir { handle, flags } => {
                empty(fs.releasedir(request, node, handle, flags))
            }
            Operation::Flush { handle } => empty(fs.flush(request, node, handle)),
            Operation::Fsync { handle, data_only } => {
                empty(fs.fsync(request, node, handle, data_only))
            }
            Operation::Fsyncdir { handle, data_only } => {
                empty(fs.fsyncdir(request, node, handle, data_only))
            }
            Operation::Fallocate { handle, offset, length, mode } => {
                empty(fs.fallocate(request, node, handle, offset, length, mode))
            }
            Operation::Lseek { handle, offset, whence } => fs
                .lseek(request, node, handle, offset, whence)
                .map(|value| Reply::U64(U64Out { value })),
            Operation::CopyFileRange { range, is_wide } => {
                let value = fs.copy_file_range(request, &range)?.min(range.len_bytes);
                Ok(match u32::try_from(value) {
                    Ok(size) if !is_wide => Reply::Written(WriteOut { size, padding: 0 }),
                    _ => Reply::U64(U64Out { value }),
                })
            }
            _ => Err(Errno::NOSYS),
        }
    }

    /// Writes the reply to the buffer. Returns its length.
    fn write_out(
        &self,
        request: &Request,
        node: u64,
        reply: &Reply,
        body: &mut Body<'_>,
    ) -> Result<usize> {
        match reply {
            Reply::Empty => Ok(0),
            Reply::Entry(wire) => body.put(wire),
            Reply::Attr(wire) => body.put(wire),
            Reply::Statx(wire) => body.put(wire),
            Reply::Created(wire) => body.put(wire),
            Reply::Opened(wire) => body.put(wire),
            Reply::Written(wire) => body.put(wire),
            Reply::U64(wire) => body.put(wire),
            Reply::Statfs(wire) => body.put(wire),
            _ => self.fill(request, node, reply, body.out()),
        }
    }

    fn fill(&self, request: &Request, node: u64, reply: &Reply, out: &mut [u8]) -> Result<usize> {
        let fs = &self.fs;
        match *reply {
            Reply::Readlink => {
                // The longest target fits one page, and every buffer is larger.
                let len = fs.readlink(request, node, out)?;
                if len <= out.len() { Ok(len) } else { Err(Errno::NAMETOOLONG) }
            }
            Reply::Read { handle, offset, len } => {
                // The kernel takes a shorter reply for the end of the file.
                let out = out.get_mut(..len).ok_or(Errno::INVAL)?;
                fs.read(request, node, handle, offset, out).map(|count| count.min(len))
            }
            Reply::Readdir { handle, offset, len } => {
                let len = len.min(out.len());
                let mut entries = Entries::new(&mut out[..len]);
                fs.readdir(request, node, handle, offset, &mut entries)?;
                Ok(entries.len())
            }
            Reply::Readdirplus { handle, offset, len } => {
                let len = len.min(out.len());
                let mut entries = EntriesPlus::new(&mut out[..len]);
                fs.readdirplus(request, node, handle, offset, &mut entries)?;
                Ok(entries.len())
            }
            Reply::Getxattr { ref name, name_len, len } => extended_attribute(out, len, |out| {
                fs.getxattr(request, node, &name[..name_len], out)
            }),
            Reply::Listxattr { len } => {
                extended_attribute(out, len, |out| fs.listxattr(request, node, out))
            }
            Reply::Ioctl { command, ref input, input_len, out_len } => {
                let header = IoctlOut { result: 0, flags: 0, in_iovs: 0, out_iovs: 0 };
                let header_len = put(out, &header)?;
                let len = header_len + out_len;
                let output = out.get_mut(header_len..len).ok_or(Errno::IO)?;
                output.fill(0);
                fs.ioctl(request, node, command, &input[..input_len], output)?;
                Ok(len)
            }
            _ => Err(Errno::IO),
        }
    }
}

fn empty(result: Result<()>) -> Result<Reply> {
    result.map(|()| Reply::Empty)
}

/// The value, or its length if the caller asks for that (`len` 0).
fn extended_attribute(
    out: &mut [u8],
    len: usize,
    get: impl FnOnce(&mut [u8]) -> Result<usize>,
) -> Result<usize> {
    let room = len.min(out.len());
    let value_len = get(&mut out[..room])?;
    if len == 0 {
        let size = u32::try_from(value_len).map_err(|_| Errno::RANGE)?;
        return put(out, &GetxattrOut { size, padding: 0 });
    }
    if value_len <= room { Ok(value_len) } else { Err(Errno::RANGE) }
}
