"""Seeded tiny checkpoints and their logits by transformers (fp32, eager attention): tests/goldens/models/<name>/.

Each folder is a normal Hugging Face checkpoint with a byte-level tokenizer and a chat template, plus
`golden.safetensors`: `tokens` (96,) i64, `logits` (96, vocab) f32 of one full pass, and `logits_cached`, computed token
by token with a key-value cache. Values are computed from the saved files, after the rounding of 16-bit storage, so a
reader that widens to f32 must reproduce them. With names as arguments, only these are written.
"""

import json
import shutil
import sys

import torch
from safetensors.torch import save_file
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3Config,
    Gemma3ForCausalLM,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    Glm4Config,
    Glm4ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    HeliumConfig,
    HeliumForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MinistralConfig,
    MinistralForCausalLM,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    OlmoConfig,
    OlmoForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
    StableLmConfig,
    StableLmForCausalLM,
    Starcoder2Config,
    Starcoder2ForCausalLM,
)

import tiny_tokenizers
from provenance import ROOT, metadata

LENGTH = 96
VOCAB = 320
WINDOW = 24
TOLERANCE = 2e-4
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    # Wavelengths of 6, 20 and 63+ positions: one kept, one blended, the others stretched, all within 96 positions.
    "original_max_position_embeddings": 32,
}
FACTORS = {"embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.7, "logits_scaling": 2.5}
GEMMA = SHAPE | {"num_hidden_layers": 4, "head_dim": 24, "query_pre_attn_scalar": 30, "sliding_window": WINDOW, "pad_token_id": 1}
# Parts of multimodal models besides the text model, which are not used.
SIGLIP = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8, "patch_size": 4, "vision_use_head": False}
PIXTRAL = {"model_type": "pixtral", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8, "patch_size": 4}
GEMMA3_LAYERS = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 4.0, "beta_slow": 1.0}
# Texts up to 128 tokens use the short factors.
LONGROPE = {
    "max_position_embeddings": 1024,
    "original_max_position_embeddings": 128,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.7, 2.2, 3.0], "long_factor": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]},
}

# Models with norms of mean and variance, or with norms without weights.
PLAIN = {key: value for key, value in SHAPE.items() if key != "rms_norm_eps"} | {"num_hidden_layers": 2}

# name: (model class, configuration, dtype on disk, largest shard, fields absent from the written config.json). The
# index of an entry is its seed, so new ones are added at the end.
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SHAPE), torch.float32, "400KB", ["head_dim"]),
    "llama3-rope": (
        LlamaForCausalLM,
        LlamaConfig(**SHAPE | {"rope_scaling": LLAMA3, "rope_theta": 10000.0, "num_hidden_layers": 4}),
        torch.bfloat16,
        "1GB",
        [],
    ),
    "mistral-window": (
        MistralForCausalLM,
        MistralConfig(**SHAPE | {"sliding_window": WINDOW, "rms_norm_eps": 1e-6}),
        torch.float16,
        "1GB",
        ["head_dim"],
    ),
    "qwen2": (
        Qwen2ForCausalLM,
        Qwen2Config(**SHAPE | {"rope_theta": 1000000.0, "intermediate_size": 160, "use_sliding_window": False}),
        torch.float32,
        "1GB",
        [],
    ),
    "llama-head-dim": (
        LlamaForCausalLM,
        LlamaConfig(**SHAPE | {"head_dim": 24, "tie_word_embeddings": True}),
        torch.float32,
        "1GB",
        [],
    ),
    "qwen3": (
        Qwen3ForCausalLM,
        Qwen3Config(**SHAPE | {"rope_theta": 1000000.0, "head_dim": 24, "rms_norm_eps": 1e-6}),
        torch.bfloat16,
        "1GB",
        [],
    ),
    "granite": (
        GraniteForCausalLM,
        GraniteConfig(**SHAPE | FACTORS | {"rope_theta": 10000000.0, "tie_word_embeddings": True}),
        torch.bfloat16,
        "1GB",
        [],
    ),
    "olmo2": (Olmo2ForCausalLM, Olmo2Config(**SHAPE | {"rope_theta": 500000.0, "rms_norm_eps": 1e-6, "pad_token_id": 1}), torch.bfloat16, "1GB", []),
    "smollm3": (
        SmolLM3ForCausalLM,
        SmolLM3Config(**SHAPE | {"num_hidden_layers": 4, "rope_theta": 50000.0, "rms_norm_eps": 1e-6, "pad_token_id": 1}),
        torch.bfloat16,
        "1GB",
        [],
    ),
    "phi3": (Phi3ForCausalLM, Phi3Config(**SHAPE | {"sliding_window": WINDOW, "pad_token_id": 1}), torch.bfloat16, "1GB", []),
    "gemma2": (
        Gemma2ForCausalLM,
        Gemma2Config(**GEMMA | {"attn_logit_softcapping": 4.0, "final_logit_softcapping": 20.0}),
        torch.bfloat16,
        "1GB",
        [],
    ),
    "gemma3_text": (
        Gemma3ForCausalLM,
        Gemma3TextConfig(**GEMMA | {"rope_theta": 1000000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "layer_types": GEMMA3_LAYERS}),
        torch.bfloat16,
        "1GB",
        [],
    ),
    "ministral": (
        MinistralForCausalLM,
        MinistralConfig(**SHAPE | {"head_dim": 16, "sliding_window": WINDOW, "layer_types": ["full_attention", "sliding_attention", "full_attention"]}),
        torch.bfloat16,
        "1GB",
        [],
    ),
    "mixtral": (MixtralForCausalLM, MixtralConfig(**SHAPE | {"num_local_experts": 5}), torch.bfloat16, "1GB", []),
    "qwen3_moe": (
        Qwen3MoeForCausalLM,
        Qwen3MoeConfig(**SHAPE | {"head_dim": 24, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 48, "norm_topk_prob": True}),
        torch.bfloat16,
        "1GB",
        [],
    ),
    "mistral-yarn": (
        MistralForCausalLM,
        MistralConfig(**SHAPE | {"head_dim": 16, "sliding_window": None, "rope_scaling": YARN}),
        torch.bfloat16,
        "1GB",
        [],
    ),
    "phi3-longrope": (
        Phi3ForCausalLM,
        Phi3Config(**SHAPE | LONGROPE | {"partial_rotary_factor": 0.75, "tie_word_embeddings": True, "pad_token_id": 1}),
        torch.bfloat16,
        "1GB",
        [],
    ),
    # Run by candle-transformers, except glm4.
    "gemma": (
        GemmaForCausalLM,
        GemmaConfig(**SHAPE | {"num_hidden_layers": 2, "head_dim": 24, "pad_token_id": 1}),
        torch.bfloat16,
        "1GB",
        [],
    ),
    "phi": (PhiForCausalLM, PhiConfig(**PLAIN | {"partial_rotary_factor": 0.5}), torch.bfloat16, "1GB", []),
    "stablelm": (StableLmForCausalLM, StableLmConfig(**PLAIN | {"partial_rotary_factor": 0.25, "use_qkv_bias": True}), torch.bfloat16, "1GB", []),
    "starcoder2": (Starcoder2ForCausalLM, Starcoder2Config(**PLAIN | {"hidden_act": "gelu_pytorch_tanh"}), torch.bfloat16, "1GB", []),
    "olmo": (OlmoForCausalLM, OlmoConfig(**PLAIN | {"clip_qkv": 2.0, "pad_token_id": 1}), torch.bfloat16, "1GB", []),
    "glm4": (
        Glm4ForCausalLM,
        Glm4Config(**SHAPE | {"num_hidden_layers": 2, "head_dim": 16, "partial_rotary_factor": 0.5, "pad_token_id": 1}),
        torch.bfloat16,
        "1GB",
        [],
    ),
    "helium": (HeliumForCausalLM, HeliumConfig(**SHAPE | {"num_hidden_layers": 2, "head_dim": 16, "pad_token_id": 1}), torch.bfloat16, "1GB", []),
    # The text models of multimodal models.
    "gemma3": (
        Gemma3ForConditionalGeneration,
        Gemma3Config(
            text_config=GEMMA | {"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "layer_types": GEMMA3_LAYERS},
            vision_config=SIGLIP | {"model_type": "siglip_vision_model"},
            mm_tokens_per_image=1,
            image_token_index=300,
            boi_token_index=301,
            eoi_token_index=302,
        ),
        torch.bfloat16,
        "1GB",
        [],
    ),
    "mistral3": (
        Mistral3ForConditionalGeneration,
        Mistral3Config(text_config=SHAPE | {"model_type": "mistral", "head_dim": 16, "sliding_window": None}, vision_config=PIXTRAL, image_token_index=300),
        torch.bfloat16,
        "1GB",
        [],
    ),
}


def seed_weights(model: torch.nn.Module, seed: int) -> None:
    """Random weights far from initialisation: peaked attention, varied logits, and relevant norms and biases."""
    generator = torch.Generator().manual_seed(seed)
    tied = model.config.tie_word_embeddings
    for name, parameter in sorted(model.named_parameters()):
        values = torch.randn(parameter.shape, generator=generator)
        if "norm" in name or name.endswith("ln_pre.weight"):
            # Gemma stores them minus one.
            values = 0.3 * values + (0.0 if model.config.model_type.startswith("gemma") else 1.0)
        elif name.endswith("bias"):
            values = 0.5 * values
        elif "embed_tokens" in name:
            values = 0.3 * values if tied else values
        else:
            gain = {"q_proj": 1.4, "k_proj": 1.4, "lm_head": 2.0}
            if model.config.model_type == "gemma":
                # Its embeddings are scaled by √width, and its head is the embedding: otherwise only the last token
                # would matter.
                gain |= {"o_proj": 4.0, "down_proj": 4.0}
            # Tensors of all experts begin with the expert.
            width = parameter.shape[2 if parameter.dim() == 3 else 1]
            values = values * next((g for key, g in gain.items() if key in name), 1.0) / width**0.5
        with torch.no_grad():
            parameter.copy_(values)
    for name, buffer in sorted(model.named_buffers()):
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(0.2 * torch.randn(buffer.shape, generator=generator))


def save(name: str, seed: int) -> None:
    """Writes the checkpoint with the dtype and shards of its entry."""
    cls, config, dtype, shard, absent = MODELS[name]
    folder = ROOT / "models" / name
    shutil.rmtree(folder, ignore_errors=True)
    model = cls(config)
    seed_weights(model, seed)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    (folder / "generation_config.json").unlink()
    written = json.loads((folder / "config.json").read_text())
    # Most published checkpoints use `torch_dtype` and omit a derived head_dim. transformers 5 also renamed other fields.
    if "rope_parameters" not in written.get("text_config", written):
        written["torch_dtype"] = written.pop("dtype")
    for field in absent:
        written.pop(field, None)
    (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    tokenizer = tiny_tokenizers.byte_level("qwen2" if name.startswith("qwen") else "smollm", VOCAB, [])
    tiny_tokenizers.write_folder(tokenizer, folder)


def load(name: str, dtype: torch.dtype = torch.float32, **overrides) -> torch.nn.Module:
    """The saved checkpoint, widened."""
    folder = ROOT / "models" / name
    return MODELS[name][0].from_pretrained(folder, dtype=dtype, attn_implementation="eager", **overrides).eval()


def full(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Logits at all positions in one pass without a cache."""
    with torch.no_grad():
        return model(tokens[None], use_cache=False).logits[0]


def cached(model: torch.nn.Module, tokens: torch.Tensor, chunk: int) -> torch.Tensor:
    """Logits at all positions, `chunk` tokens at a time with a cache."""
    rows, past = [], None
    with torch.no_grad():
        for part in tokens.split(chunk):
            out = model(part[None], past_key_values=past, use_cache=True)
            past = out.past_key_values
            rows.append(out.logits[0])
    return torch.cat(rows)


def check_window(tokens: torch.Tensor, windowed: torch.Tensor) -> None:
    """A query sees itself and the WINDOW − 1 preceding keys: the first position that a window changes is WINDOW."""
    unwindowed = full(load("mistral-window", sliding_window=None), tokens)
    changed = (windowed - unwindowed).abs().amax(-1) > 1e-3
    first = int(changed.nonzero()[0])
    assert first == WINDOW and changed[WINDOW:].all(), (first, changed)
    print(f"  window: first changed position {first}, largest change {(windowed - unwindowed).abs().max():.3f}")


def check_scaling(tokens: torch.Tensor, scaled: torch.Tensor) -> None:
    """Checks that the llama3 scaling affects the logits."""
    change = (full(load("llama3-rope", rope_scaling=None), tokens) - scaled).abs().max()
    assert change > 0.5, change
    print(f"  llama3 scaling: largest change {change:.3f}")


def check_head_norms(tokens: torch.Tensor, normed: torch.Tensor) -> None:
    """Checks that the norms of heads affect the logits."""
    model = load("qwen3")
    for layer in model.model.layers:
        layer.self_attn.q_norm = layer.self_attn.k_norm = torch.nn.Identity()
    change = (full(model, tokens) - normed).abs().max()
    assert change > 0.5, change
    print(f"  norms of heads: largest change {change:.3f}")


def golden(name: str, seed: int) -> None:
    """Computes, cross-checks and writes the golden values of one checkpoint."""
    generator = torch.Generator().manual_seed(1000 + seed)
    tokens = torch.randint(3, VOCAB, (LENGTH,), generator=generator)
    model = load(name)
    logits = full(model, tokens)
    steps = cached(model, tokens, 1)
    wide = full(load(name, torch.float64), tokens)
    gaps = [(steps - logits).abs().max(), (cached(model, tokens, 7) - logits).abs().max(), (wide - logits).abs().max()]
    top = logits.softmax(-1).amax(-1)
    print(f"{name}: cached {gaps[0]:.1e}, chunks of 7 {gaps[1]:.1e}, against float64 {gaps[2]:.1e}")
    print(f"  logits std {logits.std():.2f}; top-1 probability {top.min():.2f} … {top.median():.2f} … {top.max():.2f}")
    assert max(gaps) <= 5e-5, gaps  # float32 rounding; the project allows TOLERANCE
    assert top.max() - top.min() > 0.3, "logits too uniform"
    if name == "mistral-window":
        check_window(tokens, logits)
    if name == "llama3-rope":
        check_scaling(tokens, logits)
    if name == "qwen3":
        check_head_norms(tokens, logits)
    tensors = {"tokens": tokens, "logits": logits.contiguous(), "logits_cached": steps.contiguous()}
    record = metadata(TOLERANCE, seed, "torch", "transformers", "safetensors")
    save_file(tensors, ROOT / "models" / name / "golden.safetensors", metadata=record)


def main() -> None:
    """All tiny checkpoints, or the given ones."""
    torch.set_num_threads(1)
    for seed, name in enumerate(MODELS):
        if name in (sys.argv[1:] or MODELS):
            save(name, seed)
            golden(name, seed)


if __name__ == "__main__":
    main()
