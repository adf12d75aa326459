//! Qwen3.5's mixtures of experts (Qwen Team 2026): the text models of Qwen3.5 with the experts of Qwen3-Next.

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields};
use crate::decoder::DecoderConfig;
use crate::family::gguf;
use crate::gguf::{GgufDialect, GgufError, GgufReader};
use crate::hybrid::{self, KNOWN};
use crate::qwen3_5::{ignore_image_positions, tile_value_heads};
use crate::qwen3_next::{GGUF_STACKS, experts, read_experts};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "qwen3_5_moe_text", config: ReadConfig::OnCpu(config), gguf: Some(&GGUF) };

static GGUF: GgufDialect = GgufDialect {
    name: Some("qwen35moe"),
    stacks: |_| &GGUF_STACKS,
    sizes: hybrid::EXPERT_SIZES,
    more_known: &KNOWN,
    ..gguf(read)
};

fn read(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    read_experts(reader, config)?;
    tile_value_heads(config);
    Ok(())
}

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("qwen3_5_moe_text", config);
    fields.put_usual(config, "num_key_value_heads", json!(2));
    ignore_image_positions(&mut fields);
    // These models have no layer without experts. The field is replaced by the width of an expert.
    fields.put("intermediate_size", json!(1));
    let mut decoder = hybrid::decoder(config, &mut fields)?;
    // The reference always normalises the weights of the chosen experts.
    experts(&mut fields, &mut decoder, true)?;
    fields.only("norm_topk_prob", &[json!(true)])?;
    fields.finish()?;
    Ok(decoder)
}
