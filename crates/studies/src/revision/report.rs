//! The report of a study of revisions: rows, tables, and which measures are reliable.

use std::collections::{BTreeMap, BTreeSet};

use probity_analysis::plot::{Drawing, Plot};
use probity_lm::text::{counted, fixed};
use probity_stats::{Interval, order, pearson};
use serde::Serialize;
use serde_json::json;

use super::agreement::{Alignment, DecidedPair, JudgedPairs, RevisionEvaluator, majority, side};
use super::cascade::{Cascade, CascadeResults};
use super::evaluators::{
    AnsweredForms, ScoredMetric, answer_accuracy, choice_evaluators, likert_evaluators, paraphrase_evaluators, turned,
};
use super::forms::CATEGORIES;
use super::options::RevisionParams;
use super::pairs::{Difficulty, RevisionPair, Revisions, categories};
use super::paraphrase::Paraphrases;
use super::tables::{alignment_table, answers_table, cost_table, hybrid_table, part_table, systems_table};
use crate::answer::Answer;
use crate::figures::{Mass, TokenTally, bounds, lower_is_better, mean, number};
use crate::thresholds::{FEW_UNITS, SIGNIFICANT};
use crate::{
    Conclusion, Headline, MethodError, MethodReport, Outcomes, Run, RunScores, Signature, Table, Trust, cells, row,
};

const SCORES: &str = "scores";
const DECISIONS: &str = "decisions";
/// The default steps of the hybrid: instruction following, preservation of meaning, closeness to the author's own
/// revision (the paper's conclusion). Each step uses the first of its measures that is available.
const HYBRID: [&[&str]; 4] = [
    &["choice-labels/related", "choice-gold-labels/related", "choice/related", "choice-gold/related"],
    &["parapluie", "parapluie/few-shot-direct"],
    &["sari-hf"],
    &["gleu-napoles"],
];
/// The name of the hybrid.
const HYBRID_NAME: &str = "hybrid";
/// κ above this is more than weak.
const FAIR: f64 = 0.4;

/// The forms of one kind without and with the author's own revision, if filled in.
pub(super) struct FormResults<'a> {
    pub(super) answers: Option<&'a AnsweredForms<'a>>,
    pub(super) golds: &'a [bool],
}

/// All results.
pub(super) struct RevisionFindings<'a> {
    pub(super) params: &'a RevisionParams,
    pub(super) revisions: &'a Revisions<'a>,
    pub(super) choice: FormResults<'a>,
    pub(super) likert: FormResults<'a>,
    pub(super) paraphrases: Option<(Paraphrases<'a>, &'a [Answer<f64>])>,
    pub(super) metrics: &'a [ScoredMetric],
}

/// An evaluator's agreement with people.
#[derive(Debug, Clone, Serialize)]
pub(super) struct EvaluatorFigures {
    pub(super) by: String,
    /// With unchanged scores.
    pub(super) as_is: Alignment,
    /// With small differences as ties.
    pub(super) calibrated: Alignment,
    /// The ε fitted on all pairs, for use on other data. Absent for the hybrid.
    pub(super) epsilon: Option<f64>,
    /// The calibrated verdicts.
    #[serde(skip)]
    pub(super) decided: Vec<DecidedPair>,
    /// The share of correct pairs with unchanged scores, by category of revision and by difficulty.
    pub(super) by_category: Vec<PartFigure>,
    pub(super) by_difficulty: Vec<PartFigure>,
    pub(super) cost: TokenTally,
}

/// Accuracy on a part of the pairs.
#[derive(Debug, Clone, Serialize)]
pub(super) struct PartFigure {
    pub(super) part: String,
    pub(super) pairs: usize,
    pub(super) accuracy: Option<f64>,
    pub(super) interval: Option<Interval>,
}

impl RevisionFindings<'_> {
    /// Writes scores and decisions, and returns the report.
    pub(super) fn report(
        &self,
        outcomes: Outcomes,
        signature: Signature,
        run: &mut Run<'_>,
    ) -> Result<MethodReport, MethodError> {
        let evaluators = self.evaluators();
        self.write(&evaluators, run)?;
        let judged = JudgedPairs::new(&self.revisions.pairs, self.params.folds as usize);
        let steps = self.steps(&evaluators);
        // With a single paragraph there is nothing else to fit on.
        let hybrid = (steps.len() > 1 && judged.groups() > 1).then(|| Cascade { steps }.cross_validated(&judged));
        let mut figures: Vec<EvaluatorFigures> = evaluators.iter().map(|one| self.figures(one, &judged)).collect();
        if let Some(hybrid) = &hybrid {
            let cost = hybrid_cost(hybrid, self.revisions.pairs.len());
            figures.push(self.parts(HYBRID_NAME, &judged, [&hybrid.decided, &hybrid.decided], cost));
        }
        let guess = majority(self.revisions.pairs.iter().filter_map(|pair| pair.human));
        let mut values = json!({
            "pairs": self.revisions.pairs.len(), "paragraphs": judged.groups(), "majority": guess,
            "alignment": figures,
            "metrics": self.metrics.iter().map(|one| json!({ "metric": one.label, "signature": one.signature })).collect::<Vec<_>>(),
        });
        let mut tables = Vec::new();
        if figures.iter().any(|one| one.as_is.pairs > 0) {
            tables.push(alignment_table(&figures, guess));
            tables.extend(part_table("By category of revision", "category", &figures, |one| &one.by_category));
            tables.extend(part_table("By difficulty", "difficulty", &figures, |one| &one.by_difficulty));
        }
        if let Some(answers) = self.choice.answers {
            let accuracy = answer_accuracy(answers, self.choice.golds);
            if !accuracy.is_empty() {
                values["answers"] = json!(accuracy);
                tables.push(answers_table(&accuracy));
            }
        }
        let systems = self.systems(&evaluators);
        values["systems"] = json!(systems);
        let mut systems = systems_table(&systems);
        let correlations = self.correlations(&evaluators);
        if correlations.names.len() > 1 {
            values["correlations"] = json!(correlations);
            systems.plots.push(correlations.plot());
        }
        tables.push(systems);
        tables.extend(correlations.table());
        if let Some(hybrid) = &hybrid {
            values["hybrid"] = json!(hybrid.steps);
            tables.push(hybrid_table(hybrid, judged.folds()));
        }
        tables.push(cost_table(&figures, self.revisions.pairs.len()));
        let turns: Vec<(f64, usize)> = self
            .choice
            .answers
            .iter()
            .flat_map(|answers| {
                self.choice.golds.iter().filter_map(|gold| turned(answers, self.revisions.pairs.len(), *gold))
            })
            .collect();
        let mass = self.mass();
        values["mass"] = json!(mass);
        if let Some(first) = tables.first_mut() {
            self.note_data(&judged, first);
            for ((share, of), gold) in turns.iter().zip(self.choice.golds) {
                let with = if *gold { ", with the author's own revision" } else { "" };
                first.note(format!(
                    "LLM-Choice changes its preference with presentation order in {} of {of} pairs{with}",
                    number(Some(*share))
                ));
            }
            if mass.answers > 0 {
                first.note(format!(
                    "Label probabilities: mean label mass {}; {} of {} have low label mass",
                    number(mass.mean),
                    mass.low,
                    mass.answers
                ));
            }
        }
        values["turned"] =
            json!(turns.iter().map(|(share, of)| json!({ "share": share, "pairs": of })).collect::<Vec<_>>());
        let verdict = vec![conclusion(&figures, &judged)];
        let headline = figures
            .iter()
            .filter(|one| one.calibrated.pairs > 0)
            .map(|one| Headline::new(format!("{} accuracy", one.by), None, one.calibrated.accuracy.figure.value))
            .collect();
        let scores = RunScores { tells_agreement: true, ..RunScores::default() };
        let metrics: Vec<&str> = self.metrics.iter().map(|one| one.label.as_str()).collect();
        let signature = signature.with("metric", &metrics.join(","));
        Ok(MethodReport { values, tables, outcomes, headline, verdict, scores, ..MethodReport::new(signature) })
    }

    /// Notes about the pairs and the measures.
    fn note_data(&self, judged: &JudgedPairs<'_>, table: &mut Table) {
        table.note(format!(
            "{} of {}; a missing figure or interval (–) is undefined, or there are too few or only equal paragraphs.",
            counted(self.revisions.pairs.len(), "pair"),
            counted(judged.groups(), "paragraph")
        ));
        let lower: Vec<String> =
            self.metrics.iter().filter(|metric| metric.is_lower_better()).map(|metric| metric.label.clone()).collect();
        if !lower.is_empty() {
            table.note(lower_is_better(&lower));
        }
        let all = self.revisions.pairs.iter().flat_map(|pair| categories(pair.sample)).collect::<BTreeSet<&str>>();
        let asked = self.choice.answers.is_some() || self.likert.answers.is_some();
        let silent: Vec<String> = all
            .into_iter()
            .filter(|name| CATEGORIES.iter().all(|(known, ..)| known != name))
            .map(|name| name.escape_debug().to_string())
            .collect();
        if asked && !silent.is_empty() {
            table.note(format!("Categories without a separate question in forms: {}", silent.join(", ")));
        }
        if judged.groups() == 1 {
            table.note("All pairs belong to one paragraph, so there is no calibration on other pairs and no interval.");
        }
    }

    /// The label mass over all answers with probabilities.
    fn mass(&self) -> Mass {
        let forms = [self.choice.answers, self.likert.answers].into_iter().flatten();
        let forms = forms.flat_map(|answers| answers.masses.iter().copied());
        let paraphrases = self.paraphrases.iter().flat_map(|(_, said)| said.iter());
        let paraphrases = paraphrases.filter_map(|one| Some((one.mass?, one.outcome.is_low_mass())));
        Mass::from_answers(forms.chain(paraphrases))
    }

    fn evaluators(&self) -> Vec<RevisionEvaluator> {
        let pairs = self.revisions.pairs.len();
        let choice = self.choice.answers.map(|answers| choice_evaluators(answers, pairs, self.choice.golds));
        let likert = self.likert.answers.map(|answers| likert_evaluators(answers, self.revisions, self.likert.golds));
        let paraphrases = self.paraphrases.map(|(asked, said)| paraphrase_evaluators(asked, said, self.revisions));
        let judges = [choice, likert, paraphrases].into_iter().flatten().flatten();
        judges.chain(self.metrics.iter().map(|metric| metric.evaluator(self.revisions))).collect()
    }

    /// Scores of single texts, unchanged, in the direction of their evaluator.
    fn raw_scores<'e>(&'e self, evaluators: &'e [RevisionEvaluator]) -> Vec<(&'e str, &'e [Option<f64>])> {
        let metric = |name: &str| self.metrics.iter().find(|metric| metric.label == name);
        let of = |one: &'e RevisionEvaluator| {
            let own = one.scores.as_deref()?;
            Some((one.name.as_str(), metric(&one.name).map_or(own, |metric| metric.scores.as_slice())))
        };
        evaluators.iter().filter_map(of).collect()
    }

    fn write(&self, evaluators: &[RevisionEvaluator], run: &mut Run<'_>) -> Result<(), MethodError> {
        let scores = self.raw_scores(evaluators);
        let texts = &self.revisions.texts;
        run.table(SCORES, texts.len() * scores.len())?;
        for (text, one) in texts.iter().enumerate() {
            for (place, (metric, all)) in scores.iter().enumerate() {
                let score = all[text];
                let outcome = if score.is_some() { "scored" } else { "undefined" };
                let row = row! {
                    "item": one.sample.id, "candidate": one.id(), "metric": metric, "score": score,
                    "outcome": outcome,
                };
                run.row(SCORES, text * scores.len() + place, &row)?;
            }
        }
        run.table(DECISIONS, self.revisions.pairs.len() * evaluators.len())?;
        for (pair, one) in self.revisions.pairs.iter().enumerate() {
            let [first, second] = one.places.map(|place| one.sample.candidates[place].id.as_str());
            let named = |side: i8| match side {
                1 => first,
                -1 => second,
                _ => "tie",
            };
            for (place, evaluator) in evaluators.iter().enumerate() {
                let margin = evaluator.margins[pair];
                let choice = margin.map(|margin| named(side(margin, 0.0)));
                let human = one.human.map(named);
                // The margin is positive for the first candidate, negative for the second.
                let row = row! {
                    "item": one.sample.id, "first": first, "second": second, "by": evaluator.name,
                    "margin": margin, "choice": choice, "human": human,
                };
                run.row(DECISIONS, pair * evaluators.len() + place, &row)?;
            }
        }
        Ok(())
    }

    /// The evaluators of the hybrid's steps; named ones have been checked to exist.
    fn steps<'e>(&self, evaluators: &'e [RevisionEvaluator]) -> Vec<&'e RevisionEvaluator> {
        let find = |name: &str| evaluators.iter().find(|one| one.name == name);
        if self.params.hybrid.is_empty() {
            return HYBRID.into_iter().filter_map(|ways| ways.iter().find_map(|name| find(name))).collect();
        }
        self.params.hybrid.iter().filter_map(|name| find(name)).collect()
    }

    fn figures(&self, evaluator: &RevisionEvaluator, judged: &JudgedPairs<'_>) -> EvaluatorFigures {
        let (as_is, calibrated) = (judged.as_is(evaluator), judged.calibrated(evaluator));
        let parts = self.parts(&evaluator.name, judged, [&as_is, &calibrated], evaluator.cost);
        EvaluatorFigures { epsilon: judged.whole_epsilon(evaluator), ..parts }
    }

    /// Accuracy by part, with unchanged scores and with small differences as ties.
    fn parts(
        &self,
        by: &str,
        judged: &JudgedPairs<'_>,
        [as_is, calibrated]: [&[DecidedPair]; 2],
        cost: TokenTally,
    ) -> EvaluatorFigures {
        let part = |name: &str, is: &dyn Fn(&RevisionPair<'_>) -> bool| {
            let own: Vec<DecidedPair> =
                as_is.iter().filter(|one| is(&self.revisions.pairs[one.pair])).copied().collect();
            let found = judged.alignment(&own);
            PartFigure {
                part: name.to_owned(),
                pairs: own.len(),
                accuracy: found.accuracy.figure.value,
                interval: found.accuracy.interval,
            }
        };
        let names: BTreeSet<&str> = self.revisions.pairs.iter().flat_map(|pair| categories(pair.sample)).collect();
        let by_category = names.into_iter().map(|name| part(name, &|pair| pair.is_of(name))).collect();
        // Parts without a verdict of this evaluator are still listed.
        let there = |one: &Difficulty| self.revisions.pairs.iter().any(|pair| pair.difficulty == Some(*one));
        let by_difficulty = Difficulty::ALL.into_iter().filter(there);
        let by_difficulty = by_difficulty.map(|one| part(one.name(), &|pair| pair.difficulty == Some(one)));
        EvaluatorFigures {
            by: by.to_owned(),
            as_is: judged.alignment(as_is),
            calibrated: judged.alignment(calibrated),
            epsilon: None,
            decided: calibrated.to_vec(),
            by_category,
            by_difficulty: by_difficulty.collect(),
            cost,
        }
    }

    /// Means by system with its human preference; first a system without any changes.
    fn systems(&self, evaluators: &[RevisionEvaluator]) -> Vec<SystemFigures> {
        let scores = self.raw_scores(evaluators);
        let mut all: BTreeMap<&str, SystemSums<'_>> = BTreeMap::new();
        for (text, one) in self.revisions.texts.iter().enumerate() {
            let sums = all.entry(one.id()).or_default();
            sums.texts += 1;
            for (name, scores) in &scores {
                sums.scores.entry(name).or_default().extend(scores[text]);
            }
        }
        for pair in &self.revisions.pairs {
            for (text, own) in pair.texts.into_iter().zip([1, -1]) {
                let preferred = pair.human.map(|human| f64::from(u8::from(human == own)));
                all.entry(self.revisions.texts[text].id()).or_default().preferred.extend(preferred);
            }
        }
        let copies =
            self.metrics.iter().map(|metric| (metric.label.clone(), mean(metric.copies.iter().flatten().copied())));
        let copy = SystemFigures {
            system: copy_name(all.keys().copied()),
            texts: self.revisions.texts.iter().filter(|text| text.place == 0).count(),
            preferred: None,
            means: copies.collect(),
        };
        let systems = all.into_iter().map(|(system, SystemSums { texts, preferred, scores: means })| SystemFigures {
            system: system.to_owned(),
            texts,
            preferred: mean(preferred),
            means: scores
                .iter()
                .map(|(name, _)| ((*name).to_owned(), means.get(name).and_then(|all| mean(all.iter().copied()))))
                .collect(),
        });
        std::iter::once(copy).chain(systems).collect()
    }

    /// Pearson's r between all scores of texts.
    fn correlations(&self, evaluators: &[RevisionEvaluator]) -> Correlations {
        let scores = self.raw_scores(evaluators);
        let flat: Vec<Vec<Option<f64>>> = scores.iter().map(|(_, all)| all.to_vec()).collect();
        let r = |a: &[Option<f64>], b: &[Option<f64>]| {
            let (a, b): (Vec<f64>, Vec<f64>) = a.iter().zip(b).filter_map(|(a, b)| Some(((*a)?, (*b)?))).unzip();
            pearson(&a, &b)
        };
        let cells = flat.iter().map(|a| flat.iter().map(|b| r(a, b)).collect()).collect();
        Correlations { names: scores.iter().map(|(name, _)| (*name).to_owned()).collect(), cells }
    }
}

/// The name of the system without changes, distinct from all candidates.
fn copy_name<'s>(systems: impl Iterator<Item = &'s str>) -> String {
    let systems: BTreeSet<&str> = systems.collect();
    let mut name = "(copy of the original)".to_owned();
    while systems.contains(name.as_str()) {
        name = format!("({name})");
    }
    name
}

/// Sums for a system.
#[derive(Default)]
struct SystemSums<'a> {
    texts: usize,
    /// 1 for each pair in which people prefer it.
    preferred: Vec<f64>,
    scores: BTreeMap<&'a str, Vec<f64>>,
}

/// The means of a system.
#[derive(Debug, Clone, Serialize)]
pub(super) struct SystemFigures {
    pub(super) system: String,
    pub(super) texts: usize,
    /// The share of its pairs in which people prefer it.
    pub(super) preferred: Option<f64>,
    pub(super) means: Vec<(String, Option<f64>)>,
}

/// A matrix of correlations.
#[derive(Debug, Clone, Serialize)]
struct Correlations {
    names: Vec<String>,
    cells: Vec<Vec<Option<f64>>>,
}

impl Correlations {
    /// The columns of the edit distances.
    fn table(&self) -> Option<Table> {
        let edits: Vec<usize> =
            (0..self.names.len()).filter(|place| self.names[*place].starts_with("levenshtein")).collect();
        if edits.is_empty() || self.names.len() < 2 {
            return None;
        }
        let columns = std::iter::once("score".to_owned()).chain(edits.iter().map(|place| self.names[*place].clone()));
        let mut table = Table::new("Correlation with edit distances", columns);
        for (place, name) in self.names.iter().enumerate().filter(|(place, _)| !edits.contains(place)) {
            let cells = edits.iter().map(|edit| number(self.cells[place][*edit]));
            table.push(cells![name].into_iter().chain(cells));
        }
        table.note("Pearson's r over all revisions; the report has the matrix of all scores.");
        Some(table)
    }

    /// The whole matrix (the paper's Figures 3 and 4).
    fn plot(&self) -> Plot {
        Plot {
            id: "correlations".to_owned(),
            title: "Correlation between measures and with edit distances".to_owned(),
            caption:
                "Pearson's r between unchanged scores of single revisions; distances are lower for smaller edits. \
                      A measure that correlates with edit distances measures the amount of change."
                    .to_owned(),
            drawing: Drawing::Correlations { names: self.names.clone(), cells: self.cells.clone() },
        }
    }
}

fn hybrid_cost(hybrid: &CascadeResults, pairs: usize) -> TokenTally {
    let sum = |of: fn(&super::cascade::CascadeStep) -> f64| {
        (hybrid.steps.iter().map(of).sum::<f64>() * pairs as f64).round() as usize
    };
    TokenTally {
        requests: sum(|step| step.requests),
        tokens_in: sum(|step| step.tokens_in),
        tokens_out: sum(|step| step.tokens_out),
    }
}

/// Which measure agrees best with people, and how surely: on the pairs that all measures decided, if there are any.
fn conclusion(figures: &[EvaluatorFigures], judged: &JudgedPairs<'_>) -> Conclusion {
    let figures: Vec<&EvaluatorFigures> = figures.iter().filter(|one| !one.decided.is_empty()).collect();
    let decided = |one: &&EvaluatorFigures| one.decided.iter().map(|pair| pair.pair).collect::<BTreeSet<usize>>();
    let all: BTreeSet<usize> = figures.iter().flat_map(decided).collect();
    let common = figures.iter().map(decided).fold(all.clone(), |common, own| &common & &own);
    let compared = if common.is_empty() { &all } else { &common };
    let found: Vec<(&EvaluatorFigures, Vec<DecidedPair>, Alignment)> = figures
        .iter()
        .map(|one| {
            let own: Vec<DecidedPair> =
                one.decided.iter().filter(|pair| compared.contains(&pair.pair)).copied().collect();
            let alignment = judged.alignment(&own);
            (*one, own, alignment)
        })
        .collect();
    let value = |(.., alignment): &&(&EvaluatorFigures, Vec<DecidedPair>, Alignment)| alignment.kappa.figure.value;
    let first =
        found.iter().filter(|one| value(one).is_some()).reduce(|a, b| if value(&b) > value(&a) { b } else { a });
    let Some((best, decided, found_best)) = first else {
        return Conclusion::without_agreement();
    };
    let kappa = found_best.kappa.figure.value.unwrap_or(0.0);
    // Values that differ only by rounding are ties.
    let is_level = |of: Option<f64>| of.is_some_and(|of| order(of, kappa) == std::cmp::Ordering::Equal);
    let level = found.iter().filter(|one| is_level(value(one))).count() - 1;
    // With more measures the best one is more often best by chance.
    let sure = judged.kappa_interval(decided, 1.0 - SIGNIFICANT / figures.len() as f64);
    let guess = majority(decided.iter().map(|one| one.human));
    let accuracy = found_best.accuracy.figure.value;
    let pairs = counted(found_best.pairs, "pair");
    let left_out =
        if compared.len() < all.len() { format!(" decided by all, of {}", all.len()) } else { String::new() };
    let says = if kappa > 0.0 {
        let others = if level > 0 { format!(" and {level} more (tied)") } else { String::new() };
        format!(
            "{}{others} agree{} best with people: on {} of {pairs}{left_out}, with calibrated ties (κ {}); the \
             majority verdict agrees on {}",
            best.by,
            if level > 0 { "" } else { "s" },
            number(accuracy),
            fixed(kappa, 3),
            number(guess)
        )
    } else {
        format!(
            "None of {} agrees with people above chance on {pairs}{left_out}: the highest κ is {} ({})",
            counted(figures.len(), "measure"),
            fixed(kappa, 3),
            best.by
        )
    };
    let found = found_best;
    let of = counted(figures.len(), "measure");
    let (trust, because) = match sure {
        None => (Trust::Unreliable, format!("κ has no interval over {}", counted(found.groups, "paragraph"))),
        Some(interval) if interval.low <= 0.0 => {
            let worse = accuracy < guess;
            let also = if worse { "; the majority verdict is right more often" } else { "" };
            let interval = bounds(Some(interval));
            (
                Trust::Unreliable,
                format!(
                    "the agreement of the best of {of} may be chance (κ {interval}, corrected for selection){also}"
                ),
            )
        }
        Some(_) if found.groups < FEW_UNITS => {
            (Trust::Caution, format!("compared with people on only {}", counted(found.groups, "paragraph")))
        }
        Some(_) if kappa < FAIR => {
            (Trust::Caution, format!("agreement is above chance but weak: κ {} (95%)", bounds(found.kappa.interval)))
        }
        Some(interval) => (
            Trust::Reliable,
            format!(
                "κ {} over {}, corrected for the selection from {of}",
                bounds(Some(interval)),
                counted(found.groups, "paragraph")
            ),
        ),
    };
    let figures = json!({
        "best": best.by, "accuracy": found.accuracy.figure.value, "accuracy_interval": found.accuracy.interval,
        "kappa": kappa, "kappa_interval": found.kappa.interval, "kappa_interval_of_best": sure, "pairs": found.pairs,
        "majority": guess, "level": level,
    });
    Conclusion { about: None, says, agreement: None, trust, because, figures }
}
