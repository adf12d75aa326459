//! The scores of one side of a comparison, by attribute and item.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use probity_data::{JsonLines, open_regular, read_scores};
use probity_metrics::Direction;
use probity_stats::reweighted;
use probity_store::SUMMARY;
use serde::Deserialize;
use serde_json::Value;

use super::ROUNDING;
use super::alike::manifest;
use crate::error::AnalysisError;
use crate::meta::{SCORES, file_of, unknown};

/// Running mean of scores.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Mean {
    sum: f64,
    count: usize,
}

impl Mean {
    fn add(&mut self, score: f64) {
        self.sum += score;
        self.count += 1;
    }

    /// `None` without scores.
    fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// Score of a text, overall and for each way in which the judge was queried.
#[derive(Debug, Default, Clone)]
pub(super) struct TextScores {
    score: Mean,
    by_way: BTreeMap<String, Mean>,
}

impl TextScores {
    fn is_scored(&self) -> bool {
        self.score.count > 0
    }
}

/// Texts of an item by candidate, including those without a score.
pub(super) type ItemTexts = BTreeMap<String, TextScores>;

/// Scores by attribute, then by item.
pub(super) type Side = BTreeMap<String, (Direction, BTreeMap<String, ItemTexts>)>;

/// Number of items with a score for any attribute.
pub(super) fn scored_items(side: &Side) -> usize {
    let is_scored = |texts: &ItemTexts| texts.values().any(TextScores::is_scored);
    let scored = side.values().flat_map(|(_, items)| items).filter(|(_, texts)| is_scored(texts));
    scored.map(|(item, _)| item).collect::<BTreeSet<_>>().len()
}

/// An item on both sides.
#[derive(Debug, Default)]
pub(super) struct PairedItem {
    /// Means of the baseline and of the run; absent unless both have a score to compare.
    pub(super) means: Option<[f64; 2]>,
    /// The same means for each way in which both were queried.
    pub(super) by_way: BTreeMap<String, [f64; 2]>,
    /// Texts with a score in the baseline and none in the run.
    pub(super) missing: usize,
}

impl PairedItem {
    /// Pairs texts by name. If the sides share no name, the item means are compared.
    pub(super) fn new(now: &ItemTexts, before: &ItemTexts) -> Self {
        let scored = |texts: &ItemTexts| texts.values().filter(|text| text.is_scored()).count();
        let (here, there): (Vec<&TextScores>, Vec<&TextScores>);
        let missing = if now.keys().any(|name| before.contains_key(name)) {
            let pairs = now.iter().filter_map(|(name, here)| Some((here, before.get(name)?)));
            (here, there) = pairs.filter(|(here, there)| here.is_scored() && there.is_scored()).unzip();
            scored(before) - here.len()
        } else {
            (here, there) = (now.values().collect(), before.values().collect());
            scored(before).saturating_sub(scored(now))
        };
        let means = Option::zip(mean(&there), mean(&here)).map(|(there, here)| [there, here]);
        let way = |way: &String| Some((way.clone(), [way_mean(&there, way)?, way_mean(&here, way)?]));
        let ways = here.first().into_iter().flat_map(|text| text.by_way.keys());
        Self { means, by_way: ways.filter_map(way).collect(), missing }
    }
}

fn mean(texts: &[&TextScores]) -> Option<f64> {
    let mut all = Mean::default();
    texts.iter().filter_map(|text| text.score.value()).for_each(|score| all.add(score));
    all.value()
}

/// `None` if a text was not queried in this way.
fn way_mean(texts: &[&TextScores], way: &str) -> Option<f64> {
    let mut all = Mean::default();
    for text in texts.iter().filter(|text| text.is_scored()) {
        all.add(text.by_way.get(way).copied()?.value()?);
    }
    all.value()
}

/// Whether the scores are shares of a constant total per item, so that their mean does not depend on the texts.
pub(super) fn are_shares(items: &BTreeMap<String, ItemTexts>) -> bool {
    let scores = |texts: &ItemTexts| texts.values().filter_map(|text| text.score.value()).collect::<Vec<_>>();
    let several: Vec<Vec<f64>> = items.values().map(scores).filter(|scores| scores.len() > 1).collect();
    let mean = |scores: &Vec<f64>| scores.iter().sum::<f64>() / scores.len() as f64;
    let differ = |scores: &Vec<f64>| scores.iter().any(|score| (score - scores[0]).abs() > ROUNDING);
    several.len() > 1
        && several.iter().all(|scores| (mean(scores) - mean(&several[0])).abs() <= ROUNDING)
        && several.iter().any(differ)
}

/// Fields of a row that identify the template of each answer.
#[derive(Deserialize)]
struct AskedRow {
    item: String,
    #[serde(default)]
    candidate: Option<String>,
    #[serde(default)]
    attribute: Option<String>,
    #[serde(default)]
    metric: Option<String>,
    #[serde(default)]
    answers: Vec<TemplateAnswer>,
}

#[derive(Deserialize)]
struct TemplateAnswer {
    #[serde(default)]
    template: Option<String>,
    #[serde(default)]
    score: Option<f64>,
}

/// Scores of a table, or of one of its candidates.
pub(super) fn side(folder: &Path, candidate: Option<&str>) -> Result<Side, AnalysisError> {
    let mut side = Side::new();
    let file = file_of(folder);
    if folder.is_dir() && !file.is_file() {
        return Err(AnalysisError::NoScores { path: folder.display().to_string(), name: SCORES });
    }
    // A changed table of a finished run no longer belongs to the run.
    if let Some(run) = manifest(folder)? {
        run.check_files(folder)?;
    }
    let is_asked = |id: Option<&str>| candidate.is_none_or(|candidate| id == Some(candidate));
    // If a candidate is selected, it is the only text of its side.
    let text = |id: Option<String>| id.filter(|_| candidate.is_none()).unwrap_or_default();
    let table = read_scores(&file).map_err(AnalysisError::Scores)?;
    for row in table.rows.into_iter().filter(|row| is_asked(row.candidate.as_deref())) {
        let direction = row.metric.as_deref().map_or(Direction::HigherIsBetter, Direction::for_metric);
        let name = name(row.attribute.as_deref(), row.metric.as_deref());
        let (_, items) = side.entry(name).or_insert((direction, BTreeMap::new()));
        let text = items.entry(row.item).or_default().entry(text(row.candidate)).or_default();
        row.score.into_iter().for_each(|score| text.score.add(score));
    }
    if file.extension().is_none_or(|ending| ending != "jsonl") {
        return Ok(side);
    }
    // Other tables have no such fields; malformed lines are reported by `read_scores` above.
    for (_, row) in JsonLines::<AskedRow, _>::new(open_regular(&file).map_err(AnalysisError::Scores)?) {
        let Ok(AskedRow { item, candidate, attribute, metric, answers }) = row else { continue };
        let Some((_, items)) = side.get_mut(&name(attribute.as_deref(), metric.as_deref())) else { continue };
        let texts = items.get_mut(&item).filter(|_| is_asked(candidate.as_deref()));
        let Some(text) = texts.and_then(|texts| texts.get_mut(&text(candidate))) else { continue };
        for TemplateAnswer { template, score } in answers {
            if let (Some(template), Some(score)) = (template, score) {
                text.by_way.entry(template).or_default().add(score);
            }
        }
    }
    Ok(side)
}

/// Table of a `compare` run.
pub(super) const COMPARISONS: &str = "comparisons.jsonl";
/// Table of a `judge` run. Pairwise rows have the same fields.
const VERDICTS: &str = "verdicts.jsonl";

/// Two candidates in presentation order.
#[derive(Deserialize)]
struct ComparedRow {
    item: String,
    #[serde(default)]
    attribute: Option<String>,
    #[serde(default)]
    candidate_i: Option<String>,
    #[serde(default)]
    candidate_j: Option<String>,
    /// Probability that the first is better.
    #[serde(default)]
    p: Option<f64>,
    /// The verdict, if there is no probability.
    #[serde(default)]
    choice: Option<String>,
    #[serde(default)]
    template: Option<Value>,
    #[serde(default)]
    judge: Option<String>,
}

impl ComparedRow {
    /// Share of the first from 0 to 1; `None` without a verdict.
    fn share(&self, thresholds: &Thresholds) -> Option<f64> {
        self.p.map(|p| thresholds.apply(self, p)).or_else(|| match self.choice.as_deref()? {
            "first" => Some(1.0),
            "second" => Some(0.0),
            "tie" => Some(0.5),
            _ => None,
        })
    }
}

/// Debiasing threshold τ by attribute and template. Empty if the run has no summary or was not debiased.
struct Thresholds(BTreeMap<(String, String), f64>);

impl Thresholds {
    fn from_run(run: &Path) -> Self {
        let summary = std::fs::read(run.join(SUMMARY)).ok();
        let summary: Option<Value> = summary.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let prompts = summary.as_ref().and_then(|summary| summary["values"]["prompts"].as_array());
        let threshold = |prompt: &Value| {
            let text = |name: &str| prompt[name].as_str().map(str::to_owned);
            Some(((text("attribute")?, text("template")?), prompt["tau"].as_f64()?))
        };
        Self(prompts.into_iter().flatten().filter_map(threshold).collect())
    }

    fn apply(&self, row: &ComparedRow, p: f64) -> f64 {
        let key = row.attribute.clone().zip(row.template.as_ref().and_then(Value::as_str).map(str::to_owned));
        key.and_then(|key| self.0.get(&key)).map_or(p, |tau| reweighted(p, *tau))
    }
}

/// Win shares of two candidates.
pub(super) struct ComparedSides {
    pub(super) sides: [Side; 2],
    /// Whether probabilities are debiased, like those used for the run's scores.
    pub(super) debiased: bool,
}

/// Returns an error if the run has candidates and none has this id.
pub(super) fn check_candidate(run: &Path, id: &str) -> Result<(), AnalysisError> {
    let mut known: BTreeSet<String> = BTreeSet::new();
    if let Some(file) = comparisons_of(run) {
        for (_, row) in JsonLines::<ComparedRow, _>::new(open_regular(&file).map_err(AnalysisError::Scores)?) {
            // Malformed lines are reported by `compared`.
            let Ok(ComparedRow { candidate_i, candidate_j, .. }) = row else { continue };
            known.extend([candidate_i, candidate_j].into_iter().flatten());
        }
    }
    let file = file_of(run);
    if known.is_empty() && file.is_file() {
        let table = read_scores(&file).map_err(AnalysisError::Scores)?;
        known.extend(table.rows.into_iter().filter_map(|row| row.candidate));
    }
    if known.is_empty() || known.contains(id) {
        return Ok(());
    }
    Err(unknown("candidate", id, "candidates", &known.into_iter().collect::<Vec<_>>()))
}

fn comparisons_of(run: &Path) -> Option<PathBuf> {
    [COMPARISONS, VERDICTS].map(|name| run.join(name)).into_iter().find(|file| file.is_file())
}

/// Win shares of two candidates of a pairwise run; `None` for other runs.
pub(super) fn compared(run: &Path, new: &str, old: &str) -> Result<Option<ComparedSides>, AnalysisError> {
    let Some(file) = comparisons_of(run) else { return Ok(None) };
    let thresholds = Thresholds::from_run(run);
    let mut sides = [Side::new(), Side::new()];
    let mut has_pairs = false;
    for (line, row) in JsonLines::<ComparedRow, _>::new(open_regular(&file).map_err(AnalysisError::Scores)?) {
        let row = row.map_err(|error| AnalysisError::Row {
            place: format!("line {line} of {}", file.display()),
            why: error.to_string(),
        })?;
        let (Some(i), Some(j)) = (&row.candidate_i, &row.candidate_j) else { continue };
        has_pairs = true;
        let is_new_first = i == new && j == old;
        if !is_new_first && (i != old || j != new) {
            continue;
        }
        let share = row.share(&thresholds).map(|share| if is_new_first { share } else { 1.0 - share });
        let place = if is_new_first { "shown first" } else { "shown second" };
        let named = |what: &str, name: &str| format!("{what} {name}");
        let template = row.template.as_ref().map(|template| named("template", &template.to_string()));
        let ways = [Some(place.to_owned()), template, row.judge.as_ref().map(|judge| named("judge", judge))];
        for (side, of_new) in sides.iter_mut().zip([true, false]) {
            let (_, items) = side
                .entry(name(row.attribute.as_deref(), None))
                .or_insert((Direction::HigherIsBetter, BTreeMap::new()));
            // Without a verdict, the item counts as present without a score.
            let text = items.entry(row.item.clone()).or_default().entry(String::new()).or_default();
            let Some(share) = share.map(|share| if of_new { share } else { 1.0 - share }) else { continue };
            text.score.add(share);
            ways.iter().flatten().for_each(|way| text.by_way.entry(way.clone()).or_default().add(share));
        }
    }
    Ok(has_pairs.then_some(ComparedSides { sides, debiased: !thresholds.0.is_empty() }))
}

/// Display name of a metric and its attribute.
fn name(attribute: Option<&str>, metric: Option<&str>) -> String {
    let both: Vec<&str> = [metric, attribute].into_iter().flatten().collect();
    if both.is_empty() { "score".to_owned() } else { both.join("/") }
}
