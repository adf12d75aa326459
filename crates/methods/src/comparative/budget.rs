//! Judging with a budget: how the next pair is chosen, and when to stop.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use probity_data::Sample;
use probity_lm::text::counted;
use probity_options::{name, written_as_text};
use probity_stats::{ProductOfExperts, Settled, log_odds};
use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::judge::{ComparisonJudge, ComparisonQuestion, ComparisonVerdict, JudgedComparisons};
use super::options::ComparativeParams;
use crate::figures::{mean, number};
use crate::pairs::{rng_for, seed_for};
use crate::{MethodError, Run, Table, cells};

/// The table of the comparisons of each context.
const BUDGET: &str = "budget";

/// Contexts judged concurrently: enough to fill the model in each round, and few enough to keep their prefixes in
/// memory between rounds.
const SIDE_BY_SIDE: usize = 16;

/// The maximum number of texts: every choice of a pair scans all pairs of the context.
const MOST_TEXTS: usize = 512;

/// Comparisons beyond the minimum before the estimated noise is used to choose pairs.
const SPARE_FOR_NOISE: usize = 4;

/// The maximum number of comparisons of a context.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    /// A number of comparisons; both orders of a pair count as two.
    Comparisons(usize),
    /// A share of all comparisons.
    Share(f64),
    /// Until the ranking is settled.
    Auto,
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Comparisons(n) => n.fmt(f),
            Self::Share(share) => write!(f, "{share:?}"),
            Self::Auto => f.write_str("auto"),
        }
    }
}

written_as_text!(Budget);

/// A text that is not a [`Budget`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a number of comparisons per context (80), a share of all (0.4) or auto")]
pub struct BudgetError;

impl FromStr for Budget {
    type Err = BudgetError;

    fn from_str(text: &str) -> Result<Self, BudgetError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match (text.parse::<usize>(), text.parse::<f64>()) {
            // `1.0` is a share, `1` a number.
            (Ok(n), _) if n > 0 => Ok(Self::Comparisons(n)),
            (Err(_), Ok(share)) if share > 0.0 && share <= 1.0 => Ok(Self::Share(share)),
            _ => Err(BudgetError),
        }
    }
}

impl Budget {
    /// The maximum number of pairs among this many texts.
    fn pairs(self, texts: usize) -> usize {
        let all = texts * texts.saturating_sub(1) / 2;
        match self {
            Self::Comparisons(n) => (n / 2).min(all),
            Self::Share(share) => ((share * all as f64).round() as usize).min(all),
            Self::Auto => all,
        }
    }

    /// Refuses budgets that leave texts uncompared, and samples with too many texts.
    pub(super) fn check(self, samples: &[Sample]) -> Result<(), MethodError> {
        if let Some(sample) = samples.iter().find(|sample| texts(sample).len() > MOST_TEXTS) {
            let (id, n) = (sample.id.escape_debug(), texts(sample).len());
            let why = format!("sample `{id}` has {n} texts; the maximum with a budget is {MOST_TEXTS}");
            return MethodError::refuse(
                format!("--budget {self}"),
                why,
                "draw pairs at random with --pairs \
                                                                         symmetric:R",
            );
        }
        let short = |sample: &&Sample| {
            let texts = texts(sample).len();
            texts > 1 && self.pairs(texts) + 1 < texts
        };
        let Some(sample) = samples.iter().filter(short).max_by_key(|sample| texts(sample).len()) else { return Ok(()) };
        let texts = texts(sample).len();
        let least = 2 * (texts - 1);
        let why = format!(
            "sample `{}` has {texts} distinct texts, which need at least {least} comparisons (each pair in both \
             orders); this allows {}",
            sample.id.escape_debug(),
            2 * self.pairs(texts)
        );
        MethodError::refuse(format!("--budget {self}"), why, format!("--budget {least}, a larger share, or auto"))
    }
}

/// The order in which pairs are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PairOrder {
    /// Pair with the most information about the goal of --stop, relative to its cost
    #[default]
    Adaptive,
    /// Pair with the least certain difference, relative to its cost
    Gain,
    /// Random pair, by --seed
    Random,
}

/// The goal of a run with a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StopAt {
    /// All ranks, with a mean error below one rank
    #[default]
    Ranks,
    /// The best candidate
    Best,
}

impl From<StopAt> for Settled {
    fn from(stop: StopAt) -> Self {
        match stop {
            StopAt::Ranks => Self::Ranks,
            StopAt::Best => Self::Best,
        }
    }
}

/// The candidates to compare: the first with each text. A sample with one distinct text uses two candidates, since
/// otherwise none would have a score.
fn texts(sample: &Sample) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    let places = || sample.candidates.iter().enumerate().filter(|(_, one)| !one.text.trim().is_empty());
    let first: Vec<usize> = places().filter(|(_, one)| seen.insert(&*one.text)).map(|(place, _)| place).collect();
    if first.len() > 1 { first } else { places().map(|(place, _)| place).take(2).collect() }
}

/// Why a context has no further comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum BudgetEnd {
    /// The ranking is settled.
    Settled,
    /// The budget is spent.
    Budget,
    /// All pairs were compared.
    All,
}

/// The comparisons of a sample under one attribute.
struct ContextPlan<'s> {
    item: usize,
    attribute: usize,
    sample: &'s Sample,
    /// The candidate at each index of `experts`.
    texts: Vec<usize>,
    experts: ProductOfExperts,
    asked: BTreeSet<(usize, usize)>,
    most: usize,
    /// Bytes after the second text of a prompt; no cached prefix covers them.
    tail: usize,
    random: ChaCha8Rng,
    ended: Option<BudgetEnd>,
}

impl<'s> ContextPlan<'s> {
    fn new(judge: &ComparisonJudge<'s>, item: usize, attribute: usize, budget: Budget) -> Result<Self, MethodError> {
        let sample = &judge.samples[item];
        let texts = texts(sample);
        let most = budget.pairs(texts.len());
        Ok(Self {
            item,
            attribute,
            sample,
            experts: ProductOfExperts::new(texts.len()),
            tail: tail(judge, item, attribute, &texts)?,
            texts,
            asked: BTreeSet::new(),
            most,
            random: rng_for(judge.params.seed, &["budget", &sample.id, &judge.params.subject.attribute[attribute]]),
            ended: None,
        })
    }

    /// Bytes that no cached prefix covers: in both orders the second text and what follows it. After the initial chain,
    /// each text has been shown first once.
    fn cost(&self, i: usize, j: usize) -> f64 {
        let length = |place: usize| self.sample.candidates[self.texts[place]].text.len();
        (length(i) + length(j) + 2 * self.tail) as f64
    }

    /// The pairs of the next round; empty if the context is done.
    fn next(&mut self, params: &ComparativeParams) -> Vec<(usize, usize)> {
        let n = self.texts.len();
        if self.ended.is_some() || n < 2 {
            return Vec::new();
        }
        if self.asked.is_empty() {
            let mut chain: Vec<usize> = (0..n).collect();
            chain.shuffle(&mut self.random);
            let pairs: Vec<(usize, usize)> =
                chain.windows(2).map(|pair| (pair[0].min(pair[1]), pair[0].max(pair[1]))).collect();
            self.asked.extend(&pairs);
            return pairs;
        }
        let left = self.most.saturating_sub(self.asked.len());
        if left == 0 {
            self.ended = Some(if self.most == n * (n - 1) / 2 { BudgetEnd::All } else { BudgetEnd::Budget });
            return Vec::new();
        }
        if params.budget == Some(Budget::Auto)
            && self.experts.is_settled(params.stop.into(), params.sure, self.seed(params))
        {
            self.ended = Some(BudgetEnd::Settled);
            return Vec::new();
        }
        self.choose((n / 2).clamp(1, left), params.choose, params.stop)
    }

    /// A seed that depends only on the state, so that a resumed run stops at the same point.
    fn seed(&self, params: &ComparativeParams) -> u64 {
        seed_for(params.seed, &["certainty", &self.sample.id, &self.asked.len().to_string()])
    }

    fn choose(&mut self, count: usize, order: PairOrder, aim: StopAt) -> Vec<(usize, usize)> {
        let noise = self.experts.noise().filter(|noise| *noise > 0.0 && self.experts.spare() >= SPARE_FOR_NOISE);
        let aim = noise.filter(|_| order == PairOrder::Adaptive).map(|noise| (aim.into(), noise));
        let mut expected = self.experts.clone();
        let mut chosen = Vec::with_capacity(count);
        for _ in 0..count {
            let open = |i: usize, j: usize| !self.asked.contains(&(i, j));
            let pair = match order {
                PairOrder::Random => {
                    let n = self.texts.len();
                    let all: Vec<(usize, usize)> =
                        (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))).filter(|(i, j)| open(*i, *j)).collect();
                    (!all.is_empty()).then(|| all[self.random.random_range(0..all.len())])
                }
                PairOrder::Gain | PairOrder::Adaptive => {
                    expected.next_pair(aim, |i, j| open(i, j).then(|| self.cost(i, j)))
                }
            };
            let Some((i, j)) = pair else { break };
            expected.expect(i, j);
            self.asked.insert((i, j));
            chosen.push((i, j));
        }
        chosen
    }

    /// The largest set of pairs that may be judged, without any answers.
    fn at_most(&mut self, params: &ComparativeParams) -> Vec<(usize, usize)> {
        let n = self.texts.len();
        // If all pairs may be judged, there is nothing to choose.
        if self.most == n * n.saturating_sub(1) / 2 {
            return (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))).collect();
        }
        let mut pairs = self.next(params);
        for (i, j) in pairs.clone() {
            self.experts.expect(i, j);
        }
        let left = self.most.saturating_sub(pairs.len());
        pairs.extend(self.choose(left, PairOrder::Gain, params.stop));
        pairs
    }

    /// The questions about a pair: both orders under each template.
    fn questions(&self, (i, j): (usize, usize), templates: usize) -> impl Iterator<Item = ComparisonQuestion> + '_ {
        let (item, attribute, i, j) = (self.item, self.attribute, self.texts[i], self.texts[j]);
        (0..templates).flat_map(move |template| {
            [(i, j), (j, i)].map(|(i, j)| ComparisonQuestion { item, attribute, template, i, j })
        })
    }

    /// The mean log-odds of the first of a pair, over both orders and all templates; absent if any answer is missing.
    fn outcome(&self, pair: (usize, usize), said: &[(ComparisonQuestion, Option<f64>)]) -> Option<f64> {
        let (i, j) = (self.texts[pair.0], self.texts[pair.1]);
        let of_pair = said.iter().filter(|(asked, _)| {
            (asked.item, asked.attribute) == (self.item, self.attribute)
                && [(i, j), (j, i)].contains(&(asked.i, asked.j))
        });
        let odds: Option<Vec<f64>> =
            of_pair.map(|(asked, p)| p.map(|p| if asked.i == i { log_odds(p) } else { -log_odds(p) })).collect();
        odds.and_then(mean)
    }
}

/// Bytes of a prompt after its second text. Two prompts with the same first text differ in these and the second text.
fn tail(judge: &ComparisonJudge<'_>, item: usize, attribute: usize, texts: &[usize]) -> Result<usize, MethodError> {
    let [first, second, third, ..] = texts[..] else { return Ok(0) };
    let prompt = |j: usize| {
        let question = ComparisonQuestion { item, attribute, template: 0, i: first, j };
        Ok::<_, MethodError>(judge.render(&question)?.prompt(&judge.layout).text())
    };
    let (one, other) = (prompt(second)?, prompt(third)?);
    let shared = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    Ok((one.len() - shared).saturating_sub(judge.samples[item].candidates[second].text.len()))
}

/// The comparisons of a context and the certainty of its ranking.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct AskedContext {
    item: String,
    attribute: String,
    texts: usize,
    /// Pairs, each in both orders.
    pairs: usize,
    all_pairs: usize,
    /// Absent if the context has nothing to compare.
    ended: Option<BudgetEnd>,
    /// From the judge's own answers: the probability that the top text is the best, or that ranks are off by less than
    /// one.
    best_is_best: Option<f64>,
    ranks_hold: Option<f64>,
}

/// The figures of a run with a budget.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct BudgetFigures {
    budget: String,
    choose: String,
    stop: String,
    sure: Option<f64>,
    pairs: usize,
    all_pairs: usize,
    /// Contexts that stopped early because their ranking is settled.
    settled: usize,
    contexts: Vec<AskedContext>,
}

impl BudgetFigures {
    fn new(params: &ComparativeParams, budget: Budget, plans: &[ContextPlan<'_>]) -> Self {
        let context = |plan: &ContextPlan<'_>| AskedContext {
            item: plan.sample.id.clone(),
            attribute: params.subject.attribute[plan.attribute].clone(),
            texts: plan.texts.len(),
            pairs: plan.asked.len(),
            all_pairs: plan.texts.len() * plan.texts.len().saturating_sub(1) / 2,
            ended: plan.ended,
            best_is_best: plan.experts.certainty(Settled::Best, plan.seed(params)),
            ranks_hold: plan.experts.certainty(Settled::Ranks, plan.seed(params)),
        };
        let contexts: Vec<AskedContext> = plans.iter().map(context).collect();
        let is_auto = budget == Budget::Auto;
        Self {
            budget: budget.to_string(),
            choose: name(&params.choose),
            stop: name(&params.stop),
            sure: is_auto.then_some(params.sure),
            pairs: contexts.iter().map(|one| one.pairs).sum(),
            all_pairs: contexts.iter().map(|one| one.all_pairs).sum(),
            settled: contexts.iter().filter(|one| one.ended == Some(BudgetEnd::Settled)).count(),
            contexts,
        }
    }

    /// The figures as a table.
    pub(super) fn table(&self) -> Table {
        let columns = ["pairs judged", "of all", "share", "contexts settled", "best is right", "ranks are right"];
        let mut table = Table::new("Comparisons within the budget", columns);
        let certainty = |of: fn(&AskedContext) -> Option<f64>| number(mean(self.contexts.iter().filter_map(of)));
        table.push(cells![
            self.pairs,
            self.all_pairs,
            number((self.all_pairs > 0).then(|| self.pairs as f64 / self.all_pairs as f64)),
            self.settled,
            certainty(|one| one.best_is_best),
            certainty(|one| one.ranks_hold),
        ]);
        table.note(
            "Each pair is judged in both orders. Best is right, ranks are right: the probability, from the judge's own \
             answers, that the top text is the judge's best, and that its ranks are off by less than one; means over \
             contexts, each in budget.jsonl. They measure how well the judge's ranking is known, not how good the \
             judge is.",
        );
        if let Some(sure) = self.sure {
            let stop = &self.stop;
            table.note(format!(
                "{} ended early: --stop {stop} reached the certainty {sure} (docs/budget.md has its error rate)",
                counted(self.settled, "context")
            ));
        }
        table
    }

    pub(super) fn write(&self, run: &mut Run<'_>) -> Result<(), MethodError> {
        run.table(BUDGET, self.contexts.len())?;
        self.contexts.iter().enumerate().try_for_each(|(index, context)| run.row(BUDGET, index, context))
    }
}

impl ComparisonJudge<'_> {
    /// Judges pairs in rounds within the budget. The pairs of a context depend only on its own answers.
    pub(super) fn judge_within(&self, budget: Budget, run: &mut Run<'_>) -> Result<JudgedComparisons, MethodError> {
        let attributes = self.templates.len();
        let mut plans = Vec::with_capacity(self.samples.len() * attributes);
        for item in 0..self.samples.len() {
            for attribute in 0..attributes {
                plans.push(ContextPlan::new(self, item, attribute, budget)?);
            }
        }
        let mut judged = JudgedComparisons::default();
        if run.is_rehearsal() {
            let rounds: Vec<_> = plans.iter_mut().map(|plan| plan.at_most(self.params)).collect();
            self.ask_round(&plans, &rounds, &mut judged, run)?;
            return Err(MethodError::Rehearsed);
        }
        for group in plans.chunks_mut(SIDE_BY_SIDE * attributes) {
            loop {
                let round: Vec<_> = group.iter_mut().map(|plan| plan.next(self.params)).collect();
                if round.iter().all(Vec::is_empty) {
                    break;
                }
                let said = self.ask_round(group, &round, &mut judged, run)?;
                for (plan, pairs) in group.iter_mut().zip(&round) {
                    for pair in pairs {
                        if let Some(outcome) = plan.outcome(*pair, &said) {
                            plan.experts.add(pair.0, pair.1, outcome);
                        }
                    }
                }
            }
        }
        judged.budget = Some(BudgetFigures::new(self.params, budget, &plans));
        Ok(judged)
    }

    fn ask_round(
        &self,
        plans: &[ContextPlan<'_>],
        round: &[Vec<(usize, usize)>],
        judged: &mut JudgedComparisons,
        run: &mut Run<'_>,
    ) -> Result<Vec<(ComparisonQuestion, Option<f64>)>, MethodError> {
        let templates = self.params.template.len();
        let of_plan = |(plan, pairs): (&ContextPlan<'_>, &Vec<(usize, usize)>)| -> Vec<ComparisonQuestion> {
            let mut questions: Vec<ComparisonQuestion> =
                pairs.iter().flat_map(|pair| plan.questions(*pair, templates)).collect();
            // Groups prompts that share their first text.
            questions.sort_unstable_by_key(|asked| (asked.template, asked.i, asked.j));
            questions
        };
        let questions: Vec<ComparisonQuestion> = plans.iter().zip(round).flat_map(of_plan).collect();
        let verdicts = self.ask(&questions, judged.comparisons.len(), run)?;
        let said = questions.iter().copied().zip(verdicts.iter().map(ComparisonVerdict::p)).collect();
        judged.comparisons.extend(questions);
        judged.verdicts.extend::<Vec<ComparisonVerdict>>(verdicts);
        Ok(said)
    }
}
