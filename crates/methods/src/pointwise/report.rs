//! The report of a pointwise method.

use probity_lm::text::counted;
use serde::Serialize;
use serde_json::{Value, json};

use super::asking::PointwiseAsk;
use super::beside::{report_baselines, report_repeated};
use super::rows::PointwiseRow;
use super::{CandidatePlace, Pointwise};
use crate::conclusion::{AnswerDoubts, ConclusionCase};
use crate::figures::{Mass, mean, number};
use crate::gold::{self, GoldUse};
use crate::{Conclusion, Headline, MethodReport, Outcomes, RunScores, Signature, Table, cells};

/// Replaces the attribute if the prompt names none.
const NO_ATTRIBUTE: &str = "–";
/// The column with the share of scores above zero.
const ABOVE_ZERO: &str = "> 0";

/// Tables and figures, filled attribute by attribute.
struct PointwiseTables {
    scores: Table,
    gold: Table,
    systems: Table,
    /// Figures of each group's scores, with their agreement with gold.
    groups: Vec<Value>,
    against: Vec<Value>,
    /// Agreement with gold, or means without gold.
    agreement: Vec<Headline>,
    means: Vec<Headline>,
    verdict: Vec<Conclusion>,
}

impl PointwiseTables {
    fn new(of: &Pointwise<'_>) -> Self {
        let unit = of.unit;
        let columns = ["attribute", "scored", "mean", "min", "max"].into_iter().chain(of.signed.then_some(ABOVE_ZERO));
        Self {
            scores: Table::new(format!("Scores ({unit})"), columns.chain(["mass", "low mass"])),
            gold: gold::table(),
            systems: gold::systems_table(unit),
            groups: Vec::new(),
            against: Vec::new(),
            agreement: Vec::new(),
            means: Vec::new(),
            verdict: Vec::new(),
        }
    }

    /// Adds the scores of one group and their agreement with gold: of its attribute, or of all if the prompt names
    /// none.
    fn add(
        &mut self,
        of: &Pointwise<'_>,
        name: &str,
        figures: &PointwiseFigures,
        scores: &Scores,
        gold: &[GoldUse<'_>],
    ) {
        let named = (name != NO_ATTRIBUTE).then_some(name);
        figures.push(name, of.signed, &mut self.scores);
        self.means.push(Headline::new("mean", named, figures.mean));
        let about = |attribute: &str| (of.attributes.len() > 1).then(|| attribute.to_owned());
        let conclude = |named: &str, gold: Option<&probity_stats::AgreementFigures>| {
            let low_mass = figures.mass.low_share.filter(|_| figures.mass.answers > 0);
            let answers = AnswerDoubts { low_mass, ..AnswerDoubts::default() };
            let (samples, preferences) = (of.samples, !of.no_gold);
            let (about, attribute) = (about(named), Some(named));
            let case = ConclusionCase { about, samples, scores, gold, attribute, ..ConclusionCase::default() };
            let mut found = ConclusionCase { preferences, answers, ..case }.conclusion();
            if let PointwiseAsk::Candidate { .. } = of.asking {
                // Likelihoods depend on length and on the system that wrote a text, often more than on quality.
                report_baselines(&mut found, of.samples, named, scores);
            }
            found
        };
        let used: Vec<&GoldUse<'_>> =
            gold.iter().filter(|gold| gold.present && (!of.names_attribute || gold.attribute == name)).collect();
        for one in &used {
            let figures = gold::against(of.samples, one.attribute, scores);
            gold::push(&figures, one.attribute, "", &mut self.gold);
            let spearman = figures.spearman.per_context.figure.mean;
            self.agreement.push(Headline::new("Spearman", Some(one.attribute), spearman));
            self.verdict.push(conclude(one.attribute, Some(&figures)));
            self.against.push(json!({ "attribute": one.attribute, "figures": figures }));
        }
        if used.is_empty() {
            self.verdict.push(conclude(name, None));
        }
        gold::push_systems(of.samples, name, scores, &mut self.systems);
        self.groups.push(json!({ "attribute": named, "figures": figures }));
    }

    /// Adds notes about the scores.
    fn note(&mut self, of: &Pointwise<'_>, rows: &[PointwiseRow<'_>]) {
        let above_zero = if of.signed { format!("{ABOVE_ZERO}: share of scores above zero. ") } else { String::new() };
        let mass = match of.asking {
            PointwiseAsk::Labels { .. } => "Mass: label mass; low mass: share flagged low_mass (--min-mass).",
            PointwiseAsk::Candidate { .. } | PointwiseAsk::Classes { .. } | PointwiseAsk::Texts { .. } => "",
        };
        self.scores.notes.extend(Some(format!("{above_zero}{mass}")).filter(|note| !note.is_empty()));
        let low: usize = rows.iter().filter(|row| row.outcome.is_low_mass()).count();
        if low > 0 {
            let asked = rows.iter().filter(|row| row.mass.is_some());
            let once = if asked.clone().any(|row| row.answers.len() > 1) { " in at least one answer" } else { "" };
            let all = counted(asked.count(), "candidate");
            self.scores.note(format!("{low} of {all} have low label mass{once}."));
        }
    }
}

/// Scores by sample and candidate.
pub(super) type Scores = [Vec<Option<f64>>];

impl Pointwise<'_> {
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
        let mut filled = PointwiseTables::new(self);
        let mut of_run = RunScores::new(self.within);
        for (group, templates) in self.templates.iter().enumerate() {
            let of_group: Vec<(&CandidatePlace, &PointwiseRow<'_>)> =
                places.iter().zip(rows).filter(|(place, _)| place.group == group).collect();
            let mut scores: Vec<Vec<Option<f64>>> =
                self.samples.iter().map(|sample| vec![None; sample.candidates.len()]).collect();
            for (place, row) in &of_group {
                scores[place.item][place.candidate] = row.score;
            }
            let figures = PointwiseFigures::from_rows(of_group.iter().map(|(_, row)| *row));
            let name = if self.names_attribute { self.attributes[group].as_str() } else { NO_ATTRIBUTE };
            filled.add(self, name, &figures, &scores, gold);
            of_run.push((name != NO_ATTRIBUTE).then_some(name), scores);
            signature = signature.with_templates(templates);
        }
        report_repeated(&mut filled.verdict, &of_run.attributes);
        filled.note(self, rows);
        crate::attributes::note_absent_gold(gold, &mut filled.scores);
        if gold.is_empty() && !self.no_gold {
            gold::note_unused(self.samples, &mut filled.scores);
        }
        let mut values = json!({ "scores": filled.groups, "gold": filled.against });
        if let PointwiseAsk::Texts { .. } = self.asking {
            let unparsed: usize = rows.iter().flat_map(|row| &row.answers).map(|answer| answer.reply.unparsed).sum();
            values["unparsed_samples"] = json!(unparsed);
            if unparsed > 0 {
                filled
                    .scores
                    .note(format!("no score: {}; means are over the others", counted(unparsed, "generated text")));
            }
        }
        let questions = self.questions_table(places, rows);
        let tables = gold::main_first(filled.systems, [filled.scores, questions, filled.gold]);
        let headline = if filled.agreement.is_empty() { filled.means } else { filled.agreement };
        let verdict = filled.verdict;
        MethodReport { values, tables, outcomes, headline, verdict, scores: of_run, ..MethodReport::new(signature) }
    }
}

/// Figures of the scores of one group.
#[derive(Debug, Clone, Serialize)]
struct PointwiseFigures {
    candidates: usize,
    scored: usize,
    mean: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    share_above_zero: Option<f64>,
    mass: Mass,
}

impl PointwiseFigures {
    fn from_rows<'r>(rows: impl Iterator<Item = &'r PointwiseRow<'r>> + Clone) -> Self {
        let scores: Vec<f64> = rows.clone().filter_map(|row| row.score).collect();
        Self {
            candidates: rows.clone().count(),
            scored: scores.len(),
            mean: mean(scores.iter().copied()),
            min: scores.iter().copied().reduce(f64::min),
            max: scores.iter().copied().reduce(f64::max),
            share_above_zero: mean(scores.iter().map(|s| f64::from(u8::from(*s > 0.0)))),
            mass: Mass::from_answers(rows.flat_map(|row| &row.answers).filter_map(|answer| {
                let answer = &answer.reply.answer;
                Some((answer.mass?, answer.outcome.is_low_mass()))
            })),
        }
    }

    fn push(&self, name: &str, signed: bool, table: &mut Table) {
        let scored = format!("{} of {}", self.scored, self.candidates);
        let figures = [self.mean, self.min, self.max].into_iter().chain(signed.then_some(self.share_above_zero));
        let cells = figures.chain([self.mass.mean, self.mass.low_share]).map(number);
        table.push(cells![name, scored].into_iter().chain(cells));
    }
}
