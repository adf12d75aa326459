"""As make_tiny_models.py and make_tiny_gguf.py, for architectures of transformers 5 (requirements-5.txt).

The configurations are in its format: `rope_parameters` and `dtype`. `glm4_moe` and `gguf-glm4-moe` have a layer after
the last that predicts further tokens, as published; transformers does not read it. With names as arguments, only these
are written.
"""

import sys

import torch
from gguf import MODEL_ARCH
from safetensors.torch import load_file, save_file
from transformers import (
    Glm4MoeConfig,
    Glm4MoeForCausalLM,
    GraniteMoeConfig,
    GraniteMoeForCausalLM,
    GraniteMoeHybridConfig,
    GraniteMoeHybridForCausalLM,
    Ministral3Config,
    Ministral3ForCausalLM,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
)

import make_tiny_gguf
import make_tiny_models
from make_tiny_gguf import SMALL, read_back
from make_tiny_models import FACTORS, PIXTRAL, SHAPE, full, golden, load, save
from provenance import ROOT

# Three lengths of the original training within 96 positions.
TEMPERATURE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 4.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.4,
}
EXPERTS = {
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "n_shared_experts": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.8,
    "use_qk_norm": True,
    "attention_bias": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    "num_mtp_layers": 1,
    "pad_token_id": 1,
}
GRANITE_EXPERTS = FACTORS | {"logits_scaling": 1.0} | {"num_local_experts": 5, "num_experts_per_tok": 2, "pad_token_id": 1}
# Without layers of mamba.
HYBRID = FACTORS | {"logits_scaling": 1.0} | {"shared_intermediate_size": 96, "layer_types": ["full_attention"] * 3, "pad_token_id": 1}
MINISTRAL = {"head_dim": 16, "rope_parameters": TEMPERATURE}
# As in make_tiny_models.py; the seed is 100 and the index.
MODELS = {
    "glm4_moe": (Glm4MoeForCausalLM, Glm4MoeConfig(**SHAPE | EXPERTS | {"head_dim": 24}), torch.bfloat16, "1GB", []),
    "ministral3": (Ministral3ForCausalLM, Ministral3Config(**SHAPE | MINISTRAL), torch.bfloat16, "1GB", []),
    "mistral3-ministral3": (
        Mistral3ForConditionalGeneration,
        Mistral3Config(text_config=SHAPE | MINISTRAL | {"model_type": "ministral3"}, vision_config=PIXTRAL, image_token_index=300, tie_word_embeddings=False),
        torch.bfloat16,
        "1GB",
        [],
    ),
    "granitemoe": (GraniteMoeForCausalLM, GraniteMoeConfig(**SHAPE | GRANITE_EXPERTS), torch.bfloat16, "1GB", []),
    # Dense, with rotation, as Granite 4.0 Micro; and with experts, a shared one, and no positions.
    "granitemoehybrid": (
        GraniteMoeHybridForCausalLM,
        GraniteMoeHybridConfig(**SHAPE | HYBRID | {"num_local_experts": 0, "num_experts_per_tok": 0, "position_embedding_type": "rope"}),
        torch.bfloat16,
        "1GB",
        [],
    ),
    "granitemoehybrid-experts": (
        GraniteMoeHybridForCausalLM,
        GraniteMoeHybridConfig(**SHAPE | HYBRID | GRANITE_EXPERTS | {"position_embedding_type": "nope"}),
        torch.bfloat16,
        "1GB",
        [],
    ),
}
# As in make_tiny_gguf.py.
READ_BACK = {
    "gguf-glm4-moe": (Glm4MoeConfig(**SMALL | EXPERTS | {"head_dim": 32, "moe_intermediate_size": 64}), MODEL_ARCH.GLM4_MOE, "glm4", 120),
    "gguf-granitemoe": (
        GraniteMoeHybridConfig(**SMALL | HYBRID | GRANITE_EXPERTS | {"layer_types": ["full_attention"] * 2, "position_embedding_type": "rope"}),
        MODEL_ARCH.GRANITE_MOE,
        "smollm",
        122,
    ),
    "gguf-ministral3": (Ministral3Config(**SMALL | MINISTRAL | {"head_dim": 32}), MODEL_ARCH.MISTRAL3, "smollm", 121),
}


def add_next_layer(name: str) -> None:
    """Adds a layer that predicts further tokens, of random weights."""
    file = ROOT / "models" / name / "model.safetensors"
    tensors, config = load_file(file), MODELS[name][1]
    last, generator = f"model.layers.{config.num_hidden_layers - 1}.", torch.Generator().manual_seed(99)
    more = {key.removeprefix(last): value.shape for key, value in tensors.items() if key.startswith(last)}
    hidden = config.hidden_size
    more |= {"enorm.weight": (hidden,), "hnorm.weight": (hidden,), "shared_head.norm.weight": (hidden,), "eh_proj.weight": (hidden, 2 * hidden)}
    for key, shape in more.items():
        tensors[f"model.layers.{config.num_hidden_layers}.{key}"] = torch.randn(shape, generator=generator).to(torch.bfloat16)
    save_file(tensors, file, metadata={"format": "pt"})


def check_experts(name: str) -> None:
    """Checks that the corrections, the factor and the shared expert affect the logits."""
    tokens = load_file(ROOT / "models" / name / "golden.safetensors")["tokens"]
    logits = full(load(name), tokens)

    def change(edit) -> float:
        model = load(name)
        for layer in model.model.layers[1:]:
            edit(layer.mlp)
        return float((full(model, tokens) - logits).abs().max())

    changes = [
        change(lambda mlp: mlp.gate.e_score_correction_bias.zero_()),
        change(lambda mlp: setattr(mlp.gate, "routed_scaling_factor", 1.0)),
        change(lambda mlp: setattr(mlp.gate, "norm_topk_prob", False)),
        change(lambda mlp: mlp.shared_experts.down_proj.weight.data.zero_()),
    ]
    print(f"  correction, factor, normalisation, shared expert: largest changes {[round(c, 2) for c in changes]}")
    assert min(changes) > 0.1, changes


def check_temperature(name: str) -> None:
    """Checks that the growth of scores affects the logits of later positions only."""
    tokens = load_file(ROOT / "models" / name / "golden.safetensors")["tokens"]
    logits, model = full(load(name), tokens), load(name)
    model.config.rope_parameters["llama_4_scaling_beta"] = 0.0
    change = (full(model, tokens) - logits).abs().amax(-1)
    print(f"  growth of scores: largest changes {change[:32].max():.1e} up to position 32 and {change[32:].max():.2f} after it")
    assert change[:32].max() < 1e-6 and change[32:].max() > 0.1, change


def main() -> None:
    """All tiny checkpoints, or the given ones."""
    torch.set_num_threads(1)
    make_tiny_models.MODELS |= MODELS
    make_tiny_gguf.READ_BACK |= READ_BACK
    wanted = sys.argv[1:] or [*MODELS, *READ_BACK]
    for index, name in enumerate(MODELS):
        if name not in wanted:
            continue
        save(name, 100 + index)
        golden(name, 100 + index)
        if name == "glm4_moe":
            check_experts(name)
            add_next_layer(name)
        if name == "ministral3":
            check_temperature(name)
    for name in READ_BACK:
        if name in wanted:
            read_back(name)


if __name__ == "__main__":
    main()
