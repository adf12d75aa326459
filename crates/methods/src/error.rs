//! Why a method could not finish.

use std::path::PathBuf;

use probity_analysis::{AnalysisError, UnknownGold};
use probity_lm::{BoxedError, LabelError, LmError, SinkError};
use probity_options::OptionError;

use crate::template::TemplateError;

/// Why a method could not finish. What had been written to the [`RunOutput`](crate::RunOutput) by then stands.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum MethodError {
    /// An option that is no option, is missing, or cannot have its value.
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
        /// What is wrong.
        why: String,
        /// What to type instead.
        hint: String,
    },
    /// A text given as `@FILE` could not be read.
    #[error("{option}: cannot read {path}: {source}")]
    #[diagnostic(help("the file behind the @ must be there; a text itself is written without it"))]
    File {
        /// The option as typed.
        option: String,
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A prompt template cannot be used.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Template(#[from] TemplateError),
    /// The label words cannot be asked for.
    #[error("the label words: {0}")]
    Labels(
        #[from]
        #[diagnostic_source]
        LabelError,
    ),
    /// The data have gold scores, but none for this attribute.
    #[error(transparent)]
    #[diagnostic(transparent)]
    NoGold(#[from] UnknownGold),
    /// A metric cannot be had, or could not score.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Metric(#[from] probity_metrics::MetricError),
    /// A stage's table that was given has a row that is none of the stage's.
    #[error("{}:{line}: {why}", path.display())]
    #[diagnostic(help("give the table `{stage}` of a run over the same data with the same options, or rows like it"))]
    Table {
        /// The stage.
        stage: &'static str,
        /// The file.
        path: PathBuf,
        /// The row's line, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// The run was to end after this stage, which is done.
    #[error("the run ends after the stage `{0}`")]
    Until(&'static str),
    /// All questions that can be known without an answer are known: models answer nothing in this run.
    #[error("nothing is answered in a rehearsal")]
    Rehearsed,
    /// There are no samples.
    #[error("there is no sample to judge")]
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
    /// Somebody that is none of this crate's could not finish.
    #[error("{source}")]
    Other {
        /// The option whose value is to blame, by its long name, where that is known.
        option: Option<&'static str>,
        /// Why.
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
    /// That an option's value does not suit: the option as typed, what is wrong, and what to type instead.
    pub fn refuse<T>(option: impl Into<String>, why: impl Into<String>, hint: impl Into<String>) -> Result<T, Self> {
        Err(Self::Option { option: option.into(), why: why.into(), hint: hint.into() })
    }
}
