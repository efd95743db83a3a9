//! One metric: its names, how it changes, and its value.

use serde_json::Value;

pub(super) const NS_PER_S: f64 = 1e9;

/// How a metric changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

impl Kind {
    /// The type in Prometheus's text format.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// A metric.
#[derive(Clone, Debug)]
pub(super) struct Metric {
    /// The name in `dendro stat`.
    pub(super) name: &'static str,
    /// The name for Prometheus, with its labels.
    pub(super) metric: &'static str,
    pub(super) labels: &'static str,
    pub(super) kind: Kind,
    pub(super) unit: Unit,
    pub(super) help: &'static str,
    pub(super) value: Value,
}

/// The unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A number, bytes, or a share. Prometheus gets the same.
    Plain,
    /// Prometheus gets seconds.
    Nanoseconds,
}

impl Metric {
    /// The same metric, in nanoseconds.
    pub(super) fn nanoseconds(self) -> Self {
        Self { unit: Unit::Nanoseconds, ..self }
    }

    /// The value for Prometheus; `None` if there is none.
    pub(super) fn sample(&self) -> Option<String> {
        match (&self.value, self.unit) {
            (Value::Null, _) => None,
            (Value::Bool(is_so), _) => Some(u8::from(*is_so).to_string()),
            (value, Unit::Plain) => Some(value.to_string()),
            (value, Unit::Nanoseconds) => value.as_f64().map(|ns| (ns / NS_PER_S).to_string()),
        }
    }
}

pub(super) fn counter(
    name: &'static str,
    metric: &'static str,
    help: &'static str,
    value: impl Into<Value>,
) -> Metric {
    Metric {
        name,
        metric,
        labels: "",
        kind: Kind::Counter,
        unit: Unit::Plain,
        help,
        value: value.into(),
    }
}

pub(super) fn gauge(
    name: &'static str,
    metric: &'static str,
    help: &'static str,
    value: impl Into<Value>,
) -> Metric {
    Metric { kind: Kind::Gauge, ..counter(name, metric, help, value) }
}
