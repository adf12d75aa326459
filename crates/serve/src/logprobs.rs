//! Log-probabilities of tokens in the forms of `OpenAI`'s API.

use std::fmt::Write as _;

use probity_lm::{TokenAlternative, TokensAnswer};
use serde_json::Map;

use crate::answers::Written;
use crate::served::ServedModel;
use crate::wire::chat::{ChatAlternative, ChatLogprobs, ChatToken};
use crate::wire::completions::CompletionLogprobs;

/// What stands for minus infinity, which JSON does not have.
const IMPOSSIBLE: f64 = -9999.0;

fn told(logprob: f64) -> f64 {
    logprob.max(IMPOSSIBLE)
}

fn bytes(model: &dyn ServedModel, id: u32) -> Vec<u8> {
    model.token_bytes(id).unwrap_or_else(|| model.token_text(id).into_bytes())
}

/// A token as completions write it: those that are a part of a character by their bytes, so that no two are alike.
fn spelled(model: &dyn ServedModel, id: u32) -> String {
    String::from_utf8(bytes(model, id)).unwrap_or_else(|error| {
        let mut spelling = "bytes:".to_owned();
        for byte in error.as_bytes() {
            let _ = write!(spelling, "\\x{byte:02x}");
        }
        spelling
    })
}

/// The tokens of a text that was told, one by one, with where each begins.
struct Telling<'a> {
    model: &'a dyn ServedModel,
    /// Likeliest tokens beside each.
    count: usize,
    told: CompletionLogprobs,
    characters: usize,
}

impl Telling<'_> {
    /// The next token, with what is known of its place.
    fn tell(&mut self, id: u32, place: Option<(f64, &[TokenAlternative])>) {
        let spelling = spelled(self.model, id);
        let top = place.map(|(logprob, others)| {
            let others = others.iter().take(self.count).map(|other| (spelled(self.model, other.id), other.logprob));
            let mut top = Map::new();
            for (token, logprob) in others.chain([(spelling.clone(), logprob)]) {
                // Of two that are written alike the likelier.
                top.entry(token).or_insert_with(|| told(logprob).into());
            }
            top
        });
        self.told.tokens.push(spelling);
        self.told.token_logprobs.push(place.map(|(logprob, _)| told(logprob)));
        self.told.top_logprobs.push(top);
        self.told.text_offset.push(self.characters);
        // A character that is spread over tokens begins with the first of them.
        let begins = |byte: &&u8| **byte & 0xc0 != 0x80;
        self.characters += self.model.token_bytes(id).iter().flatten().filter(begins).count();
    }

    fn tell_all(&mut self, answer: &TokensAnswer, count: usize) {
        let continuation = &answer.continuation;
        let places = continuation.token_logprobs.iter().zip(&answer.alternatives);
        for (id, (logprob, others)) in continuation.token_ids.iter().zip(places).take(count) {
            self.tell(*id, Some((*logprob, others)));
        }
    }
}

/// Of a prompt's tokens, where it stands before the text, and of the text's.
pub(crate) fn of_completion(
    model: &dyn ServedModel,
    prompt: Option<(&[u32], Option<&TokensAnswer>)>,
    written: &Written,
    count: usize,
) -> CompletionLogprobs {
    let told = CompletionLogprobs { tokens: vec![], token_logprobs: vec![], top_logprobs: vec![], text_offset: vec![] };
    let mut telling = Telling { model, count, told, characters: 0 };
    if let Some((ids, answer)) = prompt {
        if let Some(first) = ids.first() {
            telling.tell(*first, None);
        }
        if let Some(answer) = answer {
            telling.tell_all(answer, ids.len() - 1);
        }
    }
    if let Some(tokens) = &written.tokens {
        telling.tell_all(tokens, tokens_told(model, written, tokens));
    }
    telling.told
}

/// How many of a text's tokens are told: of one that was cut before a stop sequence those that begin before it.
fn tokens_told(model: &dyn ServedModel, written: &Written, tokens: &TokensAnswer) -> usize {
    let ids = &tokens.continuation.token_ids;
    if !written.is_cut {
        return ids.len();
    }
    let mut begin = 0;
    ids.iter()
        .take_while(|id| {
            let is_before = begin < written.text.len();
            begin += model.token_bytes(**id).map_or(0, |bytes| bytes.len());
            is_before
        })
        .count()
}

/// Of an answer's tokens, without the one that ended it.
pub(crate) fn of_chat(model: &dyn ServedModel, written: &Written, count: usize) -> Option<ChatLogprobs> {
    let tokens = written.tokens.as_ref()?;
    let text = |id: u32| String::from_utf8_lossy(&bytes(model, id)).into_owned();
    let alternative = |other: &TokenAlternative| ChatAlternative {
        token: text(other.id),
        logprob: told(other.logprob),
        bytes: bytes(model, other.id),
    };
    let places = tokens.continuation.token_logprobs.iter().zip(&tokens.alternatives);
    let content = tokens
        .continuation
        .token_ids
        .iter()
        .zip(places)
        .take(tokens_told(model, written, tokens).min(written.ids.len()))
        .map(|(id, (logprob, others))| ChatToken {
            token: text(*id),
            logprob: told(*logprob),
            bytes: bytes(model, *id),
            top_logprobs: others.iter().take(count).map(alternative).collect(),
        })
        .collect();
    Some(ChatLogprobs { content, refusal: None })
}
