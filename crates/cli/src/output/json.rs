//! JSON output of commands. `docs/JSON.md` lists it, and a test compares the two.
//!
//! Each document begins with [`SCHEMA`], and so does each line of commands that print an object per
//! line. The output is independent of the control socket's messages. Those keep their names for
//! daemons of other versions; here each fact has one name and one unit in all commands.
//!
//! - Times are in nanoseconds (`_ns`; `_unix_ns`: since 1970), sizes in bytes (`_bytes`).
//! - Shares are fractions of 1.
//! - [`volume`], [`files`]: facts that the socket's messages name otherwise.

pub(crate) mod files;
pub(crate) mod volume;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::failure::Failure;
use crate::output;

/// The number of the schema. New members do not change it.
pub(crate) const SCHEMA: u32 = 1;

const NS_PER_S: i64 = 1_000_000_000;

/// A document: an object with the schema's number and the members of `facts`, which must be an
/// object.
#[derive(Serialize)]
struct Document<T> {
    schema: u32,
    #[serde(flatten)]
    facts: T,
}

/// Prints `facts`, an object, on several lines.
pub(crate) fn print(facts: &impl Serialize) -> Result<(), Failure> {
    let document = Document { schema: SCHEMA, facts };
    output::print(&(serde_json::to_string_pretty(&document)? + "\n"))
}

/// Prints an object whose member `name` is the list `facts`.
pub(crate) fn print_list(name: &str, facts: &impl Serialize) -> Result<(), Failure> {
    print(&BTreeMap::from([(name, facts)]))
}

/// `facts`, an object, as one line, for commands that print many.
pub(crate) fn line(facts: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string(&Document { schema: SCHEMA, facts })? + "\n")
}

/// Seconds since 1970 as nanoseconds.
pub(crate) const fn unix_ns(unix_s: i64) -> i64 {
    unix_s.saturating_mul(NS_PER_S)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    /// The names of all commands that users see and that have none below them.
    fn commands(command: &clap::Command, before: &str, all: &mut Vec<String>) {
        for one in command.get_subcommands().filter(|of| !of.is_hide_set()) {
            let name = format!("{before}{}", one.get_name());
            if one.get_subcommands().next().is_some() {
                commands(one, &format!("{name} "), all);
                continue;
            }
            let has_json = one.get_arguments().any(|argument| argument.get_id() == "json");
            assert!(has_json, "{name} has no --json");
            all.push(name);
        }
    }

    #[test]
    fn every_command_prints_json_and_is_on_the_page() {
        let mut known = Vec::new();
        commands(&Cli::command(), "", &mut known);
        let page = include_str!("../../../../docs/JSON.md");
        let headings = page.lines().filter_map(|line| line.strip_prefix("### "));
        let documented: Vec<&str> =
            headings.flat_map(|line| line.split(", ")).map(|name| name.trim_matches('`')).collect();
        for name in &known {
            assert!(documented.contains(&&**name), "{name} is not on the page");
        }
        for name in documented {
            let command = name.split(" -").next().unwrap_or(name);
            assert!(known.iter().any(|of| of == command), "{name} is on the page, and no command");
        }
        assert!(page.contains("the number of this page, 1.") && SCHEMA == 1);
    }

    #[test]
    fn every_document_begins_with_its_schema() {
        let line = line(&BTreeMap::from([("a", u64::MAX)])).unwrap();
        assert_eq!(line, "{\"schema\":1,\"a\":18446744073709551615}\n");
        // A list alone could not say which schema it is of.
        assert!(super::line(&[1, 2]).is_err());
    }
}
