//! The user who makes a request.

use dendro_fs::Credentials;

/// A user whose requests are restricted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// The user.
    pub who: Credentials,
    /// Whether making versions was delegated to that user.
    pub is_delegate: bool,
}
