//! Combines a candidate's answers into a row.

use probity_lm::{Outcome, Precision};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::asking::{PointwiseAsk, PointwiseReply};
use super::{CandidatePlace, Pointwise, PointwiseQuestion};
use crate::answer::Answer;
use crate::figures::mean;

#[derive(Debug, Clone, Serialize)]
pub(super) struct PointwiseAnswer<'a> {
    /// The template's index; templates with different questions may share a name.
    #[serde(skip)]
    number: usize,
    template: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) question: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<usize>,
    #[serde(flatten)]
    pub(super) reply: PointwiseReply,
}

/// A candidate's score for one group, once all of its answers have arrived.
#[derive(Debug, Clone, Serialize)]
pub(super) struct PointwiseRow<'a> {
    item: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    attribute: Option<&'a str>,
    candidate: &'a str,
    index: usize,
    pub(super) score: Option<f64>,
    #[serde(skip)]
    pub(super) mass: Option<f64>,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
    precision: Precision,
    /// The mass, if labels are requested.
    #[serde(flatten)]
    shown: Map<String, Value>,
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
    pub(super) fn row(
        &self,
        place: CandidatePlace,
        answers: Vec<PointwiseAnswer<'a>>,
        precision: Precision,
    ) -> PointwiseRow<'a> {
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
        let asked = matches!(self.asking, PointwiseAsk::Labels { .. }).then(|| ("mass".to_owned(), json!(mass)));
        let shown = asked.into_iter().collect();
        PointwiseRow {
            item: &sample.id,
            attribute,
            candidate,
            index: place.candidate,
            score,
            mass,
            outcome,
            precision,
            shown,
            answers,
        }
    }
}
