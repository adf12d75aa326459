//! Options for data, output and execution of a run.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use probity_options::written_as_text;
use probity_store::Existing;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DataOptions;

/// All options of a run but its method's and its model's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunOptions {
    /// What is judged.
    #[serde(flatten)]
    pub data: DataOptions,
    /// Where it goes.
    #[serde(flatten)]
    pub output: OutputOptions,
    /// How it is gone about.
    #[serde(flatten)]
    pub ask: AskOptions,
    /// What becomes of an earlier one.
    #[serde(flatten)]
    pub keep: KeepOptions,
}

/// Where a run goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OutputOptions {
    /// Run folder, created if missing [default: runs/METHOD-DATE-TIME]
    #[schemars(length(min = 1), extend("form" = "DIR", "heading" = "Data and output"))]
    pub out: Option<PathBuf>,
}

/// How a run is gone about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AskOptions {
    /// Print what the run would cost; query and write nothing
    ///
    /// Prints the number of queries, the tokens with and without prefix sharing, and estimates of memory and time. The
    /// estimates assume that generated texts reach their maximum length and that no drafts are rejected.
    #[schemars(extend("heading" = "Data and output"))]
    pub dry_run: bool,
    /// Exit with 1 if a sample could not be scored
    #[schemars(extend("heading" = "Data and output"))]
    pub strict: bool,
    /// Stop after this stage of the method
    ///
    /// The same command with --resume and without --until continues.
    #[schemars(extend("form" = "STAGE", "heading" = "Data and output"))]
    pub until: Option<String>,
    /// Read a stage's table from a file instead; repeatable
    ///
    /// The file is a table from another run or your own. The stage is not computed.
    #[schemars(extend("form" = "STAGE=FILE", "heading" = "Data and output"))]
    pub from: Vec<StageTable>,
}

/// A file to read a stage's table from, as `STAGE=FILE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageTable {
    /// The stage's name.
    pub stage: String,
    /// The JSON Lines file.
    pub file: PathBuf,
}

/// Not of the form `STAGE=FILE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("expected STAGE=FILE, such as revisions=mine.jsonl")]
pub struct StageTableError;

impl FromStr for StageTable {
    type Err = StageTableError;

    fn from_str(text: &str) -> Result<Self, StageTableError> {
        let named = text.split_once('=').filter(|(stage, file)| !stage.is_empty() && !file.is_empty());
        let (stage, file) = named.ok_or(StageTableError)?;
        Ok(Self { stage: stage.to_owned(), file: file.into() })
    }
}

impl fmt::Display for StageTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.stage, self.file.display())
    }
}

written_as_text!(StageTable);

/// What becomes of an earlier run, and where answers are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct KeepOptions {
    /// Replace an earlier run in the run folder
    #[schemars(extend("heading" = "Data and output"))]
    pub overwrite: bool,
    /// Continue the run in the run folder, reusing its answers
    #[schemars(extend("conflicts" = ["overwrite"], "heading" = "Data and output"))]
    pub resume: bool,
    /// Folder of cached answers to reuse and extend
    ///
    /// Runs of any method may share it.
    #[schemars(length(min = 1), extend("form" = "DIR", "heading" = "Data and output"))]
    pub cache: Option<PathBuf>,
    /// Store no answers; an interrupted run starts from scratch
    #[schemars(extend("conflicts" = ["resume"], "heading" = "Data and output"))]
    pub no_store: bool,
}

impl KeepOptions {
    /// What to do with a run that already exists in the folder.
    pub fn existing(&self) -> Existing {
        match (self.overwrite, self.resume) {
            (true, _) => Existing::Replace,
            (_, true) => Existing::Resume,
            _ => Existing::Refuse,
        }
    }
}
