//! The result of a check, and what it says to programs and to people.

use std::collections::BTreeMap;

use dendro_check::Counts;
use dendro_daemon::text;
use serde::Serialize;

use super::finding::Finding;
use crate::failure::code;

/// The result of a check.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) source: String,
    pub(super) checked: bool,
    /// Nothing is wrong.
    pub(super) sound: bool,
    /// Contents of files were read too.
    pub(super) data_read: bool,
    /// There was a log behind the checkpoint.
    pub(super) log_rolled_forward: bool,
    pub(super) findings: Vec<Finding>,
    pub(super) counts: Counts,
    /// Versions whose trees were checked.
    pub(super) version_count: usize,
    /// Snapshots of the time before repairs, which are not checked.
    pub(super) before_repairs: Vec<String>,
    /// The disk can be written to.
    #[serde(skip)]
    pub(super) is_disk_sound: bool,
    /// What is wrong with files in the heads of branches.
    #[serde(skip)]
    pub(super) in_heads: Vec<dendro_fs::Finding>,
}

impl Outcome {
    /// Whether heads have something that a repair may mend.
    pub(super) fn is_repairable(&self, safe_only: bool) -> bool {
        self.is_disk_sound && dendro_fs::can_repair(&self.in_heads, safe_only)
    }

    /// The exit status. At boot, what only snapshots have prevents nothing.
    pub(super) fn exit_code(&self, is_boot: bool) -> u8 {
        let is_left = |of: &Finding| of.is_wrong() && !(is_boot && of.is_in_past);
        let mended = self.findings.iter().any(|of| of.mended);
        let left = self.findings.iter().any(is_left);
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        bit(mended, code::CHECK_MENDED) | bit(left, code::CHECK_LEFT)
    }

    /// What is said to people. `was_asked`: everything that can be mended was to be.
    pub(super) fn text(&self, was_asked: bool) -> String {
        let lines = self.findings.iter().map(|finding| format!("{finding}\n"));
        lines.collect::<String>()
            + &format!("{}: {}\n", self.source, self.verdict())
            + &self.hints(was_asked)
            + &format!("  checked: {}\n", self.looked_at())
    }

    fn verdict(&self) -> &'static str {
        let mended = self.findings.iter().any(|of| of.mended);
        match (self.sound, mended) {
            (true, false) => "is sound",
            (true, true) => "is sound again; what was mended is above",
            (false, true) => "is damaged still, see above; something was mended",
            (false, false) => "is damaged, see above; nothing was changed",
        }
    }

    fn hints(&self, was_asked: bool) -> String {
        let mut hints = Vec::new();
        let left = || self.findings.iter().filter(|of| of.is_wrong());
        if left().any(|of| of.list.is_some() && of.paths.is_empty()) {
            hints.push(
                "a list's number is the i-node number of its file, which has no name any more"
                    .to_owned(),
            );
        }
        if left().any(|of| of.is_in_past) {
            hints
                .push("snapshots stay as they are: delete those that are not wanted so".to_owned());
        }
        if self.is_repairable(false) && !was_asked {
            let repairs: BTreeMap<u16, &str> =
                left().filter_map(|of| Some((of.kind.number, of.kind.repair?))).collect();
            let of_kind = |(number, repair)| format!("-y, for {number}: {repair}");
            hints.extend(repairs.into_iter().map(of_kind));
        } else if !self.is_disk_sound && left().any(|of| of.kind.repair.is_some()) {
            hints.push("files are mended only where the disk below them is sound".to_owned());
        }
        for name in &self.before_repairs {
            let name = text::printable(name);
            hints.push(format!("@{name} is how it was before a repair; delete it if all is there"));
        }
        hints.iter().map(|hint| format!("  {hint}\n")).collect()
    }

    fn looked_at(&self) -> String {
        let Counts { list_count, page_count, node_count, live_bytes, .. } = self.counts;
        let mut looked_at = vec![
            format!("{} of data and map alive", text::size(live_bytes)),
            [
                text::counted(list_count, "list", "lists"),
                text::counted(page_count, "page", "pages"),
                text::counted(node_count, "map node", "map nodes"),
            ]
            .join(", "),
            match self.version_count {
                1 => "the tree of one version".into(),
                count => format!("trees of {count} versions"),
            },
        ];
        if self.log_rolled_forward {
            looked_at.push("the log behind the checkpoint, rolled forward in memory".into());
        }
        let contents = match self.data_read {
            true => "the contents of files",
            false => "not the contents of files (--data)",
        };
        looked_at.push(contents.into());
        looked_at.join("; ")
    }
}
