//! The table of the features of all candidates.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use probity_data::{Sample, read_scores};
use probity_learn::{ColumnBlock, FeatureTable};
use probity_lm::text::counted;
use probity_lm::{Outcome, PooledState};

use super::features::{CandidateFeatures, LIKELIHOOD};
use super::options::{FeatureBlock, LOG_PROBABILITY};
use super::surface::SURFACE;
use crate::question::short_hash;
use crate::{MethodError, Outcomes, Signature};

/// Further statistics of the same log-probabilities have half the weight: they are highly correlated, and with few
/// labels the head would overfit their differences.
const LIKELIHOOD_WEIGHT: f64 = 0.5;
/// The name of the block of provided scores.
pub(super) const SCORES_BLOCK: &str = "scores";

/// Scores from files, as columns.
#[derive(Debug, Default)]
pub(super) struct GivenScores {
    /// The names of the columns.
    columns: Vec<String>,
    /// The values of all columns by item and candidate.
    values: BTreeMap<(String, String), Vec<Option<f64>>>,
    /// Notes about the scores.
    pub(super) notes: Vec<String>,
}

impl GivenScores {
    /// Reads tables of scores. Rows of texts outside the data are counted and ignored.
    pub(super) fn read(paths: &[PathBuf], samples: &[Sample]) -> Result<Self, MethodError> {
        let mut given = Self::default();
        let known: BTreeMap<&str, &Sample> = samples.iter().map(|sample| (sample.id.as_str(), sample)).collect();
        for (number, path) in paths.iter().enumerate() {
            let table = read_scores(path)
                .map_err(|source| MethodError::Other { option: Some("scores"), source: Box::new(source) })?;
            let (mut foreign, mut first, rows) = (0, None, table.rows.len());
            for row in table.rows {
                let named = [row.metric, row.attribute].into_iter().flatten().collect::<Vec<_>>().join("/");
                let name = if named.is_empty() { "score".to_owned() } else { named };
                // Tables may share column names; a number tells them apart.
                let name = if paths.len() > 1 { format!("{}.{name}", number + 1) } else { name };
                let place = given.columns.iter().position(|known| *known == name).unwrap_or_else(|| {
                    given.columns.push(name);
                    given.columns.len() - 1
                });
                let sample = known.get(row.item.as_str());
                let candidate = match (&row.candidate, sample) {
                    (Some(id), Some(sample)) => sample.candidate(id),
                    (None, Some(sample)) if sample.candidates.len() == 1 => sample.candidates.first(),
                    _ => None,
                };
                let Some(candidate) = candidate else {
                    foreign += 1;
                    first.get_or_insert((row.line, row.item, row.candidate.unwrap_or_default()));
                    continue;
                };
                let values = given.values.entry((row.item, candidate.id.clone())).or_default();
                values.resize(values.len().max(place + 1), None);
                values[place] = row.score;
            }
            if first.is_some() && foreign == rows {
                let why = format!("none of its {} belongs to these data", counted(rows, "score"));
                let hint = "pass scores of the samples of --data: `item` and `candidate` are their ids";
                return MethodError::refuse(format!("--scores {}", path.display()), why, hint);
            }
            if let Some((line, item, candidate)) = first {
                given.notes.push(format!(
                    "{} of {} belong to texts outside the data and are ignored; the first is candidate `{}` of `{}` on \
                     line {line}",
                    counted(foreign, "score"),
                    table.file,
                    candidate.escape_debug(),
                    item.escape_debug(),
                ));
            }
        }
        Ok(given)
    }

    /// Whether the column exists.
    pub(super) fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|known| known == column)
    }

    /// Adds the content of the scores to a signature, if any.
    pub(super) fn sign(&self, signature: Signature) -> Signature {
        if self.columns.is_empty() {
            return signature;
        }
        let rows: Vec<String> =
            self.values.iter().map(|row| serde_json::to_string(&row).expect("plain values")).collect();
        signature.with("scores", &short_hash(self.columns.iter().chain(&rows).map(String::as_str)))
    }

    /// All columns of a candidate; `None` if one is missing.
    fn row(&self, item: &str, candidate: &str) -> Option<Vec<f64>> {
        if self.columns.is_empty() {
            return Some(Vec::new());
        }
        let values = self.values.get(&(item.to_owned(), candidate.to_owned()))?;
        let values: Vec<f64> = values.iter().map_while(|value| *value).collect();
        (values.len() == self.columns.len()).then_some(values)
    }
}

/// A table with a row for each candidate that has all features.
#[derive(Debug)]
pub(super) struct FeaturedCandidates {
    pub(super) table: FeatureTable,
    /// The row of each candidate, by sample and position.
    pub(super) rows: Vec<Vec<Option<usize>>>,
    /// The outcomes of the candidates.
    pub(super) outcomes: Outcomes,
    /// The context of each sample.
    pub(super) contexts: Vec<usize>,
    /// Notes about the contexts.
    pub(super) notes: Vec<String>,
}

impl FeaturedCandidates {
    /// Combines these blocks and provided scores.
    pub(super) fn new(
        samples: &[Sample],
        parts: &[CandidateFeatures],
        blocks: &[FeatureBlock],
        scores: &GivenScores,
    ) -> Result<Self, MethodError> {
        let states = parts.iter().flat_map(|part| [&part.state, &part.comparison]);
        let width = states.flatten().map(|state| state.values.len()).next().unwrap_or(0);
        let places: Vec<String> = (0..width).map(|place| place.to_string()).collect();
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
        let mut described: Vec<ColumnBlock> = Vec::new();
        for block in blocks {
            match block {
                FeatureBlock::Likelihood => {
                    described.push(ColumnBlock::new(LOG_PROBABILITY, &LIKELIHOOD[..1]));
                    let rest = ColumnBlock::new(&block.name(), &LIKELIHOOD[1..]);
                    described.push(ColumnBlock { weight: LIKELIHOOD_WEIGHT, ..rest });
                }
                FeatureBlock::Surface => described.push(ColumnBlock::new(&block.name(), &SURFACE)),
                FeatureBlock::State | FeatureBlock::Comparison => {
                    described.push(ColumnBlock::new(&block.name(), &places));
                }
            }
        }
        if !scores.columns.is_empty() {
            let columns: Vec<&str> = scores.columns.iter().map(String::as_str).collect();
            described.push(ColumnBlock::new(SCORES_BLOCK, &columns));
        }
        let mut outcomes = Outcomes::default();
        let (mut rows, mut values) = (Vec::new(), Vec::new());
        let mut parts = parts.iter();
        for sample in samples {
            let mut of_sample = Vec::new();
            for candidate in &sample.candidates {
                let part = parts.next().expect("features of each candidate");
                let own = block_values(part, blocks).zip(scores.row(&sample.id, &candidate.id));
                match &own {
                    None if part.outcome == Outcome::Scored => outcomes.add_named("no_features"),
                    _ => outcomes.add(&part.outcome),
                }
                of_sample.push(own.map(|(own, given)| {
                    values.push([own, given].concat());
                    values.len() - 1
                }));
            }
            rows.push(of_sample);
        }
        let table = FeatureTable::new(described, &values)
            .map_err(|source| MethodError::Other { option: Some("from"), source: Box::new(TableProblem(source)) })?;
        let contexts = contexts(samples);
        let count = contexts.iter().collect::<BTreeSet<_>>().len();
        let shared = (count < samples.len()).then(|| {
            format!(
                "{} share {}; samples with the same text are held out together",
                counted(samples.len(), "sample"),
                counted(count, "text")
            )
        });
        Ok(Self { table, rows, outcomes, contexts, notes: shared.into_iter().collect() })
    }

    /// A table with one constant column, for checks before features exist.
    pub(super) fn without_values(samples: &[Sample]) -> Self {
        let mut count = 0..;
        let rows: Vec<Vec<Option<usize>>> =
            samples.iter().map(|sample| count.by_ref().take(sample.candidates.len()).map(Some).collect()).collect();
        let values = vec![vec![0.0]; rows.iter().map(Vec::len).sum()];
        let table = FeatureTable::new(vec![ColumnBlock::new("nothing", &["nothing"])], &values).expect("a number each");
        Self { table, rows, outcomes: Outcomes::default(), contexts: contexts(samples), notes: Vec::new() }
    }

    /// The table as used for learning and scoring: centred within contexts if requested, and clipped to the returned
    /// ranges.
    pub(super) fn prepared(&self, centred: bool) -> (FeatureTable, Vec<[f64; 2]>) {
        let table = if centred { self.table.centred(&self.groups()) } else { self.table.clone() };
        let ends = table.usual();
        (table.within(&ends), ends)
    }

    /// The column that needs no labels, if present.
    pub(super) fn log_probability(&self) -> Option<FeatureTable> {
        self.table.select(&[ColumnBlock::new(LOG_PROBABILITY, &LIKELIHOOD[..1])])
    }

    /// The context of each row.
    pub(super) fn groups(&self) -> Vec<usize> {
        let mut groups = vec![0; self.table.rows()];
        for (context, rows) in self.contexts.iter().zip(&self.rows) {
            for row in rows.iter().flatten() {
                groups[*row] = *context;
            }
        }
        groups
    }

    /// The number of candidates with features.
    pub(super) fn count(&self) -> usize {
        self.rows.iter().flatten().flatten().count()
    }
}

/// The context of each sample. Samples with the same text and instruction share a context whatever their ids, since
/// labels of one are informative about the other. If all samples have the same context or none, each is its own.
/// Contexts are numbered by id, so that the order of the file has no effect.
pub(super) fn contexts(samples: &[Sample]) -> Vec<usize> {
    let about = |sample: &Sample| -> (String, String) {
        let instruction = sample.instruction.as_deref().unwrap_or_default();
        (sample.context.trim().to_owned(), instruction.trim().to_owned())
    };
    let of_samples: Vec<(String, String)> = samples.iter().map(about).collect();
    let are_told_apart = of_samples.iter().collect::<BTreeSet<_>>().len() > 1;
    // The smallest id among samples with the same text.
    let mut names: BTreeMap<&(String, String), &str> = BTreeMap::new();
    for (sample, about) in samples.iter().zip(&of_samples) {
        let name = names.entry(about).or_insert(&sample.id);
        *name = (*name).min(&sample.id);
    }
    let name = |(sample, about): (&Sample, &(String, String))| -> String {
        let is_about_nothing = about.0.is_empty() && about.1.is_empty();
        if are_told_apart && !is_about_nothing { names[about].to_owned() } else { sample.id.clone() }
    };
    let named: Vec<String> = samples.iter().zip(&of_samples).map(name).collect();
    let sorted: Vec<&String> = named.iter().collect::<BTreeSet<_>>().into_iter().collect();
    named.iter().map(|name| sorted.binary_search(&name).expect("one of them")).collect()
}

/// Features that do not make a table.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("inconsistent features: {0}")]
#[diagnostic(help(
    "use a `features.jsonl` from a single run with one model and one layer, and scores on a usual scale"
))]
struct TableProblem(probity_learn::TableError);

fn numbers(state: &PooledState) -> impl Iterator<Item = f64> {
    state.values.iter().map(|value| f64::from(*value))
}

/// A candidate's values in these blocks; `None` if any is missing.
fn block_values(part: &CandidateFeatures, blocks: &[FeatureBlock]) -> Option<Vec<f64>> {
    if !part.outcome.has_answer() {
        return None;
    }
    let mut values = Vec::new();
    for block in blocks {
        match block {
            FeatureBlock::Likelihood => values.extend(part.likelihood.as_ref()?),
            FeatureBlock::Surface => values.extend(&part.surface),
            FeatureBlock::State => values.extend(numbers(part.state.as_ref()?)),
            FeatureBlock::Comparison => values.extend(numbers(part.comparison.as_ref()?)),
        }
    }
    Some(values)
}
