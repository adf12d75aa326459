"""The measured prompts, as seeded random tokens: single prompts, and all ordered comparisons of one item's candidates.
"""

import json
import random
from itertools import permutations
from pathlib import Path

LABELS = [28741, 28760]
"""The tokens `A` and `B` of the llama tokenizer, which is what the model has."""


def tokens(random_numbers: random.Random, count: int) -> list[int]:
    """Ordinary tokens, none of them special."""
    return [random_numbers.randrange(300, 30000) for _ in range(count)]


def single(length: int) -> dict:
    """One prompt."""
    return {"prompts": [tokens(random.Random(length), length)], "labels": LABELS}


def job(candidates: int = 16, context: int = 400, candidate: int = 60, question: int = 40, limit: int | None = None, firsts: int | None = None) -> dict:
    """Each ordered pair of candidates after the context and before the question. For less work: the first `limit`
    prompts, or those with one of the first `firsts` candidates in first position."""
    numbers = random.Random(f"{candidates} {context} {candidate} {question}")
    texts = {"context": tokens(numbers, context), "question": tokens(numbers, question)}
    texts["candidates"] = [tokens(numbers, candidate) for _ in range(candidates)]
    pairs = list(permutations(texts["candidates"], 2))[: None if firsts is None else firsts * (candidates - 1)]
    prompts = [texts["context"] + first + second + texts["question"] for first, second in pairs]
    return {"prompts": prompts[:limit], "labels": LABELS, "firsts": firsts or candidates, **texts}


def optimum(sequences: list[list[int]]) -> int:
    """The fewest tokens that any engine can compute: one for each distinct prefix of the sequences."""
    root: dict = {}
    count = 0
    for sequence in sequences:
        node = root
        for token in sequence:
            if token not in node:
                node[token] = {}
                count += 1
            node = node[token]
    return count


def write(path: Path, work: dict) -> Path:
    """Writes a file unless it exists; its name identifies its content."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(work))
        part.rename(path)
    return path
