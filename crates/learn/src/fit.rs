//! Penalised linear and logistic regression.

use serde::{Deserialize, Serialize};

use crate::FeatureTable;
use crate::cholesky::{Cholesky, dot};
use crate::head::LinearHead;

/// Candidate penalties: half powers of ten, in ascending order. With blocks scaled as here, a penalty of 1 has about
/// the weight of one row.
pub const ALPHAS: [f64; 13] = [
    0.01, 0.031_622_776_601_683_79, 0.1, 0.316_227_766_016_837_94, 1.0, 3.162_277_660_168_379_5, 10.0,
    31.622_776_601_683_793, 100.0, 316.227_766_016_837_96, 1000.0, 3_162.277_660_168_379_4, 10000.0,
];

/// Index into [`ALPHAS`] of the default penalty, used with too few labels to choose one.
pub(crate) const USUAL: usize = 5;

/// Newton's method has long converged by then; a safety bound, not a setting.
const MOST_STEPS: usize = 50;

/// Type of the targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// A score: least squares, Σ (y − b − z·w)² + α|w|².
    Score,
    /// The better of two: logistic regression on the difference of their features, without intercept, so that
    /// exchanging the two reverses the answer. Targets are between 0 and 1. Σ loss + α|w|²/2.
    Preference,
    /// Yes (1) or no (0): logistic regression, Σ loss + α|w|²/2.
    Decision,
}

impl Objective {
    /// Loss of a prediction: squared error for a score, logarithmic loss for log-odds.
    pub(crate) fn loss(self, predicted: f64, target: f64) -> f64 {
        match self {
            Self::Score => (predicted - target).powi(2),
            // log(1 + eˣ) − y·x, without overflow.
            Self::Preference | Self::Decision => {
                predicted.max(0.0) + libm::log1p(libm::exp(-predicted.abs())) - target * predicted
            }
        }
    }
}

/// Standardised training rows.
struct Standardised {
    rows: usize,
    columns: usize,
    /// `(rows, columns)`.
    z: Vec<f64>,
    means: Vec<f64>,
    /// Scale factor of each centred column: block weight / (σ·√(columns of the block)), 0 for a constant column.
    factors: Vec<f64>,
}

impl Standardised {
    fn new(table: &FeatureTable, rows: &[usize], objective: Objective) -> Self {
        let (columns, count) = (table.columns(), rows.len() as f64);
        let mut means = vec![0.0; columns];
        // Feature differences have mean 0 by symmetry: the order of a pair is arbitrary.
        if objective != Objective::Preference {
            for row in rows {
                means.iter_mut().zip(table.row(*row)).for_each(|(sum, x)| *sum += x);
            }
            for sum in &mut means {
                *sum /= count;
            }
        }
        let mut squares = vec![0.0; columns];
        for row in rows {
            for ((sum, x), mean) in squares.iter_mut().zip(table.row(*row)).zip(&means) {
                *sum += (x - mean) * (x - mean);
            }
        }
        let scales = table.blocks().iter().flat_map(|block| {
            let columns = block.columns.len();
            vec![block.weight / (columns as f64).sqrt(); columns]
        });
        let factor = |((sum, scale), mean): ((&f64, f64), &f64)| {
            let deviation = (sum / count).sqrt();
            // Columns that differ only by rounding are constant.
            if deviation <= 1e-12 * (1.0 + mean.abs()) { 0.0 } else { scale / deviation }
        };
        let factors: Vec<f64> = squares.iter().zip(scales).zip(&means).map(factor).collect();
        let z = rows.iter().flat_map(|row| {
            table.row(*row).iter().zip(&means).zip(&factors).map(|((x, mean), factor)| (x - mean) * factor)
        });
        Self { rows: rows.len(), columns, z: z.collect(), means, factors }
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.z[row * self.columns..(row + 1) * self.columns]
    }

    /// Z·w.
    fn times(&self, w: &[f64]) -> Vec<f64> {
        (0..self.rows).map(|row| dot(self.row(row), w)).collect()
    }

    /// Zᵀ·v.
    fn transposed_times(&self, v: &[f64]) -> Vec<f64> {
        let mut sum = vec![0.0; self.columns];
        for (row, factor) in v.iter().enumerate() {
            sum.iter_mut().zip(self.row(row)).for_each(|(sum, z)| *sum += factor * z);
        }
        sum
    }

    /// The lower half of Zᵀ·diag(weights)·Z, `(columns, columns)`.
    fn gram(&self, weights: &[f64]) -> Vec<f64> {
        let width = self.columns;
        let mut gram = vec![0.0; width * width];
        for start in (0..self.rows).step_by(4) {
            let rows: Vec<&[f64]> = (start..(start + 4).min(self.rows)).map(|row| self.row(row)).collect();
            for column in 0..width {
                let target = &mut gram[column * width..=column * width + column];
                let own: Vec<f64> = rows.iter().enumerate().map(|(k, row)| weights[start + k] * row[column]).collect();
                if let ([a, b, c, d], [wa, wb, wc, wd]) = (rows.as_slice(), own.as_slice()) {
                    for (k, x) in target.iter_mut().enumerate() {
                        *x = *x + wa * a[k] + wb * b[k] + wc * c[k] + wd * d[k];
                    }
                } else {
                    for (row, weight) in rows.iter().zip(&own) {
                        target.iter_mut().zip(*row).for_each(|(x, z)| *x += weight * z);
                    }
                }
            }
        }
        gram
    }

    /// The lower half of Z·Zᵀ, `(rows, rows)`.
    fn kernel(&self) -> Vec<f64> {
        let mut kernel = vec![0.0; self.rows * self.rows];
        for row in 0..self.rows {
            for other in 0..=row {
                kernel[row * self.rows + other] = dot(self.row(row), self.row(other));
            }
        }
        kernel
    }

    fn head(&self, weights: &[f64], intercept: f64) -> LinearHead {
        LinearHead {
            coefficients: weights.iter().zip(&self.factors).map(|(w, factor)| w * factor).collect(),
            means: self.means.clone(),
            intercept,
        }
    }
}

/// Zᵀ·diag(weights)·Z + α, or an equivalent form if there are fewer rows than columns.
enum Penalised<'z> {
    Columns(Cholesky),
    /// (Zᵀ W Z + α)⁻¹ = (1 − Zᵀ (Z Zᵀ + α W⁻¹)⁻¹ Z) / α.
    Rows {
        z: &'z Standardised,
        factor: Cholesky,
        alpha: f64,
    },
}

impl<'z> Penalised<'z> {
    /// `products` is [`Standardised::gram`] with the same weights, or [`Standardised::kernel`] if there are fewer rows
    /// than columns.
    fn new(z: &'z Standardised, products: &[f64], weights: &[f64], alpha: f64) -> Self {
        let by_rows = z.rows < z.columns;
        let size = if by_rows { z.rows } else { z.columns };
        let mut matrix = products.to_vec();
        for k in 0..size {
            matrix[k * size + k] += if by_rows { alpha / weights[k] } else { alpha };
        }
        // Positive definite because of α, even with collinear rows or columns.
        let factor = Cholesky::new(size, matrix).expect("a penalised matrix of finite numbers is positive definite");
        if by_rows { Self::Rows { z, factor, alpha } } else { Self::Columns(factor) }
    }

    fn solve(&self, rhs: &[f64]) -> Vec<f64> {
        match self {
            Self::Columns(factor) => factor.solve(rhs),
            Self::Rows { z, factor, alpha } => {
                let back = z.transposed_times(&factor.solve(&z.times(rhs)));
                rhs.iter().zip(back).map(|(r, back)| (r - back) / alpha).collect()
            }
        }
    }
}

/// Fits heads for several targets of the same rows: `[target][alpha]`, in the order of `alphas`. `targets[k][row]`
/// belongs to `rows[row]`.
pub(crate) fn fit(
    table: &FeatureTable,
    rows: &[usize],
    targets: &[Vec<f64>],
    objective: Objective,
    alphas: &[f64],
) -> Vec<Vec<LinearHead>> {
    let z = Standardised::new(table, rows, objective);
    match objective {
        Objective::Score => ridge(&z, targets, alphas),
        Objective::Preference | Objective::Decision => targets
            .iter()
            .map(|target| {
                alphas.iter().map(|alpha| logistic(&z, target, *alpha, objective == Objective::Decision)).collect()
            })
            .collect(),
    }
}

fn ridge(z: &Standardised, targets: &[Vec<f64>], alphas: &[f64]) -> Vec<Vec<LinearHead>> {
    let ones = vec![1.0; z.rows];
    let products = if z.rows < z.columns { z.kernel() } else { z.gram(&ones) };
    let mut heads: Vec<Vec<LinearHead>> = vec![Vec::new(); targets.len()];
    for alpha in alphas {
        let penalised = Penalised::new(z, &products, &ones, *alpha);
        for (target, heads) in targets.iter().zip(&mut heads) {
            // Columns have mean 0, so the intercept is the target's mean for any weights.
            let mean = target.iter().sum::<f64>() / z.rows as f64;
            let rest: Vec<f64> = target.iter().map(|y| y - mean).collect();
            heads.push(z.head(&penalised.solve(&z.transposed_times(&rest)), mean));
        }
    }
    heads
}

/// Newton's method; the objective is convex, and a step that does not lower it is halved.
fn logistic(z: &Standardised, target: &[f64], alpha: f64, has_intercept: bool) -> LinearHead {
    let (mut w, mut intercept) = (vec![0.0; z.columns], 0.0);
    let by_rows = z.rows < z.columns;
    let kernel = if by_rows { z.kernel() } else { Vec::new() };
    let objective = |w: &[f64], intercept: f64| -> f64 {
        let losses = z.times(w).into_iter().zip(target);
        let losses: f64 = losses.map(|(u, y)| Objective::Decision.loss(u + intercept, *y)).sum();
        losses + alpha / 2.0 * dot(w, w)
    };
    let mut value = objective(&w, intercept);
    for _ in 0..MOST_STEPS {
        let p: Vec<f64> = z.times(&w).into_iter().map(|u| sigmoid(u + intercept)).collect();
        // A lower bound avoids division by zero for saturated rows; it slows the last steps but does not move the
        // optimum.
        let curvature: Vec<f64> = p.iter().map(|p| (p * (1.0 - p)).max(1e-10)).collect();
        let error: Vec<f64> = p.iter().zip(target).map(|(p, y)| p - y).collect();
        let gradient: Vec<f64> = z.transposed_times(&error).into_iter().zip(&w).map(|(g, w)| g + alpha * w).collect();
        let gram = if by_rows { Vec::new() } else { z.gram(&curvature) };
        let penalised = Penalised::new(z, if by_rows { &kernel } else { &gram }, &curvature, alpha);
        let mut step = penalised.solve(&gradient);
        let mut intercept_step = 0.0;
        if has_intercept {
            // The intercept has no penalty: it is eliminated from the system.
            let border = z.transposed_times(&curvature);
            let through = penalised.solve(&border);
            let rest = curvature.iter().sum::<f64>() - dot(&border, &through);
            intercept_step = (error.iter().sum::<f64>() - dot(&border, &step)) / rest.max(1e-10);
            step.iter_mut().zip(&through).for_each(|(step, through)| *step -= intercept_step * through);
        }
        let mut scale = 1.0;
        let lower = loop {
            let tried: Vec<f64> = w.iter().zip(&step).map(|(w, step)| w - scale * step).collect();
            let tried_intercept = intercept - scale * intercept_step;
            let found = objective(&tried, tried_intercept);
            if found < value {
                (w, intercept) = (tried, tried_intercept);
                break value - found;
            }
            scale /= 2.0;
            if scale < 1e-6 {
                break 0.0;
            }
        };
        value -= lower;
        if lower <= 1e-14 * (1.0 + value.abs()) {
            break;
        }
    }
    z.head(&w, intercept)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ColumnBlock;

    fn numbers(count: usize, mut state: u64) -> Vec<f64> {
        (0..count)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as f64 / f64::from(1u32 << 31) - 0.5
            })
            .collect()
    }

    fn table(rows: usize, columns: usize) -> FeatureTable {
        let block = |name: &str, count: usize| ColumnBlock {
            name: name.into(),
            columns: (0..count).map(|k| format!("{name} {k}")).collect(),
            weight: 1.0,
        };
        let values: Vec<Vec<f64>> = numbers(rows * columns, 7).chunks(columns).map(<[f64]>::to_vec).collect();
        FeatureTable::new(vec![block("a", 3), block("b", columns - 3)], &values).expect("finite")
    }

    /// Gradient of the objective at a head, by finite differences.
    fn slopes(table: &FeatureTable, rows: &[usize], target: &[f64], objective: Objective, alpha: f64) -> f64 {
        let head = &fit(table, rows, &[target.to_vec()], objective, &[alpha])[0][0];
        let z = Standardised::new(table, rows, objective);
        let value = |moved: Option<usize>, by: f64| {
            let mut w: Vec<f64> = head.coefficients.iter().zip(&z.factors).map(|(c, f)| c / f).collect();
            let mut intercept = head.intercept;
            match moved {
                Some(place) => w[place] += by,
                None => intercept += by,
            }
            let losses: f64 = z.times(&w).iter().zip(target).map(|(u, y)| objective.loss(u + intercept, *y)).sum();
            let penalty = alpha * dot(&w, &w);
            losses + if objective == Objective::Score { penalty } else { penalty / 2.0 }
        };
        let intercept = (objective != Objective::Preference).then_some(None);
        let places = (0..table.columns()).map(Some).chain(intercept);
        places.map(|place| ((value(place, 1e-4) - value(place, -1e-4)) / 2e-4).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn heads_stand_where_the_objective_is_least_with_many_rows_and_with_few() {
        for (rows, columns) in [(60, 8), (12, 30)] {
            let table = table(rows, columns);
            let all: Vec<usize> = (0..rows).collect();
            let scores = numbers(rows, 3);
            let decisions: Vec<f64> = scores.iter().map(|y| f64::from(*y > 0.1)).collect();
            for alpha in [0.01, 1.0, 100.0] {
                assert!(slopes(&table, &all, &scores, Objective::Score, alpha) < 1e-6);
                assert!(slopes(&table, &all, &decisions, Objective::Decision, alpha) < 1e-5);
                assert!(slopes(&table, &all, &decisions, Objective::Preference, alpha) < 1e-5);
            }
        }
    }

    /// Golden values of scikit-learn's ridge and logistic regression, from `scripts/goldens/make_heads.py`.
    #[test]
    fn predictions_are_those_of_an_independent_implementation() {
        #[derive(Deserialize)]
        struct Golden {
            blocks: Vec<ColumnBlock>,
            rows: Vec<Vec<f64>>,
            scores: Vec<f64>,
            decisions: Vec<f64>,
            cases: Vec<Case>,
        }
        #[derive(Deserialize)]
        struct Case {
            learnt: usize,
            objective: Objective,
            alpha: f64,
            predictions: Vec<f64>,
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/goldens/heads.json");
        let golden: Golden = serde_json::from_str(&std::fs::read_to_string(path).expect("a golden")).expect("JSON");
        let table = FeatureTable::new(golden.blocks, &golden.rows).expect("finite");
        for case in &golden.cases {
            let target = if case.objective == Objective::Score { &golden.scores } else { &golden.decisions };
            let rows: Vec<usize> = (0..case.learnt).collect();
            let heads = fit(&table, &rows, &[target[..case.learnt].to_vec()], case.objective, &[case.alpha]);
            assert_eq!(case.predictions.len(), golden.rows.len() - case.learnt);
            for (row, expected) in (case.learnt..).zip(&case.predictions) {
                let found = heads[0][0].predict(table.row(row));
                assert!(
                    (found - expected).abs() < 1e-6,
                    "{:?} {} {row}: {found} {expected}",
                    case.objective,
                    case.alpha
                );
            }
        }
    }

    #[test]
    fn a_constant_feature_weighs_nothing() {
        let rows: Vec<Vec<f64>> = numbers(20, 5).into_iter().map(|x| vec![x, 0.1 + 0.2, x * x]).collect();
        let block = ColumnBlock::new("a", &["x", "constant", "square"]);
        let table = FeatureTable::new(vec![block], &rows).expect("finite");
        let target: Vec<f64> = rows.iter().map(|row| 2.0 * row[0]).collect();
        let head = &fit(&table, &(0..20).collect::<Vec<_>>(), &[target], Objective::Score, &[1e-9])[0][0];
        assert_eq!(head.coefficients[1], 0.0);
        assert!((head.predict(&[0.5, 9.0, 0.25]) - 1.0).abs() < 1e-6);
    }
}
