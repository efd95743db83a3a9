//! Why a request got no answer.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A daemon that runs but answers no ping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresponsive {
    /// Its process.
    pub pid: u32,
}

impl fmt::Display for Unresponsive {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pid = self.pid;
        write!(
            formatter,
            "the daemon, process {pid}, does not answer; if it was stopped, `kill -CONT {pid}` lets \
             it go on"
        )
    }
}

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The daemon is gone, or does not answer, and its process is not known.
    #[error("the daemon at {path} does not answer: {source}")]
    Unreachable {
        /// Its socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The daemon's process runs, but has not answered for some time.
    #[error("{0}")]
    Unresponsive(Unresponsive),
    /// Another daemon has the socket by now, or the mount that was meant is gone; the text says so.
    #[error("{0}")]
    NotMeant(String),
    /// The reply is none of this protocol.
    #[error(
        "the daemon at {path} gave an answer this command does not understand ({why}); use the \
         dendro command of the same release"
    )]
    Malformed {
        /// Its socket.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The daemon has refused the request; the text says why.
    #[error("{0}")]
    Refused(String),
}
