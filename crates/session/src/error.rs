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
    #[error("part {shard} has no sample: the data have {samples}")]
    #[diagnostic(help("make no more parts than there are samples"))]
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
    #[error("{} could not be read", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file that an option leads to cannot be read.
    #[error("{} could not be read", path.display())]
    #[diagnostic(help("check the path; those of a recipe are relative to its folder"))]
    OptionFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file of a run is not what it should be.
    #[error("{} is not a summary of probity", path.display())]
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
    #[diagnostic(help("out = \"runs/{{run}}\" in its table, or in [defaults] for all"))]
    NoFolder,
    /// Two stages want one folder.
    #[error("{folder} {how} the folder of `{other}`")]
    #[diagnostic(help(
        "write a folder for each stage; {{run}}, {{model}}, {{data}} and {{method}} stand for their names"
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
    #[diagnostic(help("give a copy of it, what another run has left, or another `out`"))]
    ReadsItself {
        /// What it would read.
        path: PathBuf,
    },
    /// Stages read one another's folders, so that none of them could come first.
    #[error("it reads the folder of `{other}`, which in turn waits for it")]
    #[diagnostic(help("let one of them read something else"))]
    Circle {
        /// The stage that it waits for.
        other: String,
    },
    /// A stage reads what another of the plan writes, and cannot wait for it.
    #[error("{} is in the folder that `{other}` writes to, and is read before that is done", path.display())]
    #[diagnostic(help("run `{other}` first, by --only, and give a copy of the file"))]
    ReadsOther {
        /// What it would read.
        path: PathBuf,
        /// The stage that writes there.
        other: String,
    },
    /// A run is to end after a stage that it has left behind.
    #[error("{} holds a run that came further than `{until}` ({status}), and what came of that would go", path.display())]
    #[diagnostic(help("leave --until out to go on with it, or give another folder"))]
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
    #[diagnostic(help("mend `{other}`; the same command with --resume goes on from there"))]
    NothingToRead {
        /// The stage that it reads from.
        other: String,
        /// `failed` or `ended early`.
        how: &'static str,
    },
    /// A stage that this one reads from is left out this time, and has not come to its end before.
    #[error("it reads the folder of `{other}`, which holds no finished run yet")]
    #[diagnostic(help("run `{other}` first, or name it by --only too"))]
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
