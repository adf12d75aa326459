//! Agreement of claim labels with human labels (the paper's Table 4).

use probity_stats::{FigureEstimate, KappaWeights, Range, Resampling, cohen_kappa, jackknife, ratio_interval};
use serde::Serialize;

use super::leaderboard::HUMAN;
use crate::figures::{ShareFigure, bounds, number};
use crate::{Table, cells};

/// A claim with its human label and the judge's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LabelledClaim<'a> {
    /// Position of the sample.
    pub(super) item: usize,
    /// The author of the critique.
    pub(super) system: &'a str,
    pub(super) gold: bool,
    /// Absent if unreadable, which counts as wrong.
    pub(super) said: Option<bool>,
}

/// The judge's agreement with human labels.
#[derive(Debug, Clone, Serialize)]
pub(super) struct AccuracyFigures {
    /// `precision` or `recall`.
    pub(super) task: &'static str,
    /// The kind of critiques.
    pub(super) critiques: &'static str,
    /// The number of samples with these claims.
    pub(super) samples: usize,
    pub(super) claims: usize,
    pub(super) read: usize,
    /// The share of correct labels among all claims.
    pub(super) accuracy: FigureEstimate<ShareFigure>,
    /// The accuracy of always predicting the most frequent human label.
    pub(super) majority: f64,
    /// The accuracy minus the majority's, with its interval.
    pub(super) above_majority: Option<probity_stats::PairedDifference>,
    /// Cohen's κ over the readable claims.
    pub(super) kappa: Option<f64>,
    pub(super) kappa_interval: Option<probity_stats::Interval>,
    /// The shares of true claims among human labels and among the judge's.
    pub(super) gold_true: f64,
    pub(super) said_true: Option<f64>,
}

/// For all claims, claims of human critiques, and claims of model critiques, where there are any.
pub(super) fn accuracies(task: &'static str, claims: &[LabelledClaim<'_>]) -> Vec<AccuracyFigures> {
    let human = |is_human: bool| move |claim: &&LabelledClaim<'_>| (claim.system == HUMAN) == is_human;
    let all: Vec<&LabelledClaim<'_>> = claims.iter().collect();
    let people: Vec<&LabelledClaim<'_>> = claims.iter().filter(human(true)).collect();
    let models: Vec<&LabelledClaim<'_>> = claims.iter().filter(human(false)).collect();
    let split = !people.is_empty() && !models.is_empty();
    let groups = [("all", all), ("by people", people), ("by models", models)];
    let shown = groups.into_iter().take(if split { 3 } else { 1 });
    shown.filter(|(_, own)| !own.is_empty()).map(|(name, own)| AccuracyFigures::new(task, name, &own)).collect()
}

impl AccuracyFigures {
    fn new(task: &'static str, critiques: &'static str, claims: &[&LabelledClaim<'_>]) -> Self {
        let is_right = |claim: &LabelledClaim<'_>| claim.said == Some(claim.gold);
        let gold_true = share(claims, |claim| claim.gold);
        // Claims of one sample are dependent, so samples are the sampling unit.
        let by_item: Vec<&[&LabelledClaim<'_>]> = claims.chunk_by(|a, b| a.item == b.item).collect();
        let units: Vec<(f64, f64)> = by_item
            .iter()
            .map(|own| (own.iter().filter(|claim| is_right(claim)).count() as f64, own.len() as f64))
            .collect();
        let resampling = Resampling::default();
        let interval = ratio_interval(&units, resampling.confidence, Range::SHARE);
        let most = gold_true >= 0.5;
        let above = |kept: &[usize]| {
            let own = || kept.iter().flat_map(|&unit| by_item[unit].iter());
            let count = own().count();
            let gain = |claim: &&LabelledClaim<'_>| f64::from(is_right(claim)) - f64::from(claim.gold == most);
            (count > 0).then(|| own().map(gain).sum::<f64>() / count as f64)
        };
        let kappa = |kept: &[usize]| {
            let read = kept.iter().flat_map(|&unit| by_item[unit].iter()).filter_map(|one| Some((one.said?, one.gold)));
            let (said, gold): (Vec<bool>, Vec<bool>) = read.unzip();
            cohen_kappa(&said, &gold, KappaWeights::Plain)
        };
        let everything: Vec<usize> = (0..by_item.len()).collect();
        let read: Vec<&LabelledClaim<'_>> = claims.iter().copied().filter(|claim| claim.said.is_some()).collect();
        let value = kappa(&everything);
        Self {
            task,
            critiques,
            samples: by_item.len(),
            claims: claims.len(),
            read: read.len(),
            accuracy: FigureEstimate::new(ShareFigure { share: Some(share(claims, is_right)) }, interval),
            majority: gold_true.max(1.0 - gold_true),
            above_majority: resampling.paired_difference(by_item.len(), Range::SHARE, above),
            kappa: value,
            kappa_interval: value
                .and_then(|_| jackknife(by_item.len(), resampling.confidence, Range::Within(-1.0, 1.0), kappa).ok()),
            gold_true,
            said_true: (!read.is_empty()).then(|| share(&read, |claim| claim.said == Some(true))),
        }
    }

    /// The figures as a table.
    pub(super) fn table(all: &[Self]) -> Table {
        let columns = [
            "task", "critiques", "claims", "read", "accuracy", "95% interval", "majority", "gain", "κ", "κ 95%",
            "true by people", "true by the judge",
        ];
        let mut table = Table::new("Agreement with human labels of claims", columns);
        for one in all {
            table.push(cells![
                one.task,
                one.critiques,
                one.claims,
                one.read,
                number(one.accuracy.figure.share),
                bounds(one.accuracy.interval),
                number(Some(one.majority)),
                bounds(one.above_majority.and_then(|above| above.interval)),
                number(one.kappa),
                bounds(one.kappa_interval),
                number(Some(one.gold_true)),
                number(one.said_true),
            ]);
        }
        table.note(
            "Accuracy: share of claims with the human label; unreadable labels count as wrong. Majority: accuracy of \
             always predicting the most frequent human label; gain: accuracy minus majority, 95% interval. κ: Cohen's, \
             over readable labels.",
        );
        table.note("Intervals are from the jackknife over samples, since claims about one answer are dependent.");
        table
    }
}

fn share(claims: &[&LabelledClaim<'_>], is_so: impl Fn(&LabelledClaim<'_>) -> bool) -> f64 {
    let count = claims.iter().filter(|claim| is_so(claim)).count();
    count as f64 / claims.len() as f64
}
