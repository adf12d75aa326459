"""Tiny llama checkpoints as GGUF, and their logits by transformers' dequantised load: tests/goldens/models/{tiny-gguf,tiny-gguf-mixed}/.

`model.gguf` has query and key rows in llama.cpp's order, as its converter writes them, and the vocabulary of `tiny-bpe-smollm`.
`tiny-gguf` is quantised to Q8_0 by gguf-py. `tiny-gguf-mixed` holds a different type in each linear layer; those that gguf-py cannot
quantise to are random blocks of the right spread. `golden.safetensors`: `tokens` (96,) i64, `logits` (96, 600) f32.
"""

from pathlib import Path

import numpy as np
import torch
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFWriter, LlamaFileType, get_tensor_name_map
from gguf.quants import dequantize, quantize
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import tiny_tokenizers
from make_blocks import random_rows
from make_tiny_models import full, seed_weights
from provenance import ROOT, metadata

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, VOCAB = 2, 256, 256, 4, 2, 600
CONFIG = LlamaConfig(
    vocab_size=VOCAB,
    hidden_size=HIDDEN,
    intermediate_size=FFN,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    num_key_value_heads=KV_HEADS,
    max_position_embeddings=512,
    rope_theta=50000.0,
    rms_norm_eps=1e-5,
)
MIXED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "F16", "BF16", "F32"]
# Standard deviation of a random block's values over its scale: brings a linear layer to about 1 / sqrt(fan in).
SPREAD = {"Q4_K": 1 / 2500, "Q5_K": 1 / 5000, "Q6_K": 1 / 14000}


def permute(weights: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from halves (Hugging Face) to pairs (llama.cpp)."""
    return weights.reshape(heads, 2, weights.shape[0] // heads // 2, weights.shape[1]).swapaxes(1, 2).reshape(weights.shape)


def stored(name: str, weights: np.ndarray, kind: str, seed: int) -> tuple[np.ndarray, GGMLQuantizationType]:
    """The tensor's bytes in `kind`."""
    weight_type = GGMLQuantizationType[kind]
    if kind in SPREAD:
        return random_rows(kind, *weights.shape, np.random.default_rng(seed), spread=SPREAD[kind], odd=False), weight_type
    if kind in ("F32", "F16"):
        return weights.astype(np.float32 if kind == "F32" else np.float16), weight_type
    return quantize(weights, weight_type), weight_type


def write(path: Path, model: LlamaForCausalLM, mixed: bool) -> None:
    """Metadata, vocabulary and tensors."""
    writer = GGUFWriter(path, "llama")
    writer.add_name(path.parent.name)
    writer.add_context_length(CONFIG.max_position_embeddings)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_rope_freq_base(CONFIG.rope_theta)
    writer.add_layer_norm_rms_eps(CONFIG.rms_norm_eps)
    writer.add_vocab_size(VOCAB)
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)
    tiny_tokenizers.add_byte_level(writer, tiny_tokenizers.byte_level("smollm", VOCAB, []), "smollm")
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, LAYERS)
    kinds = iter(MIXED * 2)
    for seed, (name, parameter) in enumerate(model.state_dict().items()):
        weights = parameter.numpy()
        if "q_proj" in name or "k_proj" in name:
            weights = permute(weights, HEADS if "q_proj" in name else KV_HEADS)
        kind = "F32" if weights.ndim == 1 else next(kinds) if mixed else "Q8_0"
        raw, weight_type = stored(name, np.ascontiguousarray(weights), kind, seed)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), raw, raw_dtype=weight_type)
        if kind in SPREAD:
            print(f"  {name}: {kind}, std times sqrt(fan in) {dequantize(raw, weight_type).std() * weights.shape[1] ** 0.5:.2f}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def golden(name: str, seed: int, mixed: bool) -> None:
    """One checkpoint and its logits."""
    folder = ROOT / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    model = LlamaForCausalLM(CONFIG).eval()
    seed_weights(model, seed)
    write(folder / "model.gguf", model, mixed)
    load = {"gguf_file": "model.gguf", "attn_implementation": "eager"}
    tokens = torch.randint(3, VOCAB, (96,), generator=torch.Generator().manual_seed(1000 + seed))
    read = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **load).eval()
    assert read.config.rope_theta == CONFIG.rope_theta and read.config.num_key_value_heads == KV_HEADS
    logits = full(read, tokens)
    wide = full(read.double(), tokens)
    top = logits.softmax(-1).amax(-1)
    gap = (wide - logits).abs().max()
    print(f"{name}: against float64 {gap:.1e}, logits std {logits.std():.2f}, top-1 {top.min():.2f} … {top.median():.2f} … {top.max():.2f}")
    assert gap < 3e-5, gap
    if not mixed:
        away = (logits - full(model, tokens)).abs().mean()
        print(f"  mean distance from the weights before quantisation {away:.3f}")
        assert away < 0.1, "rows of queries and keys are not where the reader expects them"
    record = metadata(2e-4, seed, "torch", "transformers", "gguf")
    save_file({"tokens": tokens, "logits": logits.contiguous()}, folder / "golden.safetensors", metadata=record)


def main() -> None:
    """Both checkpoints."""
    torch.set_num_threads(1)
    golden("tiny-gguf", 20, mixed=False)
    golden("tiny-gguf-mixed", 21, mixed=True)


if __name__ == "__main__":
    main()
