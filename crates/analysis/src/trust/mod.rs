//! What the labels that there are promise of a metric's scores: which pairs can be left to it, how far people's scores
//! lie from its own, and what it adds to the means of systems.

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

/// Pairs that are handed back at most: more than anybody looks at.
const MOST_HANDED_BACK: usize = 10_000;

/// Thresholds that are tried.
const THRESHOLDS: usize = 50;

/// What is promised, and how sure that is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise {
    /// Of pairs.
    pub(crate) rule: SelectionRule,
    /// Of intervals.
    pub(crate) confidence: f64,
    /// What is drawn: a pair of each item, and the halves of the labels.
    pub(crate) seed: u64,
}

/// How far a metric can be trusted with an attribute.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trusted {
    pub(crate) metric: String,
    /// Absent of preferences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attribute: Option<String>,
    pub(crate) pairs: TrustedPairs,
    /// Absent of preferences, which say nothing of a text by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scores: Option<Promised<ConformalScores, NoConformal>>,
    /// Means of candidates with one id over all items, where some have no label.
    pub(crate) systems: Vec<SystemMean>,
    /// The same of the difference between the first two by that mean.
    pub(crate) lead: Option<SystemMean>,
}

/// A promise, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Promised<T, E> {
    /// What is promised.
    Kept(T),
    /// Why nothing is.
    Broken(E),
}

impl<T, E> From<Result<T, E>> for Promised<T, E> {
    fn from(found: Result<T, E>) -> Self {
        found.map_or_else(Self::Broken, Self::Kept)
    }
}

/// Pairs of candidates of one item, by how far their scores are apart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TrustedPairs {
    pub(crate) selection: Promised<Selection, NoSelection>,
    /// Pairs of all items, with labels or without, and those among them that are trusted.
    pub(crate) pairs: usize,
    pub(crate) kept: usize,
    /// Items with labels of which a pair was drawn, and how often people say otherwise in these.
    pub(crate) labelled: usize,
    pub(crate) disagreements: usize,
    /// Of these, pairs whose scores are equal: no verdict, which a promise counts as the other one.
    pub(crate) level: usize,
    /// Pairs that nobody has seen and that are not left to the metric.
    pub(crate) handed_back: usize,
    /// Items of which no pair has a label and one could get it.
    pub(crate) unlabelled: usize,
    /// How many more labels of as good a kind would promise something, where none do; absent too where none would.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) labels_still_needed: Option<usize>,
    /// The fewest labels more that could do, if they are of the surest pairs and all agree; absent where something is
    /// promised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) labels_needed_at_least: Option<usize>,
}

/// The mean of a system's scores by people, with the metric's help.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SystemMean {
    pub(crate) system: String,
    #[serde(flatten)]
    pub(crate) mean: PredictionPowered,
    /// Of a lead that its interval leaves open: how many labels would tell it from 0, were it as large as it seems; absent
    /// where that is more than there are items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) labels_to_tell: Option<usize>,
}

/// What people should look at, that first of which most is learnt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToLabel {
    /// Pairs that are not left to the metric.
    pub(crate) pairs: Vec<HandedBack>,
    /// Candidates whose labels narrow the intervals of systems' means.
    pub(crate) scores: Vec<OpenScore>,
}

/// A candidate that has no label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct OpenScore {
    pub(crate) item: String,
    pub(crate) metric: String,
    pub(crate) attribute: String,
    pub(crate) candidate: String,
}

/// Two candidates of an item that are handed back.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct HandedBack {
    pub(crate) item: String,
    pub(crate) metric: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attribute: Option<String>,
    pub(crate) candidate_i: String,
    pub(crate) candidate_j: String,
    /// How far their scores are apart.
    pub(crate) difference: f64,
}

impl Trusted {
    /// What it is of: the metric, and the attribute where there is one.
    pub(crate) fn about(&self) -> String {
        self.attribute.iter().fold(self.metric.clone(), |metric, attribute| format!("{metric}, {attribute}"))
    }

    /// How many items' pairs people have judged, where it is of that metric's preferences.
    pub(crate) fn preferences_of(&self, metric: &str) -> Option<usize> {
        (self.metric == metric && self.attribute.is_none()).then_some(self.pairs.labelled)
    }

    /// What the pairs that people have seen say of the metric, one of each item; absent without any.
    pub(crate) fn agreement(&self, case: AgreementCase) -> Option<Conclusion> {
        let TrustedPairs { labelled, disagreements, level, .. } = self.pairs;
        // Equal scores leave a pair to chance, here as in samples with preferences.
        let point = |place| match place {
            place if place < level => 0.5,
            place if place < disagreements => 0.0,
            _ => 1.0,
        };
        let choices: Vec<ChoicePoint> =
            (0..labelled).map(|place| ChoicePoint { point: point(place), chance: 0.5 }).collect();
        agreement_with_preferences(&choices, case)
    }

    /// Of a metric and an attribute, with what people should look at.
    pub(crate) fn of(
        metric: &str,
        attribute: Option<&str>,
        items: &JudgedItems<'_>,
        promise: Promise,
    ) -> (Self, ToLabel) {
        let middle = items.middle();
        let (mut trusted, threshold) = of_pairs(items, attribute.is_some(), middle, promise);
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

/// The pairs that nobody has seen and that are not left to the metric. Any label of a pair that is surer than most helps
/// to tell what can be left, and which one it is must not follow how sure it is within these: so they come first, drawn;
/// then the others. Of an item one label counts: the first pairs of items without any stand before all others.
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

/// Into an order that the seed draws.
fn shuffle<T>(seed: u64, list: &mut [T]) {
    let lengths: Vec<usize> = (1..=list.len()).rev().collect();
    for (place, step) in drawn(seed, &lengths).into_iter().enumerate() {
        list.swap(place, place + step);
    }
}

/// Which pairs can be left to the metric, and from which distance of scores on.
fn of_pairs(
    items: &JudgedItems<'_>,
    are_scores: bool,
    middle: Option<f64>,
    promise: Promise,
) -> (TrustedPairs, Option<f64>) {
    // Pairs of one item hang together: one of each is drawn, so that labels are independent of one another.
    let seen: Vec<Vec<CheckedVerdict>> = items.checked().into_iter().filter(|seen| !seen.is_empty()).collect();
    let places = drawn(promise.seed, &seen.iter().map(Vec::len).collect::<Vec<_>>());
    let verdicts: Vec<CheckedVerdict> = seen.iter().zip(places).map(|(seen, place)| seen[place]).collect();
    let all: Vec<f64> = items.pairs().map(|(_, first, second)| apart(first, second)).collect();
    let mut tried = thresholds(&all, THRESHOLDS);
    if let Some(middle) = middle.filter(|middle| items.is_dense_above(*middle)) {
        // Labels lie closer among the surer pairs: of all together they would say too much good.
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

/// Of the items with labels one in so many is what a line is fitted on, and so many items at least.
const FITTED: usize = 5;

/// How far people's scores lie from the metric's: a line needs few labels, and the more items its reach is measured on, the
/// less it must allow for one that lies anywhere.
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

/// Scores with people's beside them, and those without.
#[derive(Debug, Default)]
struct Halves {
    labelled: Vec<(f64, f64)>,
    unlabelled: Vec<f64>,
}

impl Halves {
    fn add(&mut self, score: f64, people: Option<f64>) {
        match people {
            Some(people) => self.labelled.push((score, people)),
            None => self.unlabelled.push(score),
        }
    }

    /// Absent where there are too few of either.
    fn mean(&self, system: &str, confidence: f64) -> Option<SystemMean> {
        let found = prediction_powered(&self.labelled, &self.unlabelled, confidence).ok();
        found.filter(|mean| mean.unlabelled > 1).map(|mean| SystemMean {
            system: system.to_owned(),
            mean,
            labels_to_tell: None,
        })
    }
}

/// Means of systems that have labels and scores without one, and of the lead of the first over the second.
fn means(items: &JudgedItems<'_>, confidence: f64) -> (Vec<SystemMean>, Option<SystemMean>) {
    let mut systems: BTreeMap<&str, Halves> = BTreeMap::new();
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

/// What of a system has no label.
struct SystemQueue<'i> {
    system: &'i str,
    /// Of a label beside its score: so much over their number is their part of the mean's.
    variance: f64,
    labels: usize,
    open: Vec<&'i str>,
}

impl SystemQueue<'_> {
    /// By how much one label more makes the variance of the mean smaller.
    fn narrowed(&self) -> f64 {
        self.variance / (self.labels * (self.labels + 1)).max(1) as f64
    }
}

/// The candidates without a label. Next is always the system whose interval one label narrows most, and of its candidates
/// one that is drawn, since labels speak for all of a system's candidates only if they were not chosen by what they say.
fn open_scores<'i>(metric: &str, attribute: &str, items: &'i JudgedItems<'i>, promise: Promise) -> Vec<OpenScore> {
    let mut systems: BTreeMap<&str, (Halves, Vec<&str>)> = BTreeMap::new();
    for (id, one) in items.texts().flat_map(|(id, item)| item.iter().map(move |one| (id, one))) {
        let (halves, open) = systems.entry(one.candidate).or_default();
        halves.add(one.score, one.people);
        open.extend(one.people.is_none().then_some(id));
    }
    let queue = |(system, (halves, mut open)): (&'i str, (Halves, Vec<&'i str>))| {
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

/// The difference between two systems, item by item.
fn lead(items: &JudgedItems<'_>, first: &str, second: &str, confidence: f64) -> Option<SystemMean> {
    let mut halves = Halves::default();
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
        // With all of them labelled there is nothing left for the scores to say.
        lead.labels_to_tell = needed.filter(|needed| *needed <= labels + unlabelled);
    }
    Some(lead)
}
