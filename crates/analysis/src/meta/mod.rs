//! Compares scores with human judgements: the figures of `meta`.

mod align;
mod evaluate;
mod judged;
mod options;
mod people;
mod preference;
mod scores;
mod tables;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use probity_data::{is_score_table, read_labels};
use probity_store::SAMPLES;
use serde_json::{Value, json};

use crate::conclusion::Conclusion;
use crate::error::AnalysisError;
use crate::headline::Headline;
use crate::table::Table;
use crate::trust::ToLabel;
use align::AlignedScores;
use evaluate::Evaluation;
use people::GoldScores;
use scores::{AllScores, MetricPair};
use tables::tables;

pub use options::MetaParams;
pub(crate) use scores::{SCORES, file_of, unknown};

/// Scores, and the gold to compare them with.
pub struct MetaInputs {
    metrics: AllScores,
    gold: GoldScores,
    pairs: Vec<MetricPair>,
}

/// Results of comparing scores with gold.
pub struct MetaFindings {
    /// All figures.
    pub values: Value,
    /// All figures as tables.
    pub tables: Vec<Table>,
    /// A figure for each metric and attribute.
    pub headline: Vec<Headline>,
    /// Which metrics agree best with people, and how far to trust it.
    pub verdict: Vec<Conclusion>,
    /// Number of scores by outcome.
    pub outcomes: [(&'static str, usize); 5],
    /// What to label next.
    pub to_label: ToLabel,
}

impl MetaParams {
    /// Input files, each with its option.
    pub fn files(&self) -> Vec<(&'static str, PathBuf)> {
        let scores = self.scores.iter().map(|path| ("scores", file_of(path)));
        let labels = self.labels.iter().map(|path| ("labels", path.clone()));
        scores.chain(self.gold_path().map(|path| ("gold", path))).chain(labels).collect()
    }

    /// `--gold`, or the samples of the first run that kept any.
    fn gold_path(&self) -> Option<PathBuf> {
        let kept = || self.scores.iter().map(|path| path.join(SAMPLES)).find(|path| path.is_file());
        self.gold.clone().or_else(kept)
    }
}

impl MetaInputs {
    /// Reads all files and checks that each metric has a score with gold.
    ///
    /// # Errors
    /// If a file is unreadable, an option has an unknown name, or a metric has no score with gold.
    pub fn read(params: &MetaParams) -> Result<Self, AnalysisError> {
        let metrics = AllScores::read(&params.scores)?.chosen(&params.metric)?;
        let gold = match params.gold_path() {
            Some(path) if is_score_table(&path) => GoldScores::from_table(&path)?,
            Some(path) => GoldScores::from_samples(params.read.samples(&path).map_err(AnalysisError::Gold)?, &path),
            None if params.labels.is_empty() => return Err(AnalysisError::NoGold),
            None => GoldScores::default(),
        };
        let labels = params.labels.iter().map(|path| read_labels(path)).collect::<Result<Vec<_>, _>>();
        let scored = metrics.list.iter().flat_map(|metric| &metric.rows);
        let scored = scored.filter_map(|row| Some((row.item.as_str(), row.candidate.as_deref()?))).collect();
        let gold = gold.with_labels(&labels.map_err(AnalysisError::Labels)?, &scored)?.chosen(&params.attribute)?;
        let pairs = params.compare.iter().map(|text| metrics.pair(text)).collect::<Result<_, _>>()?;
        let inputs = Self { metrics, gold, pairs };
        inputs.aligned()?;
        Ok(inputs)
    }

    /// The names of the metrics, comma-separated.
    pub fn metric_names(&self) -> String {
        self.metrics.names().join(",")
    }

    /// Computes all figures. `keeps_rows`: whether the rows of [`MetaFindings::to_label`] are written to files that the
    /// tables may name. `going_on` is called between figures, since these can take long; its error stops the work.
    ///
    /// # Errors
    /// If a pair of metrics has no score in common, or `going_on` fails.
    pub fn evaluate<E: From<AnalysisError>>(
        &self,
        params: &MetaParams,
        keeps_rows: bool,
        going_on: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<MetaFindings, E> {
        let (aligned, resampling) = (self.aligned()?, params.resampling());
        let mut evaluation = Evaluation::compute(&aligned, &self.gold, &resampling, going_on)?;
        if params.average {
            evaluation.average();
        }
        evaluation.compare(&self.pairs, &aligned, &self.gold, &resampling)?;
        let to_label = evaluation.trust(&aligned, &self.gold, params.promise());
        Ok(MetaFindings {
            values: json!(evaluation),
            tables: tables(&evaluation, &resampling, params.details, keeps_rows),
            headline: evaluation.headline(),
            verdict: evaluation.conclusions(),
            outcomes: evaluation.outcomes(),
            to_label,
        })
    }

    fn aligned(&self) -> Result<Vec<AlignedScores<'_>>, AnalysisError> {
        self.metrics.list.iter().map(|metric| AlignedScores::new(metric, &self.gold)).collect()
    }
}
