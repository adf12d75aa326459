//! Few comparisons of many candidates: a product of Gaussian experts, one per comparison, the choice of the next pair
//! (Liusie et al. 2024, arXiv:2405.05894, §4), and a stopping rule.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::Comparisons;
use super::bradley_terry::{STRENGTH_ROUNDING, cholesky_solve};
use crate::significance::two_sided_normal;

/// Prior precision of each score, relative to a comparison's: keeps the matrix invertible while candidates are
/// unconnected, and changes no score by more than a millionth.
const PRIOR: f64 = 1e-6;

/// Scores of candidates from the comparisons so far, with their uncertainty.
///
/// Each comparison of `i` and `j` observes `s_i − s_j` with a common noise variance. With a row `e_i − e_j` of W per
/// comparison and the outcomes μ, s = (WᵀW)⁻¹Wᵀμ. The paper anchors the first score; here all have a negligible prior.
/// Only differences between scores are meaningful.
#[derive(Debug, Clone, PartialEq)]
pub struct ProductOfExperts {
    candidates: usize,
    /// `WᵀW`, row by row.
    normal: Vec<f64>,
    /// `(WᵀW + prior)⁻¹`, row by row.
    inverse: Vec<f64>,
    /// Wᵀμ.
    sums: Vec<f64>,
    /// Σ μ², and the number of comparisons.
    squares: f64,
    comparisons: usize,
}

impl ProductOfExperts {
    /// Starts without comparisons.
    pub fn new(candidates: usize) -> Self {
        let mut inverse = vec![0.0; candidates * candidates];
        inverse.iter_mut().step_by(candidates + 1).for_each(|cell| *cell = 1.0 / PRIOR);
        Self {
            candidates,
            normal: vec![0.0; candidates * candidates],
            inverse,
            sums: vec![0.0; candidates],
            squares: 0.0,
            comparisons: 0,
        }
    }

    /// Starts from comparisons of each candidate with the next one, the smallest set that connects all candidates:
    /// `outcomes` has the result of the first two, of the second and third, and so on.
    pub fn from_chain(outcomes: &[f64]) -> Self {
        let mut found = Self::new(outcomes.len() + 1);
        outcomes.iter().enumerate().for_each(|(first, outcome)| found.add(first, first + 1, *outcome));
        found
    }

    fn cell(&self, i: usize, j: usize) -> f64 {
        self.inverse[i * self.candidates + j]
    }

    /// Information gain of a comparison: the variance of the difference of the two scores, in units of the noise.
    pub fn gain(&self, i: usize, j: usize) -> f64 {
        self.cell(i, i) + self.cell(j, j) - 2.0 * self.cell(i, j)
    }

    /// The most informative pair for its cost, the first among equals; `None` for fewer than two candidates, and if
    /// `cost` is `None` for all pairs. Without an aim, information is the [`gain`](Self::gain). With an aim and the
    /// noise variance, the gain is weighted by relevance: for all positions by the probability that the two are in the
    /// wrong order, for the best candidate by the probability of each to be it.
    pub fn next_pair(
        &self,
        aim: Option<(Settled, f64)>,
        mut cost: impl FnMut(usize, usize) -> Option<f64>,
    ) -> Option<(usize, usize)> {
        let scores = self.scores();
        let first = (0..self.candidates).reduce(|a, b| if scores[b] > scores[a] { b } else { a });
        let wrong = |i: usize, j: usize, noise: f64| wrong_order(scores[i] - scores[j], self.variance(i, j, noise));
        // The candidate with the best score may be the best; another one if it may be in the wrong order with that.
        let may_be_best = |i: usize, noise: f64| match first {
            Some(first) if first != i => 2.0 * wrong(first, i, noise),
            _ => 1.0,
        };
        let mut best: Option<(f64, (usize, usize))> = None;
        for i in 0..self.candidates {
            for j in i + 1..self.candidates {
                let Some(cost) = cost(i, j) else { continue };
                let open = match aim {
                    None => 1.0,
                    Some((Settled::Ranks, noise)) => wrong(i, j, noise),
                    Some((Settled::Best, noise)) => may_be_best(i, noise) * may_be_best(j, noise),
                };
                let worth = self.gain(i, j) * open / cost;
                if best.is_none_or(|(most, _)| worth > most) {
                    best = Some((worth, (i, j)));
                }
            }
        }
        best.map(|(_, pair)| pair)
    }

    /// Adds the outcome of a comparison: a rank-one update of the inverse.
    pub fn add(&mut self, i: usize, j: usize, outcome: f64) {
        let n = self.candidates;
        let step: Vec<f64> = (0..n).map(|row| self.cell(row, i) - self.cell(row, j)).collect();
        let scale = 1.0 + step[i] - step[j];
        for (row, a) in step.iter().enumerate() {
            for (column, b) in step.iter().enumerate() {
                self.inverse[row * n + column] -= a * b / scale;
            }
        }
        for (row, column, step) in [(i, i, 1.0), (j, j, 1.0), (i, j, -1.0), (j, i, -1.0)] {
            self.normal[row * n + column] += step;
        }
        self.sums[i] += outcome;
        self.sums[j] -= outcome;
        self.squares += outcome * outcome;
        self.comparisons += 1;
    }

    /// Adds a pending comparison with its expected outcome: scores are unchanged, but another pair becomes the next
    /// one.
    pub fn expect(&mut self, i: usize, j: usize) {
        let scores = self.scores();
        self.add(i, j, scores[i] - scores[j]);
    }

    /// The scores, with mean 0.
    pub fn scores(&self) -> Vec<f64> {
        let n = self.candidates;
        let product = |row: usize| (0..n).map(|column| self.cell(row, column) * self.sums[column]).sum::<f64>();
        let scores: Vec<f64> = (0..n).map(product).collect();
        let mean = scores.iter().sum::<f64>() / n as f64;
        scores.into_iter().map(|score| score - mean).collect()
    }

    /// Degrees of freedom: comparisons beyond those needed to connect the candidates, which estimate the noise.
    pub fn spare(&self) -> usize {
        // Each connected group of candidates has one direction that only the prior determines.
        let trace: f64 = (0..self.candidates).map(|place| self.cell(place, place)).sum();
        let groups = (PRIOR * trace).round() as usize;
        (self.comparisons + groups).saturating_sub(self.candidates)
    }

    /// Variance of a comparison's noise, from the residuals; `None` without comparisons beyond those that connect the
    /// candidates.
    pub fn noise(&self) -> Option<f64> {
        let spare = self.spare();
        // Σ (μ − W s)² = Σ μ² − (Wᵀμ) · s, since the scores are the least-squares solution, except for the prior.
        let explained: f64 = self.sums.iter().zip(self.scores()).map(|(sum, score)| sum * score).sum();
        (spare > 0).then(|| (self.squares - explained).max(0.0) / spare as f64)
    }

    /// Variance of the difference of two scores, for a given noise variance.
    pub fn variance(&self, i: usize, j: usize, noise: f64) -> f64 {
        noise * self.gain(i, j)
    }

    /// Probability that the ranking is settled in this respect, from draws of the scores' posterior. Scores have a
    /// normal prior whose width is their spread beyond noise: with a flat prior the luckiest of many close candidates
    /// would seem to lead. The noise variance has its own uncertainty. `None` without a noise estimate, and if the
    /// scores spread no more than the noise.
    pub fn certainty(&self, of: Settled, seed: u64) -> Option<f64> {
        let (noise, spare) = (self.noise()?, self.spare());
        let prior = noise / self.spread(noise)?;
        let precision = |row: usize, column: usize| {
            self.normal[row * self.candidates + column] + if row == column { prior.max(PRIOR) } else { 0.0 }
        };
        let root = lower_root(self.candidates, precision);
        let places = places(&self.scores());
        let centre = solve_upper(&root, &solve_lower(&root, &self.sums));
        let mut random = NormalDraws::new(seed);
        let kept = (0..DRAWS).filter(|_| {
            let scale = (noise * random.inverse_of_mean_square(spare)).sqrt();
            let steps: Vec<f64> = (0..self.candidates).map(|_| random.next()).collect();
            let moved = solve_upper(&root, &steps);
            let drawn: Vec<f64> = centre.iter().zip(moved).map(|(centre, moved)| centre + scale * moved).collect();
            of.holds(&places, &self::places(&drawn))
        });
        Some(kept.count() as f64 / DRAWS as f64)
    }

    /// Whether the ranking is settled in this respect with probability `sure`, while comparisons continue. Repeated
    /// looks favour stopping by chance, so half of the allowed error is reserved for that, and the degrees of freedom
    /// of the noise must at least equal the number of candidates. In simulations this keeps the error rate of stopped
    /// rankings below the promised one if the noise of a comparison is not larger than the spread of the scores.
    pub fn is_settled(&self, of: Settled, sure: f64, seed: u64) -> bool {
        self.spare() >= self.candidates
            && self.certainty(of, seed).is_some_and(|certainty| 1.0 - certainty <= (1.0 - sure) / 2.0)
    }

    /// Variance of the true scores: that of the scores minus the noise; `None` if nothing is left.
    fn spread(&self, noise: f64) -> Option<f64> {
        let n = self.candidates as f64;
        let scores = self.scores();
        let seen = scores.iter().map(|score| score * score).sum::<f64>() / (n - 1.0);
        // The mean variance of a score about the mean of all.
        let all: f64 = self.inverse.iter().sum();
        let own: f64 = (0..self.candidates).map(|place| self.cell(place, place)).sum();
        let added = noise * (own - all / n) / (n - 1.0);
        Some(seen - added).filter(|spread| *spread > 0.0)
    }
}

/// Aspect of a ranking that may be settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// The best candidate.
    Best,
    /// All positions, with a mean error below one.
    Ranks,
}

impl Settled {
    /// Whether two scorings of the same candidates agree in this respect.
    pub fn agrees(self, found: &[f64], other: &[f64]) -> bool {
        self.holds(&places(found), &places(other))
    }

    fn holds(self, places: &[usize], drawn: &[usize]) -> bool {
        match self {
            Self::Best => places.iter().zip(drawn).any(|(place, drawn)| *place == 0 && *drawn == 0),
            Self::Ranks => places.iter().zip(drawn).map(|(a, b)| a.abs_diff(*b)).sum::<usize>() < places.len(),
        }
    }
}

/// Number of posterior draws.
const DRAWS: usize = 1000;

/// The lower triangle L of a positive definite matrix L Lᵀ.
fn lower_root(n: usize, matrix: impl Fn(usize, usize) -> f64) -> Vec<Vec<f64>> {
    let mut root: Vec<Vec<f64>> = Vec::with_capacity(n);
    for row in 0..n {
        let mut new = vec![0.0; row + 1];
        for column in 0..=row {
            let above: &[f64] = if column == row { &new } else { &root[column] };
            let used: f64 = new[..column].iter().zip(above).map(|(a, b)| a * b).sum();
            let left = matrix(row, column) - used;
            new[column] = if column == row { left.max(f64::MIN_POSITIVE).sqrt() } else { left / root[column][column] };
        }
        root.push(new);
    }
    root
}

/// Solves L x = `of`.
fn solve_lower(root: &[Vec<f64>], of: &[f64]) -> Vec<f64> {
    let mut found: Vec<f64> = Vec::with_capacity(of.len());
    for (row, value) in root.iter().zip(of) {
        let used: f64 = row.iter().zip(&found).map(|(a, b)| a * b).sum();
        found.push((value - used) / row[found.len()]);
    }
    found
}

/// Solves Lᵀ x = `of`.
fn solve_upper(root: &[Vec<f64>], of: &[f64]) -> Vec<f64> {
    let mut found = of.to_vec();
    for place in (0..of.len()).rev() {
        found[place] /= root[place][place];
        let value = found[place];
        found[..place].iter_mut().zip(&root[place]).for_each(|(left, a)| *left -= a * value);
    }
    found
}

/// The rank of each score, 0 for the highest, the first among equals.
fn places(scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    let mut places = vec![0; scores.len()];
    order.into_iter().enumerate().for_each(|(place, candidate)| places[candidate] = place);
    places
}

/// Probability that a difference with this variance has the other sign.
fn wrong_order(difference: f64, variance: f64) -> f64 {
    if variance > 0.0 { two_sided_normal(difference.abs() / variance.sqrt()) / 2.0 } else { 0.0 }
}

/// Seeded standard normal numbers.
struct NormalDraws(ChaCha8Rng);

impl NormalDraws {
    fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Uniform in (0, 1].
    fn uniform(&mut self) -> f64 {
        (f64::from(self.0.next_u32()) + 1.0) / 4_294_967_296.0
    }

    /// Box and Muller's method, one of the two values, with libm's logarithm and cosine for identical results on all
    /// machines.
    fn next(&mut self) -> f64 {
        let (radius, angle) = (self.uniform(), self.uniform());
        (-2.0 * libm::log(radius)).sqrt() * libm::cos(std::f64::consts::TAU * angle)
    }

    /// Inverse of the mean square of this many normal numbers: the possible ratio of a variance to its estimate.
    fn inverse_of_mean_square(&mut self, degrees: usize) -> f64 {
        // With many degrees of freedom the mean is 1 to within a tenth, which changes no result.
        if degrees > 200 {
            return 1.0;
        }
        let sum: f64 = (0..degrees).map(|_| self.next().powi(2)).sum();
        degrees as f64 / sum
    }
}

/// Probabilities are clipped to at least this distance from 0 and 1.
const LEAST: f64 = 0.001;

/// log p / (1 − p), clipped to about ±7: the observed difference of two scores. A position preference adds a constant
/// to the log-odds and cancels over both orders of a pair.
pub fn log_odds(p: f64) -> f64 {
    let p = p.clamp(LEAST, 1.0 - LEAST);
    libm::log(p / (1.0 - p))
}

impl Comparisons {
    /// The scores with the least squared residuals of the log-odds of all comparisons: a product of Gaussian experts of
    /// equal width. In each unconnected group the scores have mean 0.
    pub fn experts(&self) -> Vec<Option<f64>> {
        let involved = self.involved();
        let mut position = vec![0; self.candidates()];
        involved.iter().enumerate().for_each(|(at, &candidate)| position[candidate] = at);
        let n = involved.len();
        let mut normal = vec![vec![0.0; n]; n];
        let mut sums = vec![0.0; n];
        for c in self.between_texts().into_iter().filter(|c| c.i != c.j) {
            let (i, j, outcome) = (position[c.i], position[c.j], log_odds(c.p));
            normal[i][i] += 1.0;
            normal[j][j] += 1.0;
            normal[i][j] -= 1.0;
            normal[j][i] -= 1.0;
            sums[i] += outcome;
            sums[j] -= outcome;
        }
        normal.iter_mut().enumerate().for_each(|(place, row)| row[place] += PRIOR);
        let scores = cholesky_solve(normal, sums);
        self.spread(involved.into_iter().zip(scores).collect(), STRENGTH_ROUNDING)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The least-squares scores, found by gradient descent.
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
            let mut found = ProductOfExperts::from_chain(&chain);
            let mut all: Vec<(usize, usize, f64)> =
                chain.iter().enumerate().map(|(first, outcome)| (first, first + 1, *outcome)).collect();
            for (i, step, outcome) in more {
                let (i, j) = (i % n, (i % n + 1 + (step - 1) % (n - 1)) % n);
                let gain = found.gain(i, j);
                found.add(i, j, outcome);
                prop_assert!((found.gain(i, j) - gain / (1.0 + gain)).abs() < 1e-7, "a comparison adds to the \
                                                                                     precision");
                all.push((i, j, outcome));
            }
            let expected = least_squares(n, &all);
            for (a, b) in found.scores().iter().zip(&expected) {
                prop_assert!((a - b).abs() < 1e-5, "{:?} {expected:?}", found.scores());
            }
            let left: f64 = all.iter().map(|(i, j, outcome)| (expected[*i] - expected[*j] - outcome).powi(2)).sum();
            let spare = all.len() + 1 - n;
            if spare > 0 {
                prop_assert!((found.noise().expect("more than a chain") - left / spare as f64).abs() < 1e-5);
            } else {
                prop_assert_eq!(found.noise(), None);
            }
        }
    }

    #[test]
    fn the_pair_of_which_least_is_known_comes_next_and_what_it_costs_counts() {
        let chain = ProductOfExperts::from_chain(&[0.0; 4]);
        assert!((chain.gain(0, 4) - 4.0).abs() < 1e-4 && (chain.gain(1, 2) - 1.0).abs() < 1e-4);
        assert_eq!(chain.next_pair(None, |_, _| Some(1.0)), Some((0, 4)));
        // At five times the cost it is less informative for its cost.
        assert_eq!(chain.next_pair(None, |i, j| Some(if (i, j) == (0, 4) { 5.0 } else { 1.0 })), Some((0, 3)));
        assert_eq!(chain.next_pair(None, |_, _| None), None);
        assert_eq!(ProductOfExperts::from_chain(&[]).next_pair(None, |_, _| Some(1.0)), None);
    }

    #[test]
    fn chosen_pairs_order_candidates_with_fewer_comparisons_than_chance() {
        // Candidates with true scores, and a judge with noise per pair.
        let n = 16;
        let noise = |i: usize, j: usize| ((i * 7919 + j * 104_729) % 1000) as f64 / 1000.0 - 0.5;
        let outcome = |i: usize, j: usize| (j as f64 - i as f64) / n as f64 + 0.2 * noise(i, j);
        let mut found = ProductOfExperts::from_chain(&(0..n - 1).map(|i| outcome(i, i + 1)).collect::<Vec<_>>());
        let mut asked = std::collections::BTreeSet::new();
        for _ in 0..3 * n {
            let (i, j) =
                found.next_pair(None, |i, j| (!asked.contains(&(i, j))).then_some(1.0)).expect("pairs are left");
            asked.insert((i, j));
            found.add(i, j, outcome(i, j));
        }
        let scores = found.scores();
        let wrong =
            (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))).filter(|(i, j)| scores[*i] <= scores[*j]).count();
        assert!(wrong <= 3, "{wrong} of 120 pairs are in the wrong order");
    }

    /// A simulated ranking that continues until it is settled.
    struct Simulated {
        stopped: bool,
        wrong: bool,
        share: f64,
    }

    /// A judge whose log-odds are the difference of the true scores plus noise per pair.
    fn simulate(of: Settled, candidates: usize, spread: f64, noise: f64, seed: u64) -> Simulated {
        let mut random = NormalDraws::new(seed);
        let truth: Vec<f64> = (0..candidates).map(|_| spread * random.next()).collect();
        let mut noises = vec![0.0; candidates * candidates];
        for one in &mut noises {
            *one = noise * random.next();
        }
        let said = |i: usize, j: usize| {
            let odds = truth[i] - truth[j] + noises[i * candidates + j];
            log_odds(1.0 / (1.0 + (-odds).exp()))
        };
        let mut found = ProductOfExperts::from_chain(&(1..candidates).map(|j| said(j - 1, j)).collect::<Vec<_>>());
        let mut asked: std::collections::BTreeSet<(usize, usize)> = (1..candidates).map(|j| (j - 1, j)).collect();
        let all = candidates * (candidates - 1) / 2;
        let mut stopped = false;
        while asked.len() < all {
            stopped = found.is_settled(of, 0.95, seed + asked.len() as u64);
            if stopped {
                break;
            }
            let aim = found.noise().filter(|_| found.spare() >= 4).map(|noise| (of, noise));
            let mut expected = found.clone();
            let mut chosen = Vec::new();
            for _ in 0..candidates / 2 {
                let open = |i: usize, j: usize| (!asked.contains(&(i, j))).then_some(1.0);
                let Some((i, j)) = expected.next_pair(aim, open) else { break };
                expected.expect(i, j);
                asked.insert((i, j));
                chosen.push((i, j));
            }
            for (i, j) in chosen {
                found.add(i, j, said(i, j));
            }
        }
        let wrong = !of.agrees(&found.scores(), &truth);
        Simulated { stopped, wrong, share: asked.len() as f64 / all as f64 }
    }

    #[test]
    fn a_ranking_that_is_settled_is_wrong_no_more_often_than_it_says() {
        for of in [Settled::Best, Settled::Ranks] {
            for (spread, noise) in [(1.0, 0.7), (2.0, 1.0), (1.0, 1.5)] {
                let found: Vec<Simulated> =
                    (0..500).map(|seed| simulate(of, 10, spread, noise, 1_000 * seed)).collect();
                let stopped = found.iter().filter(|one| one.stopped).count();
                let wrong = found.iter().filter(|one| one.stopped && one.wrong).count();
                let share = found.iter().map(|one| one.share).sum::<f64>() / 500.0;
                let place = format!(
                    "{of:?}, spread {spread}, noise {noise}: {stopped} of 500 stop, {wrong} of them wrong, {share:.3} \
                     asked"
                );
                println!("{place}");
                assert!(wrong as f64 <= 0.05 * 500.0, "of all that are asked for: {place}");
                // The promised error of stopped rankings plus twice its standard error. If the noise exceeds the
                // spread, hardly any stop, and those by chance.
                let most = 0.05 * stopped as f64 + 2.0 * (0.05 * 0.95 * stopped as f64).sqrt();
                assert!(wrong as f64 <= most || noise > spread, "{place}");
                assert!(stopped >= 100 || noise > spread, "{place}");
            }
        }
    }

    #[test]
    fn normal_draws_have_the_moments_of_a_normal_distribution() {
        let mut random = NormalDraws::new(3);
        let draws: Vec<f64> = (0..40_000).map(|_| random.next()).collect();
        let moment = |power: i32| draws.iter().map(|draw| draw.powi(power)).sum::<f64>() / 40_000.0;
        assert!(moment(1).abs() < 0.02 && (moment(2) - 1.0).abs() < 0.03 && (moment(4) - 3.0).abs() < 0.2);
    }
}
