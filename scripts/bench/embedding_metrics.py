#!/usr/bin/env python3
"""Measures BERTScore beside the package bert-score, with one encoder on the same pairs, in alternating rounds.

    cargo build --release --locked -p probity-runtime --examples
    scripts/bench/embedding_metrics.py --python ENVIRONMENT --model FOLDER --data FOLDER

The pairs are summaries of SummEval (DATA contains summeval.json), each with one of its article's references. Texts
repeat, as in practice, and both engines encode each distinct text once. The model FOLDER contains all-MiniLM-L6-v2, and
ENVIRONMENT is a Python with bert-score 0.3.13. Loading is not measured. The peer runs with several batch sizes, and the
fastest counts. Prints the rates (medians over the rounds), the ratio of ours to the peer's in the same round, and the
difference in F1.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BATCHES = (16, 64)


def pairs_of(data: Path, systems: int) -> list[list[str]]:
    """Pairs of a candidate and a reference."""
    articles = json.loads((data / "summeval.json").read_text(encoding="utf-8")).values()
    return [
        [article["sys_summs"][system]["sys_summ"], article["ref_summs"][index % len(article["ref_summs"])]]
        for article in articles
        for index, system in enumerate(sorted(article["sys_summs"])[:systems])
    ]


def peer(options: argparse.Namespace) -> None:
    """The peer's process: loads, warms up on a pair, then times the work."""
    import torch
    import transformers
    from bert_score import BERTScorer, __version__

    torch.set_num_threads(options.threads)
    transformers.utils.logging.set_verbosity_error()
    candidates, references = map(list, zip(*json.loads(options.peer.read_text(encoding="utf-8"))))
    layers = json.loads((options.model / "config.json").read_text())["num_hidden_layers"]
    scorer = BERTScorer(model_type=str(options.model), num_layers=layers, device="cpu", use_fast_tokenizer=True)
    print(json.dumps({"version": f"bert-score {__version__}, transformers {transformers.__version__}, torch {torch.__version__}"}))
    scorer.score(candidates[:1], references[:1])
    start = time.perf_counter()
    _, _, f1 = scorer.score(candidates, references, batch_size=options.batch)
    print(json.dumps({"seconds": time.perf_counter() - start, "answers": f1.tolist()}))


def run(command: list[object]) -> dict:
    """The last line that a process prints; prints the lines before it."""
    lines = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout.splitlines()
    *told, last = (json.loads(line) for line in lines if line.startswith("{"))
    return {key: value for line in told for key, value in line.items()} | last


def measure(options: argparse.Namespace) -> None:
    """Runs rounds of both engines; prints rates, ratios and differences."""
    pairs = pairs_of(options.data, options.systems)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "pairs.json"
        work.write_text(json.dumps(pairs), encoding="utf-8")
        example = ROOT / "target" / "release" / "examples" / "bert_score"
        commands: dict[str, list[object]] = {
            f"probity {precision}": [example, options.model, work, options.threads, precision, 1] for precision in options.precision.split(",")
        }
        common = ["--model", options.model, "--threads", options.threads, "--peer", work]
        for batch in BATCHES:
            commands[f"bert-score batch {batch}"] = [options.python, Path(__file__).resolve(), *common, "--batch", batch]
        rounds: dict[str, list[dict]] = {label: [] for label in commands}
        for index in range(options.rounds):
            for label, command in commands.items():
                rounds[label].append(run(command))
                print(f"round {index + 1}: {label}: {len(pairs) / rounds[label][-1]['seconds']:.2f} pairs/s", file=sys.stderr, flush=True)
    report(rounds, len(pairs))


def report(rounds: dict[str, list[dict]], count: int) -> None:
    """Prints a line for each engine, with ratios to the fastest peer of the same round."""
    peers = [results for label, results in rounds.items() if label.startswith("bert-score")]
    quickest = [min(results, key=lambda result: result["seconds"]) for results in zip(*peers)]
    print(f"{count} pairs, {len(quickest)} rounds, {quickest[0]['version']}")
    for label, results in rounds.items():
        ratio = statistics.median(theirs["seconds"] / ours["seconds"] for ours, theirs in zip(results, quickest))
        apart = max(abs(x - y) for x, y in zip(results[0]["answers"], quickest[0]["answers"]))
        rate = count / statistics.median(result["seconds"] for result in results)
        print(f"{label:24} {rate:9.2f} pairs/s   x{ratio:.2f} of the quickest peer   F1 within {apart:.2g}")


def main() -> None:
    """Measures, or runs as the peer's process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--systems", type=int, default=10, help="number of summaries per article")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="exact,tiles", help="our precisions, separated by commas")
    parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        peer(options)
    else:
        measure(options)


if __name__ == "__main__":
    main()
