//! Streams that follow each other in one file or pipe.

use std::io::Read;

use crate::decoder::Decoder;
use crate::error::StreamError;

/// Reads the streams of a sequence, of which each states whether another one follows. A single
/// stream is a sequence of one.
#[derive(Debug)]
pub struct Sequence<R> {
    input: R,
    is_at_end: bool,
    begun_count: u64,
}

impl<R: Read> Sequence<R> {
    /// The sequence that `input` has.
    pub const fn new(input: R) -> Self {
        Self { input, is_at_end: false, begun_count: 0 }
    }

    /// Begins the next stream; `None` after the last one. The one before must have been read to its
    /// end.
    ///
    /// # Errors
    /// When it has no header, or one that is wrong.
    pub fn next_stream(&mut self) -> Result<Option<Decoder<&mut R>>, StreamError> {
        if self.is_at_end {
            return Ok(None);
        }
        // These are set first, so that an error is one of this stream, and nothing follows it.
        self.begun_count += 1;
        self.is_at_end = true;
        let decoder = Decoder::begin(&mut self.input)?;
        self.is_at_end = !decoder.header().is_followed;
        Ok(Some(decoder))
    }

    /// An error of the present stream, with the number of that stream if it is not the only one.
    #[must_use]
    pub fn describe(&self, error: &dyn std::fmt::Display) -> String {
        match (self.begun_count, self.is_at_end) {
            (0, _) | (1, true) => error.to_string(),
            (number, _) => format!("stream {number}: {error}"),
        }
    }
}
