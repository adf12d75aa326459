//! Text generation: prompts prefilled over their prefix tree, then decoded side by side, a token each per step.

use std::sync::Arc;

use probity_lm::{Finish, Sampling, Usage};
use probity_models::{Decoder, KvSpan, PackedSegment};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::token_scores::{Logits, Schedule};
use super::tree::{PrefixTree, Sequence};
use super::walk::{Visit, WalkError, walk};

/// Prompts that are decoded side by side.
const GROUP: usize = 32;
/// Single-token spans that are joined into one.
const JOIN: usize = 16;

/// A prompt in tokens, and how to go on from it.
pub(crate) struct TokenPrompt {
    pub(crate) tokens: Vec<u32>,
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
    generated: Vec<u32>,
}

impl<'a> Decoding<'a> {
    fn new(index: usize, prompt: &'a TokenPrompt, path: Vec<Arc<KvSpan>>) -> Self {
        let random = match prompt.sampling {
            Sampling::Greedy => None,
            Sampling::Random { temperature, seed } => Some((temperature, ChaCha8Rng::seed_from_u64(seed))),
        };
        Self { prompt, index, random, path, generated: Vec::new() }
    }

    /// Takes the next token from its logits; the result where that ends the text.
    fn advance(&mut self, logits: &Logits, row: usize, vocabulary: &Vocabulary<'_>) -> Option<Generated> {
        if !logits.is_finite(row) {
            return Some(self.end(vocabulary, None));
        }
        let token = match &mut self.random {
            None => logits.greedy(row) as u32,
            Some((temperature, random)) => sample(logits.row(row), *temperature, random.random::<f64>()),
        };
        if vocabulary.ends.contains(&token) {
            return Some(self.end(vocabulary, Some(Finish::EndOfTurn)));
        }
        self.generated.push(token);
        let text = (vocabulary.decode)(&self.generated);
        if let Some(at) = self.prompt.stop.iter().filter_map(|stop| text.find(stop)).min() {
            let generated = std::mem::take(&mut self.generated);
            return Some(Generated { token_ids: generated, text: text[..at].to_owned(), finish: Some(Finish::Stop) });
        }
        (self.generated.len() >= self.prompt.max_tokens).then(|| self.end(vocabulary, Some(Finish::Length)))
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
/// Each `max_tokens` is at least 1 and fits the model's context behind its prompt.
pub(crate) fn generate<E>(
    model: &dyn Decoder,
    prompts: &[TokenPrompt],
    vocabulary: &Vocabulary<'_>,
    schedule: Schedule,
    done: &mut dyn FnMut(usize, Generated) -> Result<(), E>,
) -> Result<Usage, WalkError<E>> {
    let mut usage = Usage::default();
    for (group, prompts) in prompts.chunks(GROUP).enumerate() {
        let alone = |index: usize| if schedule.share_prefixes { 0 } else { index };
        let sequences = prompts.iter().enumerate().map(|(index, p)| Sequence { tokens: &p.tokens, group: alone(index) });
        let tree = PrefixTree::new(sequences.collect());
        usage.tokens_computed += tree.token_count();
        usage.tokens_unshared += prompts.iter().map(|p| p.tokens.len() as u64).sum::<u64>();
        let mut active = Vec::new();
        let last = |node: usize| if tree.node(node).ends.is_empty() { Vec::new() } else { vec![tree.tokens(node).len() - 1] };
        let mut visit = |visit: Visit<'_>| -> Result<(), WalkError<E>> {
            if !visit.complete || visit.wanted.is_empty() {
                return Ok(());
            }
            let logits = Logits::new(model, &visit.hidden)?;
            for &index in &tree.node(visit.node).ends {
                let mut decoding = Decoding::new(group * GROUP + index, &prompts[index], visit.path.to_vec());
                match decoding.advance(&logits, 0, vocabulary) {
                    Some(generated) => done(decoding.index, generated).map_err(WalkError::Visitor)?,
                    None => active.push(decoding),
                }
            }
            Ok(())
        };
        walk(model, &tree, schedule.token_budget, &last, &mut visit).map_err(|error| match error {
            WalkError::Model(error) => WalkError::Model(error),
            WalkError::Visitor(error) => error,
        })?;
        while !active.is_empty() {
            usage.tokens_computed += active.len() as u64;
            usage.tokens_unshared += active.len() as u64;
            active = step(model, active, vocabulary, done)?;
        }
    }
    Ok(usage)
}

/// One token more for each; those that go on.
fn step<'a, E>(
    model: &dyn Decoder,
    mut active: Vec<Decoding<'a>>,
    vocabulary: &Vocabulary<'_>,
    done: &mut dyn FnMut(usize, Generated) -> Result<(), E>,
) -> Result<Vec<Decoding<'a>>, WalkError<E>> {
    let segment = |d: &Decoding<'_>| {
        let token = *d.generated.last().expect("an active text has a token");
        PackedSegment { past: d.path.clone(), tokens: vec![token], wanted: vec![0] }
    };
    let output = model.forward(&active.iter().map(segment).collect::<Vec<_>>())?;
    let logits = Logits::new(model, &output.hidden)?;
    let mut going = Vec::with_capacity(active.len());
    for (row, (mut decoding, span)) in active.drain(..).zip(output.spans).enumerate() {
        decoding.path.push(span);
        if let Some(generated) = decoding.advance(&logits, row, vocabulary) {
            done(decoding.index, generated).map_err(WalkError::Visitor)?;
            continue;
        }
        let singles = decoding.path.iter().rev().take_while(|span| span.len() == 1).count();
        if singles == JOIN {
            let joined = model.join(&decoding.path[decoding.path.len() - JOIN..])?;
            decoding.path.truncate(decoding.path.len() - JOIN);
            decoding.path.push(joined);
        }
        going.push(decoding);
    }
    Ok(going)
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
