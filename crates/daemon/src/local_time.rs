//! Times in the time zone of this process.

use dendro_base::{Clock, SystemClock};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use crate::failure::Failure;

/// The current time.
pub fn now() -> Result<Zoned, Failure> {
    Ok(Timestamp::from_nanosecond(i128::from(SystemClock.now().0))?.to_zoned(TimeZone::system()))
}
