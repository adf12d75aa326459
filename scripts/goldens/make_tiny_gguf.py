"""Tiny checkpoints as GGUF, and their logits by transformers' dequantised load: tests/goldens/models/tiny-gguf*/.

Of a llama `model.gguf` has query and key rows in llama.cpp's order, as its converter writes them, and the vocabulary of `tiny-bpe-smollm`.
`tiny-gguf` is quantised to Q8_0 by gguf-py. `tiny-gguf-mixed` holds a different type in each linear layer; those that gguf-py cannot
quantise to are random blocks of the right spread. `tiny-gguf-qwen3` is a qwen3 in Q8_0 with tied embeddings and a vocabulary that
splits as `qwen2`. `golden.safetensors`: `tokens` (96,) i64, `logits` (96, 600) f32. Names as arguments: only these are written.
"""

import sys

from pathlib import Path

import numpy as np
import torch
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFWriter, LlamaFileType, get_tensor_name_map
from gguf.quants import dequantize, quantize
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, PretrainedConfig, PreTrainedModel, Qwen3Config

import tiny_tokenizers
from make_blocks import random_rows
from make_tiny_models import full, seed_weights
from provenance import ROOT, metadata

VOCAB = 600
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rope_theta": 50000.0,
    "rms_norm_eps": 1e-5,
}
# transformers takes that length whatever a file says of it.
HEADS_OF_128 = {"head_dim": 128, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-6}
LLAMA = LlamaConfig(**SHAPE)
QWEN3 = Qwen3Config(**SHAPE | HEADS_OF_128 | {"hidden_size": 128, "intermediate_size": 128, "tie_word_embeddings": True})
# name: (configuration, architecture of gguf-py, splitting, seed, mixed types)
MODELS = {
    "tiny-gguf": (LLAMA, MODEL_ARCH.LLAMA, "smollm", 20, False),
    "tiny-gguf-mixed": (LLAMA, MODEL_ARCH.LLAMA, "smollm", 21, True),
    "tiny-gguf-qwen3": (QWEN3, MODEL_ARCH.QWEN3, "qwen2", 22, False),
}
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


def write_metadata(writer: GGUFWriter, config: PretrainedConfig) -> None:
    """As llama.cpp's converter does."""
    is_llama = config.model_type == "llama"
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    if is_llama:
        writer.add_rope_dimension_count(config.head_dim)
    else:
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if is_llama:
        writer.add_vocab_size(VOCAB)
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)


def write(path: Path, model: PreTrainedModel) -> None:
    """Metadata, vocabulary and tensors."""
    config, arch, pre, _, mixed = MODELS[path.parent.name]
    writer = GGUFWriter(path, config.model_type)
    writer.add_name(path.parent.name)
    write_metadata(writer, config)
    tiny_tokenizers.add_byte_level(writer, tiny_tokenizers.byte_level(pre, VOCAB, []), pre)
    names = get_tensor_name_map(arch, config.num_hidden_layers)
    kinds = iter(MIXED * 2)
    for seed, (name, parameter) in enumerate(model.state_dict().items()):
        if config.tie_word_embeddings and name == "lm_head.weight":
            continue  # no key says that embeddings are tied: the head is left out
        weights = parameter.numpy()
        if config.model_type == "llama" and ("q_proj" in name or "k_proj" in name):
            weights = permute(weights, config.num_attention_heads if "q_proj" in name else config.num_key_value_heads)
        kind = "F32" if weights.ndim == 1 else next(kinds) if mixed else "Q8_0"
        raw, weight_type = stored(name, np.ascontiguousarray(weights), kind, seed)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), raw, raw_dtype=weight_type)
        if kind in SPREAD:
            print(f"  {name}: {kind}, std times sqrt(fan in) {dequantize(raw, weight_type).std() * weights.shape[1] ** 0.5:.2f}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def golden(name: str) -> None:
    """One checkpoint and its logits."""
    config, _, _, seed, mixed = MODELS[name]
    folder = ROOT / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    seed_weights(model, seed)
    write(folder / "model.gguf", model)
    load = {"gguf_file": "model.gguf", "attn_implementation": "eager"}
    tokens = torch.randint(3, VOCAB, (96,), generator=torch.Generator().manual_seed(1000 + seed))
    read = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **load).eval()
    for field in ["rope_theta", "num_key_value_heads", "head_dim", "tie_word_embeddings"]:
        assert getattr(read.config, field) == getattr(config, field), field
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
    """All checkpoints, or those that are asked for."""
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MODELS:
        golden(name)


if __name__ == "__main__":
    main()
