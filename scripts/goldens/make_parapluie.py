"""log P(Yes) - log P(No) of ParaPLUIE's prompts, by transformers on the same weights.

Writes tests/goldens/parapluie.json: for each model and family of templates the value of each candidate of
tests/goldens/paraphrases.jsonl. The prompts are those of a run of the binary (its answers.sqlite). Other tests check
that they follow the templates; here each of them is rendered, encoded and computed independently. Each label counts
with and without a space before it, prompt and label are encoded as one text, and their longest common prefix of tokens
is the condition. One full pass for each text, no cache; log-softmax and sums are float64.
"""

import argparse
import json
import math
import sqlite3
import subprocess
import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, T5ForConditionalGeneration

import chat
import make_labels
from make_real_logits import logits_of
from provenance import ROOT, versions, write_json

PAIRS = ROOT / "paraphrases.jsonl"
TEMPLATES = ["direct", "meaning", "indirect", "few-shot-direct"]
LABELS = {"Yes": ["Yes", " Yes"], "No": ["No", " No"]}


class Decoder(make_labels.Reference):
    """SmolLM2 as a GGUF file."""

    def rows(self, condition: list[int], begun: list[int]) -> torch.Tensor:
        """log P of each token after the condition and after each of `begun`."""
        return logits_of(self.model, condition + begun)[len(condition) - 1 :].double().log_softmax(-1)


class Folder(Decoder):
    """A Hugging Face folder of a decoder."""

    def __init__(self, path: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
        self.tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
        config = json.loads((path / "tokenizer_config.json").read_text(encoding="utf-8"))
        file = path / "chat_template.jinja"
        self.template = file.read_text(encoding="utf-8") if file.exists() else config["chat_template"]
        self.tokens = {k: v if isinstance(v, str) else v["content"] for k, v in config.items() if k in ("bos_token", "eos_token") and v}

    def ids(self, case: dict, suffix: str) -> list[int]:
        """Ids of the chat followed by `suffix`."""
        prefix = case["answer_prefix"] + suffix
        return chat.encode(self.tokenizer, self.template, case["messages"], prefix if suffix else prefix.rstrip(" "), **self.tokens)[1]


class EncoderDecoder:
    """A Hugging Face folder of Flan-T5: the encoder reads the text, the decoder scores the label."""

    def __init__(self, path: Path) -> None:
        self.model = T5ForConditionalGeneration.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
        self.tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))

    def condition(self, case: dict, suffixes: list[str]) -> tuple[list[int], list[list[int]]]:
        """(shared condition, charged tokens of each suffix)."""
        prefix = case["answer_prefix"]
        start = [self.model.config.decoder_start_token_id]
        encode = lambda text: start + self.tokenizer.encode(text, add_special_tokens=False).ids if text else start
        wholes = [encode(prefix + suffix) for suffix in suffixes]
        length = 0
        for column in zip(encode(prefix.rstrip(" ")), *wholes):
            if len(set(column)) > 1:
                break
            length += 1
        return wholes[0][:length], [whole[length:] for whole in wholes]

    @torch.no_grad()
    def rows(self, condition: list[int], begun: list[int]) -> torch.Tensor:
        """log P of each token after the condition and after each of `begun`, for the current source."""
        logits = self.model(input_ids=torch.tensor([self.source]), decoder_input_ids=torch.tensor([condition + begun])).logits[0]
        return logits[len(condition) - 1 :].double().log_softmax(-1)

    def read(self, case: dict) -> None:
        """Sets the source."""
        text = case["text"] if "text" in case else "\n".join(message["content"] for message in case["messages"])
        self.source = self.tokenizer.encode(text).ids


def log_ratio(reference, case: dict) -> float:
    """log P(Yes) - log P(No)."""
    if isinstance(reference, EncoderDecoder):
        reference.read(case)
    flat = [(label, text) for label, texts in LABELS.items() for text in texts]
    condition, charged = reference.condition(case, [text for _, text in flat])
    events: dict[str, dict[tuple, float]] = {label: {} for label in LABELS}
    # Variants that differ only in the last token need one pass.
    passes: dict[tuple, torch.Tensor] = {}
    for (label, _), ids in zip(flat, charged):
        begun = tuple(ids[:-1])
        if begun not in passes:
            passes[begun] = reference.rows(condition, list(begun))
        rows = passes[begun]
        # Variants with the same tokens are one event.
        events[label][tuple(ids)] = math.fsum(rows[place, token].item() for place, token in enumerate(ids))
    total = lambda label: math.log(math.fsum(math.exp(p) for p in events[label].values()))
    return total("Yes") - total("No")


def asked(run: Path) -> dict[str, dict]:
    """The prompts of a run by item and candidate, without those longer than the model's context, which have no score in
    the run."""
    rows = [json.loads(line) for line in (run / "scores.jsonl").read_text(encoding="utf-8").splitlines()]
    scored = {f"{row['item']}/{row['candidate']}" for row in rows if row["score"] is not None}
    rows = sqlite3.connect(f"file:{run / 'answers.sqlite'}?mode=ro", uri=True).execute(
        "select request, question from requests join answers using (key) order by position"
    )
    cases = {}
    for request, question in rows:
        prompt = json.loads(question)[0]
        case = prompt["chat"] if "chat" in prompt else {"answer_prefix": "", "text": prompt["text"]}
        cases["/".join(request.split("/")[:2])] = case
    return {key: case for key, case in cases.items() if key in scored}


def main() -> None:
    """Writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--probity", type=Path, required=True, help="the binary")
    parser.add_argument("--smollm2", type=Path, required=True, help="SmolLM2-135M-Instruct.Q4_1.gguf")
    args = parser.parse_args()
    models = {
        "tests/goldens/models/llama": (Folder(ROOT / "models" / "llama"), 2e-4),
        "tests/goldens/models/qwen2": (Folder(ROOT / "models" / "qwen2"), 2e-4),
        "tests/goldens/models/tiny-flan-t5": (EncoderDecoder(ROOT / "models" / "tiny-flan-t5"), 2e-4),
        "smollm2-135m-instruct": (Decoder(args.smollm2), 2e-3),
    }
    out = {}
    for name, (reference, tolerance) in models.items():
        model = args.smollm2 if name.startswith("smollm2") else ROOT.parents[1] / name
        values = {}
        for template in TEMPLATES:
            with tempfile.TemporaryDirectory() as folder:
                run = Path(folder) / "run"
                command = [args.probity, "--quiet", "parapluie", "--data", PAIRS, "--model", model, "--precision", "exact"]
                subprocess.run([*command, "--template", template, "--out", run], check=True, stdout=subprocess.DEVNULL)
                values[template] = {key: log_ratio(reference, case) for key, case in asked(run).items()}
            print(name, template, {key: round(value, 3) for key, value in list(values[template].items())[:5]})
        out[name] = {"max_abs_difference": tolerance, "templates": values}
    write_json(ROOT / "parapluie.json", {"made_with": versions("torch", "transformers", "tokenizers"), "models": out})


if __name__ == "__main__":
    main()
