//! Writes a stream.

use std::io::{self, Write};

use dendro_base::units::PAGE_SIZE;
use zstd::bulk::Compressor;

use crate::frame::{FrameHeader, FrameKind, MAX_PAYLOAD_LEN_BYTES};
use crate::header::Header;
use crate::item::{Counts, Item};
use crate::order::Order;
use crate::payload;

/// How much a stream is compressed: a level of zstd, from 1 to 19.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(i32);

impl Level {
    /// The level with this number; `None` if there is none.
    #[must_use]
    pub const fn new(level: u8) -> Option<Self> {
        match level {
            1..=19 => Some(Self(level as i32)),
            _ => None,
        }
    }
}

/// The start of pages of zeros or holes that were put last, so that those that follow are joined.
#[derive(Clone, Debug)]
struct Pending {
    pages: std::ops::Range<u64>,
    is_hole: bool,
}

impl Pending {
    const fn item(&self) -> Item<'static> {
        let (start, end) = (self.pages.start, self.pages.end);
        if self.is_hole { Item::Holes(start..end) } else { Item::Zeros(start..end) }
    }
}

/// Writes a stream to `W`, a frame at a time.
pub struct Encoder<W> {
    out: W,
    order: Order,
    counts: Counts,
    pending: Option<Pending>,
    payload: Vec<u8>,
    compressor: Option<Compressor<'static>>,
    compressed: Vec<u8>,
    /// The checksum of the frame before.
    crc32c: u32,
    next_number: u64,
    written_bytes: u64,
}

impl<W: Write> Encoder<W> {
    /// Begins a stream, and writes its header. Frames are compressed with `level`.
    ///
    /// # Errors
    /// Errors of writing.
    ///
    /// # Panics
    /// When a name in the header is longer than a version's can be.
    pub fn begin(mut out: W, header: &Header, level: Option<Level>) -> io::Result<Self> {
        let header = Header { is_compressed: level.is_some(), ..header.clone() };
        let (bytes, crc32c) = header.encode();
        out.write_all(&bytes)?;
        let compressor = level.map(|Level(level)| Compressor::new(level)).transpose()?;
        let compressed = match &compressor {
            Some(_) => Vec::with_capacity(zstd::zstd_safe::compress_bound(MAX_PAYLOAD_LEN_BYTES)),
            None => Vec::new(),
        };
        Ok(Self {
            out,
            order: Order::new(&header),
            counts: Counts::default(),
            pending: None,
            payload: Vec::with_capacity(MAX_PAYLOAD_LEN_BYTES),
            compressor,
            compressed,
            crc32c,
            next_number: 0,
            written_bytes: bytes.len() as u64,
        })
    }

    /// Puts an item. Zeros that follow zeros, and holes that follow holes, become one item.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for an item that may not follow what was put; errors of
    /// writing.
    pub fn put(&mut self, item: &Item<'_>) -> io::Result<()> {
        let (pages, is_hole) = match item {
            Item::Zeros(pages) => (pages, false),
            Item::Holes(pages) => (pages, true),
            _ => {
                self.put_pending()?;
                return self.put_now(item);
            }
        };
        match &mut self.pending {
            Some(pending) if pending.is_hole == is_hole && pending.pages.end == pages.start => {
                pending.pages.end = pages.end;
            }
            _ => {
                self.put_pending()?;
                self.pending = Some(Pending { pages: pages.clone(), is_hole });
            }
        }
        Ok(())
    }

    /// Puts a whole page, with the zeros at its end.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_page(&mut self, page_index: u64, page: &[u8; PAGE_SIZE]) -> io::Result<()> {
        match page.iter().rposition(|byte| *byte != 0) {
            Some(last) => self.put(&Item::Page { page_index, bytes: &page[..=last] }),
            None => self.put(&Item::Zeros(page_index..page_index.saturating_add(1))),
        }
    }

    /// Ends the stream. Returns what it was written to, and how much it has.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn end(mut self) -> io::Result<(W, Counts)> {
        self.put_pending()?;
        self.write_frame(FrameKind::Items)?;
        self.payload = payload::encode_end(&self.counts);
        self.write_frame(FrameKind::End)?;
        self.out.flush()?;
        Ok((self.out, self.counts))
    }

    /// How many bytes were written.
    #[must_use]
    pub const fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Ends the present frame, so that what follows comes in another one.
    ///
    /// # Errors
    /// As [`Self::put`].
    #[cfg(feature = "testing")]
    pub fn end_frame(&mut self) -> io::Result<()> {
        self.put_pending()?;
        self.write_frame(FrameKind::Items)
    }

    fn put_pending(&mut self) -> io::Result<()> {
        match self.pending.take() {
            Some(pending) => self.put_now(&pending.item()),
            None => Ok(()),
        }
    }

    fn put_now(&mut self, item: &Item<'_>) -> io::Result<()> {
        self.order
            .take(item)
            .map_err(|malformed| io::Error::new(io::ErrorKind::InvalidInput, malformed))?;
        if self.payload.len() + payload::len_bytes(item) > MAX_PAYLOAD_LEN_BYTES {
            self.write_frame(FrameKind::Items)?;
        }
        payload::encode(item, &mut self.payload);
        self.counts.add(item);
        Ok(())
    }

    /// Writes the payload as a frame, if it has anything.
    fn write_frame(&mut self, kind: FrameKind) -> io::Result<()> {
        if self.payload.is_empty() {
            return Ok(());
        }
        let mut is_compressed = false;
        if let Some(compressor) = &mut self.compressor {
            let len = compressor.compress_to_buffer(&self.payload, &mut self.compressed)?;
            is_compressed = len < self.payload.len();
        }
        let stored = if is_compressed { &self.compressed } else { &self.payload };
        let header = FrameHeader {
            kind,
            is_compressed,
            len_bytes: stored.len(),
            raw_len_bytes: self.payload.len(),
            number: self.next_number,
        };
        let (header, crc32c) = header.encode(self.crc32c, stored);
        self.out.write_all(&header)?;
        self.out.write_all(stored)?;
        self.written_bytes += (header.len() + stored.len()) as u64;
        self.crc32c = crc32c;
        self.next_number += 1;
        self.payload.clear();
        Ok(())
    }
}
