//! The entries of a ring: where the kernel puts a request, and where it takes the reply.
//!
//! Each entry has two parts, which the kernel knows as an array of two iovecs: the headers
//! ([`RingHeaders`], at the start of a page of their own, so that the payload is aligned to a page)
//! and the payload. The reply overwrites the request in both.

use std::io;

use zerocopy::{FromBytes, IntoBytes};

use super::memory::Mapping;
use crate::errno::{Errno, Result};
use crate::protocol::abi::{InHeader, OutHeader, RingEntry, RingHeaders};

/// The number of parts of an entry.
pub(super) const PART_COUNT: u32 = 2;

/// The bytes reserved for the headers of an entry: one page.
const HEADERS_LEN: usize = 4096;

/// A request in an entry.
pub(crate) struct Arrival<'a> {
    pub(crate) header: InHeader,
    /// Begins with the arguments of fixed length.
    pub(crate) arguments: &'a [u8],
    /// The rest of the request, and the space for the reply.
    pub(crate) buffer: &'a mut [u8],
    /// How many bytes of `buffer` belong to the request.
    pub(crate) len: usize,
}

/// The memory of all entries of one ring.
pub(super) struct Entries {
    memory: Mapping,
    /// The parts of each entry, as addresses in `memory`. The kernel reads this while it registers
    /// the entries.
    parts: Vec<[libc::iovec; PART_COUNT as usize]>,
    payload_len: usize,
}

// SAFETY: the pointers in `parts` point into `memory`, which may move to another thread and moves
// together with them; everything else is `Send` by itself.
unsafe impl Send for Entries {}

impl Entries {
    /// Memory for `count` entries with payloads of `payload_len` bytes, rounded up to whole pages.
    pub(super) fn new(count: usize, payload_len: usize) -> io::Result<Self> {
        let payload_len = payload_len.next_multiple_of(HEADERS_LEN);
        let len_of = |each: usize| each.checked_mul(count).ok_or(io::ErrorKind::OutOfMemory);
        let headers_len = len_of(HEADERS_LEN)?;
        let memory = Mapping::new(headers_len, len_of(payload_len)?)?;
        let part = |at, iov_len| libc::iovec { iov_base: memory.address(at).cast(), iov_len };
        let parts = (0..count)
            .map(|index| {
                let payload_at = headers_len + index * payload_len;
                [part(index * HEADERS_LEN, size_of::<RingHeaders>()), part(payload_at, payload_len)]
            })
            .collect();
        Ok(Self { memory, parts, payload_len })
    }

    pub(super) const fn count(&self) -> usize {
        self.parts.len()
    }

    /// The address of the array of parts of an entry, for the kernel.
    pub(super) fn parts_address(&self, index: usize) -> u64 {
        self.parts[index].as_ptr() as u64
    }

    /// States whether the kernel may write to the memory from now on. If it still may when the
    /// entries are dropped, their memory stays mapped (rule 2).
    pub(super) fn set_shared(&mut self, is_shared: bool) {
        self.memory.set_shared(is_shared);
    }

    /// Calls `serve` with the request in entry `index`, and writes the reply there. `serve` returns
    /// the length of the reply that it has written to the buffer. Returns the number by which the
    /// kernel knows the request (the commit id).
    ///
    /// # Safety
    /// The entry belongs to this program until the call returns (rule 1).
    pub(super) unsafe fn reply(
        &mut self,
        index: usize,
        serve: &mut impl FnMut(Arrival<'_>) -> Result<usize>,
    ) -> u64 {
        let [headers, payload] = &self.parts[index];
        // SAFETY: the entry belongs to this program, its memory is mapped and initialized, and
        // `RingHeaders` is valid for any bytes; it is aligned, at the start of a page.
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
            serve(Arrival { header, arguments: &headers.op_in, buffer, len: request_len })
        } else {
            Err(Errno::IO)
        };
        let (error, len) = match answered {
            Ok(len) => (0, u32::try_from(len).expect("replies fit the buffer")),
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a request as the kernel does: by address.
    fn put_request(entries: &Entries, index: usize, unique: u64, payload: &[u8], len: u32) {
        let header = InHeader {
            len: 0,
            opcode: 1,
            unique,
            node: 1,
            uid: 0,
            gid: 0,
            pid: 0,
            extension_len_8: 0,
            padding: 0,
        };
        let mut headers = RingHeaders {
            in_out: [0; 128],
            op_in: [index as u8; 128],
            entry: RingEntry {
                flags: 0,
                commit_id: unique + 1,
                payload_len: len,
                padding: 0,
                reserved: 0,
            },
        };
        headers.in_out[..size_of::<InHeader>()].copy_from_slice(header.as_bytes());
        let [at_headers, at_payload] = entries.parts[index];
        // SAFETY: the test owns the memory, nothing refers to it, and the parts have room.
        unsafe {
            at_headers.iov_base.cast::<RingHeaders>().write(headers);
            let to = at_payload.iov_base.cast::<u8>();
            std::ptr::copy_nonoverlapping(payload.as_ptr(), to, payload.len());
        }
    }

    /// Reads a reply as the kernel does.
    fn reply_of(entries: &Entries, index: usize) -> (OutHeader, RingEntry, Vec<u8>) {
        let [at_headers, at_payload] = entries.parts[index];
        // SAFETY: as above.
        let headers = unsafe { at_headers.iov_base.cast::<RingHeaders>().read() };
        let header = OutHeader::read_from_prefix(&headers.in_out).unwrap().0;
        let len = headers.entry.payload_len as usize;
        // SAFETY: as above.
        let payload = unsafe { std::slice::from_raw_parts(at_payload.iov_base.cast::<u8>(), len) };
        (header, headers.entry, payload.to_vec())
    }

    #[test]
    fn a_reply_takes_the_place_of_its_request_and_of_no_other() {
        let mut entries = Entries::new(3, 5000).expect("there is memory");
        assert_eq!((entries.count(), entries.payload_len), (3, 8192));
        for index in 0..3 {
            put_request(&entries, index, 10 + index as u64, &[index as u8; 100], 100);
        }
        for index in [1, 0, 2] {
            let mut serve = |arrival: Arrival<'_>| {
                assert_eq!(arrival.header.unique, 10 + index as u64);
                assert_eq!(arrival.arguments, [index as u8; 128]);
                assert_eq!(arrival.buffer[..arrival.len], [index as u8; 100]);
                arrival.buffer[..200].fill(0x50 + index as u8);
                Ok(200)
            };
            // SAFETY: no kernel has this memory.
            let commit_id = unsafe { entries.reply(index, &mut serve) };
            assert_eq!(commit_id, 11 + index as u64);
        }
        for index in 0..3 {
            let (header, entry, payload) = reply_of(&entries, index);
            assert_eq!((header.len, header.error, header.unique), (216, 0, 10 + index as u64));
            assert_eq!(entry.commit_id, 11 + index as u64);
            assert_eq!(payload, [0x50 + index as u8; 200]);
        }
    }

    #[test]
    fn an_error_has_no_payload_and_a_length_beyond_the_payload_is_refused() {
        let mut entries = Entries::new(1, 4096).expect("there is memory");
        put_request(&entries, 0, 7, b"x", 1);
        // SAFETY: no kernel has this memory.
        unsafe { entries.reply(0, &mut |_| Err(Errno::NOENT)) };
        let (header, _, payload) = reply_of(&entries, 0);
        assert_eq!((header.len, header.error), (16, -libc::ENOENT));
        assert!(payload.is_empty());
        put_request(&entries, 0, 7, b"x", 4097);
        // SAFETY: as above.
        unsafe { entries.reply(0, &mut |_| unreachable!("the request is malformed")) };
        assert_eq!(reply_of(&entries, 0).0.error, -libc::EIO);
    }

    #[test]
    fn entries_move_to_the_thread_that_serves_them() {
        let mut entries = Entries::new(1, 4096).expect("there is memory");
        put_request(&entries, 0, 7, b"abc", 3);
        let serve = move || {
            // SAFETY: no kernel has this memory.
            unsafe { entries.reply(0, &mut |arrival| Ok(arrival.len)) };
            reply_of(&entries, 0).2
        };
        let replied = std::thread::scope(|scope| scope.spawn(serve).join());
        assert_eq!(replied.unwrap(), b"abc");
    }
}
