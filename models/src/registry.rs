//! The registry of architectures, with functions that read configurations and load models.

use serde_json::Value;

use crate::architecture::{Architecture, ModelConfig, ReadConfig};
use crate::bridge::{self, Bridged};
use crate::classes::class_names;
use crate::classifier::{self, Classifier, PooledEncoder};
use crate::config::{ConfigError, ConfigFields, invalid, token};
use crate::decoder::{DecoderConfig, LlamaFamily};
use crate::encoder::{EncoderShape, MaskedModel};
use crate::encoder_decoder::{DecoderClasses, EncoderDecoderConfig};
use crate::gguf::{GgufDialect, GgufError, GgufMetadata, GgufNames, GgufReader};
use crate::packed::{PackedDecoder, PackedEncoder};
use crate::text_part::text_models;
use crate::{Compute, DeviceChoice, SourceError, WeightSource, llama};

static ARCHITECTURES: &[Architecture] = &[
    crate::bart::ARCHITECTURE,
    crate::bert::ARCHITECTURE,
    crate::deberta_v2::ARCHITECTURE,
    crate::distilbert::ARCHITECTURE,
    crate::gemma2::ARCHITECTURE,
    crate::gemma3::ARCHITECTURE,
    crate::gemma4::ARCHITECTURE,
    crate::glm4::ARCHITECTURE,
    crate::glm4_moe::ARCHITECTURE,
    crate::gpt_oss::ARCHITECTURE,
    crate::granite::ARCHITECTURE,
    crate::granitemoe::ARCHITECTURE,
    crate::granitemoehybrid::ARCHITECTURE,
    crate::lfm2::ARCHITECTURE,
    crate::llama::ARCHITECTURE,
    crate::ministral::ARCHITECTURE,
    crate::ministral3::ARCHITECTURE,
    crate::mistral::ARCHITECTURE,
    crate::mixtral::ARCHITECTURE,
    crate::modernbert::ARCHITECTURE,
    crate::olmo2::ARCHITECTURE,
    crate::phi3::ARCHITECTURE,
    crate::qwen2::ARCHITECTURE,
    crate::qwen3::ARCHITECTURE,
    crate::qwen3_5::ARCHITECTURE,
    crate::qwen3_5_moe::ARCHITECTURE,
    crate::qwen3_moe::ARCHITECTURE,
    crate::qwen3_next::ARCHITECTURE,
    crate::roberta::ARCHITECTURE,
    crate::smollm3::ARCHITECTURE,
    crate::t5::ARCHITECTURE,
    // Run by candle-transformers.
    bridged(&bridge::GEMMA),
    bridged(&bridge::HELIUM),
    bridged(&bridge::OLMO),
    bridged(&bridge::PHI),
    bridged(&bridge::STABLELM),
    bridged(&bridge::STARCODER2),
];

const fn bridged(of: &'static Bridged) -> Architecture {
    Architecture { name: of.name, config: ReadConfig::Bridged(of), gguf: None }
}

/// A supported architecture, for display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownArchitecture {
    /// `model_type`.
    pub name: &'static str,
    /// Its name in GGUF files, if they are supported.
    pub gguf: Option<&'static str>,
    /// The kind of model.
    pub kind: ArchitectureKind,
    /// The supported devices; CUDA devices without their numbers.
    pub devices: &'static [&'static str],
}

/// The kind of an architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ArchitectureKind {
    /// A decoder-only language model.
    Decoder,
    /// An encoder-decoder.
    EncoderDecoder,
    /// An encoder.
    Encoder,
    /// A language model that candle-transformers runs.
    Bridged,
}

/// All architectures: decoders (including the text models of vision models), encoder-decoders, encoders, and those that
/// candle-transformers runs.
pub fn known_architectures() -> Vec<KnownArchitecture> {
    let known = |one: &Architecture| KnownArchitecture {
        name: one.name,
        gguf: one.gguf.map(|gguf| gguf.name.unwrap_or(one.name)),
        kind: match one.config {
            ReadConfig::Decoder(_) | ReadConfig::OnCpu(_) => ArchitectureKind::Decoder,
            ReadConfig::EncoderDecoder(_) => ArchitectureKind::EncoderDecoder,
            ReadConfig::Encoder(_) => ArchitectureKind::Encoder,
            ReadConfig::Bridged(_) => ArchitectureKind::Bridged,
        },
        devices: match one.config {
            // The first kind is our CPU kernels.
            ReadConfig::Bridged(_) => &DeviceChoice::KINDS[1..],
            ReadConfig::OnCpu(_) => &DeviceChoice::KINDS[..1],
            _ => &DeviceChoice::KINDS,
        },
    };
    let mut all: Vec<KnownArchitecture> = ARCHITECTURES.iter().map(known).collect();
    for (name, text) in text_models() {
        let text = all.iter().find(|one| one.name == text).expect("text models are in the registry");
        all.push(KnownArchitecture { name, gguf: None, ..*text });
    }
    all.sort_by_key(|one| one.kind);
    all
}

/// The `model_type` of all architectures.
pub fn architectures() -> Vec<&'static str> {
    ARCHITECTURES.iter().map(|architecture| architecture.name).collect()
}

/// The architecture with this GGUF name.
fn find_gguf(name: &str) -> Option<(&'static Architecture, &'static GgufDialect)> {
    let of = |architecture: &'static Architecture| Some((architecture, architecture.gguf?));
    ARCHITECTURES.iter().filter_map(of).find(|(architecture, gguf)| gguf.name.unwrap_or(architecture.name) == name)
}

fn find(name: &str) -> Option<&'static Architecture> {
    ARCHITECTURES.iter().find(|architecture| architecture.name == name)
}

/// Reads a `config.json`, or its equivalent from [`gguf_config`], by `model_type`. Settings that only GGUF files have
/// are in fields `probity.*`.
pub fn read_config(config: &Value) -> Result<ModelConfig, ConfigError> {
    let Some(map) = config.as_object() else { return Err(invalid("config.json", config, "an object")) };
    let found = map.get("model_type").and_then(Value::as_str).ok_or(ConfigError::Missing("model_type"))?;
    match find(found) {
        Some(architecture) => {
            let (mut config, classes) = (architecture.config.read(map)?, class_names(map)?);
            if classes.is_empty() {
                return Ok(config);
            }
            match &mut config {
                // A class head ignores a language model's logit settings.
                ModelConfig::Decoder(config) => {
                    (config.classes, config.logit_scale, config.logit_cap) = (classes, 1.0, None);
                    let padding = map.get("pad_token_id").and_then(Value::as_u64);
                    config.padding = padding.and_then(|id| u32::try_from(id).ok());
                }
                ModelConfig::Encoder(config) => config.classes = classes,
                ModelConfig::EncoderDecoder(config) => {
                    let end = token("eos_token_id", map.get("eos_token_id"))?;
                    config.classes = Some(DecoderClasses { names: classes, end });
                }
                ModelConfig::Bridged(_) => {
                    return Err(ConfigFields::new(found, map).not_honoured("architectures", &map["architectures"]));
                }
            }
            Ok(config)
        }
        None => Err(ConfigError::Architecture { found: found.to_owned(), supported: architectures() }),
    }
}

/// Converts GGUF metadata to the fields of the same model's `config.json` on Hugging Face.
///
/// Additional fields: `"probity.rope_interleaved": true` if the rows of `q_proj` and `k_proj` are ordered for rotation
/// of neighbouring pairs (llama and mistral; qwen2 and qwen3 keep halves), and `"probity.rope_freq_factors": true` if
/// the file has a tensor `rope_freqs.weight` of rope frequency divisors. A llama with a sliding window becomes a
/// `mistral`. Unknown metadata of the architecture is refused unless its value is neutral (zero or false). An unknown
/// type of rope scaling is kept, so that the architecture refuses it by name.
pub fn gguf_config(file: &dyn GgufMetadata) -> Result<Value, GgufError> {
    let key = "general.architecture";
    let architecture = file.string(key)?.ok_or_else(|| GgufError::new(key, "it is missing"))?;
    if let Some(kind) = file.string("general.type")?.filter(|kind| *kind != "model") {
        let why = format!("`{kind}` is not a complete model; merge it into its model before the conversion");
        return Err(GgufError::new("general.type", why));
    }
    match find_gguf(architecture) {
        Some((found, gguf)) => GgufReader { file, architecture }.config(found.name, gguf).map(Value::Object),
        None => Err(GgufError::new(key, format!("`{architecture}` is not supported; {} are", gguf_architectures()))),
    }
}

/// The GGUF names of supported architectures, as a list in words.
fn gguf_architectures() -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in known_architectures().iter().filter_map(|one| one.gguf) {
        // GGUF files call mixtral a llama.
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let (last, others) = names.split_last().expect("some are reported");
    format!("{} and {last}", others.join(", "))
}

/// The tensor names of a GGUF architecture; `has` tests whether the file contains a tensor. Unknown architectures use
/// llama's names.
pub fn gguf_names(architecture: Option<&str>, has: impl Fn(&str) -> bool) -> GgufNames {
    let known: Option<&GgufDialect> = architecture.and_then(find_gguf).map(|(_, gguf)| gguf);
    GgufNames::new(known.unwrap_or(&llama::GGUF), has)
}

/// Loads a decoder and packs its weights for our kernels. A tensor's file pages are released as soon as it is packed.
pub fn load_decoder(
    source: &dyn WeightSource,
    config: DecoderConfig,
    compute: impl Into<Compute>,
) -> Result<Box<dyn PackedDecoder>, SourceError> {
    Ok(Box::new(LlamaFamily::load(source, config, compute.into())?))
}

/// As [`load_decoder`], for an encoder-decoder. With a class head, it reads whole texts like those from
/// [`load_classifier`].
pub fn load_encoder_decoder(
    source: &dyn WeightSource,
    config: &EncoderDecoderConfig,
    compute: impl Into<Compute>,
) -> Result<Box<dyn PackedDecoder>, SourceError> {
    classifier::load_encoder_decoder(source, config, compute.into())
}

/// As [`load_decoder`], for an encoder.
pub fn load_encoder(
    source: &dyn WeightSource,
    config: &EncoderShape,
    compute: impl Into<Compute>,
) -> Result<Box<dyn PackedEncoder>, SourceError> {
    Ok(Box::new(MaskedModel::load(source, config, compute.into())?))
}

/// As [`load_decoder`], for an encoder with a class head. It reads whole texts, and its vocabulary is [the
/// classes](EncoderShape::classes). The first `separator` of a text separates its two parts.
pub fn load_classifier(
    source: &dyn WeightSource,
    config: &EncoderShape,
    separator: Option<u32>,
    compute: impl Into<Compute>,
) -> Result<Box<dyn PackedDecoder>, SourceError> {
    Ok(Box::new(Classifier::<PooledEncoder>::load(source, config, separator, compute.into())?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_translate_both_ways_and_unknown_ones_stay() {
        let of =
            |architecture, has_gate| gguf_names(Some(architecture), move |name| has_gate && !name.contains("gate_inp"));
        for (names, huggingface, gguf) in [
            (of("llama", true), "model.embed_tokens.weight", "token_embd.weight"),
            (of("llama", true), "lm_head.weight", "output.weight"),
            (of("llama", true), "model.norm.weight", "output_norm.weight"),
            (of("qwen2", true), "model.layers.11.self_attn.q_proj.bias", "blk.11.attn_q.bias"),
            (of("llama", true), "model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"),
            (of("llama", true), "model.layers.2.self_attn.k_norm.weight", "blk.2.attn_k_norm.weight"),
            (of("qwen3", true), "model.layers.2.self_attn.k_norm.weight", "blk.2.attn_k_norm.weight"),
            (of("qwen3", true), "model.layers.0.self_attn.q_norm.weight", "blk.0.attn_q_norm.weight"),
            (of("qwen3", true), "model.layers.0.mlp.gate_proj.weight", "blk.0.ffn_gate.weight"),
            (of("qwen3", true), "model.norm.weight", "output_norm.weight"),
            (of("gemma4", true), "model.layers.3.layer_scalar", "blk.3.layer_output_scale.weight"),
            (of("gemma4", true), "model.layers.3.post_per_layer_input_norm.weight", "blk.3.post_norm.weight"),
            (of("gemma4", true), "model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"),
            (of("llama", true), "rope_freqs.weight", "rope_freqs.weight"),
            (of("qwen3next", true), "model.layers.3.linear_attn.in_proj_ba.weight", "blk.3.ssm_ba.weight"),
            (of("qwen35", true), "model.layers.3.linear_attn.A_log", "blk.3.ssm_a"),
            (of("qwen35", true), "model.layers.3.linear_attn.dt_bias", "blk.3.ssm_dt.bias"),
            (of("qwen35moe", true), "model.layers.0.mlp.experts.gate_up_proj", "blk.0.ffn_gate_up_exps.weight"),
            (of("qwen35moe", true), "model.layers.4.shared_head.norm.weight", "blk.4.nextn.shared_head_norm.weight"),
            (of("llama", true), "blk", "blk"),
            (of("mamba", true), "model.layers.0.mlp.up_proj.weight", "blk.0.ffn_up.weight"),
            (of("bert", false), "embeddings.LayerNorm.bias", "token_embd_norm.bias"),
            (of("bert", false), "encoder.layer.3.output.LayerNorm.weight", "blk.3.layer_output_norm.weight"),
            (of("gpt-oss", false), "model.layers.1.self_attn.sinks", "blk.1.attn_sinks.weight"),
            (of("gpt-oss", false), "model.layers.1.self_attn.q_proj.bias", "blk.1.attn_q.bias"),
            (of("gpt-oss", false), "model.layers.1.mlp.experts.up_proj.bias", "blk.1.ffn_up_exps.bias"),
            (of("t5", false), "shared.weight", "token_embd.weight"),
            (of("t5", false), "encoder.block.0.layer.1.DenseReluDense.wi.weight", "enc.blk.0.ffn_up.weight"),
            (of("t5", true), "decoder.block.7.layer.2.DenseReluDense.wi_1.weight", "dec.blk.7.ffn_up.weight"),
            (of("t5", true), "decoder.block.7.layer.1.EncDecAttention.k.weight", "dec.blk.7.cross_attn_k.weight"),
            (of("t5", true), "decoder.final_layer_norm.weight", "dec.output_norm.weight"),
        ] {
            assert_eq!(names.to_gguf(huggingface), gguf);
            assert_eq!(names.to_huggingface(gguf), huggingface);
        }
    }

    #[test]
    fn all_architectures_run_on_every_device_but_bridged_and_recurrent_ones() {
        for one in known_architectures() {
            let devices: &[&str] = match one.kind {
                ArchitectureKind::Bridged => &["candle-cpu", "cuda", "metal"],
                _ if one.name.starts_with("qwen3_5") || ["qwen3_next", "lfm2"].contains(&one.name) => &["cpu"],
                _ => &["cpu", "candle-cpu", "cuda", "metal"],
            };
            assert_eq!(one.devices, devices, "{}", one.name);
        }
    }

    #[test]
    fn architectures_are_unique_and_gguf_names_go_with_those_of_their_layers() {
        let mut names = architectures();
        names.dedup();
        assert_eq!(names.len(), ARCHITECTURES.len());
        let told = gguf_architectures().replace(" and ", ", ");
        let told: Vec<&str> = told.split(", ").collect();
        let all: BTreeSet<&str> = known_architectures().iter().filter_map(|one| one.gguf).collect();
        assert!(told.len() == all.len() && told.iter().all(|name| all.contains(name)), "{told:?}");
        assert!(gguf_architectures().ends_with("t5 and bert"), "decoders come first");
        for (name, gguf) in ARCHITECTURES.iter().filter_map(|found| Some((found.name, found.gguf?))) {
            for stack in [false, true].into_iter().flat_map(|has_gate| (gguf.stacks)(&|_| has_gate)) {
                assert_eq!(stack.huggingface.in_layer().count(), stack.gguf.in_layer().count(), "{name}");
            }
        }
    }
}
