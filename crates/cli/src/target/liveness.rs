//! Whether anybody serves a mount, where its daemon cannot be asked: one that was killed, one of another
//! user's, or one without a control socket.

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

/// How long a file system may take to say how large it is.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is known of who serves a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// It answers.
    Answers,
    /// It is there, and does not answer.
    Silent,
    /// There is nobody.
    Dead,
}

/// Whether anybody serves the mount that `path` lies in. The kernel may still know the attributes of
/// files there, so it takes a question that only the one who serves it can answer. Requests over io_uring
/// are cancelled for some time after its death before the kernel cuts the connection.
pub(crate) fn of(path: &Path) -> Liveness {
    let path = path.to_path_buf();
    within(PATIENCE, move || {
        match rustix::fs::statfs(&path) {
            Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED) => Liveness::Dead,
            // Also where it may not be asked.
            _ => Liveness::Answers,
        }
    })
}

/// What `ask` answers; it is left alone where it takes longer than `timeout`.
fn within(timeout: Duration, ask: impl FnOnce() -> Liveness + Send + 'static) -> Liveness {
    let (teller, told) = mpsc::channel();
    let asking = thread::Builder::new().name("life".into()).spawn(move || {
        // Nobody may be listening any more.
        let _ = teller.send(ask());
    });
    match asking {
        Ok(_) => told.recv_timeout(timeout).unwrap_or(Liveness::Silent),
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
