//! The output of a dump.

use std::fmt::Display;
use std::io::{self, BufWriter, StdoutLock, Write};

use serde::Serialize;

use crate::output::{self, json};

/// The output of a dump: text, or one JSON object per line.
pub(super) struct Output {
    out: BufWriter<StdoutLock<'static>>,
    json: bool,
    pub(super) problem_count: u64,
}

impl Output {
    pub(super) fn new(json: bool) -> Self {
        Self { out: BufWriter::new(io::stdout().lock()), json, problem_count: 0 }
    }

    /// Prints what is left.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Prints a structure; as JSON, an object with the schema and one member, named `kind`.
    pub(super) fn item<T: Display + Serialize>(&mut self, kind: &str, item: &T) -> io::Result<()> {
        if !self.json {
            return writeln!(self.out, "{item}");
        }
        write!(self.out, "{{\"schema\":{},\"{kind}\":", json::SCHEMA)?;
        serde_json::to_writer(&mut self.out, item)?;
        writeln!(self.out, "}}")
    }

    /// Prints a line of text, and nothing as JSON.
    pub(super) fn line(&mut self, line: &dyn Display) -> io::Result<()> {
        if self.json { Ok(()) } else { writeln!(self.out, "{line}") }
    }

    /// Reports what could not be read, between the structures that could.
    pub(super) fn problem(&mut self, problem: &dyn Display) -> io::Result<()> {
        self.problem_count += 1;
        if self.json {
            return self.item("problem", &problem.to_string());
        }
        self.out.flush()?;
        output::message(format_args!("dendro: {problem}"));
        Ok(())
    }
}
