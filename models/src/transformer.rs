//! A stack of [layers](crate::layer) on our kernels, with options for attention windows, norms, positions, activations
//! and cross-attention.

use std::ops::Range;
use std::sync::Arc;

use probity_kernels::{
    Activated, Activation, AttentionSegment, AttentionShape, Buffer, Inputs, Isa, MatrixProduct, Norm, ProductForm,
    QueryRows, RelativeBias, RopeLayout, RopeTable, ScoreBias, activate, activated_matmul, attention,
    attention_with_sinks, matmul, normalise,
};
use rayon::prelude::*;

use crate::cpu::{CpuSpan, LayerStates, NormKind, NormWeights, Workspace, keep_rows};
use crate::distances::{LayerDistances, TextDistances};
use crate::layer::{self, GatedProducts, Router, StackWeights, TokenMixer};
use crate::linear::{Linear, TensorLoader};
use crate::packed::KvSpan;
use crate::relative::RelativeBuckets;
use crate::row_range::RowRange;
use crate::stack_config::{StackConfig, Temperature};
use crate::weight_loader::{PartNorms, WeightLoader};
use crate::{Compute, Rope, SourceError};

/// Rows of one text that are computed together. `S` is an executor's cached source for cross-attention.
pub(crate) struct TextRows<'a, S = CpuSpan> {
    /// Spans of the preceding positions.
    pub(crate) past: &'a [Arc<KvSpan>],
    /// The source for cross-attention.
    pub(crate) source: Option<&'a S>,
    pub(crate) len: usize,
}

impl<S> TextRows<'_, S> {
    pub(crate) fn start(&self) -> usize {
        self.past.iter().map(|span| span.len()).sum()
    }
}

/// Rotation angles of all rows, and of the rows that the last layer keeps, for each of the model's rotations.
pub(crate) struct RowRotations {
    pub(crate) layout: RopeLayout,
    pub(crate) tables: Vec<RowAngles>,
}

pub(crate) struct RowAngles {
    pub(crate) all: RopeTable,
    pub(crate) kept: RopeTable,
}

/// Inputs that all layers of a pass share.
pub(crate) struct ForwardPass<'a> {
    pub(crate) compute: Compute,
    pub(crate) stretches: Vec<TextRows<'a>>,
    /// Offsets in each text of the rows to keep in the last layer; `None` keeps all rows.
    pub(crate) wanted: Option<Vec<&'a [usize]>>,
    pub(crate) rotations: Option<RowRotations>,
}

impl ForwardPass<'_> {
    /// Indices among all rows of those that the last layer keeps, ascending.
    pub(crate) fn kept(&self) -> Option<Vec<usize>> {
        let wanted = self.wanted.as_ref()?;
        let rows =
            self.starts().zip(wanted).flat_map(|(start, wanted)| wanted.iter().map(move |offset| start + offset));
        Some(rows.collect())
    }

    /// The positions of all rows.
    fn positions(&self) -> Vec<u32> {
        self.stretches.iter().flat_map(|s| (s.start()..s.start() + s.len).map(|p| p as u32)).collect()
    }

    /// Adds rotation tables for these frequencies.
    pub(crate) fn rotated(self, layout: RopeLayout, frequencies: &[Vec<f32>], ropes: &[Rope]) -> Self {
        let positions = self.positions();
        // The last layer computes queries for wanted rows only, so these need their own table.
        let kept: Vec<u32> = self.kept().into_iter().flatten().map(|row| positions[row]).collect();
        let angles = |(frequencies, rope): (&Vec<f32>, &Rope)| {
            let table = |positions: &[u32]| RopeTable::new(positions, frequencies, rope.scale);
            RowAngles { all: table(&positions), kept: table(&kept) }
        };
        let tables = frequencies.iter().zip(ropes).map(angles).collect();
        Self { rotations: Some(RowRotations { layout, tables }), ..self }
    }

    /// The index of each text's first row.
    fn starts(&self) -> impl Iterator<Item = usize> {
        self.stretches.iter().scan(0, |next, stretch| {
            *next += stretch.len;
            Some(*next - stretch.len)
        })
    }
}

/// The context of a layer within a pass.
pub(crate) struct LayerPlace<'a> {
    shape: &'a AttentionShape,
    bias: Option<&'a RelativeBias>,
    distances: Option<&'a LayerDistances>,
    /// The logit of each head's sink.
    sinks: Option<&'a [f32]>,
    pub(crate) config: &'a StackConfig,
    layer: usize,
    /// Where its keys and values, or its recurrent state, are in spans; for keys and values of another layer, where
    /// those are.
    pub(crate) slot: usize,
    /// In the last layer, the rows to keep.
    pub(crate) kept: Option<&'a [usize]>,
    /// A factor of each row's queries, if they depend on the position.
    temperatures: Option<&'a [f32]>,
}

impl WeightLoader<Linear, NormWeights> for TensorLoader<'_> {
    type Error = SourceError;

    fn under(&self, more: &str) -> Self {
        TensorLoader::under(self, more)
    }

    fn unrounded(&self) -> Self {
        TensorLoader::unrounded(self)
    }

    fn linear(&self, name: &str, rows: RowRange, width: usize, bias: bool) -> Result<Linear, SourceError> {
        TensorLoader::linear(self, name, rows, width, bias)
    }

    fn plain_norm(&self, width: usize, (_, eps): (NormKind, f64)) -> Result<NormWeights, SourceError> {
        Ok(NormWeights::plain(width, eps))
    }

    fn rows(&self, name: &str, rows: &[Range<usize>], of: usize, width: usize) -> Result<Linear, SourceError> {
        self.linear_rows(name, rows, of, width)
    }

    fn elements(&self, name: &str, len: usize) -> Result<Vec<f32>, SourceError> {
        self.floats(name, &[len])
    }

    fn table(&self, name: &str, rows: usize, width: usize) -> Result<Vec<f32>, SourceError> {
        TensorLoader::table(self, name, rows, width)
    }

    fn has(&self, name: &str) -> bool {
        self.contains(name)
    }

    fn norm(&self, name: &str, width: usize, kind: (NormKind, f64)) -> Result<NormWeights, SourceError> {
        NormWeights::load(self, name, width, kind)
    }
}

impl PartNorms<NormWeights> {
    /// The norm before the sublayer, if the model is pre-norm.
    pub(crate) fn before(&self, norm_first: bool) -> Option<Norm<'_>> {
        self.stream.as_ref().filter(|_| norm_first).map(NormWeights::norm)
    }

    /// The norm after the residual sum, if the model is post-norm.
    pub(crate) fn after(&self, norm_first: bool) -> Option<Norm<'_>> {
        self.stream.as_ref().filter(|_| !norm_first).map(NormWeights::norm)
    }
}

type Attention = layer::AttentionWeights<Linear, NormWeights>;
type FeedForward = layer::FeedForwardWeights<Linear, NormWeights>;
type Layer = layer::LayerWeights<Linear, NormWeights>;
type LayerInput = layer::LayerInputWeights<Linear, NormWeights>;

impl Attention {
    /// Computes queries, keys and values, normalises and rotates their heads, and stores keys and values in the new
    /// spans. If only some rows are kept, only these have queries and stay in the residual stream.
    fn project(&self, w: &mut Workspace, pass: &ForwardPass<'_>, place: &LayerPlace<'_>, new: &mut [CpuSpan]) {
        let isa = pass.compute.isa;
        let width = self.query.weight.in_features();
        let rows = w.x.len() / width;
        let width_of = |linear: &Option<Linear>| linear.as_ref().map_or(0, Linear::out_features);
        let keys = [&self.key, &self.value].into_iter().flatten().map(Linear::form);
        w.k.set_len(rows * width_of(&self.key));
        w.v.set_len(rows * width_of(&self.value));
        w.q.set_len(place.kept.map_or(rows, <[usize]>::len) * self.query.out_features());
        // If rows are dropped, the query inputs are packed later from the kept rows.
        w.set_inputs(
            isa,
            self.norms.before(place.config.norm_first),
            width,
            keys.chain(place.kept.is_none().then_some(self.query.form())),
        );
        let (k, v) = (&mut *w.k, &mut *w.v);
        let products = [self.key.as_ref().map(|key| key.product(k)), self.value.as_ref().map(|value| value.product(v))];
        let mut products: Vec<MatrixProduct<'_>> = products.into_iter().flatten().collect();
        if let Some(kept) = place.kept {
            // Keys and values need all rows, so the residual stream shrinks after them.
            matmul(isa, &w.inputs, &mut products);
            keep_rows(&mut w.x, width, kept);
            self.ask(w, pass, place);
        } else {
            products.insert(0, self.query.product(&mut w.q));
            matmul(isa, &w.inputs, &mut products);
        }
        if self.key.is_some() && self.value.is_none() {
            w.v.set_len(w.k.len());
            w.v.copy_from_slice(&w.k);
        }
        if place.config.output_gate {
            w.split_gates(place.shape.head_dim);
        }
        // Before rotation, because rotation mixes elements with different norm weights. To the kernel each head is a
        // separate row, so its bits do not depend on other heads.
        let norms = [&self.query_norm, &self.key_norm, &self.value_norm];
        w.settle_heads(isa, norms.map(|norm| norm.as_ref().map(NormWeights::norm)));
        let rotation = pass.rotations.as_ref().zip(place.config.layers[place.layer].rotation);
        if let Some((RowRotations { layout, tables }, which)) = rotation {
            // Keys are cached after rotation: positions in a span never change, and it is read many times.
            let (RowAngles { all, kept }, head_dim) = (&tables[which], place.shape.head_dim);
            if self.key.is_some() {
                all.apply(isa, *layout, head_dim, &mut w.k);
            }
            (if place.kept.is_some() { kept } else { all }).apply(isa, *layout, head_dim, &mut w.q);
        }
        if let Some(temperatures) = place.temperatures {
            for (row, factor) in w.q.chunks_exact_mut(self.query.out_features()).zip(temperatures) {
                for x in row {
                    *x *= factor;
                }
            }
        }
        if self.key.is_none() {
            return;
        }
        let (k, v) = (&*w.k, &*w.v);
        let starts: Vec<usize> = pass.starts().collect();
        new.par_iter_mut().zip(starts).for_each(|(span, start)| span.fill(isa, place.shape, place.slot, (k, v), start));
    }

    /// Computes the queries of the remaining rows.
    fn ask(&self, w: &mut Workspace, pass: &ForwardPass<'_>, place: &LayerPlace<'_>) {
        let width = self.query.weight.in_features();
        w.q.set_len(w.x.len() / width * self.query.out_features());
        w.set_inputs(pass.compute.isa, self.norms.before(place.config.norm_first), width, [self.query.form()]);
        matmul(pass.compute.isa, &w.inputs, &mut [self.query.product(&mut w.q)]);
    }

    /// Adds the attention output to the residual stream.
    fn settle(&self, w: &mut Workspace, isa: Isa, place: &LayerPlace<'_>) {
        w.inputs.set(isa, &w.attended, self.output.weight.in_features(), [self.output.form()]);
        add_product(w, isa, &self.output, false, &self.norms, place.config);
    }

    /// Self-attention over the cached and the new spans.
    fn to_self(&self, w: &mut Workspace, pass: &ForwardPass<'_>, place: &LayerPlace<'_>, new: &[CpuSpan]) {
        let segments = pass.stretches.iter().zip(new).enumerate().map(|(index, (stretch, new))| {
            // Spans are in order of position, so the new span is last.
            let mut spans: Vec<_> = stretch.past.iter().map(|span| span.cache::<CpuSpan>().layer(place.slot)).collect();
            spans.push(new.layer(place.slot));
            let start = stretch.start();
            let rows = if place.config.bidirectional {
                QueryRows::All(stretch.len)
            } else {
                QueryRows::Causal(start + 1..start + stretch.len + 1)
            };
            AttentionSegment { spans, rows, wanted: place.kept.and(pass.wanted.as_ref()).map(|wanted| wanted[index]) }
        });
        let (isa, segments) = (pass.compute.isa, segments.collect::<Vec<_>>());
        w.attended.set_len(w.q.len());
        if let Some(distances) = place.distances {
            distances.attend(w, isa, place.shape, &segments);
        } else if let Some(sinks) = place.sinks {
            attention_with_sinks(isa, place.shape, sinks, &w.q, &segments, &mut w.attended);
        } else {
            let bias = place.bias.map(ScoreBias::Distance);
            attention(isa, place.shape, bias, &w.q, &segments, &mut w.attended);
        }
        if place.config.output_gate {
            w.apply_gates(isa);
        }
        self.settle(w, isa, place);
    }

    /// Cross-attention over the sources.
    fn to_source(&self, w: &mut Workspace, pass: &ForwardPass<'_>, place: &LayerPlace<'_>) {
        self.ask(w, pass, place);
        let segments = pass.stretches.iter().enumerate().map(|(index, stretch)| {
            let source = stretch.source.expect("a stretch of a decoder has a source");
            let rows = place.kept.and(pass.wanted.as_ref()).map_or(stretch.len, |wanted| wanted[index].len());
            AttentionSegment { spans: vec![source.layer(place.layer)], rows: QueryRows::All(rows), wanted: None }
        });
        // No bias and no window: a source and the decoder text do not share positions.
        let shape = &AttentionShape { window: None, ..*place.shape };
        w.attended.set_len(w.q.len());
        attention(pass.compute.isa, shape, None, &w.q, &segments.collect::<Vec<_>>(), &mut w.attended);
        self.settle(w, pass.compute.isa, place);
    }
}

impl GatedProducts<Linear> {
    /// Computes the inputs of the second product from the packed inputs.
    fn activate(&self, isa: Isa, activation: Activation, inputs: &Inputs, gated: &mut Inputs) {
        let layer = Activated { activation, gate: self.gate.weights(), up: self.up.as_ref().map(Linear::weights) };
        // The activation's results are packed directly for the next product, without an intermediate float buffer.
        activated_matmul(isa, inputs, &layer, gated, self.down.form());
    }

    fn forms(&self) -> impl Iterator<Item = ProductForm> + '_ {
        [Some(&self.gate), self.up.as_ref()].into_iter().flatten().map(Linear::form)
    }
}

impl FeedForward {
    /// Adds the feed-forward output to the residual stream.
    fn forward(&self, w: &mut Workspace, compute: Compute, config: &StackConfig) {
        let isa = compute.isa;
        let norm = self.norms.before(config.norm_first);
        match (&self.router, &self.products[..]) {
            (Some(router), products) => {
                self.mix(w, isa, router, products, norm);
                w.add_branch(isa, self.norms.branch.as_ref().map(NormWeights::norm), config.branch_scale);
                w.settle(isa, self.norms.after(config.norm_first));
            }
            (None, products) => {
                w.set_inputs(isa, norm, config.hidden_size, products[0].forms());
                products[0].activate(isa, self.activation, &w.inputs, &mut w.gated);
                add_product(w, isa, &products[0].down, true, &self.norms, config);
            }
        }
    }

    /// Writes the weighted sum of each row's experts, and of the shared layer, to `w.branch`. Experts are added in
    /// index order, so that a row's bits depend on the row alone.
    fn mix(
        &self,
        w: &mut Workspace,
        isa: Isa,
        router: &Router<Linear>,
        products: &[GatedProducts<Linear>],
        norm: Option<Norm<'_>>,
    ) {
        let (width, count) = (router.logits.weight.in_features(), router.choice.count);
        let rows = w.x.len() / width;
        w.normed.set_len(w.x.len());
        match norm {
            Some(norm) => normalise(isa, &w.x, norm, &mut w.normed),
            None => w.normed.copy_from_slice(&w.x),
        }
        w.inputs.set(isa, &w.normed, width, [router.logits.form()]);
        let mut logits = vec![0.0; rows * count];
        matmul(isa, &w.inputs, &mut [router.logits.product(&mut logits)]);
        let mut of_experts: Vec<Vec<(usize, f32)>> = vec![Vec::new(); count];
        for (row, logits) in logits.chunks_exact(count).enumerate() {
            for (expert, weight) in router.chosen(logits) {
                of_experts[expert].push((row, weight));
            }
        }
        w.branch.set_len(w.x.len());
        match &self.shared {
            Some(shared) => {
                w.inputs.set(isa, &w.normed, width, shared.forms());
                shared.activate(isa, self.activation, &w.inputs, &mut w.gated);
                matmul(isa, &w.gated, &mut [shared.down.product(&mut w.branch)]);
                if let Some(gate) = &self.shared_gate {
                    w.gate_branch(isa, gate, width);
                }
            }
            None => w.branch.fill(0.0),
        }
        let mut room = Buffer::default();
        for (products, rows) in products.iter().zip(&of_experts).filter(|(_, rows)| !rows.is_empty()) {
            room.set_len(rows.len() * width);
            for ((row, _), to) in rows.iter().zip(room.chunks_exact_mut(width)) {
                to.copy_from_slice(&w.normed[row * width..][..width]);
            }
            w.inputs.set(isa, &room, width, products.forms());
            products.activate(isa, self.activation, &w.inputs, &mut w.gated);
            matmul(isa, &w.gated, &mut [products.down.product(&mut room)]);
            for ((row, weight), from) in rows.iter().zip(room.chunks_exact(width)) {
                w.branch[row * width..][..width].iter_mut().zip(from).for_each(|(sum, x)| *sum += weight * x);
            }
        }
    }
}

/// Adds a sublayer's output product, of the inputs in `w.gated` or else `w.inputs`, to the residual stream.
pub(crate) fn add_product(
    w: &mut Workspace,
    isa: Isa,
    last: &Linear,
    of_gated: bool,
    norms: &PartNorms<NormWeights>,
    config: &StackConfig,
) {
    let inputs = if of_gated { &w.gated } else { &w.inputs };
    if norms.branch.is_none() && config.branch_scale == 1.0 {
        matmul(isa, inputs, &mut [MatrixProduct { add: true, ..last.product(&mut w.x) }]);
    } else {
        w.branch.set_len(w.x.len());
        matmul(isa, inputs, &mut [last.product(&mut w.branch)]);
        w.add_branch(isa, norms.branch.as_ref().map(NormWeights::norm), config.branch_scale);
    }
    w.settle(isa, norms.after(config.norm_first));
}

impl Layer {
    /// Runs the residual stream `(tokens, hidden_size)` through the layer. If only some rows are kept, the others are
    /// dropped.
    fn forward(&self, w: &mut Workspace, pass: &ForwardPass<'_>, place: &LayerPlace<'_>, new: &mut [CpuSpan]) {
        match &self.mixer {
            TokenMixer::Attention(attention) => {
                attention.project(w, pass, place, new);
                // If no row of the last layer is wanted, only its keys and values are needed.
                if place.kept.is_none_or(|kept| !kept.is_empty()) {
                    attention.to_self(w, pass, place, new);
                }
            }
            TokenMixer::Delta(delta) => delta.forward(w, pass, place, new),
            TokenMixer::Convolution(convolution) => convolution.forward(w, pass, place, new),
        }
        if place.kept.is_some_and(<[usize]>::is_empty) {
            return;
        }
        if let Some(cross) = &self.cross {
            cross.to_source(w, pass, place);
        }
        self.feed_forward.forward(w, pass.compute, place.config);
        if let Some(input) = &self.input {
            input.forward(w, pass.compute.isa, place);
        }
        if let Some(scale) = self.scale {
            w.x.iter_mut().for_each(|x| *x *= scale);
        }
    }
}

impl LayerInput {
    /// Adds what the layer makes of its own input to the residual stream.
    fn forward(&self, w: &mut Workspace, isa: Isa, place: &LayerPlace<'_>) {
        let (hidden_size, width) = (self.gate.weight.in_features(), self.gate.out_features());
        let (rows, all) = (w.x.len() / hidden_size, width * place.config.layers.len());
        // The buffers of attention are free here.
        w.q.set_len(rows * width);
        w.k.set_len(rows * width);
        w.v.set_len(rows * width);
        w.inputs.set(isa, &w.x, hidden_size, [self.gate.form()]);
        matmul(isa, &w.inputs, &mut [self.gate.product(&mut w.q)]);
        for (row, to) in w.k.chunks_exact_mut(width).enumerate() {
            let row = place.kept.map_or(row, |kept| kept[row]);
            to.copy_from_slice(&w.layer_inputs[row * all + place.layer * width..][..width]);
        }
        activate(isa, place.config.activation, &w.q, Some(&w.k), &mut w.v);
        w.inputs.set(isa, &w.v, width, [self.output.form()]);
        w.branch.set_len(w.x.len());
        matmul(isa, &w.inputs, &mut [self.output.product(&mut w.branch)]);
        w.add_branch(isa, Some(self.norm.norm()), 1.0);
    }
}

/// The layers of a stack.
pub(crate) struct LayerStack {
    layers: StackWeights<Linear, NormWeights>,
    bias: Option<RelativeBias>,
    distances: Option<TextDistances>,
    /// Where each layer's keys and values are in spans: layers that use those of another have no place of their own.
    slots: Vec<usize>,
    /// The logits of each layer's sinks.
    sinks: Option<Vec<Vec<f32>>>,
    config: StackConfig,
}

impl LayerStack {
    pub(crate) fn load(loader: &TensorLoader<'_>, config: StackConfig) -> Result<Self, SourceError> {
        let bias = |(name, buckets): (&str, RelativeBuckets)| {
            Ok(buckets.bias(&loader.floats(name, &[buckets.buckets, config.num_heads])?, config.num_heads))
        };
        let sinks = |name: &str| {
            let layer = |index| loader.layer(config.names.layers, index).floats(name, &[config.num_heads]);
            (0..config.layers.len()).map(layer).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            layers: StackWeights::load(loader, &config)?,
            sinks: config.sinks.map(sinks).transpose()?,
            bias: config.names.relative.zip(config.relative).map(bias).transpose()?,
            distances: config.disentangled.map(|of| TextDistances::load(loader, &of, &config)).transpose()?,
            slots: config.slots(),
            config,
        })
    }

    pub(crate) fn config(&self) -> &StackConfig {
        &self.config
    }

    /// Runs `w.x`, the embedded rows of a batch, through all layers and calls `after` with it after each. Returns the
    /// new spans, which are meaningful only if attention is causal.
    pub(crate) fn run(
        &self,
        w: &mut Workspace,
        pass: &ForwardPass<'_>,
        mut after: impl FnMut(usize, &[f32]),
    ) -> Vec<CpuSpan> {
        let bidirectional = self.config.bidirectional;
        let mut shapes = self.key_shapes(pass.compute);
        if bidirectional {
            // In an encoder, keys and values are used only by their own layer, so there is room for one layer.
            shapes.truncate(1);
        }
        let span = |s: &TextRows<'_>| CpuSpan::new(&shapes, s.start(), s.len).with_states(self.new_states());
        let mut spans: Vec<CpuSpan> = pass.stretches.iter().map(span).collect();
        let kept = pass.kept();
        let factors = |temperature: Temperature| {
            pass.positions().into_iter().map(|position| temperature.factor(position as usize)).collect::<Vec<_>>()
        };
        let temperatures = self.config.temperature.map(factors);
        let kept_temperatures = temperatures.as_ref().zip(kept.as_ref());
        let kept_temperatures: Option<Vec<f32>> =
            kept_temperatures.map(|(factors, kept)| kept.iter().map(|row| factors[*row]).collect());
        for (layer, weights) in self.layers.layers.iter().enumerate() {
            // Layers before the last need all rows as keys and values of the next layer.
            let kept = kept.as_deref().filter(|_| layer + 1 == self.layers.layers.len());
            let place = LayerPlace {
                shape: &self.config.attention_shape(layer, pass.compute.arithmetic),
                bias: self.bias.as_ref(),
                distances: self.distances.as_ref().map(|of| &of.layers[layer]),
                sinks: self.sinks.as_ref().map(|of| &*of[layer]),
                config: &self.config,
                layer,
                slot: if bidirectional { 0 } else { self.slots[layer] },
                kept,
                temperatures: if kept.is_some() { &kept_temperatures } else { &temperatures }.as_deref(),
            };
            if bidirectional && layer > 0 {
                spans.par_iter_mut().for_each(CpuSpan::clear);
            }
            weights.forward(w, pass, &place, &mut spans);
            after(layer, &w.x);
        }
        spans
    }

    /// Returns `w.x` after the final norm, if there is one.
    pub(crate) fn finish(&self, w: &Workspace, compute: Compute) -> Vec<f32> {
        let Some(norm) = self.last_norm() else { return w.x.to_vec() };
        let mut hidden = vec![0.0; w.x.len()];
        normalise(compute.isa, &w.x, norm, &mut hidden);
        hidden
    }

    pub(crate) fn last_norm(&self) -> Option<Norm<'_>> {
        self.layers.last_norm.as_ref().map(NormWeights::norm)
    }

    /// Computes each layer's cross-attention keys and values from the encoder's `w.x` after `norm`: one span for each
    /// source, with `lens` rows.
    pub(crate) fn read_sources(
        &self,
        w: &mut Workspace,
        norm: Option<Norm<'_>>,
        compute: Compute,
        lens: &[usize],
    ) -> Vec<CpuSpan> {
        let shapes = self.key_shapes(compute);
        let cross = || self.layers.layers.iter().filter_map(|layer| layer.cross.as_ref());
        let cross = || cross().filter_map(|cross| cross.key.as_ref().zip(cross.value.as_ref()));
        let forms: Vec<_> = cross().flat_map(|(key, value)| [key.form(), value.form()]).collect();
        let mut spans: Vec<CpuSpan> = lens.iter().map(|len| CpuSpan::new(&shapes, 0, *len)).collect();
        let starts = lens.iter().scan(0, |next, len| {
            *next += len;
            Some(*next - len)
        });
        let starts: Vec<usize> = starts.collect();
        // The rows are the same for all layers: they are packed once, in every form that a layer needs.
        w.set_inputs(compute.isa, norm, self.config.hidden_size, forms);
        for (layer, (key, value)) in cross().enumerate() {
            let rows = w.inputs.rows();
            w.k.set_len(rows * key.out_features());
            w.v.set_len(rows * value.out_features());
            matmul(compute.isa, &w.inputs, &mut [key.product(&mut w.k), value.product(&mut w.v)]);
            let (k, v) = (&*w.k, &*w.v);
            spans
                .par_iter_mut()
                .zip(&starts)
                .for_each(|(span, start)| span.fill(compute.isa, &shapes[layer], layer, (k, v), *start));
        }
        spans
    }

    fn new_states(&self) -> Option<LayerStates> {
        self.config.states().map(LayerStates::new)
    }

    /// Bytes of a new span of that many tokens.
    pub(crate) fn cache_bytes(&self, compute: Compute, tokens: usize) -> usize {
        CpuSpan::bytes(&self.key_shapes(compute), tokens) + self.state_bytes()
    }

    /// Bytes of the recurrent states after a span.
    pub(crate) fn state_bytes(&self) -> usize {
        self.config.states().map_or(0, LayerStates::bytes)
    }

    /// A copy of a span's keys and values without its states. A span without states is returned as it is.
    pub(crate) fn without_states(&self, compute: Compute, span: &Arc<KvSpan>) -> Arc<KvSpan> {
        if self.config.recurrence.is_none() || !span.can_continue() {
            return span.clone();
        }
        let copy = CpuSpan::join(&self.key_shapes(compute), &[span.cache()], span.len()).with_states(None);
        Arc::new(KvSpan::without_states(span.len(), copy))
    }

    /// Joins the first `len` tokens of consecutive spans.
    pub(crate) fn join(&self, compute: Compute, spans: &[Arc<KvSpan>], len: usize) -> Arc<KvSpan> {
        let parts: Vec<&CpuSpan> = spans.iter().map(|span| span.cache()).collect();
        Arc::new(KvSpan::new(len, CpuSpan::join(&self.key_shapes(compute), &parts, len)))
    }

    /// The shapes of the layers with keys and values of their own.
    fn key_shapes(&self, compute: Compute) -> Vec<AttentionShape> {
        let own = self.config.own_key_heads();
        own.map(|(layer, _)| self.config.attention_shape(layer, compute.arithmetic)).collect()
    }
}
