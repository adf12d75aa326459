//! The figures and the conclusion of a judge or a panel.

use probity_data::{Preference, Sample};
use probity_lm::Outcome;
use probity_lm::text::counted;
use probity_stats::{FigureEstimate, KappaWeights, MeasurementLevel, cohen_kappa, krippendorff_alpha};
use serde::Serialize;
use serde_json::{Value, json};

use super::method::JudgeParams;
use super::options::Mode;
use super::plan::{JudgePlan, UnitVerdict};
use super::verdict::{Decision, JudgeVerdict, PairChoice};
use crate::conclusion::{AnswerDoubts, ConclusionCase};
use crate::figures::{BY_ORDER, Mass, ShareFigure, bounds, mean, number, share_estimate};
use crate::gold::{self, GoldUse, PreferenceAgreement};
use crate::{Headline, MethodReport, Outcomes, RunScores, Signature, Table, cells};

/// The panel's name next to its judges.
const PANEL: &str = "panel";

/// The parts of a verdict that figures need.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct VerdictDigest {
    p: Option<f64>,
    mass: Option<f64>,
    outcome: Outcome,
    unparsed: usize,
}

impl VerdictDigest {
    pub(super) fn from_verdict(verdict: &JudgeVerdict) -> Self {
        let decided = &verdict.decided;
        Self { p: decided.p(), mass: verdict.mass(), outcome: decided.outcome.clone(), unparsed: verdict.unparsed() }
    }
}

/// All verdicts, combined by unit and over the panel.
pub(super) struct JudgeResults<'s> {
    pub(super) params: &'s JudgeParams,
    pub(super) samples: &'s [Sample],
    pub(super) plan: JudgePlan,
    /// The judges' names.
    pub(super) names: Vec<String>,
    /// By judge and question.
    pub(super) told: Vec<Vec<VerdictDigest>>,
    /// By judge and unit.
    pub(super) settled: Vec<Vec<UnitVerdict>>,
    /// By unit.
    pub(super) panel: Vec<Decision>,
}

/// The figures of one judge or the panel for one attribute.
#[derive(Debug, Clone, Serialize)]
struct JudgeFigures<'a> {
    judge: &'a str,
    attribute: &'a str,
    /// Pairs or candidates.
    units: usize,
    /// Units with a verdict.
    decided: usize,
    /// Pairs whose verdict is a tie.
    #[serde(skip_serializing_if = "Option::is_none")]
    ties: Option<usize>,
    /// The mean rating.
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_rating: Option<f64>,
    /// Dependence on presentation order; absent for ratings and for a panel.
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<OrderFigures>,
    /// Label mass; absent for written verdicts.
    #[serde(skip_serializing_if = "Option::is_none")]
    mass: Option<Mass>,
    /// Answers without a verdict; each cycle counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    unparsed_answers: Option<usize>,
    /// Agreement with preferred candidates; absent if the data have no preferences.
    #[serde(skip_serializing_if = "Option::is_none")]
    preference: Option<JudgePreferenceFigures>,
}

/// The dependence of verdicts on the order of a pair.
#[derive(Debug, Clone, Serialize)]
struct OrderFigures {
    /// Mean p over questions: how often the first position wins.
    first: Option<f64>,
    /// Pairs with a verdict in both orders.
    both: usize,
    /// The share of these pairs whose verdict changes.
    changed: FigureEstimate<ShareFigure>,
    /// Mean and maximum of |p − (1 − p′)| over these pairs, for verdicts with probabilities.
    gap_mean: Option<f64>,
    gap_max: Option<f64>,
}

/// Agreement with preferences: correct if the preferred candidate scores above all others, half if it ties with the
/// best.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct JudgePreferenceFigures {
    #[serde(flatten)]
    agreement: PreferenceAgreement,
    /// The share of all samples with a preference in which the preferred candidate alone has the best score. Ties and
    /// missing verdicts count as wrong, as in papers.
    right_of_all: Option<f64>,
    /// Samples in which some candidate has no score.
    not_judged: usize,
    /// Omitted: people had no preference.
    preferred_none: usize,
    /// Accuracy in the order of the data, and in the other order; absent if not judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    given_order: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turned_order: Option<f64>,
}

impl JudgePreferenceFigures {
    fn from_scores(samples: &[Sample], scores: &[Vec<Option<f64>>]) -> Self {
        let mut figures = Self::default();
        let mut points = Vec::new();
        for (sample, scores) in samples.iter().zip(scores) {
            match (&sample.preference, gold::choice(sample, scores)) {
                (_, Some(choice)) => points.push(choice.point),
                (Some(Preference::Tie), None) => figures.preferred_none += 1,
                (Some(Preference::Candidate(_)), None) if sample.candidates.len() > 1 => figures.not_judged += 1,
                _ => {}
            }
        }
        figures.agreement = PreferenceAgreement::from_points(&points);
        let all = points.len() + figures.not_judged;
        figures.right_of_all = (all > 0).then(|| figures.agreement.correct as f64 / all as f64);
        figures
    }
}

impl<'s> JudgeResults<'s> {
    /// Scores by one judge; see [`JudgePlan::scores`].
    pub(super) fn scores(&self, judge: usize, attribute: usize) -> Vec<Vec<Option<f64>>> {
        self.plan.scores(self.samples, attribute, self.settled[judge].iter().map(|settled| Some(&settled.decided)))
    }

    /// Scores of all judges combined.
    pub(super) fn panel_scores(&self, attribute: usize) -> Vec<Vec<Option<f64>>> {
        self.plan.scores(self.samples, attribute, self.panel.iter().map(Some))
    }

    /// The outcome of a candidate's score.
    pub(super) fn outcome(&self, item: usize, attribute: usize, candidate: usize, scored: bool) -> Outcome {
        let units = &self.plan.units;
        // The units of a sample are adjacent.
        let (start, end) =
            (units.partition_point(|unit| unit.item < item), units.partition_point(|unit| unit.item <= item));
        let concerns = |unit: &usize| {
            let unit = units[*unit];
            unit.attribute == attribute && (unit.first == candidate || unit.second == Some(candidate))
        };
        let mut outcomes = (start..end).filter(concerns).map(|unit| &self.panel[unit].outcome);
        if scored {
            outcomes.find(|outcome| outcome.is_low_mass()).cloned().unwrap_or(Outcome::Scored)
        } else {
            outcomes.find(|outcome| !outcome.has_answer()).cloned().unwrap_or(Outcome::Empty)
        }
    }

    fn attribute(&self, attribute: usize) -> &'s str {
        &self.params.judging.attribute[attribute]
    }

    fn has_preferences(&self) -> bool {
        !self.params.no_gold && self.samples.iter().any(|sample| sample.preference.is_some())
    }

    /// The figures of one judge, or of the panel.
    fn figures(&self, judge: Option<usize>, attribute: usize) -> JudgeFigures<'_> {
        let pairs = self.params.judging.mode == Mode::Pairwise;
        let of_attribute = |unit: &usize| self.plan.units[*unit].attribute == attribute;
        let units: Vec<usize> = (0..self.plan.units.len()).filter(of_attribute).collect();
        let decided = |unit: usize| judge.map_or(&self.panel[unit], |judge| &self.settled[judge][unit].decided);
        let scores = judge.map_or_else(|| self.panel_scores(attribute), |judge| self.scores(judge, attribute));
        let mut preference = self.has_preferences().then(|| JudgePreferenceFigures::from_scores(self.samples, &scores));
        if let (Some(figures), Some(judge), true) = (&mut preference, judge, pairs) {
            let order = |k: usize| {
                let scores =
                    self.plan.scores(self.samples, attribute, self.settled[judge].iter().map(|s| s.orders[k].as_ref()));
                JudgePreferenceFigures::from_scores(self.samples, &scores).agreement.accuracy
            };
            (figures.given_order, figures.turned_order) = (order(0), order(1));
        }
        let told = || {
            let of_judge = judge.iter().flat_map(|judge| self.plan.asked.iter().zip(&self.told[*judge]));
            of_judge.filter(|(asked, _)| self.plan.units[asked.unit].attribute == attribute).map(|(_, told)| told)
        };
        let masses = told().filter_map(|told| Some((told.mass?, told.outcome.is_low_mass())));
        JudgeFigures {
            judge: judge.map_or(PANEL, |judge| &self.names[judge]),
            attribute: self.attribute(attribute),
            units: units.len(),
            decided: units.iter().filter(|unit| decided(**unit).says.is_some()).count(),
            ties: pairs.then(|| units.iter().filter(|unit| decided(**unit).choice() == Some(PairChoice::Tie)).count()),
            mean_rating: mean(units.iter().filter_map(|unit| decided(*unit).rating())),
            order: judge
                .filter(|_| pairs)
                .map(|judge| self.order(judge, &units, mean(told().filter_map(|told| told.p)))),
            mass: (judge.is_some() && self.params.judging.verdict.has_labels()).then(|| Mass::from_answers(masses)),
            unparsed_answers: judge.map(|_| told().map(|told| told.unparsed).sum()),
            preference,
        }
    }

    fn order(&self, judge: usize, units: &[usize], first: Option<f64>) -> OrderFigures {
        let settled = || units.iter().map(|unit| &self.settled[judge][*unit]);
        let changed: Vec<f64> =
            settled().filter_map(UnitVerdict::turns).map(|turns| f64::from(u8::from(turns))).collect();
        let gaps: Vec<f64> =
            settled().filter_map(UnitVerdict::gap).filter(|_| self.params.judging.verdict.has_labels()).collect();
        OrderFigures {
            first,
            both: changed.len(),
            changed: share_estimate(&changed),
            gap_mean: mean(gaps.iter().copied()),
            gap_max: gaps.into_iter().reduce(f64::max),
        }
    }

    /// The method's report.
    pub(super) fn report(&self, gold: &[GoldUse<'_>], signature: Signature) -> MethodReport {
        let judges: Vec<Option<usize>> = match self.names.len() {
            1 => vec![Some(0)],
            several => (0..several).map(Some).chain([None]).collect(),
        };
        let attributes = 0..self.params.judging.attribute.len();
        let figures: Vec<JudgeFigures<'_>> =
            attributes.flat_map(|a| judges.iter().map(move |judge| self.figures(*judge, a))).collect();
        let outcomes = self.outcomes();
        let mut table = self.verdict_table(&figures);
        crate::attributes::note_absent_gold(gold, &mut table);
        let (of_gold, gold_table, mut headline, agreement_with_gold) = self.against_gold(gold);
        let overall = figures.iter().filter(|one| one.judge == PANEL || self.names.len() == 1);
        headline.extend(overall.clone().filter_map(|one| {
            let preference =
                one.preference.map(|figures| figures.agreement).filter(|of| of.correct + of.tied + of.wrong > 0)?;
            Some(Headline::new("accuracy", Some(one.attribute), preference.accuracy))
        }));
        if headline.is_empty() {
            headline.extend(overall.map(|one| match &one.order {
                Some(order) => Headline::new("changed with the order", Some(one.attribute), order.changed.figure.share),
                None => Headline::new("mean", Some(one.attribute), one.mean_rating),
            }));
        }
        let (agreement, agreement_table) = self.agreement();
        let is_rating = self.params.judging.mode == Mode::Pointwise;
        let mut systems = gold::systems_table(if is_rating { "rating" } else { "share of pairs won" });
        let mut scores = RunScores::new(is_rating.then(|| self.params.judging.scale.ends()));
        for attribute in 0..self.params.judging.attribute.len() {
            let (name, of_panel) = (self.attribute(attribute), self.panel_scores(attribute));
            gold::push_systems(self.samples, name, &of_panel, &mut systems);
            scores.push(Some(name), of_panel);
        }
        let values = json!({
            "items": self.samples.len(),
            "questions": self.plan.asked.len(),
            "one_candidate": self.plan.one_candidate,
            "no_reference": self.plan.no_reference,
            "judges": figures,
            "agreement": agreement,
            "gold": of_gold,
        });
        let verdict = (0..self.params.judging.attribute.len())
            .map(|attribute| {
                // Changes of order and low mass are only measured per judge.
                let judges =
                    || figures.iter().filter(|one| one.attribute == self.attribute(attribute) && one.judge != PANEL);
                let orders = judges().filter_map(|one| one.order.as_ref());
                let (changed, pairs) = orders
                    .filter_map(|order| Some((order.changed.figure.share? * order.both as f64, order.both)))
                    .fold((0.0, 0), |(changed, pairs), one| (changed + one.0, pairs + one.1));
                let turned = (pairs > 0).then(|| (changed / pairs as f64, pairs));
                let case = ConclusionCase {
                    about: (self.params.judging.attribute.len() > 1).then(|| self.attribute(attribute).to_owned()),
                    samples: self.samples,
                    scores: &scores.attributes[attribute].scores,
                    gold: agreement_with_gold[attribute].as_ref(),
                    attribute: Some(self.attribute(attribute)),
                    preferences: !self.params.no_gold,
                    answers: AnswerDoubts {
                        turned,
                        low_mass: Mass::flagged(judges().filter_map(|one| one.mass)).and_then(|mass| mass.low_share),
                        ..AnswerDoubts::default()
                    },
                    ..ConclusionCase::default()
                };
                case.conclusion()
            })
            .collect();
        let others = [preference_table(&figures), table, agreement_table, gold_table];
        let tables = gold::main_first(systems, others);
        MethodReport { verdict, outcomes, headline, scores, values, tables, ..MethodReport::new(signature) }
    }

    /// The outcomes of all questions to all judges.
    fn outcomes(&self) -> Outcomes {
        let mut outcomes = Outcomes::default();
        self.told.iter().flatten().for_each(|told| outcomes.add(&told.outcome));
        (0..self.plan.one_candidate).for_each(|_| outcomes.add_named("one_candidate"));
        (0..self.plan.no_reference).for_each(|_| outcomes.add_named("no_reference"));
        outcomes
    }

    fn verdict_table(&self, figures: &[JudgeFigures<'_>]) -> Table {
        let labels = self.params.judging.verdict.has_labels();
        if self.params.judging.mode == Mode::Pointwise {
            let mut table = Table::new("Ratings", ["attribute", "judge", "rated", "mean", "mass", "low mass"]);
            for one in figures {
                let cells =
                    [one.mean_rating, one.mass.and_then(|m| m.mean), one.mass.and_then(|m| m.low_share)].map(number);
                let decided = format!("{} of {}", one.decided, one.units);
                table.push(cells![one.attribute, one.judge, decided].into_iter().chain(cells));
            }
            return table;
        }
        let columns = [
            "attribute", "judge", "decided", "ties", "P(first)", "both orders", "changed", "95% interval", "order gap",
            "max", "mass",
        ];
        let mut table = Table::new("Verdicts on pairs", columns);
        for one in figures {
            let order = one.order.as_ref();
            table.push(cells![
                one.attribute,
                one.judge,
                format!("{} of {}", one.decided, one.units),
                one.ties,
                number(order.and_then(|o| o.first)),
                order.map(|o| o.both),
                number(order.and_then(|o| o.changed.figure.share)),
                bounds(order.and_then(|o| o.changed.interval)),
                number(order.and_then(|o| o.gap_mean)),
                number(order.and_then(|o| o.gap_max)),
                number(one.mass.and_then(|m| m.mean)),
            ]);
        }
        table.note(
            "P(first): how often the text shown first wins. Changed: share of pairs whose verdict changes with \
             presentation order.",
        );
        if labels {
            table.note("Order gap: mean and max of |p − (1 − p′)| over pairs. Mass: label mass.");
        }
        for one in figures.iter().filter(|one| one.order.as_ref().is_some_and(|o| o.changed.figure.share > Some(0.5))) {
            let place = format!("{}, {}", one.attribute, one.judge);
            table.note(format!(
                "{place}: most verdicts change with presentation order: the judge picks a position, not a text."
            ));
        }
        let unparsed: usize = figures.iter().filter_map(|one| one.unparsed_answers).sum();
        if unparsed > 0 {
            table.note(format!("no verdict: {}", counted(unparsed, "answer")));
        }
        table
    }

    /// Correlation of each judge's scores with gold; the combined scores are the headline.
    fn against_gold(
        &self,
        gold: &[GoldUse<'_>],
    ) -> (Vec<Value>, Table, Vec<Headline>, Vec<Option<probity_stats::AgreementFigures>>) {
        let mut table = gold::table();
        let (mut values, mut headline) = (Vec::new(), Vec::new());
        let mut of_all = vec![None; gold.len()];
        for (attribute, one) in gold.iter().enumerate().filter(|(_, one)| one.present) {
            let several = self.names.len() > 1;
            for (judge, name) in self.names.iter().enumerate().filter(|_| several) {
                let figures = gold::against(self.samples, one.attribute, &self.scores(judge, attribute));
                gold::push(&figures, one.attribute, name, &mut table);
                values.push(json!({ "attribute": one.attribute, "judge": name, "figures": figures }));
            }
            let figures = gold::against(self.samples, one.attribute, &self.panel_scores(attribute));
            let name = if several { PANEL } else { self.names[0].as_str() };
            gold::push(&figures, one.attribute, name, &mut table);
            headline.push(Headline::new("Spearman", Some(one.attribute), figures.spearman.per_context.figure.mean));
            values.push(json!({ "attribute": one.attribute, "judge": name, "figures": figures }));
            of_all[attribute] = Some(figures);
        }
        (values, table, headline, of_all)
    }

    /// The agreement between judges: Cohen's κ of each two, and Krippendorff's α of all, nominal for pairs and interval
    /// for ratings.
    fn agreement(&self) -> (Vec<Value>, Table) {
        let mut table =
            Table::new("Agreement between judges", ["attribute", "judges", "measure", "value", "both decided"]);
        let mut values = Vec::new();
        for attribute in (0..self.params.judging.attribute.len()).filter(|_| self.names.len() > 1) {
            let name = self.attribute(attribute);
            let voices = self.voices(attribute);
            let mut add = |judges: String, measure: &str, value: Option<f64>, n: usize| {
                table.push(cells![name, &judges, measure, number(value), n]);
                values.push(json!({ "attribute": name, "judges": judges, "measure": measure, "value": value, "n": n }));
            };
            let pairs = self.params.judging.mode == Mode::Pairwise;
            let twos = (0..self.names.len()).flat_map(|a| (a + 1..self.names.len()).map(move |b| (a, b)));
            for (a, b) in twos.filter(|_| pairs) {
                let both: Vec<(f64, f64)> = voices.iter().filter_map(|unit| Some((unit[a]?, unit[b]?))).collect();
                let (first, second): (Vec<f64>, Vec<f64>) = both.iter().copied().unzip();
                let kappa = cohen_kappa(&first, &second, KappaWeights::Plain);
                add(format!("{}, {}", self.names[a], self.names[b]), "Cohen's κ", kappa, both.len());
            }
            let units: Vec<Vec<f64>> = voices.iter().map(|unit| unit.iter().flatten().copied().collect()).collect();
            let level = if pairs { MeasurementLevel::Nominal } else { MeasurementLevel::Interval };
            let paired = units.iter().filter(|unit| unit.len() > 1).count();
            add("all".to_owned(), "Krippendorff's α", krippendorff_alpha(&units, level), paired);
        }
        (values, table)
    }

    /// By unit and judge: a number for each choice, or the rating.
    fn voices(&self, attribute: usize) -> Vec<Vec<Option<f64>>> {
        let voice = |decided: &Decision| match decided.choice() {
            Some(choice) => Some(f64::from(choice as u8)),
            None => decided.rating(),
        };
        let units = self.plan.units.iter().enumerate().filter(|(_, unit)| unit.attribute == attribute);
        units.map(|(unit, _)| self.settled.iter().map(|judge| voice(&judge[unit].decided)).collect()).collect()
    }
}

fn preference_table(figures: &[JudgeFigures<'_>]) -> Table {
    let columns = [
        "attribute", "judge", "accuracy", "95% interval", "right of all", "correct", "tied", "wrong", "not judged",
        "given order", "turned",
    ];
    let mut table = Table::new("Accuracy against preferences", columns);
    for one in figures {
        let Some(preference) = &one.preference else { continue };
        let PreferenceAgreement { accuracy, interval, correct, tied, wrong } = preference.agreement;
        table.push(cells![
            one.attribute,
            one.judge,
            number(accuracy),
            bounds(interval),
            number(preference.right_of_all),
            correct,
            tied,
            wrong,
            preference.not_judged,
            number(preference.given_order),
            number(preference.turned_order),
        ]);
    }
    table.note(
        "Tied: the preferred candidate shares the best score with others; among k it counts as 1/k. Chance is 1/k for \
         k candidates, 0.5 for two.",
    );
    if figures.iter().any(|one| one.order.is_some()) {
        table.note(BY_ORDER);
    }
    let preferred_none = figures.first().and_then(|one| one.preference).map(|figures| figures.preferred_none);
    if let Some(none) = preferred_none.filter(|none| *none > 0) {
        table.note(format!("omitted: {} without a human preference", counted(none, "item")));
    }
    table
}
