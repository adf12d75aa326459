//! Qwen3.5's dense text models (Qwen Team 2026): Qwen3-Next with one feed-forward layer instead of experts, and with
//! separate projections in gated delta nets.

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields};
use crate::decoder::{DecoderConfig, HEAD_NORMED_NAMES, MODEL};
use crate::family::gguf;
use crate::gguf::{GGUF_HEAD_NORMS, GgufDialect, GgufError, GgufReader, LAYER, StackNames};
use crate::hybrid::{self, GGUF_MORE, KNOWN};
use crate::stack_config::{LayerNames, NormNames};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "qwen3_5_text", config: ReadConfig::OnCpu(config), gguf: Some(&GGUF) };

static GGUF: GgufDialect =
    GgufDialect { name: Some("qwen35"), stacks: |_| &GGUF_STACKS, more_known: &KNOWN, ..gguf(read) };

static GGUF_STACKS: [StackNames; 1] = [StackNames {
    prefix: MODEL,
    huggingface: HEAD_NORMED_NAMES,
    gguf: LayerNames {
        head_norms: Some(GGUF_HEAD_NORMS),
        feed_forward_norms: NormNames::stream("post_attention_norm"),
        ..LAYER
    },
    more: &GGUF_MORE,
}];

fn read(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    hybrid::read(reader, config)?;
    tile_value_heads(config);
    Ok(())
}

/// Converters sort the value heads of a key head into several groups, each with one of every key head.
pub(crate) fn tile_value_heads(config: &mut Map<String, Value>) {
    config.insert("probity.value_heads_tiled".into(), json!(true));
}

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("qwen3_5_text", config);
    fields.put_usual(config, "num_key_value_heads", json!(4));
    ignore_image_positions(&mut fields);
    let decoder = hybrid::decoder(config, &mut fields)?;
    fields.finish()?;
    Ok(decoder)
}

/// Takes fields that do not matter to texts. The three positions of a token differ only in images.
pub(crate) fn ignore_image_positions(fields: &mut ConfigFields) {
    for parameter in ["mrope_section", "mrope_interleaved"] {
        fields.take_of_rope(parameter);
    }
    // Of the reference's own kernels, and of weights that predict further tokens.
    for field in ["mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"] {
        fields.take(field);
    }
}
