//! Gemma 3's text models (Gemma Team 2025): Gemma 2 with norms of queries and keys instead of caps, five window layers
//! for each global one, and a separate rotation for window layers.

use serde_json::{Map, Value, json};

use crate::Rope;
use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields};
use crate::decoder::{DecoderConfig, HEAD_NORMS, MODEL};
use crate::family::gguf;
use crate::gemma2::{self, gemma};
use crate::gguf::{GGUF_HEAD_NORMS, GgufDialect, GgufError, GgufReader, StackNames};
use crate::rope::BASES;
use crate::stack_config::LayerNames;

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "gemma3_text", config: ReadConfig::Decoder(config), gguf: Some(&GGUF) };

static GGUF: GgufDialect = GgufDialect {
    name: Some("gemma3"),
    stacks: |_| &GGUF_STACKS,
    more_known: &["attn_logit_softcapping", "final_logit_softcapping", "rope.freq_base_swa"],
    ..gguf(read)
};

static HUGGINGFACE: LayerNames = LayerNames { head_norms: Some(HEAD_NORMS), ..gemma2::HUGGINGFACE };

static GGUF_STACKS: [StackNames; 1] = [StackNames {
    prefix: MODEL,
    huggingface: HUGGINGFACE,
    gguf: LayerNames { head_norms: Some(GGUF_HEAD_NORMS), ..gemma2::GGUF_LAYER },
    more: &[],
}];

fn read(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    gemma2::read(reader, config)?;
    if let Some(base) = reader.float("rope.freq_base_swa")? {
        config.insert("rope_local_base_freq".into(), json!(base));
    }
    Ok(())
}

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("gemma3_text", config);
    fields.put_usual_base(1e6);
    fields.put_usual(config, "sliding_window", json!(4096));
    // transformers ignores this field.
    fields.only("attn_logit_softcapping", &[])?;
    // transformers saves both fields.
    let [given, saved] = [fields.size("sliding_window_pattern")?, fields.size("_sliding_window_pattern")?];
    let interval = given.or(saved).unwrap_or(6);
    let local = fields.number("rope_local_base_freq", &BASES)?.unwrap_or(10_000.0);
    let mut decoder = gemma(&mut fields, |layer| (layer + 1) % interval != 0)?;
    decoder.names = &HUGGINGFACE;
    decoder.ropes.push(Rope::plain(local));
    decoder.layers.iter_mut().filter(|layer| layer.window.is_some()).for_each(|layer| layer.rotation = Some(1));
    fields.finish()?;
    Ok(decoder)
}
