//! The golden models of `tests/goldens/models`, one row each in `tests/goldens/roster.json`. A test selects a kind of
//! model and runs on all of them; scripts that write goldens read the same file.

#![allow(dead_code, reason = "each crate of tests uses a part")]

use std::sync::LazyLock;

use serde::Deserialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    Decoder,
    /// A decoder whose checkpoint also describes an image model.
    WithImages,
    /// A decoder that candle-transformers computes.
    Bridged,
    Encoder,
    EncoderDecoder,
}

/// Golden values that tests compare with. A row lists those that its model lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Suite {
    /// Logits of transformers, in the model's `golden.safetensors`.
    Logits,
    /// Texts of transformers, in `tests/goldens/generated.json`.
    Generated,
    /// Computation by candle's operations.
    Devices,
    /// A tokenizer, and a context that holds the prompts of the tests.
    Texts,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GoldenModel {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The file in the model's folder; absent for safetensors, which are the folder.
    pub(crate) file: Option<String>,
    #[serde(default)]
    pub(crate) without: Vec<Suite>,
}

impl GoldenModel {
    /// Whether the model has the golden values of a suite.
    pub(crate) fn has(&self, suite: Suite) -> bool {
        !self.without.contains(&suite)
    }

    /// The model's path below `tests/goldens/models`.
    pub(crate) fn path(&self) -> String {
        self.file.as_ref().map_or_else(|| self.name.clone(), |file| format!("{}/{file}", self.name))
    }
}

pub(crate) static ROSTER: LazyLock<Vec<GoldenModel>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../goldens/roster.json")).expect("rows of golden models"));

/// Models of a kind that have the golden values of a suite.
pub(crate) fn golden_models(kind: Kind, suite: Suite) -> impl Iterator<Item = &'static GoldenModel> {
    ROSTER.iter().filter(move |model| model.kind == kind && model.has(suite))
}

/// Their names, for those in safetensors.
pub(crate) fn golden_names(kind: Kind, suite: Suite) -> impl Iterator<Item = &'static str> {
    golden_models(kind, suite).filter(|model| model.file.is_none()).map(|model| model.name.as_str())
}
