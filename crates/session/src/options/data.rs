//! Which samples.

use std::path::{Path, PathBuf};

use probity_data::{DataError, LineError, ReadOptions, Sample, importer};
use probity_methods::samples_key;
use probity_runtime::weights::sha256_file;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Shard;
use crate::{GivenSamples, SessionError};

/// The samples of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DataOptions {
    /// The samples: JSON lines, CSV, TSV or Parquet, also packed by gzip or zstd, or - for standard input
    #[schemars(length(min = 1), extend("form" = "FILE", "heading" = "Data and output"))]
    pub data: PathBuf,
    /// How their file is read.
    #[serde(flatten)]
    pub read: ReadOptions,
    /// Judge one of N parts of the samples, I from 1: every N-th, from the I-th on. `probity merge` makes of the folders
    /// of all parts the folder of one run
    #[schemars(extend("form" = "I/N", "heading" = "Data and output"))]
    pub shard: Option<Shard>,
    /// Of a file that holds more than samples, what makes samples of it.
    #[serde(skip)]
    #[schemars(skip)]
    pub importer: Option<&'static str>,
    /// People's scores are what is looked at, and so are not held against themselves.
    #[serde(skip)]
    #[schemars(skip)]
    pub without_gold: bool,
}

impl DataOptions {
    /// All samples that were asked for, and what a manifest says of them; what `wrong` finds about one is wrong with the
    /// file too.
    pub fn samples_for(&self, wrong: impl Fn(&Sample) -> Vec<LineError>) -> Result<(Vec<Sample>, Value), SessionError> {
        let all = self.all_samples_for(wrong)?;
        let mut described = json!(self.read.source(&self.data)?);
        described["sha256"] = json!(hash_of_data(&self.data));
        if let Some(importer) = self.importer {
            described["importer"] = json!(importer);
        }
        self.part(all, described)
    }

    /// The part of all samples that was asked for, and what is said of it. What came through a pipe has no hash: that
    /// all parts are of the same samples is known by the samples themselves.
    fn part(&self, all: Vec<Sample>, mut described: Value) -> Result<(Vec<Sample>, Value), SessionError> {
        let Some(shard) = self.shard else {
            described["samples"] = json!(all.len());
            return Ok((all, described));
        };
        let samples = all.len();
        let whole = samples_key(&all);
        let part = shard.part(all);
        if part.is_empty() && samples > 0 {
            return Err(SessionError::EmptyShard { shard, samples });
        }
        described["samples"] = json!(part.len());
        described["shard"] = json!(shard);
        described["whole"] = json!(whole);
        Ok((part, described))
    }

    /// The same of samples that come from no file.
    pub(crate) fn part_of(&self, given: &GivenSamples) -> Result<GivenSamples, SessionError> {
        if self.shard.is_none() {
            return Ok(given.clone());
        }
        let (samples, described) = self.part(given.samples.to_vec(), given.described.clone())?;
        Ok(GivenSamples { samples: samples.into(), described })
    }

    fn all_samples_for(&self, wrong: impl Fn(&Sample) -> Vec<LineError>) -> Result<Vec<Sample>, DataError> {
        let Some(name) = self.importer else { return self.read.samples_for(&self.data, wrong) };
        let mut samples = importer(name)?.import(&self.data)?;
        samples.truncate(self.read.limit.unwrap_or(usize::MAX));
        if self.without_gold {
            samples.iter_mut().flat_map(|sample| &mut sample.candidates).for_each(|one| one.scores.clear());
        }
        Ok(samples)
    }
}

/// Of a regular file only: what came through a pipe is gone.
fn hash_of_data(path: &Path) -> Option<String> {
    path.is_file().then(|| sha256_file(path).ok()).flatten()
}
