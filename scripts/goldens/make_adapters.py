"""Seeded LoRA adapters for the tiny checkpoints, and PEFT's logits of the merged models:
tests/goldens/adapters/<model>/.

Each folder is an adapter saved by PEFT (after `make_tiny_models.py`, `make_tiny_gguf.py` and `make_encoder_decoder.py`)
with `golden.safetensors`: `tokens` i64 and `logits` (tokens, vocab) f32 in fp32 with eager attention; for an
encoder-decoder also `source`. transformers dequantises the GGUF file, so merged weights are f32 in all of them.
"""

import json
import shutil

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from provenance import ROOT, metadata

TOLERANCE = 2e-4
LENGTH = 24
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
# model: (its file if it is GGUF, class, adapter)
ADAPTERS = {
    "llama": (None, AutoModelForCausalLM, LoraConfig(r=4, lora_alpha=10, target_modules=[*ATTENTION, "gate_proj", "down_proj"])),
    "tiny-gguf": ("model.gguf", AutoModelForCausalLM, LoraConfig(r=3, lora_alpha=5, use_rslora=True, target_modules=[*ATTENTION, "up_proj"])),
    "tiny-flan-t5": (None, AutoModelForSeq2SeqLM, LoraConfig(r=2, lora_alpha=4, target_modules=["q", "k", "v", "o", "wi_0", "wo"])),
}


def logits(model: torch.nn.Module, tokens: torch.Tensor, source: torch.Tensor | None) -> torch.Tensor:
    """Logits at all positions of the tokens."""
    with torch.no_grad():
        if source is None:
            return model(tokens[None], use_cache=False).logits[0]
        return model(input_ids=source[None], decoder_input_ids=tokens[None], use_cache=False).logits[0]


def adapter(name: str, seed: int) -> None:
    """Writes one adapter with its golden values."""
    file, cls, config = ADAPTERS[name]
    folder = ROOT / "adapters" / name
    shutil.rmtree(folder, ignore_errors=True)
    gguf = {} if file is None else {"gguf_file": file}
    base = cls.from_pretrained(ROOT / "models" / name, dtype=torch.float32, attn_implementation="eager", **gguf).eval()
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, base.config.vocab_size, (LENGTH,), generator=generator)
    source = None
    if base.config.is_encoder_decoder:
        tokens[0] = base.config.decoder_start_token_id
        source = torch.randint(3, base.config.vocab_size, (LENGTH,), generator=generator)
    plain = logits(base, tokens, source)
    model = get_peft_model(base, config)
    for parameter_name, parameter in sorted(model.named_parameters()):
        if "lora_" in parameter_name:
            with torch.no_grad():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3 / parameter.shape[1] ** 0.5)
    model.save_pretrained(folder)
    (folder / "README.md").unlink()
    written = json.loads((folder / "adapter_config.json").read_text())
    written["base_model_name_or_path"] = name
    written["target_modules"] = sorted(written["target_modules"])
    (folder / "adapter_config.json").write_text(json.dumps(written, indent=2) + "\n")
    unmerged = logits(model.eval(), tokens, source)
    merged = logits(model.merge_and_unload(), tokens, source)
    gap, change = float((merged - unmerged).abs().max()), float((merged - plain).abs().max())
    print(f"{name}: merged against beside {gap:.1e}; the adapter changes logits by up to {change:.2f}")
    assert gap <= 5e-5 and change > 0.2, (gap, change)
    tensors = {"tokens": tokens, "logits": merged.contiguous()} | ({} if source is None else {"source": source})
    save_file(tensors, folder / "golden.safetensors", metadata=metadata(TOLERANCE, seed, "torch", "transformers", "peft"))


def main() -> None:
    """Writes all of them."""
    torch.set_num_threads(1)
    for seed, name in enumerate(ADAPTERS):
        adapter(name, seed)


if __name__ == "__main__":
    main()
