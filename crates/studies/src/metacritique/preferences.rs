//! Which of two critiques of one answer is better: scores and judges held against people's preferences.

use std::cmp::Ordering;

use probity_data::{Preference, Sample};
use probity_stats::{FigureEstimate, Range, Resampling, order, ratio_interval};
use serde::Serialize;

use super::leaderboard::HUMAN;
use crate::figures::{ShareFigure, bounds, number};
use crate::{Table, cells};

/// Two candidates of a sample, the first of which people prefer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PreferredPair {
    pub(super) item: usize,
    pub(super) better: usize,
    pub(super) worse: usize,
}

/// The pairs whose gold F1 differs, or where there is none those of the samples' preferences. Critiques by people are
/// not compared with those by models, whose way of writing differs (the paper's section 3.2).
pub(super) fn preferred(samples: &[Sample]) -> Vec<PreferredPair> {
    let mut pairs = Vec::new();
    for (item, sample) in samples.iter().enumerate() {
        let all = &sample.candidates;
        let models = all.iter().filter(|candidate| candidate.id != HUMAN).count();
        for a in 0..all.len() {
            for b in a + 1..all.len() {
                if models >= 2 && (all[a].id == HUMAN || all[b].id == HUMAN) {
                    continue;
                }
                let gold = |k: usize| all[k].scores.get("f1").copied();
                let is_preferred =
                    |k: usize| matches!(&sample.preference, Some(Preference::Candidate(id)) if *id == all[k].id);
                let better = match (gold(a), gold(b)) {
                    (Some(x), Some(y)) => order(x, y),
                    _ if is_preferred(a) => Ordering::Greater,
                    _ if is_preferred(b) => Ordering::Less,
                    _ => Ordering::Equal,
                };
                match better {
                    Ordering::Greater => pairs.push(PreferredPair { item, better: a, worse: b }),
                    Ordering::Less => pairs.push(PreferredPair { item, better: b, worse: a }),
                    Ordering::Equal => {}
                }
            }
        }
    }
    pairs
}

/// How often somebody prefers what is better.
#[derive(Debug, Clone, Serialize)]
pub(super) struct PreferenceFigures {
    /// Who.
    pub(super) by: &'static str,
    /// Pairs with a verdict.
    pub(super) pairs: usize,
    /// Those of them that are level.
    pub(super) level: usize,
    /// Pairs without a verdict.
    pub(super) without: usize,
    /// The share that is right; level ones count as half.
    pub(super) accuracy: FigureEstimate<ShareFigure>,
}

impl PreferenceFigures {
    /// Of each pair, in the order of the samples: its sample, and how much speaks for its better one: 1, 0, or ½ where
    /// both are level.
    pub(super) fn of(by: &'static str, pairs: &[(usize, Option<f64>)]) -> Self {
        let points: Vec<(usize, f64)> = pairs.iter().filter_map(|&(item, point)| Some((item, point?))).collect();
        let units: Vec<(f64, f64)> = points
            .chunk_by(|a, b| a.0 == b.0)
            .map(|own| (own.iter().map(|(_, point)| point).sum(), own.len() as f64))
            .collect();
        let accuracy =
            (!points.is_empty()).then(|| points.iter().map(|(_, point)| point).sum::<f64>() / points.len() as f64);
        let interval = ratio_interval(&units, Resampling::default().confidence, Range::SHARE);
        let without = pairs.len() - points.len();
        let level = points.iter().filter(|(_, point)| *point == 0.5).count();
        let accuracy = FigureEstimate::new(ShareFigure { share: accuracy }, interval);
        Self { by, pairs: points.len(), level, without, accuracy }
    }

    /// The table for people.
    pub(super) fn table(title: &str, first: &str, share: &str, all: &[Self]) -> Table {
        let mut table = Table::new(title, [first, "pairs", "level", "without", share, "95% interval"]);
        for one in all {
            table.push(cells![
                one.by,
                one.pairs,
                one.level,
                one.without,
                number(one.accuracy.figure.share),
                bounds(one.accuracy.interval),
            ]);
        }
        table
    }
}

/// A point for the better of two scores.
pub(super) fn point(better: f64, worse: f64) -> f64 {
    match order(better, worse) {
        Ordering::Greater => 1.0,
        Ordering::Less => 0.0,
        Ordering::Equal => 0.5,
    }
}
