//! The language of man pages, as far as the pages need it.

use std::io::Write;

use crate::failure::Failure;

/// The release, which pages name at their ends.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Begins the page `title` of section `section`.
pub(super) fn begin(page: &mut Vec<u8>, title: &str, section: &str) -> Result<(), Failure> {
    writeln!(page, ".TH \"{title}\" \"{section}\" \"\" \"dendro {VERSION}\" \"dendrofs\"")?;
    // The renderer writes this string for an apostrophe.
    Ok(writeln!(page, ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '")?)
}

/// Adds the section `title`.
pub(super) fn section_of(page: &mut Vec<u8>, title: &str, body: &str) -> Result<(), Failure> {
    Ok(write!(page, ".SH \"{title}\"\n{body}")?)
}

/// Quotes `text` as one argument of a roff request.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", escape(text).replace('"', "\\(dq"))
}

/// Escapes what roff would interpret.
pub(super) fn escape(text: &str) -> String {
    let line = |line: &str| {
        let escaped = line.replace('\\', "\\e").replace('-', "\\-");
        let is_request = escaped.starts_with(['.', '\'']);
        if is_request { format!("\\&{escaped}") } else { escaped }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Removes blank lines and trailing spaces, which have a meaning in roff. Removes the space that
/// the renderer writes after flags that have no long name.
pub(super) fn tidy(page: Vec<u8>) -> Vec<u8> {
    let text = String::from_utf8_lossy(&page).replace(" \\fR]", "\\fR]");
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    lines.map(|line| line.to_owned() + "\n").collect::<String>().into_bytes()
}
