"""Times BLEU, chrF, TER and ROUGE against sacrebleu and rouge_score over the same pairs, in one run.

Usage: metrics.py --data FOLDER [--probity target/release/probity] [--pairs 100000] [--peer-pairs N] [--metrics bleu,chrf,…]

FOLDER contains summeval.json, topical_chat.json and parareval_129.jsonl. Needs `pip install sacrebleu==2.6.0
rouge_score==0.1.2`. Every candidate is paired with each of its references. To reach the number of pairs, they are
repeated with one word omitted from both texts, so that fewer texts are equal than in the files (sacrebleu caches
tokenized texts). --peer-pairs gives the peers only that many pairs, evenly spaced, and rates are compared. Our time is
that of the whole command: start, reading, scores of items and of the corpus, writing. For the peers it is the scores
alone, and for sacrebleu only those of the corpus. They run alternately, and their results are compared too.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OURS = {"bleu": "bleu", "chrf": "chrf", "chrf++": "chrf:word-order=2", "ter": "ter", "rouge": "rouge-1,rouge-2,rouge-l"}


def pairs_of(folder):
    """Pairs of a candidate and a reference."""
    for document in json.loads((folder / "summeval.json").read_text()).values():
        for system in document["sys_summs"].values():
            for reference in document["ref_summs"]:
                yield system["sys_summ"], reference
    chat = json.loads((folder / "topical_chat.json").read_text())
    truth = {c["source"]: c["system_output"] for c in chat if c["system_id"] == "Original Ground Truth"}
    for answer in chat:
        if answer["system_id"] != "Original Ground Truth":
            yield answer["system_output"], truth[answer["source"]]
    for line in (folder / "parareval_129.jsonl").read_text().splitlines():
        pair = json.loads(line)
        for model in "AB":
            for reference in "reference_paragraph", "original_paragraph":
                yield pair[f"model_{model}_paragraph"], pair[reference]


def distinct_pairs(folder, count):
    """The requested number of pairs, each repetition with another word omitted from both texts."""
    pairs = list(pairs_of(folder))
    rng = random.Random(0)

    def without_one(text):
        words = text.split(" ")
        del words[rng.randrange(len(words))]
        return " ".join(words)

    return [tuple(map(without_one, pairs[k % len(pairs)])) for k in range(count)]


def sacrebleu_scores(tool, **options):
    """Seconds, and the score of the corpus."""

    def run(pairs):
        candidates, references = [c for c, _ in pairs], [r for _, r in pairs]
        metric = tool(**options)
        start = time.perf_counter()
        score = metric.corpus_score(candidates, [references]).score
        return time.perf_counter() - start, [score]

    return run


def rouge_scores(pairs):
    """Seconds, and the means of F."""
    from rouge_score.rouge_scorer import RougeScorer

    kinds = ["rouge1", "rouge2", "rougeL"]
    scorer = RougeScorer(kinds)
    start = time.perf_counter()
    scores = [scorer.score(reference, candidate) for candidate, reference in pairs]
    seconds = time.perf_counter() - start
    return seconds, [sum(s[kind].fmeasure for s in scores) / len(scores) for kind in kinds]


def our_scores(binary, metrics, pairs, folder):
    """Wall-clock and CPU seconds, and the scores of all pairs."""
    data = folder / f"pairs-{len(pairs)}.jsonl"
    if not data.exists():
        with data.open("w") as file:
            for number, (candidate, reference) in enumerate(pairs):
                sample = {"id": str(number), "context": "", "candidates": [{"id": "1", "text": candidate}], "references": [reference]}
                file.write(json.dumps(sample) + "\n")
    command = [binary, "metrics", "--metric", metrics, "--data", data, "--out", folder / "out", "--overwrite", "--json", "--quiet"]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    scores = [entry["corpus"] for entry in json.loads(output)["values"]["metrics"] if "." not in entry["metric"]]
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, scores


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--probity", default="target/release/probity")
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--peer-pairs", type=int)
    parser.add_argument("--metrics", default=",".join(OURS))
    args = parser.parse_args()
    from sacrebleu.metrics import BLEU, CHRF, TER

    peers = {
        "bleu": sacrebleu_scores(BLEU, force=True),
        "chrf": sacrebleu_scores(CHRF),
        "chrf++": sacrebleu_scores(CHRF, word_order=2),
        "ter": sacrebleu_scores(TER),
        "rouge": rouge_scores,
    }
    pairs = distinct_pairs(args.data, args.pairs)
    peer_pairs = pairs[:: max(1, args.pairs // (args.peer_pairs or args.pairs))]
    print(f"{len(pairs):,} pairs, peers {len(peer_pairs):,}; {os.cpu_count()} processors\n")
    print("| metric | probity, s | of processors | peer, s per 100,000 | of processors | times as fast | by processors | largest difference |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in args.metrics.split(","):
            seconds, cpu, _ = our_scores(args.probity, OURS[name], pairs, Path(folder))
            before = time.process_time()
            peer_seconds, expected = peers[name](peer_pairs)
            peer_cpu = (time.process_time() - before) / len(peer_pairs)
            _, _, scores = our_scores(args.probity, OURS[name], peer_pairs, Path(folder))
            difference = max(abs(a - b) for a, b in zip(scores, expected, strict=True))
            per_pair = peer_seconds / len(peer_pairs)
            ratio, cpu_ratio = per_pair / (seconds / len(pairs)), peer_cpu / (cpu / len(pairs))
            theirs = f"{per_pair * 100_000:.1f} | {peer_cpu * 100_000:.1f}"
            print(f"| {name} | {seconds:.2f} | {cpu:.2f} | {theirs} | {ratio:.0f} | {cpu_ratio:.0f} | {difference:.1e} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
