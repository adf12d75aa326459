"""Greedy texts by transformers (fp32, eager attention): tests/goldens/generated.json.

256 tokens by each tiny model, and 128 tokens by SmolLM2-135M-Instruct (Q4_1, dequantised) after each of twenty prompts
in its chat template. Each token has the gap between the two largest logits: if it is small, rounding decides, and the
rest is another text. `--only NAME …` writes the texts of these tiny models and keeps the others. A text by other
versions than most has them in its own `made_with`.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

import chat
import gguf_tokenizer
from make_real_logits import load
from provenance import ROOT, versions, write_json

TIE = 1e-3
SETTINGS = {"dtype": torch.float32, "attn_implementation": "eager"}
# The number of positions of a model, if it is less than the tokens of the others.
COUNTS = {"bart": 198}
TEXT = (
    "The harbour museum opened its new wing on Saturday. It shows three boats that fishermen used before the dam was built, and a room of "
    "letters that their families wrote. Entry is free until the end of the month, and the director hopes that people from the old villages "
    "will come to tell what they remember."
)
TASKS = [
    f"Summarise this text in two sentences.\n\n{TEXT}",
    f"Rewrite this text so that it is easier to read. Keep everything that it says.\n\n{TEXT}",
    f"Correct the mistakes in this text and repeat it otherwise unchanged.\n\n{TEXT.replace('shows', 'show').replace('wrote', 'writed')}",
    f"Repeat this text word for word.\n\n{TEXT}",
    f"Which of these two summaries of the text is better, and why?\n\n{TEXT}\n\nA: A museum opened a wing with boats.\nB: Boats are free.",
    "Explain to a child why the sky is blue.",
    "Write a short letter to a neighbour about a noisy dog.",
    "List five things to pack for a week in the mountains.",
    "What is the difference between a comet and an asteroid?",
    "Write a function in Python that counts the words of a text.",
    "Give me a recipe for lentil soup with four ingredients.",
    "Translate into French: The train is late and we are cold.",
    "How does a bicycle stay upright?",
    "Write a poem of eight lines about a lighthouse.",
    "Name three advantages and three disadvantages of working from home.",
    "Rate this answer from 1 to 5 and say why. Question: What is 12 times 12? Answer: 12 times 12 is 124.",
    "Continue the story: When the lift stopped between two floors, nobody spoke at first.",
    "What should I do if I lose my passport abroad?",
    "Write the numbers from one to thirty in words, separated by commas.",
    "Turn this into a table with the columns name, age and town: Ada is 36 and lives in Turin, Ben is 41 and lives in Oslo.",
]


def roster(kind: str) -> list[str]:
    """The golden models of a kind that have generated texts."""
    rows = json.loads((ROOT / "roster.json").read_text())
    return [row["name"] for row in rows if row["kind"] == kind and "file" not in row and "generated" not in row.get("without", [])]


@torch.no_grad()
def greedy(model: torch.nn.Module, inputs: dict, count: int, ends: list[int] | None) -> dict:
    """Up to `count` tokens, without the token that ends a turn, and the gaps."""
    output = model.generate(
        **inputs,
        do_sample=False,
        max_new_tokens=count,
        eos_token_id=ends,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    top = torch.stack(output.logits)[:, 0].float().topk(2).values
    gaps = (top[:, 0] - top[:, 1]).tolist()
    tokens = output.sequences[0, -len(gaps) :].tolist()
    ended = bool(ends) and tokens[-1] in ends
    tied = next((at for at, gap in enumerate(gaps) if gap < TIE), None)
    return {"tokens": tokens[:-1] if ended else tokens, "ended": ended, "first_tie": tied, "smallest_gap": min(gaps)}


def quiet(model: torch.nn.Module) -> torch.nn.Module:
    """Removes end and forced tokens of the checkpoint's own settings."""
    settings = model.generation_config
    settings.eos_token_id = settings.bos_token_id = settings.forced_eos_token_id = settings.forced_bos_token_id = None
    return model.eval()


def of_decoder(name: str) -> dict:
    """The text of a tiny decoder."""
    folder = ROOT / "models" / name
    prompt = load_file(folder / "golden.safetensors")["tokens"][:20].tolist()
    model = quiet(AutoModelForCausalLM.from_pretrained(folder, **SETTINGS))
    ids = torch.tensor([prompt])
    return {"prompt": prompt} | greedy(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, 256, None)


def of_encoder_decoder(name: str) -> dict:
    """The text of a tiny encoder-decoder."""
    folder = ROOT / "models" / name
    golden = load_file(folder / "golden.safetensors")
    source, start = golden["source0"].tolist(), golden["tokens0"][:1].tolist()
    model = quiet(AutoModelForSeq2SeqLM.from_pretrained(folder, **SETTINGS))
    inputs = {"input_ids": torch.tensor([source]), "decoder_input_ids": torch.tensor([start])}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    return {"source": source, "prompt": start} | greedy(model, inputs, COUNTS.get(name, 256), None)


def add(names: list[str]) -> None:
    """Writes the texts of these tiny decoders."""
    made_with = versions("torch", "transformers", "tokenizers")
    golden = json.loads((ROOT / "generated.json").read_text())
    for name in names:
        own = {} if made_with == golden["made_with"] else {"made_with": made_with}
        golden["tiny"][name] = of_decoder(name) | own
    order = roster("decoder") + roster("encoder-decoder")
    golden["tiny"] = {name: golden["tiny"][name] for name in order if name in golden["tiny"]}
    write_json(ROOT / "generated.json", golden)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smollm2", type=Path, help="SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--only", nargs="+", help="tiny decoders")
    given = parser.parse_args()
    if given.only:
        return add(given.only)
    path = given.smollm2 or parser.error("--smollm2 is required without --only")
    before = json.loads((ROOT / "generated.json").read_text())["tiny"]
    # Texts by another version stay as they are.
    others = {name: text for name, text in before.items() if "made_with" in text}
    tiny = {name: others.get(name) or of_decoder(name) for name in roster("decoder")}
    tiny |= {name: of_encoder_decoder(name) for name in roster("encoder-decoder")}
    model, tokenizer, template = load(path, 100000.0, 1e-5), gguf_tokenizer.read(path), gguf_tokenizer.template(path)
    quiet(model)
    end = tokenizer.token_to_id("<|im_end|>")
    texts = []
    for task in TASKS:
        ids = chat.encode(tokenizer, template, [{"role": "user", "content": task}])[1]
        inputs = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
        texts.append({"task": task, "prompt_tokens": len(ids)} | greedy(model, inputs, 128, [end]))
        print(len(texts), texts[-1]["first_tie"], texts[-1]["smallest_gap"], flush=True)
    made_with = versions("torch", "transformers", "tokenizers")
    write_json(ROOT / "generated.json", {"made_with": made_with, "tie": TIE, "tiny": tiny, "smollm2": texts})


if __name__ == "__main__":
    main()
