//! A decoder on candle operations; the counterpart of [`crate::decoder`] with the same configuration.

use std::sync::Arc;

use candle_core::{Result, Tensor};

use super::IDLE_ROWS;
use super::embeddings::DeviceEmbeddings;
use super::head::DeviceHead;
use super::layer::DeviceRows;
use super::layer_inputs::DeviceLayerInputs;
use super::stack::{DeviceStack, join};
use super::weights::{DeviceLoadError, DeviceLoader};
use crate::DecoderConfig;
use crate::decoder::{EMBEDDING, MODEL, frequencies};
use crate::embeddings::{EmbeddedText, EmbeddingsConfig};
use crate::packed::{HeadRow, KvSpan, LayerTaps, PackedDecoder, PackedOutput, PackedSegment};
use crate::row_range::RowRange;
use crate::weight_loader::WeightLoader as _;

/// A decoder on a candle device.
pub(super) struct DeviceDecoder {
    embeddings: DeviceEmbeddings,
    layer_inputs: Option<DeviceLayerInputs>,
    stack: DeviceStack,
    head: DeviceHead,
    frequencies: Vec<Vec<f32>>,
    config: DecoderConfig,
}

impl DeviceDecoder {
    pub(super) fn load(loader: &DeviceLoader<'_>, config: DecoderConfig) -> std::result::Result<Self, DeviceLoadError> {
        let embeddings = EmbeddingsConfig {
            tokens: &[EMBEDDING],
            vocab_size: config.vocab_size,
            width: config.hidden_size,
            scale: Some(config.embedding_scale).filter(|scale| *scale != 1.0),
            positions: None,
            types: None,
            norm: None,
        };
        let (name, outputs) = config.head();
        let weight = loader.in_f32().matrix(name, RowRange::all(outputs), config.hidden_size)?;
        let (model, stack) = (loader.under(MODEL), config.stack());
        let layer_inputs = config.layer_inputs.map(|inputs| DeviceLayerInputs::load(&model, inputs, &stack));
        Ok(Self {
            embeddings: DeviceEmbeddings::load(loader, &embeddings)?,
            layer_inputs: layer_inputs.transpose()?,
            stack: DeviceStack::load(&model, stack)?,
            head: DeviceHead { weight, bias: None, scale: config.logit_scale, cap: config.logit_cap },
            frequencies: frequencies(loader.weights.source, &config)?,
            config,
        })
    }
}

impl PackedDecoder for DeviceDecoder {
    fn forward_tapped(&self, segments: &[PackedSegment], taps: &mut LayerTaps<'_>) -> Result<PackedOutput> {
        let ropes: Vec<(&[f32], f32)> =
            self.frequencies.iter().zip(&self.config.ropes).map(|(all, rope)| (&**all, rope.scale)).collect();
        let rows = segments.iter().map(|s| DeviceRows { past: &s.past, source: None, len: s.tokens.len() });
        let texts: Vec<_> = segments.iter().map(|s| EmbeddedText::new(&s.tokens, s.start())).collect();
        // First, because it rejects tokens outside the vocabulary.
        let x = self.embeddings.rows(&texts)?;
        let mut plan = self.stack.plan(&rows.collect::<Vec<_>>(), (&ropes, self.config.rope_layout))?;
        if let Some(inputs) = &self.layer_inputs {
            let tokens: Vec<u32> = segments.iter().flat_map(|s| s.tokens.iter().copied()).collect();
            plan.layer_inputs = Some(inputs.compute(&x, &tokens)?);
        }
        let segments: Vec<&PackedSegment> = segments.iter().collect();
        let (hidden, spans) = self.stack.decode(x, plan, &segments, taps)?;
        Ok(PackedOutput { hidden, spans: spans.into_iter().map(Arc::new).collect() })
    }

    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        self.head.logits(hidden)
    }

    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> Result<Vec<HeadRow>> {
        self.head.rows(hidden, asked)
    }

    fn greedy_among(&self, hidden: &Tensor, _: &HeadRow, allowed: &[u32]) -> Result<Option<u32>> {
        self.head.greedy_among(hidden, allowed)
    }

    fn cache_bytes(&self, tokens: usize) -> usize {
        self.stack.cache_bytes(tokens)
    }

    fn join(&self, spans: &[Arc<KvSpan>], len: usize) -> Result<Arc<KvSpan>> {
        Ok(join(spans, len))
    }

    fn idle_rows(&self) -> usize {
        IDLE_ROWS
    }
}
