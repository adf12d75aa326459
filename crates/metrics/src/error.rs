//! Why a metric could not score.

use probity_lm::BoxedError;

/// Why whoever watches wants to stop.
pub type Stop = BoxedError;

/// Why a metric could not be chosen or could not score.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum MetricError {
    /// No metric has this name.
    #[error("there is no metric `{name}`{near}")]
    #[diagnostic(help("the metrics are {known}"))]
    Unknown {
        /// The name as typed.
        name: String,
        /// `; did you mean …?`, where a name is near enough.
        near: String,
        /// All names.
        known: String,
    },
    /// An option of a metric is not known, or its value does not suit.
    #[error("{metric}: {why}")]
    #[diagnostic(help("{hint}"))]
    Option {
        /// The metric as typed.
        metric: String,
        /// What is wrong.
        why: String,
        /// What to type instead.
        hint: String,
    },
    /// There are no items.
    #[error("there is no item to score")]
    #[diagnostic(help("check --data and --limit"))]
    NoItems,
    /// An item lacks what the metric needs.
    #[error("{metric} needs {what} for each item; {item} has none")]
    #[diagnostic(help("{hint}"))]
    Missing {
        /// The metric's name.
        metric: String,
        /// `a reference` or `a source`.
        what: &'static str,
        /// How the item is called: by its position, as `item 0`, or by the caller's own name.
        item: String,
        /// What to do.
        hint: &'static str,
    },
    /// The model that a metric works with is not there.
    #[error("{metric} needs {what}")]
    #[diagnostic(help("{hint}"))]
    NoModel {
        /// The metric's name.
        metric: String,
        /// Which kind.
        what: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// Whoever watched wanted to stop.
    #[error("the metric was stopped: {0}")]
    Stopped(
        #[source]
        #[diagnostic_source]
        Stop,
    ),
    /// A model failed.
    #[error("{metric}: {source}")]
    Model {
        /// The metric's name.
        metric: String,
        /// What the model said.
        #[diagnostic_source]
        source: BoxedError,
    },
}

/// The error's own hint.
#[cfg(test)]
pub(crate) fn hint_of(error: &MetricError) -> String {
    miette::Diagnostic::help(error).map(|hint| hint.to_string()).unwrap_or_default()
}
