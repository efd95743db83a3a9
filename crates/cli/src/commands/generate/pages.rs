//! The man pages.

use std::fs;
use std::path::Path;

use clap_mangen::Man;

use super::manual::{self, Page};
use super::roff::{begin, escape, quoted, section_of, tidy};
use super::{findings, shown};
use crate::args::{LINKED_NAMES, helper_command};
use crate::failure::Failure;

/// Commands whose page also exists under their other name.
const HELPERS: [(&str, &str); 2] = [("mkfs.dendro", "mkfs"), ("fsck.dendro", "check")];

/// Writes the page of each command into `man1` in `directory`. Writes the pages of the other names
/// into `man8`, and the page of findings into `man7`.
pub(crate) fn write(directory: &Path) -> Result<(), Failure> {
    let mut files = Vec::new();
    for page in pages() {
        files.push((
            directory.join(format!("man1/{}.1", page.title)),
            page.render("1", &page.title)?,
        ));
        let helper = HELPERS.iter().find(|(_, verb)| page.title == format!("dendro-{verb}"));
        if let Some((name, _)) = helper {
            files.push((directory.join(format!("man8/{name}.8")), page.render("8", name)?));
        }
    }
    for (name, verb) in LINKED_NAMES {
        if let Some(source) = helper(name, verb) {
            files.push((directory.join(format!("man8/{name}.8")), source.render("8", name)?));
        }
    }
    let findings = tidy(findings::page()?);
    files.push((directory.join(format!("man7/{}.7", findings::TITLE)), findings));
    for made in ["man1", "man7", "man8"] {
        let made = directory.join(made);
        fs::create_dir_all(&made)
            .map_err(|error| Failure::new(format_args!("{}: {error}", made.display())))?;
    }
    for (path, bytes) in files {
        fs::write(&path, bytes)
            .map_err(|error| Failure::new(format_args!("{}: {error}", path.display())))?;
    }
    Ok(())
}

/// The page of a helper whose arguments differ from those of the command that it stands for.
fn helper(name: &'static str, verb: &str) -> Option<Source> {
    let mut command = helper_command(name, verb)?;
    if let Some(notes) = shown().find_subcommand(verb).and_then(clap::Command::get_after_help) {
        command = command.after_help(notes.clone());
    }
    Some(Source { title: format!("dendro-{verb}"), command, parents: vec!["dendro".into()] })
}

/// A command and the name of its page.
struct Source {
    title: String,
    command: clap::Command,
    parents: Vec<String>,
}

/// All commands that have a page. Hidden commands have none.
fn pages() -> Vec<Source> {
    let mut pages = Vec::new();
    collect(&shown(), "", &[], &mut pages);
    pages
}

fn collect(command: &clap::Command, prefix: &str, parents: &[String], pages: &mut Vec<Source>) {
    let title = match prefix {
        "" => command.get_name().to_owned(),
        prefix => format!("{prefix}-{}", command.get_name()),
    };
    let below: Vec<String> = parents.iter().cloned().chain([title.clone()]).collect();
    for sub in command.get_subcommands() {
        collect(sub, &title, &below, pages);
    }
    let parents = parents.to_vec();
    pages.push(Source { title, command: command.clone(), parents });
}

impl Source {
    /// The page, under the name `name` in section `section`.
    fn render(&self, section: &str, name: &str) -> Result<Vec<u8>, Failure> {
        let mut command = self.command.clone().display_name(name.to_owned());
        if section == "8" {
            command = command.bin_name(name.to_owned());
        }
        // This function renders the text after the help as a section of its own.
        let after_help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let has_subcommands = command.has_subcommands();
        let man = Man::new(command);
        let title = name.to_uppercase();
        let mut page = Vec::new();
        begin(&mut page, &title, section)?;
        man.render_name_section(&mut page)?;
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
        let manual = manual::of(&self.title);
        if has_subcommands {
            self.render_commands(&mut page)?;
        }
        if !after_help.is_empty() {
            section_of(&mut page, "NOTES", &help_text(&after_help))?;
        }
        section_of(&mut page, "EXAMPLES", &examples(&manual))?;
        section_of(&mut page, "EXIT STATUS", &rows(manual.exit_status))?;
        section_of(&mut page, "FILES", &rows(manual::FILES))?;
        section_of(&mut page, "SEE ALSO", &self.see_also(name, &manual))?;
        Ok(tidy(page))
    }

    fn render_commands(&self, page: &mut Vec<u8>) -> Result<(), Failure> {
        let rows: String = self
            .command
            .get_subcommands()
            .map(|sub| {
                let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
                let title = format!("{}-{}", self.title, sub.get_name());
                format!(".TP\n.BR {} (1)\n{}\n", escape(&title), escape(&about))
            })
            .collect();
        section_of(page, "COMMANDS", &rows)
    }

    /// The section that refers to other pages: the parents, and those in `manual`.
    fn see_also(&self, name: &str, manual: &Page) -> String {
        let above = self.parents.iter().map(|title| (title.clone(), 1));
        let own = (name != self.title).then(|| (self.title.clone(), 1));
        let others = manual.see_also.iter().map(|&(title, section)| (title.to_owned(), section));
        let all: Vec<String> = above
            .chain(own)
            .chain(others)
            .filter(|(title, _)| title != name)
            .map(|(title, section)| format!(".BR {} ({section})", escape(&title)))
            .collect();
        all.join(" ,\n")
            + "\n.PP\nWhat a volume promises: /usr/share/doc/dendrofs/SEMANTICS.md.gz\n"
    }
}

/// Converts the text at the end of a help text to roff. An indented line whose first column is
/// followed by two spaces or more is a term and its meaning. Other lines are text.
fn help_text(text: &str) -> String {
    let mut shown = String::new();
    let mut is_in_paragraph = false;
    for line in text.lines() {
        let term = line.strip_prefix("  ").and_then(|rest| rest.split_once("  "));
        shown += &match (term, line.trim()) {
            (Some((term, meaning)), _) => {
                is_in_paragraph = false;
                format!(".TP\n.B {}\n{}\n", quoted(term.trim()), escape(meaning.trim()))
            }
            (None, "") => {
                is_in_paragraph = false;
                String::new()
            }
            (None, text) if is_in_paragraph => escape(text) + "\n",
            (None, text) => {
                is_in_paragraph = true;
                format!(".PP\n{}\n", escape(text))
            }
        };
    }
    // The heading of a section already begins a paragraph.
    shown.strip_prefix(".PP\n").map(str::to_owned).unwrap_or(shown)
}

fn examples(manual: &Page) -> String {
    let example = |&(what, command): &(&str, &str)| {
        format!(".TP\n{}\n.EX\n{}\n.EE\n", escape(what), escape(command))
    };
    manual.examples.iter().map(example).collect()
}

fn rows(rows: &[(&str, &str)]) -> String {
    rows.iter()
        .map(|(term, meaning)| format!(".TP\n.B {}\n{}\n", quoted(term), escape(meaning)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_all_sections() {
        let pages = pages();
        let titles: Vec<&str> = pages.iter().map(|page| page.title.as_str()).collect();
        assert!(titles.contains(&"dendro-snapshot-create"), "{titles:?}");
        for page in &pages {
            assert!(!["completions", "man", "udev", "help"].contains(&page.command.get_name()));
            let text = String::from_utf8(page.render("1", &page.title).unwrap()).unwrap();
            for section in ["NAME", "SYNOPSIS", "EXAMPLES", "EXIT STATUS", "FILES", "SEE ALSO"] {
                let has = text.contains(&format!(".SH \"{section}\"\n"))
                    || text.contains(&format!(".SH {section}\n"));
                assert!(has, "{}: no {section} in {text}", page.title);
            }
            assert!(
                !manual::of(&page.title).examples.is_empty(),
                "{} has no example: give it one in generate/manual.rs",
                page.title
            );
        }
    }

    #[test]
    fn what_a_page_names_is_there() {
        let pages = pages();
        let titles: Vec<&str> = pages.iter().map(|page| page.title.as_str()).collect();
        let helpers: Vec<&str> = LINKED_NAMES.iter().map(|(name, _)| *name).collect();
        for page in &pages {
            for (title, section) in manual::of(&page.title).see_also {
                if title.contains("dendro") {
                    let is_there = titles.contains(title)
                        || helpers.contains(title)
                        || *title == findings::TITLE;
                    assert!(is_there, "{} names {title}({section})", page.title);
                }
            }
        }
        for (_, verb) in LINKED_NAMES {
            assert!(titles.contains(&format!("dendro-{verb}").as_str()), "{verb}");
        }
    }

    #[test]
    fn every_name_has_a_page_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path()).unwrap();
        let page = |path: &str| std::fs::read_to_string(directory.path().join(path)).unwrap();
        for (name, verb) in LINKED_NAMES {
            let page = page(&format!("man8/{name}.8"));
            assert!(page.starts_with(&format!(".TH \"{}\" \"8\"", name.to_uppercase())), "{page}");
            assert!(page.contains(&format!("\n{} \\- ", name.replace('-', "\\-"))), "{page}");
            assert!(page.contains(&format!("dendro\\-{verb} (1)")), "{page}");
            assert!(!page.contains(" \\fR]"), "{page}");
        }
        let findings = page("man7/dendro-findings.7");
        for part in ["\"32, error\"", "\"207, error\"", "SEE ALSO", "dendro\\-check (1)"] {
            assert!(findings.contains(part), "{part}: {findings}");
        }
        let mount = page("man8/mount.dendro.8");
        assert!(mount.contains("commit=SECONDS") && !mount.contains("foreground"), "{mount}");
        assert!(page("man8/fsck.dendro.8").contains("[\\fB\\-n\\fR]"));
    }

    #[test]
    fn help_becomes_terms_and_text() {
        let shown = help_text("Some text\nthat goes on:\n  a, b   what -x is\n\n.not a request");
        assert_eq!(
            shown,
            "Some text\nthat goes on:\n.TP\n.B \"a, b\"\nwhat \\-x is\n.PP\n\\&.not a request\n"
        );
    }
}
