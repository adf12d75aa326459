//! Tables and samples, line by line.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;

use crate::ReportError;

/// A row of a comparisons table: what figures need of it.
#[derive(Debug, Deserialize)]
pub(crate) struct ComparisonRow<'a> {
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

/// A row of a scores table.
#[derive(Debug, Deserialize)]
pub(crate) struct CandidateScoreRow<'a> {
    #[serde(borrow)]
    pub(crate) item: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) attribute: Cow<'a, str>,
    /// Which number it is, where a run has several of a candidate.
    #[serde(borrow, default)]
    pub(crate) metric: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) candidate: Cow<'a, str>,
    pub(crate) score: Option<f64>,
    pub(crate) mass: Option<f64>,
    #[serde(borrow, default)]
    pub(crate) outcome: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) answers: Vec<AnswerRow<'a>>,
}

/// One answer behind a score.
#[derive(Debug, Deserialize)]
pub(crate) struct AnswerRow<'a> {
    pub(crate) mass: Option<f64>,
    #[serde(borrow, default)]
    pub(crate) outcome: Cow<'a, str>,
}

/// What any row belongs to, and how it ended.
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

/// The fields that say what a row belongs to, the first that it has.
pub(crate) const BELONGS_TO: [&str; 3] = ["item", "id", "document"];

impl OtherRow<'_> {
    /// Its sample; of methods that read none, its question or its document.
    pub(crate) fn belongs_to(&self) -> Option<&str> {
        [&self.item, &self.id, &self.document].into_iter().find_map(Option::as_deref)
    }
}

/// A stretch of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextStretch {
    pub(crate) table: u16,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Calls `each` with every line of a file and where it lies. A last line without its end is what a kill left, and is
/// passed over; `each` says what is wrong with any other.
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
