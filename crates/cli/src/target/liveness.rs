//! Whether a mount has a server if its daemon cannot be asked: it was killed, belongs to another
//! user, or has no control socket.

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

/// How long a file system may take to report its size.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is known about the server of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// It answers.
    Answers,
    /// It is there, and does not answer.
    Silent,
    /// There is none.
    Dead,
}

/// Whether the mount that `path` lies in has a server. The kernel may still know the attributes of
/// files there, so the question must be one that only the server can answer. For some time after
/// the end of the server the kernel cancels requests over io_uring before it cuts the connection.
pub(crate) fn of(path: &Path) -> Liveness {
    let path = path.to_path_buf();
    within(PATIENCE, move || {
        match rustix::fs::statfs(&path) {
            Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED) => Liveness::Dead,
            // This includes a refusal.
            _ => Liveness::Answers,
        }
    })
}

/// The result of `ask`, unless it takes longer than `timeout`.
fn within(timeout: Duration, ask: impl FnOnce() -> Liveness + Send + 'static) -> Liveness {
    let (sender, receiver) = mpsc::channel();
    let asking = thread::Builder::new().name("liveness".into()).spawn(move || {
        // The receiver may have gone.
        let _ = sender.send(ask());
    });
    match asking {
        Ok(_) => receiver.recv_timeout(timeout).unwrap_or(Liveness::Silent),
        Err(_) => Liveness::Answers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_answer_is_not_waited_for() {
        assert_eq!(of(Path::new("/")), Liveness::Answers);
        assert_eq!(within(PATIENCE, || Liveness::Dead), Liveness::Dead);
        let late = || {
            thread::sleep(Duration::from_secs(1));
            Liveness::Answers
        };
        assert_eq!(within(Duration::from_millis(10), late), Liveness::Silent);
    }
}
