"""Logits of SmolLM2-135M-Instruct (Q4_1) and Qwen2.5-Coder-0.5B-Instruct (Q4_K_M) by transformers' own dequantised load
in fp32.

Writes tests/goldens/smollm2/golden.safetensors and tests/goldens/qwen2.5-coder-0.5b/golden.safetensors.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

import gguf_tokenizer
from provenance import ROOT, metadata

SMOLLM2_PROMPTS = [
    "The lighthouse keeper climbed the stairs every evening at dusk. From the top she could see the fishing boats come home, one "
    "after another, and she counted them under her breath. That night one boat was missing, and the wind had",
    "def median(values):\n    \"\"\"Return the middle of a list of numbers.\"\"\"\n    ordered = sorted(values)\n    n = len(ordered)\n"
    "    if n % 2 == 1:\n        return ordered[n // 2]\n    return",
    "<|im_start|>system\nYou compare two summaries and answer with a letter.<|im_end|>\n<|im_start|>user\nText: The council voted "
    "seven to two to close the old bridge until spring.\nA: The bridge stays open.\nB: The bridge closes until spring.\nWhich summary "
    "is more faithful?<|im_end|>\n<|im_start|>assistant\n",
    "Les résultats de 2023 (12,5 %) étaient meilleurs que ceux de 1987; voilà ce que disait le document — 東京 and naïve 🙂 text mixed, "
    "with   odd  spacing\t and\n\nnew paragraphs. In short: the",
]
QWEN_PROMPTS = [
    "<|im_start|>system\nYou are a careful judge.<|im_end|>\n<|im_start|>user\nWhich sentence is correct?\nA: She go to school.\n"
    "B: She goes to school.\nAnswer with A or B.<|im_end|>\n<|im_start|>assistant\n",
    "fn main() {\n    let numbers = vec![1, 2, 30, 456];\n    let total: i32 = numbers.iter().sum();\n    println!(\"{}\",",
]


def load(path: Path, rope_theta: float, eps: float) -> torch.nn.Module:
    """Dequantises to fp32; checks that the settings that affect numbers come from the file's metadata."""
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager")
    config = model.config
    assert config.rope_theta == rope_theta and abs(config.rms_norm_eps - eps) < 1e-9 and not config.rope_scaling, config
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    return model.eval()


def logits_of(model: torch.nn.Module, ids: list[int]) -> torch.Tensor:
    """(tokens, vocab) f32, one pass, no cache."""
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0]


def perplexity(logits: torch.Tensor, ids: list[int]) -> float:
    """The perplexity of the prompt: far below the vocabulary's size only if weights and positions are read correctly.
    """
    logprobs = logits[:-1].double().log_softmax(-1)
    return float(torch.exp(-logprobs.gather(1, torch.tensor(ids[1:])[:, None]).mean()))


def subset_ids(vocab: int) -> torch.Tensor:
    """64 fixed vocabulary ids."""
    return torch.randperm(vocab, generator=torch.Generator().manual_seed(7))[:64].sort().values


def smollm2(path: Path) -> None:
    """Top-1 and 64 logits at each position, all logits at the last four."""
    model, tokenizer = load(path, 100000.0, 1e-5), gguf_tokenizer.read(path)
    assert model.config.tie_word_embeddings
    columns = subset_ids(model.config.vocab_size)
    tensors = {"subset_ids": columns}
    for index, prompt in enumerate(SMOLLM2_PROMPTS):
        ids = gguf_tokenizer.encode(tokenizer, prompt, special=True)
        logits = logits_of(model, ids)
        best = logits.topk(2, -1)
        margin = best.values[:, 0] - best.values[:, 1]
        assert margin.min() > 0.01, "a near tie cannot be held to a tolerance: change the prompt"
        print(f"smollm2 prompt {index}: {len(ids)} tokens, perplexity {perplexity(logits, ids):.1f}, least margin {margin.min():.4f}")
        tensors |= {
            f"prompt{index}.tokens": torch.tensor(ids),
            f"prompt{index}.top1": best.indices[:, 0].contiguous(),
            f"prompt{index}.top1_margin": margin.contiguous(),
            f"prompt{index}.subset_logits": logits[:, columns].contiguous(),
            f"prompt{index}.last_logits": logits[-4:].contiguous(),
        }
    write("smollm2", tensors)


def qwen(path: Path) -> None:
    """64 logits and the log of the softmax's normaliser at the last eight positions."""
    model, tokenizer = load(path, 1000000.0, 1e-6), gguf_tokenizer.read(path)
    columns = subset_ids(model.config.vocab_size)
    tensors = {"subset_ids": columns}
    for index, prompt in enumerate(QWEN_PROMPTS):
        ids = gguf_tokenizer.encode(tokenizer, prompt, special=True)
        logits = logits_of(model, ids)
        best = logits[-8:].topk(2, -1)
        following = tokenizer.decode([int(best.indices[-1, 0])])
        print(f"qwen prompt {index}: {len(ids)} tokens, perplexity {perplexity(logits, ids):.1f}, next {following!r}")
        tensors |= {
            f"prompt{index}.tokens": torch.tensor(ids),
            f"prompt{index}.top1": best.indices[:, 0].contiguous(),
            f"prompt{index}.top1_margin": (best.values[:, 0] - best.values[:, 1]).contiguous(),
            f"prompt{index}.subset_logits": logits[-8:, columns].contiguous(),
            f"prompt{index}.logsumexp": logits[-8:].double().logsumexp(-1).float().contiguous(),
        }
    write("qwen2.5-coder-0.5b", tensors)


def write(name: str, tensors: dict[str, torch.Tensor]) -> None:
    """Writes a file with versions and tolerance in its metadata."""
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "golden.safetensors", metadata=metadata(2e-3, None, "torch", "transformers", "gguf", "tokenizers"))


def main() -> None:
    """Writes the values of the given models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smollm2", type=Path, help="SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--qwen", type=Path, help="Qwen2.5-Coder-0.5B-Instruct Q4_K_M gguf")
    arguments = parser.parse_args()
    if arguments.smollm2:
        smollm2(arguments.smollm2)
    if arguments.qwen:
        qwen(arguments.qwen)


if __name__ == "__main__":
    main()
