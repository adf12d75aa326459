//! The pre-norm gated decoder of the llama family (Touvron et al. 2023). Its architectures differ only in
//! configuration.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{Device, Result, Tensor};
use probity_kernels::{Activation, RopeLayout};

use crate::classes::SCORE;
use crate::cpu::{NormKind, Workspace};
use crate::head::VocabularyHead;
use crate::layer_inputs::{LayerInputConfig, LayerInputs};
use crate::linear::{TensorLoader, TokenEmbedding, load_floats};
use crate::packed::{HeadRow, KvSpan, LayerTaps, PackedDecoder, PackedOutput, PackedSegment};
use crate::stack_config::{
    AttentionNames, ExpertChoice, HeadNorms, LayerBiases, LayerNames, LayerSight, NormNames, Recurrence, StackConfig,
    Temperature,
};
use crate::transformer::{ForwardPass, LayerStack, TextRows};
use crate::{Compute, Rope, SourceError, WeightSource};

/// The configuration of a model of the llama family.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "checkpoints differ in which products have biases")]
pub struct DecoderConfig {
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the gated feed-forward layer.
    pub intermediate_size: usize,
    /// The mixture of experts in feed-forward layers, if any.
    pub experts: Option<ExpertChoice>,
    /// Window and rotation of each layer.
    pub layers: Vec<LayerSight>,
    /// Query heads.
    pub num_heads: usize,
    /// Key and value heads.
    pub num_kv_heads: usize,
    /// Dimension of a head.
    pub head_dim: usize,
    /// Number of rotated elements per head, counted from the first.
    pub rotary_dim: usize,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Maximum number of positions.
    pub context_length: usize,
    /// Epsilon of the RMS norms.
    pub rms_norm_eps: f64,
    /// Rotary embeddings; [`LayerSight::rotation`] selects one per layer.
    pub ropes: Vec<Rope>,
    /// The tensor of divisors of the first rotation's frequencies, in GGUF files that have one (llama 3, phi 3).
    pub rope_freq_factors: Option<&'static str>,
    /// The order of the rotated elements in the checkpoint.
    pub rope_layout: RopeLayout,
    /// Factor of embeddings.
    pub embedding_scale: f32,
    /// Factor of attention scores, usually `head_dim^-½`.
    pub score_scale: f32,
    /// Soft cap of scores: `s` becomes `cap · tanh(s / cap)`.
    pub score_cap: Option<f32>,
    /// Growth of attention scores with the position, if any.
    pub temperature: Option<Temperature>,
    /// The tensor in each layer with a logit per head, if there is one: a share of the softmax without a value.
    pub sinks: Option<&'static str>,
    /// Whether each query head has a gate of the attention's output. Its rows follow those of the head's query.
    pub output_gate: bool,
    /// What recurrent layers compute, if there are any.
    pub recurrence: Option<Recurrence>,
    /// Factor of the attention and feed-forward outputs before they are added to the residual stream.
    pub branch_scale: f32,
    /// Factor of logits.
    pub logit_scale: f32,
    /// Soft cap of logits: `z` becomes `cap · tanh(z / cap)`.
    pub logit_cap: Option<f32>,
    /// Activation of the feed-forward gate.
    pub activation: Activation,
    /// Whether the output head shares the embedding's weights.
    pub tie_word_embeddings: bool,
    /// Biases on queries, keys and values.
    pub qkv_bias: bool,
    /// A bias on the attention's output.
    pub attention_output_bias: bool,
    /// Biases in the feed-forward layer.
    pub mlp_bias: bool,
    /// Layers after the last that predict further tokens; their tensors are not read.
    pub unused_layers: usize,
    /// A bias on the router of a mixture of experts.
    pub router_bias: bool,
    /// Class names by index, if a class head replaces the vocabulary; otherwise empty.
    pub classes: Vec<String>,
    /// The padding token. A class head reads the last token that is not padding.
    pub padding: Option<u32>,
    /// The inputs that layers receive beside the residual stream, if any.
    pub layer_inputs: Option<LayerInputConfig>,
    /// Whether the heads of values are divided by their root mean square.
    pub value_norm: bool,
    pub(crate) norm: NormKind,
    pub(crate) names: &'static LayerNames,
}

/// Prefix of all tensor names except the output head.
pub(crate) const MODEL: &str = "model.";
pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";
/// Frequency divisors for short and long texts, in GGUF files with both.
pub(crate) const SHORT_FACTORS: &str = "rope_factors_short.weight";
pub(crate) const LONG_FACTORS: &str = "rope_factors_long.weight";
/// The output head's tensor, if it is not tied.
pub(crate) const OUTPUT: &str = "lm_head.weight";

pub(crate) const NAMES: LayerNames = LayerNames {
    layers: "layers",
    attention: AttentionNames {
        projections: ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"],
        norms: NormNames::stream("input_layernorm"),
    },
    head_norms: None,
    cross: None,
    router: None,
    router_correction: None,
    gate: "mlp.gate_proj",
    up: Some("mlp.up_proj"),
    down: "mlp.down_proj",
    shared: None,
    dense: None,
    shared_gate: None,
    feed_forward_norms: NormNames::stream("post_attention_layernorm"),
    layer_input: None,
    layer_scale: None,
    last_norm: Some("norm"),
    relative: None,
};
/// The names with norms of queries and keys.
pub(crate) const HEAD_NORMED_NAMES: LayerNames = LayerNames { head_norms: Some(HEAD_NORMS), ..NAMES };
pub(crate) const HEAD_NORMS: HeadNorms =
    HeadNorms { names: ["self_attn.q_norm", "self_attn.k_norm"], of_all_heads: false };

impl DecoderConfig {
    /// Whether a tensor belongs to the keys or values of a layer that uses those of another.
    pub(crate) fn has_keys_of_another(&self, name: &str) -> bool {
        let AttentionNames { projections: [_, key, value, _], .. } = self.names.attention;
        let norm = self.names.head_norms.map(|norms| norms.names[1]);
        let inside = name.strip_prefix(MODEL).and_then(|name| name.strip_prefix(self.names.layers)?.strip_prefix('.'));
        inside.and_then(|inside| inside.split_once('.')).is_some_and(|(layer, part)| {
            let layer = layer.parse().ok().and_then(|layer: usize| self.layers.get(layer));
            let part = part.rsplit_once('.').map(|(part, _)| part);
            layer.is_some_and(|layer| layer.variant.keys_of.is_some())
                && part.is_some_and(|part| part == key || part == value || Some(part) == norm)
        })
    }

    /// The output head's tensor name and number of rows.
    pub(crate) fn head(&self) -> (&'static str, usize) {
        match self.classes.len() {
            0 if self.tie_word_embeddings => (EMBEDDING, self.vocab_size),
            0 => (OUTPUT, self.vocab_size),
            classes => (SCORE, classes),
        }
    }

    pub(crate) fn stack(&self) -> StackConfig {
        StackConfig {
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            experts: self.experts,
            layers: self.layers.clone(),
            layer_inputs: self.layer_inputs.map(|inputs| inputs.width),
            num_heads: self.num_heads,
            num_kv_heads: self.num_kv_heads,
            head_dim: self.head_dim,
            score_scale: self.score_scale,
            score_cap: self.score_cap,
            temperature: self.temperature,
            sinks: self.sinks,
            output_gate: self.output_gate,
            recurrence: self.recurrence,
            bidirectional: false,
            relative: None,
            disentangled: None,
            norm: self.norm,
            value_norm: self.value_norm,
            norm_eps: self.rms_norm_eps,
            norm_first: true,
            first_input_norm: true,
            branch_scale: self.branch_scale,
            activation: self.activation,
            biases: LayerBiases {
                qkv: self.qkv_bias,
                attention_output: self.attention_output_bias,
                feed_forward: self.mlp_bias,
                router: self.router_bias,
            },
            names: self.names,
        }
    }
}

/// A loaded model of the family.
pub(crate) struct LlamaFamily {
    embed_tokens: TokenEmbedding,
    layer_inputs: Option<LayerInputs>,
    stack: LayerStack,
    lm_head: VocabularyHead,
    /// One for each rotation.
    frequencies: Vec<Vec<f32>>,
    config: DecoderConfig,
    compute: Compute,
    /// Locked for a whole call: each call uses all threads.
    workspace: Mutex<Workspace>,
}

impl LlamaFamily {
    pub(crate) fn load(
        source: &dyn WeightSource,
        config: DecoderConfig,
        compute: Compute,
    ) -> std::result::Result<Self, SourceError> {
        let vocabulary = [config.vocab_size, config.hidden_size];
        let (head, outputs) = config.head();
        let (all, model) = (TensorLoader::new(source, "", compute), TensorLoader::new(source, MODEL, compute));
        let stack = config.stack();
        let layer_inputs = config.layer_inputs.map(|inputs| LayerInputs::load(&model, inputs, &stack)).transpose()?;
        Ok(Self {
            stack: LayerStack::load(&model, stack)?,
            // Loaded before the embedding, which releases its pages: a tied head reads all of them.
            lm_head: VocabularyHead {
                // Unrounded: each text has only a few rows here, so rounding would save nothing.
                weight: if config.classes.is_empty() { all.under("") } else { all.unrounded() }
                    .packed(head, [outputs, config.hidden_size])?,
                bias: None,
                scale: config.logit_scale,
                cap: config.logit_cap,
            },
            embed_tokens: all.embedding(EMBEDDING, vocabulary)?,
            layer_inputs,
            frequencies: frequencies(source, &config)?,
            config,
            compute,
            workspace: Mutex::default(),
        })
    }

    /// Inputs that all layers share.
    fn pass<'a>(&self, segments: &'a [PackedSegment]) -> ForwardPass<'a> {
        let stretch = |s: &'a PackedSegment| TextRows { past: &s.past, source: None, len: s.tokens.len() };
        let pass = ForwardPass {
            compute: self.compute,
            stretches: segments.iter().map(stretch).collect(),
            wanted: Some(segments.iter().map(|s| &*s.wanted).collect()),
            rotations: None,
        };
        pass.rotated(self.config.rope_layout, &self.frequencies, &self.config.ropes)
    }
}

/// The frequencies of each rotation, from the configuration and the checkpoint.
pub(crate) fn frequencies(
    source: &dyn WeightSource,
    config: &DecoderConfig,
) -> std::result::Result<Vec<Vec<f32>>, SourceError> {
    let mut all: Vec<Vec<f32>> = config.ropes.iter().map(|rope| rope.frequencies(config.rotary_dim)).collect();
    if let Some(name) = config.rope_freq_factors {
        let factors = load_floats(source, name, &[all[0].len()])?;
        if let Some(bad) = factors.iter().find(|factor| !(**factor > 0.0 && factor.is_finite())) {
            let why = format!("a frequency cannot be divided by {bad}");
            return Err(SourceError::Invalid { name: name.to_owned(), path: source.path(), why });
        }
        all[0].iter_mut().zip(&factors).for_each(|(frequency, factor)| *frequency /= factor);
    }
    Ok(all)
}

impl PackedDecoder for LlamaFamily {
    fn forward_tapped(&self, segments: &[PackedSegment], taps: &mut LayerTaps<'_>) -> Result<PackedOutput> {
        // A poisoned lock is safe: each call sets the length of the buffers and writes them before it reads them.
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let w = &mut *workspace;
        let tokens: Vec<u32> = segments.iter().flat_map(|s| s.tokens.iter().copied()).collect();
        let hidden_size = self.config.hidden_size;
        w.x.set_len(tokens.len() * hidden_size);
        self.embed_tokens.rows(&tokens, &mut w.x)?; // (tokens, hidden_size)
        if self.config.embedding_scale != 1.0 {
            w.x.iter_mut().for_each(|x| *x *= self.config.embedding_scale);
        }
        if let Some(inputs) = &self.layer_inputs {
            inputs.compute(w, self.compute.isa, &tokens)?;
        }
        taps.show(0, &w.x);
        let spans = self.stack.run(w, &self.pass(segments), |layer, x| taps.show(layer + 1, x));
        let hidden = self.stack.finish(w, self.compute);
        let hidden = Tensor::from_vec(hidden, (w.x.len() / hidden_size, hidden_size), &Device::Cpu)?;
        let spans = segments.iter().zip(spans).map(|(s, span)| Arc::new(KvSpan::new(s.tokens.len(), span))).collect();
        Ok(PackedOutput { hidden, spans })
    }

    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        self.lm_head.logits(self.compute, &mut workspace.inputs, hidden)
    }

    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> Result<Vec<HeadRow>> {
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        self.lm_head.rows(self.compute, &mut workspace.inputs, hidden, asked)
    }

    fn greedy_among(&self, hidden: &Tensor, row: &HeadRow, allowed: &[u32]) -> Result<Option<u32>> {
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        self.lm_head.greedy_among(self.compute, &mut workspace.inputs, hidden, row, allowed)
    }

    fn cache_bytes(&self, tokens: usize) -> usize {
        self.stack.cache_bytes(self.compute, tokens)
    }

    fn idle_rows(&self) -> usize {
        self.compute.idle_rows()
    }

    fn state_bytes(&self) -> usize {
        self.stack.state_bytes()
    }

    fn without_states(&self, span: &Arc<KvSpan>) -> Arc<KvSpan> {
        self.stack.without_states(self.compute, span)
    }

    fn join(&self, spans: &[Arc<KvSpan>], len: usize) -> Result<Arc<KvSpan>> {
        if self.state_bytes() > 0 && spans.iter().map(|span| span.len()).sum::<usize>() != len {
            candle_core::bail!("a recurrent state belongs to the end of a span, which cannot be cut");
        }
        Ok(self.stack.join(self.compute, spans, len))
    }
}
