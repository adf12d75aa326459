//! The rows of a judge: verdicts as they arrive, then the results of pairs and candidates.

use probity_data::Sample;
use probity_lm::{Outcome, Precision};
use serde::Serialize;

use super::method::JudgeParams;
use super::options::Mode;
use super::plan::{JudgePlan, JudgedUnit};
use super::report::JudgeResults;
use super::verdict::{Decision, PairChoice};
use crate::{MethodError, Run};

/// The table of all verdicts.
pub(super) const VERDICTS: &str = "verdicts";
/// The table of results by pair.
const PAIRS: &str = "pairs";
/// The table of results by candidate.
const SCORES: &str = "scores";

/// The fields that identify the row of a verdict.
#[derive(Serialize)]
pub(super) struct VerdictIdentity<'a> {
    item: &'a str,
    attribute: &'a str,
    judge: &'a str,
    template: &'a str,
    #[serde(flatten)]
    shown: ShownCandidates<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<usize>,
}

/// The candidates shown.
#[derive(Serialize)]
#[serde(untagged)]
enum ShownCandidates<'a> {
    Pair { i: usize, j: usize, candidate_i: &'a str, candidate_j: &'a str },
    Single { index: usize, candidate: &'a str },
}

impl<'a> VerdictIdentity<'a> {
    /// The identity of question `index` for the judge with this name and template.
    pub(super) fn new(
        params: &'a JudgeParams,
        samples: &'a [Sample],
        plan: &JudgePlan,
        index: usize,
        [judge, template]: [&'a str; 2],
    ) -> Self {
        let asked = plan.asked[index];
        let JudgedUnit { item, attribute, .. } = plan.units[asked.unit];
        let sample = &samples[item];
        let id = |k: usize| sample.candidates[k].id.as_str();
        let shown = match plan.presentation_order(asked) {
            (i, Some(j)) => ShownCandidates::Pair { i, j, candidate_i: id(i), candidate_j: id(j) },
            (index, None) => ShownCandidates::Single { index, candidate: id(index) },
        };
        let attribute = &params.judging.attribute[attribute];
        Self { item: &sample.id, attribute, judge, template, shown, reference: asked.reference }
    }
}

/// The result of a pair.
#[derive(Serialize)]
struct PairRow<'a> {
    item: &'a str,
    attribute: &'a str,
    first: &'a str,
    second: &'a str,
    #[serde(flatten)]
    panel: PairVerdict<'a>,
    judges: Vec<JudgePairVerdict<'a>>,
}

#[derive(Serialize)]
struct PairVerdict<'a> {
    choice: Option<PairChoice>,
    /// The better candidate; null for a tie or a missing verdict.
    preferred: Option<&'a str>,
    p: Option<f64>,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

#[derive(Serialize)]
struct JudgePairVerdict<'a> {
    judge: &'a str,
    #[serde(flatten)]
    voice: PairVerdict<'a>,
    /// Whether the verdict changes with presentation order.
    changed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gap: Option<f64>,
}

impl<'a> PairVerdict<'a> {
    fn new(decided: &'a Decision, first: &'a str, second: &'a str) -> Self {
        let preferred = match decided.choice() {
            Some(PairChoice::First) => Some(first),
            Some(PairChoice::Second) => Some(second),
            Some(PairChoice::Tie) | None => None,
        };
        Self { choice: decided.choice(), preferred, p: decided.p(), outcome: &decided.outcome }
    }
}

pub(super) fn write_pairs(verdicts: &JudgeResults<'_>, run: &mut Run<'_>) -> Result<(), MethodError> {
    if verdicts.params.judging.mode != Mode::Pairwise {
        return Ok(());
    }
    run.table(PAIRS, verdicts.plan.units.len())?;
    let labels = verdicts.params.judging.verdict.has_labels();
    for (number, unit) in verdicts.plan.units.iter().enumerate() {
        let sample = &verdicts.samples[unit.item];
        let id = |k: usize| sample.candidates[k].id.as_str();
        let (first, second) = (id(unit.first), id(unit.second.expect("pairs have two candidates")));
        let judges = verdicts.settled.iter().zip(&verdicts.names).map(|(settled, judge)| {
            let settled = &settled[number];
            let voice = PairVerdict::new(&settled.decided, first, second);
            JudgePairVerdict { judge, voice, changed: settled.turns(), gap: settled.gap().filter(|_| labels) }
        });
        let row = PairRow {
            item: &sample.id,
            attribute: &verdicts.params.judging.attribute[unit.attribute],
            first,
            second,
            panel: PairVerdict::new(&verdicts.panel[number], first, second),
            judges: judges.collect(),
        };
        run.row(PAIRS, number, &row)?;
    }
    Ok(())
}

/// The result of a candidate.
#[derive(Serialize)]
struct JudgeScoreRow<'a> {
    item: &'a str,
    attribute: &'a str,
    candidate: &'a str,
    index: usize,
    score: Option<f64>,
    #[serde(flatten)]
    outcome: Outcome,
    precision: Precision,
    /// The score by each judge, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    judges: Vec<JudgeScore<'a>>,
}

#[derive(Serialize)]
struct JudgeScore<'a> {
    judge: &'a str,
    score: Option<f64>,
}

pub(super) fn write_scores(verdicts: &JudgeResults<'_>, run: &mut Run<'_>) -> Result<(), MethodError> {
    let JudgeResults { params, samples, .. } = verdicts;
    let attributes = &params.judging.attribute;
    let candidates: usize = samples.iter().map(|sample| sample.candidates.len()).sum();
    run.table(SCORES, candidates * attributes.len())?;
    let precision = run.model().description().precision;
    let by_judge = |attribute: usize| (0..verdicts.names.len()).map(move |judge| verdicts.scores(judge, attribute));
    let of_attribute = |attribute: usize| (verdicts.panel_scores(attribute), by_judge(attribute).collect::<Vec<_>>());
    let scores: Vec<_> = (0..attributes.len()).map(of_attribute).collect();
    let mut index = 0;
    for (item, sample) in samples.iter().enumerate() {
        for (attribute, (panel, judges)) in scores.iter().enumerate() {
            for (position, candidate) in sample.candidates.iter().enumerate() {
                let each = judges.iter().zip(&verdicts.names);
                let each = each.map(|(scores, judge)| JudgeScore { judge, score: scores[item][position] });
                let row = JudgeScoreRow {
                    item: &sample.id,
                    attribute: &attributes[attribute],
                    candidate: &candidate.id,
                    index: position,
                    score: panel[item][position],
                    outcome: verdicts.outcome(item, attribute, position, panel[item][position].is_some()),
                    precision,
                    judges: if judges.len() > 1 { each.collect() } else { Vec::new() },
                };
                run.row(SCORES, index, &row)?;
                index += 1;
            }
        }
    }
    Ok(())
}
