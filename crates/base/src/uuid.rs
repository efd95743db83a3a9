//! The identity of a volume, and of a version.

use std::fmt;
use std::str::FromStr;

/// 128 bits that name a volume, printed as RFC 9562 does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// A version-4 UUID from 16 random bytes.
    #[must_use]
    pub const fn from_random(bytes: [u8; 16]) -> Self {
        Self(uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes())
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        uuid::Uuid::from_bytes(self.0).fmt(f)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where a version was made: the volume, and the version's epoch there. It stays the same when the
/// version is sent to another volume, and from there to a third.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// The volume.
    pub volume: Uuid,
    /// The epoch of the version on that volume; at least 1.
    pub epoch: u64,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {} of {}", self.epoch, self.volume)
    }
}

/// Text that is no UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseUuidError;

impl fmt::Display for ParseUuidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a UUID has 32 hexadecimal digits, as in 123e4567-e89b-42d3-a456-426614174000")
    }
}

impl std::error::Error for ParseUuidError {}

impl FromStr for Uuid {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> Result<Self, ParseUuidError> {
        let uuid = uuid::Uuid::try_parse(text).map_err(|_| ParseUuidError)?;
        Ok(Self(uuid.into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_reads_back_what_it_prints() {
        let uuid = Uuid::from_random(*b"0123456789abcdef");
        assert_eq!(uuid.to_string().parse(), Ok(uuid));
        assert_eq!(uuid.to_string(), "30313233-3435-4637-b839-616263646566");
        assert_eq!("3031323334354637b839616263646566".parse(), Ok(uuid));
        assert!("12".parse::<Uuid>().is_err());
        assert!("zz3e4567-e89b-42d3-a456-426614174000".parse::<Uuid>().is_err());
    }
}
