"""As make_tiny_models.py and make_tiny_gguf.py, for models in which recurrent layers and attention take turns
(transformers 5, requirements-5.txt): tests/goldens/models/{qwen3_next,qwen3_5…,lfm2}/ and
tests/goldens/models/gguf-{qwen3-next,qwen35…,lfm2}/.

`qwen3_next` and `qwen3_5` also have tensors that predict further tokens, as published; transformers does not read them.
The GGUF files have the names, the order of heads, and the values that llama.cpp's converter writes, and their logits are
those of transformers with the weights that gguf-py reads back. With names as arguments, only these are written.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, GGUFWriter, LlamaFileType, get_tensor_name_map
from gguf.quants import dequantize
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    Lfm2Config,
    Lfm2ForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3_5Config,
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeConfig,
    Qwen3_5MoeForCausalLM,
    Qwen3_5MoeForConditionalGeneration,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

import make_tiny_models
import tiny_tokenizers
from make_tiny_gguf import stored
from make_tiny_models import full, golden, load, save
from provenance import ROOT, metadata

VOCAB = 320
ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}
IMAGES_ROPE = ROPE | {"mrope_section": [1, 1, 0], "mrope_interleaved": True}
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 12,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 1,
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 24}
# The last layer is usually attention.
ORDER = ["linear_attention", "full_attention", "linear_attention", "linear_attention"]
DENSE = SHAPE | {"intermediate_size": 96, "rope_parameters": IMAGES_ROPE, "tie_word_embeddings": True, "layer_types": ORDER}
MIXED = SHAPE | EXPERTS | {"rope_parameters": IMAGES_ROPE}
# The width of feed-forward layers becomes 96. Published configurations list the layers of attention.
CONVOLUTIONS = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 130,
    "block_multiple_of": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "conv_L_cache": 3,
    "norm_eps": 1e-3,
    "full_attn_idxs": [1, 3],
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 1,
}
VISION = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2, "patch_size": 4, "out_hidden_size": 48, "num_position_embeddings": 4}
# As in make_tiny_models.py; the seed is 200 and the index, or 210 if rounding would matter more than is usual.
MODELS = {
    "qwen3_next": (Qwen3NextForCausalLM, Qwen3NextConfig(**SHAPE | EXPERTS | {"rope_parameters": ROPE}), torch.bfloat16, "1GB", []),
    "qwen3_5_text": (Qwen3_5ForCausalLM, Qwen3_5TextConfig(**DENSE), torch.bfloat16, "1GB", []),
    "qwen3_5_moe_text": (Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig(**MIXED | {"attention_bias": True}), torch.bfloat16, "1GB", []),
    "qwen3_5": (
        Qwen3_5ForConditionalGeneration,
        Qwen3_5Config(text_config=DENSE | {"layer_types": None, "linear_num_value_heads": 2}, vision_config=VISION, tie_word_embeddings=True),
        torch.bfloat16,
        "1GB",
        [],
    ),
    "qwen3_5_moe": (Qwen3_5MoeForConditionalGeneration, Qwen3_5MoeConfig(text_config=MIXED, vision_config=VISION), torch.bfloat16, "1GB", []),
    "lfm2": (Lfm2ForCausalLM, Lfm2Config(**CONVOLUTIONS), torch.bfloat16, "1GB", ["layer_types"]),
}
# Widths of whole blocks.
SMALL = SHAPE | {"vocab_size": 600, "hidden_size": 64, "head_dim": 32, "linear_value_head_dim": 32, "linear_key_head_dim": 32}
WIDE = {"intermediate_size": 64}
BLOCKS = EXPERTS | {"moe_intermediate_size": 64, "shared_expert_intermediate_size": 32}
GGUF = {
    "gguf-qwen3-next": (Qwen3NextConfig(**SMALL | BLOCKS | {"rope_parameters": ROPE}), MODEL_ARCH.QWEN3NEXT, 220),
    "gguf-qwen35": (Qwen3_5TextConfig(**SMALL | WIDE | {"rope_parameters": IMAGES_ROPE, "tie_word_embeddings": True}), MODEL_ARCH.QWEN35, 223),
    "gguf-qwen35-moe": (Qwen3_5MoeTextConfig(**SMALL | BLOCKS | {"rope_parameters": IMAGES_ROPE}), MODEL_ARCH.QWEN35MOE, 222),
    "gguf-lfm2": (Lfm2Config(**CONVOLUTIONS | {"vocab_size": 600, "conv_L_cache": 4}), MODEL_ARCH.LFM2, 224),
}


def seed_weights(model: PreTrainedModel, seed: int) -> None:
    """Random weights far from initialisation: peaked attention, varied logits, states with long and short memories."""
    generator = torch.Generator().manual_seed(seed)
    tied = model.config.tie_word_embeddings
    gain = {"q_proj": 1.4, "k_proj": 1.4, "lm_head": 2.0, "conv1d": 4.0, "conv.conv": 2.0}
    for name, parameter in sorted(model.named_parameters()):
        values = torch.randn(parameter.shape, generator=generator)
        if name.endswith("linear_attn.norm.weight"):
            values = 1 + 0.3 * values
        elif "norm" in name:
            values = 0.3 * values + (model.config.model_type == "lfm2")  # the others are stored minus one
        elif name.endswith("A_log"):
            values = 1.5 * values - 1
        elif name.endswith("bias"):
            values = 0.5 * values
        elif "embed_tokens" in name:
            values = values * (0.3 if tied else 1.0)
        else:
            values = values * next((g for key, g in gain.items() if key in name), 1.0) / parameter.shape[-1] ** 0.5
        with torch.no_grad():
            parameter.copy_(values)


def add_next_token_tensors(name: str) -> None:
    """Adds tensors with published names that predict further tokens."""
    file = ROOT / "models" / name / "model.safetensors"
    generator = torch.Generator().manual_seed(99)
    more = {"mtp.fc.weight": (48, 96), "mtp.norm.weight": (48,), "mtp.layers.0.self_attn.k_proj.weight": (32, 48)}
    tensors = load_file(file) | {key: torch.randn(shape, generator=generator).to(torch.bfloat16) for key, shape in more.items()}
    save_file(tensors, file, metadata={"format": "pt"})


def check_convolutions(name: str) -> None:
    """Checks that tokens before a row's own affect the logits through the convolutions."""
    tokens = load_file(ROOT / "models" / name / "golden.safetensors")["tokens"]
    model = load(name)
    logits = full(model, tokens)
    with torch.no_grad():
        for layer in model.model.layers:
            if hasattr(layer, "conv"):
                layer.conv.conv.weight[..., :-1] = 0
    change = float((full(model, tokens) - logits).abs().max())
    print(f"  largest change without convolutions {change:.2f}")
    assert change > 0.1, change


def check_parts(name: str) -> None:
    """Checks that each part of the layers affects the logits."""
    tokens = load_file(ROOT / "models" / name / "golden.safetensors")["tokens"]
    logits, changes = full(load(name), tokens), {}
    edits = {
        "decay": lambda part: part.A_log.data.fill_(-9.0),
        "time step": lambda part: part.dt_bias.data.zero_(),
        "rate": lambda part: (part.in_proj_ba if hasattr(part, "in_proj_ba") else part.in_proj_b).weight.data.zero_(),
        "convolution": lambda part: part.conv1d.weight.data[..., :-1].zero_(),
        "norm": lambda part: part.norm.weight.data.fill_(1.0),
        "output gate": lambda part: part.q_proj.weight.data.view(4, 2, 16, 48)[:, 1].zero_(),
        "shared gate": lambda part: part.shared_expert_gate.weight.data.zero_(),
        "shared expert": lambda part: part.shared_expert.down_proj.weight.data.zero_(),
    }
    parts = {"output gate": "self_attn", "shared gate": "mlp", "shared expert": "mlp"}
    for what, edit in edits.items():
        model = load(name)
        layers = [getattr(layer, parts.get(what, "linear_attn"), None) for layer in model.model.layers]
        if what.startswith("shared") and not hasattr(layers[0], "shared_expert"):
            continue
        with torch.no_grad():
            for part in filter(None, layers):
                edit(part)
        changes[what] = round(float((full(model, tokens) - logits).abs().max()), 2)
    print(f"  largest changes without {changes}")
    assert min(changes.values()) > 0.1, changes


def tiled(rows: np.ndarray, config: PreTrainedConfig, width: int) -> np.ndarray:
    """Value heads of `width` rows from the order of their key heads to groups with one of every key head."""
    heads = config.linear_num_key_heads
    return rows.reshape(heads, -1, width, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)


def untiled(rows: np.ndarray, config: PreTrainedConfig, width: int) -> np.ndarray:
    """The reverse of `tiled`."""
    heads = config.linear_num_key_heads
    return rows.reshape(-1, heads, width, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)


def reordered(name: str, weights: np.ndarray, config: PreTrainedConfig, order) -> np.ndarray:
    """The order of value heads in a tensor of a gated delta net."""
    width, keys = config.linear_value_head_dim, 2 * config.linear_num_key_heads * config.linear_key_head_dim
    if "in_proj_qkv" in name or "conv1d" in name:
        return np.concatenate([weights[:keys], order(weights[keys:], config, width)])
    if "in_proj_z" in name:
        return order(weights, config, width)
    if name.endswith(("in_proj_b.weight", "in_proj_a.weight", "A_log", "dt_bias")):
        return order(weights, config, 1)
    return order(weights.T, config, width).T if "out_proj" in name else weights


def converted(name: str, weights: np.ndarray, config: PreTrainedConfig) -> np.ndarray:
    """A tensor as llama.cpp's converter stores it, before quantisation."""
    if "linear_attn" in name and config.model_type.startswith("qwen3_5"):
        weights = reordered(name, weights, config, tiled)
    if name.endswith("A_log"):
        return -np.exp(weights)
    if "conv1d" in name or "conv.conv" in name:
        return weights[:, 0]
    return weights + 1 if is_stored_minus_one(name, config) else weights


def is_stored_minus_one(name: str, config: PreTrainedConfig) -> bool:
    """Whether checkpoints store a norm's weights minus one, and GGUF files as they are."""
    return name.endswith("norm.weight") and "linear_attn" not in name and config.model_type != "lfm2"


def restored(name: str, weights: np.ndarray, config: PreTrainedConfig) -> np.ndarray:
    """The reverse of `converted`."""
    if name.endswith("A_log"):
        weights = np.log(-weights)
    elif "conv1d" in name or "conv.conv" in name:
        weights = weights[:, None]
    elif is_stored_minus_one(name, config):
        weights = weights - 1
    return reordered(name, weights, config, untiled) if "linear_attn" in name and config.model_type.startswith("qwen3_5") else weights


def split_heads(weights: np.ndarray, config: PreTrainedConfig) -> tuple[np.ndarray, list[np.ndarray]]:
    """Rows of `in_proj_qkvz` as queries, keys and values of all heads, and gates; also the indices of these rows."""
    heads, values = config.linear_num_key_heads, config.linear_num_value_heads // config.linear_num_key_heads * config.linear_value_head_dim
    places = np.arange(len(weights)).reshape(heads, -1)
    q, k, v, z = np.split(places, np.cumsum([config.linear_key_head_dim] * 2 + [values]), axis=1)
    places = [np.concatenate([part.ravel() for part in (q, k, v)]), z.ravel()]
    return [weights[rows] for rows in places], places


def write_metadata(writer: GGUFWriter, config: PreTrainedConfig) -> None:
    """Metadata as in llama.cpp's converter."""
    if config.model_type == "lfm2":
        write_convolution_metadata(writer, config)
        return
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    if config.model_type != "qwen3_5_moe_text":
        writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(int(config.head_dim * config.rope_parameters["partial_rotary_factor"]))
    if config.model_type != "qwen3_next":
        writer.add_rope_dimension_sections([2, 1, 1, 0])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_ssm_state_size(config.linear_key_head_dim)
    writer.add_ssm_group_count(config.linear_num_key_heads)
    writer.add_ssm_time_step_rank(config.linear_num_value_heads)
    writer.add_ssm_inner_size(config.linear_value_head_dim * config.linear_num_value_heads)
    writer.add_uint32(f"{writer.arch}.full_attention_interval", 4)
    if config.model_type == "qwen3_5_text":
        writer.add_array(f"{writer.arch}.attention.recurrent_layers", [kind == "linear_attention" for kind in config.layer_types])
    if "moe" in config.model_type or config.model_type == "qwen3_next":
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)


def write_convolution_metadata(writer: GGUFWriter, config: PreTrainedConfig) -> None:
    """Layers without keys are convolutions."""
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(96)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv([config.num_key_value_heads if kind == "full_attention" else 0 for kind in config.layer_types])
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_shortconv_l_cache(config.conv_L_cache)
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)


def write_gguf(path: Path, model: PreTrainedModel) -> None:
    """Metadata, vocabulary and tensors; copies the file's weights into the model."""
    config, arch, _ = GGUF[path.parent.name]
    writer = GGUFWriter(path, MODEL_ARCH_NAMES[arch])
    writer.add_name(path.parent.name)
    write_metadata(writer, config)
    tiny_tokenizers.add_byte_level(writer, tiny_tokenizers.byte_level("qwen2", 600, []), "qwen2")
    names = get_tensor_name_map(arch, config.num_hidden_layers)

    def add(name: str, weights: np.ndarray) -> np.ndarray:
        exact = weights.ndim == 1 or name.endswith(("mlp.gate.weight", "shared_expert_gate.weight", "conv1d.weight", "conv.conv.weight"))
        # Experts one by one, because gguf-py quantises matrices.
        parts = [stored(name, np.ascontiguousarray(part), "F32" if exact else "Q8_0", 0) for part in (weights if weights.ndim == 3 else [weights])]
        raw, kind = (np.stack([raw for raw, _ in parts]) if weights.ndim == 3 else parts[0][0]), parts[0][1]
        # The converter writes matrices of one row as vectors.
        shape = raw[0] if name.endswith("shared_expert_gate.weight") else raw
        own = names.get_name(name.replace("dt_bias", "dt_proj.bias"), try_suffixes=(".weight", ".bias"))
        assert own, name
        writer.add_tensor(own, shape, raw_dtype=kind)
        return dequantize(raw, kind).reshape(weights.shape)

    for name, parameter in model.state_dict().items():
        if config.tie_word_embeddings and name == "lm_head.weight":
            continue
        weights = parameter.numpy()
        stem = name.rpartition(".")[0]
        if "in_proj_qkvz" in name:
            (mixed, gates), places = split_heads(weights, config)
            back = np.empty_like(weights)
            back[places[0]] = add(name.replace("qkvz", "qkv"), mixed)
            back[places[1]] = add(name.replace("qkvz", "z"), gates)
        elif name.endswith("experts.gate_up_proj"):
            gate, up = np.split(weights, 2, axis=1)
            back = np.concatenate([add(f"{stem}.gate_proj.weight", gate), add(f"{stem}.up_proj.weight", up)], axis=1)
        elif name.endswith("experts.down_proj"):
            back = add(f"{name}.weight", weights)
        else:
            back = restored(name, add(name, converted(name, weights, config)), config)
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(back)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf(name: str) -> None:
    """One GGUF checkpoint, and the logits of its file's weights."""
    config, _, seed = GGUF[name]
    folder = ROOT / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    seed_weights(model, seed)
    write_gguf(folder / "model.gguf", model)
    tokens = torch.randint(3, 600, (96,), generator=torch.Generator().manual_seed(1000 + seed))
    logits = full(model, tokens)
    gap = (full(model.double(), tokens) - logits).abs().max()
    top = logits.softmax(-1).amax(-1)
    print(f"{name}: against float64 {gap:.1e}, logits std {logits.std():.2f}, top-1 {top.min():.2f} … {top.median():.2f} … {top.max():.2f}")
    assert gap < 5e-5, gap
    record = metadata(2e-4, seed, "torch", "transformers", "gguf")
    save_file({"tokens": tokens, "logits": logits.contiguous()}, folder / "golden.safetensors", metadata=record)


def main() -> None:
    """All tiny checkpoints, or the given ones."""
    torch.set_num_threads(1)
    make_tiny_models.MODELS |= MODELS
    make_tiny_models.seed_weights = seed_weights
    wanted = sys.argv[1:] or [*MODELS, *GGUF]
    for index, name in enumerate(MODELS):
        if name not in wanted:
            continue
        seed = 200 + index if name != "qwen3_5_moe" else 210
        save(name, seed)
        golden(name, seed)
        if name.endswith(("next", "text")):
            check_parts(name)
        if name == "lfm2":
            check_convolutions(name)
        if name in ("qwen3_next", "qwen3_5"):
            add_next_token_tensors(name)
    for name in GGUF:
        if name in wanted:
            gguf(name)


if __name__ == "__main__":
    main()
