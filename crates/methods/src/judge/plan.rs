//! Builds the questions about the samples, and combines a judge's verdicts per unit.

use probity_data::Sample;
use probity_lm::Outcome;
use rand::Rng;

use super::judging::{JudgeQuestion, ShownText};
use super::method::{JudgeParams, Orders, ReferenceUse, References};
use super::options::Mode;
use super::verdict::{Decision, JudgeVerdict, PairChoice};
use crate::pairs::rng_for;

/// One decision: a pair or a candidate under one attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JudgedUnit {
    /// The position of the sample.
    pub item: usize,
    /// The position of the attribute.
    pub attribute: usize,
    /// Position in the sample of the candidate, or of the pair's first.
    pub first: usize,
    /// Position of the pair's second.
    pub second: Option<usize>,
}

impl JudgedUnit {
    /// The candidates.
    pub fn candidates(self) -> impl Iterator<Item = usize> {
        std::iter::once(self.first).chain(self.second)
    }
}

/// A question about a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnitQuestion {
    pub(super) unit: usize,
    /// Whether the pair's second is shown first.
    pub(super) turned: bool,
    /// The single reference shown, if each reference has its own question.
    pub(super) reference: Option<usize>,
}

/// All questions to one judge.
pub(super) struct JudgePlan {
    pub(super) units: Vec<JudgedUnit>,
    /// Both orders of a pair with the same reference are adjacent.
    pub(super) asked: Vec<UnitQuestion>,
    /// Samples without a second candidate, if pairs are judged.
    pub(super) one_candidate: usize,
    /// Samples without a required reference.
    pub(super) no_reference: usize,
}

/// A judge's verdict on a unit.
#[derive(Debug, Clone, PartialEq)]
pub struct UnitVerdict {
    /// The decision over both orders.
    pub decided: Decision,
    /// The decisions of a pair with its first shown first, and with its second; absent if that order was not judged.
    pub orders: [Option<Decision>; 2],
}

impl UnitVerdict {
    /// Combines the verdicts of both orders. References vote within each order; if the orders disagree the pair is a
    /// tie. With probabilities (`labels`), means replace both votes, since votes discard certainty. Without a verdict
    /// in one order there is none. All verdicts refer to the pair's first, in either order.
    fn from_orders(orders: [Vec<Decision>; 2], labels: bool) -> Self {
        let join = if labels { Decision::mean } else { Decision::vote };
        let orders = orders.map(|references| one_of(references, join));
        let had: Vec<Decision> = orders.iter().flatten().cloned().collect();
        let decided = match had.iter().find(|order| order.says.is_none()) {
            Some(failed) => failed.clone(),
            None => one_of(had, join).unwrap_or_else(|| Decision::none(Outcome::Empty)),
        };
        Self { decided, orders }
    }

    /// Combines verdicts for each of `units`; `None` for units without any. Each verdict has the index of its unit and
    /// whether the pair's second was shown first.
    pub fn settle<'v>(
        units: usize,
        verdicts: impl Iterator<Item = (usize, bool, &'v Decision)>,
        labels: bool,
    ) -> Vec<Option<Self>> {
        let mut by_unit: Vec<[Vec<Decision>; 2]> = vec![Default::default(); units];
        for (unit, turned, decided) in verdicts {
            by_unit[unit][usize::from(turned)].push(if turned { decided.turned() } else { decided.clone() });
        }
        let of = |orders: [Vec<Decision>; 2]| {
            orders.iter().any(|order| !order.is_empty()).then(|| Self::from_orders(orders, labels))
        };
        by_unit.into_iter().map(of).collect()
    }

    /// Whether the verdict depends on the order; `None` unless both orders have one.
    pub fn turns(&self) -> Option<bool> {
        let [given, turned] = self.orders.each_ref().map(|order| order.as_ref().and_then(Decision::choice));
        given.zip(turned).map(|(given, turned)| given != turned)
    }

    /// The difference between the two orders' probabilities of the first; `None` unless both exist.
    pub(super) fn gap(&self) -> Option<f64> {
        let [given, turned] = self.orders.each_ref().map(|order| order.as_ref().and_then(Decision::p));
        given.zip(turned).map(|(given, turned)| (given - turned).abs())
    }
}

impl JudgePlan {
    pub(super) fn new(params: &JudgeParams, samples: &[Sample]) -> Self {
        let mut plan = Self { units: Vec::new(), asked: Vec::new(), one_candidate: 0, no_reference: 0 };
        for (item, sample) in samples.iter().enumerate() {
            let references = references(params, sample);
            if references.is_empty() {
                plan.no_reference += 1;
                continue;
            }
            let n = sample.candidates.len();
            let pairs = |first: usize| (first + 1..n).map(move |second| (first, Some(second)));
            let texts: Vec<(usize, Option<usize>)> = match params.judging.mode {
                Mode::Pairwise => (0..n).flat_map(pairs).collect(),
                Mode::Pointwise => (0..n).map(|first| (first, None)).collect(),
            };
            plan.one_candidate += usize::from(texts.is_empty());
            for attribute in 0..params.judging.attribute.len() {
                for &(first, second) in &texts {
                    let unit = plan.units.len();
                    plan.units.push(JudgedUnit { item, attribute, first, second });
                    let orders = orders(params, sample, first, second);
                    let of_reference = |&reference: &Option<usize>| {
                        orders.iter().map(move |&turned| UnitQuestion { unit, turned, reference })
                    };
                    plan.asked.extend(references.iter().flat_map(of_reference));
                }
            }
        }
        plan
    }

    /// The candidates of a question in presentation order.
    pub(super) fn presentation_order(&self, asked: UnitQuestion) -> (usize, Option<usize>) {
        let JudgedUnit { first, second, .. } = self.units[asked.unit];
        match second.filter(|_| asked.turned) {
            Some(second) => (second, Some(first)),
            None => (first, second),
        }
    }

    pub(super) fn questions<'s>(&self, params: &JudgeParams, samples: &'s [Sample]) -> Vec<JudgeQuestion<'s>> {
        let question = |&asked: &UnitQuestion| {
            let JudgedUnit { item, attribute, .. } = self.units[asked.unit];
            let sample = &samples[item];
            let (first, second) = self.presentation_order(asked);
            let shown = |k: usize| ShownText { name: &sample.candidates[k].id, text: &sample.candidates[k].text };
            let texts = sample.references.iter().map(|text| &**text);
            let references = match (params.reference, asked.reference) {
                (ReferenceUse::None, _) => Vec::new(),
                (ReferenceUse::Given, None) => texts.collect(),
                (ReferenceUse::Given, Some(k)) => texts.skip(k).take(1).collect(),
            };
            let tag = asked.reference.map(|k| format!("reference {k}")).unwrap_or_default();
            JudgeQuestion {
                sample,
                attribute,
                shown: std::iter::once(first).chain(second).map(shown).collect(),
                references,
                tag,
            }
        };
        self.asked.iter().map(question).collect()
    }

    /// Combines a judge's verdicts for each unit.
    pub(super) fn settle(&self, verdicts: &[JudgeVerdict], labels: bool) -> Vec<UnitVerdict> {
        let verdicts = self.asked.iter().zip(verdicts).map(|(asked, said)| (asked.unit, asked.turned, &said.decided));
        let settled = UnitVerdict::settle(self.units.len(), verdicts, labels).into_iter();
        settled.map(|unit| unit.expect("each unit is asked about")).collect()
    }

    /// `scores[item][candidate]` of one attribute: the share of decided pairs that a candidate wins, with ties as half,
    /// or its rating.
    pub(super) fn scores<'d>(
        &self,
        samples: &[Sample],
        attribute: usize,
        decided: impl Iterator<Item = Option<&'d Decision>>,
    ) -> Vec<Vec<Option<f64>>> {
        let mut sums: Vec<Vec<(f64, u32)>> =
            samples.iter().map(|sample| vec![(0.0, 0); sample.candidates.len()]).collect();
        for (unit, decided) in self.units.iter().zip(decided).filter(|(unit, _)| unit.attribute == attribute) {
            let mut add = |candidate: usize, value: f64| {
                let (sum, count) = &mut sums[unit.item][candidate];
                (*sum, *count) = (*sum + value, *count + 1);
            };
            let Some(decided) = decided else { continue };
            if let Some(rating) = decided.rating() {
                add(unit.first, rating);
            }
            if let (Some(choice), Some(second)) = (decided.choice(), unit.second) {
                let won = match choice {
                    PairChoice::First => 1.0,
                    PairChoice::Second => 0.0,
                    PairChoice::Tie => 0.5,
                };
                add(unit.first, won);
                add(second, 1.0 - won);
            }
        }
        let score = |(sum, count): (f64, u32)| (count > 0).then(|| sum / f64::from(count));
        sums.into_iter().map(|candidates| candidates.into_iter().map(score).collect()).collect()
    }
}

/// The only decision, or several joined by `join`; `None` if there are none.
pub(super) fn one_of(mut all: Vec<Decision>, join: fn(&[Decision]) -> Decision) -> Option<Decision> {
    match all.len() {
        0 => None,
        1 => all.pop(),
        _ => Some(join(&all)),
    }
}

/// The references shown in each question; empty if a required reference is missing.
fn references(params: &JudgeParams, sample: &Sample) -> Vec<Option<usize>> {
    let there = |k: &usize| !sample.references[*k].trim().is_empty();
    let texts: Vec<Option<usize>> = (0..sample.references.len()).filter(there).map(Some).collect();
    match (params.reference, params.references) {
        (ReferenceUse::None, _) => vec![None],
        (ReferenceUse::Given, References::Each) => texts,
        (ReferenceUse::Given, References::Together) => texts.iter().take(1).map(|_| None).collect(),
    }
}

/// The orders in which a pair is shown: turned or not.
fn orders(params: &JudgeParams, sample: &Sample, first: usize, second: Option<usize>) -> Vec<bool> {
    match (second, params.orders) {
        (None, _) | (Some(_), Orders::Given) => vec![false],
        (Some(_), Orders::Both) => vec![false, true],
        (Some(second), Orders::Seeded) => {
            let ids = [&sample.candidates[first].id, &sample.candidates[second].id];
            vec![rng_for(params.judging.seed, &["order", &sample.id, ids[0], ids[1]]).random()]
        }
    }
}
