//! Few comparisons of many candidates: a product of Gaussian experts, one for each comparison, and which pair to ask
//! about next (Liusie et al. 2024, arXiv:2405.05894, §4).

/// Scores of candidates from the comparisons so far, with what is not known of them yet.
///
/// Each comparison of `i` and `j` says that `s_i − s_j` is p − β, with a noise that all comparisons share; an anchor says
/// that the first candidate's score is 0. With a row `e_i − e_j` of W for each and μ = p − β, s = (WᵀW)⁻¹Wᵀμ. What counts
/// is how far the scores are apart.
#[derive(Debug, Clone, PartialEq)]
pub struct ProductOfExperts {
    candidates: usize,
    /// (WᵀW)⁻¹, row by row.
    inverse: Vec<f64>,
    /// Wᵀμ.
    sums: Vec<f64>,
    /// Σ μ², and how many comparisons there are.
    squares: f64,
    comparisons: usize,
}

impl ProductOfExperts {
    /// From comparisons of each candidate with the next one, which is what the fewest comparisons that say something of
    /// every candidate are: `outcomes` has p − β of the first two, of the second and third, and so on.
    pub fn of_chain(outcomes: &[f64]) -> Self {
        let candidates = outcomes.len() + 1;
        // A walk of steps whose variances are 1, and so is that of where it begins.
        let inverse =
            (0..candidates * candidates).map(|cell| 1.0 + (cell / candidates).min(cell % candidates) as f64).collect();
        let mut sums = vec![0.0; candidates];
        for (first, outcome) in outcomes.iter().enumerate() {
            sums[first] += outcome;
            sums[first + 1] -= outcome;
        }
        let squares = outcomes.iter().map(|outcome| outcome * outcome).sum();
        Self { candidates, inverse, sums, squares, comparisons: outcomes.len() }
    }

    fn cell(&self, i: usize, j: usize) -> f64 {
        self.inverse[i * self.candidates + j]
    }

    /// How much a comparison of two would say: the variance of the difference of their scores, in units of the noise.
    pub fn gain(&self, i: usize, j: usize) -> f64 {
        self.cell(i, i) + self.cell(j, j) - 2.0 * self.cell(i, j)
    }

    /// The pair whose gain over its cost is the largest, the first among equals; absent of fewer than two candidates, and
    /// where `cost` gives none for any.
    pub fn next_pair(&self, mut cost: impl FnMut(usize, usize) -> Option<f64>) -> Option<(usize, usize)> {
        let mut best: Option<(f64, (usize, usize))> = None;
        for i in 0..self.candidates {
            for j in i + 1..self.candidates {
                let Some(cost) = cost(i, j) else { continue };
                let worth = self.gain(i, j) / cost;
                if best.is_none_or(|(most, _)| worth > most) {
                    best = Some((worth, (i, j)));
                }
            }
        }
        best.map(|(_, pair)| pair)
    }

    /// Adds a comparison whose p − β is `outcome`: the inverse changes by a matrix of rank one.
    pub fn add(&mut self, i: usize, j: usize, outcome: f64) {
        let n = self.candidates;
        let step: Vec<f64> = (0..n).map(|row| self.cell(row, i) - self.cell(row, j)).collect();
        let scale = 1.0 + step[i] - step[j];
        for (row, a) in step.iter().enumerate() {
            for (column, b) in step.iter().enumerate() {
                self.inverse[row * n + column] -= a * b / scale;
            }
        }
        self.sums[i] += outcome;
        self.sums[j] -= outcome;
        self.squares += outcome * outcome;
        self.comparisons += 1;
    }

    /// The scores, of mean 0.
    pub fn scores(&self) -> Vec<f64> {
        let n = self.candidates;
        let product = |row: usize| (0..n).map(|column| self.cell(row, column) * self.sums[column]).sum::<f64>();
        let scores: Vec<f64> = (0..n).map(product).collect();
        let mean = scores.iter().sum::<f64>() / n as f64;
        scores.into_iter().map(|score| score - mean).collect()
    }

    /// The variance of a comparison's noise, by what the scores leave of the outcomes; absent where there are no more
    /// comparisons than a chain has.
    pub fn noise(&self) -> Option<f64> {
        let spare = self.comparisons + 1 - self.candidates;
        // Σ (μ − W s)² = Σ μ² − (Wᵀμ) · s, since the scores are those of least squares, but for the anchor, which they
        // meet.
        let explained: f64 = self.sums.iter().zip(self.scores()).map(|(sum, score)| sum * score).sum();
        (spare > 0).then(|| (self.squares - explained).max(0.0) / spare as f64)
    }

    /// The variance of the difference of two scores, given that of the noise.
    pub fn variance(&self, i: usize, j: usize, noise: f64) -> f64 {
        noise * self.gain(i, j)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The scores that leave least of the outcomes, found by going downhill.
    fn least_squares(candidates: usize, comparisons: &[(usize, usize, f64)]) -> Vec<f64> {
        let mut scores = vec![0.0; candidates];
        for _ in 0..200_000 {
            let mut slope = vec![0.0; candidates];
            for (i, j, outcome) in comparisons {
                let left = scores[*i] - scores[*j] - outcome;
                slope[*i] += left;
                slope[*j] -= left;
            }
            scores.iter_mut().zip(&slope).for_each(|(score, slope)| *score -= 0.05 * slope);
            if slope.iter().all(|slope| slope.abs() < 1e-12) {
                break;
            }
        }
        let mean = scores.iter().sum::<f64>() / candidates as f64;
        scores.into_iter().map(|score| score - mean).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn scores_are_those_of_least_squares_however_the_comparisons_come(
            chain in prop::collection::vec(-0.5f64..0.5, 1..6),
            more in prop::collection::vec((0usize..6, 1usize..6, -0.5f64..0.5), 0..8),
        ) {
            let n = chain.len() + 1;
            let mut found = ProductOfExperts::of_chain(&chain);
            let mut all: Vec<(usize, usize, f64)> =
                chain.iter().enumerate().map(|(first, outcome)| (first, first + 1, *outcome)).collect();
            for (i, step, outcome) in more {
                let (i, j) = (i % n, (i % n + 1 + (step - 1) % (n - 1)) % n);
                let gain = found.gain(i, j);
                found.add(i, j, outcome);
                prop_assert!((found.gain(i, j) - gain / (1.0 + gain)).abs() < 1e-9, "a comparison adds to the precision");
                all.push((i, j, outcome));
            }
            let expected = least_squares(n, &all);
            for (a, b) in found.scores().iter().zip(&expected) {
                prop_assert!((a - b).abs() < 1e-6, "{:?} {expected:?}", found.scores());
            }
            let left: f64 = all.iter().map(|(i, j, outcome)| (expected[*i] - expected[*j] - outcome).powi(2)).sum();
            let spare = all.len() + 1 - n;
            if spare > 0 {
                prop_assert!((found.noise().expect("more than a chain") - left / spare as f64).abs() < 1e-6);
            } else {
                prop_assert_eq!(found.noise(), None);
            }
        }
    }

    #[test]
    fn the_pair_of_which_least_is_known_comes_next_and_what_it_costs_counts() {
        let chain = ProductOfExperts::of_chain(&[0.0; 4]);
        assert_eq!((chain.gain(0, 4), chain.gain(1, 2)), (4.0, 1.0));
        assert_eq!(chain.next_pair(|_, _| Some(1.0)), Some((0, 4)));
        // Five times as dear, it says less for what it costs.
        assert_eq!(chain.next_pair(|i, j| Some(if (i, j) == (0, 4) { 5.0 } else { 1.0 })), Some((0, 3)));
        assert_eq!(chain.next_pair(|_, _| None), None);
        assert_eq!(ProductOfExperts::of_chain(&[]).next_pair(|_, _| Some(1.0)), None);
    }

    #[test]
    fn chosen_pairs_order_candidates_with_fewer_comparisons_than_chance() {
        // Candidates with true scores, and a judge whose outcomes have noise of its own for each pair.
        let n = 16;
        let noise = |i: usize, j: usize| ((i * 7919 + j * 104_729) % 1000) as f64 / 1000.0 - 0.5;
        let outcome = |i: usize, j: usize| (j as f64 - i as f64) / n as f64 + 0.2 * noise(i, j);
        let mut found = ProductOfExperts::of_chain(&(0..n - 1).map(|i| outcome(i, i + 1)).collect::<Vec<_>>());
        let mut asked = std::collections::BTreeSet::new();
        for _ in 0..3 * n {
            let (i, j) = found.next_pair(|i, j| (!asked.contains(&(i, j))).then_some(1.0)).expect("pairs are left");
            asked.insert((i, j));
            found.add(i, j, outcome(i, j));
        }
        let scores = found.scores();
        let wrong =
            (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))).filter(|(i, j)| scores[*i] <= scores[*j]).count();
        assert!(wrong <= 3, "{wrong} of 120 pairs are in the wrong order");
    }
}
