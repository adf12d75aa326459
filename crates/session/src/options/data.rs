//! Which samples, and how their file is read.

use std::path::{Path, PathBuf};

use probity_data::{DataError, Format, Importer, LineError, MapEntry, Mapping, Sample, Source, importers};
use probity_runtime::weights::sha256_file;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::SessionError;

/// How a file is read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[allow(rustdoc::broken_intra_doc_links, reason = "a path to a place in a row is written with brackets, in help too")]
pub struct ReadOptions {
    /// Which column is which field; once for each. `probity help data` has examples
    ///
    /// FIELD is id, context, instruction, candidate, candidate.NAME, candidate-id, reference, score.ATTRIBUTE,
    /// score.CANDIDATE.ATTRIBUTE, preference or preference.VALUE. COLUMN is a column's name, or a path to a place in
    /// it: input.text, turns[0], turns[-1] (the last), responses[].text. FIELD:=VALUE gives every row that value.
    /// Without --map, JSON lines have probity's own form or that of preferences (prompt, chosen, rejected), and columns
    /// of tables that have the names of fields are these fields.
    #[schemars(extend("form" = "FIELD=COLUMN", "heading" = "Data and output"))]
    pub map: Vec<MapEntry>,
    /// What the file is, where its content and name do not tell
    #[schemars(extend("form" = "FORMAT", "heading" = "Data and output"))]
    pub data_format: Option<Format>,
    /// Read only the first N samples
    #[schemars(extend("form" = "N", "heading" = "Data and output"))]
    pub limit: Option<usize>,
}

impl ReadOptions {
    /// The file with these options.
    pub fn source(&self, path: &Path) -> Result<Source, SessionError> {
        let map = Mapping::new(self.map.iter().cloned())?;
        Ok(Source { path: path.to_owned(), format: self.data_format, map, limit: self.limit })
    }

    /// All samples of a file that were asked for.
    pub fn samples(&self, path: &Path) -> Result<Vec<Sample>, SessionError> {
        self.samples_for(path, |_| Vec::new())
    }

    /// The same; what `wrong` finds about a sample is wrong with the file too.
    pub fn samples_for(
        &self,
        path: &Path,
        wrong: impl Fn(&Sample) -> Vec<LineError>,
    ) -> Result<Vec<Sample>, SessionError> {
        let read = self.source(path)?.samples_for(wrong);
        read.map_err(|error: DataError| public_set(path).unwrap_or(SessionError::Data(error)))
    }
}

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
}

impl DataOptions {
    /// All samples that were asked for; what `wrong` finds about one is wrong with the file too.
    pub fn samples_for(&self, wrong: impl Fn(&Sample) -> Vec<LineError>) -> Result<Vec<Sample>, SessionError> {
        self.read.samples_for(&self.data, wrong)
    }

    /// What a manifest says of them.
    pub fn described(&self, samples: &[Sample]) -> Result<Value, SessionError> {
        let mut described = json!(self.read.source(&self.data)?);
        described["sha256"] = json!(hash_of_data(&self.data));
        described["samples"] = json!(samples.len());
        Ok(described)
    }
}

/// What to do with the file of a public data set, which is of no use as it is; `None` where it is none.
pub fn public_set(path: &Path) -> Option<SessionError> {
    let reads = |importer: &&Importer| path.is_file() && importer.import(path).is_ok();
    let name = importers().iter().find(reads)?.name;
    Some(SessionError::PublicSet { path: path.to_owned(), name })
}

/// Of a regular file only: what came through a pipe is gone.
fn hash_of_data(path: &Path) -> Option<String> {
    path.is_file().then(|| sha256_file(path).ok()).flatten()
}
