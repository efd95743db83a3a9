//! Times where the one who asks is.

use dendro_base::{Clock, SystemClock};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use crate::failure::Failure;

/// Now, where the one who asks is.
pub fn now() -> Result<Zoned, Failure> {
    Ok(Timestamp::from_nanosecond(i128::from(SystemClock.now().0))?.to_zoned(TimeZone::system()))
}
