//! What distinguishes the layers of a Gemma 4.

use serde_json::{Map, Value, json};

use crate::config::{ConfigError, ConfigFields, invalid};
use crate::decoder::DecoderConfig;
use crate::stack_config::{KeyHeads, LayerSight, LayerVariant};

/// Fields that describe the layers.
pub(super) struct LayerFields {
    /// Changes of single layers, as transformers saves them.
    changes: Option<Value>,
    /// Head dimension and key heads of global layers, as published files have them.
    full: (usize, Option<usize>),
    keys_are_values: bool,
    /// Number of last layers that use the keys and values of earlier ones.
    borrowing: usize,
    /// Whether these have feed-forward layers of twice the width.
    is_wide: bool,
}

impl LayerFields {
    pub(super) fn take(fields: &mut ConfigFields) -> Result<Self, ConfigError> {
        Ok(Self {
            changes: fields.take("per_layer_config"),
            full: (fields.size("global_head_dim")?.unwrap_or(512), fields.size("num_global_key_value_heads")?),
            keys_are_values: fields.flag("attention_k_eq_v")?.unwrap_or(false),
            borrowing: fields.count("num_kv_shared_layers")?.unwrap_or(0),
            is_wide: fields.flag("use_double_wide_mlp")?.unwrap_or(false),
        })
    }

    /// The key heads of layers with a window, and of global layers.
    pub(super) fn key_heads(&self, decoder: &DecoderConfig) -> Result<[KeyHeads; 2], ConfigError> {
        let usual = KeyHeads { count: decoder.num_kv_heads, dim: decoder.head_dim };
        let Some(changes) = &self.changes else {
            let (dim, count) = self.full;
            let count = count.filter(|_| self.keys_are_values).unwrap_or(usual.count);
            return Ok([usual, checked(KeyHeads { count, dim }, decoder)?]);
        };
        let map = changes.as_object().ok_or_else(|| invalid("per_layer_config", changes, "an object"))?;
        let of_layer = |layer: usize| match map.get(&layer.to_string()) {
            Some(change) => changed(usual, change),
            None => Ok(usual),
        };
        let mut of_kinds = [None; 2];
        for (layer, LayerSight { window, .. }) in decoder.layers.iter().enumerate() {
            let heads = of_layer(layer)?;
            // Rotations and shared keys are per kind.
            if *of_kinds[usize::from(window.is_none())].get_or_insert(heads) != heads {
                return Err(invalid("per_layer_config", changes, "the same changes for all layers of a type"));
            }
        }
        let layers = decoder.layers.len();
        if let Some(other) = map.keys().find(|key| key.parse().ok().is_none_or(|layer: usize| layer >= layers)) {
            return Err(invalid("per_layer_config", &json!(other), &format!("a layer from 0 to {}", layers - 1)));
        }
        let [sliding, full] = of_kinds.map(|heads| heads.unwrap_or(usual));
        Ok([checked(sliding, decoder)?, checked(full, decoder)?])
    }

    /// Sets rotation and variant of each layer.
    pub(super) fn assign(
        &self,
        decoder: &mut DecoderConfig,
        [sliding, full]: [KeyHeads; 2],
    ) -> Result<(), ConfigError> {
        let windows: Vec<bool> = decoder.layers.iter().map(|layer| layer.window.is_some()).collect();
        let own = windows.len().saturating_sub(self.borrowing);
        for (index, layer) in decoder.layers.iter_mut().enumerate() {
            let has_window = windows[index];
            let lender = windows[..own].iter().rposition(|other| *other == has_window);
            let keys_of = lender.filter(|_| index >= own);
            if index >= own && keys_of.is_none() {
                let expected = "fewer, so that each type of layer has one with keys";
                return Err(invalid("num_kv_shared_layers", &json!(self.borrowing), expected));
            }
            layer.rotation = Some(usize::from(has_window));
            layer.variant = LayerVariant {
                heads: Some(if has_window { sliding } else { full }),
                keys_of,
                keys_are_values: self.keys_are_values && !has_window && keys_of.is_none(),
                intermediate_size: (self.is_wide && keys_of.is_some()).then_some(2 * decoder.intermediate_size),
            };
        }
        Ok(())
    }
}

/// The key heads of a layer with changes.
fn changed(usual: KeyHeads, change: &Value) -> Result<KeyHeads, ConfigError> {
    let map: &Map<String, Value> =
        change.as_object().ok_or_else(|| invalid("per_layer_config", change, "an object for each layer"))?;
    let mut fields = ConfigFields::new("gemma4_text", map);
    let heads = KeyHeads {
        count: fields.size("num_key_value_heads")?.unwrap_or(usual.count),
        dim: fields.size("head_dim")?.unwrap_or(usual.dim),
    };
    fields.finish()?;
    Ok(heads)
}

/// The checks that [`base_config`](crate::family::base_config) makes for the usual key heads.
fn checked(heads: KeyHeads, decoder: &DecoderConfig) -> Result<KeyHeads, ConfigError> {
    if !decoder.num_heads.is_multiple_of(heads.count) {
        let expected = "a divisor of num_attention_heads";
        return Err(invalid("num_global_key_value_heads", &json!(heads.count), expected));
    }
    if !heads.dim.is_multiple_of(2) {
        return Err(invalid("global_head_dim", &json!(heads.dim), "an even number"));
    }
    Ok(heads)
}
