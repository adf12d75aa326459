//! Figures of single checklist questions.

use std::collections::BTreeMap;

use probity_stats::{Correlation, per_context};

use super::rows::PointwiseRow;
use super::{CandidatePlace, Pointwise};
use crate::figures::{mean, number};
use crate::{MethodError, Run, Table, cells, row};

/// The table of all answers.
const CHECKLIST: &str = "checklist";
/// Answers that differ by less than this over all candidates do not discriminate.
const ALIKE: f64 = 0.05;

/// The answers to a question about a sample's candidates, each with gold if available.
type AnsweredSample = Vec<(f64, Option<f64>)>;

impl Pointwise<'_> {
    /// Writes the answers to single questions, if any: a row for each candidate and question.
    pub(super) fn write_questions(
        &self,
        places: &[CandidatePlace],
        rows: &[PointwiseRow<'_>],
        run: &mut Run<'_>,
    ) -> Result<(), MethodError> {
        if self.templates.iter().flatten().all(|template| template.setting("question").is_none()) {
            return Ok(());
        }
        let mut answers = Vec::new();
        for (place, row) in places.iter().zip(rows) {
            let attribute = self.attributes.get(place.group).map(String::as_str);
            for (metric, score) in self.answers(place.group, row) {
                let (item, candidate) = (&self.samples[place.item].id, &self.candidate(*place).id);
                // As in a table of scores, with the question as the metric.
                answers.push(row! {
                    "item": item, "attribute"?: attribute, "candidate": candidate, "metric": metric, "score": score,
                });
            }
        }
        run.table(CHECKLIST, answers.len())?;
        answers.iter().enumerate().try_for_each(|(index, answer)| run.row(CHECKLIST, index, answer))
    }

    /// Each question of a group with the answer about a candidate, averaged over templates.
    fn answers(&self, group: usize, row: &PointwiseRow<'_>) -> Vec<(&str, Option<f64>)> {
        let mut questions: Vec<&str> = Vec::new();
        for question in self.templates[group].iter().filter_map(|template| template.setting("question")) {
            if !questions.contains(&question) {
                questions.push(question);
            }
        }
        let of = |question: &str| {
            let own = row.answers.iter().filter(|answer| answer.question == Some(question));
            let scores: Option<Vec<f64>> = own.map(|answer| answer.reply.answer.value).collect();
            mean(scores?)
        };
        questions.into_iter().map(|question| (question, of(question))).collect()
    }

    /// For each question: its mean answer, the spread of answers, and their agreement with gold.
    pub(super) fn questions_table(&self, places: &[CandidatePlace], rows: &[PointwiseRow<'_>]) -> Table {
        let mut table =
            Table::new("Questions", ["attribute", "question", "mean", "min", "max", "Spearman per context"]);
        let mut silent = Vec::new();
        for group in 0..self.templates.len() {
            let attribute = self.attributes.get(group).map_or("–", String::as_str);
            // By question and sample.
            let mut all: Vec<(&str, BTreeMap<usize, AnsweredSample>)> = Vec::new();
            for (place, row) in places.iter().zip(rows).filter(|(place, _)| place.group == group) {
                let gold = self.candidate(*place).scores.get(attribute).copied().filter(|_| !self.no_gold);
                for (number, (question, answer)) in self.answers(group, row).into_iter().enumerate() {
                    if all.len() == number {
                        all.push((question, BTreeMap::new()));
                    }
                    all[number].1.entry(place.item).or_default().extend(answer.map(|answer| (answer, gold)));
                }
            }
            for (question, by_sample) in all {
                let answers: Vec<f64> = by_sample.values().flatten().map(|(answer, _)| *answer).collect();
                let (least, most) =
                    (answers.iter().copied().reduce(f64::min), answers.iter().copied().reduce(f64::max));
                let contexts: Vec<(Vec<f64>, Vec<f64>)> = by_sample
                    .values()
                    .map(|answers| answers.iter().filter_map(|(answer, gold)| Some((*answer, (*gold)?))).unzip())
                    .collect();
                let lists = contexts.iter().map(|(answers, gold)| (answers.as_slice(), gold.as_slice()));
                let agreement = per_context(Correlation::Spearman, lists).mean;
                table.push(cells![
                    attribute,
                    question,
                    number(mean(answers.iter().copied())),
                    number(least),
                    number(most),
                    number(agreement),
                ]);
                if answers.len() > 1 && most.zip(least).is_some_and(|(most, least)| most - least < ALIKE) {
                    silent.push(format!("\"{question}\""));
                }
            }
        }
        if !silent.is_empty() {
            table.note(format!("Uninformative questions, with the same answer for every text: {}", silent.join(", ")));
        }
        table
    }
}
