#!/usr/bin/env python3
"""Measures an encoder-decoder of Flan-T5-base's shape beside transformers (f32) and ctranslate2 (int8), in alternating
rounds.

    cargo build --release --locked -p probity-runtime --examples
    scripts/bench/encoder_decoder.py --python ENVIRONMENT --tokenizer FOLDER

The work is that of one item with 16 candidates: 240 ordered comparisons, each encoded, with the log-probabilities of
two label words at the decoder's first step. The weights are random and seeded; the speed of a dense model does not
depend on them. ENVIRONMENT is a Python with requirements.txt and ctranslate2, and FOLDER contains T5's tokenizer.json.
Prints a table and the ratios, medians over the rounds.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import work
from engines import Bench, Command, flags, ours, run

ROOT = Path(__file__).resolve().parents[2]
SEED = 20251122
CONFIG = {
    "d_model": 768,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 12,
    "num_decoder_layers": 12,
    "num_heads": 12,
    "vocab_size": 32128,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
LABELS = ["\u2581A", "\u2581B"]


def make_models(folder: Path, tokenizer: Path) -> None:
    """Writes the model for transformers and probity, and an int8 version for ctranslate2."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    if not folder.exists():
        torch.manual_seed(SEED)
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        T5ForConditionalGeneration(T5Config(**CONFIG)).save_pretrained(part)
        for name in ("tokenizer.json", "tokenizer_config.json", "spiece.model", "special_tokens_map.json"):
            shutil.copyfile(tokenizer / name, part / name)
        part.rename(folder)
    converted = folder.with_name(folder.name + "-int8")
    if not converted.exists():
        import ctranslate2

        ctranslate2.converters.TransformersConverter(str(folder)).convert(str(converted), quantization="int8")


def label_ids(model: Path) -> list[int]:
    """The ids of the label words."""
    from tokenizers import Tokenizer

    vocabulary = Tokenizer.from_file(str(model / "tokenizer.json"))
    return [vocabulary.token_to_id(label) for label in LABELS]


def worker_main(options: argparse.Namespace) -> None:
    """A peer's process: loads, warms up on a batch, then times the work."""
    import worker

    todo = worker.read_work(options.work)
    prompts = todo["prompts"]
    labels = label_ids(options.tokenizer)
    score = {"transformers": transformers_scorer, "ctranslate2": ctranslate2_scorer}[options.worker](options, labels)

    def once(texts: list[list[int]]) -> dict:
        start = time.perf_counter()
        answers = [answer for at in range(0, len(texts), options.batch) for answer in score(texts[at : at + options.batch])]
        return {"answers": answers, "seconds": time.perf_counter() - start}

    worker.repeat(options.repetitions, lambda: once(prompts), lambda: once(prompts[: options.batch]))


def transformers_scorer(options: argparse.Namespace, labels: list[int]):
    """Runs the encoder once, one decoder step, and the head on it."""
    import torch
    import transformers
    import worker

    torch.set_num_threads(options.threads)
    transformers.utils.logging.set_verbosity_error()
    model = transformers.T5ForConditionalGeneration.from_pretrained(options.model, dtype=torch.float32).eval()
    worker.emit(version=f"transformers {transformers.__version__}, torch {torch.__version__}")

    def score(batch: list[list[int]]) -> list[list[float]]:
        with torch.inference_mode():
            start = torch.zeros((len(batch), 1), dtype=torch.long)
            logits = model(input_ids=torch.tensor(batch), decoder_input_ids=start, use_cache=False).logits[:, -1]
            return logits.log_softmax(-1)[:, labels].tolist()

    return score


def ctranslate2_scorer(options: argparse.Namespace, labels: list[int]):
    """Runs the encoder once and one decoder step with logits of the whole vocabulary."""
    import ctranslate2
    import numpy as np
    import worker

    translator = ctranslate2.Translator(str(options.model), device="cpu", compute_type="int8", intra_threads=options.threads, inter_threads=1)
    vocabulary = json.loads((Path(options.model) / "shared_vocabulary.json").read_text())
    worker.emit(version=f"ctranslate2 {ctranslate2.__version__}")

    def score(batch: list[list[int]]) -> list[list[float]]:
        texts = [[vocabulary[token] for token in tokens] for tokens in batch]
        results = translator.translate_batch(texts, beam_size=1, max_decoding_length=1, return_logits_vocab=True, max_batch_size=0, disable_unk=False)
        logits = np.array([np.asarray(result.logits[0][0], dtype=np.float64) for result in results])
        logs = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True)) - logits.max(-1, keepdims=True)
        return logs[:, labels].tolist()

    return score


def peer(bench: Bench, engine: str, model: Path, batch: int, **options: object) -> Command:
    """The command line of a peer."""
    settings = {"worker": engine, "model": model, "threads": bench.threads, "batch": batch, **options}
    return Command(engine, f"{engine} batch {batch}", [str(bench.python), str(Path(__file__).resolve()), *flags(settings)], 0)


def measure(bench: Bench, options: argparse.Namespace) -> None:
    """Runs rounds of all engines; prints medians, memory, ratios and differences."""
    folder = bench.models / "flan-t5-base-shaped"
    subprocess.run([str(bench.python), str(Path(__file__).resolve()), "--make", str(folder), "--tokenizer", str(options.tokenizer)], check=True)
    todo = work.job(candidates=options.candidates)
    path = work.write(bench.folder / "work" / f"job-{len(todo['prompts'])}.json", todo)
    part = work.write(bench.folder / "work" / f"job-{len(todo['prompts'])}-24.json", work.job(candidates=options.candidates, limit=24))
    count = len(todo["prompts"])
    common = {"tokenizer": folder}
    commands = [ours(bench, folder.name, precision, count, work=path) for precision in options.precision.split(",")]
    for engine, model, batches in (("transformers", folder, (1, 8)), ("ctranslate2", folder.with_name(folder.name + "-int8"), (1, 8, 16))):
        tries = [peer(bench, engine, model, batch, work=part, **common) for batch in batches]
        for command in tries:
            command.count = min(24, count)
        best = max(tries, key=lambda command: run(command, 1)["rate"])
        best.count = min(24, count) if engine == "transformers" else count
        best.arguments = [str(path) if argument == str(part) and engine != "transformers" else argument for argument in best.arguments]
        commands.append(best)
    rounds: dict[str, list[dict]] = {command.label: [] for command in commands}
    for index in range(options.rounds):
        for command in commands:
            result = run(command, 1)
            rounds[command.label].append(result)
            print(f"round {index + 1}: {command.label}: {result['rate']:.2f} prompts/s", file=sys.stderr, flush=True)
    report(commands, rounds)


def report(commands: list[Command], rounds: dict[str, list[dict]]) -> None:
    """The table."""
    mine = commands[0].label
    for command in commands:
        results = rounds[command.label]
        ratios = [first["rate"] / other["rate"] for first, other in zip(rounds[mine], results, strict=True)]
        apart = max(abs(x - y) for a, b in zip(rounds[mine][0]["answers"], results[0]["answers"], strict=False) for x, y in zip(a, b, strict=True))
        rate, memory = statistics.median(r["rate"] for r in results), max(r["peak_rss_bytes"] for r in results) / 2**20
        version = results[0]["about"].get("version", "")
        print(f"{command.label:60} {rate:8.2f} prompts/s {memory:8.0f} MiB   first of all ×{statistics.median(ratios):.2f}   answers ±{apart:.2g}   {version}")


def main() -> None:
    """Measures, or runs as a peer's process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--candidates", type=int, default=16)
    parser.add_argument("--precision", default="tiles,exact", help="our precisions, separated by commas; the first is compared with all others")
    for internal in ("--worker", "--model", "--make"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--repetitions", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        make_models(Path(options.make), options.tokenizer)
    elif options.worker:
        worker_main(options)
    else:
        measure(Bench(ROOT, options.python or Path(sys.executable), options.threads, options.rounds), options)


if __name__ == "__main__":
    main()
