//! Why a version was not sent or received.

use std::io;

use dendro_disk::{Error, Lid, Snapshot};
use dendro_stream::{StreamError, Token, Version};

/// Why a version was not received.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The stream is wrong.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The disk does not have the base.
    #[error("the stream begins with {}, which is not here; receive that first", called(.0))]
    NoBase(Box<Version>),
    /// The disk has the version.
    #[error("the snapshot is here, as {}", .0.title())]
    IsHere(Box<Snapshot>),
    /// The disk has a part of the version.
    #[error(
        "a part of the snapshot is here; `dendro send --resume {0}` sends the rest, and \
         `dendro receive --abort` gives it up"
    )]
    PartIsHere(Box<Token>),
    /// The stream is the rest of one of which nothing is here.
    #[error(
        "the stream is the rest of another one, and what came before it is not here; send all of \
         {}",
        called(.0)
    )]
    NoPart(Box<Version>),
    /// The stream is the rest of one, and something between it and what is here is missing.
    #[error(
        "the stream begins behind what is here of it; `dendro send --resume {0}` sends all that \
         is missing"
    )]
    Gap(Box<Token>),
    /// The base had a list of this number once, and has it no more: the version does not descend
    /// from the base, or has lists of another volume.
    #[error(
        "the number of list {0}, which is new, is in use in the history of the snapshot that the \
         stream begins with; send all of the snapshot, without a base"
    )]
    NumberInUse(Lid),
    /// The disk refuses a change.
    #[error("list {list}: {error}")]
    List {
        /// The list that is changed.
        list: Lid,
        /// Why it cannot be changed.
        error: Error,
    },
    /// The disk refuses a version.
    #[error(transparent)]
    Disk(#[from] Error),
    /// The caller ended it.
    #[error("it was interrupted")]
    Interrupted,
    /// It broke off, and what was received is kept.
    #[error(
        "{error}. What was received is kept: `dendro send --resume {token}` sends the rest, and \
         `dendro receive --abort` gives it up"
    )]
    Kept {
        /// How far it was received.
        token: Box<Token>,
        /// Why it broke off.
        error: Box<Self>,
    },
}

fn called(version: &Version) -> String {
    let name = version.name.as_ref().map_or_else(String::new, |name| format!("@{name}, "));
    format!("{name}{}", version.origin)
}

/// Why a version was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The disk cannot be read.
    #[error("list {list}: {error}")]
    List {
        /// The list that was read.
        list: Lid,
        /// Why it cannot be read.
        error: Error,
    },
    /// The disk's lists cannot be found.
    #[error(transparent)]
    Disk(#[from] Error),
    /// The thread that reads cannot be started.
    #[error("a thread cannot be started: {0}")]
    Thread(io::Error),
    /// The stream cannot be written.
    #[error("the stream cannot be written: {0}")]
    Write(#[from] io::Error),
    /// The caller ended it.
    #[error("it was interrupted")]
    Interrupted,
}
