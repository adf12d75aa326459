//! The report of a pointwise method.

use probity_lm::text::counted;
use probity_stats::AgreementFigures;
use serde::Serialize;
use serde_json::json;

use super::asking::PointwiseAsk;
use super::beside::{report_baselines, report_repeated};
use super::rows::PointwiseRow;
use super::{CandidatePlace, Pointwise};
use crate::candidate_report::{CandidateReport, ScoreFigures, Scores};
use crate::conclusion::{AnswerDoubts, ConclusionCase};
use crate::figures::{Mass, mean, number};
use crate::gold::{self, GoldUse};
use crate::{Cell, Conclusion, MethodReport, Outcomes, Signature, Table};

/// Replaces the attribute if the prompt names none.
const NO_ATTRIBUTE: &str = "–";
/// The column with the share of scores above zero.
const ABOVE_ZERO: &str = "> 0";

impl Pointwise<'_> {
    fn scores_table(&self) -> Table {
        let columns = ScoreFigures::COLUMNS.into_iter().chain(self.signed.then_some(ABOVE_ZERO));
        Table::new(format!("Scores ({})", self.unit), columns.chain(["mass", "low mass"]))
    }

    /// The conclusion about an attribute.
    fn conclude(
        &self,
        named: &str,
        gold: Option<&AgreementFigures>,
        scores: &Scores,
        figures: &PointwiseFigures,
    ) -> Conclusion {
        let low_mass = figures.mass.low_share.filter(|_| figures.mass.answers > 0);
        let answers = AnswerDoubts { low_mass, ..AnswerDoubts::default() };
        let (samples, preferences) = (self.samples, !self.no_gold);
        let (about, attribute) = ((self.attributes.len() > 1).then(|| named.to_owned()), Some(named));
        let case = ConclusionCase { about, samples, scores, gold, attribute, ..ConclusionCase::default() };
        let mut found = ConclusionCase { preferences, answers, ..case }.conclusion();
        if let PointwiseAsk::Candidate { .. } = self.asking {
            // Likelihoods depend on length and on the system that wrote a text, often more than on quality.
            report_baselines(&mut found, self.samples, named, scores);
        }
        found
    }

    /// Adds notes about the scores.
    fn note(&self, table: &mut Table, rows: &[PointwiseRow<'_>]) {
        let above_zero =
            if self.signed { format!("{ABOVE_ZERO}: share of scores above zero. ") } else { String::new() };
        let mass = match self.asking {
            PointwiseAsk::Labels { .. } => "Mass: label mass; low mass: share flagged low_mass (--min-mass).",
            PointwiseAsk::Candidate { .. } | PointwiseAsk::Classes { .. } | PointwiseAsk::Texts { .. } => "",
        };
        table.notes.extend(Some(format!("{above_zero}{mass}")).filter(|note| !note.is_empty()));
        let low: usize = rows.iter().filter(|row| row.outcome.is_low_mass()).count();
        if low > 0 {
            let asked = rows.iter().filter(|row| row.mass.is_some());
            let once = if asked.clone().any(|row| row.answers.len() > 1) { " in at least one answer" } else { "" };
            let all = counted(asked.count(), "candidate");
            table.note(format!("{low} of {all} have low label mass{once}."));
        }
    }

    pub(super) fn report(
        &self,
        places: &[CandidatePlace],
        rows: &[PointwiseRow<'_>],
        gold: &[GoldUse<'_>],
        mut signature: Signature,
    ) -> MethodReport {
        let mut outcomes = Outcomes::default();
        for row in rows {
            outcomes.add(&row.outcome);
        }
        let mut filled = CandidateReport::new(self.samples, self.scores_table(), self.unit, self.within);
        for (group, templates) in self.templates.iter().enumerate() {
            let of_group: Vec<(&CandidatePlace, &PointwiseRow<'_>)> =
                places.iter().zip(rows).filter(|(place, _)| place.group == group).collect();
            let mut scores: Vec<Vec<Option<f64>>> =
                self.samples.iter().map(|sample| vec![None; sample.candidates.len()]).collect();
            for (place, row) in &of_group {
                scores[place.item][place.candidate] = row.score;
            }
            let figures = PointwiseFigures::new(&scores, of_group.iter().map(|(_, row)| *row));
            let attribute = self.names_attribute.then(|| self.attributes[group].as_str());
            let name = attribute.unwrap_or(NO_ATTRIBUTE);
            filled.scores.push(figures.cells(name, self.signed));
            // A prompt that names no attribute is compared with the gold of all.
            let used = gold.iter().filter(|gold| gold.present && attribute.is_none_or(|name| gold.attribute == name));
            let values = json!({ "attribute": attribute, "figures": figures });
            filled.add((name, attribute), scores, values, used.map(|gold| gold.attribute), |named, gold, scores| {
                self.conclude(named, gold, scores, &figures)
            });
            signature = signature.with_templates(templates);
        }
        report_repeated(&mut filled.verdict, &filled.of_run.attributes);
        self.note(&mut filled.scores, rows);
        crate::attributes::note_absent_gold(gold, &mut filled.scores);
        if gold.is_empty() && !self.no_gold {
            gold::note_unused(self.samples, &mut filled.scores);
        }
        let unparsed = matches!(self.asking, PointwiseAsk::Texts { .. })
            .then(|| rows.iter().flat_map(|row| &row.answers).map(|answer| answer.reply.unparsed).sum::<usize>());
        if let Some(unparsed @ 1..) = unparsed {
            filled.scores.note(format!("no score: {}; means are over the others", counted(unparsed, "generated text")));
        }
        let mut report = filled.finish(signature, outcomes, [self.questions_table(places, rows)]);
        if let Some(unparsed) = unparsed {
            report.values["unparsed_samples"] = json!(unparsed);
        }
        report
    }
}

/// Figures of the scores of one group.
#[derive(Debug, Clone, Serialize)]
struct PointwiseFigures {
    #[serde(flatten)]
    scores: ScoreFigures,
    share_above_zero: Option<f64>,
    mass: Mass,
}

impl PointwiseFigures {
    fn new<'r>(scores: &Scores, rows: impl Iterator<Item = &'r PointwiseRow<'r>>) -> Self {
        Self {
            scores: ScoreFigures::from_scores(scores),
            share_above_zero: mean(scores.iter().flatten().flatten().map(|s| f64::from(u8::from(*s > 0.0)))),
            mass: Mass::from_answers(rows.flat_map(|row| &row.answers).filter_map(|answer| {
                let answer = &answer.reply.answer;
                Some((answer.mass?, answer.outcome.is_low_mass()))
            })),
        }
    }

    fn cells(&self, name: &str, signed: bool) -> impl Iterator<Item = Cell> {
        let further = signed.then_some(self.share_above_zero).into_iter();
        let further = further.chain([self.mass.mean, self.mass.low_share]).map(number);
        self.scores.cells(name).into_iter().chain(further)
    }
}
