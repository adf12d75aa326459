//! `OpenAI`'s gpt-oss (Agarwal et al. 2025): a mixture of experts with clamped gates and biases, attention sinks, and
//! windows in every other layer.

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields, invalid};
use crate::decoder::{DecoderConfig, MODEL, NAMES};
use crate::family::{base_config, gguf, read_gguf, set_windows};
use crate::gguf::{GGUF_EXPERTS, GgufDialect, GgufError, GgufReader, MAX_SIZE, StackNames};
use crate::mixtral::choice;
use crate::stack_config::{LayerNames, NormNames};
use probity_kernels::Activation;

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "gpt_oss", config: ReadConfig::Decoder(config), gguf: Some(&GGUF) };

static GGUF: GgufDialect = GgufDialect {
    name: Some("gpt-oss"),
    stacks: |_| &GGUF_STACKS,
    more_known: &["expert_count", "expert_used_count", "expert_feed_forward_length"],
    ..gguf(read)
};

/// A logit of each head. Its tensor is not a product's and has no `.weight` in its name.
const SINKS: &str = "self_attn.sinks";

static HUGGINGFACE: LayerNames = LayerNames {
    router: Some("mlp.router"),
    // Checkpoints store all experts together; see `experts_apart`.
    gate: "mlp.experts.gate_proj",
    up: Some("mlp.experts.up_proj"),
    down: "mlp.experts.down_proj",
    ..NAMES
};

static GGUF_STACKS: [StackNames; 1] = [StackNames {
    prefix: MODEL,
    huggingface: HUGGINGFACE,
    gguf: LayerNames { feed_forward_norms: NormNames::stream("post_attention_norm"), ..GGUF_EXPERTS },
    more: &[(SINKS, "attn_sinks.weight")],
}];

fn read(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    read_gguf(reader, config)?;
    for (key, field) in [
        ("expert_count", "num_local_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("expert_feed_forward_length", "intermediate_size"),
    ] {
        config.insert(field.into(), json!(reader.required(key, MAX_SIZE)?));
    }
    config.insert("attention_bias".into(), json!(reader.has("blk.0.attn_q.bias")));
    let scaling = config.entry("rope_scaling").or_insert_with(|| json!({ "rope_type": "default" }));
    if scaling["rope_type"] == "yarn" {
        // GGUF has no key for this.
        scaling["truncate"] = json!(false);
    }
    Ok(())
}

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("gpt_oss", config);
    let present = |field: &str| config.get(field).filter(|value| !value.is_null());
    for field in ["head_dim", "num_key_value_heads"] {
        // Their defaults do not follow from other fields.
        present(field).ok_or(ConfigError::Missing(field))?;
    }
    // Versions of transformers have different defaults.
    let scaling = present("rope_scaling").or_else(|| present("rope_parameters"));
    let scaling = scaling.ok_or(ConfigError::Missing("rope_scaling"))?;
    if present("rope_theta").is_none() && scaling.get("rope_theta").is_none() {
        fields.put("rope_theta", json!(150_000.0));
    }
    let original = scaling.get("original_max_position_embeddings").cloned();
    fields.put_usual(config, "sliding_window", json!(128));
    fields.only("hidden_act", &[json!("silu")])?;
    // As in `Activation::ClampedSigmoid`.
    fields.only("swiglu_alpha", &[json!(1.702)])?;
    fields.only("swiglu_limit", &[json!(7.0), json!(7)])?;
    let kinds = fields.take("layer_types");
    let window = fields.required_size("sliding_window")?;
    let bias = fields.flag("attention_bias")?.unwrap_or(true);
    let count = fields.required_size("num_local_experts")?;
    let experts = choice(&mut fields, count, true)?;
    // The same numbers under the names of OpenAI's own implementation.
    for (field, other) in [("experts_per_token", Some(json!(experts.chosen))), ("initial_context_length", original)] {
        fields.only(field, &other.into_iter().collect::<Vec<_>>())?;
    }
    stored(&mut fields)?;
    let mut decoder = base_config(&mut fields)?;
    set_windows(&fields, &mut decoder, Some(window), kinds.as_ref(), |layer| layer % 2 == 0)?;
    fields.finish()?;
    Ok(DecoderConfig {
        experts: Some(experts),
        activation: Activation::ClampedSigmoid,
        qkv_bias: bias,
        attention_output_bias: bias,
        mlp_bias: true,
        router_bias: true,
        sinks: Some(SINKS),
        names: &HUGGINGFACE,
        ..decoder
    })
}

/// Refuses a quantisation other than that of the published models, which the names of tensors show.
fn stored(fields: &mut ConfigFields) -> Result<(), ConfigError> {
    let name = "quantization_config";
    let Some(value) = fields.take(name) else { return Ok(()) };
    let Some(map) = value.as_object() else { return Err(invalid(name, &value, "an object")) };
    let is_known = |(key, value): (&String, &Value)| match key.as_str() {
        "quant_method" => value == "mxfp4",
        "modules_to_not_convert" | "dequantize" => true,
        _ => false,
    };
    if map.iter().all(is_known) { Ok(()) } else { Err(fields.not_honoured(name, &value)) }
}
