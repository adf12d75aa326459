//! The configuration of a stack of transformer layers.

use std::collections::BTreeSet;

use probity_kernels::{Activation, AttentionShape, DeltaShape};
use serde_json::json;

use crate::Arithmetic;
use crate::config::{ConfigError, ConfigFields, invalid};
use crate::cpu::NormKind;
use crate::disentangled::Disentangled;
use crate::relative::RelativeBuckets;

/// Everything that distinguishes one stack from another.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent options")]
pub(crate) struct StackConfig {
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    /// The mixture of experts in feed-forward layers, if any.
    pub(crate) experts: Option<ExpertChoice>,
    /// Window and rotation of each layer, and what else differs.
    pub(crate) layers: Vec<LayerSight>,
    /// Width of the input that each layer receives beside the residual stream, if any.
    pub(crate) layer_inputs: Option<usize>,
    pub(crate) num_heads: usize,
    pub(crate) num_kv_heads: usize,
    pub(crate) head_dim: usize,
    /// Factor of attention scores.
    pub(crate) score_scale: f32,
    /// Soft cap of scores: `s` becomes `cap · tanh(s / cap)`.
    pub(crate) score_cap: Option<f32>,
    /// Growth of the factor of scores with the position of the query.
    pub(crate) temperature: Option<Temperature>,
    /// The tensor in each layer with a logit per head, if there is one: a share of the softmax without a value.
    pub(crate) sinks: Option<&'static str>,
    /// Whether each query head has a gate of the attention's output: `output · σ(gate)`. Its rows follow those of the
    /// head's query.
    pub(crate) output_gate: bool,
    /// What [recurrent layers](LayerSight::recurrent) compute, if there are any.
    pub(crate) recurrence: Option<Recurrence>,
    /// Whether attention is bidirectional, as in encoders.
    pub(crate) bidirectional: bool,
    pub(crate) relative: Option<RelativeBuckets>,
    /// Relative position terms of the scores, if any.
    pub(crate) disentangled: Option<Disentangled>,
    pub(crate) norm: NormKind,
    /// Whether the heads of values are divided by their root mean square.
    pub(crate) value_norm: bool,
    pub(crate) norm_eps: f64,
    /// Whether norms precede the sublayers (pre-norm) rather than follow the residual sums (post-norm).
    pub(crate) norm_first: bool,
    /// Whether the first layer's attention has an input norm; some models normalise the embeddings instead.
    pub(crate) first_input_norm: bool,
    /// Factor of each sublayer's output before it is added to the residual stream.
    pub(crate) branch_scale: f32,
    pub(crate) activation: Activation,
    pub(crate) biases: LayerBiases,
    pub(crate) names: &'static LayerNames,
}

/// What the recurrent layers of a model compute instead of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recurrence {
    /// Gated delta nets.
    Delta(DeltaNet),
    /// Gated convolutions over this many tokens, the row's own and those before it.
    Convolution(usize),
}

impl Recurrence {
    /// Elements of a layer's state.
    pub(crate) fn state_len(self, hidden_size: usize) -> usize {
        match self {
            Self::Delta(delta) => delta.shape.state_len(),
            Self::Convolution(width) => (width - 1) * hidden_size,
        }
    }

    /// The name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Delta(_) => "gated delta nets",
            Self::Convolution(_) => "gated convolutions",
        }
    }
}

/// The gated delta nets of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaNet {
    /// Sizes, and the order of the value heads.
    pub shape: DeltaShape,
    /// Whether the checkpoint stores each value head's decay per time step itself. Otherwise it stores the logarithm of
    /// its negative.
    pub stores_decay: bool,
}

/// A mixture of experts (Shazeer et al. 2017): each row uses the most likely of several feed-forward layers of width
/// `intermediate_size`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpertChoice {
    /// Number of experts.
    pub count: usize,
    /// Number of experts per row.
    pub chosen: usize,
    /// Whether the chosen experts' scores are normalised to sum to one.
    pub normalised: bool,
    /// How the router's logits become scores.
    pub scores: RouterScores,
    /// Factor of the chosen experts' weights.
    pub scale: f32,
    /// Width of a feed-forward layer that every row uses besides its experts.
    pub shared: Option<usize>,
    /// The first layers, if they have one feed-forward layer instead of experts.
    pub dense: Option<DenseLayers>,
}

impl ExpertChoice {
    /// The usual mixture: softmax scores, and experts only, in all layers.
    pub const fn softmax(count: usize, chosen: usize, normalised: bool) -> Self {
        Self { count, chosen, normalised, scores: RouterScores::Softmax, scale: 1.0, shared: None, dense: None }
    }
}

/// How a router's logits become scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouterScores {
    /// Softmax over all experts.
    Softmax,
    /// The logistic function of each logit (`DeepSeek-AI` 2024). Experts are chosen by the sum of score and a stored
    /// correction, and weighted by the score.
    CorrectedSigmoid,
}

/// The first layers of a mixture of experts, without experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenseLayers {
    /// Their number.
    pub count: usize,
    /// Their inner width.
    pub intermediate_size: usize,
}

/// Growth of attention scores with the position: the query at position `p` is multiplied by
/// `1 + beta · ln(1 + ⌊p / length⌋)` (llama 4).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Temperature {
    /// The factor of the logarithm.
    pub beta: f64,
    /// Number of positions with the same factor, usually the context length of the original training.
    pub length: f64,
}

impl Temperature {
    /// The factor of the query at a position.
    pub(crate) fn factor(self, position: usize) -> f32 {
        (1.0 + self.beta * libm::log1p((position as f64 / self.length).floor())) as f32
    }
}

/// Window and rotation of a layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LayerSight {
    /// Number of visible positions, including the row's own. In bidirectional attention it applies in each direction.
    /// `None` means all.
    pub window: Option<usize>,
    /// Index of the model's rotation that encodes positions; `None` without rotation.
    pub rotation: Option<usize>,
    /// Whether the layer is [recurrent](Recurrence).
    pub recurrent: bool,
    /// What differs from the stack's sizes.
    pub variant: LayerVariant,
}

/// What distinguishes a layer from the sizes of its stack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LayerVariant {
    /// Key heads and their dimension.
    pub heads: Option<KeyHeads>,
    /// An earlier layer whose keys and values are used. The layer has none of its own.
    pub keys_of: Option<usize>,
    /// Whether the products of the keys, before their norm and rotation, are also the values.
    pub keys_are_values: bool,
    /// Width of the feed-forward layer.
    pub intermediate_size: Option<usize>,
}

/// The number of key and value heads, and the dimension of all heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyHeads {
    /// Key and value heads.
    pub count: usize,
    /// Dimension of a head.
    pub dim: usize,
}

impl KeyHeads {
    /// Elements of the keys of one position.
    pub(crate) fn width(self) -> usize {
        self.count * self.dim
    }
}

/// `head_dim^-½`, the usual factor of scores.
pub(crate) fn usual_scale(head_dim: usize) -> f32 {
    1.0 / (head_dim as f32).sqrt()
}

/// The sizes of a stack whose heads divide its width.
#[derive(Clone, Copy)]
pub(crate) struct StackSizes {
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) num_layers: usize,
    pub(crate) num_heads: usize,
}

impl StackSizes {
    /// Reads the fields with these names: layers, heads, and the width of feed-forward layers.
    pub(crate) fn read(
        fields: &mut ConfigFields,
        hidden_size: usize,
        [layers, heads, inner]: [&'static str; 3],
    ) -> Result<Self, ConfigError> {
        let num_heads = fields.required_size(heads)?;
        if !hidden_size.is_multiple_of(num_heads) {
            return Err(invalid(heads, &json!(num_heads), &format!("a divisor of the hidden size, {hidden_size}")));
        }
        let (num_layers, intermediate_size) = (fields.required_layers(layers)?, fields.required_size(inner)?);
        Ok(Self { hidden_size, intermediate_size, num_layers, num_heads })
    }
}

/// Which products have biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each product has a bias or none")]
pub(crate) struct LayerBiases {
    pub(crate) qkv: bool,
    pub(crate) attention_output: bool,
    pub(crate) feed_forward: bool,
    pub(crate) router: bool,
}

impl LayerBiases {
    pub(crate) const ALL: Self = Self { qkv: true, attention_output: true, feed_forward: true, router: false };
    pub(crate) const NONE: Self = Self { qkv: false, attention_output: false, feed_forward: false, router: false };
}

/// The names of a layer's tensors in a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LayerNames {
    /// Prefix of the layer number.
    pub(crate) layers: &'static str,
    pub(crate) attention: AttentionNames,
    /// Norms of queries and keys in self-attention.
    pub(crate) head_norms: Option<HeadNorms>,
    /// Cross-attention.
    pub(crate) cross: Option<AttentionNames>,
    /// The router of a mixture of experts.
    pub(crate) router: Option<&'static str>,
    /// The whole name of the tensor that corrects its scores; see [`RouterScores::CorrectedSigmoid`].
    pub(crate) router_correction: Option<&'static str>,
    /// The activated product, the product that it gates, and the output product. Experts are either separate tensors,
    /// with the expert's number before the last component of the name, or concatenated in one tensor.
    pub(crate) gate: &'static str,
    pub(crate) up: Option<&'static str>,
    pub(crate) down: &'static str,
    /// The same three products of the layer that all rows use besides their experts.
    pub(crate) shared: Option<[&'static str; 3]>,
    /// The gate of that layer's output, one logit per row.
    pub(crate) shared_gate: Option<&'static str>,
    /// The same three products of layers without experts in a model that has them in others.
    pub(crate) dense: Option<[&'static str; 3]>,
    pub(crate) feed_forward_norms: NormNames,
    /// The gate, the output product and the norm of the layer's own input; see [`StackConfig::layer_inputs`].
    pub(crate) layer_input: Option<[&'static str; 3]>,
    /// A factor of the residual stream after the layer, a tensor of one element. This name includes its last component.
    pub(crate) layer_scale: Option<&'static str>,
    /// Names for the whole stack: the final norm, and the table of relative positions.
    pub(crate) last_norm: Option<&'static str>,
    pub(crate) relative: Option<&'static str>,
}

impl LayerNames {
    /// All names inside a layer, in a fixed order.
    pub(crate) fn in_layer(&self) -> impl Iterator<Item = &'static str> {
        // GGUF names are matched with Hugging Face names by index, so both lists are made here.
        let attentions = [Some(self.attention), self.cross].into_iter().flatten();
        let feed_forward = [Some(self.gate), self.up, Some(self.down)].into_iter().flatten();
        attentions
            .flat_map(|names| names.projections.into_iter().chain(names.norms.all()))
            .chain(self.head_norms.into_iter().flat_map(|norms| norms.names))
            .chain(self.router)
            .chain(self.router_correction)
            .chain(feed_forward)
            .chain(self.shared.into_iter().chain(self.dense).flatten())
            .chain(self.shared_gate)
            .chain(self.feed_forward_norms.all())
            .chain(self.layer_input.into_iter().flatten())
            .chain(self.layer_scale)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttentionNames {
    /// Queries, keys, values, and the output.
    pub(crate) projections: [&'static str; 4],
    pub(crate) norms: NormNames,
}

/// Norms of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeadNorms {
    pub(crate) names: [&'static str; 2],
    /// Whether the norm covers all heads together rather than each head.
    pub(crate) of_all_heads: bool,
}

/// The norms of a sublayer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NormNames {
    /// Norm of the input or of the sum after it; see [`StackConfig::norm_first`].
    pub(crate) stream: Option<&'static str>,
    /// Norm of the output before it is added.
    pub(crate) branch: Option<&'static str>,
}

impl NormNames {
    pub(crate) const fn stream(name: &'static str) -> Self {
        Self { stream: Some(name), branch: None }
    }

    pub(crate) const fn branch(name: &'static str) -> Self {
        Self { stream: None, branch: Some(name) }
    }

    fn all(self) -> impl Iterator<Item = &'static str> {
        [self.stream, self.branch].into_iter().flatten()
    }
}

impl StackConfig {
    /// A stack as in BERT and BART: bidirectional attention, post-norm layer norms, biases everywhere.
    pub(crate) fn post_norm(
        sizes: StackSizes,
        activation: Activation,
        norm_eps: f64,
        names: &'static LayerNames,
    ) -> Self {
        let StackSizes { hidden_size, intermediate_size, num_layers, num_heads } = sizes;
        let head_dim = hidden_size / num_heads;
        Self {
            hidden_size,
            intermediate_size,
            experts: None,
            layers: vec![LayerSight::default(); num_layers],
            layer_inputs: None,
            num_heads,
            num_kv_heads: num_heads,
            head_dim,
            score_scale: usual_scale(head_dim),
            score_cap: None,
            temperature: None,
            sinks: None,
            output_gate: false,
            recurrence: None,
            bidirectional: true,
            relative: None,
            disentangled: None,
            norm: NormKind::Layer,
            value_norm: false,
            norm_eps,
            norm_first: false,
            first_input_norm: true,
            branch_scale: 1.0,
            activation,
            biases: LayerBiases::ALL,
            names,
        }
    }

    /// The inner width of the widest feed-forward layer, with each expert on its own.
    pub(crate) fn widest_feed_forward(&self) -> usize {
        let shared = self.experts.and_then(|experts| experts.shared).unwrap_or(0);
        let dense = self.experts.and_then(|experts| experts.dense).map_or(0, |dense| dense.intermediate_size);
        self.widest_inner().max(shared).max(dense)
    }

    /// The key heads of a layer.
    pub(crate) fn key_heads(&self, layer: usize) -> KeyHeads {
        let usual = KeyHeads { count: self.num_kv_heads, dim: self.head_dim };
        self.layers[layer].variant.heads.unwrap_or(usual)
    }

    /// The different key heads of all layers.
    pub(crate) fn all_key_heads(&self) -> BTreeSet<KeyHeads> {
        (0..self.layers.len()).map(|layer| self.key_heads(layer)).collect()
    }

    /// The layer whose keys and values a layer uses.
    pub(crate) fn keys_layer(&self, layer: usize) -> usize {
        self.layers[layer].variant.keys_of.unwrap_or(layer)
    }

    /// Whether a layer has keys and values of its own.
    pub(crate) fn has_own_keys(&self, layer: usize) -> bool {
        self.keys_layer(layer) == layer && !self.layers[layer].recurrent
    }

    /// For each layer, where a span keeps its part: the number of layers with own keys before the one whose keys it
    /// uses, or for a recurrent layer the number of recurrent layers before it.
    pub(crate) fn slots(&self) -> Vec<usize> {
        let (mut keys, mut states) = (0, 0);
        let mut next = |layer: usize| {
            let next = if self.layers[layer].recurrent { &mut states } else { &mut keys };
            let slot = *next;
            *next += usize::from(self.layers[layer].recurrent || self.has_own_keys(layer));
            slot
        };
        let own: Vec<usize> = (0..self.layers.len()).map(&mut next).collect();
        (0..self.layers.len()).map(|layer| own[self.keys_layer(layer)]).collect()
    }

    /// The number of recurrent layers, and elements of the state of each; `None` if there are none.
    pub(crate) fn states(&self) -> Option<(usize, usize)> {
        let layers = self.layers.iter().filter(|layer| layer.recurrent).count();
        self.recurrence.map(|recurrence| (layers, recurrence.state_len(self.hidden_size)))
    }

    /// The key heads of the layers that have keys of their own, with the layer's number.
    pub(crate) fn own_key_heads(&self) -> impl Iterator<Item = (usize, KeyHeads)> {
        let own = (0..self.layers.len()).filter(|layer| self.has_own_keys(*layer));
        own.map(|layer| (layer, self.key_heads(layer)))
    }

    /// The elements of the widest keys of one position.
    pub(crate) fn widest_keys(&self) -> usize {
        self.all_key_heads().into_iter().map(KeyHeads::width).max().unwrap_or(0)
    }

    /// The elements of the widest queries of one position.
    pub(crate) fn widest_queries(&self) -> usize {
        self.num_heads * self.all_key_heads().into_iter().map(|heads| heads.dim).max().unwrap_or(0)
    }

    /// Width of a layer's feed-forward sublayer.
    pub(crate) fn inner(&self, layer: usize) -> usize {
        self.layers[layer].variant.intermediate_size.unwrap_or(self.intermediate_size)
    }

    /// The widest feed-forward sublayer.
    fn widest_inner(&self) -> usize {
        (0..self.layers.len()).map(|layer| self.inner(layer)).max().unwrap_or(0)
    }

    /// The attention shape of a layer.
    pub(crate) fn attention_shape(&self, layer: usize, arithmetic: Arithmetic) -> AttentionShape {
        let KeyHeads { count, dim } = self.key_heads(layer);
        AttentionShape {
            heads: self.num_heads,
            kv_heads: count,
            head_dim: dim,
            scale: self.score_scale,
            cap: self.score_cap,
            window: self.layers[layer].window,
            arithmetic,
        }
    }
}
