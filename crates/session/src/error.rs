//! Errors of planning, checking and running.

use std::path::PathBuf;
use std::sync::Arc;

use probity_data::DataError;
use probity_lm::{LmError, SinkError};
use probity_methods::MethodError;
use probity_metrics::MetricError;
use probity_options::OptionError;
use probity_runtime::LoadError;
use probity_runtime::hub::LocateError;
use probity_runtime::weights::WeightsError;
use probity_store::StoreError;

use crate::{Interrupted, Shard};

/// Why a plan cannot be made, checked or run.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum SessionError {
    /// Samples cannot be read.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Data(#[from] DataError),
    /// A shard without samples.
    #[error("part {shard} has no samples; number of samples in the data: {samples}")]
    #[diagnostic(help("use at most as many parts as there are samples"))]
    EmptyShard {
        /// The shard.
        shard: Shard,
        /// The number of samples.
        samples: usize,
    },
    /// Folders that are not all shards of one run.
    #[error("{}: {why}", path.display())]
    NoShard {
        /// The folder.
        path: PathBuf,
        /// The problem.
        why: String,
        /// What to do.
        #[help]
        hint: String,
    },
    /// A model cannot be found.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Locate(#[from] LocateError),
    /// A model cannot be loaded.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Load(#[from] LoadError),
    /// A shared model failed to load for an earlier stage; the error is repeated.
    #[error(transparent)]
    #[diagnostic(transparent)]
    LoadedBefore(Arc<SessionError>),
    /// A model's files cannot be hashed.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Weights(#[from] WeightsError),
    /// A model failed.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Model(#[from] LmError),
    /// Several thoughts of no length.
    #[error("--thoughts requires --think N, the maximum number of tokens of a thought")]
    #[diagnostic(help("add --think 1024"))]
    ThoughtsWithoutLength,
    /// An unknown option or an invalid value.
    #[error("--{}: {}", .0.field.replace('_', "-"), .0.cause)]
    Option(
        #[from]
        #[diagnostic_source]
        OptionError,
    ),
    /// A method failed.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Method(#[from] MethodError),
    /// A run folder or its answers cannot be read or written.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Store(#[from] StoreError),
    /// A file of a run cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file named by an option cannot be read.
    #[error("cannot read {}", path.display())]
    #[diagnostic(help("check the path; paths in a recipe are relative to its folder"))]
    OptionFile {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file of a run is invalid.
    #[error("{} is not a probity summary", path.display())]
    NoSummary {
        /// The file.
        path: PathBuf,
        /// The error.
        source: serde_json::Error,
    },
    /// All problems of a plan.
    #[error("{what}")]
    Problems {
        /// All problems as text.
        what: String,
        /// The hints that are not shown beside their problem, one per line.
        #[help]
        hints: Option<String>,
    },
    /// A stage of a recipe without a folder. A command has a default named after the time, but a recipe must give the
    /// same results each time.
    #[error("`out` is missing")]
    #[diagnostic(help("set out = \"runs/{{run}}\" in its table, or in [defaults] for all runs"))]
    NoFolder,
    /// Two stages use the same folder.
    #[error("{folder} {how} the folder of `{other}`")]
    #[diagnostic(help(
        "set a folder for each stage; {{run}}, {{model}}, {{data}} and {{method}} are replaced by names"
    ))]
    SharedFolder {
        /// The folder.
        folder: String,
        /// `is` or `overlaps with`.
        how: &'static str,
        /// The other stage.
        other: String,
    },
    /// A stage reads the folder that it writes.
    #[error("{} is in the folder that this run writes to", path.display())]
    #[diagnostic(help("use a copy, a file of another run, or another `out`"))]
    ReadsItself {
        /// The path that it would read.
        path: PathBuf,
    },
    /// Stages read one another's folders in a circle.
    #[error("it reads the folder of `{other}`, which waits for it in turn")]
    #[diagnostic(help("remove the cycle: let one of them read something else"))]
    Circle {
        /// The stage that it waits for.
        other: String,
    },
    /// A stage reads another stage's output but cannot wait for it.
    #[error("{} is in the folder that `{other}` writes to, and would be read too early", path.display())]
    #[diagnostic(help("run `{other}` first with --only, and use a copy of the file"))]
    ReadsOther {
        /// The path that it would read.
        path: PathBuf,
        /// The stage that writes there.
        other: String,
    },
    /// The run is already past the stage after which it is to stop.
    #[error("{} holds a run that is already past `{until}` ({status}); its later results would be \
             lost", path.display())]
    #[diagnostic(help("omit --until to continue it, or use another folder"))]
    Beyond {
        /// The folder.
        path: PathBuf,
        /// How that run ended.
        status: &'static str,
        /// The stage.
        until: String,
    },
    /// A stage that this one reads from produced nothing.
    #[error("it reads the folder of `{other}`, which {how}")]
    #[diagnostic(help("fix `{other}`, then continue with the same command and --resume"))]
    NothingToRead {
        /// The stage that it reads from.
        other: String,
        /// `failed` or `ended early`.
        how: &'static str,
    },
    /// A stage that this one reads from was not selected and has not finished before.
    #[error("it reads the folder of `{other}`, which holds no finished run yet")]
    #[diagnostic(help("run `{other}` first, or add it with --only"))]
    NotRunYet {
        /// The stage that it reads from.
        other: String,
    },
    /// The receiver of results failed, such as a closed pipe.
    #[error("{0}")]
    Events(
        #[source]
        #[diagnostic_source]
        SinkError,
    ),
    /// Interrupted. Not transparent, so that the reason is found among the causes.
    #[error("{0}")]
    Interrupted(#[from] Interrupted),
}

impl SessionError {
    /// Long name of the option at fault, if known.
    pub fn option(&self) -> Option<String> {
        match self {
            Self::Option(error) => Some(error.field.replace('_', "-")),
            Self::Method(error) => option_of(error),
            Self::EmptyShard { .. } => Some("shard".to_owned()),
            Self::ThoughtsWithoutLength => Some("thoughts".to_owned()),
            _ => None,
        }
    }
}

/// Long name of the option at fault in a method's error.
pub(crate) fn option_of(error: &MethodError) -> Option<String> {
    let option = match error {
        MethodError::Options(error) => return Some(error.field.replace('_', "-")),
        MethodError::Option { option, .. } | MethodError::File { option, .. } => {
            option.split(' ').next()?.trim_start_matches("--")
        }
        MethodError::Template(_) => "template",
        MethodError::Labels(_) | MethodError::Model(LmError::Labels { .. }) => "label-words",
        MethodError::NoGold { .. } => "attribute",
        MethodError::Table { .. } => "from",
        MethodError::NoSamples | MethodError::Metric(MetricError::NoItems | MetricError::Missing { .. }) => "data",
        MethodError::Metric(MetricError::Unknown { .. } | MetricError::Option { .. } | MetricError::NoModel { .. }) => {
            "metric"
        }
        MethodError::Other { option, .. } => (*option)?,
        _ => return None,
    };
    Some(option.to_owned())
}
