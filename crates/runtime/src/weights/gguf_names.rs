//! GGUF's tensor names and the Hugging Face names that architectures load by.

/// Hugging Face name, GGUF name; what stands before the last dot.
type Pair = (&'static str, &'static str);

/// The names of an architecture.
#[derive(Debug)]
pub(crate) struct Names {
    /// Outside the layers.
    global: &'static [Pair],
    /// What the names of a stack's layers begin with, before the layer's number, and inside the layer.
    stacks: &'static [(Pair, &'static [Pair])],
}

/// Llama, mistral and qwen2; also what is shown of an architecture that is not known.
const LLAMA: Names = Names {
    global: &[("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")],
    stacks: &[(
        ("model.layers.", "blk."),
        &[
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
        ],
    )],
};

const BERT: Names = Names {
    global: &[
        ("embeddings.word_embeddings", "token_embd"),
        ("embeddings.token_type_embeddings", "token_types"),
        ("embeddings.position_embeddings", "position_embd"),
        ("embeddings.LayerNorm", "token_embd_norm"),
    ],
    stacks: &[(
        ("encoder.layer.", "blk."),
        &[
            ("attention.self.query", "attn_q"),
            ("attention.self.key", "attn_k"),
            ("attention.self.value", "attn_v"),
            ("attention.output.dense", "attn_output"),
            ("attention.output.LayerNorm", "attn_output_norm"),
            ("intermediate.dense", "ffn_up"),
            ("output.dense", "ffn_down"),
            ("output.LayerNorm", "layer_output_norm"),
        ],
    )],
};

const T5_GLOBAL: &[Pair] = &[
    ("shared", "token_embd"),
    ("encoder.final_layer_norm", "enc.output_norm"),
    ("decoder.final_layer_norm", "dec.output_norm"),
    ("lm_head", "output"),
];

/// The layers of T5's two stacks, with the names of the feed-forward layer's first products.
macro_rules! t5_stacks {
    ($(($product:literal, $gguf:literal)),+) => {
        &[
            (
                ("encoder.block.", "enc.blk."),
                &[
                    ("layer.0.SelfAttention.q", "attn_q"),
                    ("layer.0.SelfAttention.k", "attn_k"),
                    ("layer.0.SelfAttention.v", "attn_v"),
                    ("layer.0.SelfAttention.o", "attn_o"),
                    ("layer.0.SelfAttention.relative_attention_bias", "attn_rel_b"),
                    ("layer.0.layer_norm", "attn_norm"),
                    $((concat!("layer.1.DenseReluDense.", $product), $gguf),)+
                    ("layer.1.DenseReluDense.wo", "ffn_down"),
                    ("layer.1.layer_norm", "ffn_norm"),
                ],
            ),
            (
                ("decoder.block.", "dec.blk."),
                &[
                    ("layer.0.SelfAttention.q", "attn_q"),
                    ("layer.0.SelfAttention.k", "attn_k"),
                    ("layer.0.SelfAttention.v", "attn_v"),
                    ("layer.0.SelfAttention.o", "attn_o"),
                    ("layer.0.SelfAttention.relative_attention_bias", "attn_rel_b"),
                    ("layer.0.layer_norm", "attn_norm"),
                    ("layer.1.EncDecAttention.q", "cross_attn_q"),
                    ("layer.1.EncDecAttention.k", "cross_attn_k"),
                    ("layer.1.EncDecAttention.v", "cross_attn_v"),
                    ("layer.1.EncDecAttention.o", "cross_attn_o"),
                    ("layer.1.layer_norm", "cross_attn_norm"),
                    $((concat!("layer.2.DenseReluDense.", $product), $gguf),)+
                    ("layer.2.DenseReluDense.wo", "ffn_down"),
                    ("layer.2.layer_norm", "ffn_norm"),
                ],
            ),
        ]
    };
}

const T5: Names = Names { global: T5_GLOBAL, stacks: t5_stacks!(("wi", "ffn_up")) };

/// Flan-T5 and T5 1.1, whose feed-forward layers have a gate.
const T5_GATED: Names = Names { global: T5_GLOBAL, stacks: t5_stacks!(("wi_0", "ffn_gate"), ("wi_1", "ffn_up")) };

impl Names {
    /// Those of a file's architecture; `has_gate` says whether an encoder's feed-forward layers have one.
    pub(crate) fn of(architecture: Option<&str>, has_gate: bool) -> &'static Self {
        match (architecture, has_gate) {
            (Some("t5"), true) => &T5_GATED,
            (Some("t5"), false) => &T5,
            (Some("bert"), _) => &BERT,
            _ => &LLAMA,
        }
    }

    /// The GGUF name of a tensor that Hugging Face checkpoints call `name`; names without a counterpart stay as they
    /// are.
    pub(crate) fn to_gguf(&self, name: &str) -> String {
        self.translate(name, |pair| pair).unwrap_or_else(|| name.to_owned())
    }

    /// The reverse of [`to_gguf`](Self::to_gguf).
    pub(crate) fn to_huggingface(&self, name: &str) -> String {
        self.translate(name, |(huggingface, gguf)| (gguf, huggingface)).unwrap_or_else(|| name.to_owned())
    }

    fn translate(&self, name: &str, direction: impl Fn(Pair) -> Pair) -> Option<String> {
        let (stem, suffix) = name.rsplit_once('.')?;
        let find =
            |pairs: &[Pair], wanted: &str| pairs.iter().map(|pair| direction(*pair)).find(|(from, _)| *from == wanted);
        for (layers, pairs) in self.stacks {
            let (from, to) = direction(*layers);
            if let Some((layer, part)) = stem.strip_prefix(from).and_then(|rest| rest.split_once('.')) {
                let (_, part) = find(pairs, part)?;
                return Some(format!("{to}{layer}.{part}.{suffix}"));
            }
        }
        let (_, to) = find(self.global, stem)?;
        Some(format!("{to}.{suffix}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_translate_both_ways_and_unknown_ones_stay() {
        let of = |architecture, has_gate| Names::of(Some(architecture), has_gate);
        for (names, huggingface, gguf) in [
            (of("llama", true), "model.embed_tokens.weight", "token_embd.weight"),
            (of("llama", true), "lm_head.weight", "output.weight"),
            (of("llama", true), "model.norm.weight", "output_norm.weight"),
            (of("qwen2", true), "model.layers.11.self_attn.q_proj.bias", "blk.11.attn_q.bias"),
            (of("llama", true), "model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"),
            (of("llama", true), "rope_freqs.weight", "rope_freqs.weight"),
            (of("llama", true), "blk", "blk"),
            (of("bert", false), "embeddings.LayerNorm.bias", "token_embd_norm.bias"),
            (of("bert", false), "encoder.layer.3.output.LayerNorm.weight", "blk.3.layer_output_norm.weight"),
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
}
