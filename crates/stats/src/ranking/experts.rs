//! Few comparisons of many candidates: a product of Gaussian experts, one for each comparison, and which pair to ask
//! about next (Liusie et al. 2024, arXiv:2405.05894, §4); and when to ask no more.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::Comparisons;
use super::bradley_terry::{STRENGTH_ROUNDING, cholesky_solve};
use crate::significance::two_sided_normal;

/// The precision of a score that nothing is known of, in units of a comparison's: it keeps the matrix invertible while
/// candidates are not connected, and moves no score by more than a millionth of itself.
const PRIOR: f64 = 1e-6;

/// Scores of candidates from the comparisons so far, with what is not known of them yet.
///
/// Each comparison of `i` and `j` says that `s_i − s_j` is its outcome, with a noise that all comparisons share. With a row
/// `e_i − e_j` of W for each and the outcomes μ, s = (WᵀW)⁻¹Wᵀμ; the paper anchors the first score, here all have a prior
/// that is next to nothing. What counts is how far the scores are apart.
#[derive(Debug, Clone, PartialEq)]
pub struct ProductOfExperts {
    candidates: usize,
    /// `WᵀW`, row by row.
    normal: Vec<f64>,
    /// `(WᵀW + prior)⁻¹`, row by row.
    inverse: Vec<f64>,
    /// Wᵀμ.
    sums: Vec<f64>,
    /// Σ μ², and how many comparisons there are.
    squares: f64,
    comparisons: usize,
}

impl ProductOfExperts {
    /// Of candidates that nothing is known of.
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

    /// From comparisons of each candidate with the next one, which is what the fewest comparisons that say something of
    /// every candidate are: `outcomes` has that of the first two, of the second and third, and so on.
    pub fn of_chain(outcomes: &[f64]) -> Self {
        let mut found = Self::new(outcomes.len() + 1);
        outcomes.iter().enumerate().for_each(|(first, outcome)| found.add(first, first + 1, *outcome));
        found
    }

    fn cell(&self, i: usize, j: usize) -> f64 {
        self.inverse[i * self.candidates + j]
    }

    /// How much a comparison of two would say: the variance of the difference of their scores, in units of the noise.
    pub fn gain(&self, i: usize, j: usize) -> f64 {
        self.cell(i, i) + self.cell(j, j) - 2.0 * self.cell(i, j)
    }

    /// The pair that says most for its cost, the first among equals; absent of fewer than two candidates, and where `cost`
    /// gives none for any. Without an aim what a pair says is its [`gain`](Self::gain). With one, and the variance of the
    /// noise, that counts by what it says of the aim: of all places, by how probable it is that the two stand in the wrong
    /// order; of the best, by how probable it is that each of them is it. What is clear need not be asked again.
    pub fn next_pair(
        &self,
        aim: Option<(Settled, f64)>,
        mut cost: impl FnMut(usize, usize) -> Option<f64>,
    ) -> Option<(usize, usize)> {
        let scores = self.scores();
        let first = (0..self.candidates).reduce(|a, b| if scores[b] > scores[a] { b } else { a });
        let wrong = |i: usize, j: usize, noise: f64| wrong_order(scores[i] - scores[j], self.variance(i, j, noise));
        // The best by its score may be; another one as it may stand in the wrong order with that.
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

    /// Adds a comparison's outcome: the inverse changes by a matrix of rank one.
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

    /// Adds a comparison that is going to be asked, as if it came out as expected: the scores stay, and the next pair is
    /// another one.
    pub fn expect(&mut self, i: usize, j: usize) {
        let scores = self.scores();
        self.add(i, j, scores[i] - scores[j]);
    }

    /// The scores, of mean 0.
    pub fn scores(&self) -> Vec<f64> {
        let n = self.candidates;
        let product = |row: usize| (0..n).map(|column| self.cell(row, column) * self.sums[column]).sum::<f64>();
        let scores: Vec<f64> = (0..n).map(product).collect();
        let mean = scores.iter().sum::<f64>() / n as f64;
        scores.into_iter().map(|score| score - mean).collect()
    }

    /// Comparisons beyond those that connect the candidates: what the noise is estimated from.
    pub fn spare(&self) -> usize {
        // Each group of connected candidates has one direction of which only the prior knows.
        let trace: f64 = (0..self.candidates).map(|place| self.cell(place, place)).sum();
        let groups = (PRIOR * trace).round() as usize;
        (self.comparisons + groups).saturating_sub(self.candidates)
    }

    /// The variance of a comparison's noise, by what the scores leave of the outcomes; absent where there are no more
    /// comparisons than connect the candidates.
    pub fn noise(&self) -> Option<f64> {
        let spare = self.spare();
        // Σ (μ − W s)² = Σ μ² − (Wᵀμ) · s, since the scores are those of least squares, but for the prior.
        let explained: f64 = self.sums.iter().zip(self.scores()).map(|(sum, score)| sum * score).sum();
        (spare > 0).then(|| (self.squares - explained).max(0.0) / spare as f64)
    }

    /// The variance of the difference of two scores, given that of the noise.
    pub fn variance(&self, i: usize, j: usize, noise: f64) -> f64 {
        noise * self.gain(i, j)
    }

    /// How probable it is that the ranking is settled in this respect, by draws from the scores' posterior. The scores have
    /// a normal prior as wide as they themselves are spread beyond their noise: of many that are close the first is the one
    /// with the most luck, and a flat prior takes that for a lead. How wide the noise is, is not known better than its
    /// comparisons tell. Absent where there is no noise to know it from, and where the scores spread no more than it does.
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

    /// Whether the ranking is settled in this respect, so surely, while comparisons go on. Who looks again and again stops
    /// where chance favours it: so half of the doubt that is left is kept for that, and there must be as many comparisons
    /// to tell the noise from as there are candidates. In simulations that keeps the error of what stops below what is
    /// promised wherever the noise of a comparison is no larger than the spread of the scores.
    pub fn is_settled(&self, of: Settled, sure: f64, seed: u64) -> bool {
        self.spare() >= self.candidates
            && self.certainty(of, seed).is_some_and(|certainty| 1.0 - certainty <= (1.0 - sure) / 2.0)
    }

    /// The variance of the true scores: that of the scores without what noise adds to it; absent where nothing is left.
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

/// What of a ranking may be settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Which candidate is the best.
    Best,
    /// All places but for less than one each, in the mean.
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

/// Draws behind a certainty.
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

/// x with L x = `of`.
fn solve_lower(root: &[Vec<f64>], of: &[f64]) -> Vec<f64> {
    let mut found: Vec<f64> = Vec::with_capacity(of.len());
    for (row, value) in root.iter().zip(of) {
        let used: f64 = row.iter().zip(&found).map(|(a, b)| a * b).sum();
        found.push((value - used) / row[found.len()]);
    }
    found
}

/// x with Lᵀ x = `of`.
fn solve_upper(root: &[Vec<f64>], of: &[f64]) -> Vec<f64> {
    let mut found = of.to_vec();
    for place in (0..of.len()).rev() {
        found[place] /= root[place][place];
        let value = found[place];
        found[..place].iter_mut().zip(&root[place]).for_each(|(left, a)| *left -= a * value);
    }
    found
}

/// The place of each score, 0 for the highest, the first among equals.
fn places(scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    let mut places = vec![0; scores.len()];
    order.into_iter().enumerate().for_each(|(place, candidate)| places[candidate] = place);
    places
}

/// How probable it is that a difference with this variance has the other sign.
fn wrong_order(difference: f64, variance: f64) -> f64 {
    if variance > 0.0 { two_sided_normal(difference.abs() / variance.sqrt()) / 2.0 } else { 0.0 }
}

/// Standard normal numbers of a seed.
struct NormalDraws(ChaCha8Rng);

impl NormalDraws {
    fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Above 0, up to 1.
    fn uniform(&mut self) -> f64 {
        (f64::from(self.0.next_u32()) + 1.0) / 4_294_967_296.0
    }

    /// Box and Muller's, one of the two: with libm's logarithm and cosine, the same on every machine.
    fn next(&mut self) -> f64 {
        let (radius, angle) = (self.uniform(), self.uniform());
        (-2.0 * libm::log(radius)).sqrt() * libm::cos(std::f64::consts::TAU * angle)
    }

    /// The inverse of a mean of squares of so many: how much larger a variance may be than its estimate is.
    fn inverse_of_mean_square(&mut self, degrees: usize) -> f64 {
        // With so many the mean is 1 to within a tenth, which moves no certainty.
        if degrees > 200 {
            return 1.0;
        }
        let sum: f64 = (0..degrees).map(|_| self.next().powi(2)).sum();
        degrees as f64 / sum
    }
}

/// The least probability whose odds count: an answer that is surer than that says no more.
const LEAST: f64 = 0.001;

/// log p / (1 − p), at most some seven: what a comparison says of the difference between two scores. Over both orders of a
/// pair a preference for a place, which is a summand of the log-odds, goes out.
pub fn log_odds(p: f64) -> f64 {
    let p = p.clamp(LEAST, 1.0 - LEAST);
    libm::log(p / (1.0 - p))
}

impl Comparisons {
    /// The scores whose differences leave least of the log-odds of all comparisons, squared: a product of Gaussian experts
    /// of one width. Where comparisons fall into groups that nothing connects, the scores of each have the mean 0.
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
                prop_assert!((found.gain(i, j) - gain / (1.0 + gain)).abs() < 1e-7, "a comparison adds to the precision");
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
        let chain = ProductOfExperts::of_chain(&[0.0; 4]);
        assert!((chain.gain(0, 4) - 4.0).abs() < 1e-4 && (chain.gain(1, 2) - 1.0).abs() < 1e-4);
        assert_eq!(chain.next_pair(None, |_, _| Some(1.0)), Some((0, 4)));
        // Five times as dear, it says less for what it costs.
        assert_eq!(chain.next_pair(None, |i, j| Some(if (i, j) == (0, 4) { 5.0 } else { 1.0 })), Some((0, 3)));
        assert_eq!(chain.next_pair(None, |_, _| None), None);
        assert_eq!(ProductOfExperts::of_chain(&[]).next_pair(None, |_, _| Some(1.0)), None);
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

    /// A ranking that is asked for until it is settled.
    struct Simulated {
        stopped: bool,
        wrong: bool,
        share: f64,
    }

    /// A judge whose log-odds are the difference of true scores and a noise of each pair.
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
        let mut found = ProductOfExperts::of_chain(&(1..candidates).map(|j| said(j - 1, j)).collect::<Vec<_>>());
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
                    "{of:?}, spread {spread}, noise {noise}: {stopped} of 500 stop, {wrong} of them wrong, {share:.3} asked"
                );
                println!("{place}");
                assert!(wrong as f64 <= 0.05 * 500.0, "of all that are asked for: {place}");
                // What is promised of those that stop, and twice its standard error over so many. Where the noise is larger
                // than what there is to find hardly any stop, and those by luck.
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
