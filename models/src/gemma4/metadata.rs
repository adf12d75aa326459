//! The metadata of a Gemma 4 in GGUF files, as fields of its `config.json`.

use serde_json::{Map, Value, json};

use crate::family::read_beside_heads;
use crate::gguf::{GgufError, GgufReader, MAX_SIZE};

pub(super) fn read(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    let window = read_beside_heads(reader, config)?;
    let key = "attention.sliding_window";
    window.ok_or_else(|| reader.error(key, "it is missing or zero"))?;
    config.remove("hidden_act");
    let layers = config["num_hidden_layers"].as_u64().expect("a size was read") as usize;
    let key = "attention.sliding_window_pattern";
    let sliding = reader.each_layer(key, layers)?.ok_or_else(|| reader.error(key, "it is missing"))?;
    let sliding: Vec<bool> = sliding.iter().map(|flag| *flag != 0).collect();
    let borrowing = reader.count("attention.shared_kv_layers", MAX_SIZE)?.unwrap_or(0);
    config.insert("num_kv_shared_layers".into(), json!(borrowing));
    read_heads(reader, config, &sliding)?;
    read_widths(reader, config, layers.saturating_sub(borrowing as usize))?;
    let own = &sliding[..layers.saturating_sub(borrowing as usize)];
    config.insert("attention_k_eq_v".into(), json!(uses_keys_as_values(reader, own)));
    let kind = |sliding: &bool| if *sliding { "sliding_attention" } else { "full_attention" };
    config.insert("layer_types".into(), sliding.iter().map(kind).collect());
    read_ropes(reader, config)?;
    if let Some(cap) = reader.float("final_logit_softcapping")? {
        config.insert("final_logit_softcapping".into(), json!(cap));
    }
    let key = "embedding_length_per_layer_input";
    let width = reader.count(key, MAX_SIZE)?.ok_or_else(|| reader.error(key, "it is missing"))?;
    config.insert("hidden_size_per_layer_input".into(), json!(width));
    if let Some(rows) = reader.rows("per_layer_token_embd.weight") {
        config.insert("vocab_size_per_layer_input".into(), json!(rows));
    }
    Ok(())
}

/// Head dimensions by the type of a layer, and the key heads of each layer.
fn read_heads(reader: &GgufReader<'_>, config: &mut Map<String, Value>, sliding: &[bool]) -> Result<(), GgufError> {
    let mut dims = [0; 2];
    for (dim, of_kind) in dims.iter_mut().zip(["_swa", ""]) {
        *dim = reader.required(&format!("attention.key_length{of_kind}"), MAX_SIZE)?;
        for name in ["attention.value_length", "rope.dimension_count"] {
            let name = format!("{name}{of_kind}");
            if let Some(other) = reader.integer(&name, MAX_SIZE)?.filter(|other| other != dim) {
                return Err(reader.error(&name, format!("{other} with keys of length {dim} is not supported")));
            }
        }
    }
    let key = "attention.head_count_kv";
    let counts = reader.each_layer(key, sliding.len())?.ok_or_else(|| reader.error(key, "it is missing"))?;
    let of_layer = |(layer, (count, sliding)): (usize, (&u64, &bool))| {
        let dim = dims[usize::from(!sliding)];
        (layer.to_string(), json!({ "head_dim": dim, "num_key_value_heads": count }))
    };
    let changes = counts.iter().zip(sliding).enumerate().map(of_layer);
    config.insert("per_layer_config".into(), Value::Object(changes.collect()));
    config.insert("head_dim".into(), json!(dims[0]));
    config.insert("num_key_value_heads".into(), json!(counts[0]));
    Ok(())
}

/// The width of feed-forward layers, which layers that use the keys of others may double.
fn read_widths(reader: &GgufReader<'_>, config: &mut Map<String, Value>, own: usize) -> Result<(), GgufError> {
    let key = "feed_forward_length";
    let layers = config["num_hidden_layers"].as_u64().expect("a size was read") as usize;
    let widths = reader.each_layer(key, layers)?.ok_or_else(|| reader.error(key, "it is missing"))?;
    let (first, last) = (widths[0], widths[layers - 1]);
    let expected = |layer: usize| if layer < own || last == first { first } else { 2 * first };
    if let Some((layer, width)) = widths.iter().enumerate().find(|(layer, width)| **width != expected(*layer)) {
        return Err(reader.error(key, format!("a width of {width} in layer {layer} is not supported")));
    }
    config.insert("intermediate_size".into(), json!(first));
    config.insert("use_double_wide_mlp".into(), json!(last != first));
    Ok(())
}

/// Whether global layers use keys as values: then they have no tensor for values.
fn uses_keys_as_values(reader: &GgufReader<'_>, sliding: &[bool]) -> bool {
    let mut full = sliding.iter().enumerate().filter(|(_, sliding)| !**sliding).peekable();
    full.peek().is_some() && !full.any(|(layer, _)| reader.has(&format!("blk.{layer}.attn_v.weight")))
}

/// The rotations of both types. Which pairs a global layer rotates is in a tensor.
fn read_ropes(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    let key = "rope.freq_base_swa";
    let sliding = reader.float(key)?.ok_or_else(|| reader.error(key, "it is missing"))?;
    let rope = |theta: Value| json!({ "rope_type": "default", "rope_theta": theta });
    let full = config.remove("rope_theta").expect("a base was read");
    let both = json!({ "full_attention": rope(full), "sliding_attention": rope(json!(sliding)) });
    config.insert("rope_parameters".into(), both);
    config.insert("probity.rope_freq_factors".into(), json!(true));
    Ok(())
}
