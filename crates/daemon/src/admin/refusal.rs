//! Why a request is refused.

use dendro_control::AdminError;

pub(super) fn refuse(why: impl std::fmt::Display) -> AdminError {
    AdminError(why.to_string())
}

pub(super) fn deny<T>(why: &str) -> Result<T, AdminError> {
    Err(AdminError(format!("permission denied: {why}")))
}

/// What nobody else may have done.
pub(super) const NOT_FOR_OTHERS: &str = "this needs root, or the user who mounted it";
