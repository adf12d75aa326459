//! Guarantees that labels give for a metric's scores: which pairs to leave to the metric, how far human scores are from
//! its own, and what it adds to the means of systems.

mod items;
mod promises;
mod tables;

use std::collections::{BTreeMap, BTreeSet};

use probity_stats::{
    CheckedVerdict, ChoicePoint, ConformalScores, NoConformal, NoSelection, PredictionPowered, Selection,
    SelectionRule, conformal_items, drawn, prediction_powered, thresholds, units_to_reach,
};
use serde::Serialize;

use crate::conclusion::{AgreementCase, Conclusion, agreement_with_preferences};

use items::apart;
pub(crate) use items::{JudgedItems, JudgedText};
pub use promises::{Promises, has_gold};
pub(crate) use tables::trust_tables;

/// Maximum number of pairs or candidates to label: more than can be reviewed.
const MOST_HANDED_BACK: usize = 10_000;

/// Number of thresholds to test.
const THRESHOLDS: usize = 50;

/// Parameters of the guarantees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise {
    /// Rule for pairs.
    pub(crate) rule: SelectionRule,
    /// Confidence level of intervals.
    pub(crate) confidence: f64,
    /// Seed for the pair of each item and the split of the labels.
    pub(crate) seed: u64,
}

/// Guarantees for a metric and an attribute.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trusted {
    pub(crate) metric: String,
    /// Absent for preferences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attribute: Option<String>,
    pub(crate) pairs: TrustedPairs,
    /// Absent for preferences, which do not score single texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scores: Option<Promised<ConformalScores, NoConformal>>,
    /// Means of systems over all items, if some have no label.
    pub(crate) systems: Vec<SystemMean>,
    /// The difference between the two best systems.
    pub(crate) lead: Option<SystemMean>,
}

/// A guarantee, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Promised<T, E> {
    /// The guarantee.
    Kept(T),
    /// Why there is none.
    Broken(E),
}

impl<T, E> From<Result<T, E>> for Promised<T, E> {
    fn from(found: Result<T, E>) -> Self {
        found.map_or_else(Self::Broken, Self::Kept)
    }
}

/// Pairs of candidates of one item, by the difference of their scores.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TrustedPairs {
    pub(crate) selection: Promised<Selection, NoSelection>,
    /// Number of pairs, labelled or not, and how many are left to the metric.
    pub(crate) pairs: usize,
    pub(crate) kept: usize,
    /// Number of labelled items, one pair drawn from each, and of disagreements among these pairs.
    pub(crate) labelled: usize,
    pub(crate) disagreements: usize,
    /// Pairs with equal scores: no verdict, counted as a disagreement.
    pub(crate) level: usize,
    /// Unlabelled pairs that are not left to the metric.
    pub(crate) handed_back: usize,
    /// Items without a labelled pair that have a pair to label.
    pub(crate) unlabelled: usize,
    /// Additional labels of similar quality needed for a guarantee; absent if there is one or none is possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) labels_still_needed: Option<usize>,
    /// Minimum number of additional labels, if all are on the most certain pairs and agree; absent if there is a
    /// guarantee.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) labels_needed_at_least: Option<usize>,
}

/// Mean human score of a system, estimated with the metric's help.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SystemMean {
    pub(crate) system: String,
    #[serde(flatten)]
    pub(crate) mean: PredictionPowered,
    /// For a lead whose interval contains 0: labels needed to exclude 0 if the estimate is right; absent if there are
    /// too few items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) labels_to_tell: Option<usize>,
}

/// What to label next, most informative first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToLabel {
    /// Pairs that are not left to the metric.
    pub(crate) pairs: Vec<HandedBack>,
    /// Candidates whose labels narrow the intervals of system means.
    pub(crate) scores: Vec<OpenScore>,
}

/// An unlabelled candidate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct OpenScore {
    pub(crate) item: String,
    pub(crate) metric: String,
    pub(crate) attribute: String,
    pub(crate) candidate: String,
}

/// A pair to label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct HandedBack {
    pub(crate) item: String,
    pub(crate) metric: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attribute: Option<String>,
    pub(crate) candidate_i: String,
    pub(crate) candidate_j: String,
    /// Difference of the scores.
    pub(crate) difference: f64,
}

impl Trusted {
    /// Metric, and attribute if there is one.
    pub(crate) fn about(&self) -> String {
        self.attribute.iter().fold(self.metric.clone(), |metric, attribute| format!("{metric}, {attribute}"))
    }

    /// Number of items with judged pairs, if these are preferences for that metric.
    pub(crate) fn preferences_of(&self, metric: &str) -> Option<usize> {
        (self.metric == metric && self.attribute.is_none()).then_some(self.pairs.labelled)
    }

    /// Conclusion about the metric from the judged pairs, one per item; `None` without any.
    pub(crate) fn agreement(&self, case: AgreementCase) -> Option<Conclusion> {
        let TrustedPairs { labelled, disagreements, level, .. } = self.pairs;
        // A pair with equal scores counts half, as in samples with preferences.
        let point = |place| match place {
            place if place < level => 0.5,
            place if place < disagreements => 0.0,
            _ => 1.0,
        };
        let choices: Vec<ChoicePoint> =
            (0..labelled).map(|place| ChoicePoint { point: point(place), chance: 0.5 }).collect();
        agreement_with_preferences(&choices, case)
    }

    /// Computes the guarantees and what to label next.
    pub(crate) fn compute(
        metric: &str,
        attribute: Option<&str>,
        items: &JudgedItems<'_>,
        promise: Promise,
    ) -> (Self, ToLabel) {
        let middle = items.middle();
        let (mut trusted, threshold) = trusted_pairs(items, attribute.is_some(), middle, promise);
        let (systems, lead) = if attribute.is_some() { means(items, promise.confidence) } else { (Vec::new(), None) };
        let back = ToLabel {
            pairs: handed_back((metric, attribute), items, middle, threshold, promise.seed),
            scores: attribute.map(|attribute| open_scores(metric, attribute, items, promise)).unwrap_or_default(),
        };
        trusted.handed_back = back.pairs.len();
        let scores = attribute.map(|_| reach(items, promise).into());
        let (metric, attribute) = (metric.to_owned(), attribute.map(str::to_owned));
        (Self { metric, attribute, pairs: trusted, scores, systems, lead }, back)
    }
}

/// Unlabelled pairs that are not left to the metric, in the order to label them.
///
/// Labels of pairs more certain than the median help to set the threshold, provided they are a random sample of these.
/// They come first in random order, then the others. Only one label per item counts, so one pair of each unlabelled
/// item precedes all others.
fn handed_back(
    (metric, attribute): (&str, Option<&str>),
    items: &JudgedItems<'_>,
    middle: Option<f64>,
    threshold: Option<f64>,
    seed: u64,
) -> Vec<HandedBack> {
    let open = |(_, first, second): &(&str, &JudgedText<'_>, &JudgedText<'_>)| {
        threshold.is_none_or(|threshold| apart(first, second) < threshold)
    };
    let unseen = items.pairs().filter(|(id, first, second)| !items.is_seen(id, first, second, attribute.is_some()));
    let (mut surer, mut others): (Vec<_>, Vec<_>) =
        unseen.filter(open).partition(|(_, first, second)| middle.is_some_and(|middle| apart(first, second) >= middle));
    shuffle(seed, &mut surer);
    shuffle(seed, &mut others);
    let mut counted: BTreeSet<&str> = items.labelled();
    let (first_of_items, more): (Vec<_>, Vec<_>) =
        surer.into_iter().chain(others).partition(|(id, ..)| counted.insert(id));
    let back = |(id, first, second): (&str, &JudgedText<'_>, &JudgedText<'_>)| HandedBack {
        item: id.to_owned(),
        metric: metric.to_owned(),
        attribute: attribute.map(str::to_owned),
        candidate_i: first.candidate.to_owned(),
        candidate_j: second.candidate.to_owned(),
        difference: apart(first, second),
    };
    first_of_items.into_iter().chain(more).take(MOST_HANDED_BACK).map(back).collect()
}

/// Shuffles with the seed.
fn shuffle<T>(seed: u64, list: &mut [T]) {
    let lengths: Vec<usize> = (1..=list.len()).rev().collect();
    for (place, step) in drawn(seed, &lengths).into_iter().enumerate() {
        list.swap(place, place + step);
    }
}

/// Pairs that can be left to the metric, and the minimum difference of their scores.
fn trusted_pairs(
    items: &JudgedItems<'_>,
    are_scores: bool,
    middle: Option<f64>,
    promise: Promise,
) -> (TrustedPairs, Option<f64>) {
    // Pairs of one item are dependent, so one is drawn from each.
    let seen: Vec<Vec<CheckedVerdict>> = items.checked().into_iter().filter(|seen| !seen.is_empty()).collect();
    let places = drawn(promise.seed, &seen.iter().map(Vec::len).collect::<Vec<_>>());
    let verdicts: Vec<CheckedVerdict> = seen.iter().zip(places).map(|(seen, place)| seen[place]).collect();
    let all: Vec<f64> = items.pairs().map(|(_, first, second)| apart(first, second)).collect();
    let mut tried = thresholds(&all, THRESHOLDS);
    if let Some(middle) = middle.filter(|middle| items.is_dense_above(*middle)) {
        // Labels are denser among certain pairs, so all of them together would be too optimistic.
        tried.retain(|threshold| *threshold >= middle);
    }
    let selection = promise.rule.select(&verdicts, &tried);
    let threshold = selection.ok().map(|selection| selection.threshold);
    let kept = threshold.map_or(0, |threshold| all.iter().filter(|apart| **apart >= threshold).count());
    let trusted = TrustedPairs {
        labels_still_needed: selection.err().and_then(|why| promise.rule.still_needed(why)),
        labels_needed_at_least: selection.err().map(|_| promise.rule.fewest_needed(&verdicts)),
        selection: selection.into(),
        pairs: all.len(),
        kept,
        handed_back: 0,
        labelled: verdicts.len(),
        unlabelled: items.unlabelled(are_scores),
        disagreements: verdicts.iter().filter(|verdict| verdict.disagrees).count(),
        level: verdicts.iter().filter(|verdict| verdict.confidence == 0.0).count(),
    };
    (trusted, threshold)
}

/// The line is fitted on one of this many labelled items, and on this many at least.
const FITTED: usize = 5;

/// Distance of human scores from the metric's. The line needs few labels; the more items remain to calibrate the
/// distance, the tighter it is.
fn reach(items: &JudgedItems<'_>, promise: Promise) -> Result<ConformalScores, NoConformal> {
    let mut labelled: Vec<Vec<(f64, f64)>> = items
        .texts()
        .map(|(_, item)| item.iter().filter_map(|one| Some((one.score, one.people?))).collect::<Vec<_>>())
        .filter(|item| !item.is_empty())
        .collect();
    shuffle(promise.seed, &mut labelled);
    let (items, measured) = (labelled.len(), conformal_items(promise.confidence));
    let Some(spare) = items.checked_sub(measured).filter(|spare| *spare >= FITTED) else {
        return Err(NoConformal::TooFew { items, needed: measured + FITTED });
    };
    let (fitted, measured) = labelled.split_at((items / FITTED).clamp(FITTED, spare));
    ConformalScores::fit(&fitted.concat(), measured, promise.confidence)
}

/// Scores with human scores, and scores without.
#[derive(Debug, Default)]
struct SplitItems {
    labelled: Vec<(f64, f64)>,
    unlabelled: Vec<f64>,
}

impl SplitItems {
    fn add(&mut self, score: f64, people: Option<f64>) {
        match people {
            Some(people) => self.labelled.push((score, people)),
            None => self.unlabelled.push(score),
        }
    }

    /// `None` if there are too few of either.
    fn mean(&self, system: &str, confidence: f64) -> Option<SystemMean> {
        let found = prediction_powered(&self.labelled, &self.unlabelled, confidence).ok();
        found.filter(|mean| mean.unlabelled > 1).map(|mean| SystemMean {
            system: system.to_owned(),
            mean,
            labels_to_tell: None,
        })
    }
}

/// Means of systems with both labelled and unlabelled scores, and the difference between the two best.
fn means(items: &JudgedItems<'_>, confidence: f64) -> (Vec<SystemMean>, Option<SystemMean>) {
    let mut systems: BTreeMap<&str, SplitItems> = BTreeMap::new();
    for one in items.texts().flat_map(|(_, item)| item) {
        systems.entry(one.candidate).or_default().add(one.score, one.people);
    }
    let mut means: Vec<SystemMean> =
        systems.into_iter().filter_map(|(system, halves)| halves.mean(system, confidence)).collect();
    means.sort_by(|a, b| b.mean.value.total_cmp(&a.mean.value).then_with(|| a.system.cmp(&b.system)));
    let lead = match &means[..] {
        [first, second, ..] => lead(items, &first.system, &second.system, confidence),
        _ => None,
    };
    (means, lead)
}

/// Unlabelled candidates of a system.
struct SystemQueue<'i> {
    system: &'i str,
    /// Variance per label; divided by the number of labels, it is their contribution to the variance of the mean.
    variance: f64,
    labels: usize,
    open: Vec<&'i str>,
}

impl SystemQueue<'_> {
    /// Reduction of the variance of the mean by one more label.
    fn narrowed(&self) -> f64 {
        self.variance / (self.labels * (self.labels + 1)).max(1) as f64
    }
}

/// Unlabelled candidates in the order to label them. Next is the system whose interval narrows most with one label. Its
/// candidates are drawn at random, so that the labels represent all of them.
fn open_scores<'i>(metric: &str, attribute: &str, items: &'i JudgedItems<'i>, promise: Promise) -> Vec<OpenScore> {
    let mut systems: BTreeMap<&str, (SplitItems, Vec<&str>)> = BTreeMap::new();
    for (id, one) in items.texts().flat_map(|(id, item)| item.iter().map(move |one| (id, one))) {
        let (halves, open) = systems.entry(one.candidate).or_default();
        halves.add(one.score, one.people);
        open.extend(one.people.is_none().then_some(id));
    }
    let queue = |(system, (halves, mut open)): (&'i str, (SplitItems, Vec<&'i str>))| {
        let variance = halves.mean(system, promise.confidence).map_or(f64::INFINITY, |one| one.mean.label_variance);
        shuffle(promise.seed, &mut open);
        SystemQueue { system, variance, labels: halves.labelled.len(), open }
    };
    let mut queues: Vec<SystemQueue<'_>> = systems.into_iter().map(queue).collect();
    let mut found = Vec::new();
    while found.len() < MOST_HANDED_BACK {
        let left = queues.iter_mut().filter(|queue| !queue.open.is_empty());
        let Some(next) = left.reduce(|a, b| if b.narrowed() > a.narrowed() { b } else { a }) else { break };
        next.labels += 1;
        let Some(item) = next.open.pop() else { break };
        let (item, candidate) = (item.to_owned(), next.system.to_owned());
        found.push(OpenScore { item, metric: metric.to_owned(), attribute: attribute.to_owned(), candidate });
    }
    found
}

/// Difference between two systems over their common items.
fn lead(items: &JudgedItems<'_>, first: &str, second: &str, confidence: f64) -> Option<SystemMean> {
    let mut halves = SplitItems::default();
    for (_, item) in items.texts() {
        let of = |system: &str| item.iter().find(|one| one.candidate == system);
        if let Some((a, b)) = Option::zip(of(first), of(second)) {
            halves.add(a.score - b.score, Option::zip(a.people, b.people).map(|(people, others)| people - others));
        }
    }
    let mut lead = halves.mean(&format!("{first} − {second}"), confidence)?;
    let PredictionPowered { value, interval, labels, unlabelled, .. } = lead.mean;
    if interval.low <= 0.0 && 0.0 <= interval.high && value != 0.0 {
        let half = (interval.high - interval.low) / 2.0;
        let needed = units_to_reach(half, labels, value.abs(), confidence);
        // If all of them are labelled, the scores add nothing.
        lead.labels_to_tell = needed.filter(|needed| *needed <= labels + unlabelled);
    }
    Some(lead)
}
