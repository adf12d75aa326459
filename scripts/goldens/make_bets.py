"""BETS with torch on the tiny masked BERT, with a seeded comparator: tests/goldens/embedding/bets.{json,safetensors}.

After the script published by its authors (Zhao, Durmus and Yeung 2023). Meaning is the mean over the source's tokens,
including [CLS] and [SEP], of the highest cosine with the candidate's. Each word that only the candidate has is compared
with the word that only the source has and whose tokens are closest, each word encoded alone. Simplicity is the largest
output of the comparator, a perceptron over both words' mean states and their absolute difference. Words are separated
by spaces and in lower case.
"""

import torch
import transformers
from safetensors.torch import save_file

from provenance import ROOT, versions, write_json

FOLDER = ROOT / "embedding"
ITEMS = [
    ("The farmer planted apple trees near the harbour .", "The farmer planted trees near the old harbour ."),
    ("My neighbour repaired wooden boats .", "My neighbour carried wooden boats ."),
    ("A young doctor forgot many letters before the winter .", "A teacher forgot letters before the cold winter ."),
    ("The old captain carried heavy suitcases !", "The captain carried suitcases !"),
    ("The farmer planted apple trees .", "The farmer planted apple trees ."),
    ("apple trees", "the garden fence"),
]


def main() -> None:
    """Writes both files."""
    folder = ROOT / "models" / "tiny-masked"
    tokenizer = transformers.BertTokenizerFast.from_pretrained(folder)
    encoder = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    torch.manual_seed(7)
    width = encoder.config.hidden_size
    linears = {0: torch.nn.Linear(3 * width, 8), 2: torch.nn.Linear(8, 8), 4: torch.nn.Linear(8, 1)}

    @torch.no_grad()
    def states(text: str) -> torch.Tensor:
        return encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]

    def cosines(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        unit = lambda rows: torch.nn.functional.normalize(rows.double())
        return unit(first) @ unit(second).T

    @torch.no_grad()
    def simpler(old: torch.Tensor, new: torch.Tensor) -> float:
        a, b = old.mean(0), new.mean(0)
        value = torch.cat([a, b, (a - b).abs()])
        for place, linear in linears.items():
            value = linear(value) if place == 4 else torch.tanh(linear(value))
        return value.item()

    rows = []
    for source, candidate in ITEMS:
        meaning = cosines(states(source), states(candidate)).max(1).values.mean().item()
        old, new = source.lower().split(), candidate.lower().split()
        added, gone = [word for word in new if word not in old], [word for word in old if word not in new]
        found = []
        for word in added:
            nearest = max(gone, key=lambda other: cosines(states(word), states(other)).max().item(), default=None)
            found += [simpler(states(nearest), states(word))] if nearest else []
        rows.append([meaning, max(found, default=0.0)])
    FOLDER.mkdir(exist_ok=True)
    tensors = {f"classification.{place}.{name}": value.detach() for place, linear in linears.items() for name, value in linear.named_parameters()}
    save_file(tensors, FOLDER / "bets.safetensors")
    made_with = versions("torch", "transformers", "safetensors")
    items = [{"source": source, "candidate": candidate} for source, candidate in ITEMS]
    write_json(FOLDER / "bets.json", {"made_with": made_with, "max_abs_difference": 1e-5, "items": items, "meaning_and_simplicity": rows})


if __name__ == "__main__":
    main()
