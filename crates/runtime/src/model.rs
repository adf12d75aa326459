//! The language model interface for a decoder and its tokenizer.

use std::sync::Arc;

use probity_lm::{
    ChatOptions, ClassKind, GenerateRequest, GenerateResult, LanguageModel, LiveTexts, LmError, ModelDescription,
    Outcome, Prompt, Requests, ScoreRequest, ScoreResult, Sink, SinkError, Usage,
};
use probity_models::{Compute, PackedDecoder, weight_types};
use serde::Deserialize;

use crate::TokenProgress;
use crate::checkpoint::{Checkpoint, LoadError};
use crate::encoder::PromptEncoder;
use crate::engine::kept::KeptPrefixes;
use crate::engine::scheduler::ScheduleLimits;
use crate::engine::token_scores::ScheduleOptions;
use crate::engine::walk::WalkError;
use crate::hub::LocatedModel;
use crate::memory::{MemoryLimit, ModelMemory};
use crate::options::{KeptPrefixBytes, LoadOptions};
use crate::replica::{Replica, load_replicas};
use crate::request_encoder::RequestEncoder;
use crate::threads::{ComputeThreads, computing_error};

impl Checkpoint {
    /// Checks that the model answers prompts, by tokens or classes, and supports these options, as far as possible
    /// without loading it.
    pub fn check_answers(&self, options: LoadOptions) -> Result<(), LoadError> {
        self.check_runs(options.devices.first_copy(), options.arithmetic())
    }

    /// Meaning of the class head's logits; the default without a class head.
    fn class_kind(&self) -> ClassKind {
        let said = self.config_json.get("problem_type").filter(|_| !self.config.classes().is_empty());
        // The value was checked when the configuration was parsed; null means the default.
        said.and_then(|kind| ClassKind::deserialize(kind).ok()).unwrap_or_default()
    }

    /// Metadata of the model for records, if loaded with these options.
    pub fn describe(&self, options: LoadOptions, fingerprint: &str) -> ModelDescription {
        let located = &self.located;
        ModelDescription {
            name: located.name.clone(),
            adapter: located.adapter.as_ref().map(|folder| folder.display().to_string()),
            revision: located.revision().map(str::to_owned),
            architecture: self.architecture().to_owned(),
            fingerprint: fingerprint.to_owned(),
            precision: options.precision_in_force(),
            device: options.devices.to_string(),
            platform: options.platform(),
            weights: weight_types(&*self.source).iter().map(|(t, _)| t.name()).collect::<Vec<_>>().join(", "),
            context_length: self.config.context_length(),
            layers: self.config.layers(),
            through: self.through().map(str::to_owned),
            classes: self.config.classes().to_vec(),
            class_kind: self.class_kind(),
            has_chat_template: self.encoder.takes_chats(),
            thinking: self.encoder.thinking().cloned(),
            chat: ChatOptions::default(),
        }
    }
}

/// A loaded model.
pub struct Model {
    /// One per copy of the model.
    pub(crate) replicas: Vec<Replica>,
    pub(crate) requests: RequestEncoder,
    options: LoadOptions,
    memory: ModelMemory,
}

impl Model {
    /// Loads a model from this machine.
    pub fn load(located: &LocatedModel, options: LoadOptions) -> Result<Self, LoadError> {
        Self::from_checkpoint(&Checkpoint::open(located)?, options)
    }

    /// Loads a model from an opened checkpoint.
    pub fn from_checkpoint(checkpoint: &Checkpoint, options: LoadOptions) -> Result<Self, LoadError> {
        let isa = options.check()?;
        let threads = ComputeThreads::shares(options.threads, options.devices.copies().len())?;
        checkpoint.check_answers(options)?;
        let description = checkpoint.describe(options, checkpoint.fingerprint()?);
        let compute = Compute { arithmetic: options.arithmetic(), isa };
        let memory = ModelMemory::new(checkpoint, options);
        memory.check(checkpoint, options, MemoryLimit::Free)?;
        let places = options.devices.copies().map(|copy| memory.placement(copy)).collect();
        let replicas = load_replicas(checkpoint, compute, places, threads)?;
        let token_budget = options.token_budget.unwrap_or_else(|| memory.token_budget());
        let memory = memory.after_loading(token_budget);
        let mut model =
            Self { replicas, requests: RequestEncoder::new(checkpoint.encoder.clone(), description), memory, options };
        // Stores the effective options instead of the requested ones, because records state how results were computed.
        model.set_options(LoadOptions { isa: Some(isa), precision: options.precision_in_force(), ..options });
        Ok(model)
    }

    /// Changes how the loaded weights are run. Precision, devices and instruction set stay as loaded.
    pub fn run_with(&mut self, options: LoadOptions) -> Result<(), LoadError> {
        let shares = ComputeThreads::shares(options.threads, self.replicas.len())?;
        self.replicas.iter_mut().zip(shares).for_each(|(replica, threads)| replica.threads = threads);
        // The weights were packed for these three when loaded.
        let LoadOptions { precision, devices, isa, .. } = self.options;
        self.set_options(LoadOptions { precision, devices, isa, ..options });
        Ok(())
    }

    /// Sets the options and fills in machine-dependent defaults.
    fn set_options(&mut self, options: LoadOptions) {
        let all = options.cache_budget.unwrap_or_else(|| self.memory.cache_budget());
        let may_keep = options.share_prefixes && !self.encoder().has_source() && !self.encoder().reads_whole();
        let (kept, cache) = match options.kept_prefixes {
            KeptPrefixBytes::Third if may_keep => (all / 3, all - all / 3),
            KeptPrefixBytes::Bytes(bytes) if may_keep => (bytes, all),
            _ => (0, all),
        };
        let threads = Some(self.replicas.iter().map(|replica| replica.threads.count()).sum());
        let token_budget = options.token_budget.unwrap_or_else(|| self.memory.token_budget()).max(1);
        let side_by_side = options.side_by_side.max(1);
        self.options = LoadOptions {
            threads,
            token_budget: Some(token_budget),
            side_by_side,
            cache_budget: Some(cache),
            ..options
        };
        // The most tokens whose keys and values fit.
        let (mut fits, mut beyond) = (0, self.requests.most_tokens() + 1);
        // Found by search, because spans are padded to blocks of keys and bytes are not proportional to tokens.
        while fits + 1 < beyond {
            let middle = fits.midpoint(beyond);
            if self.decoder().cache_bytes(middle) as u64 <= cache { fits = middle } else { beyond = middle }
        }
        self.requests.token_limit = fits;
        for replica in &mut self.replicas {
            replica.kept = (kept > 0).then(|| KeptPrefixes::new(kept));
        }
    }

    /// The tokenizer and chat template.
    pub fn encoder(&self) -> &PromptEncoder {
        &self.requests.encoder
    }

    /// The effective options, with defaults filled in.
    pub fn options(&self) -> LoadOptions {
        self.options
    }

    /// Memory on each of its devices.
    pub fn memory(&self) -> &ModelMemory {
        &self.memory
    }

    /// Tokens per batch.
    pub(crate) fn token_budget(&self) -> usize {
        // Set when the model was loaded.
        self.options.token_budget.unwrap_or(1)
    }

    /// Bytes of keys and values for one span of this many tokens, at least one.
    pub fn cache_bytes(&self, tokens: usize) -> u64 {
        self.decoder().cache_bytes(tokens) as u64
    }

    /// The model's progress, readable from other threads.
    pub fn progress(&self) -> &Arc<TokenProgress> {
        self.first().progress()
    }

    /// The copy on the first device.
    pub(crate) fn first(&self) -> &Replica {
        // A list of devices is never empty.
        &self.replicas[0]
    }

    /// Its decoder.
    pub(crate) fn decoder(&self) -> &dyn PackedDecoder {
        self.first()
    }

    /// Maximum tokens of a prompt with its answer: limited by the context and the cache budget.
    pub fn token_limit(&self) -> usize {
        self.requests.token_limit
    }

    /// The `--compute cache-budget` with which this many tokens fit. `None` if they fit already or exceed the context.
    pub fn cache_needed(&self, tokens: usize) -> Option<u64> {
        let is_seen = self.description().context_length.is_none() || tokens <= self.requests.most_tokens();
        let keys_and_values = self.cache_bytes(tokens);
        // A third of the budget may be used by the prefix cache.
        let all = if self.first().kept.is_some() { keys_and_values.div_ceil(2) * 3 } else { keys_and_values };
        (tokens > self.token_limit() && is_seen).then_some(all)
    }

    /// Why a prompt and the text after it cannot be scored, if they are so long that this is known without tokenising.
    pub fn surely_too_long(&self, prompt: &Prompt, text: &str) -> Option<Outcome> {
        self.requests.surely_too_long(prompt, text)
    }

    /// How a work list runs on one of the copies.
    pub(crate) fn schedule<'a>(&'a self, replica: &'a Replica) -> ScheduleOptions<'a> {
        let cache = self.options.cache_budget.unwrap_or(u64::MAX);
        ScheduleOptions {
            limits: ScheduleLimits { tokens: self.token_budget(), cache },
            share_prefixes: self.options.share_prefixes && !self.encoder().reads_whole(),
            kept: replica.kept.as_ref(),
            drafting: self.options.drafting,
            side_by_side: self.options.side_by_side,
            progress: replica.progress(),
        }
    }
}

/// Converts an error of the engine.
pub(crate) fn walk_error(error: WalkError<SinkError>) -> LmError {
    match error {
        WalkError::Model(error) => LmError::Model(computing_error(error)),
        WalkError::Visitor(error) => LmError::Sink(error),
    }
}

impl LanguageModel for Model {
    fn description(&self) -> &ModelDescription {
        &self.requests.description
    }

    fn score(
        &self,
        requests: &mut Requests<'_, ScoreRequest>,
        sink: &mut Sink<'_, ScoreResult>,
    ) -> Result<Usage, LmError> {
        self.in_windows(requests, sink, &|index, request| self.requests.ask(index, request), &mut |window, sink| {
            self.on_replicas(window, sink, &|replica, part, sink| self.score_part(replica, part, sink))
        })
    }

    fn generate(
        &self,
        requests: &mut Requests<'_, GenerateRequest>,
        sink: &mut Sink<'_, GenerateResult>,
    ) -> Result<Usage, LmError> {
        self.in_windows(requests, sink, &|index, request| self.requests.begin(index, request), &mut |window, sink| {
            self.on_replicas(window, sink, &|replica, part, sink| self.generate_part(replica, part, sink))
        })
    }

    fn generate_live(&self, texts: &mut dyn LiveTexts) -> Result<Usage, LmError> {
        self.continue_live(texts)
    }
}
