"""Mean hidden states over a continuation's tokens, by transformers on the same weights.

Writes tests/goldens/states.json: for each model and case the continuation's tokens and, for some layers, the mean of
`hidden_states[layer]` over them. Prompt and continuation are encoded as one text; the continuation's tokens follow the
longest common prefix with the prompt's own tokens. One full pass, no cache; means are float64.
"""

import argparse
from pathlib import Path

import torch

import make_labels
from make_parapluie import EncoderDecoder, Folder
from provenance import ROOT, versions, write_json

CASES = [
    {"prompt": "Text: The river froze in December and the ferry stopped.\nSummary:", "continuation": " The ferry stopped for the winter."},
    {"prompt": "Text: Bees count to four.\nSummary:", "continuation": " Bees"},
]


def common(a: list[int], b: list[int]) -> int:
    """The length of the common prefix."""
    return next((place for place, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


@torch.no_grad()
def states(reference, case: dict, layers: list[int]) -> dict:
    """The continuation's tokens, and the mean state of each layer."""
    if isinstance(reference, EncoderDecoder):
        reference.read({"text": case["prompt"]})
        start = [reference.model.config.decoder_start_token_id]
        ids = start + reference.tokenizer.encode(case["continuation"], add_special_tokens=False).ids
        first = len(start)
        source = torch.tensor([reference.source])
        output = reference.model(input_ids=source, decoder_input_ids=torch.tensor([ids]), output_hidden_states=True)
        hidden = output.decoder_hidden_states
    else:
        if isinstance(reference, Folder):
            encode = lambda text: reference.tokenizer.encode(text).ids
            prompt, ids = encode(case["prompt"]), encode(case["prompt"] + case["continuation"])
        else:
            prompt, ids = reference.ids(case, ""), reference.ids(case, case["continuation"])
        first = common(prompt, ids)
        hidden = reference.model(torch.tensor([ids]), use_cache=False, output_hidden_states=True).hidden_states
    mean = lambda layer: hidden[layer][0, first:].double().mean(0).tolist()
    return {"tokens": ids[first:], "states": {str(layer): [round(x, 7) for x in mean(layer)] for layer in layers}}


def main() -> None:
    """Writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smollm2", type=Path, required=True, help="SmolLM2-135M-Instruct.Q4_1.gguf")
    args = parser.parse_args()
    folder = lambda name: ROOT / "models" / name
    models = {
        "tests/goldens/models/llama": (Folder(folder("llama")), [0, 1], 2e-5),
        "tests/goldens/models/qwen2": (Folder(folder("qwen2")), [0, 1], 2e-5),
        "tests/goldens/models/tiny-flan-t5": (EncoderDecoder(folder("tiny-flan-t5")), [0, 1], 2e-4),
        "smollm2-135m-instruct": (make_labels.Reference(args.smollm2), [20], 2e-3),
    }
    out = {
        name: {"max_relative_difference": tolerance, "cases": [case | states(reference, case, layers) for case in CASES]}
        for name, (reference, layers, tolerance) in models.items()
    }
    write_json(ROOT / "states.json", {"made_with": versions("torch", "transformers", "tokenizers"), "models": out})


if __name__ == "__main__":
    main()
