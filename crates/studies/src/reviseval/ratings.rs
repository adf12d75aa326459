//! The judge's ratings of single candidates and references (the paper's Tables 3 and 14).

use probity_data::{Candidate, Sample};
use serde::Serialize;

use super::options::Reference;
use super::references::ReferencePool;
use crate::figures::{mean, number};
use crate::judge::{JudgeQuestion, JudgeStage, JudgeVerdict, JudgedUnit, JudgingOptions, Mode, ModelJudge, ShownText};
use crate::{Table, cells, row};

/// The table of ratings.
pub(super) const RATINGS: &str = "ratings";

/// The mean rating of one kind of text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct MeanRating {
    of: String,
    mean: Option<f64>,
    rated: usize,
    texts: usize,
}

/// The judge's options for ratings by one attribute.
pub(super) fn options(judging: &JudgingOptions, attribute: &str) -> JudgingOptions {
    let own = judging.clone();
    let attribute = vec![attribute.to_owned()];
    JudgingOptions {
        mode: Mode::Pointwise,
        attribute,
        adjective: None,
        criteria: None,
        rubric: None,
        ties: false,
        template: None,
        ..own
    }
}

/// Every candidate and every usable reference, each rated once.
#[derive(Default)]
pub(super) struct RatedTexts<'a> {
    /// The kind of text by question: `candidate 1`, `candidate`, or the kind of reference.
    of: Vec<String>,
    questions: Vec<JudgeQuestion<'a>>,
}

impl<'a> RatedTexts<'a> {
    pub(super) fn new(
        samples: &'a [Sample],
        units: &[JudgedUnit],
        references: &[Reference],
        pool: &ReferencePool<'a>,
    ) -> Self {
        let mut all = Self::default();
        for &unit in units {
            let sample = &samples[unit.item];
            for candidate in unit.candidates() {
                let of =
                    if unit.second.is_some() { format!("candidate {}", candidate + 1) } else { "candidate".to_owned() };
                let Candidate { id, text, .. } = &sample.candidates[candidate];
                all.add(sample, of, ShownText { name: id, text }, String::new());
            }
            for reference in references {
                for group in pool.references(*reference, unit) {
                    for text in group.texts {
                        let shown = ShownText { name: "reference", text };
                        all.add(sample, reference.to_string(), shown, format!("{reference}/{}", group.tag));
                    }
                }
            }
        }
        all
    }

    fn add(&mut self, sample: &'a Sample, of: String, shown: ShownText<'a>, tag: String) {
        let question = JudgeQuestion { sample, attribute: 0, shown: vec![shown], references: Vec::new(), tag };
        let of_sample = self.of.iter().zip(&self.questions).rev().take_while(|(_, one)| one.sample.id == sample.id);
        let is_same = |(kind, one): (&String, &JudgeQuestion<'_>)| {
            *kind == of && one.shown[0].text == shown.text && one.tag == question.tag
        };
        if !of_sample.into_iter().any(is_same) {
            self.of.push(of);
            self.questions.push(question);
        }
    }

    /// The stage of these ratings.
    pub(super) fn stage<'s>(&'s self, judge: &'s ModelJudge<'s>, inputs: Vec<String>) -> JudgeStage<'s> {
        let identity = |number: usize| {
            let JudgeQuestion { sample, tag, .. } = &self.questions[number];
            row! { "item": sample.id, "of": self.of[number], "tag"?: (!tag.is_empty()).then_some(tag) }
        };
        JudgeStage { name: RATINGS, judges: vec![(judge, &self.questions)], identity: Box::new(identity), inputs }
    }

    /// Mean ratings by kind of text, in order of first occurrence.
    pub(super) fn means(&self, verdicts: &[JudgeVerdict]) -> Vec<MeanRating> {
        let mut kinds: Vec<&str> = Vec::new();
        for of in &self.of {
            if !kinds.contains(&of.as_str()) {
                kinds.push(of);
            }
        }
        let of = |kind: &str| {
            let verdicts = || self.of.iter().zip(verdicts).filter(|(of, _)| *of == kind);
            let ratings: Vec<f64> = verdicts().filter_map(|(_, verdict)| verdict.decided.rating()).collect();
            MeanRating {
                of: kind.to_owned(),
                mean: mean(ratings.iter().copied()),
                rated: ratings.len(),
                texts: verdicts().count(),
            }
        };
        kinds.into_iter().map(of).collect()
    }
}

pub(super) fn table(ratings: &[MeanRating], attribute: &str) -> Table {
    let mut table = Table::new(format!("Mean ratings by {attribute}"), ["text", "mean", "rated"]);
    for one in ratings {
        table.push(cells![&one.of, number(one.mean), format!("{} of {}", one.rated, one.texts)]);
    }
    table.note("Each text is rated independently, without reference.");
    table
}
