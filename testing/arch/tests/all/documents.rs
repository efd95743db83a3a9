//! The documents name what is there: files, pages, and places in pages. Their lines can be read.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace::root;

const MAX_COLUMNS: usize = 100;
/// Folders that a path in a document can begin with.
const TOP_FOLDERS: [&str; 5] = ["crates/", "testing/", "docs/", "packaging/", "contrib/"];

/// A document.
struct Document {
    path: PathBuf,
    lines: Vec<String>,
}

impl Document {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).expect("documents are UTF-8");
        Self { path, lines: text.lines().map(str::to_owned).collect() }
    }

    /// The lines that are neither of a table nor of code.
    fn prose(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.lines.iter().enumerate();
        lines
            .map(|(at, line)| (at + 1, line.as_str()))
            .filter(|(_, line)| !line.starts_with('|') && !line.starts_with("    "))
    }

    /// What its headings are called in links.
    fn anchors(&self) -> BTreeSet<String> {
        let headings = self.lines.iter().filter(|line| line.starts_with('#'));
        headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
    }

    /// The targets of its links.
    fn links(&self) -> impl Iterator<Item = &str> {
        let parts = self.lines.iter().flat_map(|line| line.split("](").skip(1));
        parts.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
    }

    /// What it has between backquotes.
    fn spans(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().flat_map(|line| line.split('`').skip(1).step_by(2))
    }
}

/// As GitHub makes it of a heading.
fn anchor(heading: &str) -> String {
    let kept =
        heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn documents() -> Vec<Document> {
    let docs = root().join("docs");
    let pages = fs::read_dir(docs).expect("there are documents").map(|entry| {
        let entry = entry.expect("a directory can be read");
        entry.path()
    });
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let all: Vec<_> = pages.chain([root().join("README.md")]).map(Document::read).collect();
    assert!(all.len() > 10, "the documents are somewhere else");
    all
}

fn exists(path: &str) -> bool {
    root().join(path).exists()
}

#[test]
fn lines_of_prose_are_no_longer_than_a_hundred_columns() {
    for document in documents() {
        for (number, line) in document.prose() {
            let columns = line.chars().count();
            let place = format!("{}:{number}", document.path.display());
            assert!(columns <= MAX_COLUMNS, "{place} has {columns} columns: {line}");
        }
    }
}

#[test]
fn every_link_leads_to_a_page_and_a_heading() {
    for document in documents() {
        let folder = document.path.parent().expect("a document lies in a folder");
        for target in document.links().filter(|target| !target.starts_with("http")) {
            let (page, heading) = target.split_once('#').unwrap_or((target, ""));
            let page = if page.is_empty() { document.path.clone() } else { folder.join(page) };
            let place = document.path.display();
            assert!(page.exists(), "{place}: nothing is at {target}");
            let is_there = || Document::read(page.clone()).anchors().contains(heading);
            assert!(heading.is_empty() || is_there(), "{place}: no heading is at {target}");
        }
    }
}

#[test]
fn every_file_that_is_named_is_there() {
    for document in documents() {
        for span in document.spans() {
            let is_path = TOP_FOLDERS.iter().any(|folder| span.starts_with(folder));
            let is_plain = !span.contains([' ', '*', '…']);
            if is_path && is_plain {
                assert!(exists(span), "{}: there is no {span}", document.path.display());
            }
        }
    }
}

/// Whether `module` is one of the engine's, or begins with the name of its crate.
fn module_exists(module: &str) -> bool {
    let source = |name: &str| root().join("crates").join(name).join("src");
    is_room(&source("logdisk"), module)
        || module.split_once("::").is_some_and(|(name, path)| is_room(&source(name), path))
}

/// Whether `source` has the module `path`, in a file or a folder of its own.
fn is_room(source: &Path, path: &str) -> bool {
    let file = source.join(path.replace("::", "/"));
    file.is_dir() || file.with_extension("rs").exists()
}

#[test]
fn every_invariant_is_in_a_module_that_exists() {
    let design = Document::read(root().join("docs/DESIGN.md"));
    let inside = design.lines.iter().skip_while(|line| !line.starts_with("## 13. Invariants"));
    let rows: Vec<Vec<&str>> = inside
        .take_while(|line| !line.starts_with("## 14."))
        .filter(|line| line.starts_with("| ") && line.contains('`'))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    assert!(rows.len() > 20, "the list of invariants is somewhere else");
    for row in rows {
        let module = row[2].trim_matches('`');
        assert!(module_exists(module), "{}: there is no module {module}", row[1]);
    }
}

#[test]
fn every_module_in_the_glossary_exists() {
    let glossary = Document::read(root().join("docs/GLOSSARY.md"));
    let text = glossary.lines.join(" ");
    let entries = text.split("*Module:*").skip(1);
    let mut count = 0;
    for entry in entries {
        let entry = entry.split(" - **").next().expect("there is a first part");
        for span in entry.split('`').skip(1).step_by(2).filter(|span| span.contains("::")) {
            assert!(module_exists(span), "there is no module {span}");
            count += 1;
        }
    }
    assert!(count > 20, "the glossary has another form");
}
