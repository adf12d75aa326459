//! The scores that are evaluated, by metric.

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

/// The table of scores in a run's folder.
pub(crate) const SCORES: &str = "scores.jsonl";

/// One metric's scores.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EvaluatedScores {
    /// How it is called: the rows' metric or column, the method of a run; with the file's name where several files have
    /// one of that name.
    pub(crate) name: String,
    /// In which direction its scores get better.
    pub(crate) direction: Direction,
    /// What the scores judge, where their rows say so.
    pub(crate) attribute: Option<String>,
    /// Where they come from, in messages: `line 3 of scores.jsonl` begins with the unit.
    pub(crate) file: String,
    pub(crate) unit: String,
    pub(crate) rows: Vec<ScoreLine>,
    /// What the run that they lie in says against the answers that they were made from.
    pub(crate) answers: AnswerDoubts,
}

/// A score or that there is none.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScoreLine {
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
    /// Both names, for tables.
    pub(crate) fn names(&self) -> [&str; 2] {
        [&self.first, &self.second]
    }
}

/// The file of scores that a path names: itself, or the one in a run's folder.
pub(crate) fn file_of(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(SCORES) } else { path.to_owned() }
}

impl AllScores {
    /// The metrics of all files.
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
            files.push(of_table(read_scores(&file).map_err(AnalysisError::Scores)?, &name, &verdict));
        }
        // A name that several files have is told apart by the file.
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

    /// Only those that are named; all where none is.
    ///
    /// What a metric counts, such as tokens beyond the model's context, says nothing of how good a text is: it is compared
    /// with gold only where it is named.
    pub(crate) fn chosen(mut self, names: &[String]) -> Result<Self, AnalysisError> {
        let names = named(names, &self.names(), "metric", "metric")?;
        self.list
            .retain(|metric| if names.is_empty() { !is_count(&metric.name) } else { names.contains(&metric.name) });
        Ok(self)
    }

    /// Two metrics to be compared: `bleu,rouge-l`.
    pub(crate) fn pair(&self, text: &str) -> Result<MetricPair, AnalysisError> {
        let names = named(&[text.to_owned()], &self.names(), "metric", "compare")?;
        match &names[..] {
            [first, second] if first != second => Ok(MetricPair { first: first.clone(), second: second.clone() }),
            _ => Err(AnalysisError::NoPair { known: self.names().join(" and ") }),
        }
    }

    /// Each name once.
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

/// Where a score stands, with whose it is: its line, file, item and candidate.
pub(crate) fn row_text(unit: &str, line: usize, file: &str, item: &str, candidate: Option<&str>) -> String {
    let candidate = candidate.map(|id| format!(", candidate `{}`", visible_line(id))).unwrap_or_default();
    format!("{unit} {line} of {file}: item `{}`{candidate}", visible_line(item))
}

/// How files are called: by their own name, a run's table by its folder's; by their paths where that tells nothing
/// apart.
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

/// Names with commas between them. A name may have commas itself (`bleu:tok=intl,smooth=floor`): the longest that is
/// known is meant.
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

/// A name that is not among the known ones.
pub(crate) fn unknown(what: &'static str, name: &str, option: &'static str, known: &[String]) -> AnalysisError {
    let near =
        nearest(name, known.iter().map(String::as_str)).map(|near| format!("did you mean `{}`? ", visible_line(near)));
    let listed: Vec<String> = known.iter().map(|name| format!("`{}`", visible_line(name))).collect();
    let (name, near) = (visible_line(name), near.unwrap_or_default());
    let known = if listed.is_empty() { "none".to_owned() } else { listed.join(", ") };
    AnalysisError::Unknown { option, what, name, near, known }
}

/// The run that a table lies in: its method, by which scores without a metric's name are called, and what it concludes,
/// where it has finished. A table of a run that was changed since gives figures of no run, and is refused; one by itself has
/// nothing to be held against.
fn own_run(file: &Path) -> Result<Option<(String, Vec<Conclusion>)>, AnalysisError> {
    let Some(folder) = file.parent() else { return Ok(None) };
    let run = match Manifest::read(folder) {
        Ok(run) => run,
        // Only a run has answers beside its tables: it has lost what says whether they are its own.
        Err(StoreError::NoRun { .. }) if !folder.join(ANSWERS).exists() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    run.check_files(folder)?;
    let method = run.info.command;
    let summary = std::fs::read(folder.join(SUMMARY)).ok();
    let summary: Option<Value> = summary.and_then(|text| serde_json::from_slice(&text).ok());
    let verdict = summary.and_then(|mut summary| serde_json::from_value(summary["verdict"].take()).ok());
    Ok(Some((method, verdict.unwrap_or_default())))
}

fn of_table(table: ScoreTable, own_name: &str, verdict: &[Conclusion]) -> Vec<EvaluatedScores> {
    // A line of a table with a column for each metric has several scores.
    let has_columns = table.rows.windows(2).any(|rows| rows[0].line == rows[1].line);
    let mut metrics: Vec<EvaluatedScores> = Vec::new();
    let mut places: BTreeMap<(String, Option<String>), usize> = BTreeMap::new();
    for row in table.rows {
        let name = row.metric.unwrap_or_else(|| own_name.to_owned());
        let place = *places.entry((name.clone(), row.attribute.clone())).or_insert_with(|| {
            let (file, unit) = (table.file.clone(), table.unit.to_string());
            let direction = Direction::of_label(&name);
            let answers = AnswerDoubts::of_run(verdict, row.attribute.as_deref());
            let (attribute, rows) = (row.attribute, Vec::new());
            metrics.push(EvaluatedScores { name, direction, attribute, file, unit, rows, answers });
            metrics.len() - 1
        });
        let (line, item, candidate, score) = (row.line, row.item, row.candidate, row.score);
        metrics[place].rows.push(ScoreLine { line, item, candidate, score });
    }
    if !has_columns {
        // Columns have an order of their own; names in rows have none that a shuffle would keep.
        metrics.sort_by(|a, b| (&a.name, &a.attribute).cmp(&(&b.name, &b.attribute)));
    }
    metrics
}
