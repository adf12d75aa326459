//! The judge's verdicts with each kind of reference.

use probity_data::Sample;

use super::evaluators::{Evaluator, EvaluatorVerdicts};
use super::options::Reference;
use super::references::{ReferenceGroup, ReferencePool};
use crate::figures::Mass;
use crate::judge::{JudgeQuestion, JudgeStage, JudgeVerdict, JudgedUnit, ModelJudge, ShownText, UnitVerdict};
use crate::row;

/// The table of all verdicts.
pub(super) const VERDICTS: &str = "verdicts";

/// One question: a unit in one order, with the references shown together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReferenceQuestion<'a> {
    pub(super) reference: Reference,
    pub(super) unit: usize,
    /// Whether the pair's second is shown first.
    pub(super) turned: bool,
    pub(super) group: ReferenceGroup<'a>,
    /// The temperature of a further cycle; absent for the first.
    pub(super) temperature: Option<f64>,
}

/// All questions to a judge.
pub(super) struct ReferenceQuestions<'a> {
    pub(super) samples: &'a [Sample],
    pub(super) units: &'a [JudgedUnit],
    pub(super) attributes: &'a [String],
    pub(super) asked: Vec<ReferenceQuestion<'a>>,
}

/// The temperatures of the further cycles of `--cost-match` (the paper's section 4.5).
pub(super) const TEMPERATURES: [f64; 2] = [0.3, 0.7];

impl<'a> ReferenceQuestions<'a> {
    /// Every unit with every reference, pairs in both orders; with further cycles without reference if requested.
    pub(super) fn new(
        samples: &'a [Sample],
        units: &'a [JudgedUnit],
        attributes: &'a [String],
        references: &[Reference],
        pool: &ReferencePool<'a>,
        cycles: bool,
    ) -> Self {
        let mut asked = Vec::new();
        let mut add = |reference: Reference, temperature: Option<f64>| {
            for (number, unit) in units.iter().enumerate() {
                let orders: &[bool] = if unit.second.is_some() { &[false, true] } else { &[false] };
                for group in pool.references(reference, *unit) {
                    let of_order = |&turned: &bool| ReferenceQuestion {
                        reference,
                        unit: number,
                        turned,
                        group: group.clone(),
                        temperature,
                    };
                    asked.extend(orders.iter().map(of_order));
                }
            }
        };
        for reference in references {
            add(*reference, None);
        }
        for temperature in TEMPERATURES.into_iter().filter(|_| cycles) {
            add(Reference::None, Some(temperature));
        }
        Self { samples, units, attributes, asked }
    }

    /// The stage in which the judge of each cycle answers `questions`, from [`Self::questions`].
    pub(super) fn stage<'s>(
        &'s self,
        judges: &'s [(Option<f64>, ModelJudge<'s>)],
        questions: &'s [JudgeQuestion<'a>],
        inputs: Vec<String>,
    ) -> JudgeStage<'s> {
        let mut rest = questions;
        let of_cycle = |(temperature, judge): &'s (Option<f64>, ModelJudge<'s>)| {
            let count = self.asked.iter().filter(|asked| asked.temperature == *temperature).count();
            let (own, after) = rest.split_at(count);
            rest = after;
            (judge, own)
        };
        // `tag`: the reference, if there are several; `temperature`: that of a further cycle; `shown`: the candidates
        // in presentation order.
        let identity = |number: usize| {
            let (asked, question) = (&self.asked[number], &questions[number]);
            row! {
                "item": question.sample.id, "attribute": self.attributes[question.attribute],
                "reference": asked.reference, "tag"?: Some(&asked.group.tag).filter(|tag| !tag.is_empty()),
                "temperature"?: asked.temperature,
                "shown": question.shown.iter().map(|shown| shown.name).collect::<Vec<_>>(),
            }
        };
        JudgeStage {
            name: VERDICTS,
            judges: judges.iter().map(of_cycle).collect(),
            identity: Box::new(identity),
            inputs,
        }
    }

    /// The questions, grouped by cycle.
    pub(super) fn questions(&self) -> Vec<JudgeQuestion<'a>> {
        self.asked.iter().map(|asked| self.question(asked)).collect()
    }

    pub(super) fn question(&self, asked: &ReferenceQuestion<'a>) -> JudgeQuestion<'a> {
        let unit = self.units[asked.unit];
        let sample = &self.samples[unit.item];
        let text = |k: usize| ShownText { name: &sample.candidates[k].id, text: &sample.candidates[k].text };
        let mut shown: Vec<ShownText<'a>> = unit.candidates().map(text).collect();
        if asked.turned {
            shown.reverse();
        }
        let tag = if asked.group.tag.is_empty() {
            asked.reference.to_string()
        } else {
            format!("{}/{}", asked.reference, asked.group.tag)
        };
        JudgeQuestion { sample, attribute: unit.attribute, shown, references: asked.group.texts.clone(), tag }
    }

    /// Combines the verdicts of each unit with one kind of reference, by a vote over its references; `None` without a
    /// reference. `cycles` includes the further cycles in the vote.
    pub(super) fn settle(
        &self,
        verdicts: &[JudgeVerdict],
        reference: Reference,
        labels: bool,
        cycles: bool,
    ) -> Vec<Option<UnitVerdict>> {
        let verdicts = self.under(verdicts, reference, cycles);
        let verdicts = verdicts.map(|(asked, said)| (asked.unit, asked.turned, &said.decided));
        UnitVerdict::settle(self.units.len(), verdicts, labels)
    }

    /// The label mass of the evaluator's answers for this attribute; empty without label probabilities.
    pub(super) fn mass(
        &self,
        verdicts: &[JudgeVerdict],
        attribute: usize,
        evaluator: &EvaluatorVerdicts,
    ) -> Option<Mass> {
        let asked = self.under(verdicts, evaluator.reference, false);
        let asked = asked.filter(|(asked, _)| self.units[asked.unit].attribute == attribute);
        let mass = Mass::from_answers(
            asked.filter_map(|(_, verdict)| Some((verdict.mass()?, verdict.decided.outcome.is_low_mass()))),
        );
        (evaluator.by == Evaluator::Judge && mass.answers > 0).then_some(mass)
    }

    /// Tokens of the prompts and answers with a kind of reference, with or without the further cycles.
    pub(super) fn tokens(&self, verdicts: &[JudgeVerdict], reference: Reference, cycles: bool) -> usize {
        self.under(verdicts, reference, cycles).map(|(_, verdict)| verdict.tokens()).sum()
    }

    /// The questions with a kind of reference, with or without the further cycles, and their verdicts.
    fn under<'v>(
        &self,
        verdicts: &'v [JudgeVerdict],
        reference: Reference,
        cycles: bool,
    ) -> impl Iterator<Item = (&ReferenceQuestion<'a>, &'v JudgeVerdict)> {
        let counts = move |asked: &ReferenceQuestion<'_>| cycles || asked.temperature.is_none();
        self.asked.iter().zip(verdicts).filter(move |(asked, _)| asked.reference == reference && counts(asked))
    }
}
