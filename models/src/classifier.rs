//! Encoders with a class head: reward models, cross-encoders, judges of entailment (Devlin et al. 2019, §4).

use std::sync::{Arc, PoisonError};

use candle_core::{Device, Result, Tensor, bail};
use probity_kernels::{Inputs, activate, matmul};

use crate::classes::ClassActivation;
use crate::encoder::{EncoderShape, MaskedModel};
use crate::head::VocabularyHead;
use crate::linear::{Linear, TensorLoader};
use crate::packed::{HeadRow, KvSpan, LayerTaps, PackedDecoder, PackedOutput, PackedSegment};
use crate::row_range::RowRange;
use crate::{Compute, SourceError, WeightSource};

/// An encoder with a class head, on the contract of decoders: a segment is a whole text, and its one wanted row, the
/// last, is what the head reads of it. Its vocabulary are the classes. Nothing is cached.
pub(crate) struct Classifier {
    encoder: MaskedModel,
    dense: Linear,
    activation: ClassActivation,
    output: VocabularyHead,
    /// The token behind which a second text begins.
    separator: Option<u32>,
}

impl Classifier {
    pub(crate) fn load(
        source: &dyn WeightSource,
        config: &EncoderShape,
        separator: Option<u32>,
        compute: Compute,
    ) -> std::result::Result<Self, SourceError> {
        // A few rows of a text each: nothing is won by rounding them.
        let all = TensorLoader::new(source, "", compute).unrounded();
        let (c, width, classes) = (&config.class_head, config.hidden_size, config.classes.len());
        Ok(Self {
            encoder: MaskedModel::load(source, config, compute)?,
            dense: all.linear(all.first_linear_of(c.dense), RowRange::all(width), width, true)?,
            activation: c.activation,
            output: VocabularyHead {
                weight: all.packed(&format!("{}.weight", c.output), [classes, width])?,
                bias: Some(all.floats(&format!("{}.bias", c.output), &[classes])?),
                scale: 1.0,
                cap: None,
            },
            separator,
        })
    }

    /// Of final hidden states `(rows, hidden_size)` what meets the classes.
    fn transform(&self, inputs: &mut Inputs, x: &[f32]) -> Vec<f32> {
        let (compute, mut dense) = (self.encoder.compute(), vec![0.0; x.len()]);
        inputs.set(compute.isa, x, self.dense.weight.in_features(), [self.dense.form()]);
        matmul(compute.isa, inputs, &mut [self.dense.product(&mut dense)]);
        match self.activation {
            ClassActivation::Tanh => dense.iter_mut().for_each(|x| *x = libm::tanhf(*x)),
            ClassActivation::Other(activation) => {
                let gate = dense.clone();
                activate(compute.isa, activation, &gate, None, &mut dense);
            }
        }
        dense
    }
}

impl PackedDecoder for Classifier {
    fn forward_tapped(&self, segments: &[PackedSegment], taps: &mut LayerTaps<'_>) -> Result<PackedOutput> {
        let is_whole =
            |s: &PackedSegment| s.past.is_empty() && s.wanted.iter().all(|offset| *offset + 1 == s.tokens.len());
        if !segments.iter().all(is_whole) || !taps.layers.is_empty() {
            bail!("a classifier reads whole texts, and shows what it makes of them alone");
        }
        let read: Vec<&PackedSegment> = segments.iter().filter(|s| !s.wanted.is_empty()).collect();
        let texts: Vec<Vec<u32>> = read.iter().map(|s| s.tokens.clone()).collect();
        let firsts: Vec<usize> = texts
            .iter()
            .map(|text| {
                let end = self.separator.and_then(|separator| text.iter().position(|token| *token == separator));
                end.map_or(text.len(), |end| end + 1)
            })
            .collect();
        let wanted = vec![vec![0]; texts.len()];
        let mut workspace = self.encoder.workspace().lock().unwrap_or_else(PoisonError::into_inner);
        let w = &mut *workspace;
        let width = self.dense.weight.in_features();
        let hidden = if texts.is_empty() {
            Vec::new()
        } else {
            self.encoder.run(w, &texts, Some(&firsts), Some(&wanted), |_, _| ())?;
            self.transform(&mut w.inputs, &w.x)
        };
        let hidden = Tensor::from_vec(hidden, (texts.len(), width), &Device::Cpu)?;
        let spans = segments.iter().map(|s| Arc::new(KvSpan::new(s.tokens.len(), ()))).collect();
        Ok(PackedOutput { hidden, spans })
    }

    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let mut workspace = self.encoder.workspace().lock().unwrap_or_else(PoisonError::into_inner);
        self.output.logits(self.encoder.compute(), &mut workspace.inputs, hidden)
    }

    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> Result<Vec<HeadRow>> {
        let mut workspace = self.encoder.workspace().lock().unwrap_or_else(PoisonError::into_inner);
        self.output.rows(self.encoder.compute(), &mut workspace.inputs, hidden, asked)
    }

    fn greedy_among(&self, hidden: &Tensor, row: &HeadRow, allowed: &[u32]) -> Result<Option<u32>> {
        let mut workspace = self.encoder.workspace().lock().unwrap_or_else(PoisonError::into_inner);
        self.output.greedy_among(self.encoder.compute(), &mut workspace.inputs, hidden, row, allowed)
    }

    fn cache_bytes(&self, _: usize) -> usize {
        0
    }

    fn join(&self, _: &[Arc<KvSpan>], _: usize) -> Result<Arc<KvSpan>> {
        bail!("a classifier caches nothing")
    }

    fn idle_rows(&self) -> usize {
        self.encoder.compute().idle_rows()
    }
}
