"""Tiny checkpoints as GGUF, and their logits by transformers' dequantised load: tests/goldens/models/tiny-gguf*/.

A llama `model.gguf` has query and key rows in llama.cpp's order, as written by its converter, and the vocabulary of
`tiny-bpe-smollm`. `tiny-gguf` is quantised to Q8_0 by gguf-py. `tiny-gguf-mixed` has a different type in each linear
layer; types that gguf-py cannot write are random blocks of a suitable scale. `tiny-gguf-qwen3` is a qwen3 in Q8_0 with
tied embeddings and a vocabulary that splits like `qwen2`. The others (`gguf-granite` and so on) are one of each further
architecture in Q8_0. transformers reads few of them, so their logits are those of its model with the weights that
gguf-py reads back. `golden.safetensors`: `tokens` (96,) i64, `logits` (96, 600) f32. With names as arguments, only
these are written.
"""

import re
import sys

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from gguf import (
    MODEL_ARCH,
    MODEL_ARCH_NAMES,
    ExpertGatingFuncType,
    GGMLQuantizationType,
    GGUFWriter,
    LlamaFileType,
    RopeScalingType,
    TensorNameMap,
    get_tensor_name_map,
)
from gguf.quants import dequantize, quantize
from safetensors.torch import save_file
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    Glm4Config,
    GraniteConfig,
    LlamaConfig,
    MixtralConfig,
    Olmo2Config,
    Phi3Config,
    PretrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3MoeConfig,
    SmolLM3Config,
)

import tiny_tokenizers
from make_blocks import random_rows
from make_tiny_models import FACTORS, full, seed_weights
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
# transformers uses this length whatever the file's value is.
HEADS_OF_128 = {"head_dim": 128, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-6}
LLAMA = LlamaConfig(**SHAPE)
QWEN3 = Qwen3Config(**SHAPE | HEADS_OF_128 | {"hidden_size": 128, "intermediate_size": 128, "tie_word_embeddings": True})
SMALL = SHAPE | {"hidden_size": 128, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 1}
GEMMA = SMALL | {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 40, "rms_norm_eps": 1e-6}
LONG = {
    "max_position_embeddings": 1024,
    "original_max_position_embeddings": 128,
    "partial_rotary_factor": 0.5,
    "rope_scaling": {"type": "longrope", "short_factor": [1 + 0.2 * i for i in range(8)], "long_factor": [1 + i * i for i in range(8)]},
}
# name: (configuration, architecture of gguf-py, splitting, seed, mixed types)
MODELS = {
    "tiny-gguf": (LLAMA, MODEL_ARCH.LLAMA, "smollm", 20, False),
    "tiny-gguf-mixed": (LLAMA, MODEL_ARCH.LLAMA, "smollm", 21, True),
    "tiny-gguf-qwen3": (QWEN3, MODEL_ARCH.QWEN3, "qwen2", 22, False),
}
# The same for models whose logits are computed from the weights that gguf-py reads back.
READ_BACK = {
    "gguf-granite": (GraniteConfig(**SMALL | FACTORS | {"tie_word_embeddings": True}), MODEL_ARCH.GRANITE, "smollm", 23),
    "gguf-olmo2": (Olmo2Config(**SMALL), MODEL_ARCH.OLMO2, "smollm", 24),
    "gguf-smollm3": (SmolLM3Config(**SMALL | {"num_hidden_layers": 4, "tie_word_embeddings": True}), MODEL_ARCH.SMOLLM3, "smollm", 25),
    "gguf-phi3": (Phi3Config(**SMALL | LONG), MODEL_ARCH.PHI3, "smollm", 26),
    "gguf-gemma2": (Gemma2Config(**GEMMA), MODEL_ARCH.GEMMA2, "smollm", 27),
    "gguf-gemma3": (
        Gemma3TextConfig(**GEMMA | {"num_hidden_layers": 6, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
        MODEL_ARCH.GEMMA3,
        "smollm",
        28,
    ),
    "gguf-mixtral": (MixtralConfig(**SMALL | {"num_local_experts": 4}), MODEL_ARCH.LLAMA, "smollm", 29),
    "gguf-qwen3-moe": (
        Qwen3MoeConfig(**SMALL | {"head_dim": 32, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True}),
        MODEL_ARCH.QWEN3MOE,
        "qwen2",
        30,
    ),
    "gguf-glm4": (Glm4Config(**SMALL | {"head_dim": 32, "partial_rotary_factor": 0.5}), MODEL_ARCH.GLM4, "glm4", 31),
}
# Architectures whose query and key rows are interleaved.
PERMUTED = ("llama", "mixtral", "granite", "granitemoehybrid", "smollm3", "ministral3")
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


def further_layers(config: PretrainedConfig) -> int:
    """The number of layers that predict further tokens."""
    return getattr(config, "num_nextn_predict_layers", 0)


def rotation(config: PretrainedConfig) -> dict:
    """The parameters of the rotation, in the format of transformers 5."""
    both = getattr(config, "rope_parameters", None) or {"rope_theta": config.rope_theta}
    return {"partial_rotary_factor": getattr(config, "partial_rotary_factor", 1.0)} | both


def write_sizes(writer: GGUFWriter, config: PretrainedConfig) -> None:
    """Metadata of all architectures."""
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers + further_layers(config))
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    # The converter of hybrid models writes one number per layer.
    kv_heads, is_hybrid = config.num_key_value_heads, config.model_type == "granitemoehybrid"
    writer.add_head_count_kv([kv_heads] * config.num_hidden_layers if is_hybrid else kv_heads)


def write_metadata(writer: GGUFWriter, config: PretrainedConfig) -> None:
    """Metadata as in llama.cpp's converter."""
    is_llama = config.model_type == "llama"
    write_sizes(writer, config)
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
            continue  # no key says that embeddings are tied: the head is omitted
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


def write_more_metadata(writer: GGUFWriter, config: PretrainedConfig) -> None:
    """Metadata that llama.cpp's converter writes for this architecture only."""
    kind = config.model_type
    if kind.startswith("granite"):
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if kind.startswith("gemma"):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
        writer.add_sliding_window(config.sliding_window)
    if kind == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if kind == "gemma3_text":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(config.rope_scaling["factor"])
    if kind == "phi3":
        writer.add_rope_dimension_count(int(config.partial_rotary_factor * config.hidden_size // config.num_attention_heads))
        writer.add_sliding_window(0)
        original = config.original_max_position_embeddings
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors((1 + np.log(config.max_position_embeddings / original) / np.log(original)) ** 0.5)
        for length in ["short", "long"]:
            factors = np.array(config.rope_scaling[f"{length}_factor"], dtype=np.float32)
            writer.add_tensor(f"rope_factors_{length}.weight", factors, raw_dtype=GGMLQuantizationType.F32)
    if kind == "granitemoehybrid":
        writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
        writer.add_ssm_conv_kernel(config.mamba_d_conv)
        writer.add_rope_scaling_finetuned(config.position_embedding_type == "rope")
    if kind in ("mixtral", "qwen3_moe", "granitemoehybrid"):
        writer.add_expert_count(getattr(config, "num_local_experts", None) or config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if kind in ("qwen3_moe", "glm4", "glm4_moe", "ministral3"):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if kind in ("qwen3_moe", "glm4_moe"):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if kind in ("glm4", "glm4_moe", "ministral3"):
        writer.add_rope_dimension_count(int(config.head_dim * rotation(config)["partial_rotary_factor"]))
    if kind == "glm4_moe":
        writer.add_expert_count(config.n_routed_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_leading_dense_block_count(config.first_k_dense_replace)
        writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_weights_norm(config.norm_topk_prob)
        writer.add_nextn_predict_layers(further_layers(config))
    if kind == "ministral3":
        yarn = rotation(config)
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(yarn["factor"])
        writer.add_rope_scaling_orig_ctx_len(yarn["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(yarn["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(yarn["beta_slow"])
        writer.add_rope_scaling_yarn_log_mul(yarn["mscale_all_dim"])
        writer.add_attn_temperature_scale(yarn["llama_4_scaling_beta"])


def all_tensors(model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """The model's tensors, then those of a layer that predicts further tokens: the last layer's, and a few others."""
    state, config = model.state_dict(), model.config
    yield from state.items()
    last, more = f"model.layers.{config.num_hidden_layers - 1}.", f"model.layers.{config.num_hidden_layers}."
    if further_layers(config):
        yield from ((name.replace(last, more), tensor.clone()) for name, tensor in state.items() if name.startswith(last))
        for name in ("enorm", "hnorm", "shared_head.norm"):
            yield f"{more}{name}.weight", torch.ones(config.hidden_size)
        yield f"{more}eh_proj.weight", torch.ones(config.hidden_size, 2 * config.hidden_size)


# Names of tensors that GGUF files have in two parts, and names of these that gguf-py knows.
FUSED = {
    "block_sparse_moe.experts.gate_up_proj": ("mlp.experts.gate_proj.weight", "mlp.experts.up_proj.weight"),
    "experts.gate_up_proj": ("experts.gate_proj.weight", "experts.up_proj.weight"),
    "shared_mlp.input_linear.weight": ("mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight"),
}

# Endings of names of transformers 5, and the published ones that gguf-py knows.
RENAMED = {
    "e_score_correction_bias": "e_score_correction.bias",
    "block_sparse_moe.experts.down_proj": "block_sparse_moe.output_linear.weight",
    "experts.down_proj": "experts.down_proj.weight",
    "router.weight": "router.layer.weight",
}


def write_tensor(writer: GGUFWriter, names: TensorNameMap, name: str, raw: np.ndarray, kind: GGMLQuantizationType) -> None:
    """Writes a tensor under its name in GGUF files. The gates of all experts are a tensor of their own there."""
    for fused, parts in FUSED.items():
        if name.endswith(fused):
            for part, rows in zip(parts, np.split(raw, 2, axis=-2), strict=True):
                write_tensor(writer, names, name.replace(fused, part), np.ascontiguousarray(rows), kind)
            return
    for own, known in RENAMED.items():
        name = re.sub(f"{own}$", known, name)
    writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), raw, raw_dtype=kind)


def write_read_back(path: Path, model: PreTrainedModel) -> None:
    """Metadata, vocabulary and tensors; copies the file's weights into the model."""
    config, arch, pre, _ = READ_BACK[path.parent.name]
    writer = GGUFWriter(path, MODEL_ARCH_NAMES[arch])
    writer.add_name(path.parent.name)
    write_sizes(writer, config)
    writer.add_rope_freq_base(rotation(config)["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)
    write_more_metadata(writer, config)
    tiny_tokenizers.add_byte_level(writer, tiny_tokenizers.byte_level(pre, VOCAB, []), pre)
    names = get_tensor_name_map(arch, config.num_hidden_layers + further_layers(config))
    experts: dict[str, list[np.ndarray]] = {}
    for seed, (name, parameter) in enumerate(all_tensors(model)):
        if config.tie_word_embeddings and name == "lm_head.weight":
            continue
        weights, is_permuted = parameter.numpy(), config.model_type in PERMUTED and ("q_proj" in name or "k_proj" in name)
        heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        if is_permuted:
            weights = permute(weights, heads)
        if config.model_type.startswith("gemma") and "norm" in name:
            weights = weights + 1
        raw, weight_type = stored(name, np.ascontiguousarray(weights), "F32" if weights.ndim == 1 or name.endswith(("gate.weight", "router.weight")) else "Q8_0", seed)
        back = dequantize(raw, weight_type).reshape(weights.shape)
        if is_permuted:
            back = back.reshape(heads, -1, 2, weights.shape[1]).swapaxes(1, 2).reshape(weights.shape)
        if config.model_type.startswith("gemma") and "norm" in name:
            back = back - 1
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(back)))
        if re.search(r"\.experts\.\d", name):
            merged = re.sub(r"experts\.\d+\.", "experts.", name)
            experts.setdefault(merged, []).append(raw)
            continue
        write_tensor(writer, names, name, raw, weight_type)
    for merged, all_of_them in experts.items():
        write_tensor(writer, names, merged, np.stack(all_of_them), GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_back(name: str) -> None:
    """One checkpoint, and the logits of its file's weights."""
    config, _, _, seed = READ_BACK[name]
    folder = ROOT / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    seed_weights(model, seed)
    write_read_back(folder / "model.gguf", model)
    tokens = torch.randint(3, VOCAB, (96,), generator=torch.Generator().manual_seed(1000 + seed))
    logits = full(model, tokens)
    gap = (full(model.double(), tokens) - logits).abs().max()
    top = logits.softmax(-1).amax(-1)
    print(f"{name}: against float64 {gap:.1e}, logits std {logits.std():.2f}, top-1 {top.min():.2f} … {top.median():.2f} … {top.max():.2f}")
    assert gap < 5e-5, gap
    record = metadata(2e-4, seed, "torch", "transformers", "gguf")
    save_file({"tokens": tokens, "logits": logits.contiguous()}, folder / "golden.safetensors", metadata=record)


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
    """All checkpoints, or the given ones."""
    torch.set_num_threads(1)
    for name in sys.argv[1:] or [*MODELS, *READ_BACK]:
        read_back(name) if name in READ_BACK else golden(name)


if __name__ == "__main__":
    main()
