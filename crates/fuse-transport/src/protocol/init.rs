//! The handshake: what the kernel offers, what the server wants, and what they agree on.

use zerocopy::FromBytes;

use super::abi::{self, InHeader, InitIn, InitOut, opcode};
use super::types::InitFlags;
use crate::errno::Errno;

/// What a server wants from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Features to use if the kernel has them. [`crate::Choice`] determines how requests come.
    pub flags: InitFlags,
    /// The most bytes that one WRITE or READ transfers: a whole number of pages. Each buffer has
    /// this length.
    pub max_write_bytes: u32,
    /// How many background requests (read-ahead, parts of direct I/O) may be in progress.
    pub max_background: u16,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            flags: InitFlags::ASYNC_READ | InitFlags::BIG_WRITES | InitFlags::MAX_PAGES,
            max_write_bytes: 1 << 20,
            max_background: 64,
        }
    }
}

/// What the kernel and the server have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The kernel's minor version of the protocol.
    pub kernel_minor: u32,
    /// The features that the kernel has.
    pub offered: InitFlags,
    /// The features in use.
    pub flags: InitFlags,
    /// The most bytes that one READ or WRITE transfers.
    pub max_write_bytes: u32,
}

/// The content of INIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) unique: u64,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) max_readahead: u32,
    pub(crate) flags: InitFlags,
}

/// Parses an INIT request with its header.
pub(crate) fn parse(message: &[u8]) -> Result<Offer, Errno> {
    let (header, rest) = InHeader::read_from_prefix(message).map_err(|_| Errno::IO)?;
    if header.opcode != opcode::INIT || header.len as usize != message.len() {
        return Err(Errno::IO);
    }
    let (init, rest) = InitIn::read_from_prefix(rest).map_err(|_| Errno::IO)?;
    let mut bits = u64::from(init.flags);
    if bits & InitFlags::INIT_EXT.bits() != 0 {
        let (high, _) = u32::read_from_prefix(rest).map_err(|_| Errno::IO)?;
        bits |= u64::from(high) << 32;
    }
    Ok(Offer {
        unique: header.unique,
        major: init.major,
        minor: init.minor,
        max_readahead: init.max_readahead,
        flags: InitFlags::from_bits_retain(bits),
    })
}

/// Agrees on what is both wanted and offered. `None`: the kernel is too old.
pub(crate) fn agree(offer: &Offer, wishes: &Wishes, over_io_uring: bool) -> Option<Agreed> {
    if offer.major != abi::MAJOR || offer.minor < abi::OLDEST_MINOR {
        return None;
    }
    let mut wanted = wishes.flags | InitFlags::INIT_EXT;
    wanted.set(InitFlags::OVER_IO_URING, over_io_uring);
    Some(Agreed {
        kernel_minor: offer.minor,
        offered: offer.flags,
        flags: offer.flags & wanted,
        max_write_bytes: wishes.max_write_bytes,
    })
}

/// The reply to INIT.
pub(crate) fn answer(offer: &Offer, agreed: &Agreed, wishes: &Wishes) -> InitOut {
    let bits = agreed.flags.bits();
    let page_bytes = u32::try_from(rustix::param::page_size()).unwrap_or(4096);
    let max_pages = (agreed.max_write_bytes / page_bytes).max(1);
    InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR,
        max_readahead: offer.max_readahead,
        flags: (bits & u64::from(u32::MAX)) as u32,
        max_background: wishes.max_background,
        congestion_threshold: wishes.max_background.saturating_mul(3) / 4,
        max_write: agreed.max_write_bytes,
        time_gran: 1,
        max_pages: u16::try_from(max_pages).unwrap_or(u16::MAX),
        map_alignment: 0,
        flags2: (bits >> 32) as u32,
        max_stack_depth: 0,
        request_timeout: 0,
        unused: [0; 11],
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    fn message(minor: u32, low: u32, more: &[u32]) -> Vec<u8> {
        let init = InitIn { major: 7, minor, max_readahead: 128 << 10, flags: low };
        let len = 40 + 16 + 4 * more.len();
        let header = InHeader {
            len: len as u32,
            opcode: opcode::INIT,
            unique: 2,
            node: 0,
            uid: 0,
            gid: 0,
            pid: 0,
            extension_len_8: 0,
            padding: 0,
        };
        [header.as_bytes(), init.as_bytes(), more.as_bytes()].concat()
    }

    #[test]
    fn what_is_wanted_and_offered_is_agreed_on_in_both_halves_of_the_flags() {
        let low = (InitFlags::INIT_EXT | InitFlags::POSIX_ACL | InitFlags::MAX_PAGES).bits() as u32;
        let mut more = [0; 12];
        more[0] = ((InitFlags::OVER_IO_URING | InitFlags::ALLOW_IDMAP).bits() >> 32) as u32;
        let offer = parse(&message(45, low, &more)).unwrap();
        let wishes = Wishes {
            flags: InitFlags::POSIX_ACL | InitFlags::CACHE_SYMLINKS | InitFlags::MAX_PAGES,
            ..Wishes::default()
        };
        let agreed = agree(&offer, &wishes, true).unwrap();
        let expected = InitFlags::POSIX_ACL
            | InitFlags::MAX_PAGES
            | InitFlags::INIT_EXT
            | InitFlags::OVER_IO_URING;
        assert_eq!(agreed.flags, expected);
        let answer = answer(&offer, &agreed, &wishes);
        assert_eq!(answer.flags2, (InitFlags::OVER_IO_URING.bits() >> 32) as u32);
        let page_bytes = rustix::param::page_size();
        assert_eq!(usize::from(answer.max_pages), (1 << 20) / page_bytes);
        assert!(!agree(&offer, &wishes, false).unwrap().flags.contains(InitFlags::OVER_IO_URING));
    }

    #[test]
    fn kernels_without_the_second_half_are_accepted_and_older_ones_are_not() {
        let offer = parse(&message(31, 0, &[])).unwrap();
        assert!(agree(&offer, &Wishes::default(), false).is_some());
        let offer = parse(&message(30, 0, &[])).unwrap();
        assert!(agree(&offer, &Wishes::default(), false).is_none());
    }

    #[test]
    fn a_short_or_foreign_message_is_refused() {
        let whole = message(45, InitFlags::INIT_EXT.bits() as u32, &[0; 12]);
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_err(), "{len}");
        }
        // It promises more flags than it has.
        let mut short = message(45, InitFlags::INIT_EXT.bits() as u32, &[]);
        assert_eq!(parse(&short), Err(Errno::IO));
        short[4] = 1;
        assert_eq!(parse(&short), Err(Errno::IO));
    }
}
