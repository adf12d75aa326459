#!/usr/bin/env python3
"""Measures the cost of a JSON schema per token, as a share of a decoding step.

    cargo build --release --locked -p probity -p probity-runtime --example throughput
    scripts/bench/schema.py --model FILE.gguf --data FOLDER [--pairs 12] [--reason 24] [--rounds 5]

FOLDER contains mt_bench_200.json and llmbar_natural.json. Each prompt requests a verdict on a pair as JSON. A text with
the schema is compared with an unrestricted text of the same prompt and length. Both are generated one after the other
in one process, in alternating order; prompts whose unrestricted text ends earlier are omitted. The cost per token is
the median difference in time, including start and end, divided by the number of tokens. A step is the time of a text
after its first token, divided by the remaining tokens. With --side-by-side N, that many texts are generated at a time,
in alternating runs of either kind, and times are those of all texts together. Needs gguf, tokenizers and numpy.
"""

import argparse
import json
import math
import statistics
import tempfile
from pathlib import Path

from generation import ours, prompts

PROMPT = """Which of two responses to a task is better? Answer in JSON: `verdict` is A, B or tie, `score` says from 1 to 10 how sure you are, `reason` why.

[Start of Task]
{task}
[End of Task]

[Start of Response A]
{first}
[End of Response A]

[Start of Response B]
{second}
[End of Response B]"""


def schema(reason: int) -> dict:
    """A judge's verdict with a reason of at most `reason` characters, and at least half as many."""
    properties = {
        "verdict": {"enum": ["A", "B", "tie"]},
        "score": {"type": "integer", "minimum": 1, "maximum": 10},
        "reason": {"type": "string", "minLength": reason // 2, "maxLength": reason},
    }
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def write(options: argparse.Namespace, texts: list[dict], folder: str, repetitions: int) -> list[dict]:
    work = Path(folder) / "texts.json"
    work.write_text(json.dumps({"texts": texts}))
    return ours(options.model, work, options.precision, options.side_by_side, "off", repetitions)


def one_at_a_time(options: argparse.Namespace, free: list[dict], held: list[dict], folder: str) -> tuple[list[float], list[float]]:
    """Seconds per step of each text without a schema, and the cost of a schema per token."""
    # Alternates the order within pairs.
    at = [(2 * number + number % 2, 2 * number + 1 - number % 2) for number in range(len(free))]
    texts = [text for number, pair in enumerate(zip(free, held)) for text in (pair if number % 2 == 0 else pair[::-1])]

    def times(answers: list[dict]) -> list[float]:
        ends = [0.0, *(answer["seconds"] for answer in answers)]
        return [end - start for start, end in zip(ends, ends[1:])]

    steps, costs = [], []
    # The first round reads the vocabulary.
    for line in write(options, texts, folder, options.rounds + 1)[1:]:
        wholes, firsts = times(line["answers"]), times(line["first"])
        for (a, b), text in zip(at, free):
            steps.append((wholes[a] - firsts[a]) / (text["max_tokens"] - 1))
            costs.append((wholes[b] - wholes[a]) / text["max_tokens"])
    return steps, costs


def side_by_side(options: argparse.Namespace, free: list[dict], held: list[dict], folder: str) -> tuple[list[float], list[float]]:
    """The same for all texts together, for each round."""
    steps, costs = [], []
    tokens = sum(text["max_tokens"] for text in free)
    for number in range(options.rounds):
        a, b = (write(options, texts, folder, 2)[-1] for texts in ((free, held) if number % 2 else (held, free)))
        a, b = (a, b) if number % 2 else (b, a)
        steps.append((a["seconds"] - a["prompt_seconds"]) / (tokens - len(free)))
        costs.append((b["seconds"] - a["seconds"]) / tokens)
    return steps, costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=12, help="pairs from each file")
    parser.add_argument("--longest-prompt", type=int, default=300, help="in tokens")
    parser.add_argument("--reason", type=int, default=24, help="maximum characters of a reason")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", default="dots")
    parser.add_argument("--side-by-side", type=int, default=1)
    options = parser.parse_args()
    held = prompts(options.model, options.data, options.pairs, 1000, options.longest_prompt, PROMPT)
    held = [text | {"schema": schema(options.reason)} for text in held]
    with tempfile.TemporaryDirectory() as folder:
        written = write(options, held, folder, 1)[0]["answers"]
        free = [{"tokens": text["tokens"], "max_tokens": len(answer["tokens"])} for text, answer in zip(held, written)]
        written = write(options, free, folder, 1)[0]["answers"]
        asked = len(held)
        pairs = [(a, b) for a, b, answer in zip(free, held, written) if len(answer["tokens"]) == a["max_tokens"]]
        if not pairs:
            raise SystemExit("without the schema every text ends earlier: ask for shorter ones (--reason) or more prompts (--pairs)")
        free, held = map(list, zip(*pairs))
        lengths = [text["max_tokens"] for text in free]
        print(f"{len(held)} of {asked} prompts, texts of {min(lengths)} to {max(lengths)} tokens, {statistics.mean(lengths):.1f} on average")
        steps, costs = (one_at_a_time if options.side_by_side == 1 else side_by_side)(options, free, held, folder)
    step, cost = statistics.median(steps), statistics.median(costs)
    # The median's 95% interval by ranks; with fewer than six values, the range.
    costs.sort()
    around = math.ceil(1.96 * math.sqrt(len(costs)) / 2)
    low, high = costs[max(0, len(costs) // 2 - around)], costs[min(len(costs) - 1, len(costs) // 2 + around)]
    interval = "95 % interval" if len(costs) > 5 else "range"
    percent = lambda seconds: f"{100 * seconds / step:+.1f} %"
    print(f"{1e3 * step:.3f} ms a token without a schema")
    print(f"a schema costs {1e3 * cost:+.3f} ms a token, {percent(cost)} ({interval} {percent(low)} to {percent(high)}, {len(costs)} comparisons)")


if __name__ == "__main__":
    main()
