//! File descriptors that are passed over a socket (`SCM_RIGHTS`), beside bytes.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Sends the beginning of `bytes`, and `descriptor` with it; returns how many bytes were sent.
pub(crate) fn send(
    stream: &UnixStream,
    bytes: &[u8],
    descriptor: BorrowedFd<'_>,
) -> io::Result<usize> {
    let descriptors = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("there is no room for a descriptor"));
    }
    let parts = [IoSlice::new(bytes)];
    Ok(rustix::io::retry_on_intr(|| sendmsg(stream, &parts, &mut ancillary, SendFlags::NOSIGNAL))?)
}

/// Receives bytes, and a descriptor if one came with them. Further ones are closed.
pub(crate) fn receive(
    stream: &UnixStream,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(buffer)];
    let received = recvmsg(stream, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    if descriptor.is_none() && received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("a descriptor cannot be taken, as too many are open"));
    }
    Ok((received.bytes, descriptor))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_descriptor_arrives_with_its_bytes() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let zero = File::open("/dev/zero").unwrap();
        assert_eq!(send(&ours, b"line\n", zero.as_fd()).unwrap(), 5);
        let mut buffer = [1; 16];
        let (count, descriptor) = receive(&theirs, &mut buffer).unwrap();
        assert_eq!(&buffer[..count], b"line\n");
        let mut byte = [1];
        File::from(descriptor.unwrap()).read_exact(&mut byte).unwrap();
        assert_eq!(byte, [0]);
    }

    #[test]
    fn bytes_without_a_descriptor_are_read_as_usual() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut &ours, b"x").unwrap();
        let mut buffer = [0; 16];
        assert!(matches!(receive(&theirs, &mut buffer), Ok((1, None))));
        drop(ours);
        assert!(matches!(receive(&theirs, &mut buffer), Ok((0, None))));
    }
}
