//! Architectures compared with candle-transformers, with the same configuration and tensors.

use std::collections::HashMap;

use candle_core::{DType, Device, Result, Tensor, safetensors};
use candle_nn::VarBuilder;
use candle_transformers::models;
use probity_models::{
    Arithmetic, ModelConfig, PackedDecoder, PackedSegment, load_decoder, load_encoder, load_encoder_decoder,
    read_config,
};
use serde_json::{Value, json};

use crate::checkpoints::{Checkpoint, goldens, largest_difference};

const TOLERANCE: f32 = 2e-4;

/// A fixed sequence of `count` tokens from the small models' vocabulary.
fn tokens(count: usize) -> Vec<u32> {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // After the special tokens.
        (3 + (state >> 33) % 90) as u32
    };
    (0..count).map(|_| next()).collect()
}

/// A model's tensors in f32. A tied head is included under both names, because some candle-transformers models ignore
/// the configuration's setting.
fn weights(name: &str) -> VarBuilder<'static> {
    let file = goldens().join("models").join(name).join("model.safetensors");
    let mut tensors: HashMap<String, Tensor> = safetensors::load(file, &Device::Cpu).expect("a checkpoint");
    if let Some(embedding) = tensors.get("model.embed_tokens.weight").cloned() {
        tensors.entry("lm_head.weight".to_owned()).or_insert(embedding);
    }
    VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu)
}

fn config<C: serde::de::DeserializeOwned>(config: &Value) -> C {
    serde_json::from_value(config.clone()).unwrap_or_else(|error| panic!("{}: {error}", config["model_type"]))
}

fn row(ids: &[u32]) -> Tensor {
    Tensor::new(ids, &Device::Cpu).and_then(|ids| ids.unsqueeze(0)).expect("ids")
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).and_then(|all| all.flatten_all()?.to_vec1()).expect("floats")
}

/// candle-transformers' logits after the last token.
fn their_logits(name: &str, json: &Value, ids: &Tensor) -> Result<Tensor> {
    let vb = weights(name);
    macro_rules! model {
        ($model:path $(, $flash:expr)?) => {
            <$model>::new($($flash,)? &config(json), vb)?.forward(ids, 0)
        };
    }
    match json["model_type"].as_str().expect("a type") {
        "llama" => {
            let config = config::<models::llama::LlamaConfig>(json).into_config(false);
            let mut cache = models::llama::Cache::new(false, DType::F32, &config, &Device::Cpu)?;
            models::llama::Llama::load(vb, &config)?.forward(ids, 0, &mut cache)
        }
        "granite" => {
            let config = config::<models::granite::GraniteConfig>(json).into_config(false);
            let mut cache = models::granite::Cache::new(false, DType::F32, &config, &Device::Cpu)?;
            models::granite::Granite::load(vb, &config)?.forward(ids, 0, &mut cache)
        }
        "mistral" => model!(models::mistral::Model),
        "mixtral" => model!(models::mixtral::Model),
        "qwen2" => model!(models::qwen2::ModelForCausalLM),
        "qwen3" => model!(models::qwen3::ModelForCausalLM),
        "qwen3_moe" => model!(models::qwen3_moe::ModelForCausalLM),
        "glm4" => model!(models::glm4_new::ModelForCausalLM),
        "gemma2" => model!(models::gemma2::Model, false),
        // Its cache does not support several tokens at once.
        "gemma3_text" => {
            let mut model = models::gemma3::Model::new(false, &config(json), vb)?;
            let last = ids.dim(1)? - 1;
            for at in 0..last {
                model.forward(&ids.narrow(1, at, 1)?, at)?;
            }
            model.forward(&ids.narrow(1, last, 1)?, last)
        }
        "phi3" => model!(models::phi3::Model),
        "olmo2" => model!(models::olmo2::Model),
        "smollm3" => model!(models::smol::smollm3::ModelForCausalLM),
        other => panic!("{other} is not asked of it"),
    }
}

/// Our decoder's logits after the last token.
fn our_logits(model: &dyn PackedDecoder, segment: PackedSegment) -> Vec<f32> {
    let hidden = model.forward(&[segment]).expect("runs").hidden;
    floats(&model.logits(&hidden).expect("runs"))
}

fn with(config: &Value, fields: &Value) -> Value {
    let mut config = config.clone();
    for (name, value) in fields.as_object().expect("fields") {
        config[name] = value.clone();
    }
    config
}

fn agree(name: &str, ours: &[f32], theirs: &[f32]) {
    let gap = largest_difference(ours, theirs);
    println!("{name}: {} numbers, largest difference {gap:e}", ours.len());
    assert!(gap <= TOLERANCE, "{name} differs by {gap}");
}

#[test]
fn decoders_agree_with_candle_transformers() {
    // The first object changes both configurations, because candle-transformers 0.11 ignores some settings: granite's
    // factors, gemma's score scale and scaled rotation. The second changes candle-transformers' only: fields that it
    // requires, and windows, which it counts without the token itself.
    let none = json!({});
    let plain_granite = json!({
        "embedding_multiplier": 1.0, "attention_multiplier": 0.25, "residual_multiplier": 1.0, "logits_scaling": 1.0
    });
    let plain_gemma = json!({ "rope_scaling": null, "query_pre_attn_scalar": 24 });
    let full =
        json!({ "sliding_window": 4096, "max_window_layers": 0, "use_sliding_window": false, "use_flash_attn": false });
    for (name, count, both, theirs) in [
        ("llama3-rope", 90, &none, none.clone()),
        ("granite", 90, &plain_granite, none.clone()),
        ("mistral-window", 90, &none, json!({ "sliding_window": 23 })),
        ("mixtral", 90, &none, full.clone()),
        ("qwen2", 90, &none, full.clone()),
        ("qwen3", 90, &none, none.clone()),
        ("qwen3_moe", 90, &none, full.clone()),
        ("glm4", 90, &none, none.clone()),
        // Not longer than a window: candle-transformers has gemma 2's on every layer and phi-3's on none, and gemma 3's
        // cache wraps around.
        ("gemma2", 24, &json!({ "query_pre_attn_scalar": 24 }), none.clone()),
        ("gemma3_text", 23, &plain_gemma, json!({ "sliding_window_pattern": 3 })),
        ("phi3", 24, &none, none.clone()),
        ("olmo2", 90, &none, none.clone()),
        ("smollm3", 90, &none, json!({ "tie_word_embeddings": true })),
    ] {
        let checkpoint = Checkpoint::golden(name);
        let json = with(&checkpoint.config, both);
        let ModelConfig::Decoder(config) = read_config(&json).expect("supported") else { panic!("a decoder") };
        let model = load_decoder(&checkpoint, *config, Arithmetic::Exact).expect("complete checkpoint");
        let ids = tokens(count);
        let segment = PackedSegment { past: Vec::new(), tokens: ids.clone(), wanted: vec![count - 1] };
        let theirs =
            their_logits(name, &with(&json, &theirs), &row(&ids)).unwrap_or_else(|error| panic!("{name}: {error}"));
        agree(name, &our_logits(&*model, segment), &floats(&theirs));
    }
}

#[test]
fn encoder_decoders_agree_with_candle_transformers() {
    for name in ["t5", "flan-t5"] {
        let checkpoint = Checkpoint::golden(name);
        let ModelConfig::EncoderDecoder(config) = checkpoint.read_config() else { panic!("an encoder-decoder") };
        let model = load_encoder_decoder(&checkpoint, &config, Arithmetic::Exact).expect("complete checkpoint");
        let (source, answer) = (tokens(60), tokens(9));
        let read = PackedSegment { past: Vec::new(), tokens: source.clone(), wanted: Vec::new() };
        let past = model.forward(&[read]).expect("runs").spans;
        let ours = our_logits(&*model, PackedSegment { past, tokens: answer.clone(), wanted: vec![8] });
        let t5 = models::t5::T5ForConditionalGeneration::load(weights(name), &self::config(&checkpoint.config));
        let theirs = t5.and_then(|mut t5| t5.forward(&row(&source), &row(&answer))).expect("runs");
        // With a tied head, logits are divided by the root of the width; candle-transformers 0.11 multiplies.
        let width = checkpoint.config["d_model"].as_f64().expect("a width");
        let theirs = if config.tie_word_embeddings { (theirs / width).expect("floats") } else { theirs };
        agree(name, &ours, &floats(&theirs));
    }
}

#[test]
fn encoders_agree_with_candle_transformers() {
    for name in ["bert", "roberta", "distilbert", "modernbert", "deberta-v2", "deberta-v2-own"] {
        let checkpoint = Checkpoint::golden(name);
        let both = match name {
            // Its DistilBERT has another function for `gelu`.
            "distilbert" => json!({ "activation": "relu" }),
            // The original name is unknown to its DeBERTa.
            "deberta-v2-own" => json!({ "hidden_act": "gelu" }),
            // It reads this field, which published files also contain; transformers and probity read `norm_eps`.
            "modernbert" => json!({ "layer_norm_eps": 1e-5 }),
            _ => json!({}),
        };
        let (json, ids) = (&with(&checkpoint.config, &both), tokens(40));
        let ModelConfig::Encoder(config) = read_config(json).expect("supported") else { panic!("an encoder") };
        let model = load_encoder(&checkpoint, &config, Arithmetic::Exact).expect("complete checkpoint");
        let ours = model.last_states(std::slice::from_ref(&ids)).expect("runs");
        let ids = row(&ids);
        let none = ids.zeros_like().expect("ids");
        let all = ids.ones_like().expect("ids");
        let theirs = match name {
            "bert" => models::bert::BertModel::load(weights(name), &self::config(json))
                .and_then(|bert| bert.forward(&ids, &none, None)),
            "roberta" => models::xlm_roberta::XLMRobertaModel::new(&self::config(json), weights(name).pp("roberta"))
                .and_then(|roberta| roberta.forward(&ids, &all, &none, None, None, None)),
            "modernbert" => models::modernbert::ModernBert::load(weights(name), &self::config(json))
                .and_then(|bert| bert.forward(&ids, &all)),
            "deberta-v2" | "deberta-v2-own" => {
                models::debertav2::DebertaV2Model::load(weights(name).pp("deberta"), &self::config(json))
                    .and_then(|deberta| deberta.forward(&ids, None, None))
            }
            _ => models::distilbert::DistilBertModel::load(weights(name), &self::config(json)).and_then(|bert| {
                // Here a mask marks the hidden positions.
                let nothing = Tensor::zeros((40, 40), DType::U8, &Device::Cpu)?;
                bert.forward(&ids, &nothing)
            }),
        };
        agree(name, &floats(&ours), &floats(&theirs.unwrap_or_else(|error| panic!("{name}: {error}"))));
    }
}
