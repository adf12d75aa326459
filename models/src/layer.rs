//! The weights of a transformer layer (Vaswani et al. 2017), loaded for an executor by a [`StackConfig`]. The executors
//! are [`crate::transformer`] with our kernels and [`crate::device`] with candle operations.

use probity_kernels::Activation;

use crate::convolution::ConvolutionWeights;
use crate::delta::DeltaWeights;
use crate::row_range::RowRange;
use crate::stack_config::{AttentionNames, ExpertChoice, HeadNorms, Recurrence, RouterScores, StackConfig};
use crate::weight_loader::{PartNorms, WeightLoader};

/// Attention weights and norms.
pub(crate) struct AttentionWeights<L, N> {
    /// With the gates of the output, if there are any; see [`StackConfig::output_gate`].
    pub(crate) query: L,
    /// `None` if the keys and values of another layer are used.
    pub(crate) key: Option<L>,
    /// `None` if the products of the keys are also the values.
    pub(crate) value: Option<L>,
    pub(crate) output: L,
    pub(crate) norms: PartNorms<N>,
    /// Norms of queries and keys before rotation.
    pub(crate) query_norm: Option<N>,
    pub(crate) key_norm: Option<N>,
    /// Norm of each head of the values.
    pub(crate) value_norm: Option<N>,
}

impl<L, N> AttentionWeights<L, N> {
    fn load<P: WeightLoader<L, N>>(
        parts: &P,
        names: &AttentionNames,
        head_norms: Option<HeadNorms>,
        (c, index): (&StackConfig, usize),
    ) -> Result<Self, P::Error> {
        let (heads, variant) = (c.key_heads(index), c.layers[index].variant);
        let (queries, keys) = (c.num_heads * heads.dim, heads.width());
        let of_heads = |place: usize, all: usize| {
            let load = |HeadNorms { names, of_all_heads }: HeadNorms| {
                parts.norm(names[place], if of_all_heads { all } else { heads.dim }, (c.norm, c.norm_eps))
            };
            head_norms.map(load).transpose()
        };
        let has_keys = variant.keys_of.is_none();
        let has_values = has_keys && !variant.keys_are_values;
        let [q, k, v, o] = names.projections;
        let query_rows = if c.output_gate { 2 * queries } else { queries };
        let [query, key, value] = RowRange::of_products([q, k, v], [query_rows, keys, keys]);
        Ok(Self {
            query: parts.linear(q, query, c.hidden_size, c.biases.qkv)?,
            key: has_keys.then(|| parts.linear(k, key, c.hidden_size, c.biases.qkv)).transpose()?,
            value: has_values.then(|| parts.linear(v, value, c.hidden_size, c.biases.qkv)).transpose()?,
            output: parts.linear(o, RowRange::all(c.hidden_size), queries, c.biases.attention_output)?,
            norms: parts.part_norms(names.norms, c)?,
            query_norm: of_heads(0, queries)?,
            key_norm: if has_keys { of_heads(1, keys)? } else { None },
            value_norm: (has_keys && c.value_norm)
                .then(|| parts.plain_norm(heads.dim, (c.norm, c.norm_eps)))
                .transpose()?,
        })
    }
}

/// Two products with an activation in between. If `up` is present, the activation gates it.
pub(crate) struct GatedProducts<L> {
    pub(crate) gate: L,
    pub(crate) up: Option<L>,
    pub(crate) down: L,
}

/// Feed-forward weights: one set of products, or a mixture of experts.
pub(crate) struct FeedForwardWeights<L, N> {
    /// `None` if there is no mixture.
    pub(crate) router: Option<Router<L>>,
    /// One set, or one per expert.
    pub(crate) products: Vec<GatedProducts<L>>,
    /// The set that all rows use besides their experts.
    pub(crate) shared: Option<GatedProducts<L>>,
    /// The gate of its output, one logit per row: `output · σ(gate)`.
    pub(crate) shared_gate: Option<L>,
    pub(crate) norms: PartNorms<N>,
    pub(crate) activation: Activation,
}

/// The router of a mixture of experts.
pub(crate) struct Router<L> {
    /// Its logits over the experts.
    pub(crate) logits: L,
    /// The correction of each expert's score; empty if there is none.
    pub(crate) correction: Vec<f32>,
    pub(crate) choice: ExpertChoice,
}

/// Added to a sum of logistic scores, which may be zero, before the division by it.
pub(crate) const LEAST_SUM: f32 = 1e-20;

impl<L> Router<L> {
    /// The experts of a row and their weights, in the order of their indices. Experts with the largest scores are
    /// chosen, ties go to the lower index, and weights are normalised over all experts or over the chosen ones.
    pub(crate) fn chosen(&self, logits: &[f32]) -> Vec<(usize, f32)> {
        let choice = self.choice;
        let (scores, ranks): (Vec<f32>, Vec<f32>) = match choice.scores {
            RouterScores::Softmax => {
                let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                (logits.iter().map(|logit| libm::expf(logit - largest)).collect(), logits.to_vec())
            }
            RouterScores::CorrectedSigmoid => {
                let scores: Vec<f32> = logits.iter().map(|logit| 1.0 / (1.0 + libm::expf(-logit))).collect();
                let ranks = scores.iter().zip(&self.correction).map(|(score, correction)| score + correction).collect();
                (scores, ranks)
            }
        };
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|a, b| ranks[*b].total_cmp(&ranks[*a]));
        // Summed in this order, so that the result depends on the row alone.
        let sum_of = |experts: &[usize]| experts.iter().map(|expert| scores[*expert]).sum::<f32>();
        let sum = match (choice.scores, choice.normalised) {
            (RouterScores::Softmax, true) => sum_of(&order[..choice.chosen]),
            (RouterScores::Softmax, false) => sum_of(&order),
            (RouterScores::CorrectedSigmoid, true) => sum_of(&order[..choice.chosen]) + LEAST_SUM,
            (RouterScores::CorrectedSigmoid, false) => 1.0,
        };
        let weight = |expert: usize| (expert, scores[expert] / sum * choice.scale);
        let mut chosen: Vec<(usize, f32)> = order[..choice.chosen].iter().map(|expert| weight(*expert)).collect();
        chosen.sort_unstable_by_key(|(expert, _)| *expert);
        chosen
    }
}

impl<L> GatedProducts<L> {
    /// Loads products of inner width `inner`, in separate tensors or with the first two in one.
    fn load<N, P: WeightLoader<L, N>>(
        parts: &P,
        (gate, up, down): (&str, Option<&str>, &str),
        inner: usize,
        c: &StackConfig,
    ) -> Result<Self, P::Error> {
        let [gate_rows, up_rows] = RowRange::of_products([gate, up.unwrap_or_default()], [inner; 2]);
        let load = |name: &str, rows, width| parts.linear(name, rows, width, c.biases.feed_forward);
        Ok(Self {
            gate: load(gate, gate_rows, c.hidden_size)?,
            up: up.map(|name| load(name, up_rows, c.hidden_size)).transpose()?,
            down: load(down, RowRange::all(c.hidden_size), inner)?,
        })
    }

    /// Loads the products of an expert, from a tensor of its own or one of all experts.
    fn load_expert<N, P: WeightLoader<L, N>>(
        parts: &P,
        expert: usize,
        count: usize,
        c: &StackConfig,
    ) -> Result<Self, P::Error> {
        let inner = c.intermediate_size;
        let [both, fused_down] = fused_experts(c.names.gate, c.names.down);
        let rows = |tensor: &str, first: usize, len: usize, of: usize, width: usize| {
            let first = expert * of + first;
            parts.rows(tensor, std::slice::from_ref(&(first..first + len)), count * of, width)
        };
        let load = |name: &str, rows: RowRange, width: usize| {
            if parts.has(&format!("{name}.weight")) {
                let all = RowRange { first: expert * rows.of + rows.first, len: rows.len, of: count * rows.of };
                return parts.linear(name, all, width, c.biases.feed_forward);
            }
            let (experts, name) = name.rsplit_once('.').expect("a name of its own after the number");
            let name = format!("{experts}.{expert}.{name}");
            parts.linear(&name, rows, width, c.biases.feed_forward)
        };
        let down = || {
            if parts.has(&fused_down) {
                rows(&fused_down, 0, c.hidden_size, c.hidden_size, inner)
            } else {
                load(c.names.down, RowRange::all(c.hidden_size), inner)
            }
        };
        if parts.has(&both) {
            let gate = rows(&both, 0, inner, 2 * inner, c.hidden_size)?;
            let up = Some(rows(&both, inner, inner, 2 * inner, c.hidden_size)?);
            return Ok(Self { gate, up, down: down()? });
        }
        let products = [c.names.gate, c.names.up.unwrap_or_default()];
        let [gate, up] = RowRange::of_products(products, [inner; 2]);
        let up = c.names.up.map(|name| load(name, up, c.hidden_size)).transpose()?;
        Ok(Self { gate: load(c.names.gate, gate, c.hidden_size)?, up, down: down()? })
    }
}

/// The tensors of newer checkpoints: the first two products of all experts, and the third. These names are whole.
fn fused_experts(gate: &str, down: &str) -> [String; 2] {
    [
        gate.strip_suffix(".gate_proj").map_or_else(String::new, |experts| format!("{experts}.gate_up_proj")),
        down.to_owned(),
    ]
}

impl<L> Router<L> {
    fn load<N, P: WeightLoader<L, N>>(parts: &P, choice: ExpertChoice, c: &StackConfig) -> Result<Self, P::Error> {
        let name = c.names.router.expect("a mixture of experts has a router");
        let correction = match (choice.scores, c.names.router_correction) {
            (RouterScores::CorrectedSigmoid, Some(name)) => parts.elements(name, choice.count)?,
            (RouterScores::CorrectedSigmoid, None) => vec![0.0; choice.count],
            (RouterScores::Softmax, _) => Vec::new(),
        };
        // Unrounded: rounding could route a row to other experts.
        let logits = parts.unrounded().linear(name, RowRange::all(choice.count), c.hidden_size, c.biases.router)?;
        Ok(Self { logits, correction, choice })
    }
}

impl<L, N> FeedForwardWeights<L, N> {
    fn load<P: WeightLoader<L, N>>(parts: &P, index: usize, c: &StackConfig) -> Result<Self, P::Error> {
        let dense = c.experts.and_then(|experts| experts.dense).filter(|dense| index < dense.count);
        let experts = c.experts.filter(|_| dense.is_none());
        let products = match (experts, dense.zip(c.names.dense)) {
            (Some(choice), _) => {
                let expert = |expert| GatedProducts::load_expert(parts, expert, choice.count, c);
                (0..choice.count).map(expert).collect::<Result<_, P::Error>>()?
            }
            (None, Some((dense, [gate, up, down]))) => {
                vec![GatedProducts::load(parts, (gate, Some(up), down), dense.intermediate_size, c)?]
            }
            (None, None) => {
                let names = (c.names.gate, c.names.up, c.names.down);
                vec![GatedProducts::load(parts, names, c.inner(index), c)?]
            }
        };
        let shared = experts.and_then(|experts| experts.shared).zip(c.names.shared);
        let shared =
            shared.map(|(inner, [gate, up, down])| GatedProducts::load(parts, (gate, Some(up), down), inner, c));
        // Unrounded, as it is one product.
        let shared_gate = c.names.shared_gate.filter(|_| experts.is_some_and(|experts| experts.shared.is_some()));
        let shared_gate =
            shared_gate.map(|name| parts.unrounded().linear(name, RowRange::all(1), c.hidden_size, false));
        Ok(Self {
            router: experts.map(|choice| Router::load(parts, choice, c)).transpose()?,
            products,
            shared: shared.transpose()?,
            shared_gate: shared_gate.transpose()?,
            norms: parts.part_norms(c.names.feed_forward_norms, c)?,
            activation: c.activation,
        })
    }
}

/// The first sublayer, in which tokens see those before them.
pub(crate) enum TokenMixer<L, N> {
    Attention(AttentionWeights<L, N>),
    Delta(DeltaWeights<L, N>),
    Convolution(ConvolutionWeights<L, N>),
}

pub(crate) struct LayerWeights<L, N> {
    pub(crate) mixer: TokenMixer<L, N>,
    /// Cross-attention.
    pub(crate) cross: Option<AttentionWeights<L, N>>,
    pub(crate) feed_forward: FeedForwardWeights<L, N>,
    pub(crate) input: Option<LayerInputWeights<L, N>>,
    /// Factor of the residual stream after the layer.
    pub(crate) scale: Option<f32>,
}

/// Weights of the layer's own input: it is multiplied by an activated product of the residual stream, and a product of
/// the result is added to the residual stream after a norm.
pub(crate) struct LayerInputWeights<L, N> {
    pub(crate) gate: L,
    pub(crate) output: L,
    pub(crate) norm: N,
}

impl<L, N> LayerInputWeights<L, N> {
    fn load<P: WeightLoader<L, N>>(parts: &P, c: &StackConfig) -> Result<Option<Self>, P::Error> {
        let Some(([gate, output, norm], width)) = c.names.layer_input.zip(c.layer_inputs) else { return Ok(None) };
        Ok(Some(Self {
            gate: parts.linear(gate, RowRange::all(width), c.hidden_size, false)?,
            output: parts.linear(output, RowRange::all(c.hidden_size), width, false)?,
            norm: parts.norm_of(norm, c)?,
        }))
    }
}

impl<L, N> LayerWeights<L, N> {
    fn load<P: WeightLoader<L, N>>(parts: &P, index: usize, c: &StackConfig) -> Result<Self, P::Error> {
        let mut attention = c.names.attention;
        if index == 0 && !c.first_input_norm {
            attention.norms.stream = None;
        }
        let mixer = match c.recurrence.filter(|_| c.layers[index].recurrent) {
            Some(Recurrence::Delta(delta)) => TokenMixer::Delta(DeltaWeights::load(parts, delta, c)?),
            Some(Recurrence::Convolution(width)) => TokenMixer::Convolution(ConvolutionWeights::load(parts, width, c)?),
            None => TokenMixer::Attention(AttentionWeights::load(parts, &attention, c.names.head_norms, (c, index))?),
        };
        Ok(Self {
            mixer,
            cross: c
                .names
                .cross
                .as_ref()
                .map(|names| AttentionWeights::load(parts, names, None, (c, index)))
                .transpose()?,
            feed_forward: FeedForwardWeights::load(parts, index, c)?,
            input: LayerInputWeights::load(parts, c)?,
            scale: c.names.layer_scale.map(|name| Ok(parts.elements(name, 1)?[0])).transpose()?,
        })
    }
}

/// The layers of a stack and its final norm.
pub(crate) struct StackWeights<L, N> {
    pub(crate) layers: Vec<LayerWeights<L, N>>,
    pub(crate) last_norm: Option<N>,
}

impl<L, N> StackWeights<L, N> {
    pub(crate) fn load<P: WeightLoader<L, N>>(parts: &P, c: &StackConfig) -> Result<Self, P::Error> {
        // Sequential: each tensor's file pages are released after packing, so that weights are in memory only once.
        let layer = |index| LayerWeights::load(&parts.layer(c.names.layers, index), index, c);
        Ok(Self {
            layers: (0..c.layers.len()).map(layer).collect::<Result<_, _>>()?,
            last_norm: c.names.last_norm.map(|name| parts.norm_of(name, c)).transpose()?,
        })
    }
}
