//! What the wire formats for generated text share: a request in common terms, and the parts of an answer.

use probity_lm::{Constraint, Finish, Prompt, TokensAnswer};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::forms::{FinishReason, Header, StreamOptions, UsageBody};
use crate::api_error::ApiError;
use crate::served::ServedModel;

/// A wire format: reads a request and encodes its answer. Implemented by the type of the request's body.
pub(crate) trait TextFormat: DeserializeOwned + Send + 'static {
    const NAMES: FormatNames;

    /// The model that the request is for.
    fn model(&self) -> Option<&String>;

    /// The request in common terms.
    fn read(self) -> Result<TextRequest, ApiError>;

    /// A whole answer.
    fn body<'a>(header: Header, texts: impl Iterator<Item = DoneText<'a>>, usage: UsageBody) -> impl Serialize;

    /// The JSON of an event, unless the format has none of this kind.
    fn event(header: Header, event: Event<'_>) -> Option<impl Serialize + Send + use<Self>>;
}

/// The names by which formats differ.
pub(crate) struct FormatNames {
    /// The prefix of answers' ids.
    pub(crate) id: &'static str,
    /// The `object` of a whole answer, and of an event.
    pub(crate) objects: (&'static str, &'static str),
    /// The field with the prompts, and the error if there are none.
    pub(crate) prompts: (&'static str, &'static str),
    /// The field with the number of alternatives per token.
    pub(crate) alternatives: &'static str,
}

/// A request for texts.
#[derive(Default)]
pub(crate) struct TextRequest {
    pub(crate) writing: Writing,
    pub(crate) prompts: Vec<Prompt>,
    /// The limit of tokens per text, with the name of its field.
    pub(crate) max_tokens: (&'static str, Option<u32>),
    /// The limit if the request has none; that of the server if absent.
    pub(crate) usual_tokens: Option<usize>,
    pub(crate) is_streamed: bool,
    pub(crate) include_usage: bool,
}

/// How texts are to be written.
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
    /// Likeliest tokens beside each; absent where no log-probabilities are wanted.
    pub(crate) alternatives: Option<usize>,
    /// Whether the prompt stands before the text.
    pub(crate) echo: bool,
}

/// A generated text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Written {
    pub(crate) text: String,
    /// Its tokens, without the one that ended the answer.
    pub(crate) ids: Vec<u32>,
    /// Its tokens and the one that ended the answer, where log-probabilities are wanted.
    pub(crate) tokens: Option<TokensAnswer>,
    pub(crate) finish: Finish,
}

impl Written {
    pub(crate) fn reason(&self) -> FinishReason {
        if self.finish == Finish::Length { FinishReason::Length } else { FinishReason::Stop }
    }
}

/// What log-probabilities are computed from.
pub(crate) struct ToldTokens<'a> {
    pub(crate) model: &'a dyn ServedModel,
    pub(crate) written: &'a Written,
    /// The prompt with what is known of its tokens, where it stands before the text.
    pub(crate) prompt: Option<(&'a [u32], Option<&'a TokensAnswer>)>,
    /// Likeliest tokens beside each.
    pub(crate) count: usize,
}

/// A choice whose text is done; in an event, what is new of it.
pub(crate) struct DoneText<'a> {
    pub(crate) index: usize,
    pub(crate) text: String,
    pub(crate) finish: FinishReason,
    /// Present where log-probabilities are wanted.
    pub(crate) told: Option<ToldTokens<'a>>,
}

/// What a stream consists of.
pub(crate) enum Event<'a> {
    /// A choice begins.
    Opened(usize),
    /// New text of a choice.
    Grown(usize, String),
    Done(DoneText<'a>),
    Usage(UsageBody),
}

/// Whether an answer is streamed, and whether its stream ends with the usage.
pub(crate) fn stream_form(stream: Option<bool>, options: Option<StreamOptions>) -> Result<(bool, bool), ApiError> {
    let is_streamed = stream.unwrap_or(false);
    if options.is_some() && !is_streamed {
        return Err(ApiError::field("stream_options", "goes with `stream` only"));
    }
    Ok((is_streamed, options.and_then(|options| options.include_usage).unwrap_or(false)))
}

/// Defines the body of a request for texts: fields of its own, and those of every such request. What is not honoured has
/// the type of its schema and the values that are accepted.
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
            /// The id of the model that is served; may be left out.
            model: Option<String>,
            $($(#[$field_about])* $field: $Type,)*
            /// 0, the default, takes the likeliest token; above it tokens are drawn.
            #[schemars(range(min = 0, max = 2))]
            temperature: Option<f64>,
            /// The fewest of the likeliest tokens that together are so probable may be drawn.
            #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
            top_p: Option<f64>,
            /// The likeliest so many tokens may be drawn. Not in `OpenAI`'s API.
            #[schemars(range(min = 1))]
            top_k: Option<usize>,
            /// Tokens that are at least so probable, in parts of the likeliest one's probability, may be drawn. Not in `OpenAI`'s API.
            #[schemars(range(min = 0, max = 1))]
            min_p: Option<f64>,
            /// The seed of what is drawn: the same seed gives the same text; 0 by default. The second choice of a prompt
            /// is drawn by the next seed, and so on.
            seed: Option<i64>,
            /// How many choices for each prompt.
            #[schemars(range(min = 1, max = 128))]
            n: Option<usize>,
            /// A text ends before the first of these.
            stop: Option<probity_lm::OneOrMany<String>>,
            /// Whether the text is sent as it is written; with `logprobs` it comes in one piece.
            stream: Option<bool>,
            /// How the stream is told.
            stream_options: Option<super::forms::StreamOptions>,
            /// Who asks; accepted, and used for nothing.
            #[expect(dead_code, reason = "clients may say it")]
            user: Option<Value>,
            /// Accepted, and used for nothing.
            #[expect(dead_code, reason = "clients may say it")]
            metadata: Option<Value>,
            $(
                $(#[$other_about])*
                #[schemars(with = $Schema, extend("enum" = [$($neutral,)* null]))]
                $other: Option<Value>,
            )*
        }

        impl $Request {
            /// The fields of every request, after all that is not honoured was refused.
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
