//! House rules of the sources that no lint knows.
//!
//! rustfmt is run before the tests, so indentation can be relied on.

use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace::root;

const MAX_FILE_LINES: usize = 800;
/// Functions should have under 70; this is where it stops being a matter of taste.
const MAX_FUNCTION_LINES: usize = 100;
/// rustfmt leaves comments as they are.
const MAX_COMMENT_COLUMNS: usize = 100;
/// Put together here so that they are not found here.
const UNFINISHED: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("todo", "!("),
    concat!("unimpl", "emented!("),
    concat!("dbg", "!("),
];

/// All Rust sources of the workspace.
fn sources() -> Vec<(PathBuf, String)> {
    let mut sources = Vec::new();
    for directory in ["crates", "testing", "fuzz"] {
        collect(&root().join(directory), &mut sources);
    }
    assert!(sources.len() > 100, "the sources are somewhere else");
    sources
}

fn collect(directory: &Path, sources: &mut Vec<(PathBuf, String)>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries {
        let path = entry.expect("a directory can be read").path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "target" && name != "corpus" && name != "artifacts" {
            collect(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("sources are UTF-8");
            sources.push((path, text));
        }
    }
}

fn is_test(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().ends_with("tests.rs")
        || path.components().any(|part| part.as_os_str() == "tests")
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Whether a line begins a function.
fn begins_function(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.find(|word| {
        !matches!(*word, "pub" | "const" | "async" | "unsafe" | "extern" | "\"C\"")
            && !word.starts_with("pub(")
    }) == Some("fn")
}

/// The functions that are too long, each with its first line and length; those in a module `tests`
/// are left out.
fn long_functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if *line == "mod tests {" {
            break;
        }
        if !begins_function(line) {
            continue;
        }
        let indent = indentation(line);
        let is_end = |other: &&&str| indentation(other) == indent && other.trim_start() == "}";
        // What comes first after the name: a body, the end of a declaration, or of a function on
        // one line.
        let first = lines[at..].iter().find(|other| other.ends_with(['{', ';', '}']));
        if first.is_none_or(|first| !first.ends_with('{')) {
            continue;
        }
        let len = lines[at..].iter().take_while(|other| !is_end(other)).count() + 1;
        if len > MAX_FUNCTION_LINES {
            found.push((at + 1, len));
        }
    }
    found
}

#[test]
fn no_file_is_too_long() {
    for (path, text) in sources() {
        let count = text.lines().count();
        assert!(count <= MAX_FILE_LINES, "{}: {count} lines", path.display());
    }
}

#[test]
fn no_function_is_too_long() {
    for (path, text) in sources() {
        if !is_test(&path) {
            let found = long_functions(&text);
            assert!(found.is_empty(), "{}: (line, length) {found:?}", path.display());
        }
    }
}

#[test]
fn nothing_is_left_unfinished() {
    for (path, text) in sources() {
        for mark in UNFINISHED {
            assert!(!text.contains(mark), "{}: has {mark}", path.display());
        }
    }
}

#[test]
fn no_comment_is_too_wide() {
    // A row of a table cannot be broken.
    let is_comment = |line: &&str| line.trim_start().starts_with("//");
    let is_row = |line: &str| line.trim_start_matches([' ', '/', '!']).starts_with('|');
    for (path, text) in sources() {
        let wide = |line: &&str| line.chars().count() > MAX_COMMENT_COLUMNS && !is_row(line);
        let found: Vec<_> = text.lines().filter(is_comment).filter(wide).collect();
        assert!(found.is_empty(), "{}: {found:#?}", path.display());
    }
}

#[test]
fn every_file_says_what_it_is() {
    let fuzz = root().join("fuzz");
    for (path, text) in sources() {
        // A test's name and a fuzz target's one line say it.
        let speaks_for_itself = is_test(&path) || path.starts_with(&fuzz);
        assert!(
            speaks_for_itself || text.starts_with("//!"),
            "{}: does not begin with //!",
            path.display()
        );
    }
}

#[test]
fn long_functions_are_found() {
    let body = "        x();\n".repeat(MAX_FUNCTION_LINES);
    let long =
        format!("impl A {{\n    fn short() {{}}\n    pub(crate) fn long() {{\n{body}    }}\n}}\n");
    assert_eq!(long_functions(&long), [(3, MAX_FUNCTION_LINES + 2)]);
    let in_tests = format!("mod tests {{\n    fn long() {{\n{body}    }}\n}}\n");
    assert_eq!(long_functions(&in_tests), []);
    let declared = format!("trait A {{\n    fn f(\n    );\n{body}}}\n");
    assert_eq!(long_functions(&declared), []);
}
