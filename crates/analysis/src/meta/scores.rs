//! The evaluated scores by metric.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use probity_data::{ScoreTable, read_scores};
use probity_lm::nearest;
use probity_lm::text::visible_line;
use probity_metrics::{Direction, is_count};
use probity_store::{ANSWERS, Manifest, SUMMARY, StoreError};
use serde::Serialize;
use serde_json::Value;

use crate::conclusion::{AnswerDoubts, Conclusion};
use crate::error::AnalysisError;

/// Table of scores in a run folder.
pub(crate) const SCORES: &str = "scores.jsonl";

/// Scores of one metric.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EvaluatedScores {
    /// Name: the rows' metric or column, or the run's method; with the file's name if several files have this name.
    pub(crate) name: String,
    /// Whether higher or lower scores are better.
    pub(crate) direction: Direction,
    /// Attribute, if the rows name one.
    pub(crate) attribute: Option<String>,
    /// File of the scores, for messages.
    pub(crate) file: String,
    pub(crate) unit: String,
    pub(crate) rows: Vec<MetaScoreLine>,
    /// Doubts about the answers of the scores' run.
    pub(crate) answers: AnswerDoubts,
}

/// A row with or without a score.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MetaScoreLine {
    pub(crate) line: usize,
    pub(crate) item: String,
    pub(crate) candidate: Option<String>,
    pub(crate) score: Option<f64>,
}

/// All metrics, in the order of files and rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AllScores {
    pub(crate) list: Vec<EvaluatedScores>,
}

/// Two metrics to be compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct MetricPair {
    pub(crate) first: String,
    pub(crate) second: String,
}

impl MetricPair {
    /// Both names.
    pub(crate) fn names(&self) -> [&str; 2] {
        [&self.first, &self.second]
    }
}

/// The file of scores at a path, which may be a run folder.
pub(crate) fn file_of(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(SCORES) } else { path.to_owned() }
}

impl AllScores {
    /// Reads the metrics of all files.
    pub(crate) fn read(paths: &[PathBuf]) -> Result<Self, AnalysisError> {
        let mut files = Vec::new();
        for path in paths {
            let file = file_of(path);
            if paths[..files.len()].iter().any(|before| file_of(before) == file) {
                return Err(AnalysisError::ScoresTwice { path: path.display().to_string() });
            }
            if path.is_dir() && !file.is_file() {
                return Err(AnalysisError::NoScores { path: path.display().to_string(), name: SCORES });
            }
            let (name, verdict) = own_run(&file)?.unwrap_or_else(|| ("score".to_owned(), Vec::new()));
            files.push(scores_by_metric(read_scores(&file).map_err(AnalysisError::Scores)?, &name, &verdict));
        }
        // If several files have the same metric, the file's name is added.
        let mut files_with: BTreeMap<String, usize> = BTreeMap::new();
        for metrics in &files {
            let names: BTreeSet<&String> = metrics.iter().map(|metric| &metric.name).collect();
            for name in names {
                *files_with.entry(name.clone()).or_default() += 1;
            }
        }
        let mut list = Vec::new();
        for (metrics, label) in files.into_iter().zip(labels(paths)) {
            for metric in metrics {
                let several = files_with[&metric.name] > 1;
                let name = if several { format!("{} ({label})", metric.name) } else { metric.name.clone() };
                list.push(EvaluatedScores { name, ..metric });
            }
        }
        Ok(Self { list })
    }

    /// Selects the named metrics, or all if none is named.
    ///
    /// Counts, such as the number of tokens beyond the model's context, do not measure quality. They are compared with
    /// gold only if named.
    pub(crate) fn chosen(mut self, names: &[String]) -> Result<Self, AnalysisError> {
        let names = named(names, &self.names(), "metric", "metric")?;
        self.list
            .retain(|metric| if names.is_empty() { !is_count(&metric.name) } else { names.contains(&metric.name) });
        Ok(self)
    }

    /// Parses two metrics to compare: `bleu,rouge-l`.
    pub(crate) fn pair(&self, text: &str) -> Result<MetricPair, AnalysisError> {
        let names = named(&[text.to_owned()], &self.names(), "metric", "compare")?;
        match &names[..] {
            [first, second] if first != second => Ok(MetricPair { first: first.clone(), second: second.clone() }),
            _ => Err(AnalysisError::NoPair { known: self.names().join(" and ") }),
        }
    }

    /// Names without duplicates.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for metric in self.list.iter().filter(|metric| !metric.name.is_empty()) {
            if !names.contains(&metric.name) {
                names.push(metric.name.clone());
            }
        }
        names
    }
}

/// Location and subject of a score: line, file, item and candidate.
pub(crate) fn row_text(unit: &str, line: usize, file: &str, item: &str, candidate: Option<&str>) -> String {
    let candidate = candidate.map(|id| format!(", candidate `{}`", visible_line(id))).unwrap_or_default();
    format!("{unit} {line} of {file}: item `{}`{candidate}", visible_line(item))
}

/// Short names of files: the file stem, or the folder of a run's table; full paths if these are not distinct.
fn labels(paths: &[PathBuf]) -> Vec<String> {
    let short = |path: &PathBuf| {
        let file = file_of(path);
        let named =
            if file.file_name().is_some_and(|name| name == SCORES) { file.parent() } else { Some(file.as_path()) };
        let stem = named.and_then(Path::file_stem);
        stem.map_or_else(|| path.display().to_string(), |stem| stem.to_string_lossy().into_owned())
    };
    let labels: Vec<String> = paths.iter().map(short).collect();
    let distinct: BTreeSet<&String> = labels.iter().collect();
    if distinct.len() == labels.len() { labels } else { paths.iter().map(|path| path.display().to_string()).collect() }
}

/// Parses comma-separated names. A name may contain commas (`bleu:tok=intl,smooth=floor`); the longest known name is
/// used.
pub(crate) fn named(
    texts: &[String],
    known: &[String],
    what: &'static str,
    option: &'static str,
) -> Result<Vec<String>, AnalysisError> {
    let mut names = Vec::new();
    for text in texts {
        let pieces: Vec<&str> = text.split(',').map(str::trim).collect();
        let mut at = 0;
        while at < pieces.len() {
            let ends = (at + 1..=pieces.len()).rev().map(|end| (end, pieces[at..end].join(",")));
            let found = ends.into_iter().find(|(_, name)| known.contains(name));
            let (end, name) = found.ok_or_else(|| unknown(what, pieces[at], option, known))?;
            names.push(name);
            at = end;
        }
    }
    Ok(names)
}

/// The error for an unknown name.
pub(crate) fn unknown(what: &'static str, name: &str, option: &'static str, known: &[String]) -> AnalysisError {
    let near =
        nearest(name, known.iter().map(String::as_str)).map(|near| format!("did you mean `{}`? ", visible_line(near)));
    let listed: Vec<String> = known.iter().map(|name| format!("`{}`", visible_line(name))).collect();
    let (name, near) = (visible_line(name), near.unwrap_or_default());
    let known = if listed.is_empty() { "none".to_owned() } else { listed.join(", ") };
    AnalysisError::Unknown { option, what, name, near, known }
}

/// Method and conclusions of the run that contains a table; `None` for a table outside a run. The method names scores
/// without a metric. A table that was changed after the run is an error.
fn own_run(file: &Path) -> Result<Option<(String, Vec<Conclusion>)>, AnalysisError> {
    let Some(folder) = file.parent() else { return Ok(None) };
    let run = match Manifest::read(folder) {
        Ok(run) => run,
        // Only runs have a database of answers, so this run has lost its manifest.
        Err(StoreError::NoRun(_)) if !folder.join(ANSWERS).exists() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    run.check_files(folder)?;
    let method = run.info.command;
    let summary = std::fs::read(folder.join(SUMMARY)).ok();
    let summary: Option<Value> = summary.and_then(|text| serde_json::from_slice(&text).ok());
    let verdict = summary.and_then(|mut summary| serde_json::from_value(summary["verdict"].take()).ok());
    Ok(Some((method, verdict.unwrap_or_default())))
}

fn scores_by_metric(table: ScoreTable, own_name: &str, verdict: &[Conclusion]) -> Vec<EvaluatedScores> {
    // In a table with a column for each metric, a line has several scores.
    let has_columns = table.rows.windows(2).any(|rows| rows[0].line == rows[1].line);
    let mut metrics: Vec<EvaluatedScores> = Vec::new();
    let mut places: BTreeMap<(String, Option<String>), usize> = BTreeMap::new();
    for row in table.rows {
        let name = row.metric.unwrap_or_else(|| own_name.to_owned());
        let place = *places.entry((name.clone(), row.attribute.clone())).or_insert_with(|| {
            let (file, unit) = (table.file.clone(), table.unit.to_string());
            let direction = Direction::for_metric(&name);
            let answers = AnswerDoubts::from_conclusions(verdict, row.attribute.as_deref());
            let (attribute, rows) = (row.attribute, Vec::new());
            metrics.push(EvaluatedScores { name, direction, attribute, file, unit, rows, answers });
            metrics.len() - 1
        });
        let (line, item, candidate, score) = (row.line, row.item, row.candidate, row.score);
        metrics[place].rows.push(MetaScoreLine { line, item, candidate, score });
    }
    if !has_columns {
        // Columns keep their order; metrics named in rows are sorted, so that the order of rows does not matter.
        metrics.sort_by(|a, b| (&a.name, &a.attribute).cmp(&(&b.name, &b.attribute)));
    }
    metrics
}
