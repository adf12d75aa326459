//! The contract between evaluation methods and language models.
//!
//! Every evaluation is a set of token sequences and a question about the next tokens. A method hands a whole work list
//! of [`ScoreRequest`]s or [`GenerateRequest`]s to a [`LanguageModel`]; answers come back through a sink as they
//! finish. Metrics that compare texts by what a model makes of their tokens ask a [`TextEncoder`]. Nothing here knows
//! of tensors, files or devices, so a method is tested against a [`ScriptedModel`], a metric against a
//! [`ScriptedEncoder`].
//!
//! Conventions: logarithms are natural; probabilities are taken under the full vocabulary unless a field says
//! "normalised"; a value that could not be had is an [`Outcome`] with its reason, never NaN or a default.

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
mod thought;
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
pub use prompt::{Message, Prompt, Role};
pub use request::{Ask, AskedTokens, Constraint, GenerateRequest, Reading, Sampling, SamplingLimits, ScoreRequest};
pub use rounded::{RoundedNumber, rounded_number};
pub use scripted::ScriptedModel;
pub use scripted_encoder::ScriptedEncoder;
pub use text_encoder::{
    EncoderConfig, EncoderError, Framed, Framing, HiddenStates, MaskedSequence, Piece, TextEncoder, TextTokenizer,
    check_sequences,
};
pub use thought::{is_thought_mark, opens_thought, without_thoughts};
pub use unique_keys::{parse_unique, refuse_repeated_keys};

/// Label mass below which a verdict is flagged [`Outcome::LowMass`].
pub const DEFAULT_MIN_MASS: f64 = 0.01;
