//! Agreement of predicted scores with gold scores, and means by system.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use probity_data::{Candidate, Preference, Sample};
use probity_stats::{
    AgreementFigures, CONFIDENCE, ChoicePoint, Correlation, Interval, Resampling, SystemScore, choice_point, order,
    per_context, score_lists, verdict_interval,
};
use serde::Serialize;

use crate::cells;
use crate::conclusion::is_position;
use crate::error::UnknownGold;
use crate::figures::{bounds, mean, number, sums_by_id};
use crate::table::{Cell, Table};

/// Maximum number of systems in a table.
const SYSTEMS_SHOWN: usize = 40;

/// Availability of gold scores for an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoldUse<'a> {
    /// The attribute.
    pub attribute: &'a str,
    /// Whether gold is wanted and a candidate has a score for the attribute.
    pub present: bool,
    /// Whether to compare with gold; false with `--no-gold`.
    pub wanted: bool,
}

/// Determines which attributes have gold scores.
///
/// Data without gold scores are accepted, and so are single attributes without them. It is an error if the data have
/// gold scores for none of the attributes, or if an attribute without them is a likely misspelling of one that has
/// them.
pub fn uses<'a>(samples: &[Sample], attributes: &'a [String], no_gold: bool) -> Result<Vec<GoldUse<'a>>, UnknownGold> {
    let known = attributes_of(samples);
    let is_present = |attribute: &String| known.contains(attribute.as_str());
    if !no_gold && !known.is_empty() {
        let none = !attributes.iter().any(is_present);
        let is_wrong = |attribute: &&String| !is_present(attribute) && (none || nearest(attribute, &known).is_some());
        // A misspelt attribute would waste a run and never match gold.
        if let Some(attribute) = attributes.iter().find(is_wrong) {
            return Err(unknown(attribute, &known, "to judge without comparing with gold, add --no-gold"));
        }
    }
    let wanted = !no_gold;
    let gold_use = |name: &'a String| GoldUse { attribute: name, present: wanted && is_present(name), wanted };
    Ok(attributes.iter().map(gold_use).collect())
}

/// Attributes with gold scores.
fn attributes_of(samples: &[Sample]) -> BTreeSet<&str> {
    samples.iter().flat_map(|s| &s.candidates).flat_map(|c| c.scores.keys().map(String::as_str)).collect()
}

/// Returns an error if one of the attributes has no gold scores. `go_on` is the hint on how to continue without it.
pub fn refuse_unknown(samples: &[Sample], attributes: &[String], go_on: &str) -> Result<(), UnknownGold> {
    let known = attributes_of(samples);
    let absent = attributes.iter().find(|attribute| !known.contains(attribute.as_str()));
    absent.map_or(Ok(()), |attribute| Err(unknown(attribute, &known, go_on)))
}

fn nearest<'a>(attribute: &str, known: &BTreeSet<&'a str>) -> Option<&'a str> {
    probity_lm::nearest(attribute, known.iter().copied())
}

fn quoted_name(name: &str) -> String {
    format!("`{}`", name.escape_debug())
}

fn listed(names: &BTreeSet<&str>) -> String {
    names.iter().map(|name| quoted_name(name)).collect::<Vec<_>>().join(", ")
}

fn unknown(attribute: &str, known: &BTreeSet<&str>, go_on: &str) -> UnknownGold {
    let hint = nearest(attribute, known)
        .map_or_else(|| go_on.to_owned(), |name| format!("did you mean {}? {go_on}", quoted_name(name)));
    let known = listed(known);
    let known = if known.is_empty() { "none".to_owned() } else { known };
    UnknownGold { attribute: attribute.to_owned(), known, hint }
}

/// Compares `scores[item][candidate]` with gold over the candidates that have both.
pub fn against(samples: &[Sample], attribute: &str, scores: &[Vec<Option<f64>>]) -> AgreementFigures {
    AgreementFigures::from_scores(&contexts(samples, attribute, scores), &Resampling::default())
}

/// Mean Spearman over contexts of `scores[item][candidate]` and gold; `None` if undefined in all contexts.
pub fn spearman(samples: &[Sample], attribute: &str, scores: &[Vec<Option<f64>>]) -> Option<f64> {
    let lists = score_lists(&contexts(samples, attribute, scores));
    per_context(Correlation::Spearman, lists.iter().map(|(scores, gold)| (scores.as_slice(), gold.as_slice()))).mean
}

/// Whether the preferred candidate of a sample has the best score. `None` unless one is preferred and all candidates
/// have scores; see [`choice_point`].
pub fn choice(sample: &Sample, scores: &[Option<f64>]) -> Option<ChoicePoint> {
    let Some(Preference::Candidate(id)) = &sample.preference else { return None };
    choice_point(scores, sample.candidates.iter().position(|candidate| candidate.id == *id)?)
}

/// Candidates with score and gold, by context.
pub fn contexts<'a>(samples: &'a [Sample], attribute: &str, scores: &[Vec<Option<f64>>]) -> Vec<Vec<SystemScore<'a>>> {
    let score = |candidate: &'a Candidate, predicted: Option<f64>| {
        Some(SystemScore { system: &candidate.id, predicted: predicted?, gold: *candidate.scores.get(attribute)? })
    };
    let context = |(sample, scores): (&'a Sample, &Vec<Option<f64>>)| {
        let scored = sample.candidates.iter().zip(scores);
        let mut found: Vec<_> = scored.filter_map(|(candidate, predicted)| score(candidate, *predicted)).collect();
        found.sort_by(|a, b| a.system.cmp(b.system));
        found
    };
    // Sorted by id, so that jackknife groups and floating-point sums do not depend on the order of the data.
    let mut by_id: Vec<(&Sample, &Vec<Option<f64>>)> = samples.iter().zip(scores).collect();
    by_id.sort_by(|(a, _), (b, _)| a.id.cmp(&b.id));
    by_id.into_iter().map(context).collect()
}

/// Agreement with preferences. A best score shared by k candidates counts as 1/k, so a tie of two counts half.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct PreferenceAgreement {
    /// Mean point; `None` without samples.
    pub accuracy: Option<f64>,
    /// Its interval.
    pub interval: Option<Interval>,
    /// Samples on which the preferred candidate alone has the best score.
    pub correct: usize,
    /// Samples on which it shares the best score.
    pub tied: usize,
    /// The other samples.
    pub wrong: usize,
}

impl PreferenceAgreement {
    /// From points between 0 and 1, one per sample.
    pub fn from_points(points: &[f64]) -> Self {
        let count = |is: fn(f64) -> bool| points.iter().filter(|point| is(**point)).count();
        Self {
            accuracy: mean(points.iter().copied()),
            interval: verdict_interval(points, CONFIDENCE).ok(),
            correct: count(|point| point == 1.0),
            tied: count(|point| point > 0.0 && point < 1.0),
            wrong: count(|point| point == 0.0),
        }
    }
}

/// An empty table for [`push`].
pub fn table() -> Table {
    let columns = [
        "attribute", "scores", "Spearman per context", "95% interval", "Kendall", "contexts", "skipped",
        "system level", "systems", "pairwise accuracy", "pairs",
    ];
    let mut table = Table::new("Against gold", columns);
    table.note(
        "Correlations: mean over contexts; skipped are contexts whose gold is constant or that have fewer than two \
         scores.",
    );
    table.note(
        "Pairwise accuracy: over pairs whose gold differs; an undecided pair counts as half. System level: Spearman \
         between means.",
    );
    table.note(
        "summary.json has Pearson, p-values, all intervals, correlations pooled and between systems, and accuracy with \
         ties.",
    );
    table
}

/// Adds a row to a table from [`table`].
pub fn push(figures: &AgreementFigures, attribute: &str, scores: &str, table: &mut Table) {
    let spearman = figures.spearman.per_context;
    let system = figures.spearman.system.map(|system| system.figure);
    let pairwise = figures.pairwise;
    table.push(cells![
        attribute,
        scores,
        number(spearman.figure.mean),
        bounds(spearman.interval),
        number(figures.kendall.per_context.figure.mean),
        spearman.figure.contexts,
        spearman.figure.skipped(),
        number(system.and_then(|s| s.coefficient)),
        system.map(|s| s.systems),
        number(pairwise.accuracy),
        pairwise.correct + pairwise.wrong + pairwise.tied,
    ]);
}

/// An empty table for [`push_systems`].
pub fn systems_table(unit: &str) -> Table {
    let columns = ["attribute", "candidate", "mean", "wins", "ties", "losses", "contexts"];
    let mut table = Table::new(format!("Candidates ({unit})"), columns);
    table.note("Mean: over contexts. Wins, ties, losses: against the other candidates, pair by pair.");
    table
}

/// Adds the mean score of each candidate id with two contexts or more, best first. Adds nothing if there are too many.
pub fn push_systems(samples: &[Sample], attribute: &str, scores: &[Vec<Option<f64>>], table: &mut Table) {
    // An id that occurs once names a text, and a table of those would repeat the table of scores.
    let recurring = sums_by_id(samples, scores).into_iter().filter(|(_, (_, n))| *n >= 2);
    let mut means: Vec<(&str, f64, usize)> = recurring.map(|(id, (sum, n))| (id, sum / n as f64, n)).collect();
    if means.len() > SYSTEMS_SHOWN {
        table.note(format!("{attribute}: {} candidate ids, not listed", means.len()));
        return;
    }
    means.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    let met = results_by_id(samples, scores);
    for (id, mean, n) in means {
        let [wins, ties, losses] = met.get(id).copied().unwrap_or_default();
        table.push(cells![attribute, id, number(Some(mean)), wins, ties, losses, n]);
    }
}

/// Numbers of higher, equal and lower scores of each candidate id against the others of the same sample.
fn results_by_id<'s>(samples: &'s [Sample], scores: &[Vec<Option<f64>>]) -> BTreeMap<&'s str, [usize; 3]> {
    let mut results: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for (sample, scores) in samples.iter().zip(scores) {
        let scored: Vec<(&str, f64)> = sample
            .candidates
            .iter()
            .zip(scores)
            .filter_map(|(one, score)| Some((one.id.as_str(), (*score)?)))
            .collect();
        for (place, (id, score)) in scored.iter().enumerate() {
            let others = scored.iter().enumerate().filter(|(other, _)| *other != place);
            for (_, (_, other)) in others {
                let result = match order(*score, *other) {
                    Ordering::Greater => 0,
                    Ordering::Equal => 1,
                    Ordering::Less => 2,
                };
                results.entry(id).or_default()[result] += 1;
            }
        }
    }
    results
}

/// Orders the tables of a run. The table of candidates comes first, unless their ids are positions.
pub fn main_first(candidates: Table, others: impl IntoIterator<Item = Table>) -> Vec<Table> {
    let is_position = |row: &Vec<Cell>| matches!(row.get(1), Some(Cell::Text(id)) if is_position(id));
    let of_positions = candidates.rows.iter().all(is_position);
    let mut tables: Vec<Table> = others.into_iter().collect();
    tables.insert(if of_positions { tables.len() } else { 0 }, candidates);
    tables.retain(|table| !table.rows.is_empty());
    tables
}

/// Adds a note on the attributes with gold scores, for runs without an attribute.
pub fn note_unused(samples: &[Sample], table: &mut Table) {
    let known = listed(&attributes_of(samples));
    if !known.is_empty() {
        table.note(format!("the data have gold scores for {known}; --attribute NAME holds these scores against them"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sample;

    #[test]
    fn a_misspelt_attribute_is_an_error_with_the_nearest_name() {
        let samples = [sample("a", &[1.0])];
        let error = uses(&samples, &["coherance".to_owned()], false).expect_err("unknown").hint;
        assert!(error.contains("did you mean `coherence`?") && error.contains("--no-gold"), "{error}");
        let error = uses(&samples, &["zzz".to_owned()], false).expect_err("unknown").hint;
        assert!(!error.contains("did you mean"), "{error}");
    }

    #[test]
    fn one_attribute_may_lack_gold_beside_one_that_has_it_but_not_by_a_slip() {
        let samples = [sample("a", &[1.0])];
        let asked = |names: [&str; 2]| {
            uses(&samples, &names.map(str::to_owned), false)
                .map(|found| found.into_iter().map(|one| one.present).collect::<Vec<_>>())
        };
        assert_eq!(asked(["tone", "coherence"]).expect("one has gold"), [false, true]);
        assert!(asked(["coherence", "coherance"]).expect_err("a slip").hint.contains("did you mean `coherence`?"));
        assert!(asked(["tone", "style"]).is_err(), "none has gold");
    }

    #[test]
    fn gold_is_not_needed_where_there_is_none_or_none_is_wanted() {
        let attribute = ["tone".to_owned()];
        let absent = |wanted| Ok(vec![GoldUse { attribute: "tone", present: false, wanted }]);
        let mut bare = sample("a", &[1.0]);
        assert_eq!(uses(&[bare.clone()], &attribute, true).map_err(|e| e.to_string()), absent(false));
        bare.candidates[0].scores.clear();
        assert_eq!(uses(&[bare], &attribute, false).map_err(|e| e.to_string()), absent(true));
    }

    #[test]
    fn systems_count_only_where_ids_recur() {
        let samples = [sample("a", &[1.0, 2.0]), sample("b", &[1.0, 3.0])];
        let scores = vec![vec![Some(0.1), Some(0.2)], vec![Some(0.3), None]];
        let figures = against(&samples, "coherence", &scores);
        assert_eq!(figures.spearman.system, None, "only one system has two contexts");
        let scores = vec![vec![Some(0.1), Some(0.2)], vec![Some(0.3), Some(0.9)]];
        assert_eq!(
            against(&samples, "coherence", &scores).spearman.system.and_then(|s| s.figure.coefficient),
            Some(1.0)
        );
        assert_eq!(against(&samples[..1], "coherence", &scores).spearman.system, None, "one context");
    }
}
