//! What the labels that there are promise of a metric's scores: which pairs can be left to it, how far people's scores
//! lie from its own, and what it adds to the means of systems.

use std::collections::BTreeMap;

use probity_data::Preference;
use probity_stats::{
    CheckedVerdict, ConformalScores, NoConformal, NoSelection, PredictionPowered, Selection, SelectionRule, drawn,
    prediction_powered, thresholds,
};
use serde::Serialize;

use crate::align::AlignedScores;
use crate::gold::GoldScores;

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
pub(crate) struct Trusted {
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
    Kept(T),
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
}

/// The mean of a system's scores by people, with the metric's help.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SystemMean {
    pub(crate) system: String,
    #[serde(flatten)]
    pub(crate) mean: PredictionPowered,
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

/// A candidate's score, with people's where they gave one.
#[derive(Debug, Clone, Copy)]
struct Scored<'a> {
    candidate: &'a str,
    score: f64,
    people: Option<f64>,
}

/// Items by id, each with its candidates that have a score.
type Items<'a> = BTreeMap<&'a str, Vec<Scored<'a>>>;

/// Of preferences people's score is 1 of what they preferred and 0 of the others, between which nothing is known.
fn items<'a>(one: &AlignedScores<'a>, gold: &'a GoldScores, attribute: Option<&str>) -> Items<'a> {
    let mut items = Items::new();
    for row in &one.metric.rows {
        let Some(score) = row.score else { continue };
        let people = gold.find(&row.item, row.candidate.as_deref()).and_then(|(item, candidate)| {
            let (item, candidate) = (&gold.items[item], &gold.items[item].candidates[candidate]);
            match (attribute, &item.preference) {
                (Some(attribute), _) => candidate.scores.get(attribute).copied(),
                (None, Some(Preference::Candidate(id))) => {
                    Some(f64::from(u8::from(candidate.id.as_deref() == Some(id.as_str()))))
                }
                (None, _) => None,
            }
        });
        items.entry(&row.item).or_default().push(Scored {
            candidate: row.candidate.as_deref().unwrap_or_default(),
            score: one.metric.direction.upwards(score),
            people,
        });
    }
    items
}

/// Pairs of an item whose scores differ.
fn pairs<'a, 'i>(item: &'i [Scored<'a>]) -> impl Iterator<Item = (&'i Scored<'a>, &'i Scored<'a>)> {
    item.iter().enumerate().flat_map(|(place, first)| item[place + 1..].iter().map(move |second| (first, second)))
}

fn apart(first: &Scored<'_>, second: &Scored<'_>) -> f64 {
    (first.score - second.score).abs()
}

/// Whether people see a pair otherwise; absent where they have not seen it, or see no difference.
fn disagrees(first: &Scored<'_>, second: &Scored<'_>) -> Option<bool> {
    let people = first.people? - second.people?;
    (people != 0.0).then_some((first.score - second.score) * people <= 0.0)
}

impl Trusted {
    /// Of a metric and an attribute, with the pairs that people should look at.
    pub(crate) fn of(
        one: &AlignedScores<'_>,
        gold: &GoldScores,
        attribute: Option<&str>,
        promise: Promise,
    ) -> (Self, Vec<HandedBack>) {
        let items = items(one, gold, attribute);
        let (trusted, threshold) = of_pairs(&items, promise);
        let back = items
            .iter()
            .flat_map(|(id, item)| pairs(item).map(move |(first, second)| (*id, first, second)))
            .filter(|(_, first, second)| disagrees(first, second).is_none())
            .filter(|(_, first, second)| threshold.is_none_or(|threshold| apart(first, second) < threshold))
            .map(|(id, first, second)| HandedBack {
                item: id.to_owned(),
                metric: one.metric.name.clone(),
                attribute: attribute.map(str::to_owned),
                candidate_i: first.candidate.to_owned(),
                candidate_j: second.candidate.to_owned(),
                difference: apart(first, second),
            })
            .collect();
        let (systems, lead) = if attribute.is_some() { means(&items, promise.confidence) } else { (Vec::new(), None) };
        let scores = attribute.map(|_| reach(&items, promise).into());
        let (metric, attribute) = (one.metric.name.clone(), attribute.map(str::to_owned));
        (Self { metric, attribute, pairs: trusted, scores, systems, lead }, back)
    }
}

/// Which pairs can be left to the metric, and from which distance of scores on.
fn of_pairs(items: &Items<'_>, promise: Promise) -> (TrustedPairs, Option<f64>) {
    // Pairs of one item hang together: one of each is drawn, so that labels are independent of one another.
    let seen: Vec<Vec<CheckedVerdict>> = items
        .values()
        .map(|item| {
            let checked = |(first, second): (&Scored<'_>, &Scored<'_>)| {
                Some(CheckedVerdict { confidence: apart(first, second), disagrees: disagrees(first, second)? })
            };
            pairs(item).filter_map(checked).collect::<Vec<_>>()
        })
        .filter(|seen| !seen.is_empty())
        .collect();
    let places = drawn(promise.seed, &seen.iter().map(Vec::len).collect::<Vec<_>>());
    let verdicts: Vec<CheckedVerdict> = seen.iter().zip(places).map(|(seen, place)| seen[place]).collect();
    let all: Vec<f64> =
        items.values().flat_map(|item| pairs(item).map(|(first, second)| apart(first, second))).collect();
    let selection = promise.rule.select(&verdicts, &thresholds(&all, THRESHOLDS));
    let threshold = selection.ok().map(|selection| selection.threshold);
    let kept = threshold.map_or(0, |threshold| all.iter().filter(|apart| **apart >= threshold).count());
    let trusted = TrustedPairs {
        selection: selection.into(),
        pairs: all.len(),
        kept,
        labelled: verdicts.len(),
        disagreements: verdicts.iter().filter(|verdict| verdict.disagrees).count(),
    };
    (trusted, threshold)
}

/// How far people's scores lie from the metric's: fitted on one half of the items with labels, measured on the other.
fn reach(items: &Items<'_>, promise: Promise) -> Result<ConformalScores, NoConformal> {
    let labelled: Vec<Vec<(f64, f64)>> = items
        .values()
        .map(|item| item.iter().filter_map(|one| Some((one.score, one.people?))).collect::<Vec<_>>())
        .filter(|item| !item.is_empty())
        .collect();
    let halves = drawn(promise.seed, &vec![2; labelled.len()]);
    let half = |which: usize| -> Vec<(f64, f64)> {
        labelled
            .iter()
            .zip(&halves)
            .filter(|(_, half)| **half == which)
            .flat_map(|(item, _)| item.iter().copied())
            .collect()
    };
    ConformalScores::fit(&half(0), &half(1), promise.confidence)
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
        found.filter(|mean| mean.unlabelled > 1).map(|mean| SystemMean { system: system.to_owned(), mean })
    }
}

/// Means of systems that have labels and scores without one, and of the lead of the first over the second.
fn means(items: &Items<'_>, confidence: f64) -> (Vec<SystemMean>, Option<SystemMean>) {
    let mut systems: BTreeMap<&str, Halves> = BTreeMap::new();
    for one in items.values().flatten() {
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

/// The difference between two systems, item by item.
fn lead(items: &Items<'_>, first: &str, second: &str, confidence: f64) -> Option<SystemMean> {
    let mut halves = Halves::default();
    for item in items.values() {
        let of = |system: &str| item.iter().find(|one| one.candidate == system);
        if let Some((a, b)) = Option::zip(of(first), of(second)) {
            halves.add(a.score - b.score, Option::zip(a.people, b.people).map(|(people, others)| people - others));
        }
    }
    halves.mean(&format!("{first} − {second}"), confidence)
}
