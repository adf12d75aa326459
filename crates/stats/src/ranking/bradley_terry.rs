//! Bradley–Terry strengths from soft wins.

use super::Comparisons;

/// Prior weight of [`RankMethod::BradleyTerry`](super::RankMethod::BradleyTerry).
pub const BRADLEY_TERRY_PRIOR: f64 = 0.1;

/// Strengths maximise their likelihood to about 1e-10; smaller differences than this count as equal.
pub(super) const STRENGTH_ROUNDING: f64 = 1e-9;

/// Newton's method has long converged by then; a safety bound, not a setting.
const MOST_STEPS: usize = 200;

impl Comparisons {
    /// Log-strengths θ under `P(i beats j) = 1 / (1 + exp(θ_j − θ_i))`, where each comparison is a win of weight p for
    /// its first and of weight 1 − p for its second candidate.
    ///
    /// Regularised: each candidate also plays a tie of weight `prior` (above 0) against an opponent of strength 0.
    /// Strengths are therefore finite even for a candidate that always wins, comparable between unconnected groups, and
    /// centred about 0; a smaller prior gives a wider spread. They maximise this likelihood, which has one maximum, to
    /// about 1e-10.
    ///
    /// # Panics
    /// `prior` is not a positive number.
    pub fn bradley_terry(&self, prior: f64) -> Vec<Option<f64>> {
        assert!(prior > 0.0 && prior.is_finite(), "the prior has a positive weight");
        let involved = self.involved();
        let game = Game::new(self, &involved, prior);
        self.spread(involved.into_iter().zip(game.solve()).collect(), STRENGTH_ROUNDING)
    }
}

/// The sufficient statistics, by index among the involved candidates.
struct Game {
    wins: Vec<f64>,
    // Number of comparisons of each pair; symmetric.
    met: Vec<Vec<f64>>,
    prior: f64,
}

impl Game {
    fn new(comparisons: &Comparisons, involved: &[usize], prior: f64) -> Self {
        let n = involved.len();
        let mut position = vec![0; comparisons.candidates()];
        involved.iter().enumerate().for_each(|(at, &candidate)| position[candidate] = at);
        let mut game = Self { wins: vec![0.0; n], met: vec![vec![0.0; n]; n], prior };
        // A comparison of a text with itself has no information about its strength.
        for c in comparisons.between_texts().into_iter().filter(|c| c.i != c.j) {
            let (i, j) = (position[c.i], position[c.j]);
            game.wins[i] += c.p;
            game.wins[j] += 1.0 - c.p;
            game.met[i][j] += 1.0;
            game.met[j][i] += 1.0;
        }
        game
    }

    /// The log-likelihood with the prior; strictly concave.
    fn objective(&self, theta: &[f64]) -> f64 {
        let mut sum = 0.0;
        for (i, &a) in theta.iter().enumerate() {
            sum += (self.wins[i] + self.prior / 2.0) * a - self.prior * softplus(a);
            for (j, &b) in theta.iter().enumerate().take(i) {
                if self.met[i][j] > 0.0 {
                    // log(e^a + e^b)
                    sum -= self.met[i][j] * (b + softplus(a - b));
                }
            }
        }
        sum
    }

    fn gradient(&self, theta: &[f64]) -> Vec<f64> {
        let expected =
            |i: usize| -> f64 { theta.iter().enumerate().map(|(j, b)| self.met[i][j] * sigmoid(theta[i] - b)).sum() };
        (0..theta.len())
            .map(|i| self.wins[i] + self.prior / 2.0 - expected(i) - self.prior * sigmoid(theta[i]))
            .collect()
    }

    /// The negative second derivatives: positive definite.
    fn curvature(&self, theta: &[f64]) -> Vec<Vec<f64>> {
        let slope = |x: f64| sigmoid(x) * sigmoid(-x);
        let n = theta.len();
        let mut curvature = vec![vec![0.0; n]; n];
        for i in 0..n {
            curvature[i][i] += self.prior * slope(theta[i]);
            for j in (0..n).filter(|&j| j != i) {
                let weight = self.met[i][j] * slope(theta[i] - theta[j]);
                curvature[i][i] += weight;
                curvature[i][j] -= weight;
            }
        }
        curvature
    }

    /// Newton's method from 0; each step is shortened until it does not lower the objective.
    fn solve(&self) -> Vec<f64> {
        // With certain wins the curvature nearly vanishes at the end, and a full Newton step would overshoot.
        const LONGEST_STEP: f64 = 2.0;
        let mut theta = vec![0.0; self.wins.len()];
        let mut value = self.objective(&theta);
        for _ in 0..MOST_STEPS {
            let step = cholesky_solve(self.curvature(&theta), self.gradient(&theta));
            let length = step.iter().fold(0.0_f64, |m, s| m.max(s.abs()));
            let mut scale = if length > LONGEST_STEP { LONGEST_STEP / length } else { 1.0 };
            let moved = loop {
                let next: Vec<f64> = theta.iter().zip(&step).map(|(t, s)| t + scale * s).collect();
                let next_value = self.objective(&next);
                // Near the maximum the gain is below rounding: take the full Newton step.
                if next_value >= value || length < 1e-6 {
                    break Some((next, next_value));
                }
                scale /= 2.0;
                if scale < 1e-9 {
                    break None;
                }
            };
            let Some((next, next_value)) = moved else { break };
            (theta, value) = (next, next_value);
            if length < 1e-12 {
                break;
            }
        }
        theta
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// log(1 + e^x) without overflow.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Solves `a` x = `b` for a positive definite `a`.
pub(super) fn cholesky_solve(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
    let n = b.len();
    for j in 0..n {
        let used: f64 = a[j][..j].iter().map(|v| v * v).sum();
        // The prior keeps the pivots positive; rounding must not cause a division by zero.
        a[j][j] = (a[j][j] - used).max(f64::MIN_POSITIVE).sqrt();
        for i in j + 1..n {
            let used: f64 = (0..j).map(|k| a[i][k] * a[j][k]).sum();
            a[i][j] = (a[i][j] - used) / a[j][j];
        }
    }
    for i in 0..n {
        let used: f64 = (0..i).map(|k| a[i][k] * b[k]).sum();
        b[i] = (b[i] - used) / a[i][i];
    }
    for i in (0..n).rev() {
        let used: f64 = (i + 1..n).map(|k| a[k][i] * b[k]).sum();
        b[i] = (b[i] - used) / a[i][i];
    }
    b
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{any_comparisons, comparisons, full};
    use super::*;
    use crate::golden::GOLDEN;

    #[test]
    fn strengths_equal_scipys_maximum() {
        for case in &GOLDEN.bradley_terry {
            let found = comparisons(case.candidates, &case.comparisons).bradley_terry(case.prior);
            for (found, expected) in found.iter().zip(&case.strengths) {
                assert!((found.expect("judged") - expected).abs() < 1e-7, "{found:?} {expected}");
            }
        }
    }

    #[test]
    fn a_small_prior_gives_back_the_strengths_that_made_the_probabilities() {
        let strengths = [-1.5, 0.0, 0.5, 1.0];
        let found: Vec<f64> =
            full(&strengths, 0.0).bradley_terry(1e-6).into_iter().map(|s| s.expect("judged")).collect();
        // Only the prior determines the centre.
        for (found, expected) in found.windows(2).zip(strengths.windows(2)) {
            assert!((found[1] - found[0] - (expected[1] - expected[0])).abs() < 1e-4, "{found:?} {expected:?}");
        }
    }

    #[test]
    fn certain_wins_and_unconnected_groups_have_finite_strengths() {
        let groups = comparisons(5, &[(0, 1, 1.0), (1, 0, 0.0), (2, 3, 1.0)]).bradley_terry(0.1);
        let s = |i: usize| groups[i].expect("judged");
        assert!(s(0) > s(2) && s(2) > 0.0 && (s(0) + s(1)).abs() < 1e-9 && (s(2) + s(3)).abs() < 1e-9);
        assert_eq!(groups[4], None);
        assert_eq!(comparisons(2, &[]).bradley_terry(0.1), [None, None]);
    }

    #[test]
    fn a_long_chain_of_certain_wins_converges() {
        let chain: Vec<_> = (1..60).map(|i| (i - 1, i, 1.0)).collect();
        let c = comparisons(60, &chain);
        let theta: Vec<f64> = c.bradley_terry(0.01).into_iter().map(|s| s.expect("judged")).collect();
        assert!(theta.windows(2).all(|w| w[0] > w[1]));
        let game = Game::new(&c, &c.involved(), 0.01);
        assert!(game.gradient(&theta).iter().all(|g| g.abs() < 1e-9));
    }

    proptest! {
        #[test]
        fn the_gradient_is_zero_at_the_strengths(c in any_comparisons(8), prior in 0.001..2.0_f64) {
            let theta: Vec<f64> = c.bradley_terry(prior).into_iter().flatten().collect();
            let game = Game::new(&c, &c.involved(), prior);
            prop_assert!(game.gradient(&theta).iter().all(|g| g.abs() < 1e-9), "{:?}", game.gradient(&theta));
        }
    }
}
