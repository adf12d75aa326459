//! Methods that score each candidate independently: their shared questions, rows and summary.

mod asking;
mod beside;
mod questions;
mod report;
mod rows;

use probity_data::{Candidate, Sample};
use probity_lm::text::counted;

pub(crate) use asking::PointwiseAsk;

use crate::candidate_report::SCORES;
use crate::gold;
use crate::question::first_duplicate;
use crate::run::write_row;
use crate::template::{PromptLayout, Template};
use crate::{MethodError, MethodReport, Run, Signature};
use rows::{PointwiseAnswer, PointwiseRow};

/// The text shown with a candidate in the slot `other`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtherText {
    Context,
    /// Each reference in turn; the best score counts.
    References,
}

/// The parts that differ between pointwise methods.
pub(crate) struct Pointwise<'a> {
    pub(crate) samples: &'a [Sample],
    /// The attributes to judge; if prompts name none, the gold scores to compare with.
    pub(crate) attributes: &'a [String],
    /// The templates of each attribute. Several with a setting `question` each ask their own question. A prompt without
    /// an attribute has one group.
    pub(crate) templates: &'a [Vec<Template>],
    pub(crate) asking: PointwiseAsk<'a>,
    pub(crate) layout: PromptLayout,
    pub(crate) other: Option<OtherText>,
    /// Whether prompts name the attribute. If not, one score is compared with the gold of all attributes.
    pub(crate) names_attribute: bool,
    pub(crate) no_gold: bool,
    /// The kind of score, for the table head.
    pub(crate) unit: &'a str,
    /// The range of scores; see [`RunScores::within`](crate::RunScores::within).
    pub(crate) within: Option<[f64; 2]>,
    /// Whether the sign of a score is meaningful.
    pub(crate) signed: bool,
}

/// One prompt: a candidate under one template, with one reference if there are several.
#[derive(Debug, Clone, Copy)]
struct PointwiseQuestion {
    position: usize,
    row: usize,
    template: usize,
    reference: Option<usize>,
}

/// The position of a row: template group, sample, candidate.
#[derive(Debug, Clone, Copy)]
struct CandidatePlace {
    group: usize,
    item: usize,
    candidate: usize,
}

impl<'a> Pointwise<'a> {
    /// Answers all questions, writes the rows and summarises.
    pub(crate) fn run(&self, signature: Signature, run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        self.ask_each_once()?;
        let gold = gold::uses(self.samples, self.attributes, self.no_gold)?;
        let without = self.without_other()?;
        let precision = run.model().description().precision;
        let places = self.places();
        let mut questions = Vec::new();
        let mut answers: Vec<Vec<Option<PointwiseAnswer<'a>>>> = vec![Vec::new(); places.len()];
        for (row, place) in places.iter().enumerate() {
            for question in self.questions(row, *place) {
                answers[row].push(None);
                // Prompts are rendered when the model takes them; this checks first that all of them render.
                run.quotes(self.render(*place, question)?.quoted);
                questions.push(question);
            }
        }
        run.table(SCORES, places.len())?;
        let mut rows: Vec<Option<PointwiseRow<'a>>> = vec![None; places.len()];
        // Rows without questions are written first, since no answer triggers them.
        for (index, place) in places.iter().enumerate().filter(|(index, _)| answers[*index].is_empty()) {
            let row = self.row(*place, Vec::new());
            run.row(SCORES, index, &self.written(&row, precision))?;
            rows[index] = Some(row);
        }
        let places_asked: Vec<(CandidatePlace, PointwiseQuestion)> =
            questions.iter().map(|question| (places[question.row], *question)).collect();
        let mut open: Vec<usize> = answers.iter().map(Vec::len).collect();
        self.ask(&places_asked, run, &mut |asked, reply, output| {
            let question = questions[asked];
            let of_row = &mut answers[question.row];
            of_row[question.position] = Some(self.answer(places[question.row], question, reply));
            open[question.row] -= 1;
            if open[question.row] > 0 {
                return Ok(());
            }
            let row = self.row(places[question.row], std::mem::take(of_row).into_iter().flatten().collect());
            write_row(output, SCORES, question.row, &self.written(&row, precision))?;
            rows[question.row] = Some(row);
            Ok(())
        })?;
        let rows: Vec<PointwiseRow<'a>> = rows.into_iter().map(|row| row.expect("each question is answered")).collect();
        self.write_questions(&places, &rows, run)?;
        let mut report = self.report(&places, &rows, &gold, signature);
        if let (Some(other), Some(table), 1..) = (self.other, report.tables.first_mut(), without) {
            let what = if other == OtherText::Context { "context" } else { "reference" };
            let all = counted(self.samples.len(), "sample");
            table.note(format!("no {what}, hence no scores: {without} of {all}"));
        }
        Ok(report)
    }

    /// Refuses duplicate questions, which would count twice.
    fn ask_each_once(&self) -> Result<(), MethodError> {
        for templates in self.templates {
            let asked: Vec<_> =
                templates.iter().map(|template| (template.name(), template.setting("question"))).collect();
            if let Some((twice, _)) = first_duplicate(&asked) {
                return MethodError::refuse(format!("--template {twice}"), "repeated", "name each template once");
            }
        }
        Ok(())
    }

    fn places(&self) -> Vec<CandidatePlace> {
        let mut places = Vec::new();
        for (item, sample) in self.samples.iter().enumerate() {
            for group in 0..self.templates.len() {
                places.extend((0..sample.candidates.len()).map(|candidate| CandidatePlace { group, item, candidate }));
            }
        }
        places
    }

    /// The questions of one row; empty if there is nothing to judge.
    fn questions(&self, row: usize, place: CandidatePlace) -> Vec<PointwiseQuestion> {
        let sample = &self.samples[place.item];
        let others: Vec<(Option<usize>, &str)> = match self.other {
            None => vec![(None, "")],
            Some(OtherText::Context) => vec![(None, &*sample.context)],
            Some(OtherText::References) => sample.references.iter().enumerate().map(|(k, r)| (Some(k), &**r)).collect(),
        };
        let empty = |text: &str| text.trim().is_empty();
        if empty(&self.candidate(place).text) {
            return Vec::new();
        }
        let mut questions = Vec::new();
        for template in 0..self.templates[place.group].len() {
            for &(reference, _) in others.iter().filter(|(_, other)| self.other.is_none() || !empty(other)) {
                questions.push(PointwiseQuestion { position: questions.len(), row, template, reference });
            }
        }
        questions
    }

    /// The number of samples without a text to compare with; an error if all lack one.
    fn without_other(&self) -> Result<usize, MethodError> {
        let Some(other) = self.other else { return Ok(0) };
        let lacks = |sample: &&Sample| match other {
            OtherText::Context => sample.context.trim().is_empty(),
            OtherText::References => sample.references.iter().all(|text| text.trim().is_empty()),
        };
        let without = self.samples.iter().filter(lacks).count();
        if without < self.samples.len() {
            return Ok(without);
        }
        match other {
            OtherText::Context => {
                let hint = "add a \"context\" to the samples, or use --against reference";
                MethodError::refuse("--against context", "no sample has a context", hint)
            }
            OtherText::References => {
                let hint = "add \"references\" to the samples, or use --against context";
                MethodError::refuse("--against reference", "no sample has references", hint)
            }
        }
    }

    fn candidate(&self, place: CandidatePlace) -> &'a Candidate {
        &self.samples[place.item].candidates[place.candidate]
    }
}
