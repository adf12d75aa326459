//! Encoder-decoders on candle operations; the counterpart of [`crate::encoder_decoder`].

use std::sync::Arc;

use candle_core::{Result, Tensor, bail};

use super::IDLE_ROWS;
use super::embeddings::DeviceEmbeddings;
use super::head::DeviceHead;
use super::layer::{DeviceRows, NO_ROTATIONS};
use super::pool::SlotSpan;
use super::stack::{DeviceStack, join};
use super::weights::{DeviceLoadError, DeviceLoader};
use crate::EncoderDecoderConfig;
use crate::decoder::OUTPUT;
use crate::embeddings::EmbeddedText;
use crate::packed::{HeadRow, KvSpan, LayerTaps, PackedDecoder, PackedOutput, PackedSegment};
use crate::row_range::RowRange;

/// The layers and embeddings of an encoder-decoder on a candle device.
pub(super) struct DeviceStacks {
    encoder: (DeviceEmbeddings, DeviceStack),
    decoder: (DeviceEmbeddings, DeviceStack),
}

/// An encoder-decoder on a candle device that predicts tokens.
pub(super) struct DeviceEncoderDecoder {
    stacks: DeviceStacks,
    head: DeviceHead,
}

impl DeviceStacks {
    pub(super) fn load(
        loader: &DeviceLoader<'_>,
        config: &EncoderDecoderConfig,
    ) -> std::result::Result<Self, DeviceLoadError> {
        let (of_encoder, of_decoder) = (&config.encoder.0, &config.decoder.0);
        let model = loader.with_weights(loader.weights.under_optional(config.prefix, of_decoder.tokens));
        let (read, written) = (config.encoder.1.layers.len(), config.decoder.1.layers.len());
        Ok(Self {
            encoder: (
                DeviceEmbeddings::load(&model, of_encoder)?,
                DeviceStack::load(&model.for_layers(0, read), config.encoder.1.clone())?,
            ),
            decoder: (
                DeviceEmbeddings::load(&model, of_decoder)?,
                DeviceStack::load(&model.for_layers(read, written), config.decoder.1.clone())?,
            ),
        })
    }

    /// Hidden states of no rows.
    pub(super) fn none(&self) -> Result<Tensor> {
        self.decoder.0.none()
    }

    /// Bytes of a new span of that many tokens, for a source or the decoder.
    pub(super) fn cache_bytes(&self, tokens: usize) -> usize {
        // Both kinds of span have the decoder's layers and heads.
        self.decoder.1.cache_bytes(tokens)
    }

    /// Encodes segments without a past.
    pub(super) fn sources(&self, segments: &[&PackedSegment]) -> Result<Vec<KvSpan>> {
        if segments.iter().any(|s| !s.wanted.is_empty()) {
            bail!("a source has no hidden states that could be wanted");
        }
        let (embeddings, stack) = &self.encoder;
        let texts: Vec<_> = segments.iter().map(|s| EmbeddedText::new(&s.tokens, 0)).collect();
        let rows = segments.iter().map(|s| DeviceRows { past: &[], source: None, len: s.tokens.len() });
        let x = embeddings.rows(&texts)?;
        let plan = stack.plan(&rows.collect::<Vec<_>>(), NO_ROTATIONS)?;
        let x = stack.run(x, &plan, &mut |_, _| Ok(()))?;
        let sources = self.decoder.1.read_sources(&stack.finish(&x)?, &plan.rows)?;
        let span = |(s, source): (&&PackedSegment, SlotSpan)| KvSpan::new(s.tokens.len(), source);
        Ok(segments.iter().zip(sources).map(span).collect())
    }

    /// Runs the decoder texts. Returns the hidden states of the wanted rows and the new spans.
    pub(super) fn texts(&self, segments: &[&PackedSegment], taps: &mut LayerTaps<'_>) -> Result<(Tensor, Vec<KvSpan>)> {
        let rows = segments.iter().map(|s| DeviceRows {
            past: &s.past[1..],
            source: Some(s.past[0].cache::<SlotSpan>()),
            len: s.tokens.len(),
        });
        let rows: Vec<DeviceRows<'_>> = rows.collect();
        let texts: Vec<_> =
            segments.iter().zip(&rows).map(|(s, rows)| EmbeddedText::new(&s.tokens, rows.start())).collect();
        let (embeddings, stack) = &self.decoder;
        let x = embeddings.rows(&texts)?;
        stack.decode(x, stack.plan(&rows, NO_ROTATIONS)?, segments, taps)
    }
}

impl DeviceEncoderDecoder {
    pub(super) fn load(
        loader: &DeviceLoader<'_>,
        config: &EncoderDecoderConfig,
    ) -> std::result::Result<Self, DeviceLoadError> {
        let stacks = DeviceStacks::load(loader, config)?;
        let rows = RowRange::all(config.vocab_size);
        let weight = if config.tie_word_embeddings {
            let tokens = config.decoder.0.tokens;
            let model = loader.with_weights(loader.weights.under_optional(config.prefix, tokens)).in_f32();
            model.matrix(model.weights.first_of(tokens), rows, config.hidden_size)?
        } else {
            loader.in_f32().matrix(OUTPUT, rows, config.hidden_size)?
        };
        // A buffer, not a weight: some exports omit it.
        let bias = config.head_bias.filter(|name| loader.weights.contains(name));
        let bias = bias.map(|name| loader.in_f32().tensor(name, &[1, config.vocab_size])).transpose()?;
        Ok(Self { stacks, head: DeviceHead { weight, bias, scale: config.hidden_scale, cap: None } })
    }
}

impl PackedDecoder for DeviceEncoderDecoder {
    fn forward_tapped(&self, segments: &[PackedSegment], taps: &mut LayerTaps<'_>) -> Result<PackedOutput> {
        let (sources, texts): (Vec<&PackedSegment>, Vec<&PackedSegment>) =
            segments.iter().partition(|s| s.past.is_empty());
        // Sources and decoder texts go through different layers, so each kind runs separately. Spans are returned in
        // the segments' order.
        let mut read = if sources.is_empty() { Vec::new() } else { self.stacks.sources(&sources)? }.into_iter();
        let (hidden, written) =
            if texts.is_empty() { (self.stacks.none()?, Vec::new()) } else { self.stacks.texts(&texts, taps)? };
        let mut written = written.into_iter();
        let span = |s: &PackedSegment| if s.past.is_empty() { read.next() } else { written.next() };
        let spans = segments.iter().map(span).map(|span| Arc::new(span.expect("a span for each segment"))).collect();
        Ok(PackedOutput { hidden, spans })
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
        self.stacks.cache_bytes(tokens)
    }

    fn join(&self, spans: &[Arc<KvSpan>], len: usize) -> Result<Arc<KvSpan>> {
        Ok(join(spans, len))
    }

    fn idle_rows(&self) -> usize {
        IDLE_ROWS
    }
}
