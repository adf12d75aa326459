//! Why a method could not finish.

use std::path::PathBuf;

use probity_analysis::{AnalysisError, UnknownGold};
use probity_lm::{BoxedError, LabelError, LmError, SinkError};
use probity_options::OptionError;

use crate::template::TemplateError;

/// Why a method could not finish. Rows already written to the [`RunOutput`](crate::RunOutput) are kept.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum MethodError {
    /// An option is unknown or missing, or its value is invalid.
    #[error("--{}: {}", .0.field.replace('_', "-"), .0.cause)]
    Options(
        #[from]
        #[diagnostic_source]
        OptionError,
    ),
    /// An option's value does not suit the data or another option.
    #[error("{option}: {why}")]
    #[diagnostic(help("{hint}"))]
    Option {
        /// The option as typed, such as `--pairs random:40`.
        option: String,
        /// The reason.
        why: String,
        /// The suggested fix.
        hint: String,
    },
    /// A text passed as `@FILE` could not be read.
    #[error("{option}: cannot read {path}: {source}")]
    #[diagnostic(help("pass an existing file after the @; to pass a text directly, omit the @"))]
    File {
        /// The option as typed.
        option: String,
        /// The file.
        path: String,
        /// The system error.
        source: std::io::Error,
    },
    /// A prompt template cannot be used.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Template(#[from] TemplateError),
    /// The label words cannot be used as labels.
    #[error("the label words: {0}")]
    Labels(
        #[from]
        #[diagnostic_source]
        LabelError,
    ),
    /// The data have gold scores, but not for this attribute.
    #[error(transparent)]
    #[diagnostic(transparent)]
    NoGold(#[from] UnknownGold),
    /// A metric is unavailable or failed.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Metric(#[from] probity_metrics::MetricError),
    /// A row of a stage's table, provided by the user, does not fit the stage.
    #[error("{}:{line}: {why}", path.display())]
    #[diagnostic(help("pass the table `{stage}` of a run on the same data with the same options, or equivalent rows"))]
    Table {
        /// The stage.
        stage: &'static str,
        /// The file.
        path: PathBuf,
        /// The row's line, from 1.
        line: u64,
        /// The reason.
        why: String,
    },
    /// The run ends after this stage, as requested; the stage is complete.
    #[error("the run ends after the stage `{0}`")]
    Until(&'static str),
    /// End of a dry run: all queries that can be known without answers are counted.
    #[error("a dry run has no answers")]
    Rehearsed,
    /// There are no samples.
    #[error("there are no samples to judge")]
    #[diagnostic(help("check --data and --limit"))]
    NoSamples,
    /// The output refused a row (a full disk, an interrupt).
    #[error("{0}")]
    Output(
        #[source]
        #[diagnostic_source]
        SinkError,
    ),
    /// The model failed.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Model(LmError),
    /// A component outside this crate failed.
    #[error("{source}")]
    Other {
        /// The long name of the option to blame, if known.
        option: Option<&'static str>,
        /// The error.
        #[diagnostic_source]
        source: BoxedError,
    },
}

impl From<LmError> for MethodError {
    fn from(error: LmError) -> Self {
        match error {
            LmError::Sink(source) => Self::Output(source),
            other => Self::Model(other),
        }
    }
}

impl From<AnalysisError> for MethodError {
    fn from(error: AnalysisError) -> Self {
        Self::Other { option: Some(error.option()), source: Box::new(error) }
    }
}

impl MethodError {
    /// A [`MethodError::Option`]: the option as typed, the reason and the fix.
    pub fn refuse<T>(option: impl Into<String>, why: impl Into<String>, hint: impl Into<String>) -> Result<T, Self> {
        Err(Self::Option { option: option.into(), why: why.into(), hint: hint.into() })
    }
}
