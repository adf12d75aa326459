//! Everything that distinguishes one stack of transformer layers from another.

use probity_kernels::{Activation, AttentionShape};
use serde_json::json;

use crate::Arithmetic;
use crate::config::{ConfigError, ConfigFields, invalid};
use crate::cpu::NormKind;
use crate::disentangled::Disentangled;
use crate::relative::RelativeBuckets;

/// Everything that distinguishes one stack from another.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StackConfig {
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    /// Where feed-forward layers are mixtures.
    pub(crate) experts: Option<ExpertChoice>,
    /// One for each layer.
    pub(crate) layers: Vec<LayerSight>,
    pub(crate) num_heads: usize,
    pub(crate) num_kv_heads: usize,
    pub(crate) head_dim: usize,
    /// Factor of the scores.
    pub(crate) score_scale: f32,
    /// Scores `s` count as `cap · tanh(s / cap)`.
    pub(crate) score_cap: Option<f32>,
    /// Whether a row sees what comes after it too: an encoder's do.
    pub(crate) bidirectional: bool,
    pub(crate) relative: Option<RelativeBuckets>,
    /// Where scores depend on products with distances too.
    pub(crate) disentangled: Option<Disentangled>,
    pub(crate) norm: NormKind,
    pub(crate) norm_eps: f64,
    /// Whether a norm makes the inputs of each part of a layer, rather than being taken of the sum behind it.
    pub(crate) norm_first: bool,
    /// Whether the first layer's attention has a norm of its inputs too; embeddings may be normed already.
    pub(crate) first_input_norm: bool,
    /// Factor of what each part of a layer adds to the residual stream.
    pub(crate) branch_scale: f32,
    pub(crate) activation: Activation,
    pub(crate) biases: LayerBiases,
    pub(crate) names: &'static LayerNames,
}

/// A mixture of experts (Shazeer et al. 2017): of each row's feed-forward layers, which are as wide inside as
/// `intermediate_size` says, the likeliest are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertChoice {
    /// How many there are.
    pub count: usize,
    /// How many of them a row goes through.
    pub chosen: usize,
    /// Whether the probabilities of those are made to sum to one.
    pub normalised: bool,
}

/// What a layer's rows see of the positions around them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LayerSight {
    /// So many, their own included, and where rows see what comes after them too as many to that side; all where absent.
    pub window: Option<usize>,
    /// Which of the model's rotations tells them where these are; absent where none does.
    pub rotation: Option<usize>,
}

/// `head_dim^-½`, the usual factor of scores.
pub(crate) fn usual_scale(head_dim: usize) -> f32 {
    1.0 / (head_dim as f32).sqrt()
}

/// The sizes of a stack whose heads share its width.
#[derive(Clone, Copy)]
pub(crate) struct StackSizes {
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) num_layers: usize,
    pub(crate) num_heads: usize,
}

impl StackSizes {
    /// Reads the fields of these names: layers, heads, and what feed-forward layers have inside.
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
pub(crate) struct LayerBiases {
    pub(crate) qkv: bool,
    pub(crate) attention_output: bool,
    pub(crate) feed_forward: bool,
}

impl LayerBiases {
    pub(crate) const ALL: Self = Self { qkv: true, attention_output: true, feed_forward: true };
    pub(crate) const NONE: Self = Self { qkv: false, attention_output: false, feed_forward: false };
}

/// What a checkpoint calls a layer's tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LayerNames {
    /// Where layers are, each under its number.
    pub(crate) layers: &'static str,
    pub(crate) attention: AttentionNames,
    /// The norms of queries and of keys, in attention to the own text.
    pub(crate) head_norms: Option<HeadNorms>,
    /// Attention to another text.
    pub(crate) cross: Option<AttentionNames>,
    /// What tells a row's experts.
    pub(crate) router: Option<&'static str>,
    /// The product that is activated, the one that it gates, and the second one; of experts what stands behind the last dot
    /// is behind each one's number, or all are one behind the other in a tensor of that name.
    pub(crate) gate: &'static str,
    pub(crate) up: Option<&'static str>,
    pub(crate) down: &'static str,
    pub(crate) feed_forward_norms: NormNames,
    /// Of the whole stack: the norm behind the last layer, and the table of the relative positions.
    pub(crate) last_norm: Option<&'static str>,
    pub(crate) relative: Option<&'static str>,
}

impl LayerNames {
    /// All names inside a layer, in one order whatever they are.
    pub(crate) fn in_layer(&self) -> impl Iterator<Item = &'static str> {
        // GGUF names are paired with these by their place, so both lists come from here.
        let attentions = [Some(self.attention), self.cross].into_iter().flatten();
        let feed_forward = [Some(self.gate), self.up, Some(self.down)].into_iter().flatten();
        attentions
            .flat_map(|names| names.projections.into_iter().chain(names.norms.all()))
            .chain(self.head_norms.into_iter().flat_map(|norms| norms.names))
            .chain(self.router)
            .chain(feed_forward)
            .chain(self.feed_forward_norms.all())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttentionNames {
    /// Queries, keys, values, and the output.
    pub(crate) projections: [&'static str; 4],
    pub(crate) norms: NormNames,
}

/// The norms of queries and of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeadNorms {
    pub(crate) names: [&'static str; 2],
    /// Whether all heads are one row to them, rather than each head.
    pub(crate) of_all_heads: bool,
}

/// The norms of a part of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NormNames {
    /// Of its inputs, or of the sum behind it: [`StackConfig::norm_first`] says which.
    pub(crate) stream: Option<&'static str>,
    /// Of what it adds to that sum.
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
    /// A stack as BERT and BART have it: rows that see all, norms of mean and variance behind each part, biases
    /// everywhere.
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
            num_heads,
            num_kv_heads: num_heads,
            head_dim,
            score_scale: usual_scale(head_dim),
            score_cap: None,
            bidirectional: true,
            relative: None,
            disentangled: None,
            norm: NormKind::Layer,
            norm_eps,
            norm_first: false,
            first_input_norm: true,
            branch_scale: 1.0,
            activation,
            biases: LayerBiases::ALL,
            names,
        }
    }

    /// The shape of attention in layers that see all; others differ in the window alone.
    pub(crate) fn attention_shape(&self, arithmetic: Arithmetic) -> AttentionShape {
        AttentionShape {
            heads: self.num_heads,
            kv_heads: self.num_kv_heads,
            head_dim: self.head_dim,
            scale: self.score_scale,
            cap: self.score_cap,
            window: None,
            arithmetic,
        }
    }
}
