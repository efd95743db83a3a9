//! Refusals of requests.

use dendro_control::AdminError;

pub(super) fn refuse(why: impl std::fmt::Display) -> AdminError {
    AdminError(why.to_string())
}

pub(super) fn deny<T>(why: &str) -> Result<T, AdminError> {
    Err(AdminError(format!("permission denied: {why}")))
}

/// The refusal of what only root and the daemon's own user may request.
pub(super) const NOT_FOR_OTHERS: &str = "this needs root, or the user who mounted it";
