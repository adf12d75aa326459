//! The samples of a stage, and what a manifest says of them.

use std::sync::Arc;

use probity_data::{GivenTable, LineError, Sample};
use probity_methods::samples_key;
use serde_json::{Value, json};

use crate::options::DataOptions;
use crate::{SessionError, Shard};

/// Samples that come from no file.
#[derive(Debug, Clone)]
pub struct GivenSamples {
    /// All of them.
    pub samples: Arc<[Sample]>,
    /// What the manifest says of them.
    pub described: Value,
}

impl GivenSamples {
    /// Those of a file that options ask for; what `wrong` finds about one is wrong with the file too.
    pub(crate) fn read(options: &DataOptions, wrong: impl Fn(&Sample) -> Vec<LineError>) -> Result<Self, SessionError> {
        let samples = options.samples_for(wrong)?;
        let mut described = options.described()?;
        described["samples"] = json!(samples.len());
        Self { samples: samples.into(), described }.part(options.shard)
    }

    /// Those of a table in memory, whose columns options map; what `wrong` finds about one is wrong with the table too.
    pub(crate) fn of_table(
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

    /// One part of them. What came through a pipe has no hash: that all parts are of the same samples is known by the
    /// samples themselves.
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
