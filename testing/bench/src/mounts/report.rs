//! What was measured, as a table and as JSON.

use std::fmt::Write;

use serde::Serialize;

use super::operations::Figure;
use super::targets::Target;
use crate::measure::median;

/// The rates of one operation on one target, a round each.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Series {
    pub(super) operation: &'static str,
    pub(super) clients: usize,
    pub(super) unit: &'static str,
    pub(super) target: &'static str,
    pub(super) rates: Vec<f64>,
}

impl Series {
    pub(super) fn median(&self) -> f64 {
        median(self.rates.clone())
    }
}

/// All that was measured.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    /// What machine it was, and what is to be known of the run.
    pub(super) about: Vec<String>,
    /// The targets, in the order of the columns.
    pub(super) targets: Vec<&'static str>,
    series: Vec<Series>,
}

impl Report {
    pub(super) fn new(about: Vec<String>, targets: &[Target]) -> Self {
        let targets = targets.iter().map(|target| target.name()).collect();
        Self { about, targets, series: Vec::new() }
    }

    /// Takes one round's figures.
    pub(super) fn add(&mut self, target: Target, clients: usize, figures: &[Figure]) {
        for figure in figures {
            let known = self.series.iter_mut().find(|series| {
                (series.operation, series.clients, series.target)
                    == (figure.operation, clients, target.name())
            });
            match known {
                Some(series) => series.rates.push(figure.rate),
                None => self.series.push(Series {
                    operation: figure.operation,
                    clients,
                    unit: figure.unit,
                    target: target.name(),
                    rates: vec![figure.rate],
                }),
            }
        }
    }

    /// The operations, each with its number of clients and unit, in the order of the run.
    pub(super) fn rows(&self) -> Vec<(&'static str, usize, &'static str)> {
        let mut rows = Vec::new();
        for series in self.series.iter().filter(|series| series.target != Target::Device.name()) {
            let row = (series.operation, series.clients, series.unit);
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        rows.sort_by_key(|&(_, clients, _)| clients);
        rows
    }

    /// The median rate of one operation on one target.
    pub(super) fn median(&self, target: &str, operation: &str, clients: usize) -> Option<f64> {
        let is_it = |series: &&Series| {
            (series.target, series.operation, series.clients) == (target, operation, clients)
        };
        self.series.iter().find(is_it).map(Series::median)
    }

    /// The lowest and the highest, over the median: how far the rounds are apart.
    fn spread(&self) -> f64 {
        let spreads = self.series.iter().map(|series| {
            let lowest = series.rates.iter().copied().fold(f64::INFINITY, f64::min);
            let highest = series.rates.iter().copied().fold(0.0, f64::max);
            (highest - lowest) / series.median()
        });
        let spreads: Vec<f64> = spreads.collect();
        if spreads.is_empty() { 0.0 } else { median(spreads) }
    }

    /// A table in Markdown: medians, and dendrofs in proportion to what bounds or rivals it.
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        for line in &self.about {
            let _ = writeln!(text, "{line}  ");
        }
        let _ = writeln!(
            text,
            "Half of all figures vary by less than {:.0} %.\n",
            50.0 * self.spread()
        );
        let ratios: Vec<&str> = ["null", "ext4", "device"]
            .into_iter()
            .filter(|&other| self.targets.contains(&other) && self.targets.contains(&"dendrofs"))
            .collect();
        let mut head: Vec<String> = vec!["clients".into(), "operation".into(), "unit".into()];
        head.extend(self.targets.iter().map(|&target| target.into()));
        head.extend(ratios.iter().map(|other| format!("of {other}")));
        let mut lines = vec![head];
        for (operation, clients, unit) in self.rows() {
            let mut line = vec![clients.to_string(), operation.into(), unit.into()];
            let median = |target: &str| self.median(target, operation, clients);
            line.extend(
                self.targets.iter().map(|target| median(target).map_or_else(String::new, rate)),
            );
            line.extend(ratios.iter().map(|other| {
                let ratio = median("dendrofs").zip(median(other)).map(|(ours, other)| ours / other);
                ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))
            }));
            lines.push(line);
        }
        text + &markdown(&lines)
    }
}

/// Three digits that count, thousands with a blank.
fn rate(rate: f64) -> String {
    let digits = format!("{rate:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Lines of a table, the first its head; all columns but the second and third are numbers.
fn markdown(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let is_text = |column: usize| column == 1 || column == 2;
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        for (column, cell) in line.iter().enumerate() {
            let width = widths[column];
            let _ = match is_text(column) {
                true => write!(text, "| {cell:<width$} "),
                false => write!(text, "| {cell:>width$} "),
            };
        }
        text.push_str("|\n");
        if at == 0 {
            for (column, width) in widths.iter().enumerate() {
                let dashes = "-".repeat(width + 1);
                text.push_str(&if is_text(column) {
                    format!("|-{dashes}")
                } else {
                    format!("|{dashes}:")
                });
            }
            text.push_str("|\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_stand_beside_each_other_with_their_ratios() {
        use crate::mounts::targets::Way;
        let targets = [Target::Dendrofs(Way::Auto), Target::Kernel("ext4"), Target::Device];
        let mut report = Report::new(vec!["about".into()], &targets);
        for (target, rates) in
            targets.into_iter().zip([[3000.0, 1.0, 2000.0], [1000.0; 3], [5.0; 3]])
        {
            for rate in rates {
                report.add(target, 1, &[Figure { operation: "create", unit: "/s", rate }]);
            }
        }
        assert_eq!(report.rows(), [("create", 1, "/s")]);
        let table = report.table();
        let row =
            "|       1 | create    | /s   |    2 000 | 1 000 |      5 |    2.00 |    400.00 |";
        assert!(table.lines().any(|line| line == row), "{table}");
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(rate(7.4), "7");
        assert_eq!(rate(999.6), "1 000");
        assert_eq!(rate(1_234_567.0), "1 234 567");
    }
}
