//! Cross-validated linear heads with an inner cross-validation for the penalty, and out-of-fold predictions.

use std::collections::BTreeSet;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::fit::{ALPHAS, Objective, USUAL, fit};
use crate::{FeatureTable, Folds, LinearHead};

/// Number of folds of the inner cross-validation.
const INNER_PARTS: usize = 5;

/// Training data.
#[derive(Debug, Clone, Copy)]
pub struct Lesson<'a> {
    /// Features of all rows, unscaled.
    pub features: &'a FeatureTable,
    /// The group of each row: a context, which is kept together in cross-validation.
    pub groups: &'a [usize],
    /// Targets for the same rows: one value per row each. Values of rows outside the training set are ignored.
    pub targets: &'a [Vec<f64>],
    /// Whether to centre by group: scores and features lose their mean over the training rows of the group, and
    /// predictions are deviations from the mean over all rows of the group.
    pub centred: bool,
    /// Type of the targets.
    pub objective: Objective,
    /// Seed of the inner folds.
    pub seed: u64,
}

/// Training rows and rows to predict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Training rows.
    pub learn: Vec<usize>,
    /// Rows to predict, from other groups.
    pub predict: Vec<usize>,
}

/// An out-of-fold prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// A score, or log-odds.
    pub value: f64,
    /// Penalty of the head.
    pub alpha: f64,
}

/// A head and the choice of its penalty.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FittedHead {
    /// The head.
    #[serde(flatten)]
    pub head: LinearHead,
    /// Its penalty from [`ALPHAS`]: the nearest to the square root of ten among those whose out-of-fold loss is within
    /// two standard errors of the minimum. With few groups, differences between penalties are mostly noise.
    pub alpha: f64,
    /// The mean loss per group for each of [`ALPHAS`]; empty with one group.
    pub losses: Vec<f64>,
}

/// Training rows.
struct Learnt<'l> {
    rows: &'l [usize],
    features: FeatureTable,
    /// The group of each row, renumbered from 0.
    groups: Vec<usize>,
    count: usize,
    /// By target.
    values: Vec<Vec<f64>>,
    /// The mean subtracted from each target.
    means: Vec<f64>,
}

impl Lesson<'_> {
    /// Fits a head per target on these rows; heads of centred scores add the mean back.
    pub fn fit(&self, rows: &[usize]) -> Vec<FittedHead> {
        let learnt = self.learnt(rows);
        let with_mean = |(fitted, mean): (FittedHead, &f64)| {
            let head = LinearHead { intercept: fitted.head.intercept + mean, ..fitted.head };
            FittedHead { head, ..fitted }
        };
        self.heads(&learnt).into_iter().zip(&learnt.means).map(with_mean).collect()
    }

    fn heads(&self, learnt: &Learnt<'_>) -> Vec<FittedHead> {
        let all: Vec<usize> = (0..learnt.rows.len()).collect();
        let fitted = self.losses(learnt).into_iter().zip(&learnt.values).map(|(losses, values)| {
            let place = penalty(&losses);
            let (targets, alphas) = (std::slice::from_ref(values), &ALPHAS[place..=place]);
            let heads = fit(&learnt.features, &all, targets, self.objective, alphas);
            let head = heads.into_iter().flatten().next().expect("a head for one target and one penalty");
            let mean = |alpha: usize| losses.iter().map(|of_group| of_group[alpha]).sum::<f64>() / losses.len() as f64;
            let losses = if losses.is_empty() { Vec::new() } else { (0..ALPHAS.len()).map(mean).collect() };
            FittedHead { head, alpha: ALPHAS[place], losses }
        });
        fitted.collect()
    }

    /// Predicts the rows of each split with heads fitted on its training rows, by target and row; `None` for rows that
    /// no split predicts. Predictions of centred scores are deviations from the group mean, which are comparable
    /// between heads of different splits.
    pub fn predict(&self, splits: &[Split]) -> Vec<Vec<Option<Prediction>>> {
        // Splits run in parallel in any order; the results are placed by row.
        let heads: Vec<Vec<FittedHead>> =
            splits.par_iter().map(|split| self.heads(&self.learnt(&split.learn))).collect();
        let features = if self.centred { &self.features.centred(self.groups) } else { self.features };
        let mut predictions = vec![vec![None; features.rows()]; self.targets.len()];
        for (split, heads) in splits.iter().zip(&heads) {
            for (fitted, predictions) in heads.iter().zip(&mut predictions) {
                for row in &split.predict {
                    let value = fitted.head.predict(features.row(*row));
                    predictions[*row] = Some(Prediction { value, alpha: fitted.alpha });
                }
            }
        }
        predictions
    }

    fn learnt<'l>(&self, rows: &'l [usize]) -> Learnt<'l> {
        let numbers: BTreeSet<usize> = rows.iter().map(|row| self.groups[*row]).collect();
        let numbers: Vec<usize> = numbers.into_iter().collect();
        let of_row = |row: &usize| numbers.binary_search(&self.groups[*row]).expect("the group of a row");
        let groups: Vec<usize> = rows.iter().map(of_row).collect();
        let features = self.features.select_rows(rows);
        let features = if self.centred { features.centred(&groups) } else { features };
        let (mut values, mut means) = (Vec::new(), Vec::new());
        for target in self.targets {
            let all: Vec<f64> = rows.iter().map(|row| target[*row]).collect();
            means.push(if self.centred { all.iter().sum::<f64>() / all.len() as f64 } else { 0.0 });
            values.push(if self.centred { centred(&all, &groups, numbers.len()) } else { all });
        }
        Learnt { rows, features, groups, count: numbers.len(), values, means }
    }

    /// The out-of-fold loss by target, group and penalty; no groups if there is only one.
    fn losses(&self, learnt: &Learnt<'_>) -> Vec<Vec<[f64; ALPHAS.len()]>> {
        if learnt.count < 2 {
            return vec![Vec::new(); learnt.values.len()];
        }
        let folds = Folds::new(learnt.count, INNER_PARTS, self.seed);
        let of_part = |part: usize| -> Vec<Vec<LinearHead>> {
            let kept: Vec<usize> =
                (0..learnt.rows.len()).filter(|place| folds.part[learnt.groups[*place]] != part).collect();
            let targets: Vec<Vec<f64>> =
                learnt.values.iter().map(|values| kept.iter().map(|place| values[*place]).collect()).collect();
            fit(&learnt.features, &kept, &targets, self.objective, &ALPHAS)
        };
        let heads: Vec<Vec<Vec<LinearHead>>> = (0..folds.parts).into_par_iter().map(of_part).collect();
        let mut losses = vec![vec![[0.0; ALPHAS.len()]; learnt.count]; learnt.values.len()];
        for (place, group) in learnt.groups.iter().enumerate() {
            for (target, values) in learnt.values.iter().enumerate() {
                for (alpha, head) in heads[folds.part[*group]][target].iter().enumerate() {
                    let predicted = head.predict(learnt.features.row(place));
                    losses[target][*group][alpha] += self.objective.loss(predicted, values[place]);
                }
            }
        }
        losses
    }
}

/// Subtracts the mean of each value's group.
fn centred(values: &[f64], groups: &[usize], count: usize) -> Vec<f64> {
    let mut sums = vec![(0.0, 0.0); count];
    for (value, group) in values.iter().zip(groups) {
        sums[*group].0 += value;
        sums[*group].1 += 1.0;
    }
    values.iter().zip(groups).map(|(value, group)| value - sums[*group].0 / sums[*group].1).collect()
}

/// The index into [`ALPHAS`], from the losses of each group: the nearest to the default among those not worse than the
/// best by more than two standard errors of the difference.
fn penalty(losses: &[[f64; ALPHAS.len()]]) -> usize {
    let count = losses.len() as f64;
    let sum = |place: usize| losses.iter().map(|of_group| of_group[place]).sum::<f64>();
    let Some(best) = (0..ALPHAS.len()).min_by(|a, b| sum(*a).total_cmp(&sum(*b))).filter(|_| losses.len() > 1) else {
        return USUAL;
    };
    let is_as_good = |place: &usize| {
        let worse: Vec<f64> = losses.iter().map(|of_group| of_group[*place] - of_group[best]).collect();
        let mean = worse.iter().sum::<f64>() / count;
        let variance = worse.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (count - 1.0);
        mean <= 2.0 * (variance / count).sqrt()
    };
    let as_good = (0..ALPHAS.len()).filter(|place| *place == best || is_as_good(place));
    as_good.min_by_key(|place| (place.abs_diff(USUAL), ALPHAS.len() - place)).unwrap_or(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ColumnBlock;

    fn lesson_table() -> (FeatureTable, Vec<usize>, Vec<f64>) {
        let mut state = 11_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / f64::from(1u32 << 31) - 0.5
        };
        let rows: Vec<Vec<f64>> = (0..60).map(|_| (0..5).map(|_| next()).collect()).collect();
        let groups: Vec<usize> = (0..60).map(|row| row / 4).collect();
        // Each group has its own level, independent of the features.
        let target = rows.iter().zip(&groups).map(|(row, group)| 2.0 * row[0] - row[3] + (group % 3) as f64 * 5.0);
        let target = target.collect();
        let block = ColumnBlock::new("all", &["0", "1", "2", "3", "4"]);
        (FeatureTable::new(vec![block], &rows).expect("finite"), groups, target)
    }

    /// Scores within groups.
    fn lesson<'l>(features: &'l FeatureTable, groups: &'l [usize], targets: &'l [Vec<f64>]) -> Lesson<'l> {
        Lesson { features, groups, targets, centred: true, objective: Objective::Score, seed: 0 }
    }

    #[test]
    fn a_rule_within_groups_is_found_and_predicts_groups_that_were_left_out() {
        let (features, groups, target) = lesson_table();
        let targets = [target];
        let lesson = lesson(&features, &groups, &targets);
        let folds = Folds::new(15, 5, 1);
        let splits: Vec<Split> = (0..5)
            .map(|part| {
                let (predict, learn) = (0..60).partition(|row| folds.part[groups[*row]] == part);
                Split { learn, predict }
            })
            .collect();
        let predictions = lesson.predict(&splits);
        for group in 0..15 {
            let of = |k: usize| (predictions[0][4 * group + k].expect("predicted").value, targets[0][4 * group + k]);
            for k in 1..4 {
                let ((a, x), (b, y)) = (of(0), of(k));
                assert!(((a - b) - (x - y)).abs() < 0.02, "group {group}");
            }
        }
    }

    #[test]
    fn threads_change_no_bit() {
        let (features, groups, target) = lesson_table();
        let targets = [target.iter().map(|y| f64::from(*y > 1.0)).collect::<Vec<f64>>()];
        let lesson = Lesson { centred: false, objective: Objective::Decision, ..lesson(&features, &groups, &targets) };
        let rows: Vec<usize> = (0..60).collect();
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool");
        let several = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("a pool");
        assert_eq!(alone.install(|| lesson.fit(&rows)), several.install(|| lesson.fit(&rows)));
    }

    #[test]
    fn one_group_has_no_choice_of_a_penalty() {
        let (features, _, target) = lesson_table();
        let (groups, targets) = (vec![0; 60], [target]);
        let lesson = lesson(&features, &groups, &targets);
        let fitted = lesson.fit(&(0..60).collect::<Vec<_>>());
        assert!(fitted[0].alpha == ALPHAS[USUAL] && fitted[0].losses.is_empty());
    }

    #[test]
    fn the_usual_penalty_holds_unless_left_out_groups_say_otherwise_beyond_chance() {
        let losses = |worse: f64, noise: f64| -> Vec<[f64; ALPHAS.len()]> {
            let of = |group: usize| {
                let sign = if group.is_multiple_of(2) { noise } else { -noise };
                std::array::from_fn(|place| worse * place.abs_diff(8) as f64 + sign * (place % 4) as f64)
            };
            (0..20).map(of).collect()
        };
        assert_eq!(penalty(&losses(1.0, 0.1)), 8, "clearly the best");
        assert_eq!(penalty(&losses(0.001, 1.0)), USUAL, "noise decides nothing");
        assert_eq!(penalty(&losses(1.0, 0.1)[..1]), USUAL, "one group tells nothing");
    }
}
