//! The paper's further analyses: effectiveness by similarity, disagreement, cost.

use std::collections::BTreeSet;

use probity_data::Sample;
use probity_stats::Correlation;
use serde::Serialize;

use super::evaluators::{Evaluator, EvaluatorVerdicts, point, preferred};
use super::judged::ReferenceQuestions;
use super::options::Reference;
use super::references::ReferencePool;
use super::scored::ReferenceScores;
use crate::figures::{bounds, decimals, mean, number};
use crate::gold::PreferenceAgreement;
use crate::judge::{Decision, JudgeVerdict, JudgedUnit, UnitVerdict};
use crate::revise::Revision;
use crate::{Cell, Table, cells};

/// Performance with references relative to that without, with the similarity of references and candidates (the paper's
/// Table 7 and Figure 1).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Effect {
    reference: Reference,
    /// All units, or a tercile by similarity.
    group: &'static str,
    /// Units decided with and without reference that have gold.
    units: usize,
    similarity: Option<f64>,
    with_reference: Option<f64>,
    without: Option<f64>,
    /// The paper's effectiveness; absent if the performance without reference is not positive.
    effectiveness: Option<f64>,
}

/// A unit with verdicts and gold.
#[derive(Debug, Clone, Copy)]
struct UnitWithGold {
    similarity: f64,
    with: f64,
    without: f64,
    gold: f64,
    attribute: usize,
}

impl Effect {
    fn new(reference: Reference, group: &'static str, known: &[UnitWithGold], pairs: bool) -> Self {
        let performance = |said: fn(&UnitWithGold) -> f64| {
            if pairs {
                return mean(known.iter().map(said));
            }
            // Ratings by one attribute are not compared with gold of another: the mean of the attributes' correlations
            // (appendix G).
            let attributes: BTreeSet<usize> = known.iter().map(|one| one.attribute).collect();
            let of_attribute = |attribute: usize| {
                let (said, gold): (Vec<f64>, Vec<f64>) =
                    known.iter().filter(|one| one.attribute == attribute).map(|one| (said(one), one.gold)).unzip();
                Correlation::Spearman.coefficient(&said, &gold)
            };
            mean(attributes.into_iter().map(of_attribute).collect::<Option<Vec<f64>>>()?)
        };
        let (with_reference, without) = (performance(|one| one.with), performance(|one| one.without));
        let effectiveness =
            with_reference.zip(without).filter(|(_, without)| *without > 0.0).map(|(with, without)| with / without);
        let similarity = mean(known.iter().map(|one| one.similarity));
        Self { reference, group, units: known.len(), similarity, with_reference, without, effectiveness }
    }
}

/// The judge's verdicts with a kind of reference.
fn by_judge(evaluators: &[EvaluatorVerdicts], reference: Reference) -> Option<&EvaluatorVerdicts> {
    evaluators.iter().find(|evaluator| evaluator.reference == reference && evaluator.by == Evaluator::Judge)
}

/// The judge's effect with every kind of reference; for pairs also by similarity tercile. `alike` has the similarities
/// for each kind.
pub(super) fn effects(
    samples: &[Sample],
    units: &[JudgedUnit],
    attributes: &[String],
    evaluators: &[EvaluatorVerdicts],
    alike: &[(Reference, ReferenceScores)],
) -> Vec<Effect> {
    let Some(free) = by_judge(evaluators, Reference::None) else { return Vec::new() };
    // Sorted by id, so that ties in similarity do not depend on the order of the data.
    let mut order: Vec<usize> = (0..units.len()).collect();
    order.sort_by_key(|number| &samples[units[*number].item].id);
    let mut effects = Vec::new();
    for (reference, similarity) in alike {
        let Some(evaluator) = by_judge(evaluators, *reference) else { continue };
        let known = |number: usize| known(samples, units[number], attributes, number, [evaluator, free], similarity);
        let mut known: Vec<UnitWithGold> = order.iter().copied().filter_map(known).collect();
        let pairs = units.iter().any(|unit| unit.second.is_some());
        effects.push(Effect::new(*reference, "all", &known, pairs));
        // Distances are smallest for the most similar texts.
        let alike = |one: &UnitWithGold| similarity.direction.upwards(one.similarity);
        known.sort_by(|a, b| alike(a).total_cmp(&alike(b)));
        let thirds =
            ["least alike", "between", "most alike"].into_iter().enumerate().filter(|_| pairs && known.len() >= 6);
        effects.extend(thirds.map(|(k, group)| {
            Effect::new(*reference, group, &known[k * known.len() / 3..(k + 1) * known.len() / 3], true)
        }));
    }
    effects
}

fn known(
    samples: &[Sample],
    unit: JudgedUnit,
    attributes: &[String],
    number: usize,
    evaluators: [&EvaluatorVerdicts; 2],
    alike: &ReferenceScores,
) -> Option<UnitWithGold> {
    let similarity = alike.overall(number)?;
    if unit.second.is_some() {
        let gold = preferred(samples, unit)?;
        let [with, without] = evaluators.map(|evaluator| evaluator.choice(number).map(|choice| point(choice, gold)));
        return Some(UnitWithGold { similarity, with: with?, without: without?, gold: 1.0, attribute: unit.attribute });
    }
    let gold = *samples[unit.item].candidates[unit.first].scores.get(&attributes[unit.attribute])?;
    let [with, without] = evaluators.map(|evaluator| evaluator.decided(number).and_then(Decision::rating));
    Some(UnitWithGold { similarity, with: with?, without: without?, gold, attribute: unit.attribute })
}

pub(super) fn effects_table(effects: &[Effect], similarity: &str, pairs: bool) -> Table {
    let columns = ["reference", "units", "count", "similarity", "P with reference", "P without", "effectiveness"];
    let mut table = Table::new("Effectiveness of references and their similarity to candidates", columns);
    for one in effects {
        let cells = [one.similarity, one.with_reference, one.without, one.effectiveness].map(number);
        table.push(cells![one.reference.to_string(), one.group, one.units].into_iter().chain(cells));
    }
    let what = if pairs { "accuracy" } else { "Spearman over all candidates, averaged over attributes," };
    table.note(format!(
        "P: {what} of the judge, over units decided both ways; effectiveness: P with / P without; similarity by \
         {similarity}."
    ));
    table
}

/// The share of units on which two evaluators differ (the paper's Table 13).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Disagreement {
    first: String,
    second: String,
    share: Option<f64>,
    /// Units decided by both.
    both: usize,
}

/// Between the judge and the metrics' vote, for all kinds of reference.
pub(super) fn disagreements(evaluators: &[EvaluatorVerdicts]) -> Vec<Disagreement> {
    let evaluators: Vec<&EvaluatorVerdicts> =
        evaluators.iter().filter(|evaluator| matches!(evaluator.by, Evaluator::Judge | Evaluator::Vote)).collect();
    let pairs = (0..evaluators.len()).flat_map(|a| (a + 1..evaluators.len()).map(move |b| (a, b)));
    let of = |(a, b): (usize, usize)| {
        let (a, b) = (evaluators[a], evaluators[b]);
        let both = (0..a.says.len()).filter_map(|unit| Some((a.choice(unit)?, b.choice(unit)?)));
        let differ: Vec<f64> = both.map(|(a, b)| f64::from(u8::from(a != b))).collect();
        Disagreement { first: a.name(), second: b.name(), share: mean(differ.iter().copied()), both: differ.len() }
    };
    pairs.map(of).collect()
}

pub(super) fn disagreements_table(disagreements: &[Disagreement]) -> Table {
    let mut table = Table::new("Different verdicts", ["first", "second", "share", "pairs"]);
    for one in disagreements {
        table.push(cells![&one.first, &one.second, number(one.share), one.both]);
    }
    table.note("Share of pairs with different verdicts, over pairs decided by both; a tie differs from a preference.");
    table
}

/// Tokens for a kind of reference per unit judged with it, without prefix sharing; absent if there are none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct ReferenceTokens {
    reference: Reference,
    revising: Option<f64>,
    judging: Option<f64>,
}

impl ReferenceTokens {
    fn together(&self) -> Option<f64> {
        Some(self.revising? + self.judging?)
    }
}

/// For each kind of reference. Tokens of references shared by several units count once.
pub(super) fn tokens(
    asking: &ReferenceQuestions<'_>,
    verdicts: &[JudgeVerdict],
    references: &[Reference],
    pool: &ReferencePool<'_>,
) -> Vec<ReferenceTokens> {
    let of = |&reference: &Reference| {
        let judged = asking.units.iter().filter(|unit| !pool.references(reference, **unit).is_empty()).count();
        let per_unit = |tokens: usize| (judged > 0).then(|| tokens as f64 / judged as f64);
        ReferenceTokens {
            reference,
            revising: revising(asking.units, pool, reference).and_then(per_unit),
            judging: per_unit(asking.tokens(verdicts, reference, false)),
        }
    };
    references.iter().map(of).collect()
}

/// `None` if any of them was provided by the user.
fn revising(units: &[JudgedUnit], pool: &ReferencePool<'_>, reference: Reference) -> Option<usize> {
    let mut revisions: Vec<&Revision> = units.iter().flat_map(|unit| pool.revisions(reference, *unit)).collect();
    revisions.sort_unstable_by_key(|revision| revision.job);
    revisions.dedup_by_key(|revision| revision.job);
    let counts = revisions.iter().map(|revision| revision.made.counts);
    counts.map(|counts| Some(counts.prompt_tokens.unwrap_or(0) + counts.tokens?)).sum()
}

pub(super) fn tokens_table(tokens: &[ReferenceTokens], pairs: bool) -> Table {
    let mut table = Table::new("Tokens", ["reference", "to generate it", "to judge", "together"]);
    for one in tokens {
        let cells = [one.revising, one.judging, one.together()].map(whole);
        table.push(cells![one.reference.to_string()].into_iter().chain(cells));
    }
    let what = if pairs { "pair, judged in both orders" } else { "candidate and attribute" };
    table.note(format!(
        "Tokens of prompts and answers, without prefix sharing, per {what} with such a reference; to generate it: \
         including unusable references."
    ));
    table
}

fn whole(tokens: Option<f64>) -> Cell {
    decimals(tokens, 0)
}

/// A way to spend tokens on a pair, with its agreement (the paper's Table 6).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct CostMatch {
    way: &'static str,
    #[serde(flatten)]
    agreement: PreferenceAgreement,
    /// Per pair, in both orders; absent if no pair is judged this way.
    tokens: Option<f64>,
}

/// One cycle without reference, three cycles, and one revision with one judgement.
pub(super) fn spent(
    samples: &[Sample],
    asking: &ReferenceQuestions<'_>,
    verdicts: &[JudgeVerdict],
    evaluators: &[EvaluatorVerdicts],
    tokens: &[ReferenceTokens],
) -> Vec<CostMatch> {
    let points = |says: &[Option<UnitVerdict>]| -> Vec<f64> {
        let one = |(number, settled): (usize, &Option<UnitVerdict>)| {
            Some(point(settled.as_ref()?.decided.choice()?, preferred(samples, asking.units[number])?))
        };
        says.iter().enumerate().filter_map(one).collect()
    };
    let of_judge = |reference: Reference| {
        let evaluator = by_judge(evaluators, reference).expect("it was asked for");
        let tokens = tokens.iter().find(|tokens| tokens.reference == reference).expect("counted for each reference");
        (PreferenceAgreement::from_points(&points(&evaluator.says)), tokens.together())
    };
    let (one, one_tokens) = of_judge(Reference::None);
    let (adapted, adapted_tokens) = of_judge(Reference::Adapted);
    let three = PreferenceAgreement::from_points(&points(&asking.settle(verdicts, Reference::None, false, true)));
    let three_tokens = asking.tokens(verdicts, Reference::None, true) as f64 / asking.units.len() as f64;
    let three_tokens = (!asking.units.is_empty()).then_some(three_tokens);
    vec![
        CostMatch { way: "one verdict without reference", agreement: one, tokens: one_tokens },
        CostMatch { way: "the vote of three, at temperatures 0, 0.3 and 0.7", agreement: three, tokens: three_tokens },
        CostMatch { way: "one revision and one verdict", agreement: adapted, tokens: adapted_tokens },
    ]
}

pub(super) fn spent_table(spent: &[CostMatch]) -> Table {
    let mut table = Table::new("Cost match", ["judge", "accuracy", "95% interval", "tokens"]);
    for one in spent {
        let cells = [number(one.agreement.accuracy), bounds(one.agreement.interval), whole(one.tokens)];
        table.push(cells![one.way].into_iter().chain(cells));
    }
    table.note("Tokens of prompts and answers per pair, in both orders, without prefix sharing.");
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effectiveness_of_ratings_is_the_mean_of_the_attributes_and_not_one_correlation_of_all() {
        // Within each attribute the ratings rank like gold. One attribute's gold is higher than the other's, and its
        // ratings are lower.
        let one = |attribute: usize, with: f64, gold: f64| UnitWithGold {
            similarity: 0.5,
            with,
            without: with,
            gold,
            attribute,
        };
        let known = [
            one(0, 1.0, 11.0),
            one(0, 2.0, 12.0),
            one(0, 3.0, 13.0),
            one(1, 7.0, 1.0),
            one(1, 8.0, 2.0),
            one(1, 9.0, 3.0),
        ];
        let effect = Effect::new(Reference::Adapted, "all", &known, false);
        assert_eq!((effect.with_reference, effect.without, effect.effectiveness), (Some(1.0), Some(1.0), Some(1.0)));
        let constant = [known[0], known[1], one(1, 7.0, 1.0), one(1, 7.0, 2.0)];
        assert_eq!(
            Effect::new(Reference::Adapted, "all", &constant, false).with_reference,
            None,
            "an attribute without a correlation"
        );
    }
}
