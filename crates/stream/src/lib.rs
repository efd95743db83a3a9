//! Streams: what one version of a volume has and another has not, as a sequence of bytes that is
//! kept as a file or sent to another volume. `docs/STREAM.md` describes the format.
//!
//! A stream consists of lists of the logical disk, with their records and pages, and not of
//! operations on files. So a volume that receives it has the same i-node numbers, times, holes and
//! attributes, and neither sender nor receiver knows what a file is.
//!
//! - [`Header`]: which version it is of, and which version it is based on; also what follows it in
//!   a sequence of streams, and of which stream it is the rest.
//! - [`Item`]: what it consists of.
//! - [`Encoder`]: writes a stream. [`Decoder`]: reads one.
//! - [`Sequence`]: streams that follow each other. [`Token`]: how far one was received.
//! - [`StreamError`]: what is wrong with a stream, and where.
//!
//! With the feature `testing` also `testing`: random streams, and what a fuzzer runs.
//!
//! Bytes of a stream are not trusted. A decoder bounds each number before it uses it, returns
//! [`StreamError`] instead of panicking, and has one frame in memory, of at most
//! [`MAX_PAYLOAD_LEN_BYTES`] and as much again if it is compressed.

#![forbid(unsafe_code)]

mod decoder;
mod encoder;
mod error;
mod frame;
mod header;
mod item;
mod order;
mod payload;
mod sequence;
#[cfg(feature = "testing")]
pub mod testing;
mod token;

pub use decoder::Decoder;
pub use dendro_base::Origin;
pub use encoder::{Encoder, Level};
pub use error::{Problem, StreamError};
pub use frame::{FRAME_HEADER_LEN_BYTES, FrameHeaderV1, MAX_PAYLOAD_LEN_BYTES};
pub use header::{HEADER_FIXED_LEN_BYTES, HeadOf, Header, HeaderV1, Position, RestV1, Version};
pub use item::{Counts, Item, ListChange};
pub use payload::{EndV1, ItemV1};
pub use sequence::Sequence;
pub use token::{NoToken, Token};
