//! Models with a class head that read whole texts: encoders (Devlin et al. 2019, §4) and encoder-decoders (Lewis et al.
//! 2020, §3.1). Examples are reward models, cross-encoders and entailment models.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{Device, Result, Tensor, bail};
use probity_kernels::{Inputs, activate, matmul, normalise};

use crate::classes::{ClassActivation, ClassHeadConfig, Pooling};
use crate::cpu::{NormWeights, Workspace};
use crate::encoder::{EncoderShape, MaskedModel};
use crate::encoder_decoder::{DecoderClasses, EncoderDecoder, EncoderDecoderConfig, EncoderDecoderStacks};
use crate::head::VocabularyHead;
use crate::linear::{Linear, TensorLoader};
use crate::packed::{HeadRow, KvSpan, LayerTaps, PackedDecoder, PackedOutput, PackedSegment};
use crate::row_range::RowRange;
use crate::stack_config::StackConfig;
use crate::{Compute, SourceError, WeightSource};

/// A model with a class head as a [`PackedDecoder`]. A segment is a whole text; its one wanted row, the last, is the
/// input of the head. The vocabulary is the set of classes. Nothing is cached.
pub(crate) struct Classifier<T> {
    texts: T,
    head: ClassHead,
}

/// Computes one pooled state per text.
pub(crate) trait TextStates: Send + Sync {
    /// The states `(texts, hidden_size)` of at least one text.
    fn states(&self, w: &mut Workspace, texts: &[Vec<u32>]) -> Result<Vec<f32>>;

    /// Bytes of keys and values for a text of that many tokens, in addition to one layer's.
    fn cache_bytes(&self, tokens: usize) -> usize;

    fn compute(&self) -> Compute;

    fn workspace(&self) -> &Mutex<Workspace>;
}

/// An encoder with pooling.
pub(crate) struct PooledEncoder {
    encoder: MaskedModel,
    pooling: Pooling,
    /// The token after which a second text begins.
    separator: Option<u32>,
    width: usize,
}

/// An encoder-decoder whose decoder reads the same text shifted by one. The state at the last end token represents the
/// text.
pub(crate) struct LastEnds {
    stacks: EncoderDecoderStacks,
    start: u32,
    end: u32,
}

/// The layers of a class head.
struct ClassHead {
    dense: Linear,
    activation: ClassActivation,
    norm: Option<NormWeights>,
    output: VocabularyHead,
}

impl Classifier<PooledEncoder> {
    pub(crate) fn load(
        source: &dyn WeightSource,
        config: &EncoderShape,
        separator: Option<u32>,
        compute: Compute,
    ) -> std::result::Result<Self, SourceError> {
        let encoder = MaskedModel::load(source, config, compute)?;
        let head = ClassHead::load(source, (&config.class_head, config.classes.len()), &config.stack, compute)?;
        Ok(Self {
            texts: PooledEncoder { encoder, pooling: config.pooling, separator, width: config.hidden_size },
            head,
        })
    }
}

impl Classifier<LastEnds> {
    fn load(
        source: &dyn WeightSource,
        config: &EncoderDecoderConfig,
        classes: &DecoderClasses,
        compute: Compute,
    ) -> std::result::Result<Self, SourceError> {
        let stacks = EncoderDecoderStacks::load(source, config, compute)?;
        let head = ClassHead::load(source, (&DecoderClasses::HEAD, classes.names.len()), &config.decoder.1, compute)?;
        Ok(Self { texts: LastEnds { stacks, start: config.decoder_start, end: classes.end }, head })
    }
}

/// Loads an encoder-decoder with the head that its configuration describes.
pub(crate) fn load_encoder_decoder(
    source: &dyn WeightSource,
    config: &EncoderDecoderConfig,
    compute: Compute,
) -> std::result::Result<Box<dyn PackedDecoder>, SourceError> {
    match &config.classes {
        Some(classes) => Ok(Box::new(Classifier::<LastEnds>::load(source, config, classes, compute)?)),
        None => Ok(Box::new(EncoderDecoder::load(source, config, compute)?)),
    }
}

impl TextStates for PooledEncoder {
    fn states(&self, w: &mut Workspace, texts: &[Vec<u32>]) -> Result<Vec<f32>> {
        let firsts = first_parts(texts, self.separator);
        if self.pooling == Pooling::First {
            let wanted = vec![vec![0]; texts.len()];
            self.encoder.run(w, texts, Some(&firsts), Some(&wanted), |_, _| ())?;
            return Ok(self.encoder.finish(w));
        }
        self.encoder.run(w, texts, Some(&firsts), None, |_, _| ())?;
        let states = self.encoder.finish(w);
        let mut pooled = vec![0.0; texts.len() * self.width];
        let mut rows = states.chunks_exact(self.width);
        for (mean, text) in pooled.chunks_exact_mut(self.width).zip(texts) {
            for row in rows.by_ref().take(text.len()) {
                mean.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
            }
            for sum in mean {
                *sum /= text.len() as f32;
            }
        }
        Ok(pooled)
    }

    fn cache_bytes(&self, _: usize) -> usize {
        0
    }

    fn compute(&self) -> Compute {
        self.encoder.compute()
    }

    fn workspace(&self) -> &Mutex<Workspace> {
        self.encoder.workspace()
    }
}

impl TextStates for LastEnds {
    fn states(&self, w: &mut Workspace, texts: &[Vec<u32>]) -> Result<Vec<f32>> {
        let sources = as_sources(texts);
        let spans = self.stacks.sources(w, &sources.iter().collect::<Vec<_>>())?;
        let read = read_later(texts, spans, (self.start, self.end))?;
        let taps = &mut LayerTaps { layers: &[], see: &mut |_, _| () };
        Ok(self.stacks.texts(w, &read.iter().collect::<Vec<_>>(), taps)?.0)
    }

    fn cache_bytes(&self, tokens: usize) -> usize {
        // The decoder's layers cache it twice: for cross-attention and for self-attention.
        2 * self.stacks.cache_bytes(tokens)
    }

    fn compute(&self) -> Compute {
        self.stacks.compute()
    }

    fn workspace(&self) -> &Mutex<Workspace> {
        self.stacks.workspace()
    }
}

impl ClassHead {
    fn load(
        source: &dyn WeightSource,
        (c, classes): (&ClassHeadConfig, usize),
        stack: &StackConfig,
        compute: Compute,
    ) -> std::result::Result<Self, SourceError> {
        // Unrounded: each text has only a few rows here, so rounding would save nothing.
        let (all, width) = (TensorLoader::new(source, "", compute).unrounded(), stack.hidden_size);
        let norm = c.norm.map(|name| NormWeights::load(&all, name, width, (stack.norm, stack.norm_eps)));
        Ok(Self {
            dense: all.linear(all.first_linear_of(c.dense), RowRange::all(width), width, c.dense_bias)?,
            activation: c.activation,
            norm: norm.transpose()?,
            output: VocabularyHead {
                weight: all.packed(&format!("{}.weight", c.output), [classes, width])?,
                bias: Some(all.floats(&format!("{}.bias", c.output), &[classes])?),
                scale: 1.0,
                cap: None,
            },
        })
    }

    /// Maps states `(rows, hidden_size)` to the input of the class product.
    fn transform(&self, compute: Compute, inputs: &mut Inputs, x: &[f32]) -> Vec<f32> {
        let mut dense = vec![0.0; x.len()];
        inputs.set(compute.isa, x, self.dense.weight.in_features(), [self.dense.form()]);
        matmul(compute.isa, inputs, &mut [self.dense.product(&mut dense)]);
        match self.activation {
            ClassActivation::Tanh => dense.iter_mut().for_each(|x| *x = libm::tanhf(*x)),
            ClassActivation::Other(activation) => {
                let gate = dense.clone();
                activate(compute.isa, activation, &gate, None, &mut dense);
            }
        }
        let Some(norm) = &self.norm else { return dense };
        let mut normed = vec![0.0; dense.len()];
        normalise(compute.isa, &dense, norm.norm(), &mut normed);
        normed
    }
}

/// The texts of a batch; segments with a past, other wanted rows or taps are errors.
pub(crate) fn whole_texts(segments: &[PackedSegment], taps: &LayerTaps<'_>) -> Result<Vec<Vec<u32>>> {
    let is_whole = |s: &PackedSegment| s.past.is_empty() && s.wanted.iter().all(|offset| *offset + 1 == s.tokens.len());
    if !segments.iter().all(is_whole) || !taps.layers.is_empty() {
        bail!("a classifier reads whole texts, and shows what it makes of them alone");
    }
    Ok(segments.iter().filter(|s| !s.wanted.is_empty()).map(|s| s.tokens.clone()).collect())
}

/// The number of tokens of each text up to and including the first separator.
pub(crate) fn first_parts(texts: &[Vec<u32>], separator: Option<u32>) -> Vec<usize> {
    let first = |text: &Vec<u32>| {
        let end = separator.and_then(|separator| text.iter().position(|token| *token == separator));
        end.map_or(text.len(), |end| end + 1)
    };
    texts.iter().map(first).collect()
}

/// The texts as an encoder's sources.
pub(crate) fn as_sources(texts: &[Vec<u32>]) -> Vec<PackedSegment> {
    let source = |text: &Vec<u32>| PackedSegment { past: Vec::new(), tokens: text.clone(), wanted: Vec::new() };
    texts.iter().map(source).collect()
}

/// The texts as decoder input over their encoder states: each begins with `start`, and each token is shifted by one.
/// The row of the text's last `end` is wanted, and later tokens are dropped.
pub(crate) fn read_later(
    texts: &[Vec<u32>],
    sources: Vec<KvSpan>,
    (start, end): (u32, u32),
) -> Result<Vec<PackedSegment>> {
    let read = |(text, source): (&Vec<u32>, KvSpan)| {
        let Some(last) = text.iter().rposition(|token| *token == end) else {
            bail!("a text without token {end}, which the class head reads");
        };
        let tokens = [&[start], &text[..last]].concat();
        Ok(PackedSegment { past: vec![Arc::new(source)], tokens, wanted: vec![last] })
    };
    texts.iter().zip(sources).map(read).collect()
}

/// An empty span for each segment.
pub(crate) fn no_spans(segments: &[PackedSegment]) -> Vec<Arc<KvSpan>> {
    segments.iter().map(|s| Arc::new(KvSpan::new(s.tokens.len(), ()))).collect()
}

impl<T: TextStates> PackedDecoder for Classifier<T> {
    fn forward_tapped(&self, segments: &[PackedSegment], taps: &mut LayerTaps<'_>) -> Result<PackedOutput> {
        let texts = whole_texts(segments, taps)?;
        let mut workspace = self.texts.workspace().lock().unwrap_or_else(PoisonError::into_inner);
        let w = &mut *workspace;
        let width = self.head.dense.weight.in_features();
        let hidden = if texts.is_empty() {
            Vec::new()
        } else {
            let states = self.texts.states(w, &texts)?;
            self.head.transform(self.texts.compute(), &mut w.inputs, &states)
        };
        let hidden = Tensor::from_vec(hidden, (texts.len(), width), &Device::Cpu)?;
        Ok(PackedOutput { hidden, spans: no_spans(segments) })
    }

    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let mut workspace = self.texts.workspace().lock().unwrap_or_else(PoisonError::into_inner);
        self.head.output.logits(self.texts.compute(), &mut workspace.inputs, hidden)
    }

    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> Result<Vec<HeadRow>> {
        let mut workspace = self.texts.workspace().lock().unwrap_or_else(PoisonError::into_inner);
        self.head.output.rows(self.texts.compute(), &mut workspace.inputs, hidden, asked)
    }

    fn greedy_among(&self, hidden: &Tensor, row: &HeadRow, allowed: &[u32]) -> Result<Option<u32>> {
        let mut workspace = self.texts.workspace().lock().unwrap_or_else(PoisonError::into_inner);
        self.head.output.greedy_among(self.texts.compute(), &mut workspace.inputs, hidden, row, allowed)
    }

    fn cache_bytes(&self, tokens: usize) -> usize {
        self.texts.cache_bytes(tokens)
    }

    fn join(&self, _: &[Arc<KvSpan>], _: usize) -> Result<Arc<KvSpan>> {
        bail!("a classifier caches nothing")
    }

    fn idle_rows(&self) -> usize {
        self.texts.compute().idle_rows()
    }
}
