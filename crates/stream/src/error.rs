//! What is wrong with a stream, and where.

use std::io;

use dendro_format::Malformed;

/// What is wrong at a place of a stream.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The bytes end before the stream does.
    #[error("the stream ends here; the rest of it is missing")]
    CutOff,
    /// The input cannot be read.
    #[error("it cannot be read: {0}")]
    Io(io::Error),
    /// The checksum is wrong: the bytes were changed, or are not in the place in which they were
    /// written.
    #[error("its checksum is wrong: it was altered, or it does not follow what is before it")]
    Checksum,
    /// The frame has another number than its place has.
    #[error("it says that it is frame {found}: frames were left out, repeated or exchanged")]
    OutOfOrder {
        /// The number that it has.
        found: u64,
    },
    /// The checksum is right, but the content contradicts itself or what is before it.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// A frame was wrong, so the stream is read no further.
    #[error("it is wrong, and what follows it is not read")]
    AfterError,
    /// Something follows the end of the stream.
    #[error("something follows the end of the stream")]
    Trailing,
}

/// What is wrong with a stream, and where.
#[derive(Debug, thiserror::Error)]
#[error("frame {frame} at byte {offset_bytes} of the stream: {problem}")]
pub struct StreamError {
    /// The frame, counted from 0. The header, which comes first, counts as frame 0, too.
    pub frame: u64,
    /// Where it begins, in bytes from the start of the stream.
    pub offset_bytes: u64,
    /// What is wrong with it.
    pub problem: Problem,
}
