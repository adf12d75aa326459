//! Methods that score each candidate by itself: the questions, the rows and the summary they have in common.

mod asking;
mod beside;
mod questions;
mod report;
mod rows;

use probity_data::{Candidate, Sample};
use probity_lm::text::counted;

pub(crate) use asking::PointwiseAsk;

use crate::gold;
use crate::question::given_twice;
use crate::run::write_row;
use crate::template::{PromptLayout, Template};
use crate::{MethodError, MethodReport, Run, Signature};
use rows::{PointwiseAnswer, PointwiseRow};

/// The table of all scores.
const SCORES: &str = "scores";

/// What a candidate is shown with, in the slot `other`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtherText {
    Context,
    /// Each of the references; the best score counts.
    References,
}

/// A pointwise method's particulars.
pub(crate) struct Pointwise<'a> {
    pub(crate) samples: &'a [Sample],
    /// The attributes asked about; where prompts name none, the gold scores to compare with.
    pub(crate) attributes: &'a [String],
    /// The templates of each attribute, one for each question where they have a setting of that name, or of the one
    /// question where the prompt names no attribute.
    pub(crate) templates: &'a [Vec<Template>],
    pub(crate) asking: PointwiseAsk<'a>,
    pub(crate) layout: PromptLayout,
    pub(crate) other: Option<OtherText>,
    /// Whether prompts name the attribute. Where they do not, one score is held against the gold of all.
    pub(crate) names_attribute: bool,
    pub(crate) no_gold: bool,
    /// What the score is, for the table's head.
    pub(crate) unit: &'a str,
    /// Between which values scores are; see [`RunScores::within`](crate::RunScores::within).
    pub(crate) within: Option<[f64; 2]>,
    /// Scores lie on either side of zero, and which side says something.
    pub(crate) signed: bool,
}

/// One prompt: a candidate under one template, against one reference where there are several.
#[derive(Debug, Clone, Copy)]
struct PointwiseQuestion {
    position: usize,
    row: usize,
    template: usize,
    reference: Option<usize>,
}

/// Where a row stands: which group of templates, which sample, which candidate.
#[derive(Debug, Clone, Copy)]
struct CandidatePlace {
    group: usize,
    item: usize,
    candidate: usize,
}

impl<'a> Pointwise<'a> {
    /// Asks everything, writes the rows and sums up.
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
                // Prompts are made when the model takes them; that all of them can be is found out first.
                run.quotes(self.render(*place, question)?.quoted);
                questions.push(question);
            }
        }
        run.table(SCORES, places.len())?;
        let mut rows: Vec<Option<PointwiseRow<'a>>> = vec![None; places.len()];
        // Written first: no answer will come that would bring these rows about.
        for (index, place) in places.iter().enumerate().filter(|(index, _)| answers[*index].is_empty()) {
            let row = self.row(*place, Vec::new(), precision);
            run.row(SCORES, index, &row)?;
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
            let row = self.row(places[question.row], std::mem::take(of_row).into_iter().flatten().collect(), precision);
            write_row(output, SCORES, question.row, &row)?;
            rows[question.row] = Some(row);
            Ok(())
        })?;
        let rows: Vec<PointwiseRow<'a>> = rows.into_iter().map(|row| row.expect("each question is answered")).collect();
        self.write_questions(&places, &rows, run)?;
        let mut report = self.report(&places, &rows, &gold, signature);
        if let (Some(other), Some(table), 1..) = (self.other, report.tables.first_mut(), without) {
            let what = if other == OtherText::Context { "context" } else { "reference" };
            let all = counted(self.samples.len(), "sample");
            table.note(format!("without a {what}, and so without scores: {without} of {all}"));
        }
        Ok(report)
    }

    /// A question that is asked twice in the same words would count twice.
    fn ask_each_once(&self) -> Result<(), MethodError> {
        for templates in self.templates {
            let asked: Vec<_> =
                templates.iter().map(|template| (template.name(), template.setting("question"))).collect();
            if let Some((twice, _)) = given_twice(&asked) {
                return MethodError::refuse(format!("--template {twice}"), "given twice", "name each template once");
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

    /// The questions of one row; none where there is nothing to judge.
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

    /// Samples without anything to hold candidates against; that no sample has it is an error.
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
                let hint = "give the samples a \"context\", or say --against reference";
                MethodError::refuse("--against context", "no sample has a context", hint)
            }
            OtherText::References => {
                let hint = "give the samples \"references\", or say --against context";
                MethodError::refuse("--against reference", "no sample has references", hint)
            }
        }
    }

    fn candidate(&self, place: CandidatePlace) -> &'a Candidate {
        &self.samples[place.item].candidates[place.candidate]
    }
}
