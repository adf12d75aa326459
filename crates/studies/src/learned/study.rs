//! Cross-validation of a head, compared with baselines without a model or without labels.

use std::collections::{BTreeMap, BTreeSet};

use probity_learn::{ColumnBlock, FeatureTable, FittedHead, Folds, Lesson, LinearHead, Prediction, Split, shuffled};
use serde::{Deserialize, Serialize};

use super::head_file::{HeadOrigin, LearnedHead, Profile};
use super::options::{FeatureBlock, LearnParams};
use super::subject::{Agreement, Subject};
use super::surface::{LOG_WORDS, SURFACE};
use super::table::SCORES_BLOCK;
use crate::figures::mean;

/// The number of parts into which systems are divided.
const SYSTEM_PARTS: usize = 4;
/// The number of folds of contexts held out along with a part.
const SYSTEM_FOLDS: usize = 5;
/// The minimum number of contexts of a held-out system.
const FEWEST_CONTEXTS: usize = 2;
/// The share of labels held out at each point of the learning curve.
const HELD_OUT: f64 = 0.2;

/// The kinds of scorers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WayKind {
    /// A head on all blocks.
    Learnt,
    /// A head on one block, for comparison.
    Block,
    /// A head on surface features, which need no model.
    Surface,
    /// A head on the logarithm of the number of words.
    Length,
    /// The mean log-probability unchanged, without labels.
    LogProbability,
}

/// A scorer with its features.
pub(super) struct Way {
    pub(super) kind: WayKind,
    /// The name in tables.
    pub(super) name: String,
    pub(super) table: FeatureTable,
}

impl Way {
    /// Whether the head must beat it to be useful.
    pub(super) fn is_baseline(&self) -> bool {
        matches!(self.kind, WayKind::Surface | WayKind::Length | WayKind::LogProbability)
    }

    /// The head of this scorer, fitted to all labels.
    fn fit(&self, subject: &Subject<'_>, seed: u64) -> FittedHead {
        if self.kind == WayKind::LogProbability {
            let head = LinearHead { coefficients: vec![1.0], means: vec![0.0], intercept: 0.0 };
            return FittedHead { head, alpha: 0.0, losses: Vec::new() };
        }
        let rows: Vec<usize> = (0..subject.labels()).collect();
        subject.lesson(&self.table, seed).fit(&rows).into_iter().next().expect("a head for one target")
    }

    fn predict(&self, subject: &Subject<'_>, splits: &[Split], seed: u64) -> Vec<Option<Prediction>> {
        if self.kind == WayKind::LogProbability {
            let mut predicted = vec![None; subject.labels()];
            for row in splits.iter().flat_map(|split| &split.predict) {
                predicted[*row] = Some(Prediction { value: self.table.row(*row)[0], alpha: 0.0 });
            }
            return predicted;
        }
        subject.lesson(&self.table, seed).predict(splits).into_iter().next().expect("predictions of one target")
    }
}

/// The split that predicts each row; rows in no split keep the default.
fn parts_of(labels: usize, splits: &[Split]) -> Vec<usize> {
    let mut parts = vec![0; labels];
    for (part, split) in splits.iter().enumerate() {
        split.predict.iter().for_each(|row| parts[*row] = part);
    }
    parts
}

/// Predictions without the penalties used.
fn values(predicted: &[Option<Prediction>]) -> Vec<Option<f64>> {
    predicted.iter().map(|one| one.map(|one| one.value)).collect()
}

impl Subject<'_> {
    fn lesson<'l>(&'l self, table: &'l FeatureTable, seed: u64) -> Lesson<'l> {
        let Self { groups, target, centred, objective, .. } = self;
        let targets = std::slice::from_ref(target);
        Lesson { features: table, groups, targets, centred: *centred, objective: *objective, seed }
    }

    /// All scorers to compare: the head, each of its blocks, and the baselines without a model or without labels, even
    /// if they are not part of the head.
    fn ways(&self, params: &LearnParams) -> Vec<Way> {
        let is_given = |name: &str| name == SCORES_BLOCK;
        let chosen = self.table.only(|name| is_given(name) || params.blocks().iter().any(|block| block.has(name)));
        let mut ways = vec![Way { kind: WayKind::Learnt, name: "learnt".to_owned(), table: chosen }];
        let several = params.blocks().len() + usize::from(self.table.blocks().iter().any(|b| is_given(&b.name))) > 1;
        for block in FeatureBlock::ALL {
            let table = self.table.only(|name| block.has(name));
            let is_shown = block == FeatureBlock::Surface || params.has(block);
            // A head's only block equals the head.
            if table.columns() > 0 && is_shown && (several || !params.has(block)) {
                let kind = if block == FeatureBlock::Surface { WayKind::Surface } else { WayKind::Block };
                ways.push(Way { kind, name: format!("{} alone", block.name()), table });
            }
        }
        let given = self.table.only(is_given);
        if given.columns() > 0 {
            ways.push(Way { kind: WayKind::Block, name: "given scores alone".to_owned(), table: given });
        }
        let length = ColumnBlock::new(&FeatureBlock::Surface.name(), &[SURFACE[LOG_WORDS]]);
        let length = self.table.select(&[length]);
        ways.extend(length.map(|table| Way { kind: WayKind::Length, name: "length alone".to_owned(), table }));
        let name = || "mean log-probability, no labels".to_owned();
        ways.extend(self.log_probability.clone().map(|table| Way {
            kind: WayKind::LogProbability,
            name: name(),
            table,
        }));
        ways
    }
}

/// The agreement of a scorer with held-out labels.
#[derive(Debug, Clone, Serialize)]
pub(super) struct WayFigures {
    pub(super) way: String,
    pub(super) kind: WayKind,
    #[serde(flatten)]
    pub(super) agreement: Agreement,
    /// The head's advantage over this scorer; absent for the head itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) learnt_gains: Option<Agreement>,
}

/// A point of the learning curve.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CurvePoint {
    pub(super) labels: usize,
    /// The mean number of contexts with these labels.
    pub(super) contexts: f64,
    /// The mean over draws.
    pub(super) mean: f64,
    pub(super) deviation: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    pub(super) draws: usize,
}

/// Cross-validation with held-out systems.
#[derive(Debug, Clone, Serialize)]
pub(super) struct UnseenSystems {
    pub(super) systems: usize,
    pub(super) parts: usize,
    pub(super) ways: Vec<WayFigures>,
}

/// The results of the cross-validation.
pub(super) struct HeadStudy {
    pub(super) ways: Vec<Way>,
    pub(super) figures: Vec<WayFigures>,
    /// Present if the same systems wrote candidates in several contexts.
    pub(super) unseen: Option<UnseenSystems>,
    pub(super) curve: Vec<CurvePoint>,
    /// The index of the scorer to keep: the head if it beats the best baseline, else that baseline.
    pub(super) used: usize,
    /// The best baseline.
    pub(super) best_baseline: Option<usize>,
    /// Predictions by the head on all blocks, by row.
    pub(super) predicted: Vec<Option<Prediction>>,
    /// The fold of each context.
    pub(super) folds: Folds,
}

impl HeadStudy {
    /// Cross-validates; `tell` receives progress before each part of the work.
    pub(super) fn cross_validate<E>(
        subject: &Subject<'_>,
        params: &LearnParams,
        mut tell: impl FnMut(usize, usize) -> Result<(), E>,
    ) -> Result<Self, E> {
        let seed = params.seed;
        let ways = subject.ways(params);
        let folds = Folds::new(subject.contexts, params.folds as usize, seed);
        let splits: Vec<Split> = (0..folds.parts)
            .map(|part| split(subject, |row| folds.part[subject.groups[row]] == part, |_| false))
            .collect();
        let parts = ways.len() + 1 + params.curve.len();
        let mut predictions = Vec::new();
        for way in &ways {
            tell(predictions.len(), parts)?;
            predictions.push(way.predict(subject, &splits, seed));
        }
        let figures = figures(subject, &ways.iter().collect::<Vec<_>>(), &predictions, &splits);
        let value = |place: usize| figures[place].agreement.value.unwrap_or(f64::NEG_INFINITY);
        let baselines = (0..ways.len()).filter(|place| ways[*place].is_baseline());
        // The last of equals, since earlier entries need more.
        let best_baseline = baselines.rev().max_by(|a, b| value(*a).total_cmp(&value(*b)));
        let is_better = |place: usize| figures[place].learnt_gains.is_none_or(|gains| gains.is_above(0.0));
        let is_clear = figures[0].agreement.is_above(subject.measure.chance());
        let used = best_baseline.filter(|place| !is_better(*place) || !is_clear).unwrap_or(0);
        tell(ways.len(), parts)?;
        let unseen = unseen(subject, &ways, seed);
        let mut curve = Vec::new();
        for (place, labels) in params.curve.iter().enumerate() {
            tell(ways.len() + 1 + place, parts)?;
            curve.extend(point(subject, &ways[0].table, *labels as usize, params));
        }
        tell(parts, parts)?;
        let predicted = predictions.swap_remove(0);
        Ok(Self { ways, figures, unseen, curve, used, best_baseline, predicted, folds })
    }

    /// The scoring head, fitted to all labels; `candidates` has the rows of all texts.
    pub(super) fn head(
        &self,
        subject: &Subject<'_>,
        candidates: &FeatureTable,
        seed: u64,
        origin: HeadOrigin,
    ) -> LearnedHead {
        let way = &self.ways[self.used];
        let blocks = way.table.blocks();
        let places = candidates.places(blocks).expect("columns of the same table");
        let learnt_from =
            candidates.select_rows(&subject.candidates).select(blocks).expect("columns of the same table");
        let agreement = |place: usize| self.figures[place].agreement.value;
        let used = self.figures[self.used].agreement;
        // The label-free baseline uses its values unchanged.
        let is_learnt = way.kind != WayKind::LogProbability;
        LearnedHead {
            attribute: subject.attribute.map(str::to_owned),
            uses: way.kind,
            usable: way.kind == WayKind::Learnt,
            centred: subject.centred && is_learnt,
            measure: subject.measure,
            agreement: used.value,
            interval: used.interval.map(|interval| [interval.low, interval.high]),
            is_clear: used.is_above(subject.measure.chance()),
            best_without: self.best_baseline.and_then(agreement),
            labels: subject.labels(),
            contexts: subject.contexts,
            origin,
            blocks: blocks.to_vec(),
            ends: places.iter().map(|place| subject.ends[*place]).filter(|_| is_learnt).collect(),
            fitted: way.fit(subject, seed),
            profile: Profile::from_table(&learnt_from),
            seal: String::new(),
        }
        .sealed()
    }

    /// The expected gain from twice the labels: the slope of the learning curve per doubling, over its last points and
    /// the cross-validation itself, which uses nearly all labels.
    pub(super) fn doubling(&self, subject: &Subject<'_>) -> Option<f64> {
        let held_out = 1.0 - 1.0 / self.folds.parts as f64;
        let whole = (subject.labels() as f64 * held_out, self.figures[0].agreement.value?);
        let points = self.curve.iter().map(|point| (point.labels as f64, point.mean)).chain([whole]);
        let points: Vec<(f64, f64)> = points.map(|(labels, mean)| (libm::log2(labels), mean)).collect();
        let last = &points[points.len().saturating_sub(3)..];
        let (x, y): (Vec<f64>, Vec<f64>) = last.iter().copied().unzip();
        let (x_mean, y_mean) = (mean(x.iter().copied())?, mean(y.iter().copied())?);
        let spread: f64 = x.iter().map(|x| (x - x_mean) * (x - x_mean)).sum();
        let along: f64 = x.iter().zip(&y).map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
        (last.len() > 1 && spread > 0.0).then(|| along / spread)
    }
}

/// The agreement of each scorer; the head on all blocks is the first.
fn figures(
    subject: &Subject<'_>,
    ways: &[&Way],
    predictions: &[Vec<Option<Prediction>>],
    splits: &[Split],
) -> Vec<WayFigures> {
    let parts = parts_of(subject.labels(), splits);
    let predictions: Vec<Vec<Option<f64>>> = predictions.iter().map(|predicted| values(predicted)).collect();
    let figures = ways.iter().zip(&predictions).enumerate().map(|(place, (way, predicted))| WayFigures {
        way: way.name.clone(),
        kind: way.kind,
        agreement: subject.agreement(predicted, &parts),
        learnt_gains: (place > 0).then(|| subject.difference(&predictions[0], predicted, &parts)),
    });
    figures.collect()
}

/// The rows to predict and those to learn from: all others except `kept_out`.
fn split(subject: &Subject<'_>, predicted: impl Fn(usize) -> bool, kept_out: impl Fn(usize) -> bool) -> Split {
    let (predict, rest): (Vec<usize>, Vec<usize>) = (0..subject.labels()).partition(|row| predicted(*row));
    Split { learn: rest.into_iter().filter(|row| !kept_out(*row)).collect(), predict }
}

/// Predicts each candidate with a head fitted without its context and its system.
fn unseen(subject: &Subject<'_>, ways: &[Way], seed: u64) -> Option<UnseenSystems> {
    let mut contexts: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (system, group) in subject.systems.iter().zip(&subject.groups) {
        contexts.entry(system).or_default().insert(*group);
    }
    // An id that occurs once names a text, not a system.
    if contexts.len() < SYSTEM_PARTS || contexts.values().any(|groups| groups.len() < FEWEST_CONTEXTS) {
        return None;
    }
    let systems: Vec<&str> = contexts.keys().copied().collect();
    let parts = Folds::new(systems.len(), SYSTEM_PARTS, seed);
    let folds = Folds::new(subject.contexts, SYSTEM_FOLDS, seed);
    let part = |row: usize| parts.part[systems.binary_search(&subject.systems[row]).expect("a known system")];
    let fold = |row: usize| folds.part[subject.groups[row]];
    let splits: Vec<Split> = (0..parts.parts * folds.parts)
        .map(|place| {
            let (of_systems, of_contexts) = (place % parts.parts, place / parts.parts);
            let is_out = |row: usize| (part(row) == of_systems, fold(row) == of_contexts);
            split(subject, |row| is_out(row) == (true, true), |row| is_out(row) != (false, false))
        })
        .filter(|split| !split.learn.is_empty() && !split.predict.is_empty())
        .collect();
    // Single blocks add no information here.
    let (kept, predictions): (Vec<&Way>, Vec<Vec<Option<Prediction>>>) = ways
        .iter()
        .filter(|way| way.kind != WayKind::Block)
        .map(|way| (way, way.predict(subject, &splits, seed)))
        .unzip();
    let ways = figures(subject, &kept, &predictions, &splits);
    Some(UnseenSystems { systems: systems.len(), parts: parts.parts, ways })
}

/// The agreement of heads with this many labels, in whole contexts where possible, on all other contexts. `None` if too
/// few labels would be held out.
fn point(subject: &Subject<'_>, table: &FeatureTable, labels: usize, params: &LearnParams) -> Option<CurvePoint> {
    if labels as f64 > (1.0 - HELD_OUT) * subject.labels() as f64 {
        return None;
    }
    let mut by_group: Vec<Vec<usize>> = vec![Vec::new(); subject.contexts];
    subject.groups.iter().enumerate().for_each(|(row, group)| by_group[*group].push(row));
    let (mut splits, mut contexts) = (Vec::new(), 0);
    for draw in 0..u64::from(params.draws) {
        let mut learn: Vec<usize> = Vec::new();
        let mut seen = BTreeSet::new();
        // Seeds of draws follow the seed of the folds.
        for group in shuffled(subject.contexts, params.seed.wrapping_add(1 + draw)) {
            if learn.len() >= labels {
                break;
            }
            learn.extend(&by_group[group]);
            seen.insert(group);
        }
        learn.truncate(labels);
        contexts += seen.len();
        learn.sort_unstable();
        splits.push((learn, seen));
    }
    let values: Vec<f64> = splits
        .into_iter()
        .filter_map(|(learn, seen)| {
            let predict = (0..subject.labels()).filter(|row| !seen.contains(&subject.groups[*row])).collect();
            let split = Split { learn, predict };
            let predicted = subject.lesson(table, params.seed).predict(std::slice::from_ref(&split));
            let parts = parts_of(subject.labels(), std::slice::from_ref(&split));
            subject.agreement(&values(&predicted[0]), &parts).value
        })
        .collect();
    let centre = mean(values.iter().copied())?;
    let squares = values.iter().map(|value| (value - centre) * (value - centre)).sum::<f64>();
    Some(CurvePoint {
        labels,
        contexts: contexts as f64 / f64::from(params.draws),
        mean: centre,
        deviation: if values.len() > 1 { (squares / (values.len() - 1) as f64).sqrt() } else { 0.0 },
        least: values.iter().copied().fold(f64::INFINITY, f64::min),
        most: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        draws: values.len(),
    })
}
