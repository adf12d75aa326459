"""Seeded tiny checkpoints of Gemma 4 and their logits by transformers 5 (requirements-5.txt), in the form of
make_tiny_models.py: tests/goldens/models/<name>/.

`gemma4` has the form of published checkpoints. `gguf-gemma4` is a `model.gguf` in Q8_0 with llama.cpp's names; its
logits are those of transformers' model with the weights that gguf-py reads back. With names as arguments, only these
are written.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFWriter, get_tensor_name_map
from gguf.quants import dequantize, quantize
from safetensors.torch import load_file, save_file
from transformers import Gemma4Config, Gemma4ForCausalLM, Gemma4ForConditionalGeneration, Gemma4TextConfig, PreTrainedModel

import tiny_tokenizers
from make_tiny_models import LENGTH, TOLERANCE, VOCAB, WINDOW, cached, full
from provenance import ROOT, metadata

SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 1,
}
GEMMA4 = SHAPE | {
    "global_head_dim": 32,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "final_logit_softcapping": 20.0,
    "vocab_size_per_layer_input": VOCAB,
}
INPUTS_AND_SHARED_KEYS = {"hidden_size_per_layer_input": 12, "num_kv_shared_layers": 3, "use_double_wide_mlp": True}
KEYS_AS_VALUES = {"hidden_size_per_layer_input": 0, "attention_k_eq_v": True, "num_global_key_value_heads": 1, "use_bidirectional_attention": "vision"}
# Parts of multimodal models besides the text model, which are not used.
VISION = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4, "position_embedding_size": 16}
AUDIO = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "subsampling_conv_channels": [4, 2], "output_proj_dims": 8}
# The first token of images and sound.
MEDIA = 300
Q8 = SHAPE | {"vocab_size": 600, "hidden_size": 128, "intermediate_size": 128, "head_dim": 32}

# name: (model class, configuration, dtype on disk). The index of an entry is its seed, so new ones are added at the
# end.
MODELS = {
    "gemma4_text": (Gemma4ForCausalLM, Gemma4TextConfig(**GEMMA4 | INPUTS_AND_SHARED_KEYS), torch.bfloat16),
    "gemma4-keys-as-values": (Gemma4ForCausalLM, Gemma4TextConfig(**GEMMA4 | KEYS_AS_VALUES), torch.bfloat16),
    "gemma4": (
        Gemma4ForConditionalGeneration,
        Gemma4Config(
            text_config=GEMMA4 | INPUTS_AND_SHARED_KEYS | {"model_type": "gemma4_text"},
            vision_config=VISION,
            audio_config=AUDIO,
            image_token_id=MEDIA,
            boi_token_id=MEDIA + 1,
            eoi_token_id=MEDIA + 2,
            audio_token_id=MEDIA + 3,
            boa_token_id=MEDIA + 4,
            eoa_token_index=MEDIA + 5,
            video_token_id=MEDIA + 6,
        ),
        torch.bfloat16,
    ),
    "gguf-gemma4": (
        Gemma4ForCausalLM,
        Gemma4TextConfig(
            **Q8
            | INPUTS_AND_SHARED_KEYS
            | {key: GEMMA4[key] for key in ["layer_types", "sliding_window", "final_logit_softcapping"]}
            | {"global_head_dim": 64, "hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": 600, "attention_k_eq_v": True, "num_global_key_value_heads": 1}
        ),
        torch.float32,
    ),
}


def text_config(model: PreTrainedModel) -> Gemma4TextConfig:
    """The configuration of the text model."""
    return model.config.get_text_config()


def seed_weights(model: PreTrainedModel, seed: int) -> None:
    """Random weights far from initialisation: peaked attention, varied logits, and relevant norms and factors."""
    generator = torch.Generator().manual_seed(seed)
    factors = [(name, buffer) for name, buffer in model.named_buffers() if name.endswith("layer_scalar")]
    for name, parameter in sorted([*model.named_parameters(), *factors]):
        values = torch.randn(parameter.shape, generator=generator)
        if name.endswith("layer_scalar"):
            values = 0.9 + 0.1 * values
        elif "norm" in name:
            values = 1.0 + 0.3 * values
        elif name.endswith("bias"):
            values = 0.5 * values
        elif "embed_tokens" in name:
            values = 0.3 * values
        else:
            values = values / parameter.shape[-1] ** 0.5
        with torch.no_grad():
            parameter.copy_(values)


def publish(folder: Path, seed: int) -> None:
    """The form of published checkpoints: the sizes of global layers as fields, and keys and values in all layers."""
    written = json.loads((folder / "config.json").read_text())
    text = written.get("text_config", written)
    (changes,) = {json.dumps(change) for change in text.pop("per_layer_config").values()}
    changes = json.loads(changes)
    text |= {"global_head_dim": changes["head_dim"], "num_global_key_value_heads": changes.get("num_key_value_heads")}
    (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    path, generator = folder / "model.safetensors", torch.Generator().manual_seed(2000 + seed)
    tensors = load_file(path)
    layers = [name for name in tensors if "language_model" in name and name.endswith("q_proj.weight")]
    for name in sorted(layers):
        heads = text["num_key_value_heads"] / text["num_attention_heads"]
        rows, width = tensors[name].shape
        for other in ["k_proj", "v_proj"]:
            unused = torch.randn(int(rows * heads), width, generator=generator).to(tensors[name].dtype)
            tensors.setdefault(name.replace("q_proj", other), unused)
        tensors.setdefault(name.replace("q_proj", "k_norm"), tensors[name.replace("q_proj", "q_norm")].clone())
    save_file(tensors, path, metadata={"format": "pt"})


def save(name: str, seed: int) -> None:
    """Writes the checkpoint with the dtype of its entry."""
    cls, config, dtype = MODELS[name]
    folder = ROOT / "models" / name
    shutil.rmtree(folder, ignore_errors=True)
    model = cls(config)
    seed_weights(model, seed)
    model.to(dtype).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if name == "gemma4":
        publish(folder, seed)
    tiny_tokenizers.write_folder(tiny_tokenizers.byte_level("smollm", VOCAB, []), folder)


def load(name: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The saved checkpoint, widened."""
    return MODELS[name][0].from_pretrained(ROOT / "models" / name, dtype=dtype, attn_implementation="eager").eval()


def golden(name: str, seed: int) -> None:
    """Computes, cross-checks and writes the golden values of one checkpoint."""
    # A multimodal model replaces tokens of images and sound.
    tokens = torch.randint(3, MEDIA if name == "gemma4" else VOCAB, (LENGTH,), generator=torch.Generator().manual_seed(1000 + seed))
    model = load(name)
    logits, steps, wide = full(model, tokens), cached(model, tokens, 1), full(load(name, torch.float64), tokens)
    gaps = [(steps - logits).abs().max(), (cached(model, tokens, 7) - logits).abs().max(), (wide - logits).abs().max()]
    report(name, gaps, logits)
    check_parts(name, tokens, logits)
    tensors = {"tokens": tokens, "logits": logits.contiguous(), "logits_cached": steps.contiguous()}
    record = metadata(TOLERANCE, seed, "torch", "transformers", "safetensors")
    save_file(tensors, ROOT / "models" / name / "golden.safetensors", metadata=record)


def report(name: str, gaps: list[torch.Tensor], logits: torch.Tensor) -> None:
    """Checks that rounding is small and that logits vary."""
    top = logits.softmax(-1).amax(-1)
    print(f"{name}: {', '.join(f'{gap:.1e}' for gap in gaps)} against cached, chunks and float64 passes")
    print(f"  logits std {logits.std():.2f}; top-1 probability {top.min():.2f} … {top.median():.2f} … {top.max():.2f}")
    assert max(gaps) <= 5e-5, gaps  # float32 rounding; the project allows TOLERANCE
    assert top.max() - top.min() > 0.3, "logits too uniform"


def check_parts(name: str, tokens: torch.Tensor, logits: torch.Tensor) -> None:
    """Checks that each part of the architecture affects the logits."""

    def change(what: str, alter) -> None:
        model = load(name)
        text = getattr(model.model, "language_model", model.model)
        alter(model, text)
        change = (full(model, tokens) - logits).abs().max()
        print(f"  {what}: largest change {change:.3f}")
        assert change > 0.1, what

    def window(model: PreTrainedModel, text: torch.nn.Module) -> None:
        text_config(model).sliding_window = 256
        for layer in text.layers:
            layer.self_attn.sliding_window = layer.self_attn.sliding_window and 256

    change("window", window)
    change("norms of values", lambda _, text: [setattr(layer.self_attn, "v_norm", torch.nn.Identity()) for layer in text.layers[:3]])
    change("factors of layers", lambda _, text: [layer.layer_scalar.fill_(1.0) for layer in text.layers])
    if text_config(load(name)).hidden_size_per_layer_input:
        change("inputs of layers", lambda _, text: text.embed_tokens_per_layer.weight.data.zero_())


def gemma4_metadata(writer: GGUFWriter, config: Gemma4TextConfig) -> None:
    """Metadata as in llama.cpp's converter."""
    sliding = [kind == "sliding_attention" for kind in config.layer_types]
    layers = [config.per_layer_config[layer] for layer in range(config.num_hidden_layers)]
    windowed, unlimited = layers[sliding.index(True)], layers[sliding.index(False)]
    own = config.num_hidden_layers - config.num_kv_shared_layers
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length([config.intermediate_size * (1 if layer < own else 2) for layer in range(config.num_hidden_layers)])
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv([layer.num_key_value_heads for layer in layers])
    writer.add_rope_freq_base(config.rope_parameters["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_key_length(unlimited.head_dim)
    writer.add_value_length(unlimited.head_dim)
    writer.add_key_length_swa(windowed.head_dim)
    writer.add_value_length_swa(windowed.head_dim)
    writer.add_final_logit_softcapping(config.final_logit_softcapping)
    writer.add_sliding_window(config.sliding_window)
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input)
    writer.add_sliding_window_pattern(sliding)
    writer.add_rope_dimension_count(unlimited.head_dim)
    writer.add_rope_dimension_count_swa(windowed.head_dim)
    rotated = int(unlimited.head_dim * config.rope_parameters["full_attention"]["partial_rotary_factor"] / 2)
    factors = [1.0] * rotated + [1e30] * (unlimited.head_dim // 2 - rotated)
    writer.add_tensor("rope_freqs.weight", np.array(factors, dtype=np.float32), raw_dtype=GGMLQuantizationType.F32)


def write_gguf(name: str, model: PreTrainedModel) -> None:
    """Metadata, vocabulary and tensors; copies the file's weights into the model."""
    config, arch, folder = text_config(model), MODEL_ARCH.GEMMA4, ROOT / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    writer = GGUFWriter(folder / "model.gguf", MODEL_ARCH_NAMES[arch])
    writer.add_name(name)
    gemma4_metadata(writer, config)
    tiny_tokenizers.add_byte_level(writer, tiny_tokenizers.byte_level("smollm", config.vocab_size, []), "smollm")
    names = get_tensor_name_map(arch, config.num_hidden_layers)
    for key, tensor in model.state_dict().items():
        if config.tie_word_embeddings and key == "lm_head.weight":
            continue
        kind = GGMLQuantizationType.F32 if tensor.ndim == 1 else GGMLQuantizationType.Q8_0
        raw = tensor.numpy() if tensor.ndim == 1 else quantize(tensor.numpy(), kind)
        tensor.copy_(torch.from_numpy(dequantize(raw, kind).reshape(tensor.shape).copy()))
        # The converter adds this ending to the factor of a layer.
        writer.add_tensor(names.get_name(key.removesuffix(".weight")) + ".weight", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf(name: str, seed: int) -> None:
    """One GGUF checkpoint, and the logits of its file's weights."""
    cls, config, _ = MODELS[name]
    model = cls._from_config(config, attn_implementation="eager").eval()
    seed_weights(model, seed)
    write_gguf(name, model)
    tokens = torch.randint(3, config.vocab_size, (LENGTH,), generator=torch.Generator().manual_seed(1000 + seed))
    logits = full(model, tokens)
    report(name, [(full(model.double(), tokens) - logits).abs().max()], logits)
    record = metadata(TOLERANCE, seed, "torch", "transformers", "gguf")
    save_file({"tokens": tokens, "logits": logits.contiguous()}, ROOT / "models" / name / "golden.safetensors", metadata=record)


def main() -> None:
    """All checkpoints, or the given ones."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    for seed, name in enumerate(MODELS, start=100):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        if name.startswith("gguf"):
            gguf(name, seed)
        else:
            save(name, seed)
            golden(name, seed)


if __name__ == "__main__":
    main()
