//! The trait implemented by every model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ChatOptions, ClassKind, GenerateRequest, GenerateResult, LabelError, LiveTexts, ScoreRequest, ScoreResult,
    ThinkingStyle, Usage,
};

/// Arithmetic precision of matrix products between weights and activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Weights are converted to 32-bit floats.
    #[default]
    Exact,
    /// Activations are rounded to 8 bits, as in llama.cpp. If the weights are floats, weights and activations are
    /// rounded to bf16.
    // Same bits on every CPU.
    Dots,
    /// Weights and activations are rounded to bf16, for processors with AMX.
    // Same bits on every CPU, fast on those with AMX.
    Tiles,
    /// The faster of dots and tiles on this machine; probabilities differ visibly from exact.
    // On the CPU, descriptions name tiles or dots. Devices with their own operations (cuda:0, metal) use bf16.
    Fast,
}

impl Precision {
    /// `exact`, `dots`, `tiles` or `fast`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Dots => "dots",
            Self::Tiles => "tiles",
            Self::Fast => "fast",
        }
    }
}

/// Model metadata for records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelDescription {
    /// Model name as the user wrote it.
    pub name: String,
    /// Folder of the low-rank adapter merged into the weights, as the user wrote it. Absent without an adapter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Commit of the hub repository, if the files are in the Hugging Face cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// `llama`, `mistral`, `qwen2` …
    pub architecture: String,
    /// SHA-256 of weights, configuration, tokenizer and chat template, in hex.
    pub fingerprint: String,
    /// Effective arithmetic precision.
    pub precision: Precision,
    /// `cpu`, `candle-cpu`, `cuda:0`, `metal`; several as `cuda:0,cuda:1`. Only `cpu` guarantees results that are
    /// bit-identical regardless of batching.
    pub device: String,
    /// Hardware and versions of driver and libraries. Absent on `cpu` and if unknown. Answers are recomputed on another
    /// platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// Library that runs the model on that device, with its version. Absent for our own implementation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// Weight types by share, such as `Q4_1, Q8_0, F32`.
    pub weights: String,
    /// Context length in tokens; per side for an encoder-decoder. Absent if the model has no limit.
    pub context_length: Option<usize>,
    /// Number of layers, of the decoder for an encoder-decoder. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<usize>,
    /// Classes of the class head. If not empty, the model only answers [`Ask::Classes`](crate::Ask::Classes). Empty for
    /// a language model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// Meaning of the class head's logits.
    #[serde(default, skip_serializing_if = "ClassKind::is_usual")]
    pub class_kind: ClassKind,
    /// Whether the model accepts [`Prompt::Chat`](crate::Prompt::Chat).
    pub has_chat_template: bool,
    /// How the model thinks before it answers; absent if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingStyle>,
    /// How chats are formatted and whether thoughts are written, if not as by default.
    #[serde(default, skip_serializing_if = "ChatOptions::is_usual")]
    pub chat: ChatOptions,
}

/// Kind of the devices in a description: `cuda` for `cuda:0,cuda:1` and for `cuda:0+cuda:1`. Answers are cached by
/// kind: the number of devices, their indices and the split of layers do not matter.
pub fn device_kind(devices: &str) -> &str {
    devices.split(['+', ',', ':']).next().unwrap_or_default()
}

impl ModelDescription {
    /// One-line summary: name, architecture, weights, precision, device, and a note if chats are not supported.
    pub fn headline(&self) -> String {
        let Self { name, adapter, architecture, weights, precision, device, through, .. } = self;
        let adapter = adapter.as_ref().map(|adapter| format!(" with {adapter}")).unwrap_or_default();
        let through = through.as_ref().map(|library| format!(" through {library}")).unwrap_or_default();
        let plain = if self.has_chat_template { "" } else { ", plain prompts (no chat template)" };
        let precision = precision.as_str();
        format!("{name}{adapter}: {architecture}, {weights}, {precision} precision on {device}{through}{plain}")
    }
}

/// Any error, with its own hints and those of its causes.
pub type BoxedError = Box<dyn miette::Diagnostic + Send + Sync>;

/// Wraps an error from a library without hints.
pub fn plain_error(error: impl std::error::Error + Send + Sync + 'static) -> BoxedError {
    Box::<dyn std::error::Error + Send + Sync>::from(error).into()
}

/// An error from the caller's sink (full disk, interrupt), passed through unchanged.
pub type SinkError = BoxedError;

/// Receives results as they finish, by request position. An error ends the run after the work in flight.
pub type Sink<'a, T> = dyn FnMut(usize, T) -> Result<(), SinkError> + Send + 'a;

/// Why a work list could not be completed.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum LmError {
    /// A request is invalid for any model.
    #[error("request `{id}`: {source}")]
    Labels {
        /// The request's id.
        id: String,
        /// What is wrong.
        #[diagnostic_source]
        source: LabelError,
    },
    /// A request is invalid for this model.
    #[error("request `{id}`: {source}")]
    Request {
        /// The request's id.
        id: String,
        /// What is wrong.
        #[diagnostic_source]
        source: BoxedError,
    },
    /// The sink rejected a result, or cached answers could not be read.
    #[error("{0}")]
    Sink(
        #[source]
        #[diagnostic_source]
        SinkError,
    ),
    /// The model failed.
    #[error("the model failed: {0}")]
    Model(
        #[source]
        #[diagnostic_source]
        BoxedError,
    ),
}

/// The requests of a work list, in order. The model pulls them as it has room, so a list can exceed memory.
pub type Requests<'a, T> = dyn Iterator<Item = T> + Send + 'a;

/// A language model that answers whole work lists.
///
/// A method submits all available requests at once and the model schedules them. Each request is answered exactly once,
/// in any order. Its result does not depend on the other requests, their order or shared computation. Prompts with a
/// common prefix should be adjacent, so that the prefix is computed once.
///
/// An invalid request ends the list. Requests that the model holds at that time are not computed: if the whole list
/// fits into memory, none is.
pub trait LanguageModel: Send + Sync {
    /// Metadata of this model for records.
    fn description(&self) -> &ModelDescription;

    /// Scores each request; results go to `sink` by position in the list.
    fn score(
        &self,
        requests: &mut Requests<'_, ScoreRequest>,
        sink: &mut Sink<'_, ScoreResult>,
    ) -> Result<Usage, LmError>;

    /// Continues each prompt; results go to `sink` by position in the list.
    fn generate(
        &self,
        requests: &mut Requests<'_, GenerateRequest>,
        sink: &mut Sink<'_, GenerateResult>,
    ) -> Result<Usage, LmError>;

    /// Continues texts that arrive during generation, each with the same result as [`generate`](Self::generate).
    ///
    /// The default implementation runs them one after another.
    fn generate_live(&self, texts: &mut dyn LiveTexts) -> Result<Usage, LmError> {
        let (mut usage, mut place) = (Usage::default(), 0);
        while let Some(request) = texts.next() {
            usage += self.generate(&mut std::iter::once(request), &mut |_, result| texts.done(place, result))?;
            place += 1;
            texts.pause().map_err(LmError::Sink)?;
        }
        Ok(usage)
    }

    /// All results in request order.
    fn score_all(&self, requests: &[ScoreRequest]) -> Result<Vec<ScoreResult>, LmError> {
        let mut results = vec![None; requests.len()];
        self.score(&mut requests.iter().cloned(), &mut |index, result| {
            results[index] = Some(result);
            Ok(())
        })?;
        // Answers arrive in any order, so each is stored by position.
        Ok(results.into_iter().map(|r| r.expect("each request is answered")).collect())
    }
}

impl<M: LanguageModel + ?Sized> LanguageModel for &M {
    fn description(&self) -> &ModelDescription {
        (**self).description()
    }

    fn score(
        &self,
        requests: &mut Requests<'_, ScoreRequest>,
        sink: &mut Sink<'_, ScoreResult>,
    ) -> Result<Usage, LmError> {
        (**self).score(requests, sink)
    }

    fn generate(
        &self,
        requests: &mut Requests<'_, GenerateRequest>,
        sink: &mut Sink<'_, GenerateResult>,
    ) -> Result<Usage, LmError> {
        (**self).generate(requests, sink)
    }

    fn generate_live(&self, texts: &mut dyn LiveTexts) -> Result<Usage, LmError> {
        (**self).generate_live(texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_one_kind_are_known_by_it() {
        for (devices, kind) in [
            ("cpu", "cpu"),
            ("candle-cpu,candle-cpu", "candle-cpu"),
            ("candle-cpu+candle-cpu", "candle-cpu"),
            ("cuda:1", "cuda"),
            ("cuda:0+cuda:1,cuda:2+cuda:3", "cuda"),
            ("cuda:0,cuda:1", "cuda"),
            ("cuda:all", "cuda"),
            ("metal", "metal"),
        ] {
            assert_eq!(device_kind(devices), kind);
        }
    }
}
