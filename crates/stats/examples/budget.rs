//! Cost of fewer comparisons, for a judge with known true scores: Spearman correlation with the truth and with the
//! scores from all comparisons, by the share of comparisons made and the order in which pairs are chosen; then the
//! error rate of rankings reported as settled. docs/budget.md has the tables.
//!
//!     cargo run --release -p probity-stats --example budget
//!
//! With a judge's scores as the truth (JSON lines with item, candidate and score, such as the tables of runs) and
//! samples with human scores of an attribute, also Spearman correlation with the human scores:
//!
//!     cargo run --release -p probity-stats --example budget -- scores.jsonl samples.jsonl coherence

use std::collections::{BTreeMap, BTreeSet};

use probity_stats::{ProductOfExperts, Settled, log_odds, spearman};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde_json::Value;

/// A judge whose log-odds are the difference of the true scores plus noise per pair.
struct NoisyJudge {
    truth: Vec<f64>,
    noise: Vec<f64>,
    /// Human scores of the same texts; empty if there are none.
    people: Vec<f64>,
}

fn normal(random: &mut ChaCha8Rng) -> f64 {
    let mut uniform = || (f64::from(random.next_u32()) + 1.0) / 4_294_967_296.0;
    (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()
}

impl NoisyJudge {
    fn new(candidates: usize, spread: f64, noise: f64, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let truth = (0..candidates).map(|_| spread * normal(&mut random)).collect();
        Self::with_noise(truth, Vec::new(), noise, &mut random)
    }

    fn with_noise(truth: Vec<f64>, people: Vec<f64>, noise: f64, random: &mut ChaCha8Rng) -> Self {
        let noise = (0..truth.len() * truth.len()).map(|_| noise * normal(random)).collect();
        Self { truth, noise, people }
    }

    fn outcome(&self, i: usize, j: usize) -> f64 {
        let odds = self.truth[i] - self.truth[j] + self.noise[i * self.truth.len() + j];
        log_odds(1.0 / (1.0 + (-odds).exp()))
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Order {
    Random,
    Gain,
    Adaptive,
    AdaptiveBest,
}

/// A context with a few pairs queried per round, as in `compare --budget`.
struct Rounds<'j> {
    judge: &'j NoisyJudge,
    experts: ProductOfExperts,
    asked: BTreeSet<(usize, usize)>,
    random: ChaCha8Rng,
}

impl<'j> Rounds<'j> {
    fn new(judge: &'j NoisyJudge, seed: u64) -> Self {
        let n = judge.truth.len();
        let mut asked = Self {
            judge,
            experts: ProductOfExperts::new(n),
            asked: BTreeSet::new(),
            random: ChaCha8Rng::seed_from_u64(seed),
        };
        (1..n).for_each(|j| asked.ask(j - 1, j));
        asked
    }

    fn ask(&mut self, i: usize, j: usize) {
        self.asked.insert((i, j));
        self.experts.add(i, j, self.judge.outcome(i, j));
    }

    fn pairs(&self) -> usize {
        let n = self.judge.truth.len();
        n * (n - 1) / 2
    }

    fn round(&mut self, order: Order, most: usize) {
        let n = self.judge.truth.len();
        let aim = match order {
            Order::Random | Order::Gain => None,
            Order::Adaptive => Some(Settled::Ranks),
            Order::AdaptiveBest => Some(Settled::Best),
        };
        let noise = self.experts.noise().filter(|_| self.experts.spare() >= 4);
        let mut expected = self.experts.clone();
        let mut chosen = Vec::new();
        for _ in 0..(n / 2).min(most - self.asked.len()) {
            let pair = if order == Order::Random {
                let open: Vec<(usize, usize)> = (0..n)
                    .flat_map(|i| (i + 1..n).map(move |j| (i, j)))
                    .filter(|pair| !self.asked.contains(pair))
                    .collect();
                (!open.is_empty()).then(|| open[self.random.next_u32() as usize % open.len()])
            } else {
                expected.next_pair(aim.zip(noise), |i, j| (!self.asked.contains(&(i, j))).then_some(1.0))
            };
            let Some((i, j)) = pair else { break };
            expected.expect(i, j);
            self.asked.insert((i, j));
            chosen.push((i, j));
        }
        for (i, j) in chosen {
            self.experts.add(i, j, self.judge.outcome(i, j));
        }
    }

    fn until(&mut self, order: Order, share: f64) {
        let most = ((share * self.pairs() as f64).round() as usize).max(self.asked.len());
        while self.asked.len() < most {
            self.round(order, most);
        }
    }
}

fn curves(judges: &[NoisyJudge]) {
    println!("| order | share | against the truth | against all | against people | same best |");
    println!("|---|---|---|---|---|---|");
    for order in [Order::Random, Order::Gain, Order::Adaptive, Order::AdaptiveBest] {
        for share in [0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 1.0] {
            let mut sums = [0.0; 4];
            for (judge, seed) in judges.iter().zip(0..) {
                let mut asked = Rounds::new(judge, seed);
                let mut all = Rounds::new(judge, seed);
                asked.until(order, share);
                all.until(Order::Gain, 1.0);
                let (found, full) = (asked.experts.scores(), all.experts.scores());
                let best = |scores: &[f64]| (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
                sums[0] += spearman(&found, &judge.truth).unwrap_or(0.0);
                sums[1] += spearman(&found, &full).unwrap_or(0.0);
                if !judge.people.is_empty() {
                    sums[2] += spearman(&found, &judge.people).unwrap_or(0.0);
                }
                sums[3] += f64::from(u8::from(best(&found) == best(&judge.truth)));
            }
            let [truth, full, people, best] = sums.map(|sum| sum / judges.len() as f64);
            println!("| {order:?} | {share} | {truth:.3} | {full:.3} | {people:.3} | {best:.2} |");
        }
    }
}

fn simulated(candidates: usize, spread: f64, noise: f64, contexts: u64) {
    println!("\n{candidates} candidates, scores spread by {spread}, noise {noise}, {contexts} contexts; no people");
    let judges: Vec<NoisyJudge> = (0..contexts).map(|seed| NoisyJudge::new(candidates, spread, noise, seed)).collect();
    curves(&judges);
}

fn rows(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(file).expect("a file that can be read");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// Uses a judge's scores, in units of their standard deviation within a context, and human scores.
fn of_files(scores: &str, samples: &str, attribute: &str, noise: f64) {
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let mut people: BTreeMap<(String, String), f64> = BTreeMap::new();
    for sample in rows(samples) {
        for candidate in sample["candidates"].as_array().into_iter().flatten() {
            if let Some(score) = candidate["scores"][attribute].as_f64() {
                people.insert((text(&sample, "id"), text(candidate, "id")), score);
            }
        }
    }
    let mut contexts: BTreeMap<String, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for row in rows(scores) {
        let about = (text(&row, "item"), text(&row, "candidate"));
        if let (Some(score), Some(said)) = (row["score"].as_f64(), people.get(&about)) {
            let context = contexts.entry(about.0).or_default();
            context.0.push(score);
            context.1.push(*said);
        }
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let squares = contexts.values().flat_map(|(own, _)| {
        let middle = mean(own);
        own.iter().map(move |score| (score - middle).powi(2))
    });
    let unit = mean(&squares.collect::<Vec<f64>>()).sqrt();
    let judges: Vec<NoisyJudge> = contexts
        .into_values()
        .zip(0..)
        .map(|((own, people), seed)| {
            let truth = own.iter().map(|score| score / unit).collect();
            NoisyJudge::with_noise(truth, people, noise, &mut ChaCha8Rng::seed_from_u64(seed))
        })
        .collect();
    println!("\n{scores}, noise {noise} of the scores' deviation, {} contexts", judges.len());
    curves(&judges);
}

/// The error rate of rankings reported as settled.
fn stops(candidates: usize, spread: f64, noise: f64, contexts: u64) {
    for of in [Settled::Best, Settled::Ranks] {
        let (mut stopped, mut wrong, mut share) = (0, 0, 0.0);
        for seed in 0..contexts {
            let judge = NoisyJudge::new(candidates, spread, noise, seed);
            let mut asked = Rounds::new(&judge, seed);
            let all = asked.pairs();
            loop {
                let settled = asked.experts.is_settled(of, 0.95, seed * 1_000 + asked.asked.len() as u64);
                if settled {
                    stopped += 1;
                    wrong += usize::from(!of.agrees(&asked.experts.scores(), &judge.truth));
                }
                if settled || asked.asked.len() == all {
                    break;
                }
                asked.round(if of == Settled::Best { Order::AdaptiveBest } else { Order::Adaptive }, all);
            }
            share += asked.asked.len() as f64 / all as f64;
        }
        println!(
            "| {candidates} | {spread} | {noise} | {of:?} | {stopped} of {contexts} | {wrong} ({:.1}%) | {:.3} |",
            100.0 * wrong as f64 / f64::from(stopped.max(1)),
            share / contexts as f64
        );
    }
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    if let [scores, samples, attribute] = given.as_slice() {
        return of_files(scores, samples, attribute, 0.7);
    }
    simulated(16, 1.0, 0.7, 200);
    simulated(64, 1.0, 1.0, 20);
    println!("\n| candidates | spread | noise | settled | ended | wrong | share asked |");
    println!("|---|---|---|---|---|---|---|");
    for (spread, noise) in [(1.0, 0.3), (1.0, 0.7), (2.0, 1.0), (1.0, 1.5)] {
        stops(10, spread, noise, 500);
        stops(16, spread, noise, 500);
    }
}
