//! Models with a class head on candle operations; the counterpart of [`crate::classifier`].

use std::ops::Range;
use std::sync::Arc;

use candle_core::{DType, Result, Tensor, bail};

use super::IDLE_ROWS;
use super::encoder::DeviceEncoder;
use super::encoder_decoder::{DeviceEncoderDecoder, DeviceStacks};
use super::head::DeviceHead;
use super::layer::{activate, ranges};
use super::weights::{DeviceLinear, DeviceLoadError, DeviceLoader, DeviceNorm};
use crate::classes::{ClassActivation, ClassHeadConfig, Pooling};
use crate::classifier::{as_sources, first_parts, no_spans, read_later, whole_texts};
use crate::encoder_decoder::DecoderClasses;
use crate::packed::{HeadRow, KvSpan, LayerTaps, PackedDecoder, PackedOutput, PackedSegment};
use crate::row_range::RowRange;
use crate::stack_config::StackConfig;
use crate::weight_loader::WeightLoader as _;
use crate::{EncoderDecoderConfig, EncoderShape};

/// A model with a class head on a candle device.
pub(super) struct DeviceClassifier<T> {
    texts: T,
    head: DeviceClassHead,
}

/// Computes one pooled state per text.
pub(super) trait DeviceTextStates: Send + Sync {
    /// The states `(texts, hidden_size)` of at least one text.
    fn states(&self, texts: &[Vec<u32>]) -> Result<Tensor>;

    /// The states of an empty batch.
    fn none(&self) -> Result<Tensor>;

    /// Bytes of keys and values for a text of that many tokens, in addition to one layer's.
    fn cache_bytes(&self, tokens: usize) -> usize;
}

/// An encoder with pooling.
pub(super) struct DevicePooledEncoder {
    encoder: DeviceEncoder,
    pooling: Pooling,
    /// The token after which a second text begins.
    separator: Option<u32>,
}

/// An encoder-decoder whose decoder reads the same text shifted by one. The state at the last end token represents the
/// text.
pub(super) struct DeviceLastEnds {
    stacks: DeviceStacks,
    start: u32,
    end: u32,
}

/// The layers of a class head, in f32.
struct DeviceClassHead {
    dense: DeviceLinear,
    activation: ClassActivation,
    norm: Option<DeviceNorm>,
    output: DeviceHead,
}

impl DeviceClassifier<DevicePooledEncoder> {
    pub(super) fn load(
        loader: &DeviceLoader<'_>,
        config: &EncoderShape,
        separator: Option<u32>,
    ) -> std::result::Result<Self, DeviceLoadError> {
        let encoder = DeviceEncoder::load(loader, config)?;
        let head = DeviceClassHead::load(loader, (&config.class_head, config.classes.len()), &config.stack)?;
        Ok(Self { texts: DevicePooledEncoder { encoder, pooling: config.pooling, separator }, head })
    }
}

impl DeviceClassifier<DeviceLastEnds> {
    fn load(
        loader: &DeviceLoader<'_>,
        config: &EncoderDecoderConfig,
        classes: &DecoderClasses,
    ) -> std::result::Result<Self, DeviceLoadError> {
        let stacks = DeviceStacks::load(loader, config)?;
        let head = DeviceClassHead::load(loader, (&DecoderClasses::HEAD, classes.names.len()), &config.decoder.1)?;
        Ok(Self { texts: DeviceLastEnds { stacks, start: config.decoder_start, end: classes.end }, head })
    }
}

/// Loads an encoder-decoder with the head that its configuration describes.
pub(super) fn load_encoder_decoder(
    loader: &DeviceLoader<'_>,
    config: &EncoderDecoderConfig,
) -> std::result::Result<Box<dyn PackedDecoder>, DeviceLoadError> {
    match &config.classes {
        Some(classes) => Ok(Box::new(DeviceClassifier::<DeviceLastEnds>::load(loader, config, classes)?)),
        None => Ok(Box::new(DeviceEncoderDecoder::load(loader, config)?)),
    }
}

impl DeviceTextStates for DevicePooledEncoder {
    fn states(&self, texts: &[Vec<u32>]) -> Result<Tensor> {
        let firsts = first_parts(texts, self.separator);
        if self.pooling == Pooling::First {
            let wanted = vec![vec![0]; texts.len()];
            return self.encoder.finish(&self.encoder.run(texts, Some(&firsts), Some(&wanted), &mut |_, _| ())?);
        }
        let states = self.encoder.finish(&self.encoder.run(texts, Some(&firsts), None, &mut |_, _| ())?)?;
        let states = states.to_dtype(DType::F32)?;
        let mean = |rows: Range<usize>| states.narrow(0, rows.start, rows.len())?.mean_keepdim(0);
        Tensor::cat(&ranges(texts.iter().map(Vec::len)).into_iter().map(mean).collect::<Result<Vec<_>>>()?, 0)
    }

    fn none(&self) -> Result<Tensor> {
        self.encoder.none()
    }

    fn cache_bytes(&self, _: usize) -> usize {
        0
    }
}

impl DeviceTextStates for DeviceLastEnds {
    fn states(&self, texts: &[Vec<u32>]) -> Result<Tensor> {
        let sources = as_sources(texts);
        let spans = self.stacks.sources(&sources.iter().collect::<Vec<_>>())?;
        let read = read_later(texts, spans, (self.start, self.end))?;
        let taps = &mut LayerTaps { layers: &[], see: &mut |_, _| () };
        Ok(self.stacks.texts(&read.iter().collect::<Vec<_>>(), taps)?.0)
    }

    fn none(&self) -> Result<Tensor> {
        self.stacks.none()
    }

    fn cache_bytes(&self, tokens: usize) -> usize {
        // The decoder's layers cache it twice: for cross-attention and for self-attention.
        2 * self.stacks.cache_bytes(tokens)
    }
}

impl DeviceClassHead {
    fn load(
        loader: &DeviceLoader<'_>,
        (c, classes): (&ClassHeadConfig, usize),
        stack: &StackConfig,
    ) -> std::result::Result<Self, DeviceLoadError> {
        // Unrounded: each text has only a few rows here, so rounding would save nothing.
        let (all, width) = (loader.unrounded(), stack.hidden_size);
        Ok(Self {
            dense: all.linear(all.weights.first_linear_of(c.dense), RowRange::all(width), width, c.dense_bias)?,
            activation: c.activation,
            norm: c.norm.map(|name| all.norm_of(name, stack)).transpose()?,
            output: DeviceHead {
                weight: all.matrix(&format!("{}.weight", c.output), RowRange::all(classes), width)?,
                bias: Some(all.tensor(&format!("{}.bias", c.output), &[classes])?),
                scale: 1.0,
                cap: None,
            },
        })
    }

    /// Maps states `(rows, hidden_size)` to the input of the class product.
    fn transform(&self, x: &Tensor) -> Result<Tensor> {
        let dense = self.dense.forward(&x.to_dtype(DType::F32)?)?;
        let activated = match self.activation {
            ClassActivation::Tanh => dense.tanh(),
            ClassActivation::Other(activation) => activate(&dense, activation, None),
        }?;
        self.norm.as_ref().map_or(Ok(activated.clone()), |norm| norm.forward(&activated))
    }
}

impl<T: DeviceTextStates> PackedDecoder for DeviceClassifier<T> {
    fn forward_tapped(&self, segments: &[PackedSegment], taps: &mut LayerTaps<'_>) -> Result<PackedOutput> {
        let texts = whole_texts(segments, taps)?;
        let hidden =
            if texts.is_empty() { self.texts.none()? } else { self.head.transform(&self.texts.states(&texts)?)? };
        Ok(PackedOutput { hidden, spans: no_spans(segments) })
    }

    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        self.head.output.logits(hidden)
    }

    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> Result<Vec<HeadRow>> {
        self.head.output.rows(hidden, asked)
    }

    fn greedy_among(&self, hidden: &Tensor, _: &HeadRow, allowed: &[u32]) -> Result<Option<u32>> {
        self.head.output.greedy_among(hidden, allowed)
    }

    fn cache_bytes(&self, tokens: usize) -> usize {
        self.texts.cache_bytes(tokens)
    }

    fn join(&self, _: &[Arc<KvSpan>], _: usize) -> Result<Arc<KvSpan>> {
        bail!("a classifier caches nothing")
    }

    fn idle_rows(&self) -> usize {
        IDLE_ROWS
    }
}
