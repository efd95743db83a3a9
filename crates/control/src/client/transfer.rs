//! Requests with which a stream of bytes goes over a socket of its own.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use super::error::ClientError;
use super::exchange::Client;
use crate::messages::streams::{ReceiveRequest, ReceivedInfo, SendRequest, SentInfo};
use crate::messages::{Command, Outcome};

/// How many bytes of a stream are taken at a time.
const PIECE_LEN_BYTES: usize = 256 << 10;

impl Client {
    /// [`Command::Send`]. Calls `take` with the bytes of the stream, piece by piece. The stream is
    /// complete only if this returns what is in it.
    ///
    /// # Errors
    /// [`ClientError`]; the error of `take`, which ends it.
    pub fn send_stream(
        &self,
        request: SendRequest,
        mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<io::Result<SentInfo>, ClientError> {
        let pair = UnixStream::pair().map_err(|source| self.unreachable(source))?;
        let (mut ours, theirs) = pair;
        let control = self.begin(Command::Send(request), Some(theirs.as_fd()))?;
        drop(theirs);
        let mut piece = vec![0; PIECE_LEN_BYTES];
        loop {
            self.wait_for_reply(&ours)?;
            match ours.read(&mut piece).map_err(|source| self.unreachable(source))? {
                0 => break,
                count => {
                    if let Err(error) = take(&piece[..count]) {
                        return Ok(Err(error));
                    }
                }
            }
        }
        match self.end(&control)? {
            Outcome::Sent(info) => Ok(Ok(*info)),
            other => Err(self.unexpected(&other)),
        }
    }

    /// [`Command::Receive`]. Reads the stream from `input`; `show` is called with the number of
    /// bytes that were read.
    ///
    /// # Errors
    /// [`ClientError`]; the error of reading `input`, after which nothing has changed.
    pub fn receive_stream(
        &self,
        request: ReceiveRequest,
        input: &mut dyn Read,
        mut show: impl FnMut(u64),
    ) -> Result<io::Result<ReceivedInfo>, ClientError> {
        let pair = UnixStream::pair().map_err(|source| self.unreachable(source))?;
        let (mut ours, theirs) = pair;
        let is_resumable = request.resumable;
        let control = self.begin(Command::Receive(request), Some(theirs.as_fd()))?;
        drop(theirs);
        let mut piece = vec![0; PIECE_LEN_BYTES];
        let mut read_bytes = 0;
        loop {
            let count = match input.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // The daemon takes it for a stream that was cut off, and may say how to go on.
                Err(_) if is_resumable => break,
                Err(error) => return Ok(Err(error)),
            };
            // The reply says why the daemon reads no more.
            if ours.write_all(&piece[..count]).is_err() {
                break;
            }
            read_bytes += count as u64;
            show(read_bytes);
        }
        let _ = ours.shutdown(Shutdown::Write);
        match self.end(&control)? {
            Outcome::Received(info) => Ok(Ok(*info)),
            other => Err(self.unexpected(&other)),
        }
    }
}
