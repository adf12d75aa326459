#!/usr/bin/env python3
"""Measures what a JSON schema costs a text per token, as a share of a decoding step.

    cargo build --release --locked -p probity -p probity-runtime --example throughput
    scripts/bench/schema.py --model FILE.gguf --data FOLDER [--pairs 12] [--reason 24] [--rounds 5]

FOLDER holds mt_bench_200.json and llmbar_natural.json. Each prompt asks for a verdict on a pair as JSON. A text under the schema is compared with one of
the same prompt and as many tokens that may say anything: both are written one behind the other in one process, the order changing from prompt to
prompt, and the median over the rounds of each text's time is taken. A step is the time of a text less that of its first token, by its other tokens.
With --side-by-side N, the prompts are written that many at a time, in a run of either kind by turns. Needs gguf, tokenizers and numpy in the Python
that runs it.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from generation import ours, prompts, rate

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
    """A judge's verdict with a reason of at most so many characters, and at least half as many."""
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


def one_at_a_time(options: argparse.Namespace, free: list[dict], held: list[dict], folder: str) -> None:
    """Pairs of texts, each timed by itself."""
    pairs = [(a, b) if number % 2 else (b, a) for number, (a, b) in enumerate(zip(free, held))]
    # The first round reads the vocabulary.
    lines = write(options, [text for pair in pairs for text in pair], folder, options.rounds + 1)[1:]

    def times(line: dict, kind: str) -> list[float]:
        ends = [0.0, *(answer["seconds"] for answer in line[kind])]
        return [end - start for start, end in zip(ends, ends[1:])]

    wholes, firsts = ([statistics.median(times) for times in zip(*(times(line, kind) for line in lines))] for kind in ("answers", "first"))
    steps, costs = [], []
    for number in range(len(pairs)):
        a, b = (2 * number + 1, 2 * number) if number % 2 == 0 else (2 * number, 2 * number + 1)
        count, other = (len(lines[0]["answers"][text]["tokens"]) for text in (a, b))
        if count == other > 1:
            steps.append((wholes[a] - firsts[a]) / (count - 1))
            costs.append((wholes[b] - wholes[a]) / count)
    step, cost = statistics.mean(steps), statistics.mean(costs)
    print(f"{len(steps)} of {len(pairs)} prompts; a step {1e3 * step:.2f} ms; a schema's cost per token {1e3 * cost:+.3f} ms, {100 * cost / step:+.1f} %")


def side_by_side(options: argparse.Namespace, free: list[dict], held: list[dict], folder: str) -> None:
    """All texts at once."""
    rounds = []
    for number in range(options.rounds):
        per_token = {}
        for kind in ("free", "held") if number % 2 else ("held", "free"):
            line = write(options, free if kind == "free" else held, folder, 2)[-1]
            per_token[kind] = 1 / rate(line)
        rounds.append(per_token)
        print({kind: f"{1e3 * seconds:.3f} ms" for kind, seconds in per_token.items()}, flush=True)
    ratio = statistics.median(line["held"] / line["free"] for line in rounds)
    step = statistics.median(line["free"] for line in rounds)
    print(f"{len(held)} prompts; a token {1e3 * step:.3f} ms without a schema; with one {100 * (ratio - 1):+.1f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=12, help="of each file")
    parser.add_argument("--longest-prompt", type=int, default=300, help="in tokens")
    parser.add_argument("--reason", type=int, default=24, help="characters that a reason may have")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", default="dots")
    parser.add_argument("--side-by-side", type=int, default=1)
    options = parser.parse_args()
    held = prompts(options.model, options.data, options.pairs, 1000, options.longest_prompt, PROMPT)
    held = [text | {"schema": schema(options.reason)} for text in held]
    with tempfile.TemporaryDirectory() as folder:
        answers = write(options, held, folder, 1)[-1]["answers"]
        free = [{"tokens": text["tokens"], "max_tokens": len(answer["tokens"])} for text, answer in zip(held, answers)]
        lengths = [text["max_tokens"] for text in free]
        print(f"{len(held)} texts under a schema of {min(lengths)} to {max(lengths)} tokens, {statistics.mean(lengths):.1f} on average")
        (one_at_a_time if options.side_by_side == 1 else side_by_side)(options, free, held, folder)


if __name__ == "__main__":
    main()
