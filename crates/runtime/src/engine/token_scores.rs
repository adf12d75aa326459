//! Log-probabilities of tokens in context: the one question that labels and continuations come down to.

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

/// Tokens that are asked for, one after another, and what stands before the last of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenQuery {
    /// What the model must see: the prompt, and the tokens that are asked for but the last. Queries for one token share
    /// it. Where states are wanted, the last token too.
    pub(crate) seen: Arc<[u32]>,
    /// How many of these an encoder reads; 0 in a model without one.
    pub(crate) source: usize,
    /// At least one token, and at least one token of the prompt stands before it.
    pub(crate) asked: Vec<u32>,
    /// The layers behind which the states of these tokens are wanted; mostly none.
    pub(crate) layers: Vec<usize>,
    /// How many of the likeliest tokens are wanted at the place of each that is asked for; mostly none.
    pub(crate) alternatives: usize,
    /// Which request it belongs to: the queries of one request always share their beginning.
    pub(crate) request: usize,
}

impl TokenQuery {
    /// The row, by its place in `seen`, after which the first token is asked for.
    pub(super) fn first_row(&self) -> usize {
        self.seen.len() - self.asked.len() - usize::from(!self.layers.is_empty())
    }
}

/// The answer for one token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TokenScore {
    /// The token's logit.
    pub(crate) logit: f32,
    /// log P(token | before) under the full vocabulary; not finite where the model's logits were not.
    pub(crate) logprob: f64,
    /// The most probable token here, the lowest id among equals.
    pub(crate) greedy: u32,
    /// Whether that is this token.
    pub(crate) is_greedy: bool,
}

impl TokenScore {
    /// Of a token with that logit.
    pub(super) fn new(row: &HeadRow, token: u32, logit: f32) -> Self {
        Self { logit, logprob: f64::from(logit) - row.normaliser, greedy: row.greedy, is_greedy: row.greedy == token }
    }
}

/// What a query came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct QueryAnswer {
    /// Of each token.
    pub(crate) scores: Vec<TokenScore>,
    /// Of each layer, `(hidden_size)`: the mean over the tokens.
    pub(crate) states: Vec<Vec<f32>>,
    /// At the place of each token, where they are wanted.
    pub(crate) alternatives: Vec<Vec<LikelyToken>>,
}

impl QueryAnswer {
    /// Whether all of it are numbers.
    pub(crate) fn is_finite(&self) -> bool {
        self.scores.iter().all(|score| score.logprob.is_finite())
            && self.states.iter().flatten().all(|value| value.is_finite())
    }
}

/// How a work list is run. None of it changes a result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScheduleOptions<'a> {
    /// Tokens that run at once, and bytes of cache that live at once.
    pub(crate) limits: ScheduleLimits,
    /// Whether shared prefixes are computed once.
    pub(crate) share_prefixes: bool,
    /// What is kept for lists to come.
    pub(crate) kept: Option<&'a KeptPrefixes>,
    /// Whether tokens of texts are guessed ahead.
    pub(crate) drafting: Drafting,
    /// Texts that are written side by side, at most.
    pub(crate) side_by_side: usize,
    /// Told what is to be computed.
    pub(crate) progress: &'a TokenProgress,
}

/// The tree of all that a model must see to answer the queries.
fn tree(queries: &[TokenQuery], share: bool) -> PrefixTree<'_> {
    let alone = |query: usize| if share { 0 } else { queries[query].request };
    PrefixTree::new(in_groups(queries.iter().map(|query| (&*query.seen, query.source)), alone))
}

/// A token asked for after a node's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct AskedToken {
    /// Offset of the row within the node.
    row: usize,
    query: usize,
    /// Which of the query's answers.
    answer: usize,
}

/// Answers each query through `done`, in the order in which they finish.
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
    // Tokens without an answer, and tokens whose states were not seen.
    let read = |query: &TokenQuery| if query.layers.is_empty() { 0 } else { query.asked.len() };
    let mut open: Vec<usize> = queries.iter().map(|query| query.asked.len() + read(query)).collect();
    let pooled = PooledStates::new(&tree, queries);
    let layers = pooled.layers().to_vec();
    let first = |node: usize| targets[node].first().map_or(tree.tokens(node).len(), |target| target.row);
    let reused = match schedule.kept {
        // States are of all tokens that are read.
        Some(kept) if layers.is_empty() => kept.reuse(model, &tree, &first)?,
        kept => ReusedNodes::nothing(kept),
    };
    let tokens_computed = tree.token_count() - reused.token_count();
    schedule.progress.plan(queries.len(), tokens_computed);
    // Seen on the model's threads, and taken on this one when they have come back: nobody ever waits.
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
                    // Of the queries of a row one may want more than another.
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
    // A request's own queries share their prompt even so: nobody would compute it once for each label.
    let tokens_unshared = self::tree(queries, false).token_count();
    Ok(Usage { tokens_unshared, tokens_computed, peak_cache_bytes, ..Usage::default() })
}

/// What it would cost to answer the queries, and how many rows the output head would run over. Nothing is computed.
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

/// What is asked of each node, by row.
fn targets(tree: &PrefixTree<'_>, queries: &[TokenQuery]) -> Vec<Vec<AskedToken>> {
    let mut targets: Vec<Vec<AskedToken>> = vec![Vec::new(); tree.len()];
    // Each query's tokens lie along one path from the root: each node gets the rows that fall into it.
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
