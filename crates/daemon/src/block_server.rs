//! The server of the block devices in the volume. There is one at a time, as long as the client
//! that has asked for it, and some view, is there.

use std::io;
use std::time::Duration;

use dendro_base::sync::{Condvar, Mutex};
use dendro_control::ServedInfo;
use dendro_nbd::Server;

/// How often it is looked whether the client is still there.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Serves block devices, one client's at a time.
#[derive(Default)]
pub(crate) struct BlockServer {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Where they are served; until the server has ended.
    served: Option<ServedInfo>,
    /// Whether the volume is about to be shut down.
    is_over: bool,
}

/// That block devices are served.
struct Serving<'a>(&'a BlockServer);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.state.lock().served = None;
        self.0.changed.notify_all();
    }
}

impl BlockServer {
    /// Where they are served.
    pub(crate) fn info(&self) -> Option<ServedInfo> {
        self.state.lock().served.clone()
    }

    /// Starts a server with `start`, and serves as long as `goes_on` returns true.
    ///
    /// # Errors
    /// Why it was not done, or not until the client wanted no more.
    pub(crate) fn serve(
        &self,
        info: ServedInfo,
        start: impl FnOnce() -> io::Result<Server>,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<(), String> {
        // It is dropped after the server, so that whoever waits for that knows it ended.
        let serving = self.begin(info)?;
        let server = start().map_err(|error| error.to_string())?;
        let is_over = loop {
            if !goes_on() {
                break false;
            }
            let mut state = self.state.lock();
            if !state.is_over {
                self.changed.wait_for(&mut state, LOOK_INTERVAL);
            }
            if state.is_over {
                break true;
            }
        };
        server.stop();
        drop(serving);
        match is_over {
            true => {
                Err("the volume has been unmounted, and its block devices are no longer served"
                    .into())
            }
            false => Ok(()),
        }
    }

    fn begin(&self, info: ServedInfo) -> Result<Serving<'_>, String> {
        let mut state = self.state.lock();
        if state.is_over {
            return Err("it is being unmounted".into());
        }
        if let Some(served) = &state.served {
            return Err(format!(
                "its block devices are served already, at {} by process {}",
                served.uri, served.pid
            ));
        }
        state.served = Some(info);
        Ok(Serving(self))
    }

    /// Ends the server, if there is one, once what clients have asked for is done. None begins
    /// after that.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        self.changed.notify_all();
        while state.served.is_some() {
            self.changed.wait(&mut state);
        }
    }
}
