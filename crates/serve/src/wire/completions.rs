//! `POST /v1/completions`.

use std::fmt::Write as _;

use probity_lm::{Prompt, TokenAlternative, TokensAnswer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::forms::{FinishReason, Header, PlainPrompts, UsageBody};
use super::logprobs::{bytes, finite};
use super::text::{DoneText, Event, FormatNames, RequestedLogprobs, TextFormat, TextRequest, Writing, text_request};
use crate::api_error::ApiError;
use crate::served::ServedModel;

/// Default limit of tokens, as in `OpenAI`'s API.
const USUAL_TOKENS: usize = 16;

text_request! {
    /// Continuations of prompts.
    struct CompletionRequest {
        /// A text, a list of texts, the token ids of a prompt, or a list of these. Text is encoded as ordinary text
        /// after the model's beginning-of-sequence token, if it has one; ids are used unchanged.
        prompt: PlainPrompts,
        /// Maximum number of tokens of a text; 0 with `echo` for the prompt only.
        #[schemars(range(min = 0))]
        max_tokens: Option<u32>,
        /// Return the prompt before the text.
        echo: Option<bool>,
        /// Return log-probabilities of the tokens, and of this many most likely tokens at each position.
        #[schemars(range(min = 0, max = 20))]
        logprobs: Option<usize>,
    }
    unhonoured {
        /// Not supported: 0 or omitted.
        presence_penalty: "Option<f64>" = [0],
        /// Not supported: 0 or omitted.
        frequency_penalty: "Option<f64>" = [0],
        /// Not supported: empty or omitted.
        logit_bias: "Option<Map<String, Value>>" = [{}],
        /// Not supported: 1 or omitted.
        best_of: "Option<u32>" = [1],
        /// Not supported: empty or omitted.
        suffix: "Option<String>" = [""],
    }
}

impl TextFormat for CompletionRequest {
    const NAMES: FormatNames = FormatNames {
        id: "cmpl",
        objects: ("text_completion", "text_completion"),
        prompts: ("prompt", "the list is empty"),
        alternatives: "logprobs",
        has_thoughts: false,
    };

    fn model(&self) -> Option<&String> {
        self.model.as_ref()
    }

    fn read(mut self) -> Result<TextRequest, ApiError> {
        let request = self.common()?;
        Ok(TextRequest {
            writing: Writing { alternatives: self.logprobs, echo: self.echo.unwrap_or(false), ..request.writing },
            prompts: self.prompt.0.into_iter().map(Prompt::from).collect(),
            max_tokens: ("max_tokens", self.max_tokens),
            usual_tokens: Some(USUAL_TOKENS),
            ..request
        })
    }

    fn body<'a>(header: Header, texts: impl Iterator<Item = DoneText<'a>>, usage: UsageBody) -> impl Serialize {
        CompletionBody { header, choices: texts.map(CompletionChoice::from).collect(), usage: Some(usage) }
    }

    fn event(header: Header, event: Event<'_>) -> Option<impl Serialize + Send + use<>> {
        let (choices, usage) = match event {
            Event::Opened(_) | Event::Thought(..) => return None,
            Event::Grown(index, text) => {
                (vec![CompletionChoice { index, text, logprobs: None, finish_reason: None }], None)
            }
            Event::Done(text) => (vec![text.into()], None),
            Event::Usage(usage) => (Vec::new(), Some(usage)),
        };
        Some(CompletionBody { header, choices, usage })
    }
}

impl From<DoneText<'_>> for CompletionChoice {
    fn from(DoneText { index, text, finish, logprobs, .. }: DoneText<'_>) -> Self {
        let logprobs = logprobs.map(|requested| CompletionLogprobs::from_tokens(&requested));
        Self { index, text, logprobs, finish_reason: Some(finish) }
    }
}

/// The texts.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct CompletionBody {
    /// Fields that all answers have.
    #[serde(flatten)]
    pub(crate) header: Header,
    /// In the order of the prompts; choices of one prompt are adjacent.
    pub(crate) choices: Vec<CompletionChoice>,
    /// In a stream only in the last chunk, and null there without `include_usage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<UsageBody>,
}

/// A text.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct CompletionChoice {
    /// Its index.
    pub(crate) index: usize,
    /// The generated text, after the prompt with `echo`.
    pub(crate) text: String,
    /// Log-probabilities of its tokens, if requested.
    pub(crate) logprobs: Option<CompletionLogprobs>,
    /// Why it ended; null in all chunks but the last.
    pub(crate) finish_reason: Option<FinishReason>,
}

/// Natural log-probabilities per token under the full vocabulary. A token that ended the answer comes last.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct CompletionLogprobs {
    /// Token texts; a part of a character is written as `bytes:\x..`.
    pub(crate) tokens: Vec<String>,
    /// Log-probability of each token; null for the first token of a prompt. Minus infinity is -9999.
    pub(crate) token_logprobs: Vec<Option<f64>>,
    /// Most likely tokens at each position, and the actual one; null for the first token of a prompt.
    pub(crate) top_logprobs: Vec<Option<Map<String, Value>>>,
    /// Where each token begins, in characters.
    pub(crate) text_offset: Vec<usize>,
}

impl CompletionLogprobs {
    fn from_tokens(requested: &RequestedLogprobs<'_>) -> Self {
        let logprobs = Self { tokens: vec![], token_logprobs: vec![], top_logprobs: vec![], text_offset: vec![] };
        let mut writer = LogprobsWriter { model: requested.model, count: requested.count, logprobs, characters: 0 };
        if let Some((ids, answer)) = requested.prompt {
            if let Some(first) = ids.first() {
                writer.add_token(*first, None);
            }
            if let Some(answer) = answer {
                writer.add_tokens(answer, ids.len() - 1);
            }
        }
        if let Some(tokens) = &requested.written.tokens {
            writer.add_tokens(tokens, requested.reported());
        }
        writer.logprobs
    }
}

/// Builds the log-probabilities of a text token by token, with character offsets.
struct LogprobsWriter<'a> {
    model: &'a dyn ServedModel,
    /// Number of alternatives per token.
    count: usize,
    logprobs: CompletionLogprobs,
    characters: usize,
}

impl LogprobsWriter<'_> {
    /// Adds a token, with its log-probability and alternatives if known.
    fn add_token(&mut self, id: u32, place: Option<(f64, &[TokenAlternative])>) {
        let spelling = spelled(self.model, id);
        let top = place.map(|(logprob, others)| {
            let others = others.iter().take(self.count).map(|other| (spelled(self.model, other.id), other.logprob));
            let mut top = Map::new();
            for (token, logprob) in others.chain([(spelling.clone(), logprob)]) {
                // Of tokens with the same spelling, the most likely.
                top.entry(token).or_insert_with(|| finite(logprob).into());
            }
            top
        });
        self.logprobs.tokens.push(spelling);
        self.logprobs.token_logprobs.push(place.map(|(logprob, _)| finite(logprob)));
        self.logprobs.top_logprobs.push(top);
        self.logprobs.text_offset.push(self.characters);
        // Counts UTF-8 leading bytes: a character that spans tokens belongs to the first.
        let begins = |byte: &&u8| **byte & 0xc0 != 0x80;
        self.characters += self.model.token_bytes(id).iter().flatten().filter(begins).count();
    }

    fn add_tokens(&mut self, answer: &TokensAnswer, count: usize) {
        let continuation = &answer.continuation;
        let places = continuation.token_logprobs.iter().zip(&answer.alternatives);
        for (id, (logprob, others)) in continuation.token_ids.iter().zip(places).take(count) {
            self.add_token(*id, Some((*logprob, others)));
        }
    }
}

/// Spelling of a token in completions. Parts of characters are written as bytes, so that spellings are unique.
fn spelled(model: &dyn ServedModel, id: u32) -> String {
    String::from_utf8(bytes(model, id)).unwrap_or_else(|error| {
        let mut spelling = "bytes:".to_owned();
        for byte in error.as_bytes() {
            let _ = write!(spelling, "\\x{byte:02x}");
        }
        spelling
    })
}
