//! Interface between evaluation methods and language models.
//!
//! Every evaluation is a set of token sequences and a question about the next tokens. A method passes a work list of
//! [`ScoreRequest`]s or [`GenerateRequest`]s to a [`LanguageModel`], which sends each result to a sink as it finishes.
//! Metrics based on a model's representation of tokens use a [`TextEncoder`]. This crate does not depend on tensors,
//! files or devices. Methods are tested with a [`ScriptedModel`], metrics with a [`ScriptedEncoder`].
//!
//! Conventions: logarithms are natural. Probabilities are under the full vocabulary unless a field says "normalised". A
//! missing value is an [`Outcome`] with its reason, never NaN or a default.

mod answer;
mod byte_order_mark;
mod label;
mod live;
mod model;
mod named_labels;
mod names;
mod one_or_many;
mod panics;
mod prompt;
mod request;
mod rounded;
mod scripted;
mod scripted_encoder;
pub mod text;
mod text_encoder;
mod thinking;
mod thinking_model;
mod thought;
mod thought_reader;
mod unique_keys;

pub use answer::{
    ClassAnswer, ClassKind, ClassScore, ContinuationAnswer, Finish, GenerateResult, LabelAnswer, LabelScore, Outcome,
    PooledState, ReadingAnswer, ScoreAnswer, ScoreResult, TokenAlternative, TokensAnswer, Usage,
};
pub use byte_order_mark::{Utf16Text, skip_byte_order_mark, without_byte_order_mark};
pub use label::{Label, LabelError, LabelSet, Termination, normalise, resolve_variants};
pub use live::LiveTexts;
pub use model::{
    BoxedError, LanguageModel, LmError, ModelDescription, Precision, Requests, Sink, SinkError, device_kind,
    plain_error,
};
pub use named_labels::NamedLabels;
pub use names::{did_you_mean, nearest};
pub use one_or_many::{OneOrMany, Single};
pub use panics::quietly;
pub use prompt::{ChatFormat, Message, Prompt, Role, Thought};
pub use request::{Ask, AskedTokens, Constraint, GenerateRequest, Reading, Sampling, SamplingLimits, ScoreRequest};
pub use rounded::{RoundedNumber, rounded_number};
pub use scripted::ScriptedModel;
pub use scripted_encoder::ScriptedEncoder;
pub use text_encoder::{
    EncoderConfig, EncoderError, Framed, Framing, HiddenStates, MaskedSequence, Piece, TextEncoder, TextTokenizer,
    check_sequences,
};
pub use thinking::{ChatOptions, OpenedBy, ThinkMode, ThinkingStyle};
pub use thinking_model::ThinkingModel;
pub use thought::{ThoughtState, is_thought_mark, opens_thought, thought_state, without_thoughts};
pub use thought_reader::{TextPart, ThoughtReader};
pub use unique_keys::{parse_unique, refuse_repeated_keys};

/// Label mass below which a verdict is [`Outcome::LowMass`].
pub const DEFAULT_MIN_MASS: f64 = 0.01;
