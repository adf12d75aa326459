//! The pre-norm gated decoder that the llama family shares (Touvron et al. 2023): architectures differ in their configuration alone.

use std::sync::{Arc, Mutex};

use candle_core::{CpuStorage, Device, Layout, Result, Storage, Tensor, bail};
use probity_kernels::{
    Activated, Activation, AttentionShape, Norm, PackedMatrix, Product, RopeLayout, RopeTable, Rows, Segment, activated_matmul, attention,
    head, matmul, normalise,
};
use rayon::prelude::*;

use crate::cpu::{CpuSpan, RmsNorm, Workspace, keep_rows};
use crate::linear::{Embedding, Linear, load_floats, load_packed};
use crate::packed::{Decoder, HeadRow, KvSpan, PackedOutput, PackedSegment};
use crate::{Arithmetic, Compute, Rope, SourceError, WeightSource};

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
    fn attention_shape(&self, arithmetic: Arithmetic) -> AttentionShape {
        AttentionShape {
            heads: self.num_heads,
            kv_heads: self.num_kv_heads,
            head_dim: self.head_dim,
            scale: 1.0 / (self.head_dim as f32).sqrt(),
            window: self.sliding_window,
            arithmetic,
        }
    }
}

/// What a batch shares in all layers.
struct Plan<'a> {
    segments: &'a [PackedSegment],
    shape: AttentionShape,
    rope_layout: RopeLayout,
    /// Angles of all rows, and of the wanted ones.
    rope: RopeTable,
    rope_wanted: RopeTable,
    /// The wanted rows among all, ascending.
    wanted: Vec<usize>,
    compute: Compute,
}

impl<'a> Plan<'a> {
    fn new(segments: &'a [PackedSegment], config: &DecoderConfig, frequencies: &[f32], compute: Compute) -> Self {
        let positions: Vec<u32> = segments.iter().flat_map(|s| (s.start()..s.start() + s.tokens.len()).map(|p| p as u32)).collect();
        let mut wanted = Vec::new();
        let mut start = 0;
        for segment in segments {
            wanted.extend(segment.wanted.iter().map(|offset| start + offset));
            start += segment.tokens.len();
        }
        let of_wanted: Vec<u32> = wanted.iter().map(|row| positions[*row]).collect();
        Self {
            segments,
            shape: config.attention_shape(compute.arithmetic),
            rope_layout: config.rope_layout,
            rope: RopeTable::new(&positions, frequencies),
            rope_wanted: RopeTable::new(&of_wanted, frequencies),
            wanted,
            compute,
        }
    }

    /// What each segment's rows attend to in a layer; of the last layer, its wanted rows.
    fn attention_segments<'b>(&'b self, new: &'b [CpuSpan], layer: usize, last: bool) -> Vec<Segment<'b>> {
        let segment = |(segment, new): (&'b PackedSegment, &'b CpuSpan)| {
            let mut spans: Vec<_> = segment.past.iter().map(|span| span.cache::<CpuSpan>().layer(layer)).collect();
            spans.push(new.layer(layer));
            let ends = segment.start() + 1..segment.start() + segment.tokens.len() + 1;
            Segment { spans, rows: Rows::Causal(ends), wanted: last.then_some(&segment.wanted) }
        };
        self.segments.iter().zip(new).map(segment).collect()
    }
}

#[expect(clippy::struct_field_names, reason = "the checkpoint's names")]
struct Attention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
}

impl Attention {
    fn load(source: &dyn WeightSource, prefix: &str, c: &DecoderConfig, compute: Compute) -> std::result::Result<Self, SourceError> {
        let (queries, keys) = (c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim);
        let linear = |name: &str, shape, bias| Linear::load(source, &format!("{prefix}.{name}"), shape, bias, compute);
        Ok(Self {
            q_proj: linear("q_proj", [queries, c.hidden_size], c.qkv_bias)?,
            k_proj: linear("k_proj", [keys, c.hidden_size], c.qkv_bias)?,
            v_proj: linear("v_proj", [keys, c.hidden_size], c.qkv_bias)?,
            o_proj: linear("o_proj", [c.hidden_size, queries], c.attention_output_bias)?,
        })
    }

    /// Computes queries, keys and values of the normed rows, rotates them, and puts keys and values into the segments' new spans. In the
    /// last layer only wanted rows have queries, and only they stay in the residual stream.
    fn project(&self, w: &mut Workspace, norm: Norm<'_>, plan: &Plan<'_>, new: &mut [CpuSpan], layer: usize, last: bool) {
        let isa = plan.compute.isa;
        let width = self.q_proj.weight.in_features();
        let rows = w.x.len() / width;
        let keys = [self.k_proj.form(), self.v_proj.form()];
        w.k.set_len(rows * self.k_proj.out_features());
        w.v.set_len(rows * self.v_proj.out_features());
        w.q.set_len(if last { plan.wanted.len() } else { rows } * self.q_proj.out_features());
        w.inputs.set_normed(isa, &w.x, norm, keys.into_iter().chain((!last).then_some(self.q_proj.form())));
        let (k, v) = (self.k_proj.product(&mut w.k), self.v_proj.product(&mut w.v));
        if last {
            matmul(isa, &w.inputs, &mut [k, v]);
            keep_rows(&mut w.x, width, &plan.wanted);
            w.inputs.set_normed(isa, &w.x, norm, [self.q_proj.form()]);
            matmul(isa, &w.inputs, &mut [self.q_proj.product(&mut w.q)]);
        } else {
            matmul(isa, &w.inputs, &mut [self.q_proj.product(&mut w.q), k, v]);
        }
        plan.rope.apply(isa, plan.rope_layout, &mut w.k);
        (if last { &plan.rope_wanted } else { &plan.rope }).apply(isa, plan.rope_layout, &mut w.q);
        let starts = plan.segments.iter().scan(0, |start, segment| {
            *start += segment.tokens.len();
            Some(*start - segment.tokens.len())
        });
        let (k, v) = (&*w.k, &*w.v);
        new.par_iter_mut().zip(starts.collect::<Vec<_>>()).for_each(|(span, start)| span.fill(isa, &plan.shape, layer, (k, v), start));
    }

    /// Attends and adds the result to the residual stream.
    fn attend(&self, w: &mut Workspace, plan: &Plan<'_>, new: &[CpuSpan], layer: usize, last: bool) {
        w.attended.set_len(w.q.len());
        attention(plan.compute.isa, &plan.shape, None, &w.q, &plan.attention_segments(new, layer, last), &mut w.attended);
        self.o_proj.add_to(plan.compute, &mut w.inputs, &w.attended, &mut w.x);
    }
}

#[expect(clippy::struct_field_names, reason = "the checkpoint's names")]
struct Mlp {
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
}

impl Mlp {
    fn load(source: &dyn WeightSource, prefix: &str, c: &DecoderConfig, compute: Compute) -> std::result::Result<Self, SourceError> {
        let linear = |name: &str, shape| Linear::load(source, &format!("{prefix}.{name}"), shape, c.mlp_bias, compute);
        Ok(Self {
            gate_proj: linear("gate_proj", [c.intermediate_size, c.hidden_size])?,
            up_proj: linear("up_proj", [c.intermediate_size, c.hidden_size])?,
            down_proj: linear("down_proj", [c.hidden_size, c.intermediate_size])?,
        })
    }

    /// Adds the layer's result for the normed rows to the residual stream.
    fn forward(&self, w: &mut Workspace, norm: Norm<'_>, compute: Compute) {
        w.inputs.set_normed(compute.isa, &w.x, norm, [self.gate_proj.form(), self.up_proj.form()]);
        let layer = Activated { activation: Activation::Silu, gate: self.gate_proj.weights(), up: Some(self.up_proj.weights()) };
        activated_matmul(compute.isa, &w.inputs, &layer, &mut w.gated, self.down_proj.form());
        matmul(compute.isa, &w.gated, &mut [Product { add: true, ..self.down_proj.product(&mut w.x) }]);
    }
}

struct DecoderLayer {
    input_layernorm: RmsNorm,
    self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    mlp: Mlp,
}

impl DecoderLayer {
    fn load(source: &dyn WeightSource, prefix: &str, c: &DecoderConfig, compute: Compute) -> std::result::Result<Self, SourceError> {
        let norm = |name: &str| RmsNorm::load(source, &format!("{prefix}.{name}"), c.hidden_size, c.rms_norm_eps);
        Ok(Self {
            input_layernorm: norm("input_layernorm")?,
            self_attn: Attention::load(source, &format!("{prefix}.self_attn"), c, compute)?,
            post_attention_layernorm: norm("post_attention_layernorm")?,
            mlp: Mlp::load(source, &format!("{prefix}.mlp"), c, compute)?,
        })
    }

    /// Takes the residual stream `(tokens, hidden_size)` through the layer; behind the last one only its wanted rows are left.
    fn forward(&self, w: &mut Workspace, plan: &Plan<'_>, new: &mut [CpuSpan], layer: usize, last: bool) {
        self.self_attn.project(w, self.input_layernorm.norm(), plan, new, layer, last);
        if last && plan.wanted.is_empty() {
            return;
        }
        self.self_attn.attend(w, plan, new, layer, last);
        self.mlp.forward(w, self.post_attention_layernorm.norm(), plan.compute);
    }
}

/// A loaded model of the family.
pub(crate) struct LlamaFamily {
    embed_tokens: Embedding,
    layers: Vec<DecoderLayer>,
    norm: RmsNorm,
    /// The embedding's own weights where these serve.
    lm_head: PackedMatrix,
    frequencies: Vec<f32>,
    config: DecoderConfig,
    compute: Compute,
    /// Calls take turns: each uses all threads.
    workspace: Mutex<Workspace>,
}

impl LlamaFamily {
    pub(crate) fn load(source: &dyn WeightSource, config: DecoderConfig, compute: Compute) -> std::result::Result<Self, SourceError> {
        let vocabulary = [config.vocab_size, config.hidden_size];
        let layer = |i| DecoderLayer::load(source, &format!("model.layers.{i}"), &config, compute);
        let embedding = "model.embed_tokens.weight";
        Ok(Self {
            layers: (0..config.num_layers).map(layer).collect::<std::result::Result<_, _>>()?,
            norm: RmsNorm::load(source, "model.norm", config.hidden_size, config.rms_norm_eps)?,
            lm_head: load_packed(source, if config.tie_word_embeddings { embedding } else { "lm_head.weight" }, vocabulary, compute)?,
            embed_tokens: Embedding::load(source, embedding, vocabulary)?,
            frequencies: frequencies(source, &config)?,
            config,
            compute,
            workspace: Mutex::default(),
        })
    }

    /// Packs hidden states `(rows, hidden_size)` for the output head.
    fn head_inputs(&self, w: &mut Workspace, hidden: &Tensor) -> Result<()> {
        let (storage, layout) = hidden.storage_and_layout();
        let (rows, width) = layout.shape().dims2()?;
        if rows == 0 || width != self.config.hidden_size {
            bail!("an output head of {} inputs was given {rows} rows of {width}", self.config.hidden_size);
        }
        w.inputs.set(self.compute.isa, elements(&storage, layout)?, width, [self.lm_head.form()]);
        Ok(())
    }
}

/// The elements of a contiguous f32 tensor in memory.
fn elements<'a>(storage: &'a Storage, layout: &Layout) -> Result<&'a [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (Storage::Cpu(CpuStorage::F32(values)), Some((start, end))) => Ok(&values[start..end]),
        _ => bail!("the tensors of a CPU model are contiguous and f32"),
    }
}

/// The rotary frequencies that configuration and checkpoint ask for.
pub(crate) fn frequencies(source: &dyn WeightSource, config: &DecoderConfig) -> std::result::Result<Vec<f32>, SourceError> {
    let mut frequencies = config.rope.frequencies(config.head_dim);
    if config.rope_freq_factors {
        let name = "rope_freqs.weight";
        let factors = load_floats(source, name, &[frequencies.len()])?;
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
        let plan = Plan::new(segments, &self.config, &self.frequencies, self.compute);
        let mut workspace = self.workspace.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let w = &mut *workspace;
        let tokens: Vec<u32> = segments.iter().flat_map(|s| s.tokens.iter().copied()).collect();
        w.x.set_len(tokens.len() * self.config.hidden_size);
        self.embed_tokens.rows(&tokens, &mut w.x)?; // (tokens, hidden_size)
        let mut spans: Vec<CpuSpan> =
            segments.iter().map(|s| CpuSpan::new(&plan.shape, self.layers.len(), s.start(), s.tokens.len())).collect();
        for (index, layer) in self.layers.iter().enumerate() {
            layer.forward(w, &plan, &mut spans, index, index + 1 == self.layers.len());
        }
        let mut hidden = vec![0.0; w.x.len()];
        normalise(self.compute.isa, &w.x, self.norm.norm(), &mut hidden);
        let hidden = Tensor::from_vec(hidden, (plan.wanted.len(), self.config.hidden_size), &Device::Cpu)?;
        let spans = segments.iter().zip(spans).map(|(s, span)| Arc::new(KvSpan::new(s.tokens.len(), span))).collect();
        Ok(PackedOutput { hidden, spans })
    }

    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let mut workspace = self.workspace.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.head_inputs(&mut workspace, hidden)?;
        let mut logits = vec![0.0; hidden.dim(0)? * self.config.vocab_size];
        let product = Product { weights: &self.lm_head, bias: None, y: &mut logits, add: false };
        matmul(self.compute.isa, &workspace.inputs, &mut [product]);
        Tensor::from_vec(logits, (hidden.dim(0)?, self.config.vocab_size), &Device::Cpu)
    }

    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> Result<Vec<HeadRow>> {
        if asked.iter().flatten().any(|token| *token as usize >= self.config.vocab_size) || hidden.dim(0)? != asked.len() {
            bail!("one list of tokens of the vocabulary for each row");
        }
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let mut workspace = self.workspace.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.head_inputs(&mut workspace, hidden)?;
        Ok(head(self.compute.isa, &workspace.inputs, (&self.lm_head, None), asked))
    }

    fn cache_bytes(&self, tokens: usize) -> usize {
        CpuSpan::bytes(&self.config.attention_shape(self.compute.arithmetic), self.layers.len(), tokens)
    }

    fn join(&self, spans: &[Arc<KvSpan>]) -> Result<Arc<KvSpan>> {
        let parts: Vec<&CpuSpan> = spans.iter().map(|span| span.cache()).collect();
        let joined = CpuSpan::join(&self.config.attention_shape(self.compute.arithmetic), self.layers.len(), &parts);
        Ok(Arc::new(KvSpan::new(spans.iter().map(|span| span.len()).sum(), joined)))
    }
}
