//! GGUF's tensor names and the Hugging Face names that architectures load by.

/// Outside the layers: Hugging Face name, GGUF name.
const GLOBAL: [(&str, &str); 3] = [("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")];

/// Inside a layer: after `model.layers.N.`, after `blk.N.`.
const LAYER: [(&str, &str); 11] = [
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// The GGUF name of a tensor that Hugging Face checkpoints call `name`; names without a counterpart stay as they are.
pub(crate) fn to_gguf(name: &str) -> String {
    translate(name, "model.layers.", "blk.", |(huggingface, gguf)| (huggingface, gguf)).unwrap_or_else(|| name.to_owned())
}

/// The reverse of [`to_gguf`].
pub(crate) fn to_huggingface(name: &str) -> String {
    translate(name, "blk.", "model.layers.", |(huggingface, gguf)| (gguf, huggingface)).unwrap_or_else(|| name.to_owned())
}

type Pair = (&'static str, &'static str);

fn translate(name: &str, from_layers: &str, to_layers: &str, direction: impl Fn(Pair) -> Pair) -> Option<String> {
    let (stem, suffix) = name.rsplit_once('.')?;
    if let Some((layer, part)) = stem.strip_prefix(from_layers).and_then(|rest| rest.split_once('.')) {
        let (_, to) = LAYER.into_iter().map(&direction).find(|(from, _)| *from == part)?;
        return Some(format!("{to_layers}{layer}.{to}.{suffix}"));
    }
    let (_, to) = GLOBAL.into_iter().map(&direction).find(|(from, _)| *from == stem)?;
    Some(format!("{to}.{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_translate_both_ways_and_unknown_ones_stay() {
        for (huggingface, gguf) in [
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("lm_head.weight", "output.weight"),
            ("model.norm.weight", "output_norm.weight"),
            ("model.layers.11.self_attn.q_proj.bias", "blk.11.attn_q.bias"),
            ("model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"),
            ("rope_freqs.weight", "rope_freqs.weight"),
            ("blk", "blk"),
        ] {
            assert_eq!(to_gguf(huggingface), gguf);
            assert_eq!(to_huggingface(gguf), huggingface);
        }
    }
}
