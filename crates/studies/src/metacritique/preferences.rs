//! Agreement of scores and judges with human preferences between two critiques of one answer.

use std::cmp::Ordering;

use probity_data::{Preference, Sample};
use probity_stats::{FigureEstimate, Range, Resampling, order, ratio_interval};
use serde::Serialize;

use super::leaderboard::HUMAN;
use crate::figures::{ShareFigure, bounds, number};
use crate::{Table, cells};

/// Two candidates of a sample; people prefer the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PreferredPair {
    pub(super) item: usize,
    pub(super) better: usize,
    pub(super) worse: usize,
}

/// The pairs whose gold F1 differs, or without any, those of the samples' preferences. Human critiques are not compared
/// with those of models, whose style differs (the paper's section 3.2).
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

/// The agreement of a score or judge with preferences.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CritiquePreferences {
    /// The name of the score or judge.
    pub(super) by: &'static str,
    /// Pairs with a verdict.
    pub(super) pairs: usize,
    /// Pairs with a tie.
    pub(super) level: usize,
    /// Pairs without a verdict.
    pub(super) without: usize,
    /// The share of correct pairs; ties count as half.
    pub(super) accuracy: FigureEstimate<ShareFigure>,
}

impl CritiquePreferences {
    /// `pairs` has, in sample order, the sample of each pair and the preference for its better critique: 1, 0, or ½ for
    /// a tie.
    pub(super) fn from_pairs(by: &'static str, pairs: &[(usize, Option<f64>)]) -> Self {
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

    /// The figures as a table.
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

/// 1 if the better text has the higher score, ½ for a tie, else 0.
pub(super) fn point(better: f64, worse: f64) -> f64 {
    match order(better, worse) {
        Ordering::Greater => 1.0,
        Ordering::Less => 0.0,
        Ordering::Equal => 0.5,
    }
}
