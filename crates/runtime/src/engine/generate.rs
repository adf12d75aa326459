//! Text generation: prompts prefilled over their prefix tree, then decoded side by side, a token each per step.

use std::collections::BTreeMap;
use std::sync::Arc;

use candle_core::{CpuStorage, Storage, Tensor};
use probity_lm::{Finish, Sampling, Usage};
use probity_models::{Decoder, KvSpan, PackedSegment};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::scheduler::{Limits, bytes_in_pieces};
use super::token_scores::Schedule;
use super::tree::{PrefixTree, in_groups};
use super::walk::{Computed, WalkError, walk};

/// Texts that are decoded side by side at most: with more, products gain nothing and first results only come later.
pub(crate) const SIDE_BY_SIDE: usize = 128;
/// Rows of logits that are held at a time.
const LOGIT_ROWS: usize = 64;
/// Single-token spans that are joined into one.
const JOIN: usize = 16;

/// A prompt in tokens, and how to go on from it.
pub(crate) struct TokenPrompt {
    pub(crate) tokens: Vec<u32>,
    /// How many of these an encoder reads; 0 in a model without one.
    pub(crate) source: usize,
    pub(crate) max_tokens: usize,
    pub(crate) stop: Vec<String>,
    pub(crate) sampling: Sampling,
}

/// What was generated; `finish` is absent where the model's logits were not finite.
pub(crate) struct Generated {
    pub(crate) token_ids: Vec<u32>,
    pub(crate) text: String,
    pub(crate) finish: Option<Finish>,
}

/// What generation needs to know of the tokenizer.
pub(crate) struct Vocabulary<'a> {
    pub(crate) decode: &'a dyn Fn(&[u32]) -> String,
    pub(crate) ends: &'a [u32],
}

/// A prompt that is being continued.
struct Decoding<'a> {
    prompt: &'a TokenPrompt,
    index: usize,
    random: Option<(f64, ChaCha8Rng)>,
    path: Vec<Arc<KvSpan>>,
    /// How many spans of the path are the prompt's.
    prompt_spans: usize,
    generated: Vec<u32>,
}

impl<'a> Decoding<'a> {
    fn new(index: usize, prompt: &'a TokenPrompt, path: Vec<Arc<KvSpan>>) -> Self {
        let random = match prompt.sampling {
            Sampling::Greedy => None,
            Sampling::Random { temperature, seed, .. } => Some((temperature, ChaCha8Rng::seed_from_u64(seed))),
        };
        Self { prompt, index, random, prompt_spans: path.len(), path, generated: Vec::new() }
    }

    /// Goes on with the next token, absent where the logits were not finite; the result where that ends the text.
    fn advance(&mut self, token: Option<u32>, vocabulary: &Vocabulary<'_>) -> Option<Generated> {
        let Some(token) = token else { return Some(self.end(vocabulary, None)) };
        if vocabulary.ends.contains(&token) {
            return Some(self.end(vocabulary, Some(Finish::EndOfTurn)));
        }
        self.generated.push(token);
        if let Some(text) = self.text_before_stop(vocabulary) {
            let token_ids = std::mem::take(&mut self.generated);
            return Some(Generated { token_ids, text, finish: Some(Finish::Stop) });
        }
        (self.generated.len() >= self.prompt.max_tokens).then(|| self.end(vocabulary, Some(Finish::Length)))
    }

    /// The text up to the first stop sequence where there is one in it.
    fn text_before_stop(&self, vocabulary: &Vocabulary<'_>) -> Option<String> {
        if self.prompt.stop.is_empty() {
            return None;
        }
        let mut text = (vocabulary.decode)(&self.generated);
        let at = self.prompt.stop.iter().filter_map(|stop| text.find(stop)).min()?;
        text.truncate(at);
        Some(text)
    }

    fn end(&mut self, vocabulary: &Vocabulary<'_>, finish: Option<Finish>) -> Generated {
        let token_ids = std::mem::take(&mut self.generated);
        let text = (vocabulary.decode)(&token_ids);
        Generated { token_ids, text, finish }
    }
}

/// Draws from softmax(logits / temperature): the first token at which the cumulated probability, in order of ids, exceeds `uniform`.
fn sample(logits: &[f32], temperature: f64, uniform: f64) -> u32 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = logits.iter().map(|l| libm::exp((f64::from(*l) - f64::from(max)) / temperature)).collect();
    let mut left = uniform * weights.iter().sum::<f64>();
    let mut last = 0;
    for (id, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        last = id;
        if left < *weight {
            break;
        }
        left -= weight;
    }
    last as u32
}

/// Continues each prompt; results through `done`, in the order in which they finish.
///
/// Each `max_tokens` is at least 1 and fits the model's context behind its prompt. As many texts are decoded side by side as the cache has
/// room for, at least one; when half of the most are done, more are begun. Prompts that are begun together share their beginnings.
pub(crate) fn generate<E>(
    model: &dyn Decoder,
    prompts: &[TokenPrompt],
    vocabulary: &Vocabulary<'_>,
    schedule: Schedule<'_>,
    done: &mut dyn FnMut(usize, Generated) -> Result<(), E>,
) -> Result<Usage, WalkError<E>> {
    let mut generation = Generation { model, vocabulary, schedule, done, active: Vec::new(), usage: Usage::default() };
    let mut begun = 0;
    while begun < prompts.len() || !generation.active.is_empty() {
        if generation.active.len() <= SIDE_BY_SIDE / 2 && begun < prompts.len() {
            let count = generation.admit(&prompts[begun..]);
            generation.begin(&prompts[begun..begun + count], begun)?;
            begun += count;
        }
        generation.step()?;
    }
    Ok(generation.usage)
}

/// Texts in the making.
struct Generation<'a, 'd, E> {
    model: &'d dyn Decoder,
    vocabulary: &'d Vocabulary<'d>,
    schedule: Schedule<'d>,
    done: &'d mut dyn FnMut(usize, Generated) -> Result<(), E>,
    active: Vec<Decoding<'a>>,
    usage: Usage,
}

impl<'a, E> Generation<'a, '_, E> {
    /// How many of the prompts are begun now.
    fn admit(&mut self, prompts: &[TokenPrompt]) -> usize {
        let (count, set_aside) = admit(self.model, prompts, self.schedule, self.active.len(), self.set_aside());
        self.usage.peak_cache_bytes = self.usage.peak_cache_bytes.max(set_aside);
        count
    }

    /// Bytes of cache that are set aside for the active texts: their prompts' spans, and all that they may come to hold besides.
    fn set_aside(&self) -> u64 {
        let prompts = self.active.iter().flat_map(|text| &text.path[..text.prompt_spans]);
        let spans: BTreeMap<*const KvSpan, usize> = prompts.map(|span| (Arc::as_ptr(span), span.len())).collect();
        let held: u64 = spans.values().map(|len| self.model.cache_bytes(*len) as u64).sum();
        held + self.active.iter().map(|text| growth_bytes(self.model, text.prompt.max_tokens)).sum::<u64>()
    }

    /// Runs the prompts, which stand in the work list from `first` on, and takes their first tokens.
    fn begin(&mut self, prompts: &'a [TokenPrompt], first: usize) -> Result<(), WalkError<E>> {
        let tree = tree(prompts, self.schedule.share_prefixes);
        self.usage.tokens_computed += tree.token_count();
        self.schedule.progress.plan(tree.token_count() + prompts.iter().map(|prompt| prompt.max_tokens as u64).sum::<u64>());
        self.usage.tokens_unshared += prompts.iter().map(|p| p.tokens.len() as u64).sum::<u64>();
        let last = |node: usize| if tree.node(node).ends.is_empty() { Vec::new() } else { vec![tree.tokens(node).len() - 1] };
        // What the texts hold was set aside for them.
        let limits = Limits { cache: u64::MAX, ..self.schedule.limits };
        let model = self.model;
        let mut visit = |computed: Computed<'_>| -> Result<(), WalkError<E>> {
            let ended = computed.stretches.iter().filter(|(_, wanted)| !wanted.is_empty()).map(|(stretch, _)| stretch.node);
            let mut texts = Vec::new();
            for (row, node) in ended.enumerate() {
                let path = computed.path(node);
                texts.extend(tree.node(node).ends.iter().map(|end| (row, Decoding::new(first + end, &prompts[*end], path.clone()))));
            }
            self.advance(computed.hidden, texts)
        };
        walk(model, &tree, limits, &last, &mut visit).map(|_| ())
    }

    /// One token more for each.
    fn step(&mut self) -> Result<(), WalkError<E>> {
        if self.active.is_empty() {
            return Ok(());
        }
        let mut texts = std::mem::take(&mut self.active);
        self.usage.tokens_computed += texts.len() as u64;
        self.usage.tokens_unshared += texts.len() as u64;
        let segment = |d: &Decoding<'_>| {
            let token = *d.generated.last().expect("an active text has a token");
            PackedSegment { past: d.path.clone(), tokens: vec![token], wanted: vec![0] }
        };
        let output = self.model.forward(&texts.iter().map(segment).collect::<Vec<_>>())?;
        for (text, span) in texts.iter_mut().zip(output.spans) {
            text.path.push(span);
            if text.path[text.prompt_spans..].iter().rev().take_while(|span| span.len() == 1).count() == JOIN {
                let joined = self.model.join(&text.path[text.path.len() - JOIN..])?;
                text.path.truncate(text.path.len() - JOIN);
                text.path.push(joined);
            }
        }
        self.advance(&output.hidden, texts.into_iter().enumerate().collect())
    }

    /// Takes the next token of each text, which stands beside its row of hidden states.
    fn advance(&mut self, hidden: &Tensor, mut texts: Vec<(usize, Decoding<'a>)>) -> Result<(), WalkError<E>> {
        if texts.is_empty() {
            return Ok(());
        }
        let tokens = next_tokens(self.model, hidden, &mut texts)?;
        for ((_, mut text), token) in texts.into_iter().zip(tokens) {
            match text.advance(token, self.vocabulary) {
                Some(generated) => {
                    self.schedule.progress.skip((text.prompt.max_tokens - generated.token_ids.len()) as u64);
                    (self.done)(text.index, generated).map_err(WalkError::Visitor)?;
                }
                None => self.active.push(text),
            }
        }
        Ok(())
    }
}

/// The next token of each text from its row of hidden states: the most probable one, the lowest id among equals, or one that is drawn.
/// Absent where the row's logits are not finite.
fn next_tokens(model: &dyn Decoder, hidden: &Tensor, texts: &mut [(usize, Decoding<'_>)]) -> candle_core::Result<Vec<Option<u32>>> {
    let rows = model.head(hidden, &vec![Vec::new(); hidden.dim(0)?])?;
    let greedy = |(row, _): &(usize, _)| Some(&rows[*row]).filter(|row| row.normaliser.is_finite()).map(|row| row.greedy);
    let mut tokens: Vec<Option<u32>> = texts.iter().map(greedy).collect();
    // Whole rows of logits are only there for those that draw.
    let drawing =
        texts.iter_mut().zip(&mut tokens).filter_map(|((row, text), token)| Some((*row as u32, text.random.as_mut()?, token.as_mut()?)));
    for part in drawing.collect::<Vec<_>>().chunks_mut(LOGIT_ROWS) {
        let rows: Vec<u32> = part.iter().map(|(row, ..)| *row).collect();
        let logits = model.logits(&hidden.index_select(&Tensor::new(rows, hidden.device())?, 0)?)?;
        let values = into_f32(&logits)?;
        for ((_, (temperature, random), token), logits) in part.iter_mut().zip(values.chunks_exact(logits.dim(1)?)) {
            **token = sample(logits, *temperature, random.random());
        }
    }
    Ok(tokens)
}

/// How many of the prompts can be begun beside so many active texts, for which so many bytes are set aside: as many as there is room for, at
/// least one where nothing else is going on; and the bytes that are set aside then.
fn admit(model: &dyn Decoder, prompts: &[TokenPrompt], schedule: Schedule<'_>, active: usize, mut set_aside: u64) -> (usize, u64) {
    let bytes_of = |tokens| model.cache_bytes(tokens) as u64;
    let mut count = 0;
    while let Some(prompt) = prompts.get(count).filter(|_| active + count < SIDE_BY_SIDE) {
        // What it shares with the prompt before it is there already; where the two part, a span is cut.
        let before = count.checked_sub(1).filter(|_| schedule.share_prefixes).map(|before| &prompts[before]);
        let before = before.filter(|before| before.tokens[..before.source] == prompt.tokens[..prompt.source]);
        let shared = before.map_or(0, |before| before.tokens.iter().zip(&prompt.tokens).take_while(|(a, b)| a == b).count());
        let piece = schedule.limits.tokens.max(prompt.source);
        let own = bytes_in_pieces(prompt.tokens.len() - shared, piece, &bytes_of) + bytes_of(1);
        let bytes = set_aside + own + growth_bytes(model, prompt.max_tokens);
        if bytes > schedule.limits.cache && active + count > 0 {
            break;
        }
        set_aside = bytes;
        count += 1;
    }
    (count, set_aside)
}

/// What it would cost to continue the prompts if every text went on to its limit, in groups that begin and end together. Nothing is computed.
pub(crate) fn plan_texts(model: &dyn Decoder, prompts: &[TokenPrompt], schedule: Schedule<'_>) -> Usage {
    let mut usage = Usage::default();
    let mut left = prompts;
    while !left.is_empty() {
        let (count, set_aside) = admit(model, left, schedule, 0, 0);
        let (group, rest) = left.split_at(count);
        let generated: u64 = group.iter().map(|prompt| prompt.max_tokens as u64).sum();
        let prompts: u64 = group.iter().map(|prompt| prompt.tokens.len() as u64).sum();
        let tokens_computed = tree(group, schedule.share_prefixes).token_count() + generated;
        usage += Usage {
            tokens_unshared: prompts + generated,
            tokens_computed,
            peak_cache_bytes: set_aside,
            tokens_generated: generated,
            ..Usage::default()
        };
        left = rest;
    }
    usage
}

/// The tree of all prompts.
fn tree(prompts: &[TokenPrompt], share: bool) -> PrefixTree<'_> {
    let alone = |index: usize| if share { 0 } else { index };
    PrefixTree::new(in_groups(prompts.iter().map(|prompt| (prompt.tokens.as_slice(), prompt.source)), alone))
}

/// Bytes that a text of so many tokens may come to hold: joined spans, and single ones while they are joined.
fn growth_bytes(model: &dyn Decoder, tokens: usize) -> u64 {
    (tokens.div_ceil(JOIN) * model.cache_bytes(JOIN) + JOIN * model.cache_bytes(1)) as u64
}

/// The elements of a matrix, row by row.
fn into_f32(tensor: &Tensor) -> candle_core::Result<Vec<f32>> {
    let (storage, layout) = tensor.storage_and_layout();
    if let (Storage::Cpu(CpuStorage::F32(values)), Some((start, end))) = (&*storage, layout.contiguous_offsets()) {
        return Ok(values[start..end].to_vec());
    }
    drop(storage);
    tensor.flatten_all()?.to_vec1()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_follow_the_distribution_and_never_fall_on_the_impossible() {
        let logits = [0.0, 3f32.ln(), f32::NEG_INFINITY];
        let drawn = |u| sample(&logits, 1.0, u);
        assert_eq!((drawn(0.0), drawn(0.249), drawn(0.251), drawn(0.999_999_999)), (0, 0, 1, 1));
        assert_eq!(sample(&logits, 1e-3, 0.001), 1, "a low temperature is greedy");
    }
}
