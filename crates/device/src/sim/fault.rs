//! Faults on demand.

use std::fmt;
use std::ops::Range;

use dendro_base::Rng;
use rustix::io::Errno;

/// A kind of call to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// [`crate::Device::read_at`].
    Read,
    /// [`crate::Device::write_at`].
    Write,
    /// [`crate::Device::flush`].
    Flush,
    /// [`crate::Device::discard`].
    Discard,
}

impl Call {
    /// Its name in [`crate::Error::Io`].
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        }
    }
}

/// What happens instead.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    /// The call fails; of a write, the first `prefix_bytes` were written.
    Fail { errno: Errno, prefix_bytes: u64 },
    /// The call succeeds and does nothing.
    Lose,
    /// The call goes to another place.
    Misdirect { offset: u64 },
    /// Bits of what is transferred are inverted.
    FlipBits { count: u64 },
}

type Condition = Box<dyn FnMut(u64, u64) -> bool + Send>;

/// Something that goes wrong on a [`super::SimDevice`]: what, at which calls, and how often.
///
/// Unless told otherwise, it happens once, at the next call of its kind.
///
/// ```
/// use dendro_device::sim::{Call, Fault, SimDevice};
/// let device = SimDevice::new(1 << 20, 7);
/// device.inject(Fault::fail(Call::Write).nth(3)); // the third write fails, the fourth works
/// device.inject(Fault::fail(Call::Flush).forever());
/// device.inject(Fault::lose(Call::Write).within(0..4096).forever()); // the block stays as it is
/// device.inject(Fault::flip_bits(Call::Read, 1).per_mille(5).forever());
/// ```
pub struct Fault {
    call: Call,
    effect: Effect,
    skip_count: u64,
    /// `None`: for good.
    times_left: Option<u64>,
    within: Range<u64>,
    per_mille: u64,
    condition: Option<Condition>,
}

impl Fault {
    fn new(call: Call, effect: Effect) -> Self {
        Self {
            call,
            effect,
            skip_count: 0,
            times_left: Some(1),
            within: 0..u64::MAX,
            per_mille: 1000,
            condition: None,
        }
    }

    /// The call fails with `EIO` and has done nothing. A failed flush takes a random part of the
    /// unflushed writes with it: they still read back, but no later flush makes them durable, as
    /// on Linux.
    #[must_use]
    pub fn fail(call: Call) -> Self {
        Self::new(call, Effect::Fail { errno: Errno::IO, prefix_bytes: 0 })
    }

    /// A write fails with `EIO` after its first `prefix_bytes`, rounded down to 512-byte sectors,
    /// were written.
    #[must_use]
    pub fn fail_write_after(prefix_bytes: u64) -> Self {
        Self::new(Call::Write, Effect::Fail { errno: Errno::IO, prefix_bytes })
    }

    /// The call succeeds and does nothing: a lost write leaves the old content, a lost flush makes
    /// nothing durable, a lost read leaves the buffer as it is.
    #[must_use]
    pub fn lose(call: Call) -> Self {
        Self::new(call, Effect::Lose)
    }

    /// A read, write or discard goes to `offset`, rounded down to whole blocks, or as near to it as
    /// the device reaches. A flush is not affected.
    #[must_use]
    pub fn misdirect(call: Call, offset: u64) -> Self {
        Self::new(call, Effect::Misdirect { offset })
    }

    /// `count` random bits of what is written, or of what was read, are inverted. Flushes and
    /// discards are not affected.
    #[must_use]
    pub fn flip_bits(call: Call, count: u64) -> Self {
        Self::new(call, Effect::FlipBits { count })
    }

    /// At the `n`th call it fits from now on, counted from 1, rather than the first.
    #[must_use]
    pub fn nth(mut self, n: u64) -> Self {
        self.skip_count = n.saturating_sub(1);
        self
    }

    /// At `count` calls rather than one.
    #[must_use]
    pub fn times(mut self, count: u64) -> Self {
        self.times_left = Some(count);
        self
    }

    /// At every call it fits, rather than once.
    #[must_use]
    pub fn forever(mut self) -> Self {
        self.times_left = None;
        self
    }

    /// Only at calls that touch `range`, in bytes. A flush touches nothing.
    #[must_use]
    pub fn within(mut self, range: Range<u64>) -> Self {
        self.within = range;
        self
    }

    /// Only at `per_mille` of a thousand calls it would fit, drawn from the device's seed.
    #[must_use]
    pub fn per_mille(mut self, per_mille: u64) -> Self {
        self.per_mille = per_mille;
        self
    }

    /// Only at calls of whose offset and length in bytes `condition` says so. It must not call the
    /// device.
    #[must_use]
    pub fn when(mut self, condition: impl FnMut(u64, u64) -> bool + Send + 'static) -> Self {
        self.condition = Some(Box::new(condition));
        self
    }

    /// The error number (`errno`) to fail with rather than `EIO`, such as that of `ENOSPC`.
    #[must_use]
    pub fn os_error(mut self, number: i32) -> Self {
        if let Effect::Fail { errno, .. } = &mut self.effect {
            *errno = Errno::from_raw_os_error(number);
        }
        self
    }

    /// Whether it happens at this call, which is counted.
    fn strikes(&mut self, call: Call, offset: u64, len_bytes: u64, rng: &mut Rng) -> bool {
        let touches = self.within == (0..u64::MAX)
            || (offset < self.within.end && self.within.start < offset + len_bytes);
        if call != self.call || !touches || self.times_left == Some(0) {
            return false;
        }
        if self.condition.as_mut().is_some_and(|condition| !condition(offset, len_bytes)) {
            return false;
        }
        if self.per_mille < 1000 && rng.below(1000) >= self.per_mille {
            return false;
        }
        if self.skip_count > 0 {
            self.skip_count -= 1;
            return false;
        }
        if let Some(times_left) = &mut self.times_left {
            *times_left -= 1;
        }
        true
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault")
            .field("call", &self.call)
            .field("effect", &self.effect)
            .field("skip_count", &self.skip_count)
            .field("times_left", &self.times_left)
            .field("within", &self.within)
            .field("per_mille", &self.per_mille)
            .finish_non_exhaustive()
    }
}

/// The faults waiting on a device.
#[derive(Default)]
pub(super) struct Faults {
    waiting: Vec<Fault>,
    pub(super) struck_count: u64,
}

impl Faults {
    pub(super) fn push(&mut self, fault: Fault) {
        self.waiting.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// What goes wrong at this call. Every fault counts it; the first that strikes wins.
    pub(super) fn strike(
        &mut self,
        call: Call,
        offset: u64,
        len_bytes: u64,
        rng: &mut Rng,
    ) -> Option<Effect> {
        if self.waiting.is_empty() {
            return None;
        }
        let mut effect = None;
        for fault in &mut self.waiting {
            if effect.is_none() && fault.strikes(call, offset, len_bytes, rng) {
                effect = Some(fault.effect);
            }
        }
        self.waiting.retain(|fault| fault.times_left != Some(0));
        self.struck_count += u64::from(effect.is_some());
        effect
    }
}
