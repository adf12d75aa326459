//! Options for the model and its computation.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use probity_lm::{ChatOptions, DEFAULT_MIN_MASS, LanguageModel, ModelDescription, Precision, ThinkMode, ThinkingModel};
use probity_options::{as_text, written_as_text};
use probity_runtime::hub::{LocateError, LocatedModel, locate};
use probity_runtime::{DeviceChoice, DeviceList, Drafting, Isa, KeptPrefixBytes, LoadOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use smart_default::SmartDefault;

/// A model and how it computes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ModelOptions {
    /// Name, path or hub name (ORG/NAME) of the model
    ///
    /// `probity model list` shows the known names. A path leads to a .gguf file or to a folder with config.json and
    /// safetensors. A hub name must be in the local cache; `probity model get` downloads it.
    #[schemars(length(min = 1), extend("form" = "NAME|PATH", "heading" = "Model"))]
    pub model: String,
    /// `LoRA` adapter to merge into the model: a folder saved by PEFT
    ///
    /// Layers that the adapter changes are kept as 32-bit floats.
    #[schemars(extend("form" = "DIR", "heading" = "Model"))]
    pub adapter: Option<PathBuf>,
    /// How it computes.
    #[serde(flatten)]
    pub computing: ComputingOptions,
}

impl ModelOptions {
    /// Finds the model.
    pub fn located(&self) -> Result<LocatedModel, LocateError> {
        Ok(locate(&self.model)?.with_adapter(self.adapter.clone()))
    }

    /// Options for another model with the same computation; an adapter applies only to the first model.
    #[must_use]
    pub fn beside(&self, model: &str) -> Self {
        Self { model: model.to_owned(), adapter: None, computing: self.computing.clone() }
    }

    /// Whether a model loaded for `other` can [run](probity_runtime::Model::run_with) with these options.
    pub fn has_weights_of(&self, other: &Self) -> bool {
        let weights = |options: &Self| {
            let ComputingOptions { precision, device, compute: ComputeOptions { isa, .. }, .. } = options.computing;
            (options.model.clone(), options.adapter.clone(), precision, device, isa)
        };
        weights(self) == weights(other)
    }
}

/// How a model computes.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ComputingOptions {
    /// Precision of matrix products
    ///
    /// It is part of every result's signature.
    #[schemars(extend("form" = "PRECISION", "heading" = "Model"))]
    pub precision: Precision,
    /// Device: cpu, cuda:N, metal or candle-cpu
    ///
    /// `cuda:N` and `metal` need a build with their feature. `candle-cpu` runs the code of these devices on the
    /// processor. `cuda:0,cuda:1` and `cuda:all` copy the model to several devices and divide the work; `cuda:0+cuda:1`
    /// divides the layers of a model that is too large for one. Only `cpu` guarantees bit-identical scores from
    /// run to run. Every result's signature names the devices.
    #[serde(with = "as_text")]
    #[schemars(with = "String", extend("form" = "DEVICE", "heading" = "Model", "hint" = DeviceChoice::FORMS))]
    pub device: DeviceList,
    /// Flag verdicts with less label mass than this as `low_mass`
    ///
    /// Label mass is the probability of all labels under the full vocabulary.
    #[schemars(range(min = 0, max = 1), extend("form" = "P", "heading" = "Model"))]
    #[default(DEFAULT_MIN_MASS)]
    pub min_mass: f64,
    /// Thoughts before answers: auto, off, or at most N tokens
    ///
    /// A model that thinks is queried for labels after its thought. `auto` closes the thought there and leaves texts
    /// as the chat template begins them; `off` closes it everywhere; N lets the model write it, up to N tokens.
    #[serde(with = "as_text")]
    #[schemars(with = "String", extend("form" = "auto|off|N", "heading" = "Model"))]
    pub think: ThinkMode,
    /// With --think N: average label probabilities over K random thoughts
    ///
    /// Without it, there is one greedy thought.
    #[schemars(range(min = 1, max = 1000), extend("form" = "K", "heading" = "Model"))]
    pub thoughts: Option<u32>,
    /// Variable of the chat template; repeatable
    ///
    /// Such as `reasoning_effort=low`. A value that is valid JSON (`true`, `3`) is not text.
    #[schemars(extend("form" = "NAME=VALUE", "heading" = "Model"))]
    pub template_var: Vec<TemplateVariable>,
    /// Compute setting; repeatable
    ///
    /// Settings do not change results on `cpu`.
    #[schemars(extend("form" = "KEY=VALUE", "heading" = "Model"))]
    pub compute: ComputeOptions,
    /// Whether what prompts begin with is kept from one list of questions to the next, in a third of the memory for
    /// keys and values. Not an option: methods that query in rounds set it.
    #[serde(skip)]
    pub keeps_prefixes: bool,
}

/// The options that change no bit of a result on the processor: the keys of `--compute`. A prompt whose keys and values
/// do not fit the memory for them has no result.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ComputeOptions {
    /// Number of threads [default: one per processor]
    #[schemars(range(min = 1, max = 1024), extend("form" = "N"))]
    pub threads: Option<usize>,
    /// Compute every prompt from scratch (slower)
    pub no_sharing: bool,
    /// Tokens per forward pass [default: 1024; on CUDA and Metal up to 8192]
    #[schemars(range(min = 1), extend("form" = "N"))]
    pub token_budget: Option<usize>,
    /// Memory for keys and values, such as 2GiB; prompts that do not fit are `too_long` [default: half of the free
    /// memory]
    #[schemars(extend("form" = "SIZE"))]
    pub cache_budget: Option<ByteSize>,
    /// Speculative decoding that copies drafts from the prompt or the text so far; texts do not change
    pub draft: Drafting,
    /// Number of texts generated in parallel
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(LoadOptions::default().side_by_side)]
    pub side_by_side: usize,
    /// Instruction set: plain, avx2, avx-vnni, avx512 or amx [default: the widest available]
    #[serde(with = "isa_name")]
    #[schemars(with = "Option<String>", extend("form" = "NAME"))]
    pub isa: Option<Isa>,
}

impl ComputingOptions {
    /// The runtime's options.
    pub fn load_options(&self) -> LoadOptions {
        let compute = &self.compute;
        LoadOptions {
            precision: self.precision,
            devices: self.device.counted(),
            threads: compute.threads,
            min_mass: self.min_mass,
            share_prefixes: !compute.no_sharing,
            token_budget: compute.token_budget,
            cache_budget: compute.cache_budget.map(|ByteSize(bytes)| bytes),
            drafting: compute.draft,
            side_by_side: compute.side_by_side,
            isa: compute.isa,
            kept_prefixes: if self.keeps_prefixes { KeptPrefixBytes::Third } else { KeptPrefixBytes::None },
            ..LoadOptions::default()
        }
    }
}

impl ComputingOptions {
    /// How chats are formatted.
    pub fn chat_options(&self) -> ChatOptions {
        let variables = self.template_var.iter().map(|variable| (variable.name.clone(), variable.value.clone()));
        ChatOptions { think: self.think, thoughts: self.thoughts, variables: variables.collect() }
    }

    /// The description of a model with these options.
    pub fn described(&self, model: ModelDescription) -> ModelDescription {
        ModelDescription { chat: self.chat_options(), ..model }
    }

    /// A model that formats chats and thinks as these options say.
    pub fn thinking<'m>(&self, model: &'m dyn LanguageModel) -> ThinkingModel<&'m dyn LanguageModel> {
        ThinkingModel::new(model, self.chat_options(), self.min_mass)
    }

    /// The same for a run's own model and its others.
    pub(crate) fn thinking_models<'m>(
        &self,
        model: Option<&'m dyn LanguageModel>,
        others: &[&'m dyn LanguageModel],
    ) -> (Option<Thinking<'m>>, Vec<Thinking<'m>>) {
        let thinking = |model| self.thinking(model);
        (model.map(thinking), others.iter().copied().map(thinking).collect())
    }
}

/// A borrowed model that may think.
type Thinking<'m> = ThinkingModel<&'m dyn LanguageModel>;

/// A variable of a chat template: `NAME=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateVariable {
    /// Its name in the template.
    pub name: String,
    /// JSON, or else text.
    pub value: Value,
}

/// Why a text is no [`TemplateVariable`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum TemplateVariableError {
    /// There is no name, or no value.
    #[error("expected NAME=VALUE, such as reasoning_effort=low")]
    Form,
    /// A value in Python's spelling, which would be text.
    #[error("`{value}` is text here; write {json} for the value")]
    Python {
        /// As given.
        value: String,
        /// In JSON.
        json: &'static str,
    },
    /// The engine sets it.
    #[error("`{0}` cannot be set: it comes from the prompt or the tokenizer")]
    Reserved(String),
}

impl FromStr for TemplateVariable {
    type Err = TemplateVariableError;

    fn from_str(text: &str) -> Result<Self, TemplateVariableError> {
        let (name, value) = text.split_once('=').ok_or(TemplateVariableError::Form)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(is_name) {
            return Err(TemplateVariableError::Form);
        }
        if probity_runtime::is_reserved_variable(name) {
            return Err(TemplateVariableError::Reserved(name.to_owned()));
        }
        for (python, json) in [("True", "true"), ("False", "false"), ("None", "null")] {
            if value == python {
                return Err(TemplateVariableError::Python { value: value.to_owned(), json });
            }
        }
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        Ok(Self { name: name.to_owned(), value })
    }
}

impl fmt::Display for TemplateVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Text that reads as JSON keeps its quotes.
        match &self.value {
            Value::String(text) if serde_json::from_str::<Value>(text).is_err() => write!(f, "{}={text}", self.name),
            value => write!(f, "{}={value}", self.name),
        }
    }
}

written_as_text!(TemplateVariable);

/// How a model is run, for the manifest.
pub fn computing_in_force(options: LoadOptions) -> Value {
    json!({
        "precision": options.precision_in_force(),
        "device": options.devices.to_string(),
        "threads": options.threads,
        "min_mass": options.min_mass,
        "share_prefixes": options.share_prefixes,
        "token_budget": options.token_budget,
        "cache_budget": options.cache_budget,
        "drafting": options.drafting.as_str(),
        "side_by_side": options.side_by_side,
        "isa": options.isa.map(Isa::name),
    })
}

/// Serialises an instruction set by its name.
mod isa_name {
    use probity_runtime::Isa;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    pub(super) fn serialize<S: Serializer>(isa: &Option<Isa>, serializer: S) -> Result<S::Ok, S::Error> {
        isa.map(Isa::name).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Isa>, D::Error> {
        let Some(name) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        let isa = Isa::ALL.into_iter().find(|isa| isa.name() == name);
        let known = || format!("expected one of {}", Isa::ALL.map(Isa::name).join(", "));
        isa.map(Some).ok_or_else(|| D::Error::custom(known()))
    }
}

/// A number of bytes: `512MiB`, `2GB`, `1.5GiB`, `1000000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub u64);

/// Why a text is no [`ByteSize`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum ByteSizeError {
    /// The unit is missing or unknown.
    #[error("expected a unit such as MB, MiB, GB or GiB")]
    Unit,
    /// It does not begin with a number above 0.
    #[error("expected a size such as 2GiB")]
    Number,
    /// A small number without a unit, which is unlikely to mean bytes.
    #[error("expected a unit, as in 2GiB; a number without a unit is in bytes")]
    Bare,
}

impl FromStr for ByteSize {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<Self, ByteSizeError> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "kib" => f64::from(1 << 10),
            "mib" => f64::from(1 << 20),
            "gib" => f64::from(1 << 30),
            _ => return Err(ByteSizeError::Unit),
        };
        match digits.trim().parse::<f64>() {
            Ok(number) if number > 0.0 && number < 1000.0 && digits.len() == text.len() => Err(ByteSizeError::Bare),
            Ok(number) if number > 0.0 && number.is_finite() => Ok(Self((number * unit) as u64)),
            _ => Err(ByteSizeError::Number),
        }
    }
}

impl ByteSize {
    /// As an option value, rounded up: `12.4MB`.
    pub fn rounded_up(self) -> String {
        let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB")];
        let (unit, name) = units.into_iter().find(|(unit, _)| self.0 >= *unit).unwrap_or((1000, "kB"));
        let tenths = self.0.div_ceil(unit / 10);
        format!("{}.{}{name}", tenths / 10, tenths % 10)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

written_as_text!(ByteSize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_nonsense_is_refused() {
        for bytes in [1, 999, 1000, 1001, 999_999, 12_345_678, 3 << 30] {
            let ByteSize(rounded) = ByteSize(bytes).rounded_up().parse().expect("a size");
            assert!(rounded >= bytes && rounded <= bytes + bytes / 10 + 100, "{bytes}: {rounded}");
        }
        assert_eq!(ByteSize(12_345_678).rounded_up(), "12.4MB");
        let known = [("1000", 1000), ("2GiB", 2 << 30), ("1.5 MiB", 3 << 19), ("3gb", 3_000_000_000), ("7B", 7)];
        assert!(known.iter().all(|(text, size)| text.parse() == Ok(ByteSize(*size))));
        assert!(
            ["", "GiB", "-1GiB", "2 GiBs", "1e400", "0", "10"].iter().all(|text| text.parse::<ByteSize>().is_err())
        );
    }

    #[test]
    fn variables_of_a_template_are_json_or_text() {
        for (text, value) in [
            ("effort=low", json!("low")),
            ("on=true", json!(true)),
            ("n=3", json!(3)),
            ("a=", json!("")),
            ("quoted=\"3\"", json!("3")),
            ("a=b=c", json!("b=c")),
        ] {
            let variable: TemplateVariable = text.parse().expect("a variable");
            assert_eq!((&variable.value, variable.to_string().as_str()), (&value, text));
        }
        for text in ["effort", "=low", "a b=c", "1a=c", "messages=[]", "add_generation_prompt=false", "bos_token=x"] {
            assert!(text.parse::<TemplateVariable>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_runtime() {
        let (ours, runtime) = (ComputingOptions::default().load_options(), LoadOptions::default());
        assert_eq!(computing_in_force(ours), computing_in_force(runtime));
    }
}
