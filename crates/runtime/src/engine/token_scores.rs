//! Log-probabilities of tokens in context: the one question that labels and continuations come down to.

use candle_core::{CpuStorage, Storage, Tensor};
use probity_lm::Usage;
use probity_models::Decoder;

use super::tree::{PrefixTree, Sequence};
use super::walk::{Visit, WalkError, walk};

/// A token sequence whose tokens from `from` on are asked for. `from` is at least 1: something must stand before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenQuery {
    pub(crate) tokens: Vec<u32>,
    pub(crate) from: usize,
    /// Which request it belongs to: the queries of one request always share their beginning.
    pub(crate) request: usize,
}

/// The answer for one token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TokenScore {
    /// log P(token | before) under the full vocabulary; not finite where the model's logits were not.
    pub(crate) logprob: f64,
    /// Whether it is the most probable token, the lowest id among equals.
    pub(crate) is_greedy: bool,
}

/// How a work list is run. None of it changes a result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    /// Tokens that run at once.
    pub(crate) token_budget: usize,
    /// Whether shared prefixes are computed once.
    pub(crate) share_prefixes: bool,
}

/// Rows of logits that are held at a time.
const LOGIT_ROWS: usize = 64;

fn tree(queries: &[TokenQuery], share: bool) -> PrefixTree<'_> {
    // The last token is only asked for, never seen.
    let seen = |q: &TokenQuery| q.tokens.len() - 1;
    let group = |q: &TokenQuery| if share { 0 } else { q.request };
    PrefixTree::new(queries.iter().map(|q| Sequence { tokens: &q.tokens[..seen(q)], group: group(q) }).collect())
}

/// A token asked for after a node's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    /// Offset of the row within the node.
    row: usize,
    query: usize,
    /// Which of the query's answers.
    answer: usize,
}

/// Answers each query through `done`, in the order in which they finish.
pub(crate) fn score_tokens<E>(
    model: &dyn Decoder,
    queries: &[TokenQuery],
    schedule: Schedule,
    done: &mut dyn FnMut(usize, Vec<TokenScore>) -> Result<(), E>,
) -> Result<Usage, WalkError<E>> {
    let tree = tree(queries, schedule.share_prefixes);
    let targets = targets(&tree, queries);
    let rows = |node: usize| {
        let mut rows: Vec<usize> = targets[node].iter().map(|t| t.row).collect();
        rows.dedup();
        rows
    };
    let unanswered = TokenScore { logprob: f64::NAN, is_greedy: false };
    let mut answers: Vec<Vec<TokenScore>> = queries.iter().map(|q| vec![unanswered; q.tokens.len() - q.from]).collect();
    let mut open: Vec<usize> = answers.iter().map(Vec::len).collect();
    let mut visit = |visit: Visit<'_>| -> Result<(), WalkError<E>> {
        let mut finished = Vec::new();
        for (part, wanted) in visit.wanted.chunks(LOGIT_ROWS).enumerate() {
            let logits = Logits::new(model, &visit.hidden.narrow(0, part * LOGIT_ROWS, wanted.len())?)?;
            for (index, row) in wanted.iter().enumerate() {
                let first = targets[visit.node].partition_point(|t| t.row < *row);
                for target in targets[visit.node][first..].iter().take_while(|t| t.row == *row) {
                    let query = &queries[target.query];
                    answers[target.query][target.answer] = logits.score(index, query.tokens[query.from + target.answer]);
                    open[target.query] -= 1;
                    if open[target.query] == 0 {
                        finished.push(target.query);
                    }
                }
            }
        }
        finished.sort_unstable();
        finished.into_iter().try_for_each(|query| done(query, std::mem::take(&mut answers[query])).map_err(WalkError::Visitor))
    };
    walk(model, &tree, schedule.token_budget, &rows, &mut visit).map_err(|error| match error {
        WalkError::Model(error) => WalkError::Model(error),
        WalkError::Visitor(error) => error,
    })?;
    let tokens_unshared = self::tree(queries, false).token_count();
    Ok(Usage { tokens_unshared, tokens_computed: tree.token_count() })
}

/// What is asked of each node, by row.
fn targets(tree: &PrefixTree<'_>, queries: &[TokenQuery]) -> Vec<Vec<Target>> {
    let mut targets: Vec<Vec<Target>> = vec![Vec::new(); tree.len()];
    // Each query's tokens lie along one path from the root: walk all paths, and give each node the rows that fall into it.
    let mut stack = vec![(0, 0, Vec::new())];
    while let Some((node, start, path)) = stack.pop() {
        let end = start + tree.tokens(node).len();
        let mut path: Vec<(usize, usize, usize)> = path;
        path.push((node, start, end));
        for &query in &tree.node(node).ends {
            let first = queries[query].from - 1;
            for &(node, start, end) in &path {
                let rows = first.max(start)..end;
                targets[node].extend(rows.map(|row| Target { row: row - start, query, answer: row - first }));
            }
        }
        stack.extend(tree.children(node).iter().map(|child| (*child, end, path.clone())));
    }
    for targets in &mut targets {
        targets.sort_unstable();
    }
    targets
}

/// Logits of a few rows over the whole vocabulary, with their normalisers.
pub(crate) struct Logits {
    values: Vec<f32>,
    vocab_size: usize,
    normalisers: Vec<f64>,
}

impl Logits {
    /// Runs the output head over hidden states `(rows, hidden_size)`.
    pub(crate) fn new(model: &dyn Decoder, hidden: &Tensor) -> candle_core::Result<Self> {
        let logits = model.logits(&hidden.contiguous()?)?;
        let vocab_size = logits.dim(1)?;
        let values = into_f32(&logits)?;
        let normalisers = model.normalisers(&logits)?;
        Ok(Self { values, vocab_size, normalisers })
    }

    /// The logits of one row.
    pub(crate) fn row(&self, index: usize) -> &[f32] {
        &self.values[index * self.vocab_size..][..self.vocab_size]
    }

    /// The most probable token of a row, the lowest id among equals.
    pub(crate) fn greedy(&self, index: usize) -> usize {
        let row = self.row(index);
        row.iter().enumerate().fold(0, |best, (id, logit)| if *logit > row[best] { id } else { best })
    }

    fn score(&self, index: usize, token: u32) -> TokenScore {
        let logprob = f64::from(self.row(index)[token as usize]) - self.normalisers[index];
        TokenScore { logprob, is_greedy: self.greedy(index) == token as usize }
    }

    /// Whether every logit of the row is a number.
    pub(crate) fn is_finite(&self, index: usize) -> bool {
        self.normalisers[index].is_finite()
    }
}

fn into_f32(tensor: &Tensor) -> candle_core::Result<Vec<f32>> {
    let (storage, layout) = tensor.storage_and_layout();
    if let (Storage::Cpu(CpuStorage::F32(values)), Some((start, end))) = (&*storage, layout.contiguous_offsets()) {
        return Ok(values[start..end].to_vec());
    }
    drop(storage);
    tensor.flatten_all()?.to_vec1()
}
