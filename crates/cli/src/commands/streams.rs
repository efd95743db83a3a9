//! `dendro send` and `dendro receive`; and `dendro stream`, which looks into kept streams.
//!
//! - [`mod@send`], [`mod@receive`]: the commands. [`heads`]: snapshots of the heads that are sent.
//! - [`kept`]: what is in kept streams. [`names`]: the names of files in them. [`restore`]: files
//!   out of them.
//! - [`input`]: where streams are read. [`words`]: what is said about them.

mod heads;
mod input;
mod kept;
mod names;
mod pipe;
mod receive;
mod restore;
mod send;
mod words;

use crate::args::streams::StreamVerb;
use crate::failure::Failure;

pub(crate) use receive::receive;
pub(crate) use send::{send, send_to};

pub(crate) fn stream(verb: &StreamVerb, quiet: bool) -> Result<(), Failure> {
    match verb {
        StreamVerb::Verify(args) => kept::verify(args),
        StreamVerb::List(args) => kept::list(args),
        StreamVerb::Restore(args) => restore::run(args, quiet),
    }
}
