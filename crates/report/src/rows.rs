//! Rows of tables and samples.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;

use crate::ReportError;

/// Fields of a row of comparisons.
#[derive(Debug, Deserialize)]
pub(crate) struct ReportedComparison<'a> {
    #[serde(borrow)]
    pub(crate) item: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) attribute: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) template: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) candidate_i: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) candidate_j: Cow<'a, str>,
    pub(crate) p: Option<f64>,
    pub(crate) mass: Option<f64>,
    #[serde(borrow, default)]
    pub(crate) outcome: Cow<'a, str>,
}

/// Fields of a row of scores.
#[derive(Debug, Deserialize)]
pub(crate) struct CandidateScoreRow<'a> {
    #[serde(borrow)]
    pub(crate) item: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) attribute: Cow<'a, str>,
    /// Name of the score, if a run has several for a candidate.
    #[serde(borrow, default)]
    pub(crate) metric: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) candidate: Cow<'a, str>,
    pub(crate) score: Option<f64>,
    pub(crate) mass: Option<f64>,
    #[serde(borrow, default)]
    pub(crate) outcome: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) answers: Vec<JudgementRow<'a>>,
}

/// One answer used for a score.
#[derive(Debug, Deserialize)]
pub(crate) struct JudgementRow<'a> {
    pub(crate) mass: Option<f64>,
    #[serde(borrow, default)]
    pub(crate) outcome: Cow<'a, str>,
}

/// Id and outcome of any row.
#[derive(Debug, Deserialize)]
pub(crate) struct OtherRow<'a> {
    #[serde(borrow)]
    item: Option<Cow<'a, str>>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    document: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) outcome: Option<Cow<'a, str>>,
}

/// Fields with the id of a row; the first that exists counts.
pub(crate) const BELONGS_TO: [&str; 3] = ["item", "id", "document"];

impl OtherRow<'_> {
    /// Id of the sample, question or document.
    pub(crate) fn belongs_to(&self) -> Option<&str> {
        [&self.item, &self.id, &self.document].into_iter().find_map(Option::as_deref)
    }
}

/// Byte range in a table file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextStretch {
    pub(crate) table: u16,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Calls `each` with every line of a file and its byte range. An incomplete last line, as left by a killed run, is
/// skipped; errors of `each` are reported with the line.
pub(crate) fn each_line(
    path: &Path,
    mut each: impl FnMut(&str, u64, u64) -> serde_json::Result<()>,
) -> Result<(), ReportError> {
    let mut reader = BufReader::with_capacity(1 << 16, File::open(path).map_err(ReportError::read(path))?);
    let (mut line, mut start, mut number) = (Vec::new(), 0, 0);
    loop {
        line.clear();
        let length = reader.read_until(b'\n', &mut line).map_err(ReportError::read(path))? as u64;
        if line.last() != Some(&b'\n') {
            return Ok(());
        }
        number += 1;
        let end = start + length;
        let broken = |why: String| ReportError::Line { path: path.to_owned(), line: number, why };
        let text = std::str::from_utf8(&line).map_err(|e| broken(e.to_string()))?.trim_ascii();
        if !text.is_empty() {
            each(text, start, end).map_err(|e| broken(e.to_string()))?;
        }
        start = end;
    }
}
