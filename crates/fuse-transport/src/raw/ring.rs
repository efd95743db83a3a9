//! The io_uring over which the requests of one CPU come.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use zerocopy::IntoBytes;

use super::entries::{Arrival, Entries, PART_COUNT};
use crate::errno::Result;
use crate::protocol::abi::{RingCommand, uring_command};

/// The offset of `len` in an SQE. The kernel expects the number of an entry's parts there; the
/// builder of the command leaves it 0.
const SQE_LEN_AT: usize = 24;

/// How serving a ring ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The file system was unmounted.
    Unmounted,
    /// The kernel does not accept the ring's entries.
    Refused(io::Error),
}

/// A ring over which the requests of one CPU come, to the thread that enables it.
pub(crate) struct Ring {
    // Declared before the memory, so that it is closed before that is unmapped.
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    entries: Entries,
    device: Arc<OwnedFd>,
    queue_index: u16,
    /// How many entries belong to the kernel.
    with_kernel: usize,
}

impl Ring {
    /// A ring for the queue `queue_index` of the connection of `device`, with `entry_count` entries
    /// for payloads of `payload_len` bytes.
    ///
    /// # Errors
    /// If io_uring is not available (`io_uring_disabled`, seccomp, memory).
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
        let entries = Entries::new(entry_count, payload_len)?;
        Ok(Self { ring, entries, device, queue_index, with_kernel: 0 })
    }

    /// The CPU whose requests this ring receives.
    pub(crate) const fn cpu(&self) -> usize {
        self.queue_index as usize
    }

    /// Gives all entries to the kernel, and serves the requests that come in them until the file
    /// system is unmounted. `serve` returns the length of the reply that it has written to the
    /// buffer.
    ///
    /// This may be called once, on the thread that serves.
    ///
    /// # Errors
    /// If the ring fails.
    pub(crate) fn serve(
        &mut self,
        mut serve: impl FnMut(Arrival<'_>) -> Result<usize>,
    ) -> io::Result<End> {
        self.ring.submitter().register_enable_rings()?;
        self.entries.set_shared(true);
        for index in 0..self.entries.count() {
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
                        // SAFETY: the completion of this entry's command was just taken, and the
                        // next command is submitted below (rule 1).
                        let commit_id = unsafe { self.entries.reply(index, &mut serve) };
                        self.submit(index, uring_command::COMMIT_AND_FETCH, commit_id)?;
                    }
                    libc::ENOTCONN | libc::ECONNABORTED | libc::ENODEV | libc::ECANCELED => (),
                    errno if is_registered => return Err(io::Error::from_raw_os_error(errno)),
                    errno => return Ok(End::Refused(io::Error::from_raw_os_error(errno))),
                }
            }
        }
        self.entries.set_shared(false);
        Ok(End::Unmounted)
    }

    /// Queues a command that gives entry `index` to the kernel.
    fn submit(&mut self, index: usize, command: u32, commit_id: u64) -> io::Result<()> {
        let carried =
            RingCommand { flags: 0, commit_id, queue_index: self.queue_index, padding: [0; 6] };
        let mut space = [0; 80];
        space[..size_of::<RingCommand>()].copy_from_slice(carried.as_bytes());
        let address = self.entries.parts_address(index);
        let mut entry = opcode::UringCmd80::new(types::Fixed(0), command)
            .cmd(space)
            .addr(Some(address))
            .build()
            .user_data(index as u64);
        set_len(&mut entry, PART_COUNT);
        // SAFETY: the entry's memory stays mapped (rule 2), and there are no references to it (rule
        // 1). The array of its parts is not changed, and the descriptor is registered with the
        // ring.
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
            .field("entries", &self.entries.count())
            .finish_non_exhaustive()
    }
}

/// Sets the field `len` of an SQE.
fn set_len(entry: &mut squeue::Entry128, len: u32) {
    // SAFETY: an SQE is 128 bytes of plain data, and this one is not shared. At this offset it has
    // an aligned field of 32 bits.
    unsafe {
        std::ptr::from_mut(entry).cast::<u8>().add(SQE_LEN_AT).cast::<u32>().write(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_command_is_set_and_nothing_else() {
        // Any command does. That of the ring is built by the crate `io-uring` through a pointer of
        // an array without length, which Miri's default rules (Stacked Borrows) refuse.
        let command = || squeue::Entry128::from(opcode::Nop::new().build().user_data(7));
        let bytes = |entry: &squeue::Entry128| {
            let at = std::ptr::from_ref(entry).cast::<[u8; 128]>();
            // SAFETY: an SQE is 128 bytes of plain data, all of them initialized.
            unsafe { at.read() }
        };
        let (before, mut entry) = (command(), command());
        set_len(&mut entry, 2);
        let (mut expected, found) = (bytes(&before), bytes(&entry));
        expected[SQE_LEN_AT..SQE_LEN_AT + 4].copy_from_slice(2_u32.as_bytes());
        assert_eq!(found, expected);
    }
}
