//! The page of everything that a check can find, made from the tables of those who find it.

use dendro_daemon::check::{Kind, all_kinds};

use super::roff::{begin, escape, quoted, section_of};
use crate::commands::check::severity_text;
use crate::failure::Failure;

/// The name of the page, which is in section 7.
pub(super) const TITLE: &str = "dendro-findings";

const ABOUT: &str = "Each thing that \\fBdendro check\\fR or \\fBfsck.dendro\\fR finds has a \
number, which never changes its meaning. Numbers below 100 are of the disk: its segments, its log \
and its map. Those from 100 on are of the engine, which opens the volume as a mount does. Those \
from 200 on are of the file system, in each branch and snapshot.\n.PP\nA \\fBnote\\fR says that \
nothing is wrong, a \\fBwarning\\fR that no data is affected, an \\fBerror\\fR that data cannot \
be read or reached, or may be wrong.\n";

/// The page.
pub(super) fn page() -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    begin(&mut page, &TITLE.to_uppercase(), "7")?;
    let name = format!("{} \\- what a check of a dendrofs volume finds\n", escape(TITLE));
    section_of(&mut page, "NAME", &name)?;
    section_of(&mut page, "DESCRIPTION", ABOUT)?;
    let row = |kind: &Kind| {
        let term = format!("{}, {}", kind.number, severity_text(kind.severity));
        let repair = kind.repair.map(|repair| format!(". A repair {repair}.")).unwrap_or_default();
        format!(".TP\n.B {}\n{}\n", quoted(&term), escape(&format!("{}{repair}", kind.title)))
    };
    let all = all_kinds();
    for (title, from, to) in
        [("THE DISK", 0, 100), ("THE ENGINE", 100, 200), ("THE FILE SYSTEM", 200, 300)]
    {
        let of_layer = all.iter().filter(|kind| (from..to).contains(&kind.number));
        section_of(&mut page, title, &of_layer.map(row).collect::<String>())?;
    }
    let see_also = format!(".BR {} (1) ,\n.BR fsck.dendro (8)\n", escape("dendro-check"));
    section_of(&mut page, "SEE ALSO", &see_also)?;
    Ok(page)
}
