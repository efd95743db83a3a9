//! Questions about versions by those that are no command about them.

use std::path::Path;

use dendro_control::versions::{UsageInfo, VersionsReply, VersionsRequest};

use super::commands::unexpected;
use super::place;
use crate::failure::Failure;

/// Asks whoever has the volume on `target`, or the volume itself.
pub(crate) fn ask(target: &Path, request: VersionsRequest) -> Result<VersionsReply, Failure> {
    place::keeper(target)?.ask(request)
}

/// What each version of the volume on `target` takes. Goes through the whole map.
pub(crate) fn shares(target: &Path) -> Result<Vec<UsageInfo>, Failure> {
    match ask(target, VersionsRequest::Usage)? {
        VersionsReply::Usage(versions) => Ok(versions),
        other => Err(unexpected(&other)),
    }
}
