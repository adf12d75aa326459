"""Logits of SmolLM2-135M-Instruct's trained weights with a Mistral configuration with a window, by transformers in
fp32.

The weights are those of transformers' dequantised GGUF loaded as llama, copied unchanged into its Mistral. A query sees
itself and the 23 preceding keys. The tokens exceed three windows, so that most of them differ from a model without a
window. Writes tests/goldens/smollm2/mistral_window.safetensors.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import MistralConfig, MistralForCausalLM

import gguf_tokenizer
from make_real_logits import SMOLLM2_PROMPTS, load, logits_of, perplexity, subset_ids
from provenance import ROOT, metadata

WINDOW = 24
LENGTH = 80
# Fields with the same meaning in both configurations.
SHARED = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "hidden_act", "max_position_embeddings", "rms_norm_eps", "rope_theta", "tie_word_embeddings", "bos_token_id", "eos_token_id",
)  # fmt: skip


def as_mistral(llama: torch.nn.Module, window: int | None) -> torch.nn.Module:
    """A Mistral model with all weights of the llama model."""
    assert not llama.config.attention_bias and not llama.config.mlp_bias
    config = MistralConfig(**{name: getattr(llama.config, name) for name in SHARED}, sliding_window=window)
    config._attn_implementation = "eager"
    model = MistralForCausalLM(config)
    model.load_state_dict(llama.state_dict(), strict=True)
    return model.eval()


def main() -> None:
    """Top-1, its margin and 64 logits at each position."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("smollm2", type=Path, help="SmolLM2-135M-Instruct.Q4_1.gguf")
    path = parser.parse_args().smollm2
    llama, tokenizer = load(path, 100000.0, 1e-5), gguf_tokenizer.read(path)
    ids = gguf_tokenizer.encode(tokenizer, " ".join(SMOLLM2_PROMPTS[:2]), special=False)[:LENGTH]
    assert len(ids) == LENGTH
    open_logits = logits_of(llama, ids)
    assert torch.equal(logits_of(as_mistral(llama, None), ids), open_logits), "without a window a Mistral is a llama"
    logits = logits_of(as_mistral(llama, WINDOW), ids)
    apart = (logits - open_logits).abs().amax(-1)
    assert apart[:WINDOW].max() < 1e-3 and apart[WINDOW:].min() > 0.1, "the window shows from position 24 on"
    best = logits.topk(2, -1)
    margin = best.values[:, 0] - best.values[:, 1]
    assert margin.min() > 0.01, "a near tie cannot be held to a tolerance: change the prompt"
    print(f"{len(ids)} tokens, perplexity {perplexity(logits, ids):.1f} ({perplexity(open_logits, ids):.1f} without a window)")
    print(f"least margin {margin.min():.4f}; from position {WINDOW} on the window moves logits by {apart[WINDOW:].min():.2f} or more")
    columns = subset_ids(llama.config.vocab_size)
    tensors = {
        "tokens": torch.tensor(ids),
        "subset_ids": columns,
        "top1": best.indices[:, 0].contiguous(),
        "top1_margin": margin.contiguous(),
        "subset_logits": logits[:, columns].contiguous(),
    }
    made_with = metadata(2e-3, None, "torch", "transformers", "gguf", "tokenizers")
    save_file(tensors, ROOT / "smollm2" / "mistral_window.safetensors", metadata=made_with)


if __name__ == "__main__":
    main()
