//! The tables of all evaluators: agreement with preferences, by subset, and with gold scores.

use probity_analysis::plot::{Drawing, LineAxis, Plot, Point, Series};
use probity_data::Sample;
use probity_metrics::Direction;
use serde_json::{Value, json};

use super::evaluators::{Evaluator, EvaluatorVerdicts, PairFigures, point, preferred, subsets};
use super::judged::ReferenceQuestions;
use super::options::{Reference, RevisEvalParams};
use crate::conclusion::{AnswerDoubts, ConclusionCase};
use crate::figures::{BY_ORDER, bounds, lower_is_better, mean, number};
use crate::gold::{self, GoldUse, PreferenceAgreement};
use crate::judge::{Decision, JudgeVerdict, JudgedUnit, PairChoice, UnitVerdict};
use crate::{Cell, Conclusion, Headline, MethodError, Run, Table, cells, row};

/// The table of all preferences.
const PREFERENCES: &str = "preferences";
/// The table of all scores of single candidates.
const SCORES: &str = "scores";

/// All evaluators' verdicts.
pub(super) struct EvaluatorTables<'a> {
    pub(super) samples: &'a [Sample],
    pub(super) units: &'a [JudgedUnit],
    pub(super) attributes: &'a [String],
    pub(super) evaluators: &'a [EvaluatorVerdicts],
}

impl EvaluatorTables<'_> {
    fn is_of(&self, unit: usize, attribute: usize) -> bool {
        self.units[unit].attribute == attribute
    }

    /// Writes all evaluators' verdicts on each unit.
    pub(super) fn write(&self, run: &mut Run<'_>) -> Result<(), MethodError> {
        let pairs = self.units.iter().any(|unit| unit.second.is_some());
        let table = if pairs { PREFERENCES } else { SCORES };
        run.table(table, self.units.len() * self.evaluators.len())?;
        for (number, unit) in self.units.iter().enumerate() {
            for (position, evaluator) in self.evaluators.iter().enumerate() {
                let index = number * self.evaluators.len() + position;
                let decided = evaluator.decided(number);
                let row = if pairs {
                    self.preference_row(number, *unit, evaluator, decided)
                } else {
                    self.score_row(*unit, evaluator, decided)
                };
                let ended = decided.map_or_else(|| row! { "outcome": "no_reference" }, |one| json!(one.outcome));
                run.row(table, index, &row! { ..row, ..ended })?;
            }
        }
        Ok(())
    }

    /// The verdict on a pair. `preferred` is the better candidate, null for a tie or a missing verdict; `changed` says
    /// whether the verdict changes with presentation order, null without a verdict or without an order.
    fn preference_row(
        &self,
        number: usize,
        unit: JudgedUnit,
        evaluator: &EvaluatorVerdicts,
        decided: Option<&Decision>,
    ) -> Value {
        let sample = &self.samples[unit.item];
        let choice = decided.and_then(Decision::choice);
        let preferred = match choice {
            Some(PairChoice::First) => Some(unit.first),
            Some(PairChoice::Second) => unit.second,
            Some(PairChoice::Tie) | None => None,
        };
        row! {
            "item": sample.id, "attribute": self.attributes[unit.attribute], "reference": evaluator.reference,
            "by": evaluator.by, "choice": choice, "preferred": preferred.map(|k| &sample.candidates[k].id),
            "p": decided.and_then(Decision::p),
            "changed": evaluator.says[number].as_ref().and_then(UnitVerdict::turns),
        }
    }

    /// The score of a candidate; `probity meta` reads these rows.
    fn score_row(&self, unit: JudgedUnit, evaluator: &EvaluatorVerdicts, decided: Option<&Decision>) -> Value {
        let sample = &self.samples[unit.item];
        row! {
            "item": sample.id, "attribute": self.attributes[unit.attribute],
            "candidate": sample.candidates[unit.first].id, "index": unit.first, "metric": evaluator.name(),
            "score": decided.and_then(Decision::rating),
        }
    }

    /// The figures of every evaluator on pairs, by attribute.
    pub(super) fn pairs(&self) -> Vec<PairFigures> {
        let of = |(attribute, name): (usize, &String)| {
            let units: Vec<usize> = (0..self.units.len()).filter(|unit| self.is_of(*unit, attribute)).collect();
            let figures = |evaluator| PairFigures::new(evaluator, self.samples, self.units, &units, name);
            self.evaluators.iter().map(figures).collect::<Vec<_>>()
        };
        self.attributes.iter().enumerate().flat_map(of).collect()
    }

    /// Accuracy of every evaluator by subset; empty if ids have no subsets.
    pub(super) fn by_subset(&self) -> (Vec<Value>, Table) {
        let subsets = subsets(self.samples);
        let columns = ["reference", "by", "attribute"].into_iter().chain(subsets.iter().copied());
        let mut table = Table::new("Accuracy by subset", columns);
        let mut values = Vec::new();
        if subsets.is_empty() {
            return (values, table);
        }
        for (attribute, name) in self.attributes.iter().enumerate() {
            for evaluator in self.evaluators {
                let mut cells = cells![evaluator.reference.to_string(), evaluator.by.to_string(), name].to_vec();
                for subset in &subsets {
                    let point = |unit: usize| {
                        let sample = &self.samples[self.units[unit].item];
                        let inside = self.is_of(unit, attribute)
                            && sample.id.split_once('/').is_some_and(|(of, _)| of == *subset);
                        let choice = evaluator.choice(unit).filter(|_| inside)?;
                        Some(point(choice, preferred(self.samples, self.units[unit])?))
                    };
                    let points: Vec<f64> = (0..self.units.len()).filter_map(point).collect();
                    let agreement = PreferenceAgreement::from_points(&points);
                    cells.push(number(agreement.accuracy));
                    values.push(json!({
                        "reference": evaluator.reference, "by": evaluator.by, "attribute": name, "subset": subset, "agreement": agreement,
                    }));
                }
                table.push(cells);
            }
        }
        table.note("The subset is the part of an item's id before the first /.");
        (values, table)
    }

    /// Correlation of every evaluator's scores with gold, by attribute.
    pub(super) fn against_gold(&self, gold: &[GoldUse<'_>]) -> (Vec<Value>, Vec<Table>, Vec<Headline>) {
        let mut per_context = gold::table();
        let columns = ["attribute", "scores", "Kendall", "Spearman", "Pearson", "candidates"];
        let mut pooled = Table::new("Against gold, over all candidates", columns);
        let (mut values, mut headline, mut plots) = (Vec::new(), Vec::new(), Vec::new());
        for (attribute, one) in gold.iter().enumerate().filter(|(_, one)| one.present) {
            let mut found = Vec::new();
            for evaluator in self.evaluators {
                let scores = self.scores(attribute, evaluator);
                let figures = gold::against(self.samples, one.attribute, &scores);
                gold::push(&figures, one.attribute, &evaluator.name(), &mut per_context);
                let all = [figures.kendall, figures.spearman, figures.pearson].map(|of| of.pooled.figure);
                let cells = all.map(|figure| number(figure.coefficient)).into_iter().chain(cells![all[0].n]);
                pooled.push(cells![one.attribute, evaluator.name()].into_iter().chain(cells));
                if evaluator.by == Evaluator::Judge {
                    let value = figures.spearman.pooled.figure.coefficient;
                    let name = format!("Spearman ({})", evaluator.reference);
                    headline.push(Headline::new(name, Some(one.attribute), value));
                }
                found.push((evaluator.reference, &evaluator.by, all[1].coefficient));
                values.push(json!({ "reference": evaluator.reference, "by": evaluator.by, "attribute": one.attribute, "figures": figures }));
            }
            plots.extend(references_plot(attribute, one.attribute, &found, ["Spearman", " over all candidates"]));
        }
        let lower = |evaluator: &&EvaluatorVerdicts| evaluator.by.direction() == Direction::LowerIsBetter;
        let lower: Vec<String> = self.evaluators.iter().filter(lower).map(EvaluatorVerdicts::name).collect();
        if !lower.is_empty() {
            pooled.note(lower_is_better(&lower));
        }
        pooled.note("The paper's aggregation: one correlation over all candidates of all samples, for each attribute.");
        pooled.plots = plots;
        (values, vec![pooled, per_context], headline)
    }

    /// The conclusions for each judge, or without one each metric's vote, with each kind of reference.
    pub(super) fn conclusions(
        &self,
        gold: &[GoldUse<'_>],
        params: &RevisEvalParams,
        judged: &ReferenceQuestions<'_>,
        verdicts: &[JudgeVerdict],
    ) -> Vec<Conclusion> {
        let mut conclusions = Vec::new();
        for (attribute, name) in self.attributes.iter().enumerate() {
            for evaluator in self.evaluators.iter().filter(|evaluator| params.leads(&evaluator.by)) {
                let scores = self.scores(attribute, evaluator);
                let figures = gold[attribute].present.then(|| gold::against(self.samples, name, &scores));
                let units = (0..self.units.len()).filter(|unit| self.is_of(*unit, attribute));
                let turns: Vec<bool> = units.filter_map(|unit| evaluator.says[unit].as_ref()?.turns()).collect();
                let share = mean(turns.iter().map(|turns| f64::from(u8::from(*turns))));
                let reference = match evaluator.reference {
                    Reference::None => "without reference".to_owned(),
                    other => format!("reference {other}"),
                };
                let case = ConclusionCase {
                    about: Some(if self.attributes.len() > 1 { format!("{name}, {reference}") } else { reference }),
                    samples: self.samples,
                    scores: &scores,
                    direction: evaluator.by.direction(),
                    gold: figures.as_ref(),
                    attribute: Some(name),
                    preferences: !params.no_gold,
                    answers: AnswerDoubts {
                        turned: share.map(|share| (share, turns.len())),
                        low_mass: judged.mass(verdicts, attribute, evaluator).and_then(|mass| mass.low_share),
                        ..AnswerDoubts::default()
                    },
                    ..ConclusionCase::default()
                };
                conclusions.push(case.conclusion());
            }
        }
        conclusions
    }

    /// An evaluator's ratings by sample and candidate, higher is better; for pairs 1 for the preferred text, ½ each for
    /// a tie.
    fn scores(&self, attribute: usize, evaluator: &EvaluatorVerdicts) -> Vec<Vec<Option<f64>>> {
        let mut scores: Vec<Vec<Option<f64>>> =
            self.samples.iter().map(|sample| vec![None; sample.candidates.len()]).collect();
        for (number, unit) in self.units.iter().enumerate().filter(|(number, _)| self.is_of(*number, attribute)) {
            match unit.second {
                None => {
                    let rating = evaluator.decided(number).and_then(Decision::rating);
                    scores[unit.item][unit.first] = rating.map(|rating| evaluator.by.direction().upwards(rating));
                }
                Some(second) => {
                    let first = evaluator.choice(number).map(|choice| point(choice, PairChoice::First));
                    scores[unit.item][unit.first] = first;
                    scores[unit.item][second] = first.map(|first| 1.0 - first);
                }
            }
        }
        scores
    }

    /// Each evaluator's correlations over all candidates, averaged over attributes (appendix G; the paper's Tables 1,
    /// 12 and 17); empty for a single attribute.
    pub(super) fn averages(values: &[Value]) -> (Vec<Value>, Table) {
        let columns = ["score", "Kendall", "Spearman", "Pearson", "attributes"];
        let mut table = Table::new("Against gold, averaged over attributes", columns);
        let mut averages = Vec::new();
        let mut evaluators: Vec<(&Value, &Value)> = Vec::new();
        for one in values {
            let evaluator = (&one["reference"], &one["by"]);
            if !evaluators.contains(&evaluator) {
                evaluators.push(evaluator);
            }
        }
        for (reference, by) in evaluators {
            let of_evaluator: Vec<&Value> =
                values.iter().filter(|one| (&one["reference"], &one["by"]) == (reference, by)).collect();
            if of_evaluator.len() < 2 {
                continue;
            }
            let average = |of: &str| {
                let coefficient = |one: &&Value| one["figures"][of]["pooled"]["coefficient"].as_f64();
                mean(of_evaluator.iter().map(coefficient).collect::<Option<Vec<f64>>>()?)
            };
            let [kendall, spearman, pearson] = ["kendall", "spearman", "pearson"].map(average);
            let name = format!("{}/{}", reference.as_str().unwrap_or_default(), by.as_str().unwrap_or_default());
            let count = of_evaluator.len();
            table.push(cells![name, number(kendall), number(spearman), number(pearson), count]);
            averages.push(json!({
                "reference": reference, "by": by, "attributes": count, "kendall": kendall, "spearman": spearman, "pearson": pearson,
            }));
        }
        table
            .note("The mean over attributes of correlations over all candidates; missing if any of them is undefined.");
        (averages, table)
    }
}

/// The table of all evaluators on pairs.
pub(super) fn pairs_table(figures: &[PairFigures]) -> Table {
    let columns = [
        "reference", "by", "attribute", "accuracy", "95% interval", "of all pairs", "right of all", "given order",
        "turned", "changed", "95% of changed", "ties", "undecided", "no reference", "pairs",
    ];
    let mut table = Table::new("Evaluators by reference", columns);
    for one in figures {
        let heads = cells![one.reference.to_string(), one.by.to_string(), &one.attribute];
        let changed = [number(one.changed.and_then(|c| c.figure.share)), bounds(one.changed.and_then(|c| c.interval))];
        let agreement = [number(one.agreement.accuracy), bounds(one.agreement.interval)];
        let shares = [one.over_all, one.right_of_all, one.given_order, one.turned_order].map(number);
        let accuracy = agreement.into_iter().chain(shares);
        let counts = [one.ties, one.undecided, one.no_reference, one.pairs].map(Cell::from);
        table.push(heads.into_iter().chain(accuracy).chain(changed).chain(counts));
    }
    table.note("Accuracy against preferences: a tie counts as half, undecided pairs do not count.");
    table.note(
        "The judge sees both orders: if the verdicts disagree, the pair is a tie; with probabilities the mean \
         decides.",
    );
    table.note(BY_ORDER);
    table.note(
        "Of all pairs: accuracy with half a point for each pair without a verdict, so that kinds that omit different \
         pairs are comparable.",
    );
    table.note(
        "Right of all: the paper's accuracy, correct verdicts over all pairs; ties and pairs without a verdict count \
         as wrong.",
    );
    table.note("Changed: pairs whose verdict changes with presentation order. Chance accuracy is 0.5.");
    table.note("Vote: the majority of the metrics; a tie if two of first, second and tie are equally frequent.");
    let mut attributes: Vec<&str> = Vec::new();
    for one in figures {
        if !attributes.contains(&one.attribute.as_str()) {
            attributes.push(&one.attribute);
        }
    }
    let plot = |(number, attribute): (usize, &&str)| {
        let of_attribute = figures.iter().filter(|one| one.attribute == **attribute);
        let found: Vec<_> = of_attribute.map(|one| (one.reference, &one.by, one.agreement.accuracy)).collect();
        references_plot(number, attribute, &found, ["accuracy", " against preferences; chance is 0.5"])
    };
    table.plots = attributes.iter().enumerate().filter_map(plot).collect();
    table
}

/// Plots the judge and each metric with every kind of reference (the paper's Figure 3); `None` for a single evaluator
/// or kind. `figure` has its name and the end of its caption.
fn references_plot(
    number: usize,
    attribute: &str,
    found: &[(Reference, &Evaluator, Option<f64>)],
    [figure, over]: [&str; 2],
) -> Option<Plot> {
    let (mut kinds, mut evaluators): (Vec<Reference>, Vec<&Evaluator>) = (Vec::new(), Vec::new());
    for (reference, by, _) in found {
        if !kinds.contains(reference) {
            kinds.push(*reference);
        }
        if !evaluators.contains(by) {
            evaluators.push(by);
        }
    }
    if kinds.len() < 2 || evaluators.len() < 2 {
        return None;
    }
    let series = |kind: &Reference| {
        let point = |(_, by, value): &(Reference, &Evaluator, Option<f64>)| {
            let x = evaluators.iter().position(|one| one == by)? as f64;
            Some(Point { x, y: (*value)?, band: None })
        };
        Series {
            name: kind.to_string(),
            points: found.iter().filter(|(reference, ..)| reference == kind).filter_map(point).collect(),
        }
    };
    Some(Plot {
        id: format!("references-{number}"),
        title: format!("Effect of references on judge and metrics, {attribute}"),
        caption: format!("The judge and each metric with every kind of reference: {figure}{over}."),
        drawing: Drawing::Lines {
            x: LineAxis::Names(evaluators.iter().map(ToString::to_string).collect()),
            y: figure.to_owned(),
            series: kinds.iter().map(series).collect(),
        },
    })
}
