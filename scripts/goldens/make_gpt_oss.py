"""Tiny gpt-oss checkpoints and their logits by transformers 5 (requirements-5.txt): tests/goldens/models/{gpt_oss,…}/.

`gpt_oss` has MXFP4 blocks and a configuration as published, `gpt_oss-floats` the format of a dequantised model as
transformers saves it, and `gguf-gpt-oss` the metadata and tensors of llama.cpp's converter. Blocks are quantised by
gguf-py. transformers dequantises those of `gpt_oss`, gguf-py those of `gguf-gpt-oss`, and the model then computes in
f32 (eager attention). With names as arguments, only these are written.
"""

import json
import shutil
import sys

import numpy as np
import torch
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFWriter, LlamaFileType, RopeScalingType, get_tensor_name_map
from gguf.quants import dequantize, quantize
from safetensors.torch import load_file, save_file
from transformers import GptOssConfig, GptOssForCausalLM, Mxfp4Config

import tiny_tokenizers
from provenance import ROOT, metadata

LENGTH = 96
TOLERANCE = 2e-4
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 4.0, "beta_slow": 1.0, "truncate": False}
SHAPE = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "sliding_window": 24,
    "max_position_embeddings": 256,
    "rope_parameters": YARN | {"rope_theta": 150000.0},
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 1,
}
# name: (seed, rows of the vocabulary, layers)
MODELS = {"gpt_oss": (200, 320, 4), "gpt_oss-floats": (201, 320, 2), "gguf-gpt-oss": (202, 600, 4)}
ALL = slice(None)
PARTS = [("gate_up_proj", "gate_proj", slice(0, None, 2)), ("gate_up_proj", "up_proj", slice(1, None, 2)), ("down_proj", "down_proj", ALL)]


def seeded(seed: int, vocabulary: int, layers: int) -> GptOssForCausalLM:
    """A model with peaked attention, varied logits, and relevant sinks, biases and limits."""
    config = GptOssConfig(**SHAPE | {"vocab_size": vocabulary, "num_hidden_layers": layers})
    model = GptOssForCausalLM._from_config(config, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(seed)
    gains = {"q_proj": 1.4, "k_proj": 1.4, "lm_head": 2.0, "gate_up_proj": 3.5, "down_proj": 0.3}
    for name, parameter in sorted(model.named_parameters()):
        values = torch.randn(parameter.shape, generator=generator)
        if "norm" in name or name.endswith("sinks"):
            values = 0.3 * values + 1.0
        elif name.endswith("bias"):
            values = 0.5 * values
        elif "embed_tokens" not in name:
            values = values * next((gain for key, gain in gains.items() if key in name), 1.0) / parameter.shape[1] ** 0.5
        with torch.no_grad():
            parameter.copy_(values)
    return model


def blocks_of(weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """MXFP4 of `(experts, in, out)` in the layout of the published safetensors: neighbours share a byte."""
    rows = weights.float().transpose(1, 2).contiguous().numpy()
    raw = quantize(rows, GGMLQuantizationType.MXFP4).reshape(*rows.shape[:2], -1, 17)
    codes = np.concatenate([raw[..., 1:] & 15, raw[..., 1:] >> 4], axis=-1)
    blocks = codes[..., 0::2] | codes[..., 1::2] << 4
    return torch.from_numpy(np.ascontiguousarray(blocks)), torch.from_numpy(np.ascontiguousarray(raw[..., 0]))


def publish(folder) -> None:
    """Rewrites a saved checkpoint in the format of the published models."""
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        tensors[f"{name}_blocks"], tensors[f"{name}_scales"] = blocks_of(tensors.pop(name))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config |= {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope, "torch_dtype": config.pop("dtype")}
    config |= {"experts_per_token": config["num_experts_per_tok"], "initial_context_length": rope["original_max_position_embeddings"]}
    config |= {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}}
    config.pop("swiglu_alpha")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def save(name: str) -> None:
    """Writes a folder for transformers."""
    folder = ROOT / "models" / name
    shutil.rmtree(folder, ignore_errors=True)
    model = seeded(*MODELS[name])
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if name == "gpt_oss":
        publish(folder)
    tiny_tokenizers.write_folder(tiny_tokenizers.byte_level("smollm", MODELS[name][1], []), folder)


def load(name: str) -> GptOssForCausalLM:
    """The saved folder in f32."""
    dequantised = {"quantization_config": Mxfp4Config(dequantize=True)} if name == "gpt_oss" else {}
    folder = ROOT / "models" / name
    return GptOssForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", **dequantised).eval()


def write_metadata(writer: GGUFWriter, config: GptOssConfig) -> None:
    """Metadata as in llama.cpp's converter."""
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_scaling_type(RopeScalingType.YARN)
    writer.add_rope_scaling_factor(YARN["factor"])
    writer.add_rope_scaling_orig_ctx_len(YARN["original_max_position_embeddings"])
    writer.add_rope_scaling_yarn_beta_fast(YARN["beta_fast"])
    writer.add_rope_scaling_yarn_beta_slow(YARN["beta_slow"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_sliding_window(config.sliding_window)
    writer.add_expert_count(config.num_local_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(config.intermediate_size)
    writer.add_file_type(LlamaFileType.MOSTLY_MXFP4_MOE)


def write_gguf(name: str) -> GptOssForCausalLM:
    """Writes a GGUF file. Returns a model with its weights as gguf-py reads them."""
    model, folder = seeded(*MODELS[name]), ROOT / "models" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    writer = GGUFWriter(folder / "model.gguf", "gpt-oss")
    writer.add_name(name)
    write_metadata(writer, model.config)
    tiny_tokenizers.add_byte_level(writer, tiny_tokenizers.byte_level("smollm", model.config.vocab_size, []), "smollm")
    names = get_tensor_name_map(MODEL_ARCH.GPT_OSS, model.config.num_hidden_layers)

    def add(of: str, values: torch.Tensor, kind: str) -> torch.Tensor:
        values = np.ascontiguousarray(values.numpy())
        raw = values if kind == "F32" else quantize(values, GGMLQuantizationType[kind])
        writer.add_tensor(names.get_name(of, try_suffixes=(".weight", ".bias")), raw, raw_dtype=GGMLQuantizationType[kind])
        return torch.from_numpy(dequantize(raw, GGMLQuantizationType[kind]).reshape(values.shape))

    with torch.no_grad():
        for of, parameter in model.state_dict().items():
            experts, _, last = of.rpartition(".experts.")
            if not experts:
                of = f"{of}.weight" if of.endswith("sinks") else of
                parameter.copy_(add(of, parameter, "F32" if parameter.ndim == 1 or "router" in of else "Q8_0"))
                continue
            for together, part, rows in PARTS:
                if last == together:
                    back = add(f"{experts}.experts.{part}.weight", parameter[..., rows].transpose(1, 2), "MXFP4")
                    parameter[..., rows] = back.transpose(1, 2)
                elif last == f"{together}_bias":
                    add(f"{experts}.experts.{part}.bias", parameter[..., rows], "F32")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def full(model: GptOssForCausalLM, tokens: torch.Tensor) -> torch.Tensor:
    """Logits at all positions in one pass without a cache."""
    with torch.no_grad():
        return model(tokens[None], use_cache=False).logits[0]


def cached(model: GptOssForCausalLM, tokens: torch.Tensor, chunk: int) -> torch.Tensor:
    """Logits at all positions, `chunk` tokens at a time with a cache."""
    rows, past = [], None
    with torch.no_grad():
        for part in tokens.split(chunk):
            out = model(part[None], past_key_values=past, use_cache=True)
            past = out.past_key_values
            rows.append(out.logits[0])
    return torch.cat(rows)


def check_parts(make, tokens: torch.Tensor, logits: torch.Tensor) -> None:
    """Checks that each part that other architectures lack affects the logits."""

    def change(edit) -> float:
        model = make()
        for layer in model.model.layers:
            edit(layer)
        return float((full(model, tokens) - logits).abs().max())

    def limit(layer, value: float) -> None:
        layer.mlp.experts.limit = value

    changes = {
        "sinks": change(lambda layer: layer.self_attn.sinks.data.fill_(-1e9)),
        "bias of the router": change(lambda layer: layer.mlp.router.bias.data.zero_()),
        "biases of experts": change(lambda layer: layer.mlp.experts.gate_up_proj_bias.data.zero_()),
        "limit": change(lambda layer: limit(layer, 1e9)),
        "factor": change(lambda layer: setattr(layer.mlp.experts, "alpha", 1.0)),
    }
    for name, edit in [("ends of the ramp", {"truncate": True}), ("scaling", {"rope_type": "default"})]:
        model = make()
        config = GptOssConfig(**SHAPE | {"vocab_size": model.config.vocab_size, "rope_parameters": SHAPE["rope_parameters"] | edit})
        model.model.rotary_emb = type(model.model.rotary_emb)(config)
        changes[name] = float((full(model, tokens) - logits).abs().max())
    print("  largest changes: " + ", ".join(f"{name} {change:.2f}" for name, change in changes.items()))
    assert min(changes.values()) > 0.02, changes


def golden(name: str) -> None:
    """Writes one checkpoint, cross-checks its values and writes them."""
    seed, vocabulary, _ = MODELS[name]
    is_gguf = name.startswith("gguf")
    make = (lambda: write_gguf(name)) if is_gguf else (lambda: load(name))
    if not is_gguf:
        save(name)
    tokens = torch.randint(3, vocabulary, (LENGTH,), generator=torch.Generator().manual_seed(1000 + seed))
    model = make()
    logits, steps = full(model, tokens), cached(model, tokens, 1)
    gaps = [(steps - logits).abs().max(), (cached(model, tokens, 7) - logits).abs().max()]
    top = logits.softmax(-1).amax(-1)
    print(f"{name}: cached {gaps[0]:.1e}, chunks of 7 {gaps[1]:.1e}, against float64 ", end="")
    check = make().double()
    gaps.append((full(check, tokens) - logits).abs().max())
    print(f"{gaps[2]:.1e}\n  logits std {logits.std():.2f}; top-1 {top.min():.2f} … {top.median():.2f} … {top.max():.2f}")
    assert max(gaps) <= 5e-5, gaps
    assert top.max() - top.min() > 0.3, "logits too uniform"
    check_parts(make, tokens, logits)
    record = metadata(TOLERANCE, seed, "torch", "transformers", "safetensors", "gguf")
    tensors = {"tokens": tokens, "logits": logits.contiguous()} | ({} if is_gguf else {"logits_cached": steps.contiguous()})
    save_file(tensors, ROOT / "models" / name / "golden.safetensors", metadata=record)


def main() -> None:
    """All checkpoints, or the given ones."""
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MODELS:
        golden(name)


if __name__ == "__main__":
    main()
