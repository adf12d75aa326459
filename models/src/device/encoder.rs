//! Encoders and their masked language model heads on candle operations; the counterpart of [`crate::encoder`].

use candle_core::{DType, Device, Result, Tensor, bail};
use probity_kernels::{Activation, RopeLayout};

use super::embeddings::DeviceEmbeddings;
use super::head::DeviceHead;
use super::layer::{BatchPlan, DeviceRows, activate};
use super::stack::{DeviceStack, wanted_rows};
use super::weights::{DeviceLinear, DeviceLoadError, DeviceLoader, DeviceNorm};
use crate::encoder::{check_layers, check_offsets, whole_texts};
use crate::packed::{HeadRow, PackedEncoder};
use crate::row_range::RowRange;
use crate::weight_loader::WeightLoader as _;
use crate::{EncoderShape, Rope};

struct DeviceMaskedHead {
    dense: DeviceLinear,
    norm: DeviceNorm,
    activation: Activation,
    output: DeviceHead,
}

/// An encoder on a candle device, with its masked language model head if the checkpoint has one.
pub(super) struct DeviceEncoder {
    embeddings: DeviceEmbeddings,
    stack: DeviceStack,
    frequencies: Vec<Vec<f32>>,
    ropes: Vec<Rope>,
    head: Option<DeviceMaskedHead>,
}

impl DeviceEncoder {
    pub(super) fn load(loader: &DeviceLoader<'_>, config: &EncoderShape) -> std::result::Result<Self, DeviceLoadError> {
        let model = loader.with_weights(loader.weights.under_optional(config.prefix, config.embeddings.tokens));
        // The head is next to the encoder, not under its prefix. A class head may use the same names.
        let has_head = config.classes.is_empty() && loader.has(config.head.sign);
        let head = has_head.then(|| DeviceMaskedHead::load(loader, &model, config)).transpose()?;
        Ok(Self {
            embeddings: DeviceEmbeddings::load(&model, &config.embeddings)?,
            stack: DeviceStack::load(&model, config.stack.clone())?,
            frequencies: config.ropes.iter().map(|rope| rope.frequencies(config.stack.head_dim)).collect(),
            ropes: config.ropes.clone(),
            head,
        })
    }

    /// Runs texts, at least one, through all layers and calls `after` after each. `firsts` is the number of
    /// first-segment tokens of each text; by default all. Returns the wanted rows, by default all.
    pub(super) fn run(
        &self,
        texts: &[Vec<u32>],
        firsts: Option<&[usize]>,
        wanted: Option<&[Vec<usize>]>,
        after: &mut dyn FnMut(usize, &Tensor),
    ) -> Result<Tensor> {
        let x = self.embeddings.rows(&whole_texts(texts, firsts)?)?;
        let rows = texts.iter().map(|text| DeviceRows { past: &[], source: None, len: text.len() });
        let ropes: Vec<(&[f32], f32)> =
            self.frequencies.iter().zip(&self.ropes).map(|(all, rope)| (&**all, rope.scale)).collect();
        let plan: BatchPlan<'_> = self.stack.plan(&rows.collect::<Vec<_>>(), (&ropes, RopeLayout::Halves))?;
        let x = self.stack.run(x, &plan, &mut |layer, x| {
            after(layer, x);
            Ok(())
        })?;
        wanted.map_or(Ok(x.clone()), |wanted| wanted_rows(&x, &plan, wanted.iter().map(Vec::as_slice)))
    }

    /// Applies the final norm, if there is one, to rows from [`run`](Self::run).
    pub(super) fn finish(&self, x: &Tensor) -> Result<Tensor> {
        self.stack.finish(x)
    }

    /// Hidden states of no rows.
    pub(super) fn none(&self) -> Result<Tensor> {
        self.embeddings.none()
    }

    fn head_of(&self) -> Result<&DeviceMaskedHead> {
        match &self.head {
            Some(head) => Ok(head),
            None => bail!("this checkpoint has no masked-language head"),
        }
    }
}

impl DeviceMaskedHead {
    fn load(
        loader: &DeviceLoader<'_>,
        model: &DeviceLoader<'_>,
        config: &EncoderShape,
    ) -> std::result::Result<Self, DeviceLoadError> {
        let (c, width) = (&config.head, config.hidden_size);
        let rows = RowRange::all(config.vocab_size);
        let weight = if config.tie_word_embeddings {
            model.in_f32().matrix(model.weights.first_of(config.embeddings.tokens), rows, width)?
        } else {
            loader.in_f32().matrix(&format!("{}.weight", c.output), rows, width)?
        };
        let bias =
            (!c.bias.is_empty()).then(|| loader.in_f32().tensor(loader.weights.first_of(c.bias), &[config.vocab_size]));
        Ok(Self {
            dense: loader.linear(c.dense, RowRange::all(width), width, c.dense_bias)?,
            norm: loader.norm(c.norm, width, (config.stack.norm, config.stack.norm_eps))?,
            activation: c.activation,
            output: DeviceHead { weight, bias: bias.transpose()?, scale: 1.0, cap: None },
        })
    }

    /// Maps final hidden states `(rows, hidden_size)` to the input of the vocabulary product.
    fn transform(&self, x: &Tensor) -> Result<Tensor> {
        self.norm.forward(&activate(&self.dense.forward(x)?, self.activation, None)?)
    }
}

impl PackedEncoder for DeviceEncoder {
    fn encode(&self, texts: &[Vec<u32>], layers: &[usize]) -> Result<Vec<Tensor>> {
        check_layers(layers, self.stack.config().layers.len())?;
        let mut states = vec![self.none()?; layers.len()];
        if !texts.is_empty() {
            self.run(texts, None, None, &mut |layer, x| {
                for (state, _) in states.iter_mut().zip(layers).filter(|(_, asked)| **asked == layer) {
                    *state = x.clone();
                }
            })?;
        }
        // Callers compare the states on the CPU.
        states.iter().map(|state| state.to_device(&Device::Cpu)?.to_dtype(DType::F32)).collect()
    }

    fn last_states(&self, texts: &[Vec<u32>]) -> Result<Tensor> {
        if texts.is_empty() {
            return self.none();
        }
        let last = self.finish(&self.run(texts, None, None, &mut |_, _| ())?)?;
        last.to_device(&Device::Cpu)?.to_dtype(DType::F32)
    }

    fn has_masked_head(&self) -> bool {
        self.head.is_some()
    }

    fn masked(&self, texts: &[Vec<u32>], wanted: &[Vec<usize>]) -> Result<Tensor> {
        let head = self.head_of()?;
        check_offsets(texts, wanted)?;
        if wanted.iter().all(Vec::is_empty) {
            return self.none();
        }
        head.transform(&self.finish(&self.run(texts, None, Some(wanted), &mut |_, _| ())?)?)
    }

    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> Result<Vec<HeadRow>> {
        self.head_of()?.output.rows(hidden, asked)
    }

    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        self.head_of()?.output.logits(hidden)
    }
}
