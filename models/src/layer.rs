//! A transformer layer (Vaswani et al. 2017) as data: what a [`StackConfig`] describes, brought to whoever computes with
//! it. Our kernels do in [`crate::transformer`], candle's operations in [`crate::device`].

use probity_kernels::Activation;

use crate::cpu::NormKind;
use crate::stack_config::{AttentionNames, HeadNorms, NormNames, StackConfig};

/// Brings weights to where they are computed with, as linear layers `L` and norms `N`.
pub(crate) trait WeightLoader<L, N>: Sized {
    type Error;

    /// The part whose names go on with `more`.
    fn under(&self, more: &str) -> Self;

    /// `{name}.weight` and, where asked, `{name}.bias`.
    fn linear(&self, name: &str, shape: [usize; 2], bias: bool) -> Result<L, Self::Error>;

    /// Of rows of `width`, with what is added to a mean square.
    fn norm(&self, name: &str, width: usize, kind: (NormKind, f64)) -> Result<N, Self::Error>;

    fn norm_of(&self, name: &str, c: &StackConfig) -> Result<N, Self::Error> {
        self.norm(name, c.hidden_size, (c.norm, c.norm_eps))
    }

    fn part_norms(&self, names: NormNames, c: &StackConfig) -> Result<PartNorms<N>, Self::Error> {
        let load = |name: Option<&str>| name.map(|name| self.norm_of(name, c)).transpose();
        Ok(PartNorms { stream: load(names.stream)?, branch: load(names.branch)? })
    }
}

/// The norms of a part of a layer.
pub(crate) struct PartNorms<N> {
    /// Of its inputs, or of the sum behind it.
    pub(crate) stream: Option<N>,
    /// Of what it adds to that sum.
    pub(crate) branch: Option<N>,
}

/// Attention, and its norms.
pub(crate) struct AttentionWeights<L, N> {
    pub(crate) query: L,
    pub(crate) key: L,
    pub(crate) value: L,
    pub(crate) output: L,
    pub(crate) norms: PartNorms<N>,
    /// Of queries and of keys, before they are rotated.
    pub(crate) query_norm: Option<N>,
    pub(crate) key_norm: Option<N>,
}

impl<L, N> AttentionWeights<L, N> {
    fn load<P: WeightLoader<L, N>>(
        parts: &P,
        names: &AttentionNames,
        head_norms: Option<HeadNorms>,
        c: &StackConfig,
    ) -> Result<Self, P::Error> {
        let (queries, keys) = (c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim);
        let of_heads = |place: usize, all: usize| {
            let load = |HeadNorms { names, of_all_heads }: HeadNorms| {
                parts.norm(names[place], if of_all_heads { all } else { c.head_dim }, (c.norm, c.norm_eps))
            };
            head_norms.map(load).transpose()
        };
        let [q, k, v, o] = names.projections;
        Ok(Self {
            query: parts.linear(q, [queries, c.hidden_size], c.biases.qkv)?,
            key: parts.linear(k, [keys, c.hidden_size], c.biases.qkv)?,
            value: parts.linear(v, [keys, c.hidden_size], c.biases.qkv)?,
            output: parts.linear(o, [c.hidden_size, queries], c.biases.attention_output)?,
            norms: parts.part_norms(names.norms, c)?,
            query_norm: of_heads(0, queries)?,
            key_norm: of_heads(1, keys)?,
        })
    }
}

/// Two products with an activation between them, which gates a third one where there is `up`.
pub(crate) struct FeedForwardWeights<L, N> {
    pub(crate) gate: L,
    pub(crate) up: Option<L>,
    pub(crate) down: L,
    pub(crate) norms: PartNorms<N>,
    pub(crate) activation: Activation,
}

impl<L, N> FeedForwardWeights<L, N> {
    fn load<P: WeightLoader<L, N>>(parts: &P, c: &StackConfig) -> Result<Self, P::Error> {
        let first = |name| parts.linear(name, [c.intermediate_size, c.hidden_size], c.biases.feed_forward);
        Ok(Self {
            gate: first(c.names.gate)?,
            up: c.names.up.map(first).transpose()?,
            down: parts.linear(c.names.down, [c.hidden_size, c.intermediate_size], c.biases.feed_forward)?,
            norms: parts.part_norms(c.names.feed_forward_norms, c)?,
            activation: c.activation,
        })
    }
}

pub(crate) struct LayerWeights<L, N> {
    pub(crate) attention: AttentionWeights<L, N>,
    /// Attention to another text.
    pub(crate) cross: Option<AttentionWeights<L, N>>,
    pub(crate) feed_forward: FeedForwardWeights<L, N>,
}

impl<L, N> LayerWeights<L, N> {
    fn load<P: WeightLoader<L, N>>(parts: &P, c: &StackConfig) -> Result<Self, P::Error> {
        Ok(Self {
            attention: AttentionWeights::load(parts, &c.names.attention, c.names.head_norms, c)?,
            cross: c.names.cross.as_ref().map(|names| AttentionWeights::load(parts, names, None, c)).transpose()?,
            feed_forward: FeedForwardWeights::load(parts, c)?,
        })
    }
}

/// Layers, one after another, and the norm behind the last one.
pub(crate) struct StackWeights<L, N> {
    pub(crate) layers: Vec<LayerWeights<L, N>>,
    pub(crate) last_norm: Option<N>,
}

impl<L, N> StackWeights<L, N> {
    pub(crate) fn load<P: WeightLoader<L, N>>(parts: &P, c: &StackConfig) -> Result<Self, P::Error> {
        // One after another: each tensor's pages in the file are let go when it is packed, so that weights are in
        // memory once.
        let layer = |index| LayerWeights::load(&parts.under(&format!("{}.{index}.", c.names.layers)), c);
        Ok(Self {
            layers: (0..c.layers.len()).map(layer).collect::<Result<_, _>>()?,
            last_norm: c.names.last_norm.map(|name| parts.norm_of(name, c)).transpose()?,
        })
    }
}
