//! [Gated delta nets](crate::delta) on our kernels.

use probity_kernels::{
    Activation, DeltaInputs, DeltaText, DeltaWeights as KernelWeights, activate, gated_delta, matmul, normalise,
};

use crate::cpu::{CpuSpan, NormWeights, Workspace, keep_rows};
use crate::delta::DeltaWeights;
use crate::linear::Linear;
use crate::transformer::{ForwardPass, LayerPlace, add_product};

impl DeltaWeights<Linear, NormWeights> {
    /// Adds the results to the residual stream and writes the new states. If only some rows are kept, the others are
    /// dropped from the stream.
    pub(crate) fn forward(
        &self,
        w: &mut Workspace,
        pass: &ForwardPass<'_>,
        place: &LayerPlace<'_>,
        new: &mut [CpuSpan],
    ) {
        let (isa, shape) = (pass.compute.isa, self.shape);
        let width = place.config.hidden_size;
        let rows = w.x.len() / width;
        let norm = self.norms.before(place.config.norm_first);
        let own = [&self.mixed, &self.rates, &self.steps].map(Linear::form);
        w.set_inputs(isa, norm, width, own.into_iter().chain(place.kept.is_none().then_some(self.gate.form())));
        w.q.set_len(rows * shape.channels());
        w.k.set_len(rows * shape.value_heads);
        w.v.set_len(rows * shape.value_heads);
        w.gate.set_len(place.kept.map_or(rows, <[usize]>::len) * shape.values());
        let recurrence = [self.mixed.product(&mut w.q), self.rates.product(&mut w.k), self.steps.product(&mut w.v)];
        if let Some(kept) = place.kept {
            // The state needs all rows; gates are computed for the kept ones only.
            matmul(isa, &w.inputs, &mut { recurrence });
            keep_rows(&mut w.x, width, kept);
            if !kept.is_empty() {
                w.set_inputs(isa, norm, width, [self.gate.form()]);
                matmul(isa, &w.inputs, &mut [self.gate.product(&mut w.gate)]);
            }
        } else {
            let [mixed, rates, steps] = recurrence;
            matmul(isa, &w.inputs, &mut [mixed, rates, steps, self.gate.product(&mut w.gate)]);
        }
        self.run(w, pass, place, new);
        if place.kept.is_some_and(<[usize]>::is_empty) {
            return;
        }
        if let Some(kept) = place.kept {
            keep_rows(&mut w.attended, shape.values(), kept);
        }
        w.normed.set_len(w.attended.len());
        normalise(isa, &w.attended, self.norm.norm(), &mut w.normed);
        activate(isa, Activation::Silu, &w.gate, Some(&w.normed), &mut w.attended);
        w.inputs.set(isa, &w.attended, shape.values(), [self.output.form()]);
        add_product(w, isa, &self.output, false, &self.norms, place.config);
    }

    /// Runs the recurrence of each text from the state of the span before it.
    fn run(&self, w: &mut Workspace, pass: &ForwardPass<'_>, place: &LayerPlace<'_>, new: &mut [CpuSpan]) {
        let shape = self.shape;
        let mut texts = Vec::with_capacity(new.len());
        for (stretch, new) in pass.stretches.iter().zip(new) {
            // Of earlier spans only the last one's state matters.
            let before = stretch.past.last().map(|span| span.cache::<CpuSpan>().states().layer(place.slot));
            texts.push(DeltaText { rows: stretch.len, before, after: new.states_mut().layer_mut(place.slot) });
        }
        let weights = KernelWeights { convolution: &self.convolution, decay: &self.decay, step_bias: &self.step_bias };
        let inputs = DeltaInputs { mixed: &w.q, rates: &w.k, steps: &w.v };
        w.attended.set_len(w.q.len() / shape.channels() * shape.values());
        gated_delta(pass.compute.isa, &shape, weights, inputs, &mut texts, &mut w.delta, &mut w.attended);
    }
}
