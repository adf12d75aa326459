//! Aligns a metric's scores with the items and candidates of gold.

use std::collections::BTreeMap;

use probity_lm::nearest;
use probity_stats::{Rivals, SystemScore};
use serde::Serialize;

use super::people::{GoldCandidate, GoldScores};
use super::scores::{EvaluatedScores, MetaScoreLine, row_text};
use crate::error::{AnalysisError, NoOverlap};
use probity_lm::text::{counted, visible_line};

/// Scores of a metric, indexed like the items and candidates of gold.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AlignedScores<'a> {
    pub(crate) metric: &'a EvaluatedScores,
    scores: Vec<Vec<PlaceScore>>,
    /// Number of rows whose item or candidate is not in gold, and the location of the first.
    pub(crate) unknown: usize,
    pub(crate) first_unknown: Option<String>,
}

/// Score of a gold candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
enum PlaceScore {
    /// No row.
    Missing,
    /// A row without a score.
    Undefined,
    Score(f64),
}

/// Coverage of a metric and an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct AlignmentCounts {
    /// Scores with gold.
    pub(crate) compared: usize,
    /// Rows with gold but without a score.
    pub(crate) undefined: usize,
    /// Gold scores without a row.
    pub(crate) without_score: usize,
    /// Scores without gold: unknown items and candidates, and candidates without a gold score.
    pub(crate) without_gold: usize,
}

impl AlignmentCounts {
    /// Share of the gold scores without a score.
    pub(crate) fn unscored(self) -> Option<f64> {
        let gold = self.compared + self.undefined + self.without_score;
        (gold > 0).then(|| (gold - self.compared) as f64 / gold as f64)
    }
}

impl<'a> AlignedScores<'a> {
    /// Aligns the rows. Returns an error if none is in gold.
    pub(crate) fn new(metric: &'a EvaluatedScores, gold: &GoldScores) -> Result<Self, AnalysisError> {
        let scores = gold.items.iter().map(|item| vec![PlaceScore::Missing; item.candidates.len()]).collect();
        let mut aligned = Self { metric, scores, unknown: 0, first_unknown: None };
        let mut lines: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for row in &metric.rows {
            let Some((item, candidate)) = gold.find(&row.item, row.candidate.as_deref()) else {
                aligned.unknown += 1;
                aligned.first_unknown.get_or_insert_with(|| describe_row(metric, row));
                continue;
            };
            // Happens with rows with and without a candidate name, or with several rows if gold has no names.
            if let Some(first) = lines.insert((item, candidate), row.line) {
                return Err(AnalysisError::Twice {
                    option: "scores",
                    place: describe_row(metric, row),
                    what: format!("a score by `{}` of the same candidate of gold", visible_line(&metric.name)),
                    first: format!("{} {first}", metric.unit),
                });
            }
            aligned.scores[item][candidate] = row.score.map_or(PlaceScore::Undefined, PlaceScore::Score);
        }
        // Single rows without gold only get a note. If all rows lack gold, the names differ between the files, and
        // empty figures would hide that.
        if aligned.unknown == metric.rows.len() {
            return Err(aligned.no_overlap(gold));
        }
        Ok(aligned)
    }

    fn no_overlap(&self, gold: &GoldScores) -> AnalysisError {
        let first = self.metric.rows.first().expect("a metric has rows");
        let known = gold.items.iter().find(|item| item.id == first.item);
        let (what, name, names): (&'static str, &str, Vec<&str>) = match known {
            None => ("items", &first.item, gold.items.iter().map(|item| item.id.as_str()).collect()),
            Some(item) => {
                let ids = item.candidates.iter().map(|c| c.id.as_deref().unwrap_or("without a name")).collect();
                ("candidates of that item", first.candidate.as_deref().unwrap_or(""), ids)
            }
        };
        let near = nearest(name, names.iter().copied());
        let near = near.map(|near| format!("; the nearest is `{}`", visible_line(near))).unwrap_or_default();
        let some: Vec<String> = names.iter().take(3).map(|name| format!("`{}`", visible_line(name))).collect();
        AnalysisError::NoOverlap(Box::new(NoOverlap {
            metric: visible_line(&self.metric.name),
            file: self.metric.file.clone(),
            gold: gold.file.clone(),
            first: describe_row(self.metric, first),
            what,
            some: some.join(", ") + if names.len() > 3 { " …" } else { "" },
            near,
        }))
    }

    /// The score with a sign such that higher is better, so that positive correlations mean agreement.
    pub(crate) fn score(&self, item: usize, candidate: usize) -> Option<f64> {
        let PlaceScore::Score(score) = self.scores[item][candidate] else { return None };
        Some(self.metric.direction.upwards(score))
    }

    /// Scores with gold, by context.
    pub(crate) fn contexts<'g>(&self, gold: &'g GoldScores, attribute: &str) -> Vec<Vec<SystemScore<'g>>> {
        by_context(gold, attribute, |item, candidate, system, gold| {
            Some(SystemScore { system, predicted: self.score(item, candidate)?, gold })
        })
    }

    /// Candidates with both metrics' scores and gold, by context.
    pub(crate) fn against<'g>(&self, other: &Self, gold: &'g GoldScores, attribute: &str) -> Vec<Vec<Rivals<'g>>> {
        by_context(gold, attribute, |item, candidate, system, gold| {
            Some(Rivals { system, first: self.score(item, candidate)?, second: other.score(item, candidate)?, gold })
        })
    }

    pub(crate) fn counts(&self, gold: &GoldScores, attribute: &str) -> AlignmentCounts {
        let mut counts = AlignmentCounts { compared: 0, undefined: 0, without_score: 0, without_gold: self.unknown };
        for (item, places) in gold.items.iter().zip(&self.scores) {
            for (candidate, place) in item.candidates.iter().zip(places) {
                match (candidate.scores.contains_key(attribute), place) {
                    (true, PlaceScore::Score(_)) => counts.compared += 1,
                    (true, PlaceScore::Undefined) => counts.undefined += 1,
                    (true, PlaceScore::Missing) => counts.without_score += 1,
                    (false, PlaceScore::Score(_)) => counts.without_gold += 1,
                    (false, PlaceScore::Undefined | PlaceScore::Missing) => {}
                }
            }
        }
        counts
    }

    /// Note about scores that are not in gold.
    pub(crate) fn note(&self) -> Option<String> {
        let first = self.first_unknown.as_ref()?;
        let (name, count) = (&self.metric.name, counted(self.unknown, "score"));
        Some(format!("{name}: {count} of items or candidates that gold does not have, the first on {first}"))
    }
}

fn describe_row(metric: &EvaluatedScores, row: &MetaScoreLine) -> String {
    row_text(&metric.unit, row.line, &metric.file, &row.item, row.candidate.as_deref())
}

fn by_context<'g, T>(
    gold: &'g GoldScores,
    attribute: &str,
    make: impl Fn(usize, usize, &'g str, f64) -> Option<T>,
) -> Vec<Vec<T>> {
    let of = |item: usize, (candidate, known): (usize, &'g GoldCandidate)| {
        let gold = *known.scores.get(attribute)?;
        make(item, candidate, known.id.as_deref().unwrap_or(""), gold)
    };
    let items = gold.items.iter().enumerate();
    items.map(|(item, known)| known.candidates.iter().enumerate().filter_map(|one| of(item, one)).collect()).collect()
}
