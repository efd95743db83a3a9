//! Findings, with the files that they are about.

use std::fmt;

use dendro_check::Finding;
use dendro_daemon::text;
use serde::Serialize;

/// A finding of the verifier.
#[derive(Debug, Serialize)]
pub(super) struct NamedFinding {
    #[serde(flatten)]
    pub(super) finding: Finding,
    /// All paths of the file; `@VERSION/…` if only the past has it.
    pub(super) paths: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct TreeFinding {
    pub(super) number: Option<u16>,
    pub(super) inode: Option<u64>,
    pub(super) paths: Vec<String>,
    pub(super) detail: String,
}

impl TreeFinding {
    /// A finding that is about no file in particular.
    pub(super) fn plain(detail: String) -> Self {
        Self { number: None, inode: None, paths: Vec::new(), detail }
    }
}

impl fmt::Display for TreeFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(number), Some(inode)) = (self.number, self.inode) {
            write!(f, "[{number}] i-node {inode}: ")?;
        }
        write!(f, "{}{}", text::printable(&self.detail), in_words(&self.paths))
    }
}

/// Paths, as they follow a finding.
pub(super) fn in_words(paths: &[String]) -> String {
    match paths {
        [] => String::new(),
        paths => format!("; that is in {}", paths.join(" and ")),
    }
}
