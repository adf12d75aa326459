//! What a judge says under each kind of reference.

use probity_data::Sample;
use probity_lm::{Outcome, Precision};
use serde::Serialize;

use super::options::Reference;
use super::references::{Shelf, Together, Unit};
use crate::judge::{Choice, Decided, Judging, Question, Settled, Shown, Verdict};
use crate::quote::Quoted;
use crate::run::write_row;
use crate::{MethodError, Run};

/// The table of all verdicts.
pub(super) const VERDICTS: &str = "verdicts";

/// One question: a unit in one order under references that are shown together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked<'a> {
    pub(super) reference: Reference,
    pub(super) unit: usize,
    /// The pair's second is shown first.
    pub(super) turned: bool,
    pub(super) together: Together<'a>,
    /// The temperature of a further cycle; absent for the first.
    pub(super) temperature: Option<f64>,
}

/// What a judge is asked.
pub(super) struct Asking<'a> {
    pub(super) samples: &'a [Sample],
    pub(super) units: &'a [Unit],
    pub(super) attributes: &'a [String],
    pub(super) asked: Vec<Asked<'a>>,
}

/// Temperatures of the further cycles of `--cost-match` (the paper's section 4.5).
pub(super) const TEMPERATURES: [f64; 2] = [0.3, 0.7];

impl<'a> Asking<'a> {
    /// Every unit under every reference, pairs in both orders; with the further cycles without reference where they are
    /// asked for.
    pub(super) fn new(
        samples: &'a [Sample],
        units: &'a [Unit],
        attributes: &'a [String],
        references: &[Reference],
        shelf: &Shelf<'a>,
        cycles: bool,
    ) -> Self {
        let mut asked = Vec::new();
        let mut add = |reference: Reference, temperature: Option<f64>| {
            for (number, unit) in units.iter().enumerate() {
                let orders: &[bool] = if unit.second.is_some() { &[false, true] } else { &[false] };
                for together in shelf.references(reference, *unit) {
                    let of_order = |&turned: &bool| Asked {
                        reference,
                        unit: number,
                        turned,
                        together: together.clone(),
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

    /// Whether every prompt can be made, with a stand-in for references that are yet to come.
    pub(super) fn check(
        judge: &Judging<'_>,
        samples: &'a [Sample],
        units: &'a [Unit],
        attributes: &'a [String],
        references: &[Reference],
    ) -> Result<(), MethodError> {
        let asking = Self { samples, units, attributes, asked: Vec::new() };
        for (unit, reference) in
            (0..units.len()).flat_map(|unit| references.iter().map(move |reference| (unit, *reference)))
        {
            let texts = if reference == Reference::None { Vec::new() } else { vec!["a reference"] };
            let asked = Asked {
                reference,
                unit,
                turned: false,
                together: Together { tag: String::new(), texts },
                temperature: None,
            };
            let question = asking.question(&asked);
            if question.shown.iter().all(|shown| !shown.text.trim().is_empty()) {
                judge.check(&question)?;
            }
        }
        Ok(())
    }

    pub(super) fn question(&self, asked: &Asked<'a>) -> Question<'a> {
        let unit = self.units[asked.unit];
        let sample = &self.samples[unit.item];
        let mut shown: Vec<Shown<'a>> = unit
            .candidates()
            .map(|k| Shown { name: &sample.candidates[k].id, text: &sample.candidates[k].text })
            .collect();
        if asked.turned {
            shown.reverse();
        }
        let tag = if asked.together.tag.is_empty() {
            asked.reference.to_string()
        } else {
            format!("{}/{}", asked.reference, asked.together.tag)
        };
        Question { sample, attribute: unit.attribute, shown, references: asked.together.texts.clone(), tag }
    }

    /// Puts all questions to the judge, who is given with its temperature for each cycle, and writes the verdicts. What
    /// was quoted comes with them.
    pub(super) fn ask(
        &self,
        judges: &[(Option<f64>, Judging<'_>)],
        run: &mut Run<'_>,
    ) -> Result<(Vec<Verdict>, Quoted), MethodError> {
        run.table(VERDICTS, self.asked.len())?;
        let (mut verdicts, mut quoted) = (Vec::with_capacity(self.asked.len()), Quoted::default());
        for (temperature, judge) in judges {
            let precision = judge.model().description().precision;
            let start = verdicts.len();
            let of_cycle = self.asked.iter().filter(|asked| asked.temperature == *temperature);
            let questions: Vec<Question<'_>> = of_cycle.map(|asked| self.question(asked)).collect();
            let judged = judge.ask(run, &questions, &mut |index, verdict, output| {
                write_row(output, VERDICTS, start + index, &self.row(start + index, verdict, precision))
            })?;
            verdicts.extend(judged.verdicts);
            quoted += judged.quoted;
        }
        Ok((verdicts, quoted))
    }

    fn row<'r>(&'r self, index: usize, verdict: &'r Verdict, precision: Precision) -> Row<'r> {
        let asked = &self.asked[index];
        let unit = self.units[asked.unit];
        let candidates = &self.samples[unit.item].candidates;
        let mut shown: Vec<&str> = unit.candidates().map(|k| candidates[k].id.as_str()).collect();
        if asked.turned {
            shown.reverse();
        }
        Row {
            item: &self.samples[unit.item].id,
            attribute: &self.attributes[unit.attribute],
            reference: asked.reference,
            tag: Some(asked.together.tag.as_str()).filter(|tag| !tag.is_empty()),
            temperature: asked.temperature,
            shown,
            choice: verdict.decided.choice(),
            p: verdict.decided.p(),
            rating: verdict.decided.rating(),
            mass: verdict.mass(),
            outcome: &verdict.decided.outcome,
            answers: &verdict.answers,
            prompt_tokens: verdict.prompt_tokens,
            precision,
        }
    }

    /// What the verdicts come to for each unit under one reference, those of its references voting; `None` where there
    /// was no reference. `cycles` takes the further cycles into the vote.
    pub(super) fn settle(
        &self,
        verdicts: &[Verdict],
        reference: Reference,
        labels: bool,
        cycles: bool,
    ) -> Vec<Option<Settled>> {
        let mut by_unit: Vec<[Vec<Decided>; 2]> = vec![Default::default(); self.units.len()];
        for (asked, verdict) in self.asked.iter().zip(verdicts) {
            if asked.reference == reference && (cycles || asked.temperature.is_none()) {
                let decided = if asked.turned { verdict.decided.turned() } else { verdict.decided.clone() };
                by_unit[asked.unit][usize::from(asked.turned)].push(decided);
            }
        }
        let settle = |orders: [Vec<Decided>; 2]| (!orders[0].is_empty()).then(|| Settled::of(orders, labels));
        by_unit.into_iter().map(settle).collect()
    }

    /// Tokens of the prompts and answers under a reference, with or without the further cycles.
    pub(super) fn tokens(&self, verdicts: &[Verdict], reference: Reference, cycles: bool) -> usize {
        let of = self
            .asked
            .iter()
            .zip(verdicts)
            .filter(|(asked, _)| asked.reference == reference && (cycles || asked.temperature.is_none()));
        of.map(|(_, verdict)| verdict.tokens()).sum()
    }
}

/// One verdict.
#[derive(Serialize)]
struct Row<'a> {
    item: &'a str,
    attribute: &'a str,
    reference: Reference,
    /// Which of several references.
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<&'a str>,
    /// Of a further cycle.
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    /// The candidates, in the order shown.
    shown: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    choice: Option<Choice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rating: Option<f64>,
    mass: Option<f64>,
    #[serde(flatten)]
    outcome: &'a Outcome,
    answers: &'a [crate::judge::Answer],
    prompt_tokens: Option<usize>,
    precision: Precision,
}
