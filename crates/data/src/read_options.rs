//! Options for reading a file of samples.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::import::{Importer, importers};
use crate::{DataError, DataFormat, LineError, MapEntry, Mapping, Sample, SampleSource};

/// How a file is read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[allow(rustdoc::broken_intra_doc_links, reason = "a path to a place in a row is written with brackets, in help too")]
pub struct ReadOptions {
    /// Map a column to a field; repeatable
    ///
    /// `probity help data` has examples. FIELD is id, context, instruction, text.NAME, candidate, candidate.NAME,
    /// candidate-id, reference, score.ATTRIBUTE, score.CANDIDATE.ATTRIBUTE, preference or preference.VALUE. COLUMN is a
    /// column's name, or a path into it: input.text, turns[0], turns[-1] (the last), responses[].text. FIELD:=VALUE
    /// sets the same value for every row. Several columns, and the items of a list (chunks[]), are joined into one
    /// context, instruction or text, separated by blank lines. Fields without --map are read from columns of the same
    /// name; FIELD:= (without a value) ignores the column of that name. Preference data with the columns prompt, chosen
    /// and rejected is recognised. Without --map, JSON lines can be in probity's own format (docs/data.md).
    #[schemars(extend("form" = "FIELD=COLUMN", "heading" = "Data and output"))]
    pub map: Vec<MapEntry>,
    /// File format [default: detected from content and name]
    #[schemars(extend("form" = "FORMAT", "heading" = "Data and output"))]
    pub data_format: Option<DataFormat>,
    /// Read only the first N samples
    #[schemars(extend("form" = "N", "heading" = "Data and output"))]
    pub limit: Option<usize>,
    /// Whether samples may come without any context, instruction or other text.
    #[serde(skip)]
    #[schemars(skip)]
    pub context_optional: bool,
}

impl ReadOptions {
    /// The source of a file with these options.
    pub fn source(&self, path: &Path) -> Result<SampleSource, DataError> {
        let map = Mapping::new(self.map.iter().cloned())?;
        Ok(SampleSource {
            format: self.data_format,
            map,
            limit: self.limit,
            context_optional: self.context_optional,
            ..SampleSource::new(path)
        })
    }

    /// Reads all selected samples of a file.
    pub fn samples(&self, path: &Path) -> Result<Vec<Sample>, DataError> {
        self.samples_for(path, |_| Vec::new())
    }

    /// Same as [`ReadOptions::samples`]; errors found by `wrong` count as errors of the file.
    pub fn samples_for(
        &self,
        path: &Path,
        wrong: impl Fn(&Sample) -> Vec<LineError>,
    ) -> Result<Vec<Sample>, DataError> {
        self.source(path)?.samples_for(wrong).map_err(|error| public_set(path).unwrap_or(error))
    }
}

/// The error for an unconverted file of a public data set; `None` for any other file.
pub fn public_set(path: &Path) -> Option<DataError> {
    let reads = |importer: &&Importer| path.is_file() && importer.import(path).is_ok();
    let name = importers().iter().find(reads)?.name;
    Some(DataError::PublicSet { path: path.to_owned(), name })
}
