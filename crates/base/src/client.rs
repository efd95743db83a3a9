//! What a client of a volume keeps there.

use std::fmt;

/// What kind of client uses a part of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientKind {
    /// A file system: directories and files.
    Files,
    /// A block device, whose blocks are the pages of the first list.
    Block,
    /// A program that keeps lists of its own.
    Application,
    /// A kind of a later version, by its code. It can be kept, but not opened.
    Unknown(u8),
}

impl ClientKind {
    /// The code by which volumes and send streams name it; never 0.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Files => 1,
            Self::Block => 2,
            Self::Application => 3,
            Self::Unknown(code) => code,
        }
    }

    /// The kind with this code; `None` for 0, which names none.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => None,
            1 => Some(Self::Files),
            2 => Some(Self::Block),
            3 => Some(Self::Application),
            code => Some(Self::Unknown(code)),
        }
    }

    /// The kind that commands call `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Files, Self::Block, Self::Application].into_iter().find(|kind| kind.name() == name)
    }

    /// What commands call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Block => "block",
            Self::Application => "application",
            Self::Unknown(_) => "unknown",
        }
    }
}

impl fmt::Display for ClientKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_read_back() {
        assert_eq!(ClientKind::from_code(0), None);
        for code in 1..=u8::MAX {
            let kind = ClientKind::from_code(code).expect("a kind");
            assert_eq!(kind.code(), code);
            assert_eq!(ClientKind::named(kind.name()).is_some(), code <= 3);
        }
        assert_eq!(ClientKind::named("block"), Some(ClientKind::Block));
    }
}
