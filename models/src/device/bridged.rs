//! A candle-transformers model on the packed contract. Its internal cache can only grow, so each active text has its
//! own instance with shared weights.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{DType, Device, Result, Shape, Tensor, bail};
use candle_nn::{Init, VarBuilder};
use candle_transformers::models;
use probity_kernels::likeliest_among;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::head::head_rows;
use super::{DeviceChoice, DeviceError, reason};
use crate::bridge::BridgedConfig;
use crate::linear::load_floats;
use crate::packed::{HeadRow, KvSpan, LayerTaps, PackedDecoder, PackedOutput, PackedSegment};
use crate::{SourceError, WeightSource};

/// Estimated limit on the keys and values of active texts, in bytes.
const KEPT_BYTES: usize = 1 << 30;
/// Tokens per forward pass, which limits the size of the scores of long texts.
const PIECE: usize = 512;

/// Reads new tokens `(1, count)` after a number of previous tokens and returns the logits after the last.
type Instance = Box<dyn FnMut(&Tensor, usize) -> Result<Tensor> + Send>;

/// A text, and the instance that has read it.
struct BridgedText {
    tokens: Vec<u32>,
    instance: Instance,
}

/// The content of a span: its tokens. They are only read when a later row is wanted.
struct BridgedTokens(Vec<u32>);

pub(super) struct BridgedDecoder {
    config: BridgedConfig,
    weights: HashMap<String, Tensor>,
    device: Device,
    /// Ordered by last use, the most recent last.
    texts: Mutex<Vec<BridgedText>>,
}

impl BridgedDecoder {
    pub(super) fn load(
        device: DeviceChoice,
        source: &(dyn WeightSource + Sync),
        config: &BridgedConfig,
    ) -> std::result::Result<Self, DeviceError> {
        let opened = device.open()?;
        let (found, error) = Default::default();
        let asked = AskedWeights { source, tied: config.tied(), found: &found, error: &error };
        let made = instance(config, VarBuilder::from_backend(Box::new(asked), DType::F32, opened.clone()));
        if let Some(error) = error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(DeviceError::Tensor(error));
        }
        // Only its weights were needed; each text creates its own instance.
        drop(made.map_err(|error| DeviceError::Weights { devices: device.to_string(), reason: reason(&error) })?);
        let weights = found.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect();
        Ok(Self { config: config.clone(), weights, device: opened, texts: Mutex::default() })
    }

    /// The logits after the tokens at ascending `wanted` positions of a text.
    fn rows(&self, tokens: &[u32], wanted: impl Iterator<Item = usize>, rows: &mut Vec<f32>) -> Result<()> {
        let mut wanted = wanted.peekable();
        let Some(&first) = wanted.peek() else { return Ok(()) };
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = |text: &BridgedText| text.tokens.len() <= first && tokens.starts_with(&text.tokens);
        let longest = (0..texts.len()).filter(|at| goes_on(&texts[*at])).max_by_key(|at| texts[*at].tokens.len());
        let mut text = if let Some(at) = longest {
            texts.remove(at)
        } else {
            let builder = VarBuilder::from_tensors(self.weights.clone(), DType::F32, &self.device);
            BridgedText { tokens: Vec::new(), instance: instance(&self.config, builder)? }
        };
        for place in wanted {
            let logits = self.read(&mut text, &tokens[..=place])?;
            let logits = logits.to_device(&Device::Cpu)?.flatten_all()?;
            if logits.elem_count() != self.config.vocab_size {
                bail!("{} logits of a vocabulary of {}", logits.elem_count(), self.config.vocab_size);
            }
            rows.extend(logits.to_vec1::<f32>()?);
        }
        texts.push(text);
        let most = KEPT_BYTES / self.cache_bytes(1);
        let mut kept = texts.iter().map(|text| text.tokens.len()).sum::<usize>();
        while kept > most && texts.len() > 1 {
            kept -= texts.remove(0).tokens.len();
        }
        Ok(())
    }

    /// Extends a text with `tokens` and returns the logits after the last.
    fn read(&self, text: &mut BridgedText, tokens: &[u32]) -> Result<Tensor> {
        let mut logits = None;
        while text.tokens.len() < tokens.len() {
            let (past, left) = (text.tokens.len(), tokens.len() - text.tokens.len());
            let count = match (self.config.architecture.continues, past) {
                (true, _) => left.min(PIECE),
                (false, 0) => left,
                (false, _) => 1,
            };
            let new = &tokens[past..past + count];
            logits = Some((text.instance)(&Tensor::new(new, &self.device)?.unsqueeze(0)?, past)?);
            text.tokens.extend(new);
        }
        Ok(logits.expect("at least one token is new"))
    }
}

/// A new instance with these weights.
fn instance(config: &BridgedConfig, vb: VarBuilder<'_>) -> Result<Instance> {
    let json = Value::Object(config.fields.clone());
    macro_rules! instance {
        ($model:path $(, $flash:expr)?) => {{
            let mut model = <$model>::new($($flash,)? &fields(json)?, vb)?;
            Box::new(move |ids: &Tensor, past: usize| model.forward(ids, past))
        }};
    }
    Ok(match config.architecture.name {
        "gemma" => instance!(models::gemma::Model, false),
        "helium" => instance!(models::helium::Model),
        "olmo" => instance!(models::olmo::Model),
        "phi" => {
            let mut model = models::phi::Model::new(&fields(json)?, vb)?;
            Box::new(move |ids: &Tensor, _| model.forward(ids))
        }
        "stablelm" => instance!(models::stable_lm::Model),
        "starcoder2" => instance!(models::starcoder2::Model),
        other => bail!("candle-transformers has no model {other}"),
    })
}

fn fields<C: DeserializeOwned>(json: Value) -> Result<C> {
    serde_json::from_value(json).map_err(candle_core::Error::wrap)
}

impl PackedDecoder for BridgedDecoder {
    fn forward_tapped(&self, segments: &[PackedSegment], taps: &mut LayerTaps<'_>) -> Result<PackedOutput> {
        if !taps.layers.is_empty() {
            bail!("models that run through candle-transformers do not expose their layers");
        }
        // All texts are checked before the first is read. Earlier spans were checked in earlier calls.
        let mut tokens = segments.iter().flat_map(|segment| &segment.tokens);
        if let Some(token) = tokens.find(|token| **token as usize >= self.config.vocab_size) {
            bail!("token {token} is outside the vocabulary of {}", self.config.vocab_size);
        }
        let (mut rows, mut spans) = (Vec::new(), Vec::with_capacity(segments.len()));
        for segment in segments {
            let start = segment.start();
            let mut tokens = Vec::with_capacity(start + segment.tokens.len());
            segment.past.iter().for_each(|span| tokens.extend(&span.cache::<BridgedTokens>().0));
            tokens.extend(&segment.tokens);
            self.rows(&tokens, segment.wanted.iter().map(|offset| start + offset), &mut rows)?;
            spans.push(Arc::new(KvSpan::new(segment.tokens.len(), BridgedTokens(segment.tokens.clone()))));
        }
        // Hidden states are internal to the model, so the `hidden` rows are logits here.
        let count = rows.len() / self.config.vocab_size;
        Ok(PackedOutput { hidden: Tensor::from_vec(rows, (count, self.config.vocab_size), &Device::Cpu)?, spans })
    }

    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        Ok(hidden.clone())
    }

    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> Result<Vec<HeadRow>> {
        head_rows(hidden, asked, |rows| Ok(rows.clone()))
    }

    fn greedy_among(&self, hidden: &Tensor, _: &HeadRow, allowed: &[u32]) -> Result<Option<u32>> {
        let logits = hidden.flatten_all()?.to_vec1::<f32>()?;
        Ok(likeliest_among(&logits, allowed).map(|(_, id)| id as u32))
    }

    fn cache_bytes(&self, tokens: usize) -> usize {
        self.config.cache_width * tokens * size_of::<f32>()
    }

    fn join(&self, spans: &[Arc<KvSpan>], len: usize) -> Result<Arc<KvSpan>> {
        let tokens = spans.iter().flat_map(|span| span.cache::<BridgedTokens>().0.iter().copied()).take(len).collect();
        Ok(Arc::new(KvSpan::new(len, BridgedTokens(tokens))))
    }

    fn idle_rows(&self) -> usize {
        // A speculated token costs as much as a regular one.
        1
    }
}

/// Loads a checkpoint's tensors on request and keeps them for later instances. Unrequested tensors can then be
/// detected.
struct AskedWeights<'a> {
    source: &'a (dyn WeightSource + Sync),
    /// The names of the output head and the embedding, if they are tied.
    tied: Option<(&'static str, &'static str)>,
    found: &'a Mutex<BTreeMap<String, Tensor>>,
    /// The source's error, which is clearer than candle's.
    error: &'a Mutex<Option<SourceError>>,
}

impl AskedWeights<'_> {
    fn name<'n>(&self, name: &'n str) -> &'n str {
        self.tied.filter(|(head, _)| *head == name).map_or(name, |(_, embedding)| embedding)
    }
}

impl candle_nn::var_builder::SimpleBackend for AskedWeights<'_> {
    fn get(&self, shape: Shape, name: &str, _: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        let values = load_floats(self.source, self.name(name), shape.dims()).map_err(|error| {
            let told = candle_core::Error::msg(error.to_string());
            *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            told
        })?;
        let tensor = Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(dtype)?.to_device(device)?;
        self.found.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), tensor.clone());
        Ok(tensor)
    }

    fn get_unchecked(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        match self.source.tensor(self.name(name)) {
            Ok(raw) => self.get(Shape::from(raw.shape), name, Init::Const(0.0), dtype, device),
            Err(error) => bail!("{error}"),
        }
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.source.contains(self.name(name))
    }
}
