//! Encoder-decoders on the packed contract: the encoder runs once per source, and the decoder's cross-attention keys
//! and values of the source are cached.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{Device, Result, Tensor, bail};

use crate::classes::{ClassActivation, ClassHeadConfig};
use crate::cpu::{CpuSpan, Workspace};
use crate::decoder::OUTPUT;
use crate::embeddings::{EmbeddedText, Embeddings, EmbeddingsConfig};
use crate::head::VocabularyHead;
use crate::linear::TensorLoader;
use crate::packed::{HeadRow, KvSpan, LayerTaps, PackedDecoder, PackedOutput, PackedSegment};
use crate::stack_config::StackConfig;
use crate::transformer::{ForwardPass, LayerStack, TextRows};
use crate::{Compute, SourceError, WeightSource};

/// The configuration of an encoder-decoder.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderDecoderConfig {
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Width of the residual streams and of the output head's input.
    pub hidden_size: usize,
    /// Maximum number of tokens of a source and of a decoder text; `None` if positions are relative and there is no
    /// limit.
    pub context_length: Option<usize>,
    /// The first token of every decoder text.
    pub decoder_start: u32,
    /// Whether the output head shares the embedding's weights.
    pub tie_word_embeddings: bool,
    /// Prefix of tensor names; some checkpoints omit it.
    pub(crate) prefix: &'static str,
    pub(crate) encoder: (EmbeddingsConfig, StackConfig),
    pub(crate) decoder: (EmbeddingsConfig, StackConfig),
    /// Factor of the final hidden states.
    pub(crate) hidden_scale: f32,
    /// The output head's bias, `(1, vocab_size)`, if checkpoints have one.
    pub(crate) head_bias: Option<&'static str>,
    /// The classes, if a class head replaces the vocabulary.
    pub classes: Option<DecoderClasses>,
    /// Substrings of the names of unused tensors.
    pub(crate) spare: &'static [&'static str],
}

/// Classes predicted from the decoder's state at a text's last end token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecoderClasses {
    /// Class names by index.
    pub names: Vec<String>,
    /// The end-of-text token.
    pub end: u32,
}

impl DecoderClasses {
    /// The class head, with the same names in all architectures.
    pub(crate) const HEAD: ClassHeadConfig = ClassHeadConfig {
        dense: &["classification_head.dense"],
        dense_bias: true,
        activation: ClassActivation::Tanh,
        norm: None,
        output: "classification_head.out_proj",
    };
}

/// The layers and embeddings of an encoder-decoder.
pub(crate) struct EncoderDecoderStacks {
    encoder: (Embeddings, LayerStack),
    decoder: (Embeddings, LayerStack),
    compute: Compute,
    /// Locked for a whole call: each call uses all threads.
    workspace: Mutex<Workspace>,
}

/// An encoder-decoder that predicts tokens.
pub(crate) struct EncoderDecoder {
    stacks: EncoderDecoderStacks,
    lm_head: VocabularyHead,
}

/// Cross-attention keys and values of a source in all decoder layers.
struct SourceSpan(CpuSpan);

impl EncoderDecoderStacks {
    pub(crate) fn load(
        source: &dyn WeightSource,
        config: &EncoderDecoderConfig,
        compute: Compute,
    ) -> std::result::Result<Self, SourceError> {
        let model = TensorLoader::new(source, "", compute).under_optional(config.prefix, config.decoder.0.tokens);
        let part = |(embeddings, stack): &(EmbeddingsConfig, StackConfig)| {
            Ok((Embeddings::load(&model, embeddings)?, LayerStack::load(&model, stack.clone())?))
        };
        Ok(Self {
            encoder: part(&config.encoder)?,
            decoder: part(&config.decoder)?,
            compute,
            workspace: Mutex::default(),
        })
    }

    pub(crate) fn compute(&self) -> Compute {
        self.compute
    }

    pub(crate) fn workspace(&self) -> &Mutex<Workspace> {
        &self.workspace
    }

    /// Bytes of a new span of that many tokens, for a source or the decoder.
    pub(crate) fn cache_bytes(&self, tokens: usize) -> usize {
        // Both kinds of span have the decoder's layers and heads.
        self.decoder.1.cache_bytes(self.compute, tokens)
    }

    /// Encodes segments without a past.
    pub(crate) fn sources(&self, w: &mut Workspace, segments: &[&PackedSegment]) -> Result<Vec<KvSpan>> {
        if segments.iter().any(|s| !s.wanted.is_empty()) {
            bail!("a source has no hidden states that could be wanted");
        }
        let (embeddings, stack) = &self.encoder;
        embeddings.rows(
            self.compute.isa,
            w,
            &segments.iter().map(|s| EmbeddedText::new(&s.tokens, 0)).collect::<Vec<_>>(),
        )?;
        let lens: Vec<usize> = segments.iter().map(|s| s.tokens.len()).collect();
        let stretches = lens.iter().map(|len| TextRows { past: &[], source: None, len: *len }).collect();
        stack.run(w, &ForwardPass { compute: self.compute, stretches, wanted: None, rotations: None }, |_, _| ());
        let spans = self.decoder.1.read_sources(w, stack.last_norm(), self.compute, &lens);
        Ok(lens.into_iter().zip(spans).map(|(len, span)| KvSpan::new(len, SourceSpan(span))).collect())
    }

    /// Runs the decoder texts. Returns the hidden states of the wanted rows and the new spans.
    pub(crate) fn texts(
        &self,
        w: &mut Workspace,
        segments: &[&PackedSegment],
        taps: &mut LayerTaps<'_>,
    ) -> Result<(Vec<f32>, Vec<KvSpan>)> {
        let stretches: Vec<TextRows<'_>> = segments
            .iter()
            .copied()
            .map(|s| TextRows {
                past: &s.past[1..],
                source: Some(&s.past[0].cache::<SourceSpan>().0),
                len: s.tokens.len(),
            })
            .collect();
        let (embeddings, stack) = &self.decoder;
        let placed: Vec<_> =
            segments.iter().zip(&stretches).map(|(s, stretch)| EmbeddedText::new(&s.tokens, stretch.start())).collect();
        embeddings.rows(self.compute.isa, w, &placed)?;
        taps.show(0, &w.x);
        let wanted = segments.iter().map(|s| &*s.wanted).collect();
        let spans = stack.run(
            w,
            &ForwardPass { compute: self.compute, stretches, wanted: Some(wanted), rotations: None },
            |layer, x| taps.show(layer + 1, x),
        );
        let hidden = stack.finish(w, self.compute);
        Ok((hidden, segments.iter().zip(spans).map(|(s, span)| KvSpan::new(s.tokens.len(), span)).collect()))
    }
}

impl EncoderDecoder {
    pub(crate) fn load(
        source: &dyn WeightSource,
        config: &EncoderDecoderConfig,
        compute: Compute,
    ) -> std::result::Result<Self, SourceError> {
        let all = TensorLoader::new(source, "", compute);
        let model = all.under_optional(config.prefix, config.decoder.0.tokens);
        let vocabulary = [config.vocab_size, config.hidden_size];
        let weight = if config.tie_word_embeddings {
            model.packed(model.first_of(config.decoder.0.tokens), vocabulary)?
        } else {
            all.packed(OUTPUT, vocabulary)?
        };
        // A buffer, not a weight: some exports omit it.
        let bias =
            config.head_bias.filter(|name| all.contains(name)).map(|name| all.floats(name, &[1, config.vocab_size]));
        Ok(Self {
            lm_head: VocabularyHead { weight, bias: bias.transpose()?, scale: config.hidden_scale, cap: None },
            stacks: EncoderDecoderStacks::load(source, config, compute)?,
        })
    }
}

impl PackedDecoder for EncoderDecoder {
    fn forward_tapped(&self, segments: &[PackedSegment], taps: &mut LayerTaps<'_>) -> Result<PackedOutput> {
        let mut workspace = self.stacks.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let w = &mut *workspace;
        let (sources, texts): (Vec<&PackedSegment>, Vec<&PackedSegment>) =
            segments.iter().partition(|s| s.past.is_empty());
        // Sources and decoder texts go through different layers, so each kind runs separately. Spans are returned in
        // the segments' order.
        let mut read = if sources.is_empty() { Vec::new() } else { self.stacks.sources(w, &sources)? }.into_iter();
        let (hidden, written) =
            if texts.is_empty() { Default::default() } else { self.stacks.texts(w, &texts, taps)? };
        let mut written = written.into_iter();
        let span = |s: &PackedSegment| if s.past.is_empty() { read.next() } else { written.next() };
        let spans = segments.iter().map(span).map(|span| Arc::new(span.expect("a span for each segment"))).collect();
        let width = self.stacks.encoder.1.config().hidden_size;
        Ok(PackedOutput {
            hidden: Tensor::from_vec(
                hidden,
                (texts.iter().map(|s| s.wanted.len()).sum::<usize>(), width),
                &Device::Cpu,
            )?,
            spans,
        })
    }

    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let mut workspace = self.stacks.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        self.lm_head.logits(self.stacks.compute, &mut workspace.inputs, hidden)
    }

    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> Result<Vec<HeadRow>> {
        let mut workspace = self.stacks.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        self.lm_head.rows(self.stacks.compute, &mut workspace.inputs, hidden, asked)
    }

    fn greedy_among(&self, hidden: &Tensor, row: &HeadRow, allowed: &[u32]) -> Result<Option<u32>> {
        let mut workspace = self.stacks.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        self.lm_head.greedy_among(self.stacks.compute, &mut workspace.inputs, hidden, row, allowed)
    }

    fn cache_bytes(&self, tokens: usize) -> usize {
        self.stacks.cache_bytes(tokens)
    }

    fn idle_rows(&self) -> usize {
        self.stacks.compute.idle_rows()
    }

    fn join(&self, spans: &[Arc<KvSpan>], len: usize) -> Result<Arc<KvSpan>> {
        Ok(self.stacks.decoder.1.join(self.stacks.compute, spans, len))
    }
}
