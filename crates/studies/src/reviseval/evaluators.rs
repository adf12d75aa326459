//! All evaluators: the judge, each metric and their vote, with each kind of reference.

use std::fmt;

use probity_data::{Preference, Sample};
use probity_metrics::Direction;
use probity_stats::FigureEstimate;
use serde::{Serialize, Serializer};

use super::options::Reference;
use crate::figures::{ShareFigure, mean, share_estimate};
use crate::gold::PreferenceAgreement;
use crate::judge::{Decision, JudgedUnit, PairChoice, UnitVerdict};

/// An evaluator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Evaluator {
    Judge,
    Metric(String),
    /// The majority vote of the metrics.
    Vote,
}

impl Evaluator {
    /// The direction in which its ratings improve.
    pub(super) fn direction(&self) -> Direction {
        match self {
            Self::Judge | Self::Vote => Direction::HigherIsBetter,
            Self::Metric(label) => Direction::for_metric(label),
        }
    }
}

impl fmt::Display for Evaluator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Judge => f.write_str("judge"),
            Self::Metric(label) => f.write_str(label),
            Self::Vote => f.write_str("vote"),
        }
    }
}

impl Serialize for Evaluator {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// All verdicts of an evaluator with one kind of reference.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EvaluatorVerdicts {
    pub(super) reference: Reference,
    pub(super) by: Evaluator,
    /// By unit; absent without a reference.
    pub(super) says: Vec<Option<UnitVerdict>>,
}

impl EvaluatorVerdicts {
    /// The verdicts of an evaluator without presentation order.
    pub(super) fn without_order(reference: Reference, by: Evaluator, says: Vec<Option<Decision>>) -> Self {
        let settled = |decided: Decision| UnitVerdict { decided, orders: [None, None] };
        Self { reference, by, says: says.into_iter().map(|decided| decided.map(settled)).collect() }
    }

    /// The majority vote of these evaluators, by unit.
    pub(super) fn vote(reference: Reference, evaluators: &[Self]) -> Self {
        let of = |unit: usize| {
            let says: Vec<Decision> =
                evaluators.iter().filter_map(|evaluator| evaluator.decided(unit).cloned()).collect();
            (!says.is_empty()).then(|| Decision::vote(&says))
        };
        let units = evaluators.first().map_or(0, |evaluator| evaluator.says.len());
        Self::without_order(reference, Evaluator::Vote, (0..units).map(of).collect())
    }

    pub(super) fn decided(&self, unit: usize) -> Option<&Decision> {
        self.says[unit].as_ref().map(|settled| &settled.decided)
    }

    pub(super) fn choice(&self, unit: usize) -> Option<PairChoice> {
        self.decided(unit)?.choice()
    }

    /// `adapted/bleu`.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.reference, self.by)
    }
}

/// The human preference for a pair; `None` for a tie or without a preference.
pub(super) fn preferred(samples: &[Sample], unit: JudgedUnit) -> Option<PairChoice> {
    let sample = &samples[unit.item];
    let Some(Preference::Candidate(id)) = &sample.preference else { return None };
    let better = sample.candidates.iter().position(|candidate| &candidate.id == id)?;
    Some(if better == unit.first { PairChoice::First } else { PairChoice::Second })
}

/// 1 for the preferred text, 0 for the other, 0.5 for a tie.
pub(super) fn point(choice: PairChoice, preferred: PairChoice) -> f64 {
    match choice {
        PairChoice::Tie => 0.5,
        choice => f64::from(u8::from(choice == preferred)),
    }
}

/// The figures of one evaluator on pairs, for one attribute.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct PairFigures {
    pub(super) reference: Reference,
    pub(super) by: Evaluator,
    pub(super) attribute: String,
    /// Pairs.
    pub(super) pairs: usize,
    pub(super) decided: usize,
    /// Verdicts of a tie.
    pub(super) ties: usize,
    /// Pairs with a reference but without a verdict.
    pub(super) undecided: usize,
    pub(super) no_reference: usize,
    #[serde(flatten)]
    pub(super) agreement: PreferenceAgreement,
    /// Accuracy over all pairs with a preference, missing verdicts counted as half. Comparable between evaluators that
    /// omit different pairs.
    pub(super) over_all: Option<f64>,
    /// The paper's accuracy: correct verdicts over all pairs with a preference; ties and missing verdicts count as
    /// wrong.
    pub(super) right_of_all: Option<f64>,
    /// Accuracy of the verdicts in the order of the data, and in the other; absent for evaluators without presentation
    /// order.
    pub(super) given_order: Option<f64>,
    pub(super) turned_order: Option<f64>,
    /// The share of pairs with verdicts in both orders whose verdict changes.
    pub(super) changed: Option<FigureEstimate<ShareFigure>>,
}

impl PairFigures {
    /// The figures over `units`, positions of pairs of one attribute.
    pub(super) fn new(
        evaluator: &EvaluatorVerdicts,
        samples: &[Sample],
        all: &[JudgedUnit],
        units: &[usize],
        attribute: &str,
    ) -> Self {
        let points = |choice: &dyn Fn(usize) -> Option<PairChoice>| -> Vec<f64> {
            units.iter().filter_map(|&unit| Some(point(choice(unit)?, preferred(samples, all[unit])?))).collect()
        };
        let order = |k: usize| {
            let choice = |unit: usize| evaluator.says[unit].as_ref()?.orders[k].as_ref()?.choice();
            mean(points(&choice))
        };
        let turns = units.iter().filter_map(|unit| evaluator.says[*unit].as_ref()?.turns());
        let turns: Vec<f64> = turns.map(|turns| f64::from(u8::from(turns))).collect();
        let of_all = |&unit: &usize| {
            let gold = preferred(samples, all[unit])?;
            Some(evaluator.choice(unit).map_or(0.5, |choice| point(choice, gold)))
        };
        let all_points: Vec<f64> = units.iter().filter_map(of_all).collect();
        let has = |is: &dyn Fn(usize) -> bool| units.iter().filter(|unit| is(**unit)).count();
        Self {
            reference: evaluator.reference,
            by: evaluator.by.clone(),
            attribute: attribute.to_owned(),
            pairs: units.len(),
            decided: has(&|unit| evaluator.choice(unit).is_some()),
            ties: has(&|unit| evaluator.choice(unit) == Some(PairChoice::Tie)),
            undecided: has(&|unit| evaluator.says[unit].is_some() && evaluator.choice(unit).is_none()),
            no_reference: has(&|unit| evaluator.says[unit].is_none()),
            agreement: PreferenceAgreement::from_points(&points(&|unit| evaluator.choice(unit))),
            over_all: mean(all_points.iter().copied()),
            right_of_all: mean(all_points.iter().map(|point| f64::from(u8::from(*point == 1.0)))),
            given_order: order(0),
            turned_order: order(1),
            changed: (!turns.is_empty()).then(|| share_estimate(&turns)),
        }
    }
}

/// The prefix before the first `/` of each item's id, if every id has one and there are several.
pub(super) fn subsets(samples: &[Sample]) -> Vec<&str> {
    let beginnings: Option<Vec<&str>> =
        samples.iter().map(|sample| sample.id.split_once('/').map(|(subset, _)| subset)).collect();
    let mut all: Vec<&str> = Vec::new();
    for subset in beginnings.unwrap_or_default() {
        if !all.contains(&subset) {
            all.push(subset);
        }
    }
    if all.len() > 1 && all.len() < samples.len() { all } else { Vec::new() }
}
