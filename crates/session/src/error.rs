//! What can go wrong between something asked and a run.

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

/// Why a plan cannot be made, checked or done.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum SessionError {
    /// Samples cannot be read.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Data(#[from] DataError),
    /// A part of the samples that has none.
    #[error("part {shard} has no samples; number of samples in the data: {samples}")]
    #[diagnostic(help("use at most as many parts as there are samples"))]
    EmptyShard {
        /// The part.
        shard: Shard,
        /// How many samples there are.
        samples: usize,
    },
    /// Folders that are not all parts of one run.
    #[error("{}: {why}", path.display())]
    NoShard {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
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
    /// A model that several stages ask could not be loaded when the first of them asked; told once more.
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
    /// An option is none, or cannot have its value.
    #[error("--{}: {}", .0.field.replace('_', "-"), .0.cause)]
    Option(
        #[from]
        #[diagnostic_source]
        OptionError,
    ),
    /// A method could not finish.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Method(#[from] MethodError),
    /// A run's folder or its answers cannot be read or written.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Store(#[from] StoreError),
    /// A file of a run cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file that an option leads to cannot be read.
    #[error("cannot read {}", path.display())]
    #[diagnostic(help("check the path; paths in a recipe are relative to its folder"))]
    OptionFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file of a run is not what it should be.
    #[error("{} is not a probity summary", path.display())]
    NoSummary {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// Everything that is wrong with a plan.
    #[error("{what}")]
    Problems {
        /// All of it in words.
        what: String,
        /// What to do, a line for each hint that does not stand beside its problem.
        #[help]
        hints: Option<String>,
    },
    /// A stage of a recipe says nothing of where its results go: a command line has a folder by its time, a recipe is
    /// to give the same each time.
    #[error("`out` is missing")]
    #[diagnostic(help("set out = \"runs/{{run}}\" in its table, or in [defaults] for all runs"))]
    NoFolder,
    /// Two stages want one folder.
    #[error("{folder} {how} the folder of `{other}`")]
    #[diagnostic(help(
        "set a folder for each stage; {{run}}, {{model}}, {{data}} and {{method}} are replaced by names"
    ))]
    SharedFolder {
        /// The folder.
        folder: String,
        /// `is` or `overlaps with`.
        how: &'static str,
        /// The stage that has it.
        other: String,
    },
    /// A stage reads the folder that it writes to.
    #[error("{} is in the folder that this run writes to", path.display())]
    #[diagnostic(help("use a copy, a file of another run, or another `out`"))]
    ReadsItself {
        /// What it would read.
        path: PathBuf,
    },
    /// Stages read one another's folders, so that none of them could come first.
    #[error("it reads the folder of `{other}`, which waits for it in turn")]
    #[diagnostic(help("remove the cycle: let one of them read something else"))]
    Circle {
        /// The stage that it waits for.
        other: String,
    },
    /// A stage reads what another of the plan writes, and cannot wait for it.
    #[error("{} is in the folder that `{other}` writes to, and would be read too early", path.display())]
    #[diagnostic(help("run `{other}` first with --only, and use a copy of the file"))]
    ReadsOther {
        /// What it would read.
        path: PathBuf,
        /// The stage that writes there.
        other: String,
    },
    /// A run is to end after a stage that it has left behind.
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
    /// A stage that this one reads from left nothing to read.
    #[error("it reads the folder of `{other}`, which {how}")]
    #[diagnostic(help("fix `{other}`, then continue with the same command and --resume"))]
    NothingToRead {
        /// The stage that it reads from.
        other: String,
        /// `failed` or `ended early`.
        how: &'static str,
    },
    /// A stage that this one reads from is left out this time, and has not come to its end before.
    #[error("it reads the folder of `{other}`, which holds no finished run yet")]
    #[diagnostic(help("run `{other}` first, or add it with --only"))]
    NotRunYet {
        /// The stage that it reads from.
        other: String,
    },
    /// Whoever is told of results cannot take them (a closed pipe).
    #[error("{0}")]
    Events(
        #[source]
        #[diagnostic_source]
        SinkError,
    ),
    /// It was asked to end. Not transparent: whoever looks for the reason finds it among the causes.
    #[error("{0}")]
    Interrupted(#[from] Interrupted),
}

impl SessionError {
    /// The option whose value is to blame, by its long name; absent where that is none, or not known.
    pub fn option(&self) -> Option<String> {
        match self {
            Self::Option(error) => Some(error.field.replace('_', "-")),
            Self::Method(error) => option_of(error),
            Self::EmptyShard { .. } => Some("shard".to_owned()),
            _ => None,
        }
    }
}

/// The same of a method's.
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
