//! Types shared by the wire formats for generated text: a common request, and the parts of an answer.

use probity_lm::{Constraint, Finish, Prompt, TokensAnswer};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::forms::{FinishReason, Header, StreamOptions, UsageBody};
use crate::api_error::ApiError;
use crate::served::ServedModel;

/// A wire format that parses a request and encodes its answer. Implemented by the type of the request body.
pub(crate) trait TextFormat: DeserializeOwned + Send + 'static {
    const NAMES: FormatNames;

    /// Requested model.
    fn model(&self) -> Option<&String>;

    /// Converts the request to the common type.
    fn read(self) -> Result<TextRequest, ApiError>;

    /// A complete answer.
    fn body<'a>(header: Header, texts: impl Iterator<Item = DoneText<'a>>, usage: UsageBody) -> impl Serialize;

    /// JSON of an event; `None` if the format has no such event.
    fn event(header: Header, event: Event<'_>) -> Option<impl Serialize + Send + use<Self>>;
}

/// Names that differ between formats.
pub(crate) struct FormatNames {
    /// Prefix of answer ids.
    pub(crate) id: &'static str,
    /// `object` field of a complete answer and of an event.
    pub(crate) objects: (&'static str, &'static str),
    /// Field of the prompts, and the error if there are none.
    pub(crate) prompts: (&'static str, &'static str),
    /// Field of the number of alternatives per token.
    pub(crate) alternatives: &'static str,
    /// Whether thoughts have a field of their own.
    pub(crate) has_thoughts: bool,
}

/// A request for texts.
#[derive(Default)]
pub(crate) struct TextRequest {
    pub(crate) writing: Writing,
    pub(crate) prompts: Vec<Prompt>,
    /// Token limit per text, with the name of its field.
    pub(crate) max_tokens: (&'static str, Option<u32>),
    /// Default token limit of the format; `None` for the server's limit.
    pub(crate) usual_tokens: Option<usize>,
    pub(crate) is_streamed: bool,
    pub(crate) include_usage: bool,
}

/// Settings for generating texts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Writing {
    pub(crate) temperature: Option<f64>,
    pub(crate) top_p: Option<f64>,
    pub(crate) top_k: Option<usize>,
    pub(crate) min_p: Option<f64>,
    pub(crate) seed: Option<i64>,
    pub(crate) choices: Option<usize>,
    pub(crate) stop: Vec<String>,
    pub(crate) constraint: Option<Constraint>,
    /// Number of alternatives per token; `None` without log-probabilities.
    pub(crate) alternatives: Option<usize>,
    /// Whether to return the prompt before the text.
    pub(crate) echo: bool,
}

/// A generated text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WrittenText {
    pub(crate) text: String,
    /// Its tokens, without the one that ended the answer.
    pub(crate) ids: Vec<u32>,
    /// Its tokens with the one that ended the answer, if log-probabilities are requested.
    pub(crate) tokens: Option<TokensAnswer>,
    pub(crate) finish: Finish,
}

impl WrittenText {
    pub(crate) fn reason(&self) -> FinishReason {
        if self.finish == Finish::Length { FinishReason::Length } else { FinishReason::Stop }
    }
}

/// An answer whose log-probabilities are requested.
pub(crate) struct RequestedLogprobs<'a> {
    pub(crate) model: &'a dyn ServedModel,
    pub(crate) written: &'a WrittenText,
    /// The echoed prompt, with log-probabilities of its tokens if there are any.
    pub(crate) prompt: Option<(&'a [u32], Option<&'a TokensAnswer>)>,
    /// Number of alternatives per token.
    pub(crate) count: usize,
}

/// A finished choice; in an event, its last part.
pub(crate) struct DoneText<'a> {
    pub(crate) index: usize,
    pub(crate) text: String,
    /// The thought before it, in formats that keep them apart.
    pub(crate) thought: Option<String>,
    pub(crate) finish: FinishReason,
    /// Present if log-probabilities are requested.
    pub(crate) logprobs: Option<RequestedLogprobs<'a>>,
}

/// Event of a stream.
pub(crate) enum Event<'a> {
    /// A choice begins.
    Opened(usize),
    /// New text of a choice.
    Grown(usize, String),
    /// New text of its thought.
    Thought(usize, String),
    Done(DoneText<'a>),
    Usage(UsageBody),
}

/// Whether an answer is streamed, and whether the stream ends with the usage.
pub(crate) fn stream_form(stream: Option<bool>, options: Option<StreamOptions>) -> Result<(bool, bool), ApiError> {
    let is_streamed = stream.unwrap_or(false);
    if options.is_some() && !is_streamed {
        return Err(ApiError::field("stream_options", "requires `stream`"));
    }
    Ok((is_streamed, options.and_then(|options| options.include_usage).unwrap_or(false)))
}

/// Defines the body of a request for texts: the format's own fields and the common ones. Unsupported fields have the
/// type for the schema and their accepted values.
macro_rules! text_request {
    (
        $(#[$about:meta])*
        struct $Request:ident { $($(#[$field_about:meta])* $field:ident: $Type:ty,)* }
        unhonoured { $($(#[$other_about:meta])* $other:ident: $Schema:tt = [$($neutral:tt),*],)* }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $Request {
            /// Id of the served model; optional.
            model: Option<String>,
            $($(#[$field_about])* $field: $Type,)*
            /// 0, the default, takes the most likely token; above 0, tokens are sampled.
            #[schemars(range(min = 0, max = 2))]
            temperature: Option<f64>,
            /// Sample from the smallest set of most likely tokens with this total probability.
            #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
            top_p: Option<f64>,
            /// Sample from this many most likely tokens. Not in `OpenAI`'s API.
            #[schemars(range(min = 1))]
            top_k: Option<usize>,
            /// Sample from tokens with at least this share of the highest probability. Not in `OpenAI`'s API.
            #[schemars(range(min = 0, max = 1))]
            min_p: Option<f64>,
            /// Seed of sampling; 0 by default. The same seed gives the same text. The second choice of a prompt uses
            /// the next seed, and so on.
            seed: Option<i64>,
            /// Number of choices for each prompt.
            #[schemars(range(min = 1, max = 128))]
            n: Option<usize>,
            /// The text ends before the first of these.
            stop: Option<probity_lm::OneOrMany<String>>,
            /// Stream the text; with `logprobs` it comes in one chunk.
            stream: Option<bool>,
            /// Options of the stream.
            stream_options: Option<super::forms::StreamOptions>,
            /// Accepted and ignored.
            #[expect(dead_code, reason = "clients may say it")]
            user: Option<Value>,
            /// Accepted and ignored.
            #[expect(dead_code, reason = "clients may say it")]
            metadata: Option<Value>,
            $(
                $(#[$other_about])*
                #[schemars(with = $Schema, extend("enum" = [$($neutral,)* null]))]
                $other: Option<Value>,
            )*
        }

        impl $Request {
            /// The common fields. Returns an error for unsupported values.
            fn common(&mut self) -> Result<super::text::TextRequest, $crate::api_error::ApiError> {
                super::unhonoured::refuse_others(&[
                    $((stringify!($other), &self.$other, serde_json::json!([$($neutral),*])),)*
                ])?;
                let (is_streamed, include_usage) = super::text::stream_form(self.stream, self.stream_options)?;
                let writing = super::text::Writing {
                    temperature: self.temperature,
                    top_p: self.top_p,
                    top_k: self.top_k,
                    min_p: self.min_p,
                    seed: self.seed,
                    choices: self.n,
                    stop: self.stop.take().map(|probity_lm::OneOrMany(stops)| stops).unwrap_or_default(),
                    ..Default::default()
                };
                Ok(super::text::TextRequest { writing, is_streamed, include_usage, ..Default::default() })
            }
        }
    };
}
pub(crate) use text_request;
