//! `OLMo` 2 (Walsh et al. 2025): llama with norms of sublayer outputs instead of inputs, and norms of queries and keys
//! over all heads.

use serde_json::{Map, Value};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields};
use crate::decoder::{DecoderConfig, HEAD_NORMS, MODEL, NAMES};
use crate::family::{base_config, gguf, llama_biases, read_gguf};
use crate::gguf::{GGUF_HEAD_NORMS, GgufDialect, GgufError, GgufReader, LAYER, StackNames};
use crate::stack_config::{AttentionNames, HeadNorms, LayerNames, NormNames};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "olmo2", config: ReadConfig::Decoder(config), gguf: Some(&GGUF) };

static GGUF: GgufDialect = GgufDialect { stacks: |_| &GGUF_STACKS, ..gguf(read) };

static HUGGINGFACE: LayerNames = LayerNames {
    attention: AttentionNames { norms: NormNames::branch("post_attention_layernorm"), ..NAMES.attention },
    head_norms: Some(HeadNorms { of_all_heads: true, ..HEAD_NORMS }),
    feed_forward_norms: NormNames::branch("post_feedforward_layernorm"),
    ..NAMES
};

static GGUF_STACKS: [StackNames; 1] = [StackNames {
    prefix: MODEL,
    huggingface: HUGGINGFACE,
    gguf: LayerNames {
        attention: AttentionNames { norms: NormNames::branch("post_attention_norm"), ..LAYER.attention },
        head_norms: Some(HeadNorms { of_all_heads: true, ..GGUF_HEAD_NORMS }),
        feed_forward_norms: NormNames::branch("post_ffw_norm"),
        ..LAYER
    },
    more: &[],
}];

fn read(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    if read_gguf(reader, config)?.is_some() {
        return Err(reader.error("attention.sliding_window", "windows of OLMo 3 are not supported"));
    }
    Ok(())
}

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("olmo2", config);
    let mut decoder = base_config(&mut fields)?;
    decoder.names = &HUGGINGFACE;
    llama_biases(&mut fields, &mut decoder)?;
    fields.finish()?;
    Ok(decoder)
}
