//! Prometheus's text format, version 0.0.4.

use std::fmt::{Display, Write};

/// A document that is being written.
#[derive(Default)]
pub(crate) struct Exposition(String);

impl Exposition {
    /// Begins the samples of a metric; `kind` is one of the format's types.
    pub(crate) fn begin(&mut self, metric: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = write!(self.0, "# HELP {metric} {help}\n# TYPE {metric} {kind}\n");
    }

    /// Adds a sample. `labels` are as [`label`] writes them, separated by commas; or empty.
    pub(crate) fn sample(&mut self, metric: &str, labels: &str, value: impl Display) {
        let _ = match labels {
            "" => writeln!(self.0, "{metric} {value}"),
            labels => writeln!(self.0, "{metric}{{{labels}}} {value}"),
        };
    }

    /// The document.
    pub(crate) fn finish(self) -> String {
        self.0
    }
}

/// A document of gauges, whose names begin with `dendro_` and `subject`. Each has its name, what it
/// is, and its value; those without a value are left out.
pub(crate) fn gauges<'a>(
    subject: &str,
    metrics: impl IntoIterator<Item = (&'a str, &'a str, Option<String>)>,
) -> String {
    let mut text = Exposition::default();
    for (name, help, value) in metrics {
        let Some(value) = value else { continue };
        let name = format!("dendro_{subject}_{name}");
        text.begin(&name, "gauge", help);
        text.sample(&name, "", value);
    }
    text.finish()
}

/// A label, with its value escaped.
pub(crate) fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        assert_eq!(label("a", "a\"b\\c\nd"), "a=\"a\\\"b\\\\c\\nd\"");
    }

    #[test]
    fn a_metric_has_one_head_and_its_samples() {
        let mut text = Exposition::default();
        text.begin("m", "gauge", "What it is.");
        text.sample("m", "", 1);
        text.sample("m", &label("kind", "read"), 0.5);
        let expected = "# HELP m What it is.\n# TYPE m gauge\nm 1\nm{kind=\"read\"} 0.5\n";
        assert_eq!(text.finish(), expected);
    }
}
