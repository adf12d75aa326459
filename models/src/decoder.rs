//! The pre-norm gated decoder that the llama family shares (Touvron et al. 2023): architectures differ in their configuration alone.

use std::sync::Arc;

use candle_core::{Device, Result, Tensor};
use probity_kernels::{AttentionShape, RopeLayout, RopeTable};

use crate::linear::{Linear, Weight, load_vector};
use crate::ops::{LayerSpan, RmsNorm, SegmentSpans, add, attend, gated_silu, join, normalisers, pack_span, rotate};
use crate::packed::{Decoder, KvSpan, PackedOutput, PackedSegment};
use crate::{Arithmetic, Rope, SourceError, WeightSource};

/// Everything that distinguishes one model of the family from another.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "checkpoints differ in which layers have biases")]
pub struct DecoderConfig {
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the gated feed-forward layer.
    pub intermediate_size: usize,
    /// Layers.
    pub num_layers: usize,
    /// Query heads.
    pub num_heads: usize,
    /// Key and value heads.
    pub num_kv_heads: usize,
    /// Length of a head.
    pub head_dim: usize,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Positions the model was made for.
    pub context_length: usize,
    /// Added to the mean square in norms.
    pub rms_norm_eps: f64,
    /// Rotary embeddings.
    pub rope: Rope,
    /// Whether the checkpoint holds `rope_freqs.weight`, by which frequencies are divided (llama 3 scaling in GGUF files).
    pub rope_freq_factors: bool,
    /// How checkpoints of this origin order the rotated elements.
    pub rope_layout: RopeLayout,
    /// A token sees this many positions, its own included.
    pub sliding_window: Option<usize>,
    /// Whether the output head is the embedding.
    pub tie_word_embeddings: bool,
    /// Biases on queries, keys and values.
    pub qkv_bias: bool,
    /// A bias on the attention's output.
    pub attention_output_bias: bool,
    /// Biases in the feed-forward layer.
    pub mlp_bias: bool,
}

impl DecoderConfig {
    fn attention_shape(&self) -> AttentionShape {
        AttentionShape {
            heads: self.num_heads,
            kv_heads: self.num_kv_heads,
            head_dim: self.head_dim,
            scale: 1.0 / (self.head_dim as f32).sqrt(),
            window: self.sliding_window,
        }
    }
}

/// What a batch shares in all layers.
struct Plan<'a> {
    segments: &'a [PackedSegment],
    rope: RopeTable,
    rope_layout: RopeLayout,
    shape: AttentionShape,
}

#[expect(clippy::struct_field_names, reason = "the checkpoint's names")]
struct Attention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
}

impl Attention {
    fn load(source: &dyn WeightSource, prefix: &str, c: &DecoderConfig, arithmetic: Arithmetic) -> std::result::Result<Self, SourceError> {
        let (queries, keys) = (c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim);
        let linear = |name: &str, shape, bias| Linear::load(source, &format!("{prefix}.{name}"), shape, bias, arithmetic);
        Ok(Self {
            q_proj: linear("q_proj", [queries, c.hidden_size], c.qkv_bias)?,
            k_proj: linear("k_proj", [keys, c.hidden_size], c.qkv_bias)?,
            v_proj: linear("v_proj", [keys, c.hidden_size], c.qkv_bias)?,
            o_proj: linear("o_proj", [c.hidden_size, queries], c.attention_output_bias)?,
        })
    }

    /// `(tokens, hidden_size)` to the same, and each segment's new span in this layer.
    fn forward(&self, x: &Tensor, plan: &Plan<'_>, layer: usize) -> Result<(Tensor, Vec<LayerSpan>)> {
        let q = rotate(&self.q_proj.forward(x)?, &plan.rope, plan.rope_layout)?; // (tokens, heads · head_dim)
        let k = rotate(&self.k_proj.forward(x)?, &plan.rope, plan.rope_layout)?; // (tokens, kv_heads · head_dim)
        let v = self.v_proj.forward(x)?;
        let mut new = Vec::with_capacity(plan.segments.len());
        let mut row = 0;
        for segment in plan.segments {
            new.push(pack_span(&plan.shape, &k, &v, row, segment.tokens.len())?);
            row += segment.tokens.len();
        }
        let mut segments = Vec::with_capacity(plan.segments.len());
        for (segment, new) in plan.segments.iter().zip(&new) {
            let mut spans: Vec<_> = segment.past.iter().map(|span| (&span.cache::<Vec<LayerSpan>>()[layer], span.len())).collect();
            spans.push((new, segment.tokens.len()));
            segments.push(SegmentSpans { spans, rows: segment.tokens.len() });
        }
        let y = self.o_proj.forward(&attend(&plan.shape, &q, &segments)?)?;
        Ok((y, new))
    }
}

#[expect(clippy::struct_field_names, reason = "the checkpoint's names")]
struct Mlp {
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
}

impl Mlp {
    fn load(source: &dyn WeightSource, prefix: &str, c: &DecoderConfig, arithmetic: Arithmetic) -> std::result::Result<Self, SourceError> {
        let linear = |name: &str, shape| Linear::load(source, &format!("{prefix}.{name}"), shape, c.mlp_bias, arithmetic);
        Ok(Self {
            gate_proj: linear("gate_proj", [c.intermediate_size, c.hidden_size])?,
            up_proj: linear("up_proj", [c.intermediate_size, c.hidden_size])?,
            down_proj: linear("down_proj", [c.hidden_size, c.intermediate_size])?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.down_proj.forward(&gated_silu(&self.gate_proj.forward(x)?, &self.up_proj.forward(x)?)?)
    }
}

struct DecoderLayer {
    input_layernorm: RmsNorm,
    self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    mlp: Mlp,
}

impl DecoderLayer {
    fn load(source: &dyn WeightSource, prefix: &str, c: &DecoderConfig, arithmetic: Arithmetic) -> std::result::Result<Self, SourceError> {
        let norm = |name: &str| RmsNorm::load(source, &format!("{prefix}.{name}"), c.hidden_size, c.rms_norm_eps);
        Ok(Self {
            input_layernorm: norm("input_layernorm")?,
            self_attn: Attention::load(source, &format!("{prefix}.self_attn"), c, arithmetic)?,
            post_attention_layernorm: norm("post_attention_layernorm")?,
            mlp: Mlp::load(source, &format!("{prefix}.mlp"), c, arithmetic)?,
        })
    }

    fn forward(&self, x: &Tensor, plan: &Plan<'_>, layer: usize) -> Result<(Tensor, Vec<LayerSpan>)> {
        let (attended, spans) = self.self_attn.forward(&self.input_layernorm.forward(x)?, plan, layer)?;
        let x = add(x, &attended)?;
        let fed = self.mlp.forward(&self.post_attention_layernorm.forward(&x)?)?;
        Ok((add(&x, &fed)?, spans))
    }
}

/// Rows of logits that are held at a time.
const HEAD_ROWS: usize = 64;

/// A loaded model of the family.
pub(crate) struct LlamaFamily {
    embed_tokens: Weight,
    layers: Vec<DecoderLayer>,
    norm: RmsNorm,
    /// Absent where the embedding serves.
    lm_head: Option<Weight>,
    frequencies: Vec<f32>,
    config: DecoderConfig,
}

impl LlamaFamily {
    pub(crate) fn load(source: &dyn WeightSource, config: DecoderConfig, arithmetic: Arithmetic) -> std::result::Result<Self, SourceError> {
        let vocabulary = [config.vocab_size, config.hidden_size];
        let layer = |i| DecoderLayer::load(source, &format!("model.layers.{i}"), &config, arithmetic);
        let lm_head = if config.tie_word_embeddings { None } else { Some(Weight::load(source, "lm_head.weight", vocabulary, arithmetic)?) };
        Ok(Self {
            embed_tokens: Weight::load(source, "model.embed_tokens.weight", vocabulary, arithmetic)?,
            layers: (0..config.num_layers).map(layer).collect::<std::result::Result<_, _>>()?,
            norm: RmsNorm::load(source, "model.norm", config.hidden_size, config.rms_norm_eps)?,
            lm_head,
            frequencies: frequencies(source, &config)?,
            config,
        })
    }
}

/// The rotary frequencies that configuration and checkpoint ask for.
pub(crate) fn frequencies(source: &dyn WeightSource, config: &DecoderConfig) -> std::result::Result<Vec<f32>, SourceError> {
    let mut frequencies = config.rope.frequencies(config.head_dim);
    if config.rope_freq_factors {
        let name = "rope_freqs.weight";
        let factors = load_vector(source, name, frequencies.len())?;
        if let Some(bad) = factors.iter().find(|factor| !(**factor > 0.0 && factor.is_finite())) {
            let why = format!("a frequency cannot be divided by {bad}");
            return Err(SourceError::Invalid { name: name.to_owned(), path: source.path(), why });
        }
        frequencies.iter_mut().zip(factors).for_each(|(frequency, factor)| *frequency /= factor);
    }
    Ok(frequencies)
}

impl Decoder for LlamaFamily {
    fn forward(&self, segments: &[PackedSegment]) -> Result<PackedOutput> {
        let tokens: Vec<u32> = segments.iter().flat_map(|s| s.tokens.iter().copied()).collect();
        let positions: Vec<u32> = segments.iter().flat_map(|s| (s.start()..s.start() + s.tokens.len()).map(|p| p as u32)).collect();
        let plan = Plan {
            segments,
            rope: RopeTable::new(&positions, &self.frequencies),
            rope_layout: self.config.rope_layout,
            shape: self.config.attention_shape(),
        };
        let mut x = self.embed_tokens.embed(&tokens)?; // (tokens, hidden_size)
        let mut spans: Vec<Vec<LayerSpan>> = segments.iter().map(|_| Vec::with_capacity(self.layers.len())).collect();
        for (index, layer) in self.layers.iter().enumerate() {
            let (y, new) = layer.forward(&x, &plan, index)?;
            x = y;
            spans.iter_mut().zip(new).for_each(|(spans, new)| spans.push(new));
        }
        let mut rows = Vec::new();
        let mut start = 0;
        for segment in segments {
            rows.extend(segment.wanted.iter().map(|offset| (start + offset) as u32));
            start += segment.tokens.len();
        }
        let hidden = if rows.is_empty() {
            Tensor::zeros((0, self.config.hidden_size), x.dtype(), &Device::Cpu)?
        } else {
            let count = rows.len();
            self.norm.forward(&x.index_select(&Tensor::from_vec(rows, count, &Device::Cpu)?, 0)?)?
        };
        let spans = segments.iter().zip(spans).map(|(s, layers)| Arc::new(KvSpan::new(s.tokens.len(), layers))).collect();
        Ok(PackedOutput { hidden, spans })
    }

    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        self.lm_head.as_ref().unwrap_or(&self.embed_tokens).matmul(hidden)
    }

    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> Result<Vec<HeadRow>> {
        let mut rows = Vec::with_capacity(asked.len());
        for (part, asked) in asked.chunks(HEAD_ROWS).enumerate() {
            let logits = self.logits(&hidden.narrow(0, part * HEAD_ROWS, asked.len())?.contiguous()?)?;
            let normalisers = normalisers(&logits)?;
            for ((row, normaliser), asked) in logits.to_vec2::<f32>()?.iter().zip(normalisers).zip(asked) {
                let greedy = row.iter().enumerate().fold(0, |best, (id, logit)| if *logit > row[best] { id } else { best }) as u32;
                rows.push(HeadRow { normaliser, greedy, logits: asked.iter().map(|id| row[*id as usize]).collect() });
            }
        }
        Ok(rows)
    }

    fn cache_bytes(&self, tokens: usize) -> usize {
        let shape = self.config.attention_shape();
        self.layers.len() * (shape.keys_len(tokens) + shape.values_len(tokens)) * size_of::<f32>()
    }

    fn normalisers(&self, logits: &Tensor) -> Result<Vec<f64>> {
        normalisers(logits)
    }

    fn join(&self, spans: &[Arc<KvSpan>]) -> Result<Arc<KvSpan>> {
        let shape = self.config.attention_shape();
        let layer =
            |index| join(&shape, &spans.iter().map(|span| (&span.cache::<Vec<LayerSpan>>()[index], span.len())).collect::<Vec<_>>());
        let layers: Vec<LayerSpan> = (0..self.layers.len()).map(layer).collect::<Result<_>>()?;
        Ok(Arc::new(KvSpan::new(spans.iter().map(|span| span.len()).sum(), layers)))
    }
}
