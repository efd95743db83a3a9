//! Whether a disk's scan of a version comes to the same as its other calls.

use crate::{Error, Lid, LogicalDisk, Result, ScanPoint, Scanned, View};

/// So few that a scan is taken up again in the middle of lists.
const MAX_ITEMS: usize = 13;

/// # Errors
/// What the scan answers; [`Error::Corrupted`] when it does not come to `expected`.
pub(super) fn compare(
    disk: &dyn LogicalDisk,
    view: View,
    mut expected: impl Iterator<Item = Scanned>,
) -> Result<()> {
    let mut next = Some(ScanPoint::before(Lid(0)));
    while let Some(point) = next {
        let (items, goes_on) = disk.scan(view, point, MAX_ITEMS)?;
        for item in items {
            let wanted = expected.next();
            if wanted.as_ref() != Some(&item) {
                return Err(differs(view, point, &format!("{item:?}, not {wanted:?}")));
            }
        }
        if goes_on == next {
            return Err(differs(view, point, "it does not get on"));
        }
        next = goes_on;
    }
    match expected.next() {
        None => Ok(()),
        Some(missing) => Err(differs(view, ScanPoint::before(Lid(0)), &format!("no {missing:?}"))),
    }
}

fn differs(view: View, point: ScanPoint, what: &str) -> Error {
    Error::Corrupted(format!("a scan of {view} from {point:?}: {what}"))
}
