//! Reads a stream, and checks it.

use std::io::{self, Read};

use dendro_format::Malformed;
use zstd::bulk::Decompressor;

use crate::error::{Problem, StreamError};
use crate::frame::{
    FRAME_HEADER_LEN_BYTES, FrameHeader, FrameKind, MAX_PAYLOAD_LEN_BYTES, checksum_of,
    stated_checksum,
};
use crate::header::{HEADER_FIXED_LEN_BYTES, Header};
use crate::item::{Counts, Item};
use crate::order::Order;
use crate::payload;

/// Reads a stream from `R`, a frame at a time. After an error the rest of the stream is worth
/// nothing.
pub struct Decoder<R> {
    input: R,
    header: Header,
    order: Order,
    counts: Counts,
    /// Whether the end of the stream was read.
    has_ended: bool,
    /// Whether a frame was wrong. What follows it is not read.
    has_failed: bool,
    decompressor: Option<Decompressor<'static>>,
    /// The payload of the present frame, and how much of it was read.
    payload: Vec<u8>,
    at: usize,
    /// The payload as it was stored, if it is compressed.
    stored: Vec<u8>,
    /// The checksum of the frame before.
    crc32c: u32,
    /// The number and the place of the present frame.
    frame: u64,
    offset_bytes: u64,
    /// The number and the place of the next frame.
    next_frame: u64,
    next_offset_bytes: u64,
}

impl<R: Read> Decoder<R> {
    /// Reads the header of a stream.
    ///
    /// # Errors
    /// When it cannot be read, or is no header of a stream that is known.
    pub fn begin(mut input: R) -> Result<Self, StreamError> {
        let wrong = |problem: Problem| StreamError { frame: 0, offset_bytes: 0, problem };
        let mut fixed = [0; HEADER_FIXED_LEN_BYTES];
        input.read_exact(&mut fixed).map_err(|error| wrong(unread(error)))?;
        let tail_len = Header::tail_len_bytes(&fixed).map_err(|error| wrong(error.into()))?;
        let mut tail = vec![0; tail_len];
        input.read_exact(&mut tail).map_err(|error| wrong(unread(error)))?;
        let (header, crc32c) =
            Header::decode(&fixed, &tail).map_err(|error| wrong(error.into()))?;
        let decompressor = match header.is_compressed {
            true => Some(Decompressor::new().map_err(|error| wrong(Problem::Io(error)))?),
            false => None,
        };
        Ok(Self {
            input,
            order: Order::new(&header),
            header,
            counts: Counts::default(),
            has_ended: false,
            has_failed: false,
            decompressor,
            payload: Vec::new(),
            at: 0,
            stored: Vec::new(),
            crc32c,
            frame: 0,
            offset_bytes: 0,
            next_frame: 0,
            next_offset_bytes: (HEADER_FIXED_LEN_BYTES + tail_len) as u64,
        })
    }

    /// The header.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// How much was read; after the end of the stream, how much it has.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// How many bytes of the stream were read.
    #[must_use]
    pub const fn read_bytes(&self) -> u64 {
        self.next_offset_bytes
    }

    /// The next item; `None` after the last, when the end of the stream was read and is right.
    ///
    /// # Errors
    /// What is wrong with the stream.
    pub fn next_item(&mut self) -> Result<Option<Item<'_>>, StreamError> {
        while self.at == self.payload.len() {
            if self.has_ended || !self.read_frame()? {
                return Ok(None);
            }
        }
        let (frame, offset_bytes) = (self.frame, self.offset_bytes);
        let wrong = |malformed: Malformed| StreamError {
            frame,
            offset_bytes,
            problem: Problem::Malformed(malformed),
        };
        let (item, len) = payload::decode(&self.payload[self.at..]).map_err(wrong)?;
        self.order.take(&item).map_err(wrong)?;
        self.counts.add(&item);
        self.at += len;
        Ok(Some(item))
    }

    /// Checks that nothing follows the end of the stream, as in a file that has one stream. Returns
    /// how much the stream has.
    ///
    /// # Errors
    /// What is wrong with the rest of the stream, or with what follows it.
    pub fn finish(mut self) -> Result<Counts, StreamError> {
        while self.next_item()?.is_some() {}
        (self.frame, self.offset_bytes) = (self.next_frame, self.next_offset_bytes);
        let mut byte = [0];
        match self.input.read_exact(&mut byte) {
            Ok(()) => Err(self.wrong(Problem::Trailing)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(self.counts),
            Err(error) => Err(self.wrong(Problem::Io(error))),
        }
    }

    /// An error at the present frame.
    const fn wrong(&self, problem: Problem) -> StreamError {
        StreamError { frame: self.frame, offset_bytes: self.offset_bytes, problem }
    }

    /// Reads the next frame. Returns whether it has items.
    fn read_frame(&mut self) -> Result<bool, StreamError> {
        if self.has_failed {
            return Err(self.wrong(Problem::AfterError));
        }
        (self.frame, self.offset_bytes, self.at) = (self.next_frame, self.next_offset_bytes, 0);
        let read = self.load_frame().and_then(|kind| match kind {
            FrameKind::Items => Ok(true),
            FrameKind::End => self.check_end().map(|()| false),
        });
        self.has_failed = read.is_err();
        self.has_ended = matches!(read, Ok(false));
        if !matches!(read, Ok(true)) {
            self.payload.clear();
        }
        read.map_err(|problem| self.wrong(problem))
    }

    /// Compares what the end of the stream counts with what was read.
    fn check_end(&self) -> Result<(), Problem> {
        if payload::decode_end(&self.payload)? == self.counts {
            return Ok(());
        }
        let problem = "it counts something else than was there";
        Err(Malformed { structure: "end of a stream", problem }.into())
    }

    /// Reads the next frame into [`Self::payload`].
    fn load_frame(&mut self) -> Result<FrameKind, Problem> {
        let mut bytes = [0; FRAME_HEADER_LEN_BYTES];
        self.input.read_exact(&mut bytes).map_err(unread)?;
        let header = FrameHeader::decode(&bytes)?;
        if header.number != self.frame {
            return Err(Problem::OutOfOrder { found: header.number });
        }
        let stored = if header.is_compressed { &mut self.stored } else { &mut self.payload };
        stored.clear();
        stored.resize(header.len_bytes, 0);
        self.input.read_exact(stored).map_err(unread)?;
        let crc32c = checksum_of(self.crc32c, &bytes, stored);
        if crc32c != stated_checksum(&bytes) {
            return Err(Problem::Checksum);
        }
        self.crc32c = crc32c;
        if header.is_compressed {
            self.decompress(header.raw_len_bytes)?;
        }
        if self.payload.is_empty() {
            let problem = "it is empty";
            return Err(Malformed { structure: "frame of a stream", problem }.into());
        }
        self.next_frame += 1;
        self.next_offset_bytes += (bytes.len() + header.len_bytes) as u64;
        Ok(header.kind)
    }

    fn decompress(&mut self, raw_len_bytes: usize) -> Result<(), Problem> {
        const WRONG: fn(&'static str) -> Problem =
            |problem| Malformed { structure: "compressed frame", problem }.into();
        let decompressor =
            self.decompressor.as_mut().ok_or(WRONG("the header states no compression"))?;
        self.payload.clear();
        self.payload.reserve_exact(MAX_PAYLOAD_LEN_BYTES);
        let len = decompressor
            .decompress_to_buffer(&self.stored, &mut self.payload)
            .map_err(|_| WRONG("it cannot be decompressed"))?;
        if len != raw_len_bytes {
            Err(WRONG("it has another length than it states"))
        } else {
            Ok(())
        }
    }
}

/// Why bytes could not be read.
fn unread(error: io::Error) -> Problem {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Problem::CutOff,
        _ => Problem::Io(error),
    }
}
