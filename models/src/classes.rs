//! Heads that tell classes apart: what configurations say of them, and the head of an encoder. A reward model has one
//! class, whose logit is the reward; a judge of entailment has three.

use std::sync::{Arc, PoisonError};

use candle_core::{Device, Result, Tensor, bail};
use probity_kernels::{Activation, Inputs, activate, matmul};
use serde_json::{Map, Value, json};

use crate::config::{ConfigError, invalid};
use crate::encoder::{EncoderShape, MaskedModel};
use crate::head::VocabularyHead;
use crate::linear::{Linear, TensorLoader};
use crate::packed::{HeadRow, KvSpan, LayerTaps, PackedDecoder, PackedOutput, PackedSegment};
use crate::row_range::RowRange;
use crate::{Compute, SourceError, WeightSource};

/// What a class in `architectures` ends with.
const CLASSIFIER: &str = "ForSequenceClassification";
/// The head of decoders.
pub(crate) const SCORE: &str = "score.weight";

/// The classes that a configuration says its model tells apart, by their numbers; none where it is another kind of
/// model.
pub(crate) fn class_names(config: &Map<String, Value>) -> std::result::Result<Vec<String>, ConfigError> {
    let is_classifier = config
        .get("architectures")
        .and_then(Value::as_array)
        .is_some_and(|all| all.iter().any(|name| name.as_str().is_some_and(|name| name.ends_with(CLASSIFIER))));
    if !is_classifier {
        return Ok(Vec::new());
    }
    let expected = "the classes' names by their numbers, from 0 on";
    match config.get("id2label").filter(|names| !names.is_null()) {
        Some(names) => {
            let by_number = names.as_object().ok_or_else(|| invalid("id2label", names, expected))?;
            let name = |number: usize| by_number.get(&number.to_string()).and_then(Value::as_str).map(str::to_owned);
            let all: Option<Vec<String>> = (0..by_number.len()).map(name).collect();
            all.filter(|all| !all.is_empty()).ok_or_else(|| invalid("id2label", names, expected))
        }
        None => {
            // The reference's default.
            let count = config.get("num_labels").filter(|count| !count.is_null()).cloned().unwrap_or(json!(2));
            let number = count.as_u64().filter(|count| (1..=1000).contains(count));
            let number = number.ok_or_else(|| invalid("num_labels", &count, "an integer from 1 to 1000"))?;
            Ok((0..number).map(|number| format!("LABEL_{number}")).collect())
        }
    }
}

/// What an encoder makes of a text's first token before its classes are told apart: a product and an activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClassHeadConfig {
    /// Names of the product, the usual one first.
    pub(crate) dense: &'static [&'static str],
    pub(crate) activation: ClassActivation,
    /// The product with the classes.
    pub(crate) output: &'static str,
}

/// The activation of a class head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClassActivation {
    Tanh,
    Other(Activation),
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(config: Value) -> std::result::Result<Vec<String>, ConfigError> {
        class_names(config.as_object().expect("an object"))
    }

    #[test]
    fn classes_are_named_by_their_numbers_and_are_two_where_nothing_is_said() {
        let of = |more: Value| {
            let mut config = json!({ "architectures": ["LlamaForSequenceClassification"] });
            config.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            names(config)
        };
        assert_eq!(of(json!({})), Ok(vec!["LABEL_0".into(), "LABEL_1".into()]));
        assert_eq!(of(json!({ "num_labels": 1 })), Ok(vec!["LABEL_0".into()]));
        assert_eq!(of(json!({ "id2label": { "1": "b", "0": "a" } })), Ok(vec!["a".into(), "b".into()]));
        for bad in [json!({ "num_labels": 0 }), json!({ "id2label": {} }), json!({ "id2label": { "1": "a" } })] {
            assert!(matches!(of(bad), Err(ConfigError::Invalid { .. })));
        }
        assert_eq!(names(json!({ "architectures": ["LlamaForCausalLM"], "num_labels": 1 })), Ok(Vec::new()));
    }
}
