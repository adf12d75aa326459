//! Agreement of judges and metrics with human preferences on pairs.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use probity_stats::{
    FigureEstimate, Interval, KappaWeights, NoInterval, Range, Resampling, association, cohen_kappa, jackknife, order,
    tie_calibration,
};
use serde::Serialize;

use super::pairs::RevisionPair;
use crate::figures::TokenTally;

/// An evaluator of pairs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RevisionEvaluator {
    pub(super) name: String,
    /// The margin of each pair: positive for the first candidate, negative for the second. Absent without a verdict.
    pub(super) margins: Vec<Option<f64>>,
    /// Scores by revision, for evaluators of single texts; higher is better.
    pub(super) scores: Option<Vec<Option<f64>>>,
    /// The cost of its queries.
    pub(super) cost: TokenTally,
}

impl RevisionEvaluator {
    /// An evaluator of single texts.
    pub(super) fn from_scores(
        name: String,
        scores: Vec<Option<f64>>,
        pairs: &[RevisionPair<'_>],
        cost: TokenTally,
    ) -> Self {
        let margin = |pair: &RevisionPair<'_>| {
            let [first, second] = pair.texts.map(|text| scores[text]);
            let (first, second) = (first?, second?);
            // Values that differ only by rounding are equal.
            Some(if order(first, second) == Ordering::Equal { 0.0 } else { first - second })
        };
        Self { name, margins: pairs.iter().map(margin).collect(), scores: Some(scores), cost }
    }
}

/// The better of two: 1 for the first, −1 for the second, 0 for a tie.
pub(super) fn side(margin: f64, epsilon: f64) -> i8 {
    match () {
        () if margin.abs() <= epsilon => 0,
        () if margin > 0.0 => 1,
        () => -1,
    }
}

/// A pair with a human and an evaluator's verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DecidedPair {
    /// Position among all pairs.
    pub(super) pair: usize,
    pub(super) says: i8,
    pub(super) human: i8,
}

/// Pairs with human preferences and sampling groups.
pub(super) struct JudgedPairs<'a> {
    pub(super) pairs: &'a [RevisionPair<'a>],
    /// The group of each pair.
    groups: Vec<usize>,
    folds: usize,
}

impl<'a> JudgedPairs<'a> {
    pub(super) fn new(pairs: &'a [RevisionPair<'a>], folds: usize) -> Self {
        // Numbered by name, so that folds and intervals do not depend on the order of the data.
        let names: BTreeSet<&str> = pairs.iter().map(RevisionPair::group).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let place = |pair: &RevisionPair<'_>| names.binary_search(&pair.group()).expect("one of them");
        let groups = pairs.iter().map(place).collect();
        Self { pairs, groups, folds }
    }

    /// The number of groups.
    pub(super) fn groups(&self) -> usize {
        self.groups.iter().max().map_or(0, |last| last + 1)
    }

    /// The fold of a pair. Groups are assigned cyclically, so no group is in two folds.
    pub(super) fn fold(&self, pair: usize) -> usize {
        self.groups[pair] % self.folds
    }

    /// The number of non-empty folds.
    pub(super) fn folds(&self) -> usize {
        self.folds.min(self.groups())
    }

    /// An evaluator's verdicts from its unchanged scores.
    pub(super) fn as_is(&self, evaluator: &RevisionEvaluator) -> Vec<DecidedPair> {
        self.decided(evaluator, |_| Some(0.0))
    }

    /// Verdicts with margins up to ε as ties. For each fold, ε maximises the number of correct pairs outside it
    /// (Deutsch et al. 2023, but never fitted on the tested pairs). Pairs without human verdicts outside their fold are
    /// omitted.
    pub(super) fn calibrated(&self, evaluator: &RevisionEvaluator) -> Vec<DecidedPair> {
        let epsilons: Vec<Option<f64>> = (0..self.folds).map(|fold| self.epsilon(evaluator, fold)).collect();
        self.decided(evaluator, |pair| epsilons[self.fold(pair)])
    }

    fn decided(&self, evaluator: &RevisionEvaluator, epsilon: impl Fn(usize) -> Option<f64>) -> Vec<DecidedPair> {
        let all = self.pairs.iter().zip(&evaluator.margins).enumerate();
        all.filter_map(|(pair, (one, margin))| {
            Some(DecidedPair { pair, says: side((*margin)?, epsilon(pair)?), human: one.human? })
        })
        .collect()
    }

    /// The ε that maximises the number of correct pairs over all.
    pub(super) fn whole_epsilon(&self, evaluator: &RevisionEvaluator) -> Option<f64> {
        self.epsilon_of(evaluator, |_| true)
    }

    fn epsilon(&self, evaluator: &RevisionEvaluator, fold: usize) -> Option<f64> {
        self.epsilon_of(evaluator, |pair| self.fold(pair) != fold)
    }

    fn epsilon_of(&self, evaluator: &RevisionEvaluator, is_of: impl Fn(usize) -> bool) -> Option<f64> {
        let all = self.pairs.iter().zip(&evaluator.margins).enumerate();
        let outside = all.filter(|(pair, _)| is_of(*pair));
        let contexts: Vec<([f64; 2], [f64; 2])> =
            outside.filter_map(|(_, (one, margin))| Some(([(*margin)?, 0.0], [f64::from(one.human?), 0.0]))).collect();
        let found = tie_calibration(contexts.iter().map(|(margin, human)| (margin.as_slice(), human.as_slice())));
        Some(found?.epsilon)
    }

    fn by_group(&self, decided: &[DecidedPair]) -> Vec<Vec<DecidedPair>> {
        let mut by_group: Vec<Vec<DecidedPair>> = vec![Vec::new(); self.groups()];
        for one in decided {
            by_group[self.groups[one.pair]].push(*one);
        }
        by_group.retain(|group| !group.is_empty());
        by_group
    }

    /// The interval of κ at this confidence.
    pub(super) fn kappa_interval(&self, decided: &[DecidedPair], confidence: f64) -> Option<Interval> {
        interval(&self.by_group(decided), confidence, KAPPA, kappa).ok()
    }

    /// Agreement with people on these pairs.
    pub(super) fn alignment(&self, decided: &[DecidedPair]) -> Alignment {
        let by_group = self.by_group(decided);
        let estimate = |range: Range, of: fn(&[DecidedPair]) -> Option<f64>| {
            let value = of(decided);
            let interval = interval(&by_group, Resampling::default().confidence, range, of);
            Figure::new(AlignmentFigure { value }, if value.is_some() { interval } else { Err(NoInterval::Undefined) })
        };
        Alignment {
            pairs: decided.len(),
            groups: by_group.len(),
            accuracy: estimate(Range::SHARE, accuracy),
            kappa: estimate(KAPPA, kappa),
            cramers_v: estimate(Range::SHARE, cramers_v),
            ties: share(decided, |one| one.says == 0),
        }
    }
}

/// The range of κ.
const KAPPA: Range = Range::Within(-1.0, 1.0);

/// The interval from the jackknife over groups.
fn interval(
    by_group: &[Vec<DecidedPair>],
    confidence: f64,
    range: Range,
    of: fn(&[DecidedPair]) -> Option<f64>,
) -> Result<Interval, NoInterval> {
    jackknife(by_group.len(), confidence, range, |kept| {
        let kept: Vec<DecidedPair> = kept.iter().flat_map(|group| &by_group[*group]).copied().collect();
        of(&kept)
    })
}

type Figure = FigureEstimate<AlignmentFigure>;

/// A figure of agreement with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct AlignmentFigure {
    pub(super) value: Option<f64>,
}

/// Agreement with people on pairs.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Alignment {
    pub(super) pairs: usize,
    pub(super) groups: usize,
    /// The share of equal verdicts, ties included.
    pub(super) accuracy: Figure,
    pub(super) kappa: Figure,
    pub(super) cramers_v: Figure,
    /// The share of ties among verdicts.
    pub(super) ties: Option<f64>,
}

fn share(decided: &[DecidedPair], is: impl Fn(&DecidedPair) -> bool) -> Option<f64> {
    (!decided.is_empty()).then(|| decided.iter().filter(|one| is(one)).count() as f64 / decided.len() as f64)
}

fn accuracy(decided: &[DecidedPair]) -> Option<f64> {
    share(decided, |one| one.says == one.human)
}

fn kappa(decided: &[DecidedPair]) -> Option<f64> {
    let (says, human): (Vec<i8>, Vec<i8>) = decided.iter().map(|one| (one.says, one.human)).unzip();
    cohen_kappa(&says, &human, KappaWeights::Plain)
}

fn cramers_v(decided: &[DecidedPair]) -> Option<f64> {
    let (says, human): (Vec<i8>, Vec<i8>) = decided.iter().map(|one| (one.says, one.human)).unzip();
    Some(association(&says, &human)?.cramers_v)
}

/// The accuracy of always predicting the most frequent human verdict.
pub(super) fn majority(human: impl Iterator<Item = i8>) -> Option<f64> {
    let said: Vec<i8> = human.collect();
    let most = [-1, 0, 1].map(|side| said.iter().filter(|one| **one == side).count()).into_iter().max()?;
    (!said.is_empty()).then(|| most as f64 / said.len() as f64)
}
