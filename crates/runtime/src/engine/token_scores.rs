//! Log-probabilities of tokens in context, the basis of label and continuation queries.

use std::sync::{Arc, Mutex, PoisonError};

use probity_lm::Usage;
use probity_models::{HeadRow, PackedDecoder};

use super::kept::{KeptPrefixes, ReusedNodes};
use super::rows::{LikelyToken, likeliest};
use super::scheduler::{NodeStretch, ScheduleLimits};
use super::states::PooledStates;
use super::tree::{PrefixTree, in_groups};
use super::walk::{ComputedGroup, NodeTaps, WalkError, plan, walk};
use crate::{Drafting, TokenProgress};

/// Consecutive tokens to score, and the tokens before the last of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenQuery {
    /// Input tokens: the prompt and the scored tokens except the last. Queries for one token share them. With states,
    /// the last token is included.
    pub(crate) seen: Arc<[u32]>,
    /// Number of these that an encoder reads; 0 without an encoder.
    pub(crate) source: usize,
    /// Tokens to score: at least one, preceded by at least one token of the prompt.
    pub(crate) asked: Vec<u32>,
    /// Layers whose states are requested for these tokens; usually none.
    pub(crate) layers: Vec<usize>,
    /// Number of alternatives per scored token; usually none.
    pub(crate) alternatives: usize,
    /// Index of the request. Queries of one request always share their prefix.
    pub(crate) request: usize,
}

impl TokenQuery {
    /// The row in `seen` that predicts the first scored token.
    pub(super) fn first_row(&self) -> usize {
        self.seen.len() - self.asked.len() - usize::from(!self.layers.is_empty())
    }
}

/// Score of one token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TokenScore {
    /// The token's logit.
    pub(crate) logit: f32,
    /// log P(token | before) under the full vocabulary. Not finite if the logits were not.
    pub(crate) logprob: f64,
    /// The most probable token at this position; ties go to the lowest id.
    pub(crate) greedy: u32,
    /// Whether the scored token is that token.
    pub(crate) is_greedy: bool,
}

impl TokenScore {
    /// Score of a token from its logit.
    pub(super) fn new(row: &HeadRow, token: u32, logit: f32) -> Self {
        Self { logit, logprob: f64::from(logit) - row.normaliser, greedy: row.greedy, is_greedy: row.greedy == token }
    }
}

/// Answer to a query.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct QueryAnswer {
    /// One per token.
    pub(crate) scores: Vec<TokenScore>,
    /// Per layer, `(hidden_size)`: the mean over the tokens.
    pub(crate) states: Vec<Vec<f32>>,
    /// Alternatives per token, if requested.
    pub(crate) alternatives: Vec<Vec<LikelyToken>>,
}

impl QueryAnswer {
    /// Whether all values are finite.
    pub(crate) fn is_finite(&self) -> bool {
        self.scores.iter().all(|score| score.logprob.is_finite())
            && self.states.iter().flatten().all(|value| value.is_finite())
    }
}

/// How to run a work list. These options never change a result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScheduleOptions<'a> {
    /// Maximum tokens per group, and the cache budget in bytes.
    pub(crate) limits: ScheduleLimits,
    /// Whether shared prefixes are computed once.
    pub(crate) share_prefixes: bool,
    /// Prefix cache across work lists.
    pub(crate) kept: Option<&'a KeptPrefixes>,
    /// Whether texts use draft tokens.
    pub(crate) drafting: Drafting,
    /// Maximum number of texts generated together.
    pub(crate) side_by_side: usize,
    /// Receives the planned amount of work.
    pub(crate) progress: &'a TokenProgress,
}

/// The prefix tree of the queries' input.
fn tree(queries: &[TokenQuery], share: bool) -> PrefixTree<'_> {
    let alone = |query: usize| if share { 0 } else { queries[query].request };
    PrefixTree::new(in_groups(queries.iter().map(|query| (&*query.seen, query.source)), alone))
}

/// A token scored after a row of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct AskedToken {
    /// Offset of the row within the node.
    row: usize,
    query: usize,
    /// Index among the query's answers.
    answer: usize,
}

/// Answers each query through `done` as it finishes.
pub(crate) fn score_tokens<E>(
    model: &dyn PackedDecoder,
    queries: &[TokenQuery],
    schedule: ScheduleOptions<'_>,
    done: &mut dyn FnMut(usize, QueryAnswer) -> Result<(), E>,
) -> Result<Usage, WalkError<E>> {
    let tree = tree(queries, schedule.share_prefixes);
    let targets = targets(&tree, queries);
    let rows = |node: usize| {
        let mut rows: Vec<usize> = targets[node].iter().map(|t| t.row).collect();
        rows.dedup();
        rows
    };
    let unanswered = TokenScore { logit: f32::NAN, logprob: f64::NAN, greedy: 0, is_greedy: false };
    let mut answers: Vec<Vec<TokenScore>> = queries.iter().map(|q| vec![unanswered; q.asked.len()]).collect();
    let lists = |q: &TokenQuery| if q.alternatives > 0 { vec![Vec::new(); q.asked.len()] } else { Vec::new() };
    let mut alternatives: Vec<Vec<Vec<LikelyToken>>> = queries.iter().map(lists).collect();
    // Number of unanswered tokens, and of tokens whose states are missing.
    let read = |query: &TokenQuery| if query.layers.is_empty() { 0 } else { query.asked.len() };
    let mut open: Vec<usize> = queries.iter().map(|query| query.asked.len() + read(query)).collect();
    let pooled = PooledStates::new(&tree, queries);
    let layers = pooled.layers().to_vec();
    let first = |node: usize| targets[node].first().map_or(tree.tokens(node).len(), |target| target.row);
    let reused = match schedule.kept {
        // States need all tokens of the text, so nothing is reused.
        Some(kept) if layers.is_empty() => kept.reuse(model, &tree, &first)?,
        kept => ReusedNodes::nothing(kept),
    };
    let tokens_computed = tree.token_count() - reused.token_count();
    schedule.progress.plan(queries.len(), tokens_computed);
    // Filled on the model's threads and read on this one after they return, so the lock is never contended.
    let states = Mutex::new(pooled);
    let lock = || states.lock().unwrap_or_else(PoisonError::into_inner);
    let mut see = |stretch: &NodeStretch, place: usize, rows: &[f32]| lock().see(stretch, place, rows);
    let mut taps = NodeTaps { layers: &layers, see: &mut see };
    let taps = (!layers.is_empty()).then_some(&mut taps);
    let mut visit = |computed: ComputedGroup<'_>| -> Result<(), WalkError<E>> {
        let mut asked: Vec<&[AskedToken]> = Vec::new();
        for (stretch, rows) in computed.stretches {
            let of_node = &targets[stretch.node];
            let of_row = |row: &usize| {
                &of_node[of_node.partition_point(|t| t.row < *row)..of_node.partition_point(|t| t.row <= *row)]
            };
            asked.extend(rows.iter().map(of_row));
        }
        let mut finished = Vec::new();
        let mut settle = |query: usize, tokens: usize| {
            open[query] -= tokens;
            if tokens > 0 && open[query] == 0 {
                finished.push(query);
            }
        };
        for (stretch, _) in computed.stretches {
            lock().rows_of(stretch).for_each(|(query, rows)| settle(query, rows));
        }
        let token = |target: &AskedToken| queries[target.query].asked[target.answer];
        let tokens: Vec<Vec<u32>> = asked.iter().map(|targets| targets.iter().map(token).collect()).collect();
        let rows = if asked.is_empty() { Vec::new() } else { model.head(computed.hidden, &tokens)? };
        let count = |target: &AskedToken| queries[target.query].alternatives;
        let counts: Vec<usize> = asked.iter().map(|targets| targets.iter().map(count).max().unwrap_or(0)).collect();
        let likely = likeliest(model, computed.hidden, &rows, &counts)?;
        for (((row, targets), tokens), likely) in rows.iter().zip(asked).zip(&tokens).zip(&likely) {
            for ((target, token), logit) in targets.iter().zip(tokens).zip(&row.logits) {
                answers[target.query][target.answer] = TokenScore::new(row, *token, *logit);
                if count(target) > 0 {
                    // Queries on the same row may want different numbers of alternatives.
                    alternatives[target.query][target.answer] = likely.iter().take(count(target)).copied().collect();
                }
                settle(target.query, 1);
            }
        }
        finished.sort_unstable();
        finished.into_iter().try_for_each(|query| {
            let (scores, alternatives) =
                (std::mem::take(&mut answers[query]), std::mem::take(&mut alternatives[query]));
            let answer = QueryAnswer { scores, states: lock().take(query), alternatives };
            done(query, answer).map_err(WalkError::Visitor)
        })
    };
    let peak_cache_bytes = walk(model, &tree, schedule.limits, &rows, &reused, taps, &mut visit)?;
    // Even without sharing, a request's own queries share their prompt; computing it once per label would be
    // unrealistic.
    let tokens_unshared = self::tree(queries, false).token_count();
    Ok(Usage { tokens_unshared, tokens_computed, peak_cache_bytes, ..Usage::default() })
}

/// The cost of answering the queries, and the number of rows for the output head. Computes nothing.
pub(crate) fn plan_scores(
    model: &dyn PackedDecoder,
    queries: &[TokenQuery],
    schedule: ScheduleOptions<'_>,
) -> (Usage, u64) {
    let tree = tree(queries, schedule.share_prefixes);
    let rows = |mut targets: Vec<AskedToken>| {
        targets.dedup_by_key(|target| target.row);
        targets.len() as u64
    };
    let rows = targets(&tree, queries).into_iter().map(rows).sum();
    let peak_cache_bytes = plan(model, &tree, schedule.limits);
    let tokens_unshared = self::tree(queries, false).token_count();
    (Usage { tokens_unshared, tokens_computed: tree.token_count(), peak_cache_bytes, ..Usage::default() }, rows)
}

/// Scored tokens of each node, by row.
fn targets(tree: &PrefixTree<'_>, queries: &[TokenQuery]) -> Vec<Vec<AskedToken>> {
    let mut targets: Vec<Vec<AskedToken>> = vec![Vec::new(); tree.len()];
    // Each query's tokens are on one path from the root; each node gets the rows within it.
    tree.each_path(&mut |query, path| {
        let first = queries[query].first_row();
        for (node, range) in path {
            let rows = first.max(range.start)..(first + queries[query].asked.len()).min(range.end);
            targets[*node].extend(rows.map(|row| AskedToken { row: row - range.start, query, answer: row - first }));
        }
    });
    for targets in &mut targets {
        targets.sort_unstable();
    }
    targets
}
