//! Errors of metrics.

use probity_lm::BoxedError;

/// Error with which a progress callback stops a metric.
pub type Stop = BoxedError;

/// Error of choosing or computing a metric.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum MetricError {
    /// Unknown metric.
    #[error("there is no metric `{name}`{near}")]
    #[diagnostic(help("the metrics are {known}"))]
    Unknown {
        /// Name as written by the user.
        name: String,
        /// `; did you mean …?`, or empty if no name is similar.
        near: String,
        /// All names.
        known: String,
    },
    /// Unknown option of a metric, or invalid value.
    #[error("{metric}: {why}")]
    #[diagnostic(help("{hint}"))]
    Option {
        /// Metric as written by the user.
        metric: String,
        /// Description of the error.
        why: String,
        /// Suggested fix.
        hint: String,
    },
    /// There are no items.
    #[error("there is no item to score")]
    #[diagnostic(help("check --data and --limit"))]
    NoItems,
    /// An item lacks an input of the metric.
    #[error("{metric} needs {what} for each item; {item} has none")]
    #[diagnostic(help("{hint}"))]
    Missing {
        /// Name of the metric.
        metric: String,
        /// `a reference` or `a source`.
        what: &'static str,
        /// Name of the item: its index, as `item 0`, or a name from the caller.
        item: String,
        /// Suggested fix.
        hint: &'static str,
    },
    /// The model of a metric is missing.
    #[error("{metric} needs {what}")]
    #[diagnostic(help("{hint}"))]
    NoModel {
        /// Name of the metric.
        metric: String,
        /// Kind of model.
        what: &'static str,
        /// Suggested fix.
        hint: &'static str,
    },
    /// The progress callback stopped the metric.
    #[error("the metric was stopped: {0}")]
    Stopped(
        #[source]
        #[diagnostic_source]
        Stop,
    ),
    /// A model failed.
    #[error("{metric}: {source}")]
    Model {
        /// Name of the metric.
        metric: String,
        /// The error of the model.
        #[diagnostic_source]
        source: BoxedError,
    },
}

/// The hint of the error.
#[cfg(test)]
pub(crate) fn hint_of(error: &MetricError) -> String {
    miette::Diagnostic::help(error).map(|hint| hint.to_string()).unwrap_or_default()
}
