//! The trait that every model answers to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ClassKind, GenerateRequest, GenerateResult, LabelError, LiveTexts, ScoreRequest, ScoreResult, Usage};

/// The arithmetic in which weights meet activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Weights are widened to 32-bit floats.
    #[default]
    Exact,
    /// The fastest that this machine has: tiles or dots. Quicker, and probabilities differ visibly.
    // On the CPU a description says which of the two; a device with operations of its own (cuda:0, metal) has bf16.
    Fast,
    /// Activations are rounded to 8 bits (weights that are floats, and activations with them, to bf16), as llama.cpp
    /// does.
    // The same bits on every CPU.
    Dots,
    /// Weights and activations are rounded to bf16, for processors with AMX.
    // The same bits on every CPU, fast on those with tiles.
    Tiles,
}

impl Precision {
    /// `exact`, `fast`, `dots` or `tiles`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Fast => "fast",
            Self::Dots => "dots",
            Self::Tiles => "tiles",
        }
    }
}

/// What a record must say about the model behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelDescription {
    /// As the user named it.
    pub name: String,
    /// The folder of the low-rank adapter that was put into its weights, as the user named it; absent where there is
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// The commit of the hub's repository that its files lie under in the Hugging Face cache; absent where they lie
    /// elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// `llama`, `mistral`, `qwen2` …
    pub architecture: String,
    /// SHA-256 over weights, configuration, tokenizer and chat template, in hex.
    pub fingerprint: String,
    /// The arithmetic in force.
    pub precision: Precision,
    /// `cpu`, `candle-cpu`, `cuda:0`, `metal`; several as `cuda:0,cuda:1`. What a result does not depend on, it does not
    /// depend on down to its bits on `cpu` alone.
    pub device: String,
    /// What computes on those devices: the card, the versions of its driver and libraries. Absent on `cpu`, and where it is not
    /// known. Answers are found again on another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// The library whose own code runs it on that device, with its version; absent where it is ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// The weights' types by share, such as `Q4_1, Q8_0, F32`.
    pub weights: String,
    /// Tokens the model can see at once, an encoder-decoder on either side; absent where nothing in the model limits
    /// them.
    pub context_length: Option<usize>,
    /// Layers of the model that says what comes next: an encoder-decoder's decoder. Absent where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<usize>,
    /// What its head tells apart, in the place of tokens: [`Ask::Classes`](crate::Ask::Classes) is all that can be asked
    /// then. Empty for a language model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// What that head's logits mean.
    #[serde(default, skip_serializing_if = "ClassKind::is_usual")]
    pub class_kind: ClassKind,
    /// Whether [`Prompt::Chat`](crate::Prompt::Chat) can be asked.
    pub has_chat_template: bool,
}

/// The kind of the devices in a description: `cuda` of `cuda:0,cuda:1` and of `cuda:0+cuda:1`. Answers are kept by it: neither
/// the number of devices nor their numbers, nor how layers are divided over them, change what a run is.
pub fn device_kind(devices: &str) -> &str {
    devices.split(['+', ',', ':']).next().unwrap_or_default()
}

impl ModelDescription {
    /// Which model answers, and how it computes: the name, the architecture, the weights, the precision, the device, and that chats
    /// cannot be asked where that is so.
    pub fn headline(&self) -> String {
        let Self { name, adapter, architecture, weights, precision, device, through, .. } = self;
        let adapter = adapter.as_ref().map(|adapter| format!(" with {adapter}")).unwrap_or_default();
        let through = through.as_ref().map(|library| format!(" through {library}")).unwrap_or_default();
        let plain = if self.has_chat_template { "" } else { ", plain prompts for lack of a chat template" };
        let precision = precision.as_str();
        format!("{name}{adapter}: {architecture}, {weights}, {precision} precision on {device}{through}{plain}")
    }
}

/// Any error, with the hints of its own and of its causes.
pub type BoxedError = Box<dyn miette::Diagnostic + Send + Sync>;

/// An error of a library, which has no hints.
pub fn plain_error(error: impl std::error::Error + Send + Sync + 'static) -> BoxedError {
    Box::<dyn std::error::Error + Send + Sync>::from(error).into()
}

/// An error of the caller's sink (a full disk, an interrupt), passed through unchanged.
pub type SinkError = BoxedError;

/// Takes results as they finish, by the position of their request; an error ends the run after what is in flight.
pub type Sink<'a, T> = dyn FnMut(usize, T) -> Result<(), SinkError> + Send + 'a;

/// Why a work list could not be finished.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum LmError {
    /// A request is wrong in itself.
    #[error("request `{id}`: {source}")]
    Labels {
        /// The request's id.
        id: String,
        /// What is wrong.
        #[diagnostic_source]
        source: LabelError,
    },
    /// A request is wrong for this model.
    #[error("request `{id}`: {source}")]
    Request {
        /// The request's id.
        id: String,
        /// What is wrong.
        #[diagnostic_source]
        source: BoxedError,
    },
    /// The sink refused a result, or kept answers could not be read; it says which.
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

/// The requests of a work list, in its order. The model takes them as it has room for them, so that a list may be
/// longer than memory.
pub type Requests<'a, T> = dyn Iterator<Item = T> + Send + 'a;

/// A language model that answers whole work lists.
///
/// A method hands over everything it can ask at once and the model orders the work. Each request is answered exactly
/// once, in any order; its result does not depend on the other requests, on their order or on how work is shared
/// between them. Prompts that begin alike should stand together: what they share is then computed once.
///
/// A request that is wrong ends the list. Nothing of what the model holds at that time is computed: of a list that fits
/// into memory nothing at all.
pub trait LanguageModel: Send + Sync {
    /// What a record must say about this model.
    fn description(&self) -> &ModelDescription;

    /// Answers each request through `sink`, by its position in the list.
    fn score(
        &self,
        requests: &mut Requests<'_, ScoreRequest>,
        sink: &mut Sink<'_, ScoreResult>,
    ) -> Result<Usage, LmError>;

    /// Continues each prompt; results through `sink`, by its position in the list.
    fn generate(
        &self,
        requests: &mut Requests<'_, GenerateRequest>,
        sink: &mut Sink<'_, GenerateResult>,
    ) -> Result<Usage, LmError>;

    /// Continues texts that come while others are being written. Each result is that of [`generate`](Self::generate).
    ///
    /// One after another where a model does not say how it does better.
    fn generate_live(&self, texts: &mut dyn LiveTexts) -> Result<Usage, LmError> {
        let (mut usage, mut place) = (Usage::default(), 0);
        while let Some(request) = texts.next() {
            usage += self.generate(&mut std::iter::once(request), &mut |_, result| texts.done(place, result))?;
            place += 1;
            texts.pause().map_err(LmError::Sink)?;
        }
        Ok(usage)
    }

    /// All scores in the order of the requests.
    fn score_all(&self, requests: &[ScoreRequest]) -> Result<Vec<ScoreResult>, LmError> {
        let mut results = vec![None; requests.len()];
        self.score(&mut requests.iter().cloned(), &mut |index, result| {
            results[index] = Some(result);
            Ok(())
        })?;
        // Answers come in any order, so they are put in their places and not pushed.
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
