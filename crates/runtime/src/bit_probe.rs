//! Requests that check that a model's results are bit-identical, across schedules on one machine and across machines.

use probity_lm::{
    Ask, ContinuationAnswer, GenerateRequest, Label, LabelSet, LanguageModel, LmError, Prompt, Reading, Sampling,
    SamplingLimits, ScoreAnswer, ScoreRequest, ScoreResult, SinkError, Termination, Usage,
};
use sha2::{Digest as _, Sha256};

use crate::Model;
use crate::weights::hex;

/// Requests whose results are compared bit by bit.
#[derive(Debug, Clone)]
pub struct BitProbe {
    scores: Vec<ScoreRequest>,
    texts: Vec<GenerateRequest>,
}

/// Order in which the requests are run.
#[derive(Debug, Clone, Copy)]
pub enum ProbeOrder {
    /// In list order.
    AsGiven,
    /// Last first.
    Reversed,
    /// In a fixed pseudo-random order.
    Shuffled,
    /// Each in its own work list.
    OneByOne,
}

/// All numbers of a result, as bits.
pub type Bits = Vec<u64>;

/// SHA-256 over the numbers of a list, in hex, for comparison between machines.
pub fn bit_digest(numbers: &[Bits]) -> String {
    let mut digest = Sha256::new();
    for bits in numbers {
        // The length comes first, so that different lists never give the same bytes.
        digest.update((bits.len() as u64).to_le_bytes());
        for bits in bits {
            digest.update(bits.to_le_bytes());
        }
    }
    hex(&digest.finalize())
}

impl BitProbe {
    /// Built-in requests: prompts with shared prefixes, labels of several tokens, continuations, states and generated
    /// texts. For a class head, the classes of the same prompts.
    pub fn built_in(model: &Model) -> Self {
        let mut list = Self { scores: built_in_scores(), texts: built_in_texts() };
        if !model.description().classes.is_empty() {
            list.scores.iter_mut().for_each(|request| request.ask = Ask::Classes);
            list.texts.clear();
        }
        list
    }

    /// User-supplied requests.
    pub fn from_requests(scores: Vec<ScoreRequest>) -> Self {
        Self { scores, texts: Vec::new() }
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.scores.len() + self.texts.len()
    }

    /// Whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes the score requests that are invalid for the model and returns their number. One of them would end the
    /// whole list.
    pub fn retain_valid(&mut self, model: &Model) -> usize {
        let before = self.scores.len();
        self.scores.retain(|request| model.check(request).is_ok());
        before - self.scores.len()
    }

    /// Bytes of keys and values that the longest prompt needs with its answer.
    pub fn least_cache(&self, model: &Model) -> u64 {
        let scores = self.scores.iter().filter_map(|request| {
            let answer = match &request.ask {
                Ask::Labels(set) => {
                    // A token has at least one byte, so bytes bound the tokens of an answer without encoding it.
                    set.labels().iter().flat_map(|label| &label.variants).map(String::len).max().unwrap_or(0) + 1
                }
                Ask::Continuation(text) | Ask::Reading(Reading { text, .. }) => text.len(),
                Ask::Tokens(asked) => asked.ids.len(),
                // Nothing follows the whole prompt.
                Ask::Classes => return Some(model.encoder().encode_whole_prompt(&request.prompt).ok()?.len()),
            };
            Some(model.encoder().encode_prompt(&request.prompt).ok()?.len() + answer)
        });
        let texts =
            self.texts.iter().filter_map(|r| Some(model.encoder().encode_prompt(&r.prompt).ok()?.len() + r.max_tokens));
        // A prompt that exceeds the context has an outcome without numbers, so it needs no memory.
        let context = model.description().context_length.unwrap_or(usize::MAX);
        model.cache_bytes(scores.chain(texts).filter(|tokens| *tokens <= context).max().unwrap_or(0).max(1))
    }

    /// The numbers of every request, in list order. `interrupt` is called after each and ends the list with its error.
    pub fn numbers(
        &self,
        model: &Model,
        order: ProbeOrder,
        interrupt: &(dyn Fn() -> Result<(), SinkError> + Sync),
    ) -> Result<(Vec<Bits>, Usage), LmError> {
        let places = |len: usize| -> Vec<usize> {
            let mut places: Vec<usize> = (0..len).collect();
            match order {
                ProbeOrder::AsGiven | ProbeOrder::OneByOne => {}
                ProbeOrder::Reversed => places.reverse(),
                ProbeOrder::Shuffled => places.sort_by_key(|place| mix(*place as u64)),
            }
            places
        };
        let mut bits = vec![Bits::new(); self.len()];
        let mut usage = Usage::default();
        let (scores, texts) = (places(self.scores.len()), places(self.texts.len()));
        let chunk = if matches!(order, ProbeOrder::OneByOne) { 1 } else { usize::MAX };
        for places in scores.chunks(chunk) {
            let mut requests = places.iter().map(|place| self.scores[*place].clone());
            usage += model.score(&mut requests, &mut |index, result| {
                bits[places[index]] = score_bits(&result);
                interrupt()
            })?;
        }
        for places in texts.chunks(chunk) {
            let mut requests = places.iter().map(|place| self.texts[*place].clone());
            usage += model.generate(&mut requests, &mut |index, result| {
                let verdict = result.verdict.as_ref().map(score_bits).unwrap_or_default();
                let ids = result.token_ids.iter().map(|id| u64::from(*id));
                bits[self.scores.len() + places[index]] = ids.chain(verdict).collect();
                interrupt()
            })?;
        }
        Ok((bits, usage))
    }

    /// The first request whose numbers differ, and where.
    pub fn first_difference(&self, expected: &[Bits], got: &[Bits]) -> Option<String> {
        let place = expected.iter().zip(got).position(|(a, b)| a != b)?;
        let id =
            self.scores.get(place).map(|r| &r.id).or_else(|| self.texts.get(place - self.scores.len()).map(|r| &r.id));
        let (a, b) = (&expected[place], &got[place]);
        let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
        let shown = |bits: &Bits| {
            bits.get(at).map_or("none".to_owned(), |bits| format!("{bits:016x} ({})", f64::from_bits(*bits)))
        };
        Some(format!("`{}`, number {at}: {} is {}", id.map_or("", String::as_str), shown(a), shown(b)))
    }
}

/// A fixed pseudo-random order (the finaliser of `SplitMix64`).
fn mix(place: u64) -> u64 {
    let mut z = (place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Every number of a result. Results without an answer differ from all others, and from each other if their reasons
/// differ.
fn score_bits(result: &ScoreResult) -> Bits {
    let mut bits: Bits = result.outcome.name().bytes().map(u64::from).collect();
    bits.push(result.prompt_tokens as u64);
    match &result.answer {
        Some(ScoreAnswer::Labels(answer)) => {
            bits.extend(answer.labels.iter().flat_map(|label| [label.logprob.to_bits(), label.prob.to_bits()]));
            bits.push(answer.mass.to_bits());
        }
        Some(ScoreAnswer::Continuation(answer)) => {
            bits.extend(continuation_bits(answer));
        }
        Some(ScoreAnswer::Reading(answer)) => {
            bits.extend(continuation_bits(&answer.continuation));
            bits.extend(answer.states.iter().flat_map(|state| &state.values).map(|value| u64::from(value.to_bits())));
        }
        Some(ScoreAnswer::Tokens(answer)) => {
            bits.extend(continuation_bits(&answer.continuation));
            let others = answer.alternatives.iter().flatten();
            bits.extend(others.flat_map(|other| [u64::from(other.id), other.logprob.to_bits()]));
        }
        Some(ScoreAnswer::Classes(answer)) => bits.extend(answer.classes.iter().map(|class| class.logit.to_bits())),
        None => {}
    }
    bits
}

fn continuation_bits(answer: &ContinuationAnswer) -> impl Iterator<Item = u64> {
    let tokens = answer.token_logprobs.iter().map(|logprob| logprob.to_bits());
    tokens.chain([answer.logprob.to_bits(), u64::from(answer.is_greedy)])
}

/// Short enough for a context of 256 single characters.
fn built_in_scores() -> Vec<ScoreRequest> {
    let contexts = ["Text: The ferry did not run until the ice broke in March.\n", "Text: Bees count to four.\n"];
    let candidates = ["The ferry stopped for the winter.", "Bees can count.", "Ice is cold, says an old man."];
    let plain = LabelSet::from_words(["A", "B"]).expect("two labels");
    let long = LabelSet::new(vec![
        Label { name: "first".into(), variants: vec![" the first summary".into(), " First".into()] },
        Label { name: "second".into(), variants: vec![" my own choice is the second one".into()] },
    ])
    .expect("two labels")
    .with_termination(Termination::Open);
    let mut requests = Vec::new();
    for (c, context) in contexts.iter().enumerate() {
        for (i, a) in candidates.iter().enumerate() {
            // All pairs of the first context, two of the second.
            for (j, b) in candidates.iter().enumerate().filter(|(j, _)| *j != i && (c == 0 || i + 1 == *j)) {
                let prompt = Prompt::Text(format!("{context}A: {a}\nB: {b}\nBetter:"));
                let labels = if j % 2 == 0 { plain.clone() } else { long.clone() };
                requests.push(ScoreRequest {
                    id: format!("context {c}, {i} and {j}"),
                    prompt,
                    ask: Ask::Labels(labels),
                });
            }
            if c == 0 {
                let prompt = Prompt::Text(format!("{context}Summary:"));
                requests.push(ScoreRequest {
                    id: format!("context {c}, {i} itself"),
                    prompt,
                    ask: Ask::Continuation(format!(" {a}")),
                });
                requests.push(ScoreRequest {
                    id: format!("context {c}, {i} and its states"),
                    prompt: Prompt::Text(format!("{context}A summary:")),
                    ask: Ask::Reading(Reading { text: format!(" {a}"), layers: vec![1] }),
                });
            }
        }
    }
    requests
}

fn built_in_texts() -> Vec<GenerateRequest> {
    let prompts = ["The ferry did not run until", "The ferry did not", "Bees"];
    let request = |(index, text): (usize, &&str)| {
        let greedy = GenerateRequest::greedy(format!("text {index}"), Prompt::Text((*text).to_owned()), 16 + index);
        let sampling = if index == 2 {
            Sampling::Random { temperature: 0.8, limits: SamplingLimits::default(), seed: 7 }
        } else {
            Sampling::Greedy
        };
        GenerateRequest { sampling, ..greedy }
    };
    prompts.iter().enumerate().map(request).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_bit_is_found_and_named() {
        let list = BitProbe { scores: built_in_scores(), texts: built_in_texts() };
        let bits: Vec<Bits> = (0..list.len()).map(|k| vec![k as u64, 1.5f64.to_bits()]).collect();
        assert_eq!(list.first_difference(&bits, &bits), None);
        let digest = bit_digest(&bits);
        let mut other = bits.clone();
        other[1][1] ^= 1;
        assert!(digest.len() == 64 && bit_digest(&other) != digest && bit_digest(&bits) == digest);
        let told = list.first_difference(&bits, &other).expect("a difference");
        assert!(told.contains(&list.scores[1].id) && told.contains("number 1: 3ff8000000000000 (1.5)"), "{told}");
        other[1] = bits[1].clone();
        other.last_mut().expect("texts").pop();
        assert!(list.first_difference(&bits, &other).expect("a difference").contains("`text 2`, number 1"));
    }
}
