//! Heads whose penalty an inner cross-validation chooses, and what they say of rows that they did not see.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::fit::{ALPHAS, Objective, fit};
use crate::{FeatureTable, Folds, LinearHead};

/// How many parts the inner cross-validation has.
const INNER_PARTS: usize = 5;

/// What there is to learn from.
#[derive(Debug, Clone, Copy)]
pub struct Lesson<'a> {
    /// Of every row that may be learnt from or predicted.
    pub features: &'a FeatureTable,
    /// Each row's group: a context, which is learnt from as a whole or not at all.
    pub groups: &'a [usize],
    /// Several things that people said of the same rows: of each, a value for each row. What stands at rows that
    /// nobody learns from does not matter.
    pub targets: &'a [Vec<f64>],
    /// Whether scores are learnt as distances from the mean of their group, over the rows that are learnt from.
    pub centred: bool,
    /// What the targets are.
    pub objective: Objective,
    /// Of the parts of the inner cross-validation.
    pub seed: u64,
}

/// Rows to learn from, and rows to predict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// What is learnt from.
    pub learn: Vec<usize>,
    /// Of groups that are not.
    pub predict: Vec<usize>,
}

/// A head, and how its penalty was chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FittedHead {
    /// The head.
    #[serde(flatten)]
    pub head: LinearHead,
    /// Its penalty: of [`ALPHAS`] that with the least loss on groups that were left out, the strongest among equals.
    pub alpha: f64,
    /// The mean loss under each of [`ALPHAS`]; empty where there is one group, and the penalty is 1.
    pub losses: Vec<f64>,
}

/// A target over the rows that are learnt from.
struct Learnt {
    values: Vec<f64>,
    /// What was taken from all of them.
    mean: f64,
}

impl Lesson<'_> {
    /// A head for each target, learnt from these rows.
    pub fn fit(&self, rows: &[usize]) -> Vec<FittedHead> {
        let learnt: Vec<Learnt> = self.targets.iter().map(|target| self.learnt(target, rows)).collect();
        let losses = self.losses(rows, &learnt);
        let fitted = learnt.into_iter().zip(losses).map(|(learnt, losses)| {
            let least = losses.iter().copied().fold(f64::INFINITY, f64::min);
            let alpha = losses.iter().rposition(|loss| *loss == least).map_or(1.0, |place| ALPHAS[place]);
            let heads = fit(self.features, rows, &[learnt.values], self.objective, &[alpha]);
            let head = heads.into_iter().flatten().next().expect("a head for one target and one penalty");
            FittedHead { head: LinearHead { intercept: head.intercept + learnt.mean, ..head }, alpha, losses }
        });
        fitted.collect()
    }

    /// What heads that saw the one rows of each split say of the other, by target and row; `None` of rows that no split
    /// predicts.
    pub fn predict(&self, splits: &[Split]) -> Vec<Vec<Option<f64>>> {
        // Each split by itself, in whichever order; what comes of them is put in their places.
        let heads: Vec<Vec<FittedHead>> = splits.par_iter().map(|split| self.fit(&split.learn)).collect();
        let mut predictions = vec![vec![None; self.features.rows()]; self.targets.len()];
        for (split, heads) in splits.iter().zip(&heads) {
            for (fitted, predictions) in heads.iter().zip(&mut predictions) {
                split.predict.iter().for_each(|row| {
                    predictions[*row] = Some(fitted.head.predict(self.features.row(*row)));
                });
            }
        }
        predictions
    }

    fn learnt(&self, target: &[f64], rows: &[usize]) -> Learnt {
        if !self.centred {
            return Learnt { values: rows.iter().map(|row| target[*row]).collect(), mean: 0.0 };
        }
        let mut groups: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
        for row in rows {
            let (sum, count) = groups.entry(self.groups[*row]).or_default();
            *sum += target[*row];
            *count += 1.0;
        }
        let of_group = |row: &usize| {
            let (sum, count) = groups[&self.groups[*row]];
            sum / count
        };
        Learnt {
            values: rows.iter().map(|row| target[*row] - of_group(row)).collect(),
            mean: rows.iter().map(|row| target[*row]).sum::<f64>() / rows.len() as f64,
        }
    }

    /// The mean loss of each target under each penalty, on groups that were left out in turn.
    fn losses(&self, rows: &[usize], learnt: &[Learnt]) -> Vec<Vec<f64>> {
        let mut groups: Vec<usize> = rows.iter().map(|row| self.groups[*row]).collect();
        groups.sort_unstable();
        groups.dedup();
        if groups.len() < 2 {
            return vec![Vec::new(); learnt.len()];
        }
        let folds = Folds::new(groups.len(), INNER_PARTS, self.seed);
        let part = |row: usize| {
            let group = groups.binary_search(&self.groups[row]).expect("the group of a row");
            folds.part[group]
        };
        let of_part = |left_out: usize| -> Vec<Vec<f64>> {
            let (out, kept): (Vec<usize>, Vec<usize>) =
                (0..rows.len()).partition(|place| part(rows[*place]) == left_out);
            let seen: Vec<usize> = kept.iter().map(|place| rows[*place]).collect();
            let targets: Vec<Vec<f64>> =
                learnt.iter().map(|learnt| kept.iter().map(|place| learnt.values[*place]).collect()).collect();
            let heads = fit(self.features, &seen, &targets, self.objective, &ALPHAS);
            let loss = |head: &LinearHead, learnt: &Learnt| -> f64 {
                let of = |place: &usize| {
                    self.objective.loss(head.predict(self.features.row(rows[*place])), learnt.values[*place])
                };
                out.iter().map(of).sum()
            };
            heads
                .iter()
                .zip(learnt)
                .map(|(heads, learnt)| heads.iter().map(|head| loss(head, learnt)).collect())
                .collect()
        };
        let parts: Vec<Vec<Vec<f64>>> = (0..folds.parts).into_par_iter().map(of_part).collect();
        let mean =
            |target: usize, alpha: usize| parts.iter().map(|part| part[target][alpha]).sum::<f64>() / rows.len() as f64;
        (0..learnt.len()).map(|target| (0..ALPHAS.len()).map(|alpha| mean(target, alpha)).collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Block;

    fn lesson_table() -> (FeatureTable, Vec<usize>, Vec<f64>) {
        let mut state = 11_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / f64::from(1u32 << 31) - 0.5
        };
        let rows: Vec<Vec<f64>> = (0..60).map(|_| (0..5).map(|_| next()).collect()).collect();
        let groups: Vec<usize> = (0..60).map(|row| row / 4).collect();
        // Each group has a level of its own, which no feature knows of.
        let target = rows.iter().zip(&groups).map(|(row, group)| 2.0 * row[0] - row[3] + (group % 3) as f64 * 5.0);
        let columns = (0..5).map(|k| k.to_string()).collect();
        let target = target.collect();
        (FeatureTable::new(vec![Block { name: "all".into(), columns }], &rows).expect("finite"), groups, target)
    }

    #[test]
    fn a_rule_within_groups_is_found_and_predicts_groups_that_were_left_out() {
        let (features, groups, target) = lesson_table();
        let features = features.centred(&groups);
        let targets = [target];
        let lesson = Lesson {
            features: &features,
            groups: &groups,
            targets: &targets,
            centred: true,
            objective: Objective::Score,
            seed: 0,
        };
        let folds = Folds::new(15, 5, 1);
        let splits: Vec<Split> = (0..5)
            .map(|part| {
                let (predict, learn) = (0..60).partition(|row| folds.part[groups[*row]] == part);
                Split { learn, predict }
            })
            .collect();
        let predictions = lesson.predict(&splits);
        for group in 0..15 {
            let of = |k: usize| (predictions[0][4 * group + k].expect("predicted"), targets[0][4 * group + k]);
            for k in 1..4 {
                let ((a, x), (b, y)) = (of(0), of(k));
                assert!(((a - b) - (x - y)).abs() < 0.02, "group {group}");
            }
        }
    }

    #[test]
    fn threads_change_no_bit() {
        let (features, groups, target) = lesson_table();
        let targets = [target.iter().map(|y| f64::from(*y > 1.0)).collect::<Vec<f64>>(), target];
        let lesson = Lesson {
            features: &features,
            groups: &groups,
            targets: &targets,
            centred: false,
            objective: Objective::Decision,
            seed: 0,
        };
        let lesson = Lesson { targets: &targets[..1], ..lesson };
        let rows: Vec<usize> = (0..60).collect();
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool");
        let several = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("a pool");
        assert_eq!(alone.install(|| lesson.fit(&rows)), several.install(|| lesson.fit(&rows)));
    }

    #[test]
    fn one_group_has_no_choice_of_a_penalty() {
        let (features, _, target) = lesson_table();
        let (groups, targets) = (vec![0; 60], [target]);
        let lesson = Lesson {
            features: &features,
            groups: &groups,
            targets: &targets,
            centred: true,
            objective: Objective::Score,
            seed: 0,
        };
        let fitted = lesson.fit(&(0..60).collect::<Vec<_>>());
        assert!(fitted[0].alpha == 1.0 && fitted[0].losses.is_empty());
    }
}
