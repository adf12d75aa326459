//! The rows of a judge: verdicts as they arrive, then the results of pairs and candidates.

use probity_data::Sample;
use serde_json::Value;

use super::method::JudgeParams;
use super::options::Mode;
use super::plan::{JudgePlan, JudgedUnit};
use super::report::JudgeResults;
use super::verdict::{Decision, PairChoice};
use crate::{MethodError, Run, row};

/// The table of all verdicts.
pub(super) const VERDICTS: &str = "verdicts";
/// The table of results by pair.
const PAIRS: &str = "pairs";
/// The table of results by candidate.
const SCORES: &str = "scores";

/// The fields that identify the row of question `index` to the judge with this name and template.
pub(super) fn verdict_identity(
    params: &JudgeParams,
    samples: &[Sample],
    plan: &JudgePlan,
    index: usize,
    [judge, template]: [&str; 2],
) -> Value {
    let asked = plan.asked[index];
    let JudgedUnit { item, attribute, .. } = plan.units[asked.unit];
    let sample = &samples[item];
    let id = |k: usize| sample.candidates[k].id.as_str();
    let shown = match plan.presentation_order(asked) {
        (i, Some(j)) => row! { "i": i, "j": j, "candidate_i": id(i), "candidate_j": id(j) },
        (index, None) => row! { "index": index, "candidate": id(index) },
    };
    let attribute = &params.judging.attribute[attribute];
    row! {
        "item": sample.id, "attribute": attribute, "judge": judge, "template": template, ..shown,
        "reference"?: asked.reference,
    }
}

/// The fields of a verdict on a pair: `preferred` is the better candidate, null for a tie or a missing verdict.
fn pair_verdict(decided: &Decision, first: &str, second: &str) -> Value {
    let preferred = match decided.choice() {
        Some(PairChoice::First) => Some(first),
        Some(PairChoice::Second) => Some(second),
        Some(PairChoice::Tie) | None => None,
    };
    row! { "choice": decided.choice(), "preferred": preferred, "p": decided.p(), ..&decided.outcome }
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
        // `changed`: whether the verdict changes with presentation order.
        let judges = verdicts.settled.iter().zip(&verdicts.names).map(|(settled, judge)| {
            let settled = &settled[number];
            row! {
                "judge": judge, ..pair_verdict(&settled.decided, first, second), "changed": settled.turns(),
                "gap"?: settled.gap().filter(|_| labels),
            }
        });
        let row = row! {
            "item": sample.id, "attribute": verdicts.params.judging.attribute[unit.attribute], "first": first,
            "second": second, ..pair_verdict(&verdicts.panel[number], first, second),
            "judges": judges.collect::<Vec<_>>(),
        };
        run.row(PAIRS, number, &row)?;
    }
    Ok(())
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
                let score = panel[item][position];
                let each = judges.iter().zip(&verdicts.names);
                let each = each.map(|(scores, judge)| row! { "judge": judge, "score": scores[item][position] });
                let row = row! {
                    "item": sample.id, "attribute": attributes[attribute], "candidate": candidate.id,
                    "index": position, "score": score,
                    ..verdicts.outcome(item, attribute, position, score.is_some()), "precision": precision,
                    "judges"?: (judges.len() > 1).then(|| each.collect::<Vec<_>>()),
                };
                run.row(SCORES, index, &row)?;
                index += 1;
            }
        }
    }
    Ok(())
}
