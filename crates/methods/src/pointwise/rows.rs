//! Combines a candidate's answers into a row.

use probity_lm::{Outcome, Precision};
use serde_json::Value;

use super::asking::{PointwiseAsk, PointwiseReply};
use super::{CandidatePlace, Pointwise, PointwiseQuestion};
use crate::answer::Answer;
use crate::figures::mean;
use crate::row;

#[derive(Debug, Clone)]
pub(super) struct PointwiseAnswer<'a> {
    /// The template's index; templates with different questions may share a name.
    number: usize,
    template: &'a str,
    pub(super) question: Option<&'a str>,
    reference: Option<usize>,
    pub(super) reply: PointwiseReply,
}

impl PointwiseAnswer<'_> {
    fn row(&self) -> Value {
        let Self { template, question, reference, reply: PointwiseReply { answer, shown, .. }, .. } = self;
        row! {
            "template": template, "question"?: question, "reference"?: reference, "score": answer.value,
            ..&answer.outcome, ..shown, "prompt_tokens": answer.counts.prompt_tokens,
        }
    }
}

/// A candidate's score for one group, once all of its answers have arrived.
#[derive(Debug, Clone)]
pub(super) struct PointwiseRow<'a> {
    item: &'a str,
    attribute: Option<&'a str>,
    candidate: &'a str,
    index: usize,
    pub(super) score: Option<f64>,
    /// The mean over templates; absent if labels are not requested.
    pub(super) mass: Option<f64>,
    pub(super) outcome: Outcome,
    pub(super) answers: Vec<PointwiseAnswer<'a>>,
}

impl<'a> Pointwise<'a> {
    pub(super) fn answer(
        &self,
        place: CandidatePlace,
        question: PointwiseQuestion,
        reply: PointwiseReply,
    ) -> PointwiseAnswer<'a> {
        let template = &self.templates[place.group][question.template];
        PointwiseAnswer {
            number: question.template,
            template: template.name(),
            question: template.setting("question"),
            reference: question.reference,
            reply,
        }
    }

    /// The best answer per template over references, then the mean over templates. If a template has no score, the row
    /// has none: a mean over fewer templates would not be comparable.
    pub(super) fn row(&self, place: CandidatePlace, answers: Vec<PointwiseAnswer<'a>>) -> PointwiseRow<'a> {
        let mut best: Vec<&Answer<f64>> = Vec::new();
        // The answers of a template are adjacent.
        for of_template in answers.chunk_by(|a, b| a.number == b.number) {
            // A reference that could not be scored counts only if none could.
            let score = |answer: &Answer<f64>| answer.value.unwrap_or(f64::NEG_INFINITY);
            best.extend(of_template.iter().map(|a| &a.reply.answer).max_by(|a, b| score(a).total_cmp(&score(b))));
        }
        let outcome = match best.iter().find(|a| a.value.is_none()) {
            Some(failed) => failed.outcome.clone(),
            None if best.is_empty() => Outcome::Empty,
            None => best.iter().find(|a| a.outcome.is_low_mass()).map_or(Outcome::Scored, |low| low.outcome.clone()),
        };
        let score = if outcome.has_answer() { mean(best.iter().filter_map(|a| a.value)) } else { None };
        let mass = mean(best.iter().filter_map(|a| a.mass));
        let attribute = if self.names_attribute { self.attributes.get(place.group).map(String::as_str) } else { None };
        let sample = &self.samples[place.item];
        let candidate = &self.candidate(place).id;
        PointwiseRow { item: &sample.id, attribute, candidate, index: place.candidate, score, mass, outcome, answers }
    }

    /// The row in `scores`.
    pub(super) fn written(&self, of: &PointwiseRow<'_>, precision: Precision) -> Value {
        let has_mass = matches!(self.asking, PointwiseAsk::Labels { .. });
        row! {
            "item": of.item, "attribute"?: of.attribute, "candidate": of.candidate, "index": of.index,
            "score": of.score, ..&of.outcome, "precision": precision,
            ..has_mass.then(|| row! { "mass": of.mass }),
            "answers": of.answers.iter().map(PointwiseAnswer::row).collect::<Vec<_>>(),
        }
    }
}
