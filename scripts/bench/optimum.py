"""Counts the fewest tokens that any engine must compute for the comparisons of an article, with the reference
tokenizer.

Independent of probity: Jinja2 and transformers render the prompts from probity's prompt template and the model's chat
template.
"""

import argparse
import json
from itertools import permutations
from pathlib import Path

import jinja2
from transformers import AutoTokenizer

import work


def prompts(sample: dict, template: jinja2.Template, tokenizer) -> list[list[int]]:
    """Every ordered comparison of a sample's candidates, in the order of `compare`."""
    settings = {"noun": "summary", "attribute": "coherence", "adjective": "coherent", "comparative": "more coherent"}
    settings |= {"name_a": "Summary A", "name_b": "Summary B", "label_a": "A", "label_b": "B"}
    sequences = []
    for first, second in permutations(sample["candidates"], 2):
        text = template.render(settings, context=sample["context"], candidate_a=first["text"], candidate_b=second["text"])
        chat = [{"role": "user", "content": text.rstrip("\n")}]
        rendered = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        sequences.append(tokenizer(rendered, add_special_tokens=False)["input_ids"])
    return sequences


def main() -> None:
    """Counts for the first article of a run, and checks that the run's prompts had the same number of tokens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True, help="the GGUF file of the run's model")
    parser.add_argument("--template", type=Path, required=True)
    parser.add_argument("--run", type=Path, required=True)
    options = parser.parse_args()
    with options.data.open(encoding="utf-8") as lines:
        sample = json.loads(next(lines))
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    template = environment.from_string(options.template.read_text(encoding="utf-8"))
    tokenizer = AutoTokenizer.from_pretrained(str(options.model.parent), gguf_file=options.model.name)
    sequences = prompts(sample, template, tokenizer)
    rows = [json.loads(line) for line in (options.run / "comparisons.jsonl").read_text().splitlines()]
    theirs = [row["prompt_tokens"] for row in rows if row["item"] == sample["id"]]
    if theirs != [len(sequence) for sequence in sequences]:
        raise SystemExit(f"prompts differ in length from those of the run: {list(map(len, sequences))[:3]} …, {theirs[:3]} …")
    # Each label is one token, which is queried and never computed.
    print(json.dumps({"optimum": work.optimum(sequences), "unshared": sum(theirs), "prompts": len(sequences)}))


if __name__ == "__main__":
    main()
