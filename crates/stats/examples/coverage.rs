//! Coverage of 95% intervals and the error rate of tests at 0.05: the tables of `docs/intervals.md`.
//!
//! `cargo run --release -p probity-stats --example coverage [SIMULATIONS]`

use std::f64::consts::TAU;

use probity_stats::{
    AgreementFigures, Correlation, Interval, Measured, Range, Resampling, Rivals, SystemScore, compare_metrics,
    jackknife, mean_interval, pearson, quantile, ratio_interval, spearman,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

const CONTEXTS: [usize; 4] = [2, 4, 10, 40];
const NAMES: [&str; 16] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"];
/// Number of candidates per context, and the correlation of their scores with gold.
const WORLDS: [(usize, f64); 3] = [(16, 0.3), (16, 0.8), (4, 0.5)];
/// Number of contexts that define the true values.
const TRUTH: usize = 40_000;
/// Resamples of the percentile bootstrap, for comparison.
const ROUNDS: usize = 400;

struct Noise(ChaCha8Rng);

impl Noise {
    fn uniform(&mut self) -> f64 {
        (f64::from(self.0.next_u32()) + 0.5) / 4_294_967_296.0
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (TAU * self.uniform()).cos()
    }
}

/// Contexts whose scores correlate with gold by `r` on average, with variation between contexts; systems differ in
/// quality, and the metric favours some of them.
#[derive(Clone, Copy)]
struct World {
    candidates: usize,
    r: f64,
}

impl World {
    fn context(self, noise: &mut Noise) -> Vec<Rivals<'static>> {
        let r = (self.r.atanh() + 0.3 * noise.normal()).tanh();
        let rest = (1.0 - r * r).sqrt();
        let quality = |k: usize| 0.6 * ((k * 5 % 16) as f64 / 8.0 - 1.0);
        let partial = |k: usize| 0.3 * ((k * 11 % 16) as f64 / 8.0 - 1.0);
        let one = |k: usize| {
            let gold = quality(k) + noise.normal();
            let [first, second] = [0, 1].map(|_| r * gold + rest * noise.normal() + partial(k));
            Rivals { system: NAMES[k], first, second, gold }
        };
        (0..self.candidates).map(one).collect()
    }

    fn contexts(self, n: usize, noise: &mut Noise) -> Vec<Vec<Rivals<'static>>> {
        (0..n).map(|_| self.context(noise)).collect()
    }
}

fn scores<'a>(contexts: &[Vec<Rivals<'a>>]) -> Vec<Vec<SystemScore<'a>>> {
    let of = |r: &Rivals<'a>| SystemScore { system: r.system, predicted: r.first, gold: r.gold };
    contexts.iter().map(|context| context.iter().map(of).collect()).collect()
}

/// Hits and pairs of each context.
fn pairs(contexts: &[Vec<Rivals<'_>>]) -> Vec<(f64, f64)> {
    let of = |context: &Vec<Rivals<'_>>| {
        let all = (0..context.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
        let hit = |(i, j): (usize, usize)| (context[i].first > context[j].first) == (context[i].gold > context[j].gold);
        let hits: Vec<bool> = all.map(hit).collect();
        (hits.iter().filter(|hit| **hit).count() as f64, hits.len() as f64)
    };
    contexts.iter().map(of).collect()
}

fn ratio(units: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (sum, weight) = units.fold((0.0, 0.0), |(s, w), unit| (s + unit.0, w + unit.1));
    sum / weight
}

/// The percentile bootstrap interval: quantiles of the statistic over units drawn with replacement.
fn percentile(units: usize, noise: &mut Noise, statistic: impl Fn(&[usize]) -> Option<f64>) -> Option<Interval> {
    let mut values: Vec<f64> = (0..ROUNDS)
        .filter_map(|_| statistic(&(0..units).map(|_| (noise.uniform() * units as f64) as usize).collect::<Vec<_>>()))
        .collect();
    values.sort_by(f64::total_cmp);
    Some(Interval { low: quantile(&values, 0.025)?, high: quantile(&values, 0.975)? })
}

/// The correlation of the systems' means over these contexts.
fn of_systems(contexts: &[Vec<Rivals<'_>>], drawn: &[usize], of: fn(&[f64], &[f64]) -> Option<f64>) -> Option<f64> {
    let mean = |k: usize, of: fn(&Rivals<'_>) -> f64| drawn.iter().map(|c| of(&contexts[*c][k])).sum::<f64>();
    let (x, y): (Vec<f64>, Vec<f64>) =
        (0..contexts[0].len()).map(|k| (mean(k, |r| r.first), mean(k, |r| r.gold))).unzip();
    of(&x, &y)
}

/// Coverage counts of an interval method.
#[derive(Default)]
struct Tally {
    held: usize,
    width: f64,
    given: usize,
    asked: usize,
}

impl Tally {
    fn add(&mut self, interval: Option<Interval>, truth: f64) {
        self.asked += 1;
        if let Some(Interval { low, high }) = interval {
            self.given += 1;
            self.held += usize::from(low <= truth && truth <= high);
            self.width += high - low;
        }
    }

    fn cell(&self) -> String {
        if self.given == 0 {
            return "none".to_owned();
        }
        let given = self.given as f64;
        let none = self.asked - self.given;
        let missing = if none > 0 { format!(", none {:.3}", none as f64 / self.asked as f64) } else { String::new() };
        format!("{:.3} ({:.2}{missing})", self.held as f64 / given, self.width / given)
    }
}

const FIGURES: [&str; 6] = [
    "Pearson per context", "Spearman per context", "accuracy of pairs", "Pearson over all scores",
    "Spearman over all scores", "Pearson of systems",
];

fn truths(world: World, noise: &mut Noise) -> [f64; 6] {
    let contexts = world.contexts(TRUTH, noise);
    let figures = AgreementFigures::from_scores(&scores(&contexts), &Resampling::default());
    let system = figures.pearson.system.and_then(|system| system.figure.coefficient).unwrap_or(f64::NAN);
    let accuracy = ratio(pairs(&contexts).into_iter());
    let per_context = |of: Correlation| figures.correlation(of).per_context.figure.mean.unwrap_or(f64::NAN);
    let pooled = |of: Correlation| figures.correlation(of).pooled.figure.coefficient.unwrap_or(f64::NAN);
    let (p, s) = (Correlation::Pearson, Correlation::Spearman);
    [per_context(p), per_context(s), accuracy, pooled(p), pooled(s), system]
}

fn figures(world: World, simulations: usize, noise: &mut Noise) {
    let truths = truths(world, noise);
    println!("\n{} candidates, r = {} on average\n", world.candidates, world.r);
    println!("| figure | contexts | now: held (width) | percentile bootstrap |\n|---|--:|--:|--:|");
    let mut tallies: Vec<[[Tally; 2]; 6]> = Vec::new();
    for n in CONTEXTS {
        let mut tally: [[Tally; 2]; 6] = Default::default();
        for _ in 0..simulations {
            let contexts = world.contexts(n, noise);
            let found = AgreementFigures::from_scores(&scores(&contexts), &Resampling::default());
            let units = pairs(&contexts);
            let now = [
                found.pearson.per_context.interval,
                found.spearman.per_context.interval,
                ratio_interval(&units, 0.95, Range::SHARE).ok(),
                found.pearson.pooled.interval,
                found.spearman.pooled.interval,
                found.pearson.system.and_then(|system| system.interval),
            ];
            let lists: Vec<(Vec<f64>, Vec<f64>)> =
                contexts.iter().map(|c| c.iter().map(|r| (r.first, r.gold)).unzip()).collect();
            let mean = |of: fn(&[f64], &[f64]) -> Option<f64>| -> Vec<f64> {
                lists.iter().map(|(x, y)| of(x, y).unwrap_or(0.0)).collect()
            };
            let [pearsons, spearmans] = [pearson, spearman].map(mean);
            let over = |values: &[f64], drawn: &[usize]| {
                Some(drawn.iter().map(|k| values[*k]).sum::<f64>() / drawn.len() as f64)
            };
            let joined = |drawn: &[usize]| -> (Vec<f64>, Vec<f64>) {
                drawn.iter().flat_map(|k| lists[*k].0.iter().copied().zip(lists[*k].1.iter().copied())).unzip()
            };
            let before = [
                percentile(n, noise, |drawn| over(&pearsons, drawn)),
                percentile(n, noise, |drawn| over(&spearmans, drawn)),
                percentile(n, noise, |drawn| Some(ratio(drawn.iter().map(|k| units[*k])))),
                percentile(n, noise, |drawn| pearson(&joined(drawn).0, &joined(drawn).1)),
                percentile(n, noise, |drawn| spearman(&joined(drawn).0, &joined(drawn).1)),
                percentile(n, noise, |drawn| of_systems(&contexts, drawn, pearson)),
            ];
            for (k, truth) in truths.into_iter().enumerate() {
                tally[k][0].add(now[k], truth);
                tally[k][1].add(before[k], truth);
            }
        }
        tallies.push(tally);
    }
    for (k, name) in FIGURES.into_iter().enumerate() {
        for (tally, n) in tallies.iter().zip(CONTEXTS) {
            println!("| {name} | {n} | {} | {} |", tally[k][0].cell(), tally[k][1].cell());
        }
    }
}

/// Methods for ranks of system means that were tried and rejected.
fn ranks_of_systems(world: World, simulations: usize, noise: &mut Noise) {
    let many = world.contexts(TRUTH, noise);
    let truth = of_systems(&many, &(0..TRUTH).collect::<Vec<_>>(), spearman).unwrap_or(f64::NAN);
    for n in CONTEXTS {
        let mut tally: [Tally; 2] = Default::default();
        for _ in 0..simulations {
            let contexts = world.contexts(n, noise);
            let over = |drawn: &[usize]| of_systems(&contexts, drawn, spearman);
            tally[0].add(jackknife(n, 0.95, Range::Correlation, over).ok(), truth);
            tally[1].add(percentile(n, noise, over), truth);
        }
        let World { candidates, r } = world;
        println!("| {candidates} | {r} | {truth:.2} | {n} | {} | {} |", tally[0].cell(), tally[1].cell());
    }
}

/// Verdicts, a fifth of them ties.
fn win_rates(simulations: usize, noise: &mut Noise) {
    println!("\nWin rates, ties as half\n");
    println!("| win rate | ties | samples | now: held (width) | percentile bootstrap |\n|--:|--:|--:|--:|--:|");
    for (win, tie) in [(0.5, 0.0), (0.5, 0.2), (0.8, 0.0), (0.95, 0.0)] {
        for n in CONTEXTS {
            let mut tally: [Tally; 2] = Default::default();
            for _ in 0..simulations {
                let point = |u: f64| if u < tie { 0.5 } else { f64::from(u8::from((u - tie) / (1.0 - tie) < win)) };
                let points: Vec<f64> = (0..n).map(|_| point(noise.uniform())).collect();
                let truth = tie / 2.0 + (1.0 - tie) * win;
                tally[0].add(mean_interval(&points, 0.95, Range::SHARE).ok(), truth);
                let mean = |drawn: &[usize]| Some(drawn.iter().map(|k| points[*k]).sum::<f64>() / n as f64);
                tally[1].add(percentile(n, noise, mean), truth);
            }
            println!(
                "| {:.2} | {tie:.1} | {n} | {} | {} |",
                tie / 2.0 + (1.0 - tie) * win,
                tally[0].cell(),
                tally[1].cell()
            );
        }
    }
}

/// Coefficients that are 1 in most contexts.
fn nearly_perfect(simulations: usize, noise: &mut Noise) {
    println!("\nMeans of coefficients that are 1 in most contexts\n");
    println!("| contexts with 1 | the others | contexts | now: held (width) | percentile bootstrap |");
    println!("|--:|---|--:|--:|--:|");
    for (perfect, between) in [(0.5, false), (0.8, false), (0.95, false), (0.8, true), (0.95, true)] {
        for n in CONTEXTS {
            let mut tally: [Tally; 2] = Default::default();
            for _ in 0..simulations {
                let mut one = || match noise.uniform() < perfect {
                    true => 1.0,
                    false if between => 2.0 * noise.uniform() - 1.0,
                    false => 0.5,
                };
                let values: Vec<f64> = (0..n).map(|_| one()).collect();
                let truth = perfect + (1.0 - perfect) * if between { 0.0 } else { 0.5 };
                tally[0].add(mean_interval(&values, 0.95, Range::Correlation).ok(), truth);
                let mean = |drawn: &[usize]| Some(drawn.iter().map(|k| values[*k]).sum::<f64>() / n as f64);
                tally[1].add(percentile(n, noise, mean), truth);
            }
            let others = if between { "−1 to 1" } else { "0.5" };
            println!("| {perfect:.2} | {others} | {n} | {} | {} |", tally[0].cell(), tally[1].cell());
        }
    }
}

/// Two equally good metrics: how often a test at 0.05 reports a difference, and whether the interval contains 0.
fn differences(world: World, simulations: usize, noise: &mut Noise) {
    println!("\nTwo metrics that are equally good, {} candidates, r = {}\n", world.candidates, world.r);
    println!(
        "| figure | contexts | interval: held (width) | t: p < .05 | randomisation: p < .05 |\n|---|--:|--:|--:|--:|"
    );
    let measures =
        [Measured::PerContext(Correlation::Spearman), Measured::Pooled(Correlation::Pearson), Measured::Pairwise];
    let names = ["Spearman per context", "Pearson over all scores", "accuracy of pairs"];
    for n in CONTEXTS {
        let mut tallies: [Tally; 3] = Default::default();
        let mut called = [[0usize; 2]; 3];
        for _ in 0..simulations {
            let all = compare_metrics(&world.contexts(n, noise), &Resampling { rounds: 200, ..Resampling::default() });
            for (k, measure) in measures.into_iter().enumerate() {
                let Some(found) = all.iter().find(|one| one.measure == measure) else { continue };
                tallies[k].add(found.paired.and_then(|paired| paired.interval), 0.0);
                called[k][0] += usize::from(found.paired.and_then(|paired| paired.p).is_some_and(|p| p < 0.05));
                called[k][1] += usize::from(found.randomisation_p.is_some_and(|p| p < 0.05));
            }
        }
        for (k, name) in names.into_iter().enumerate() {
            let [t, randomisation] = called[k].map(|count| count as f64 / simulations as f64);
            println!("| {name} | {n} | {} | {t:.3} | {randomisation:.3} |", tallies[k].cell());
        }
    }
}

fn main() {
    let simulations = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1000);
    let mut noise = Noise(ChaCha8Rng::seed_from_u64(1));
    for (candidates, r) in WORLDS {
        figures(World { candidates, r }, simulations, &mut noise);
    }
    win_rates(10 * simulations, &mut noise);
    println!("\nSpearman between systems' means: tried, and not used\n");
    println!("| candidates | r | true value | contexts | jackknife: held (width) | percentile bootstrap |");
    println!("|--:|--:|--:|--:|--:|--:|");
    let mut other = Noise(ChaCha8Rng::seed_from_u64(3));
    for (candidates, r) in WORLDS {
        ranks_of_systems(World { candidates, r }, simulations, &mut other);
    }
    nearly_perfect(10 * simulations, &mut Noise(ChaCha8Rng::seed_from_u64(2)));
    differences(World { candidates: 8, r: 0.5 }, simulations / 2, &mut noise);
}
