//! Patches as git-diff(1) writes them with `--binary`, of one path each.

use std::fmt::Write as _;

use diffy::DiffOptions;
use sha1_smol::Sha1;

/// The modes that git knows.
pub(super) const FILE: u32 = 0o100_644;
pub(super) const EXECUTABLE: u32 = 0o100_755;
pub(super) const SYMLINK: u32 = 0o120_000;
/// The type in a mode.
const TYPE: u32 = 0o170_000;

/// How much of a file git examines to recognise text.
const LOOKED_AT_BYTES: usize = 8000;
/// With more different lines no shortest difference is computed: the time grows as the square.
const MAX_LINES: usize = 40_000;
/// Lines around a change.
const CONTEXT_LINES: usize = 3;
/// The mark of a text that ends without a newline.
const NO_NEWLINE: &[u8] = b"\n\\ No newline at end of file\n";
const ABSENT: &str = "0000000000000000000000000000000000000000";
/// Bytes in a line of a binary patch.
const LINE_BYTES: usize = 52;
const BASE85: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// The file at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Side {
    /// One of git's modes.
    pub(super) mode: u32,
    /// A file's content, or a symbolic link's target.
    pub(super) content: Vec<u8>,
}

impl Side {
    fn id(&self) -> String {
        let mut hash = Sha1::new();
        hash.update(format!("blob {}\0", self.content.len()).as_bytes());
        hash.update(&self.content);
        hash.digest().to_string()
    }

    fn is_binary(&self) -> bool {
        self.content[..self.content.len().min(LOOKED_AT_BYTES)].contains(&0)
    }
}

/// The patch that turns `old` into `new`; empty if they are equal.
pub(super) fn patch(name: &[u8], old: Option<&Side>, new: Option<&Side>) -> Vec<u8> {
    match (old, new) {
        (Some(old), Some(new)) if old == new => Vec::new(),
        // A file does not become a link: one is deleted, the other added.
        (Some(before), Some(after)) if before.mode & TYPE != after.mode & TYPE => {
            [patch(name, old, None), patch(name, None, new)].concat()
        }
        (None, None) => Vec::new(),
        _ => one(name, old, new),
    }
}

fn one(name: &[u8], old: Option<&Side>, new: Option<&Side>) -> Vec<u8> {
    let quoted = |side: &str| quoted(&[side.as_bytes(), name].concat());
    let (of_old, of_new) = (quoted("a/"), quoted("b/"));
    let mut head = format!("diff --git {of_old} {of_new}\n");
    let mut mode = String::new();
    match (old, new) {
        (None, Some(new)) => head += &format!("new file mode {:o}\n", new.mode),
        (Some(old), None) => head += &format!("deleted file mode {:o}\n", old.mode),
        (Some(old), Some(new)) if old.mode != new.mode => {
            head += &format!("old mode {:o}\nnew mode {:o}\n", old.mode, new.mode);
        }
        (Some(old), Some(_)) => mode = format!(" {:o}", old.mode),
        (None, None) => {}
    }
    let content = |side: Option<&Side>| side.map_or(Vec::new(), |side| side.content.clone());
    let (before, after) = (content(old), content(new));
    if old.is_some() && new.is_some() && before == after {
        return head.into_bytes();
    }
    let id = |side: Option<&Side>| side.map_or_else(|| ABSENT.into(), Side::id);
    head += &format!("index {}..{}{mode}\n", id(old), id(new));
    let mut patch = head.into_bytes();
    if before == after {
        return patch;
    }
    if old.is_some_and(Side::is_binary) || new.is_some_and(Side::is_binary) {
        patch.extend(b"GIT binary patch\n");
        for content in [&after, &before] {
            patch.extend(literal(content));
        }
        return patch;
    }
    // A tabulator ends a name with a space.
    let line = |sign: &str, side: Option<&Side>, name: &str| match side {
        None => format!("{sign} /dev/null\n"),
        Some(_) if name.contains(' ') && !name.starts_with('"') => format!("{sign} {name}\t\n"),
        Some(_) => format!("{sign} {name}\n"),
    };
    patch.extend(line("---", old, &of_old).into_bytes());
    patch.extend(line("+++", new, &of_new).into_bytes());
    patch.extend(hunks(&before, &after));
    patch
}

/// A path in git's form: literal, or in quotes if it has special characters.
fn quoted(path: &[u8]) -> String {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if path.iter().all(is_plain) {
        return String::from_utf8_lossy(path).into_owned();
    }
    let mut text = String::from("\"");
    for &byte in path {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b'\n' => text += "\\n",
            b'\t' => text += "\\t",
            byte if is_plain(&byte) => text.push(char::from(byte)),
            byte => {
                let _ = write!(text, "\\{byte:03o}");
            }
        }
    }
    text.push('"');
    text
}

/// The hunks that turn one text into the other.
fn hunks(before: &[u8], after: &[u8]) -> Vec<u8> {
    let old: Vec<&[u8]> = before.split_inclusive(|&byte| byte == b'\n').collect();
    let new: Vec<&[u8]> = after.split_inclusive(|&byte| byte == b'\n').collect();
    let same_before = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = (old.iter().rev().zip(new.iter().rev()))
        .take(old.len().min(new.len()) - same_before)
        .take_while(|(a, b)| a == b)
        .count();
    let differing = old.len() + new.len() - 2 * (same_before + rest);
    if differing > MAX_LINES {
        return whole_hunk(&old, &new, same_before, rest);
    }
    let mut options = DiffOptions::new();
    let patch = options.set_context_len(CONTEXT_LINES).create_patch_bytes(before, after).to_bytes();
    // Its first two lines name files.
    let is_newline = |byte: &u8| *byte == b'\n';
    let lines = patch.split_inclusive(is_newline).skip_while(|line| !line.starts_with(b"@@"));
    lines.collect::<Vec<_>>().concat()
}

/// One hunk that replaces everything except the same lines at both ends.
fn whole_hunk(old: &[&[u8]], new: &[&[u8]], same_before: usize, same_behind: usize) -> Vec<u8> {
    let from = same_before - same_before.min(CONTEXT_LINES);
    let behind = same_behind.min(CONTEXT_LINES);
    let end = |lines: &[&[u8]]| lines.len() - same_behind + behind;
    let range = |lines: &[&[u8]]| match end(lines) - from {
        0 => format!("{from},0"),
        count => format!("{},{count}", from + 1),
    };
    let mut hunk = format!("@@ -{} +{} @@\n", range(old), range(new)).into_bytes();
    let mut add = |sign: u8, lines: &[&[u8]]| {
        for line in lines {
            hunk.push(sign);
            hunk.extend(*line);
            if !line.ends_with(b"\n") {
                hunk.extend(NO_NEWLINE);
            }
        }
    };
    add(b' ', &old[from..same_before]);
    add(b'-', &old[same_before..old.len() - same_behind]);
    add(b'+', &new[same_before..new.len() - same_behind]);
    add(b' ', &old[old.len() - same_behind..end(old)]);
    hunk
}

/// A file's whole content in the form of a binary patch, compressed.
fn literal(content: &[u8]) -> Vec<u8> {
    const LEVEL: u8 = 6;
    let compressed = miniz_oxide::deflate::compress_to_vec_zlib(content, LEVEL);
    let mut text = format!("literal {}\n", content.len()).into_bytes();
    for line in compressed.chunks(LINE_BYTES) {
        let len = line.len() as u8;
        text.push(if len <= 26 { b'A' + len - 1 } else { b'a' + len - 27 });
        line.chunks(4).for_each(|group| text.extend(base85(group)));
        text.push(b'\n');
    }
    text.push(b'\n');
    text
}

/// Four bytes, padded with zeros, as five characters.
fn base85(group: &[u8]) -> [u8; 5] {
    let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
    let mut number = (0..4).fold(0_u32, |number, at| number << 8 | byte(at));
    let mut text = [0; 5];
    for character in text.iter_mut().rev() {
        *character = BASE85[(number % 85) as usize];
        number /= 85;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &str) -> Side {
        Side { mode: FILE, content: content.into() }
    }

    #[test]
    fn a_change_looks_as_git_writes_it() {
        let patch = patch(b"a file", Some(&file("one\ntwo\n")), Some(&file("one\nzwei")));
        let expected = "diff --git a/a file b/a file\n\
             index 814f4a422927b82f5f8a43f8fab6d3839e3983f2..\
             3ee602d6369afa96ed001113ae8bb4f7b5ea59c5 100644\n\
             --- a/a file\t\n+++ b/a file\t\n@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n\
             \\ No newline at end of file\n";
        assert_eq!(String::from_utf8(patch).unwrap(), expected);
    }

    #[test]
    fn names_that_would_be_misread_are_quoted() {
        assert_eq!(quoted(b"a/plain name"), "a/plain name");
        assert_eq!(quoted(b"a/\"\\\n\t\x01"), "\"a/\\\"\\\\\\n\\t\\001\"");
        assert_eq!(quoted("a/ä".as_bytes()), "\"a/\\303\\244\"");
    }

    #[test]
    fn groups_of_four_bytes_are_five_characters() {
        assert_eq!(&base85(&[0; 4]), b"00000");
        assert_eq!(&base85(&[255; 4]), b"|NsC0");
        assert_eq!(base85(&[1]), base85(&[1, 0, 0, 0]));
    }
}
