//! The samples of a stage, and their entry in the manifest.

use std::sync::Arc;

use probity_data::{GivenTable, LineError, Sample};
use probity_methods::samples_key;
use serde_json::{Value, json};

use crate::options::DataOptions;
use crate::{SessionError, Shard};

/// Samples that were already read.
#[derive(Debug, Clone)]
pub struct GivenSamples {
    /// All samples.
    pub samples: Arc<[Sample]>,
    /// Their entry in the manifest.
    pub described: Value,
}

impl GivenSamples {
    /// Reads the selected samples of a file; problems that `wrong` finds in a sample are errors of the file.
    pub(crate) fn read(options: &DataOptions, wrong: impl Fn(&Sample) -> Vec<LineError>) -> Result<Self, SessionError> {
        let samples = options.samples_for(wrong)?;
        let mut described = options.described()?;
        described["samples"] = json!(samples.len());
        Self { samples: samples.into(), described }.part(options.shard)
    }

    /// Reads the samples of a table in memory, whose columns the options map; problems that `wrong` finds are errors of
    /// the table.
    pub(crate) fn from_table(
        options: &DataOptions,
        table: Box<dyn GivenTable>,
        wrong: impl Fn(&Sample) -> Vec<LineError>,
    ) -> Result<Self, SessionError> {
        let source = options.read.source(&options.data)?;
        let samples = source.samples_of_table(table, wrong)?;
        let mut described = json!(source);
        described["sha256"] = json!(samples_key(&samples));
        described["samples"] = json!(samples.len());
        Ok(Self { samples: samples.into(), described })
    }

    /// One shard of the samples. Data from a pipe have no hash, so the samples themselves are hashed to compare shards.
    pub(crate) fn part(self, shard: Option<Shard>) -> Result<Self, SessionError> {
        let Some(shard) = shard else { return Ok(self) };
        let Self { samples: all, mut described } = self;
        let part = shard.part(all.to_vec());
        if part.is_empty() && !all.is_empty() {
            return Err(SessionError::EmptyShard { shard, samples: all.len() });
        }
        described["samples"] = json!(part.len());
        described["shard"] = json!(shard);
        described["whole"] = json!(samples_key(&all));
        Ok(Self { samples: part.into(), described })
    }
}
