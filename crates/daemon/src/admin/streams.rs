//! Send streams over a socket that came with the request.

use std::io::{self, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dendro_control::streams::{ReceiveRequest, ReceivedInfo, SendRequest, SentInfo};
use dendro_control::{AdminError, MountNamed};
use dendro_disk::Versions;

use super::refusal::refuse;
use crate::state::Daemon;
use crate::streams;
use crate::threads::Stop;

/// How often a thread whose client takes or gives nothing looks whether it is to end.
const TIMEOUT: Duration = Duration::from_millis(500);

/// How many streams are written at a time. Each takes a thread that serves requests.
const MAX_STREAMS: u32 = 2;

/// One of the streams that are being written or applied.
struct Turn<'a>(&'a AtomicU32);

impl<'a> Turn<'a> {
    /// `None` if `most` are under way.
    fn take(running: &'a AtomicU32, most: u32) -> Option<Self> {
        let turn = Self(running);
        (running.fetch_add(1, Ordering::AcqRel) < most).then_some(turn)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A socket whose other end may take its time, as long as the daemon runs.
struct Patient<'a> {
    stream: UnixStream,
    stop: &'a Stop,
}

impl Patient<'_> {
    /// Tries until something goes over the socket.
    fn transfer(
        &mut self,
        mut attempt: impl FnMut(&mut UnixStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            match attempt(&mut self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
            if self.stop.is_set() {
                return Err(io::Error::other("the daemon ends"));
            }
        }
    }
}

impl Write for Patient<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.transfer(|stream| stream.write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Patient<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.transfer(|stream| stream.read(buf))
    }
}

/// Says that a stream goes on until the daemon ends.
fn until_set(stop: &Stop) -> impl FnMut(u64) -> ControlFlow<()> + '_ {
    |_| if stop.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

impl Daemon<'_> {
    pub(super) fn send_stream(
        &self,
        mount: Option<MountNamed<'_>>,
        request: &SendRequest,
        to: Option<OwnedFd>,
    ) -> Result<SentInfo, AdminError> {
        let to = to.ok_or_else(|| AdminError("no socket came with it".into()))?;
        let _turn = Turn::take(&self.sent_streams, MAX_STREAMS).ok_or_else(|| {
            AdminError(format!("{MAX_STREAMS} streams are being sent; wait until one has ended"))
        })?;
        let stream = UnixStream::from(to);
        stream.set_write_timeout(Some(TIMEOUT)).map_err(refuse)?;
        let disk = self.volume.disk();
        let here = match mount {
            Some(mount) => self.mounted(mount)?.view(),
            None => disk.versions().main_head(),
        };
        let to = Patient { stream, stop: &self.stop };
        streams::send(disk, here, request, to, &mut until_set(&self.stop)).map_err(AdminError)
    }

    pub(super) fn receive_stream(
        &self,
        request: &ReceiveRequest,
        from: Option<OwnedFd>,
    ) -> Result<ReceivedInfo, AdminError> {
        let from = from.ok_or_else(|| AdminError("no socket came with it".into()))?;
        let _turn = Turn::take(&self.received_streams, 1).ok_or_else(|| {
            AdminError("another version is being received; wait until that has ended".into())
        })?;
        let stream = UnixStream::from(from);
        stream.set_read_timeout(Some(TIMEOUT)).map_err(refuse)?;
        let from = BufReader::new(Patient { stream, stop: &self.stop });
        let received =
            streams::receive(self.volume.disk(), request, from, &mut until_set(&self.stop));
        received.map_err(|why| {
            // Where the client is gone, this is the place to find the token.
            log::info!("nothing was received: {why}");
            AdminError(why)
        })
    }
}
