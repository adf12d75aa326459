//! What can go wrong between something asked and a run, and how it is told.

use std::error::Error;
use std::path::PathBuf;

use probity_data::DataError;
use probity_lm::{LmError, SinkError};
use probity_methods::MethodError;
use probity_metrics::MetricError;
use probity_options::OptionError;
use probity_report::text::visible;
use probity_runtime::LoadError;
use probity_runtime::hub::LocateError;
use probity_runtime::weights::WeightsError;
use probity_store::StoreError;

use crate::Interrupted;

/// Why a plan cannot be made, checked or done.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Samples cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A model cannot be found.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// A model cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A model that several stages ask could not be loaded when the first of them asked; told once more.
    #[error("{0}")]
    LoadedBefore(String),
    /// A model's files cannot be hashed.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A model failed.
    #[error(transparent)]
    Model(#[from] LmError),
    /// An option is none, or cannot have its value.
    #[error("--{}: {}", .0.field.replace('_', "-"), .0.why)]
    Option(#[from] OptionError),
    /// A method could not finish.
    #[error(transparent)]
    Method(#[from] MethodError),
    /// A run's folder or its answers cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file of a run cannot be read.
    #[error("{} could not be read", path.display())]
    Io {
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
    #[error("{0}")]
    Problems(String),
    /// A stage of a recipe says nothing of where its results go: a command line has a folder by its time, a recipe is
    /// to give the same each time.
    #[error("`out` is missing\n\nhint: out = \"runs/{{run}}\" in its table, or in [defaults] for all")]
    NoFolder,
    /// Two stages want one folder.
    #[error(
        "{folder} {how} the folder of `{other}`\n\nhint: write a folder for each stage; {{run}}, {{model}}, {{data}} \
         and {{method}} stand for their names"
    )]
    SharedFolder {
        /// The folder.
        folder: String,
        /// `is` or `overlaps with`.
        how: &'static str,
        /// The stage that has it.
        other: String,
    },
    /// A stage reads the folder that it writes to.
    #[error(
        "{} is in the folder that this run writes to\n\nhint: give the folder of another run, or another `out`",
        path.display()
    )]
    ReadsItself {
        /// What it would read.
        path: PathBuf,
    },
    /// Stages read one another's folders, so that none of them could come first.
    #[error(
        "it reads the folder of `{other}`, which in turn waits for it\n\nhint: let one of them read something else"
    )]
    Circle {
        /// The stage that it waits for.
        other: String,
    },
    /// A stage that this one reads from left nothing to read.
    #[error(
        "it reads the folder of `{other}`, which {how}\n\nhint: mend `{other}`; the same command with --resume goes on \
         from there"
    )]
    NothingToRead {
        /// The stage that it reads from.
        other: String,
        /// `failed` or `ended early`.
        how: &'static str,
    },
    /// Whoever is told of results cannot take them (a closed pipe).
    #[error("{0}")]
    Events(#[source] SinkError),
    /// It was asked to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl SessionError {
    /// The option whose value is to blame, by its long name; absent where that is none, or not known.
    pub fn option(&self) -> Option<String> {
        match self {
            Self::Option(error) => Some(error.field.replace('_', "-")),
            Self::Method(error) => option_of(error),
            _ => None,
        }
    }
}

/// The same of a method's.
pub(crate) fn option_of(error: &MethodError) -> Option<String> {
    match error {
        MethodError::Options(error) => Some(error.field.replace('_', "-")),
        MethodError::Option { option, .. } | MethodError::File { option, .. } => {
            Some(option.split(' ').next()?.trim_start_matches("--").to_owned())
        }
        MethodError::Template(_) => Some("template".to_owned()),
        MethodError::Labels(_) | MethodError::Model(LmError::Labels { .. }) => Some("label-words".to_owned()),
        MethodError::NoGold { .. } => Some("attribute".to_owned()),
        MethodError::Table { .. } => Some("from".to_owned()),
        MethodError::NoSamples | MethodError::Metric(MetricError::NoItems | MetricError::Missing { .. }) => {
            Some("data".to_owned())
        }
        MethodError::Metric(MetricError::Unknown { .. } | MetricError::Option { .. } | MetricError::NoModel { .. }) => {
            Some("metric".to_owned())
        }
        MethodError::Other { option, .. } => option.map(str::to_owned),
        _ => None,
    }
}

/// `error: …`, the causes that it does not mention itself, and the hints of all of them at the end. Control characters
/// are made visible.
pub fn message(error: &(dyn Error + 'static)) -> String {
    let mut said = String::new();
    let mut hints: Vec<String> = Vec::new();
    let mut cause = Some(error);
    while let Some(current) = cause {
        let text = current.to_string();
        // An error that quotes its cause may have the cause's hint in its middle.
        let mut what = String::new();
        for (index, part) in text.split("\n\nhint: ").enumerate() {
            match (index, part.split_once("\n\n")) {
                (0, _) => what.push_str(part),
                (_, Some((hint, rest))) => {
                    add(&mut hints, hint);
                    what.push_str(rest);
                }
                (_, None) => add(&mut hints, part),
            }
        }
        if said.is_empty() {
            said = format!("error: {what}");
        } else if !said.contains(&what) {
            said.push_str("\n  because ");
            said.push_str(&what.replace('\n', "\n  "));
        }
        cause = current.source();
    }
    for (index, hint) in hints.iter().enumerate() {
        said.push_str(if index == 0 { "\n\nhint: " } else { "\nhint: " });
        said.push_str(hint);
    }
    visible(&said)
}

fn add(hints: &mut Vec<String>, hint: &str) {
    if !hints.iter().any(|known| known == hint) {
        hints.push(hint.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read x: {source}\n\nhint: look for it")]
    struct Outer {
        source: Inner,
    }

    #[derive(Debug, thiserror::Error)]
    #[error("it is not there\n\nhint: try y")]
    struct Inner;

    #[derive(Debug, thiserror::Error)]
    #[error("the run stopped")]
    struct Top(#[source] Outer);

    #[test]
    fn causes_are_told_once_and_hints_come_last() {
        let said = message(&Top(Outer { source: Inner }));
        assert_eq!(
            said,
            "error: the run stopped\n  because cannot read x: it is not there\n\nhint: try y\nhint: look for it"
        );
    }

    #[test]
    fn a_hostile_name_in_an_error_cannot_write_to_the_terminal() {
        let said = message(&SessionError::Problems("no file `\u{1b}[2J\u{202e}`".to_owned()));
        assert_eq!(said, "error: no file `\\u{1b}[2J\\u{202e}`");
    }
}
