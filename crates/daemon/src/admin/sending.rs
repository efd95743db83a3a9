//! Send streams over a socket that came with the request.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dendro_control::streams::{SendRequest, StreamInfo};
use dendro_control::{AdminError, MountNamed};
use dendro_disk::Versions;

use super::refusal::refuse;
use crate::sending;
use crate::state::Daemon;
use crate::threads::Stop;

/// How often a thread whose client takes nothing looks whether it is to end.
const WRITE_TIMEOUT: Duration = Duration::from_millis(500);

/// How many streams are written at a time. Each takes a thread that serves requests.
const MAX_STREAMS: u32 = 2;

/// One of the streams that are being written.
struct Turn<'a>(&'a AtomicU32);

impl<'a> Turn<'a> {
    fn take(running: &'a AtomicU32) -> Option<Self> {
        let turn = Self(running);
        (running.fetch_add(1, Ordering::Relaxed) < MAX_STREAMS).then_some(turn)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A socket whose other end may take its time, as long as the daemon runs.
struct Patient<'a> {
    stream: UnixStream,
    stop: &'a Stop,
}

impl Write for Patient<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        loop {
            match self.stream.write(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
            if self.stop.is_set() {
                return Err(io::Error::other("the daemon ends"));
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Daemon<'_> {
    pub(super) fn send_stream(
        &self,
        mount: Option<MountNamed<'_>>,
        request: &SendRequest,
        to: Option<OwnedFd>,
    ) -> Result<StreamInfo, AdminError> {
        let to = to.ok_or_else(|| AdminError("no socket came with it".into()))?;
        let _turn = Turn::take(&self.streams).ok_or_else(|| {
            AdminError(format!("{MAX_STREAMS} streams are being sent; wait until one has ended"))
        })?;
        let stream = UnixStream::from(to);
        stream.set_write_timeout(Some(WRITE_TIMEOUT)).map_err(refuse)?;
        let disk = self.volume.disk();
        let here = match mount {
            Some(mount) => self.mounted(mount)?.view(),
            None => disk.versions().main_head(),
        };
        let mut go_on = |_| match self.stop.is_set() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let to = Patient { stream, stop: &self.stop };
        sending::send(disk, here, request, to, &mut go_on).map_err(AdminError)
    }
}
