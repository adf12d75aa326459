//! [Gated convolutions](crate::convolution) on our kernels.

use probity_kernels::matmul;

use crate::convolution::ConvolutionWeights;
use crate::cpu::{CpuSpan, NormWeights, Workspace, keep_rows};
use crate::linear::Linear;
use crate::transformer::{ForwardPass, LayerPlace, add_product};

impl ConvolutionWeights<Linear, NormWeights> {
    /// Adds the results to the residual stream and writes the new states. If only some rows are kept, the others are
    /// dropped from the stream.
    pub(crate) fn forward(
        &self,
        w: &mut Workspace,
        pass: &ForwardPass<'_>,
        place: &LayerPlace<'_>,
        new: &mut [CpuSpan],
    ) {
        let (isa, width) = (pass.compute.isa, place.config.hidden_size);
        let rows = w.x.len() / width;
        w.set_inputs(isa, self.norms.before(place.config.norm_first), width, [self.inputs.form()]);
        w.q.set_len(rows * 3 * width);
        matmul(isa, &w.inputs, &mut [self.inputs.product(&mut w.q)]);
        self.run(w, pass, place, new);
        if let Some(kept) = place.kept {
            keep_rows(&mut w.x, width, kept);
            keep_rows(&mut w.attended, width, kept);
            if kept.is_empty() {
                return;
            }
        }
        w.inputs.set(isa, &w.attended, width, [self.output.form()]);
        add_product(w, isa, &self.output, false, &self.norms, place.config);
    }

    /// Computes each text's results from the state of the span before it. The sum over tokens has one order, so that
    /// bits do not depend on where a text is cut.
    fn run(&self, w: &mut Workspace, pass: &ForwardPass<'_>, place: &LayerPlace<'_>, new: &mut [CpuSpan]) {
        let width = place.config.hidden_size;
        let past = self.taps.len() / width - 1;
        w.attended.set_len(w.q.len() / 3);
        let (mut products, mut results) = (&w.q[..], &mut w.attended[..]);
        for (text, new) in pass.stretches.iter().zip(new) {
            let (own, others) = products.split_at(text.len * 3 * width);
            let (to, more) = results.split_at_mut(text.len * width);
            (products, results) = (others, more);
            // The inputs of the convolution, with those before the text.
            let mut inputs = match text.past.last() {
                // Of earlier spans only the last one's state matters.
                Some(span) => span.cache::<CpuSpan>().states().layer(place.slot).to_vec(),
                None => vec![0.0; past * width],
            };
            for row in own.chunks_exact(3 * width) {
                inputs.extend(row[..width].iter().zip(&row[2 * width..]).map(|(gate, x)| gate * x));
            }
            for (offset, (to, row)) in to.chunks_exact_mut(width).zip(own.chunks_exact(3 * width)).enumerate() {
                to.fill(0.0);
                let seen = inputs[offset * width..].chunks_exact(width);
                for (taps, seen) in self.taps.chunks_exact(width).zip(seen) {
                    to.iter_mut().zip(taps.iter().zip(seen)).for_each(|(to, (tap, x))| *to += tap * x);
                }
                to.iter_mut().zip(&row[width..2 * width]).for_each(|(to, gate)| *to *= gate);
            }
            new.states_mut().layer_mut(place.slot).copy_from_slice(&inputs[text.len * width..]);
        }
    }
}
