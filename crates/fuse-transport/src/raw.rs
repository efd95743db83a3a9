//! All `unsafe` of this crate: rings whose buffers the kernel fills, and one ioctl.
//!
//! # Who owns a ring's buffers
//! Each entry of a ring has a page for headers and a payload, in one mapping that the ring keeps
//! ([`memory`]). An entry belongs either to the kernel, from the submission of REGISTER or COMMIT_AND_FETCH to that
//! command's completion, or to this program, from there to the next submission.
//!
//! 1. Slices of an entry are made in [`Ring::serve`] alone, for an entry whose completion it has
//!    just taken, and are gone before it queues the next command for that entry.
//! 2. The mapping lives as long as an entry may be the kernel's: [`Ring`] unmaps it only when every
//!    entry has come back, and otherwise leaves it to the end of the process.

mod memory;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{InHeader, OutHeader, RingCommand, RingEntry, RingHeaders, uring_command};
use crate::errno::Errno;
pub(crate) use memory::Buffer;
use memory::Mapping;

/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, uint32_t)`.
const IOC_CLONE: libc::c_ulong = 0x8004_e500;
/// Where an SQE has its `len`, which the command's builder leaves 0: how many parts a buffer has.
const SQE_LEN_AT: usize = 24;
/// A buffer's parts: headers and payload.
const BUFFER_PARTS: u32 = 2;
/// Headers have a page of their own, so that the payload is aligned to one.
const HEADERS_LEN: usize = 4096;

/// Binds `unbound`, just opened, to the connection of `device`: a second way to the same requests.
pub(crate) fn bind_clone(unbound: BorrowedFd<'_>, device: BorrowedFd<'_>) -> io::Result<()> {
    let source = device.as_raw_fd().cast_unsigned();
    // SAFETY: both descriptors are open for the length of the call, and this ioctl reads four
    // bytes at its argument, which are `source`'s.
    let answer = unsafe { libc::ioctl(unbound.as_raw_fd(), IOC_CLONE, &raw const source) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A request that has come through a ring.
pub(crate) struct Arrival<'a> {
    pub(crate) header: InHeader,
    /// Begins with the arguments of fixed length.
    pub(crate) arguments: &'a [u8],
    /// The rest of the request, and where the answer goes.
    pub(crate) buffer: &'a mut [u8],
    /// How much of `buffer` is the request's.
    pub(crate) len: usize,
}

/// How serving a ring ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The mount is gone.
    Unmounted,
    /// The kernel does not take the ring's buffers.
    Refused(io::Error),
}

/// A ring over which the requests of one CPU come, to the thread that enables it.
pub(crate) struct Ring {
    // Before the memory: closed before that is unmapped.
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    memory: Mapping,
    device: Arc<OwnedFd>,
    /// Of each entry, where its parts are; the kernel reads this while it registers them.
    parts: Vec<[libc::iovec; 2]>,
    queue_index: u16,
    payload_len: usize,
    /// How many entries are the kernel's.
    with_kernel: usize,
}

// SAFETY: the pointers in `parts` lead into `memory`, which may go to another thread and goes along;
// all else is `Send` by itself.
unsafe impl Send for Ring {}

impl Ring {
    /// A ring for the queue `queue_index` of the connection of `device`, with `entry_count` buffers
    /// of `payload_len` bytes.
    ///
    /// # Errors
    /// io_uring is not to be had (`io_uring_disabled`, seccomp, memory).
    pub(crate) fn new(
        device: Arc<OwnedFd>,
        queue_index: u16,
        entry_count: usize,
        payload_len: usize,
    ) -> io::Result<Self> {
        let submissions = u32::try_from(entry_count.next_power_of_two().max(2))
            .map_err(|_| io::ErrorKind::InvalidInput)?;
        let ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(submissions)?;
        ring.submitter().register_files(&[device.as_raw_fd()])?;
        let payload_len = payload_len.next_multiple_of(HEADERS_LEN);
        let len_of = |each: usize| each.checked_mul(entry_count).ok_or(io::ErrorKind::OutOfMemory);
        let headers_len = len_of(HEADERS_LEN)?;
        let memory = Mapping::new(headers_len, len_of(payload_len)?)?;
        let parts = (0..entry_count)
            .map(|index| {
                let part =
                    |at, iov_len| libc::iovec { iov_base: memory.address(at).cast(), iov_len };
                let payload_at = headers_len + index * payload_len;
                [part(index * HEADERS_LEN, size_of::<RingHeaders>()), part(payload_at, payload_len)]
            })
            .collect();
        Ok(Self { ring, memory, device, parts, queue_index, payload_len, with_kernel: 0 })
    }

    /// The CPU whose requests come here.
    pub(crate) const fn cpu(&self) -> usize {
        self.queue_index as usize
    }

    /// Gives all buffers to the kernel, and serves the requests that come in them until the mount
    /// is gone. `answer` returns how long the answer is that it has written to the buffer.
    ///
    /// To be called once, on the thread that is to serve.
    ///
    /// # Errors
    /// When the ring fails.
    pub(crate) fn serve(
        &mut self,
        mut answer: impl FnMut(Arrival<'_>) -> Result<usize, Errno>,
    ) -> io::Result<End> {
        self.ring.submitter().register_enable_rings()?;
        self.memory.is_shared = true;
        for index in 0..self.parts.len() {
            self.submit(index, uring_command::REGISTER, 0)?;
        }
        let mut is_registered = false;
        while self.with_kernel > 0 {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => (),
            }
            loop {
                let Some(completion) = self.ring.completion().next() else { break };
                self.with_kernel -= 1;
                let index = usize::try_from(completion.user_data()).map_err(io::Error::other)?;
                match -completion.result() {
                    0 => {
                        is_registered = true;
                        let commit_id = self.answer(index, &mut answer);
                        self.submit(index, uring_command::COMMIT_AND_FETCH, commit_id)?;
                    }
                    libc::ENOTCONN | libc::ECONNABORTED | libc::ENODEV | libc::ECANCELED => (),
                    errno if is_registered => return Err(io::Error::from_raw_os_error(errno)),
                    errno => return Ok(End::Refused(io::Error::from_raw_os_error(errno))),
                }
            }
        }
        self.memory.is_shared = false;
        Ok(End::Unmounted)
    }

    /// Answers the request in entry `index`, which has just come back from the kernel; what to
    /// name it by.
    fn answer(
        &mut self,
        index: usize,
        answer: &mut impl FnMut(Arrival<'_>) -> Result<usize, Errno>,
    ) -> u64 {
        let [headers, payload] = &self.parts[index];
        // SAFETY: the entry is this program's (rule 1), its memory is mapped and initialized, and
        // `RingHeaders` takes any bytes; at the start of a page, it is aligned.
        let headers = unsafe { &mut *headers.iov_base.cast::<RingHeaders>() };
        // SAFETY: as above; the two parts do not overlap.
        let buffer = unsafe {
            std::slice::from_raw_parts_mut(payload.iov_base.cast::<u8>(), payload.iov_len)
        };
        let header = InHeader::read_from_prefix(&headers.in_out)
            .expect("the space for headers is larger than the header")
            .0;
        let commit_id = headers.entry.commit_id;
        let request_len = headers.entry.payload_len as usize;
        let answered = if request_len <= self.payload_len {
            answer(Arrival { header, arguments: &headers.op_in, buffer, len: request_len })
        } else {
            Err(Errno::IO)
        };
        let (error, len) = match answered {
            Ok(len) => (0, u32::try_from(len).expect("answers fit the buffer")),
            Err(errno) => (-errno.raw(), 0),
        };
        let out =
            OutHeader { len: size_of::<OutHeader>() as u32 + len, error, unique: header.unique };
        headers.in_out[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        headers.entry =
            RingEntry { flags: 0, commit_id, payload_len: len, padding: 0, reserved: 0 };
        self.memory.note_use(request_len.max(len as usize));
        commit_id
    }

    /// Queues a command that makes entry `index` the kernel's.
    fn submit(&mut self, index: usize, command: u32, commit_id: u64) -> io::Result<()> {
        let carried =
            RingCommand { flags: 0, commit_id, queue_index: self.queue_index, padding: [0; 6] };
        let mut space = [0; 80];
        space[..size_of::<RingCommand>()].copy_from_slice(carried.as_bytes());
        let address = self.parts[index].as_ptr() as u64;
        let mut entry = opcode::UringCmd80::new(types::Fixed(0), command)
            .cmd(space)
            .addr(Some(address))
            .build()
            .user_data(index as u64);
        // SAFETY: an SQE is 128 bytes of plain data, this one is not shared yet, and at this place
        // it has 32 bits for the length, aligned.
        unsafe {
            (&raw mut entry).cast::<u8>().add(SQE_LEN_AT).cast::<u32>().write(BUFFER_PARTS);
        }
        // SAFETY: the buffer stays mapped (rule 2), and no slice of it is left (rule 1); `parts` is
        // not changed, and the descriptor is registered with the ring.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        self.with_kernel += 1;
        Ok(())
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Ring")
            .field("queue_index", &self.queue_index)
            .field("device", &self.device)
            .field("entries", &self.parts.len())
            .finish_non_exhaustive()
    }
}
