//! Options that select samples.

use std::path::{Path, PathBuf};

use probity_data::{DataError, LineError, ReadOptions, Sample, importer};
use probity_runtime::weights::sha256_file;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Shard;

/// The samples of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DataOptions {
    /// Samples: JSONL, CSV, TSV, Parquet (.gz, .zst); - for stdin
    #[schemars(length(min = 1), extend("form" = "FILE", "heading" = "Data and output"))]
    pub data: PathBuf,
    /// How their file is read.
    #[serde(flatten)]
    pub read: ReadOptions,
    /// Judge only part I of N (every N-th sample, from the I-th)
    ///
    /// Parts count from 1. `probity merge` joins the folders of all parts into the folder of one run.
    #[schemars(extend("form" = "I/N", "heading" = "Data and output"))]
    pub shard: Option<Shard>,
    /// Of a file that holds more than samples, what makes samples of it.
    #[serde(skip)]
    #[schemars(skip)]
    pub importer: Option<&'static str>,
    /// Human scores are the input, so they are not compared with themselves.
    #[serde(skip)]
    #[schemars(skip)]
    pub without_gold: bool,
}

impl DataOptions {
    /// All samples, of every shard; problems that `wrong` finds in a sample are errors of the file.
    pub fn samples_for(&self, wrong: impl Fn(&Sample) -> Vec<LineError>) -> Result<Vec<Sample>, DataError> {
        let Some(name) = self.importer else { return self.read.samples_for(&self.data, wrong) };
        let mut samples = importer(name)?.import(&self.data)?;
        samples.truncate(self.read.limit.unwrap_or(usize::MAX));
        if self.without_gold {
            samples.iter_mut().flat_map(|sample| &mut sample.candidates).for_each(|one| one.scores.clear());
        }
        Ok(samples)
    }

    /// The manifest's entry for the data.
    pub fn described(&self) -> Result<Value, DataError> {
        let mut described = json!(self.read.source(&self.data)?);
        described["sha256"] = json!(hash_of_data(&self.data));
        if let Some(importer) = self.importer {
            described["importer"] = json!(importer);
        }
        Ok(described)
    }
}

/// Regular files only: the content of a pipe is gone.
fn hash_of_data(path: &Path) -> Option<String> {
    path.is_file().then(|| sha256_file(path).ok()).flatten()
}
