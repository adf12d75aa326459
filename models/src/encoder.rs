//! Encoders and their masked language model heads (Devlin et al. 2019). Texts are packed without padding.

use std::sync::{Mutex, PoisonError};

use candle_core::{Device, Result, Tensor, bail};
use probity_kernels::{Activation, Inputs, RopeLayout, activate, matmul, normalise};

use crate::classes::{ClassHeadConfig, Pooling};
use crate::cpu::{NormWeights, Workspace};
use crate::embeddings::{EmbeddedText, Embeddings, EmbeddingsConfig};
use crate::head::VocabularyHead;
use crate::linear::{Linear, TensorLoader};
use crate::packed::{HeadRow, PackedEncoder};
use crate::row_range::RowRange;
use crate::stack_config::StackConfig;
use crate::transformer::{ForwardPass, LayerStack, TextRows};
use crate::{Compute, Rope, SourceError, WeightSource};

/// The configuration of an encoder.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderShape {
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Width of the hidden states.
    pub hidden_size: usize,
    /// Number of layers.
    pub num_layers: usize,
    /// Maximum number of tokens per text, special tokens included.
    pub context_length: usize,
    /// Whether the masked language model head shares the embedding's weights.
    pub tie_word_embeddings: bool,
    /// Prefix of the encoder's tensor names; some checkpoints omit it.
    pub(crate) prefix: &'static str,
    pub(crate) embeddings: EmbeddingsConfig,
    pub(crate) stack: StackConfig,
    /// Rotations (in halves), selected by the layers of the stack.
    pub(crate) ropes: Vec<Rope>,
    pub(crate) head: MaskedHeadConfig,
    /// Class names by index; empty without a class head.
    pub classes: Vec<String>,
    /// The pooling before the class head.
    pub(crate) pooling: Pooling,
    pub(crate) class_head: ClassHeadConfig,
    /// Substrings of the names of unused tensors.
    pub(crate) spare: &'static [&'static str],
}

/// A masked language model head: a product with an activation, a norm, and the product with the vocabulary.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MaskedHeadConfig {
    /// The tensor whose presence shows that a checkpoint has this head.
    pub(crate) sign: &'static str,
    pub(crate) dense: &'static str,
    pub(crate) dense_bias: bool,
    pub(crate) norm: &'static str,
    pub(crate) activation: Activation,
    /// The product with the vocabulary, if it is not tied to the embedding.
    pub(crate) output: &'static str,
    /// Possible names of its bias, if it has one.
    pub(crate) bias: &'static [&'static str],
}

struct MaskedHead {
    dense: Linear,
    norm: NormWeights,
    activation: Activation,
    output: VocabularyHead,
}

/// A loaded encoder, with its masked language model head if the checkpoint has one.
pub(crate) struct MaskedModel {
    embeddings: Embeddings,
    stack: LayerStack,
    /// One for each rotation.
    frequencies: Vec<Vec<f32>>,
    ropes: Vec<Rope>,
    head: Option<MaskedHead>,
    compute: Compute,
    /// Locked for a whole call: each call uses all threads.
    workspace: Mutex<Workspace>,
}

impl MaskedModel {
    pub(crate) fn load(
        source: &dyn WeightSource,
        config: &EncoderShape,
        compute: Compute,
    ) -> std::result::Result<Self, SourceError> {
        let all = TensorLoader::new(source, "", compute);
        let model = all.under_optional(config.prefix, config.embeddings.tokens);
        // The head is next to the encoder, not under its prefix. A class head may have a dense product of the same
        // name.
        let is_of_classes = !config.classes.is_empty() && config.class_head.dense.contains(&config.head.dense);
        let has_head = !is_of_classes && all.contains(config.head.sign);
        let head = has_head.then(|| MaskedHead::load(&all, &model, config));
        Ok(Self {
            embeddings: Embeddings::load(&model, &config.embeddings)?,
            stack: LayerStack::load(&model, config.stack.clone())?,
            frequencies: config.ropes.iter().map(|rope| rope.frequencies(config.stack.head_dim)).collect(),
            ropes: config.ropes.clone(),
            head: head.transpose()?,
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

    /// Runs texts through all layers. If `wanted` rows are passed, the last layer computes only these. `firsts` is the
    /// number of first-segment tokens of each text; by default all.
    pub(crate) fn run(
        &self,
        w: &mut Workspace,
        texts: &[Vec<u32>],
        firsts: Option<&[usize]>,
        wanted: Option<&[Vec<usize>]>,
        mut after: impl FnMut(usize, &[f32]),
    ) -> Result<()> {
        self.embeddings.rows(self.compute.isa, w, &whole_texts(texts, firsts)?)?;
        after(0, &w.x);
        // No padding: the weights of masked positions would change the bits of attention sums.
        let stretches = texts.iter().map(|text| TextRows { past: &[], source: None, len: text.len() }).collect();
        let wanted = wanted.map(|wanted| wanted.iter().map(|offsets| &**offsets).collect());
        let pass = ForwardPass { compute: self.compute, stretches, wanted, rotations: None };
        let pass = pass.rotated(RopeLayout::Halves, &self.frequencies, &self.ropes);
        self.stack.run(w, &pass, |layer, x| after(layer + 1, x));
        Ok(())
    }

    /// The rows that [`run`](Self::run) left in the workspace, after the final norm if there is one.
    pub(crate) fn finish(&self, w: &Workspace) -> Vec<f32> {
        self.stack.finish(w, self.compute)
    }

    fn head_of(&self) -> Result<&MaskedHead> {
        match &self.head {
            Some(head) => Ok(head),
            None => bail!("this checkpoint has no masked-language head"),
        }
    }
}

/// Prepares whole texts for embedding. `firsts` is the number of first-segment tokens of each text; by default all.
pub(crate) fn whole_texts<'a>(texts: &'a [Vec<u32>], firsts: Option<&[usize]>) -> Result<Vec<EmbeddedText<'a>>> {
    if texts.iter().any(Vec::is_empty) {
        bail!("a text without tokens has no hidden states");
    }
    let mut embedded: Vec<EmbeddedText<'_>> = texts.iter().map(|text| EmbeddedText::new(text, 0)).collect();
    for (text, first) in embedded.iter_mut().zip(firsts.unwrap_or_default()) {
        text.first = *first;
    }
    Ok(embedded)
}

/// Checks that the layer indices exist.
pub(crate) fn check_layers(layers: &[usize], num_layers: usize) -> Result<()> {
    match layers.iter().find(|layer| **layer > num_layers) {
        Some(layer) => bail!("layer {layer} does not exist; the model has {num_layers}"),
        None => Ok(()),
    }
}

/// Checks that the offsets lie inside their texts.
pub(crate) fn check_offsets(texts: &[Vec<u32>], wanted: &[Vec<usize>]) -> Result<()> {
    if texts.len() != wanted.len()
        || texts.iter().zip(wanted).any(|(text, wanted)| wanted.iter().any(|offset| *offset >= text.len()))
    {
        bail!("for each text a list of offsets into it");
    }
    Ok(())
}

impl MaskedHead {
    fn load(
        all: &TensorLoader<'_>,
        model: &TensorLoader<'_>,
        config: &EncoderShape,
    ) -> std::result::Result<Self, SourceError> {
        let (c, width, vocabulary) = (&config.head, config.hidden_size, [config.vocab_size, config.hidden_size]);
        let weight = if config.tie_word_embeddings {
            model.packed(model.first_of(config.embeddings.tokens), vocabulary)?
        } else {
            all.packed(&format!("{}.weight", c.output), vocabulary)?
        };
        let bias = (!c.bias.is_empty()).then(|| all.floats(all.first_of(c.bias), &[config.vocab_size]));
        Ok(Self {
            dense: all.linear(c.dense, RowRange::all(width), width, c.dense_bias)?,
            norm: NormWeights::load(all, c.norm, width, (config.stack.norm, config.stack.norm_eps))?,
            activation: c.activation,
            output: VocabularyHead { weight, bias: bias.transpose()?, scale: 1.0, cap: None },
        })
    }

    /// Maps final hidden states `(rows, hidden_size)` to the input of the vocabulary product.
    fn transform(&self, compute: Compute, inputs: &mut Inputs, x: &[f32]) -> Vec<f32> {
        let (mut dense, mut hidden) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        inputs.set(compute.isa, x, self.dense.weight.in_features(), [self.dense.form()]);
        matmul(compute.isa, inputs, &mut [self.dense.product(&mut dense)]);
        activate(compute.isa, self.activation, &dense, None, &mut hidden);
        normalise(compute.isa, &hidden, self.norm.norm(), &mut dense);
        dense
    }
}

impl PackedEncoder for MaskedModel {
    fn encode(&self, texts: &[Vec<u32>], layers: &[usize]) -> Result<Vec<Tensor>> {
        let width = self.stack.config().hidden_size;
        check_layers(layers, self.stack.config().layers.len())?;
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let mut states: Vec<Vec<f32>> = vec![Vec::new(); layers.len()];
        self.run(&mut workspace, texts, None, None, |layer, x| {
            // Copies only requested layers: the next layer overwrites the rows.
            for (state, _) in states.iter_mut().zip(layers).filter(|(_, asked)| **asked == layer) {
                *state = x.to_vec();
            }
        })?;
        let tensor = |state: Vec<f32>| {
            let rows = state.len() / width;
            Tensor::from_vec(state, (rows, width), &Device::Cpu)
        };
        states.into_iter().map(tensor).collect()
    }

    fn last_states(&self, texts: &[Vec<u32>]) -> Result<Tensor> {
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        self.run(&mut workspace, texts, None, None, |_, _| ())?;
        let width = self.stack.config().hidden_size;
        let states = self.finish(&workspace);
        let rows = states.len() / width;
        Tensor::from_vec(states, (rows, width), &Device::Cpu)
    }

    fn has_masked_head(&self) -> bool {
        self.head.is_some()
    }

    fn masked(&self, texts: &[Vec<u32>], wanted: &[Vec<usize>]) -> Result<Tensor> {
        let head = self.head_of()?;
        check_offsets(texts, wanted)?;
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let w = &mut *workspace;
        self.run(w, texts, None, Some(wanted), |_, _| ())?;
        let width = self.stack.config().hidden_size;
        let last = self.finish(w);
        let hidden = head.transform(self.compute, &mut w.inputs, &last);
        let rows = hidden.len() / width;
        Tensor::from_vec(hidden, (rows, width), &Device::Cpu)
    }

    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> Result<Vec<HeadRow>> {
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        self.head_of()?.output.rows(self.compute, &mut workspace.inputs, hidden, asked)
    }

    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        self.head_of()?.output.logits(self.compute, &mut workspace.inputs, hidden)
    }
}
