#!/usr/bin/env python3
"""Measures the generation of revisions, with and without drafts, one at a time and in parallel, beside llama.cpp's
plain decoding.

    cargo build --release --locked -p probity -p probity-runtime --example throughput
    scripts/bench/generation.py --model FILE.gguf --data FOLDER [--pairs 20] [--rounds 3]

FOLDER contains mt_bench_200.json and llmbar_natural.json. Each prompt requests a revision of the first response given
the second, in ChatML; all engines get the same tokens. Tokens per second exclude the first token of each text: the time
of the prompts, measured with texts of one token, is subtracted. The copied share of a text is the share of its tokens
in runs of eight that also occur in its prompt. The best build and flash attention setting of llama.cpp are found with
one run each, one at a time and in parallel. Needs llama-cpp-python, gguf, tokenizers and numpy.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts" / "bench"), str(ROOT / "scripts" / "goldens")]

RUN = 8
PROMPT = """Below are a task and two responses to it. Revise the first response so that it answers the task as well as it can. Keep what is good in it, word \
for word where nothing is to be changed. The second response may show what is missing. Reply with the revised response and nothing else.

[Start of Task]
{task}
[End of Task]

[Start of Response]
{first}
[End of Response]

[Start of Second Response]
{second}
[End of Second Response]"""


def prompts(model: Path, data: Path, pairs: int, max_tokens: int, longest: int, prompt: str = PROMPT) -> list[dict]:
    """The first pairs of each file whose prompt has at most `longest` tokens."""
    import gguf_tokenizer

    tokenizer = gguf_tokenizer.read(model)
    texts = []
    for name in ("mt_bench_200.json", "llmbar_natural.json"):
        found = 0
        for item in json.loads((data / name).read_text()):
            content = prompt.format(task=item["input"], first=item["output_1"], second=item["output_2"])
            text = f"<|im_start|>system\nYou revise texts.<|im_end|>\n<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n"
            tokens = gguf_tokenizer.encode(tokenizer, text, special=True)
            if len(tokens) <= longest and found < pairs:
                found += 1
                texts.append({"tokens": tokens, "max_tokens": max_tokens})
    return texts


def ours(model: Path, work: Path, precision: str, side_by_side: int, draft: str, repetitions: int = 1) -> list[dict]:
    """The results of one run of probity, by repetition."""
    program = ROOT / "target" / "release" / "examples" / "throughput"
    options = {"model": model, "texts": work, "precision": precision, "side-by-side": side_by_side, "draft": draft, "repetitions": repetitions}
    command = [str(program), *(str(part) for name, value in options.items() for part in (f"--{name}", value))]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines[1:]]


def peer(model: Path, work: Path, side_by_side: int, build: tuple[str, str], ends: list[int]) -> dict:
    """One run of llama.cpp in a separate process, with a build's folder and flash attention on or off."""
    folder, flash = build
    command = [sys.executable, __file__, "--worker", "--model", model, "--work", work, "--side-by-side", side_by_side, "--flash", flash]
    command += ["--ends", ",".join(map(str, ends))]
    environment = os.environ | ({"PYTHONPATH": folder} if folder else {})
    lines = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True, env=environment).stdout.splitlines()
    return json.loads(lines[-1])


def worker(options: argparse.Namespace) -> None:
    """Greedy texts by llama.cpp: starts a prompt when a slot is free, then computes a token for every slot in each
    call."""
    import numpy as np

    from peer_llama_cpp import Engine, lib
    import ctypes

    texts = json.loads(options.work.read_text())["texts"]
    room = sorted((len(text["tokens"]) + text["max_tokens"] for text in texts), reverse=True)
    places = min(options.side_by_side, len(texts))
    engine = Engine(str(options.model), 2, options.flash == "on", -(-sum(room[:places]) // 256) * 256, places)
    ends = {int(end) for end in options.ends.split(",")}

    def likeliest(row: int) -> int:
        address = lib.llama_get_logits_ith(engine.context, row)
        return int(np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (engine.vocab_size,)).argmax())

    def step(stretches: list) -> list[int]:
        """The next token of each sequence."""
        engine.logits = likeliest
        return engine.run(stretches, True)

    step([(0, 0, texts[0]["tokens"][:64])])
    engine.forget()
    answers: list[list[int]] = [[] for _ in texts]
    waiting, active, free = list(range(len(texts))), {}, list(range(places))
    prompt_seconds, start = 0.0, time.perf_counter()

    def take(text: int, token: int) -> bool:
        """Adds a token; returns whether the text continues."""
        if token in ends:
            return False
        answers[text].append(token)
        return len(answers[text]) < texts[text]["max_tokens"]

    while waiting or active:
        while waiting and free:
            text, place = waiting.pop(0), free.pop()
            before = time.perf_counter()
            token = step([(place, 0, texts[text]["tokens"])])[0]
            prompt_seconds += time.perf_counter() - before
            if take(text, token):
                active[place] = text
            else:
                engine.drop(place)
                free.append(place)
        if active:
            stretch = lambda place, text: (place, len(texts[text]["tokens"]) + len(answers[text]) - 1, answers[text][-1:])
            for (place, text), token in zip(list(active.items()), step([stretch(*item) for item in active.items()])):
                if not take(text, token):
                    del active[place]
                    engine.drop(place)
                    free.append(place)
    print(json.dumps({"seconds": time.perf_counter() - start, "prompt_seconds": prompt_seconds, "answers": [{"tokens": a} for a in answers]}))


def copied(text: list[int], prompt: list[int]) -> float:
    """The share of tokens in runs that occur in the prompt."""
    known = {tuple(prompt[at : at + RUN]) for at in range(len(prompt) - RUN + 1)}
    marks = [False] * len(text)
    for at in range(len(text) - RUN + 1):
        if tuple(text[at : at + RUN]) in known:
            marks[at : at + RUN] = [True] * RUN
    return sum(marks) / len(text) if text else 0.0


def rate(line: dict) -> float:
    """Tokens per second after the first of each text."""
    tokens = sum(max(len(answer["tokens"]) - 1, 0) for answer in line["answers"])
    return tokens / (line["seconds"] - line["prompt_seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--pairs", type=int, default=20, help="pairs from each file")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--longest-prompt", type=int, default=1500, help="in tokens")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", default="dots")
    parser.add_argument("--parallel", type=int, default=32)
    parser.add_argument("--llama", action="append", help="folder with a build of llama-cpp-python; of several, the fastest is measured")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--leave-out", action="append", default=[], help="omit rows whose name contains this")
    parser.add_argument("--copied", type=float, help="only texts with at least this copied share, as generated by probity")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--side-by-side", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--flash", help=argparse.SUPPRESS)
    parser.add_argument("--ends", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options)
    import gguf_tokenizer

    tokenizer = gguf_tokenizer.read(options.model)
    ends = [token for name in ("<|im_end|>", "<|endoftext|>") if (token := tokenizer.token_to_id(name)) is not None]
    texts = prompts(options.model, options.data, options.pairs, options.max_tokens, options.longest_prompt)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "texts.json"
        work.write_text(json.dumps({"texts": texts}))
        if options.copied is not None:
            written = ours(options.model, work, options.precision, 128, "lookup")[0]["answers"]
            shares = [copied(answer["tokens"], text["tokens"]) for answer, text in zip(written, texts)]
            print(f"copied: {', '.join(f'{share:.2f}' for share in shares)}")
            texts = [text for text, share in zip(texts, shares) if share >= options.copied]
            work.write_text(json.dumps({"texts": texts}))
        print(f"{len(texts)} prompts of {sum(len(text['tokens']) for text in texts)} tokens")
        wide = min(options.parallel, len(texts))
        engines = {
            "ours, plain, one at a time": lambda: ours(options.model, work, options.precision, 1, "off")[0],
            "ours, guessing, one at a time": lambda: ours(options.model, work, options.precision, 1, "lookup")[0],
            f"ours, plain, {wide} side by side": lambda: ours(options.model, work, options.precision, wide, "off")[0],
            f"ours, guessing, {wide} side by side": lambda: ours(options.model, work, options.precision, wide, "lookup")[0],
        }
        if not options.no_peer:
            builds = [(folder, flash) for folder in options.llama or [""] for flash in ("on", "off")]
            engines |= {"llama.cpp, one at a time": (1, builds), f"llama.cpp, {wide} side by side": (wide, builds)}
        engines = {name: engine for name, engine in engines.items() if not any(part in name for part in options.leave_out)}
        for name, engine in engines.items():
            if isinstance(engine, tuple):
                places, builds = engine
                best = max(builds, key=lambda build: rate(peer(options.model, work, places, build, ends)))
                print(f"{name}: flash attention {best[1]}, {best[0]}")
                engines[name] = lambda places=places, best=best: peer(options.model, work, places, best, ends)
        rates: dict[str, list[float]] = {name: [] for name in engines}
        last = {}
        for number in range(options.rounds):
            for name, engine in engines.items():
                last[name] = engine()
                rates[name].append(rate(last[name]))
                print(f"round {number + 1}: {name}: {rates[name][-1]:.1f} tokens/s", flush=True)
    written = [answer["tokens"] for answer in last[next(iter(last))]["answers"]]
    for name, line in last.items():
        if name.startswith("ours"):
            assert [answer["tokens"] for answer in line["answers"]] == written, f"{name}: other texts"
    shares = [copied(tokens, text["tokens"]) for tokens, text in zip(written, texts)]
    print(f"\n{sum(map(len, written))} tokens written, {statistics.mean(shares):.2f} of a text copied on average")
    for name, line in last.items():
        if "guessing" in name:
            print(f"{name}: guessed {line['usage']['tokens_drafted']}, right {line['usage']['drafts_accepted']}")
    base = {name: statistics.median(values) for name, values in rates.items()}
    for name, value in base.items():
        ratios = [statistics.median(a / b for a, b in zip(rates[name], rates[other])) for other in base]
        print(f"{name:40} {value:8.1f} tokens/s   " + " ".join(f"{ratio:6.2f}" for ratio in ratios))
    print(f"{'':60} (columns: ratio to each row)")


if __name__ == "__main__":
    main()
