//! Fields that the llama family shares, in configurations and in GGUF files.

use probity_kernels::{Activation, RopeLayout};
use serde_json::{Map, Value, json};

use crate::Rope;
use crate::config::{ConfigError, ConfigFields, EPSILONS, MAX_LAYERS, activation, invalid, number_in};
use crate::cpu::NormKind;
use crate::decoder::{DecoderConfig, MODEL, NAMES};
use crate::gguf::{GgufDialect, GgufError, GgufReader, LAYER, MAX_CONTEXT, MAX_SIZE, StackNames};
use crate::rope::yarn_scale;
use crate::stack_config::{LayerSight, usual_scale};

/// The fields of every member of the family, with llama's defaults.
pub(crate) fn base_config(fields: &mut ConfigFields) -> Result<DecoderConfig, ConfigError> {
    let hidden_size = fields.required_size("hidden_size")?;
    let num_heads = fields.required_size("num_attention_heads")?;
    let num_kv_heads = fields.size("num_key_value_heads")?.unwrap_or(num_heads);
    let head_dim = match fields.size("head_dim")? {
        Some(head_dim) => head_dim,
        None if hidden_size.is_multiple_of(num_heads) => hidden_size / num_heads,
        None => {
            return Err(invalid(
                "hidden_size",
                &json!(hidden_size),
                "a multiple of num_attention_heads where head_dim is absent",
            ));
        }
    };
    if !num_heads.is_multiple_of(num_kv_heads) {
        return Err(invalid("num_key_value_heads", &json!(num_kv_heads), "a divisor of num_attention_heads"));
    }
    // Rotation works on pairs of elements.
    if !head_dim.is_multiple_of(2) {
        return Err(invalid("head_dim", &json!(head_dim), "an even number"));
    }
    let activation = match fields.take("hidden_act") {
        Some(name) => activation(&name).ok_or_else(|| fields.not_honoured("hidden_act", &name))?,
        None => Activation::Silu,
    };
    let num_layers = fields.required_layers("num_hidden_layers")?;
    if let Some(kinds) = fields.take("layer_types") {
        // Architectures with windows in some layers only have already taken the list.
        let sliding = layer_types(fields, &kinds, num_layers)?;
        if sliding.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err(fields.not_honoured("layer_types", &kinds));
        }
    }
    let rope_layout = if fields.flag("probity.rope_interleaved")?.unwrap_or(false) {
        RopeLayout::Interleaved
    } else {
        RopeLayout::Halves
    };
    // Some exports with rows in halves include this field; `true` means an order that the reference does not read.
    fields.only("rope_interleaved", &[json!(false)])?;
    fields.only("partial_rotary_factor", &[json!(1.0), json!(1)])?;
    let context_length = fields.required_size("max_position_embeddings")?;
    Ok(DecoderConfig {
        hidden_size,
        intermediate_size: fields.required_size("intermediate_size")?,
        experts: None,
        layers: vec![LayerSight { rotation: Some(0), ..LayerSight::default() }; num_layers],
        num_heads,
        num_kv_heads,
        head_dim,
        rotary_dim: head_dim,
        vocab_size: fields.required_size("vocab_size")?,
        context_length,
        rms_norm_eps: fields.number("rms_norm_eps", &EPSILONS)?.ok_or(ConfigError::Missing("rms_norm_eps"))?,
        ropes: vec![Rope::from_fields(fields, context_length)?],
        rope_freq_factors: fields.flag("probity.rope_freq_factors")?.unwrap_or(false).then_some("rope_freqs.weight"),
        rope_layout,
        embedding_scale: 1.0,
        score_scale: usual_scale(head_dim),
        score_cap: None,
        temperature: None,
        sinks: None,
        output_gate: false,
        recurrence: None,
        branch_scale: 1.0,
        logit_scale: 1.0,
        logit_cap: None,
        activation,
        tie_word_embeddings: fields.flag("tie_word_embeddings")?.unwrap_or(false),
        qkv_bias: false,
        attention_output_bias: false,
        mlp_bias: false,
        unused_layers: 0,
        router_bias: false,
        classes: Vec::new(),
        padding: None,
        norm: NormKind::RootMeanSquare,
        value_norm: false,
        layer_inputs: None,
        names: &NAMES,
    })
}

/// The rotated share of each head. Newer configurations have it among the rotation's parameters.
pub(crate) fn take_rotated_share(fields: &mut ConfigFields, usual: f64) -> Result<f64, ConfigError> {
    let (field, shares) = ("rope_parameters.partial_rotary_factor", 0.0..=1.0);
    let outside = fields.number("partial_rotary_factor", &shares)?;
    let inside = fields.take_of_rope("partial_rotary_factor");
    let inside = inside.map(|value| number_in(field, &value, &shares)).transpose()?;
    match (outside, inside) {
        (Some(outside), Some(inside)) if outside != inside => {
            Err(invalid(field, &json!(inside), &format!("{outside}, the value of the outer field")))
        }
        _ => Ok(inside.or(outside).unwrap_or(usual)),
    }
}

/// Rotates only the first elements of each head.
pub(crate) fn set_rotated_share(decoder: &mut DecoderConfig, share: f64) -> Result<(), ConfigError> {
    decoder.rotary_dim = (decoder.head_dim as f64 * share) as usize;
    if decoder.rotary_dim == 0 || !decoder.rotary_dim.is_multiple_of(2) {
        return Err(invalid("partial_rotary_factor", &json!(share), "an even number of elements of a head"));
    }
    Ok(())
}

/// The window of qwen2 and qwen3. Published models disable it with a switch, which takes precedence.
pub(crate) fn switched_off_window(fields: &mut ConfigFields) -> Result<(), ConfigError> {
    fields.only("use_sliding_window", &[json!(false)])?;
    fields.take("sliding_window");
    fields.take("max_window_layers");
    Ok(())
}

/// Assigns the window to the layers in a list of types, or else to the layers that `usual` selects.
pub(crate) fn set_windows(
    fields: &ConfigFields,
    decoder: &mut DecoderConfig,
    window: Option<usize>,
    kinds: Option<&Value>,
    usual: impl Fn(usize) -> bool,
) -> Result<(), ConfigError> {
    let layers = decoder.layers.len();
    let has_window = match kinds {
        Some(kinds) => layer_types(fields, kinds, layers)?,
        None => (0..layers).map(usual).collect(),
    };
    for (layer, has_window) in decoder.layers.iter_mut().zip(has_window) {
        layer.window = window.filter(|_| has_window);
    }
    Ok(())
}

/// Which layers have a window, by the list of layer types. The window size is a separate field.
fn layer_types(fields: &ConfigFields, value: &Value, num_layers: usize) -> Result<Vec<bool>, ConfigError> {
    let kinds = value.as_array().ok_or_else(|| invalid("layer_types", value, "a list"))?;
    if kinds.len() != num_layers {
        let expected = format!("{num_layers} entries (num_hidden_layers), not {}", kinds.len());
        return Err(invalid("layer_types", value, &expected));
    }
    let has_window = |kind: &Value| match kind.as_str() {
        Some("full_attention") => Ok(false),
        Some("sliding_attention") => Ok(true),
        _ => Err(fields.not_honoured("layer_types", value)),
    };
    kinds.iter().map(has_window).collect()
}

pub(crate) static GGUF_STACKS: [StackNames; 1] = [StackNames {
    prefix: MODEL,
    huggingface: NAMES,
    gguf: LAYER,
    // No layer of these stacks has these norms (qwen3 has its own stack). They are listed so that error messages about
    // such a file use the Hugging Face name.
    more: &[("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm")],
}];

/// The GGUF dialect of a member of the family; `more` reads the fields that differ.
pub(crate) const fn gguf(more: fn(&GgufReader<'_>, &mut Map<String, Value>) -> Result<(), GgufError>) -> GgufDialect {
    GgufDialect {
        name: None,
        names: &[("model.embed_tokens", "token_embd"), ("lm_head", "output")],
        stacks: |_| &GGUF_STACKS,
        sizes: &[
            ("embedding_length", "hidden_size", MAX_SIZE),
            ("attention.head_count", "num_attention_heads", MAX_SIZE),
            ("block_count", "num_hidden_layers", MAX_LAYERS),
            ("feed_forward_length", "intermediate_size", MAX_SIZE),
            ("context_length", "max_position_embeddings", MAX_CONTEXT),
        ],
        known: &[
            "attention.head_count_kv", "attention.key_length", "attention.layer_norm_rms_epsilon",
            "attention.sliding_window", "attention.value_length", "rope.dimension_count", "rope.freq_base",
            "rope.scale_linear", "rope.scaling.attn_factor", "rope.scaling.factor", "rope.scaling.finetuned",
            "rope.scaling.original_context_length", "rope.scaling.type", "rope.scaling.yarn_beta_fast",
            "rope.scaling.yarn_beta_slow", "tensor_data_layout",
        ],
        more_known: &[],
        more,
    }
}

/// Llama and mistral: a file with a window is a mistral.
pub(crate) fn read_llama(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    let window = read_interleaved(reader, config)?;
    // Converters write mistral and mixtral as llama.
    let kind = if reader.has_key("expert_count") && !reader.is_zero("expert_count") {
        for (key, field) in [("expert_count", "num_local_experts"), ("expert_used_count", "num_experts_per_tok")] {
            config.insert(field.into(), json!(reader.required(key, MAX_SIZE)?));
        }
        "mixtral"
    } else if window.is_some() {
        "mistral"
    } else {
        "llama"
    };
    config.insert("model_type".into(), json!(kind));
    Ok(())
}

/// Reads architectures that rotate interleaved pairs. Returns the window, if there is one.
pub(crate) fn read_interleaved(
    reader: &GgufReader<'_>,
    config: &mut Map<String, Value>,
) -> Result<Option<u64>, GgufError> {
    let window = read_gguf(reader, config)?;
    // Converters permute the rows of queries and keys for interleaved rotation.
    config.insert("probity.rope_interleaved".into(), json!(true));
    if reader.has("blk.0.attn_q.bias") {
        config.insert("attention_bias".into(), json!(true));
    }
    Ok(window)
}

/// Llama's biases: one field for all four attention projections, one for the feed-forward layer.
pub(crate) fn llama_biases(fields: &mut ConfigFields, decoder: &mut DecoderConfig) -> Result<(), ConfigError> {
    let attention_bias = fields.flag("attention_bias")?.unwrap_or(false);
    decoder.qkv_bias = attention_bias;
    decoder.attention_output_bias = attention_bias;
    decoder.mlp_bias = fields.flag("mlp_bias")?.unwrap_or(false);
    Ok(())
}

/// Reads qwen2 and qwen3, which rotate halves.
pub(crate) fn read_halves(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    // GGUF has no switch for the window, so a window is in effect. The configuration then refuses it by name.
    if read_gguf(reader, config)?.is_some() {
        config.insert("use_sliding_window".into(), json!(true));
    }
    Ok(())
}

/// Fields shared by architectures that rotate whole heads. Returns the window, if there is one.
pub(crate) fn read_gguf(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<Option<u64>, GgufError> {
    let window = read_with_any_rotation(reader, config)?;
    let head_dim = config["head_dim"].as_u64();
    let other = reader.integer("rope.dimension_count", MAX_SIZE)?.filter(|&dims| Some(dims) != head_dim);
    if let Some(dims) = other {
        let why = format!("rotating {dims} of {} dimensions of a head is not supported", config["head_dim"]);
        return Err(reader.error("rope.dimension_count", why));
    }
    Ok(window)
}

/// Reads the number of rotated elements per head as a share of the head.
pub(crate) fn read_rotated_share(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    if let Some(dims) = reader.integer("rope.dimension_count", MAX_SIZE)? {
        let head_dim = config["head_dim"].as_f64().expect("a size was read");
        // Half an element more, because the share is multiplied by the head dimension and rounded down.
        let share = if dims as f64 == head_dim { 1.0 } else { (dims as f64 + 0.5) / head_dim };
        config.insert("partial_rotary_factor".into(), json!(share));
    }
    Ok(())
}

/// Fields shared by all architectures of the family. Returns the window, if there is one.
pub(crate) fn read_with_any_rotation(
    reader: &GgufReader<'_>,
    config: &mut Map<String, Value>,
) -> Result<Option<u64>, GgufError> {
    heads(reader, config)?;
    read_beside_heads(reader, config)
}

/// The fields that all architectures of the family have beside their heads. Returns the window, if there is one.
pub(crate) fn read_beside_heads(
    reader: &GgufReader<'_>,
    config: &mut Map<String, Value>,
) -> Result<Option<u64>, GgufError> {
    let epsilon = "attention.layer_norm_rms_epsilon";
    let rms_norm_eps = reader.float(epsilon)?.ok_or_else(|| reader.error(epsilon, "it is missing"))?;
    config.insert("rms_norm_eps".into(), json!(rms_norm_eps));
    rope(reader, config)?;
    let key = "attention.sliding_window";
    // Zero means no window.
    let window = if reader.is_zero(key) { None } else { reader.integer(key, MAX_CONTEXT)? };
    if let Some(window) = window {
        config.insert("sliding_window".into(), json!(window));
    }
    config.insert("hidden_act".into(), json!("silu"));
    // No key for this: converters omit the head if it is tied.
    config.insert("tie_word_embeddings".into(), json!(!reader.has("output.weight")));
    Ok(window)
}

fn heads(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    let size = |config: &Map<String, Value>, field: &str| config[field].as_u64().expect("a size was read");
    let (hidden, heads) = (size(config, "hidden_size"), size(config, "num_attention_heads"));
    let kv_heads = reader.integer("attention.head_count_kv", MAX_SIZE)?.unwrap_or(heads);
    // The configuration has the same check, but its message uses names that are not in the GGUF file.
    if heads % kv_heads != 0 {
        let why = format!("{heads} heads are not a multiple of {kv_heads} key-value heads");
        return Err(reader.error("attention.head_count_kv", why));
    }
    let head_dim = match reader.integer("attention.key_length", MAX_SIZE)? {
        Some(length) => length,
        None if hidden % heads == 0 => hidden / heads,
        None => {
            let why = format!("{heads} heads do not divide the hidden size {hidden}");
            return Err(reader.error("attention.head_count", why));
        }
    };
    let other = reader.integer("attention.value_length", MAX_SIZE)?.filter(|&length| length != head_dim);
    if let Some(value_length) = other {
        let why = format!("values of length {value_length} with keys of length {head_dim} are not supported");
        return Err(reader.error("attention.value_length", why));
    }
    config.insert("num_key_value_heads".into(), json!(kv_heads));
    config.insert("head_dim".into(), json!(head_dim));
    Ok(())
}

fn rope(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    config.insert("rope_theta".into(), json!(reader.float("rope.freq_base")?.unwrap_or(10_000.0)));
    // Before `rope.scaling.*`, files used `rope.scale_linear`.
    let factor = match reader.float("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        None => reader.float("rope.scale_linear")?,
    };
    let kind = match reader.string("rope.scaling.type")? {
        Some("none") => None,
        Some(kind) => Some(kind),
        // As in llama.cpp, a factor without a type is linear, and a factor of 1 means none.
        None => factor.filter(|&factor| factor != 1.0).map(|_| "linear"),
    };
    if let Some(kind) = kind {
        let mut scaling = Map::from_iter([("rope_type".to_owned(), json!(kind))]);
        if let Some(factor) = factor {
            scaling.insert("factor".into(), json!(factor));
        }
        if let Some(length) = reader.integer("rope.scaling.original_context_length", MAX_CONTEXT)? {
            scaling.insert("original_max_position_embeddings".into(), json!(length));
        }
        let attn = reader.float("rope.scaling.attn_factor")?;
        // Files store the multiplier of YaRN's own factor.
        let yarn = factor.filter(|_| kind == "yarn").map(|factor| yarn_scale(factor, 1.0) * attn.unwrap_or(1.0));
        if let Some(attn) = yarn.or(attn) {
            scaling.insert("attention_factor".into(), json!(attn));
        }
        for (key, field) in [("rope.scaling.yarn_beta_fast", "beta_fast"), ("rope.scaling.yarn_beta_slow", "beta_slow")]
        {
            if let Some(turns) = reader.float(key)? {
                scaling.insert(field.into(), json!(turns));
            }
        }
        config.insert("rope_scaling".into(), Value::Object(scaling));
    }
    if reader.has("rope_freqs.weight") {
        config.insert("probity.rope_freq_factors".into(), json!(true));
    }
    Ok(())
}
