"""ParaPLUIE beside the usual script on transformers: the same prompts and weights, one after the other in one run.

    .venv/bin/python scripts/bench/parapluie.py --probity target/release/probity --model FILE.gguf --data pairs.jsonl --limit 20

There are two scripts. The published one appends each of the two answers to the prompt, one text at a time, and takes
the difference of the losses over the answer. The optimised one runs prompts of similar length in batches, padded on the
left, with one forward pass per batch and the logits of the last position only. Each type and batch size is tried on a
few prompts, and the fastest does the job. The published script uses the faster type on a few prompts, and its rate is
compared. Loading is not measured. Prints seconds, ratios, and the largest difference of scores.
"""

import argparse
import json
import sqlite3
import subprocess
import tempfile
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def ours(args: argparse.Namespace, run: Path) -> tuple[float, dict[str, float], dict[str, list[dict]]]:
    """(seconds, scores, prompts) of a run of the binary."""
    command = [args.probity, "--quiet", "parapluie", "--data", args.data, "--limit", str(args.limit), "--model", args.model]
    subprocess.run([*command, "--template", args.template, "--precision", args.precision, "--out", run], check=True, stdout=subprocess.DEVNULL)
    seconds = json.loads((run / "manifest.json").read_text(encoding="utf-8"))["cost"]["seconds"]
    rows = [json.loads(line) for line in (run / "scores.jsonl").read_text(encoding="utf-8").splitlines()]
    scores = {f"{row['item']}/{row['candidate']}": row["score"] for row in rows}
    database = sqlite3.connect(f"file:{run / 'answers.sqlite'}?mode=ro", uri=True)
    asked = database.execute("select request, question from requests join answers using (key) order by position").fetchall()
    return seconds, scores, {"/".join(request.split("/")[:2]): json.loads(question)[0]["chat"]["messages"] for request, question in asked}


class Script:
    """transformers on the dequantised weights."""

    def __init__(self, model: Path, dtype: torch.dtype) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(model.parent, gguf_file=model.name, padding_side="left")
        self.model = AutoModelForCausalLM.from_pretrained(model.parent, gguf_file=model.name, dtype=dtype, attn_implementation="sdpa").eval()
        one = lambda text: self.tokenizer(text, add_special_tokens=False).input_ids[0]
        self.yes, self.no = one("Yes"), one("No")
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token

    @torch.inference_mode()
    def scores(self, prompts: list[str], batch: int) -> tuple[float, list[float]]:
        """(seconds, log P(Yes) - log P(No) of each prompt)."""
        began = time.perf_counter()
        # Sorted by length, for little padding.
        order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))
        found = [0.0] * len(prompts)
        for start in range(0, len(order), batch):
            places = order[start : start + batch]
            inputs = self.tokenizer([prompts[place] for place in places], return_tensors="pt", padding=True, add_special_tokens=False)
            rows = self.model(**inputs, logits_to_keep=1).logits[:, -1].float().log_softmax(-1)
            for place, row in zip(places, rows):
                found[place] = (row[self.yes] - row[self.no]).item()
        return time.perf_counter() - began, found


    @torch.inference_mode()
    def published(self, prompts: list[str]) -> float:
        """Seconds for the prompts with each answer in a separate pass."""
        began = time.perf_counter()
        for prompt in prompts:
            for answer in ("Yes", "No"):
                inputs = self.tokenizer(prompt + answer, return_tensors="pt", add_special_tokens=False)
                labels = inputs.input_ids.clone()
                labels[:, :-1] = -100
                self.model(**inputs, labels=labels).loss.item()
        return time.perf_counter() - began


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--probity", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("--template", default="few-shot-direct")
    parser.add_argument("--precision", default="fast")
    args = parser.parse_args()
    torch.set_num_threads(torch.get_num_threads())
    with tempfile.TemporaryDirectory() as folder:
        seconds, scores, asked = ours(args, Path(folder) / "run")
    print(f"probity: {seconds:.1f} s for {len(asked)} prompts")
    best, published = None, None
    for dtype in (torch.float32, torch.bfloat16):
        script = Script(args.model, dtype)
        prompts = [script.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) for messages in asked.values()]
        seconds_each = script.published(prompts[:4]) / 4
        print(f"transformers, {dtype}, the published way: {seconds_each:.2f} s a prompt", flush=True)
        published = min(published or seconds_each, seconds_each)
        for batch in (1, 4, 8):
            trial = script.scores(prompts[:8], batch)[0]
            print(f"transformers, {dtype}, batch {batch}: {trial:.1f} s for 8 prompts", flush=True)
            if best is None or trial < best[0]:
                best = (trial, dtype, batch)
        del script
    _, dtype, batch = best
    script = Script(args.model, dtype)
    theirs, found = script.scores(prompts, batch)
    apart = [abs(value - scores[key]) for key, value in zip(asked, found) if scores[key] is not None]
    print(f"transformers, {dtype}, batch {batch}: {theirs:.1f} s for {len(prompts)} prompts")
    # Ours sums each word with and without a space before it, and quantised weights multiply bf16 activations.
    print(f"ratio {theirs / seconds:.1f} (published way {published * len(prompts) / seconds:.1f}), largest difference {max(apart):.3f}")


if __name__ == "__main__":
    main()
