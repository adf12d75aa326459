"""The rows of the table: engines, work, and target ratios."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from os import getloadavg
from pathlib import Path

import work
from engines import Bench, Command, Failed, llama_cpp, ours, peaks, run, transformers
from prepare import has_amx

PREFILL, DECODE = 512, 128
# Operations per token in products with weights: two per weight, embedding and head separately.
LAYER_WEIGHTS = 16 * (2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 5632)
HEAD_WEIGHTS = 2048 * 32000


@dataclass
class Target:
    """The minimum ratio of ours to a peer, and the aim."""

    peer: str
    least: float
    aim: float


@dataclass
class Row:
    """Engines that do the same work. Of an engine's ways to do it, the best in one trial is measured."""

    title: str
    unit: str
    ways: dict[str, list[Command]]
    targets: list[Target]
    peak: str | None = None
    """Which of the machine's limits the work meets: `int8`, `bf16`, `f32` or `memory`."""
    trials: dict[str, list[Command]] = field(default_factory=dict)
    """Smaller work for choosing among an engine's ways, one for each."""
    once: bool = False
    """Whether a process does the work once, because it takes long."""


def rows(bench: Bench) -> dict[str, Row]:
    """All rows, by their name in `--rows`."""
    prompt = work.write(bench.folder / "work" / f"prompt-{PREFILL}.json", work.single(PREFILL))
    table: dict[str, Row] = {}

    def peers(model: str, count: int, **options: object) -> list[Command]:
        return [llama_cpp(bench, model, count, flash=flash, **options) for flash in ("on", "off")]

    def quick(model: str, count: int, **options: object) -> list[Command]:
        return [ours(bench, model, precision, count, **options) for precision in quick_precisions(bench)]

    for name, least, aim in (("q8_0", 3.5, 5.0), ("q4_k", 2.5, 3.5), ("q4_1", 2.5, 3.5)):
        file = f"{name}.gguf"
        ways = {"ours": quick(file, PREFILL, work=prompt), "llama.cpp": peers(file, PREFILL, work=prompt)}
        title = f"prefill {PREFILL}, {name.upper()}, `fast`"
        table[f"prefill-{name}"] = Row(title, "tokens/s", ways, [Target("llama.cpp", least, aim)], "int8")
    ways = {
        "ours": [*quick("bf16", PREFILL, work=prompt), ours(bench, "bf16", "exact", PREFILL, work=prompt)],
        "transformers": [transformers(bench, "bf16", PREFILL, work=prompt)],
        "llama.cpp": peers("bf16.gguf", PREFILL, work=prompt),
    }
    table["prefill-bf16"] = Row(f"prefill {PREFILL}, bf16 weights, the quickest", "tokens/s", ways, [Target("transformers", 1.2, 1.5)], "bf16")
    for model, name in (("f32", "f32"), ("bf16", "bf16-exact")):
        ways = {"ours": [ours(bench, model, "exact", PREFILL, work=prompt)], "llama.cpp": peers("f32.gguf", PREFILL, work=prompt)}
        if model == "f32":
            ways["transformers"] = [transformers(bench, "f32", PREFILL, work=prompt)]
        title = f"prefill {PREFILL}, {model} weights, `exact` (llama.cpp: F32)"
        table[f"prefill-{name}"] = Row(title, "tokens/s", ways, [Target("llama.cpp", 1.7, 2.1)], "f32")
    for name in ("q8_0", "q4_k"):
        file = f"{name}.gguf"
        ways = {"ours": quick(file, DECODE, decode=DECODE), "llama.cpp": peers(file, DECODE, decode=DECODE)}
        title = f"decode {DECODE}, {name.upper()}, batch 1"
        table[f"decode-{name}"] = Row(title, "tokens/s", ways, [Target("llama.cpp", 1.0, 1.3)], "memory")
    return table | {"job": job(bench)}


def quick_precisions(bench: Bench) -> list[str]:
    """Candidates for `--precision fast`: with AMX, the faster of two is measured."""
    return ["tiles", "dots"] if bench.amx and has_amx() else ["dots"]


def job(bench: Bench) -> Row:
    """All ordered comparisons of one item's candidates, each engine at its best: llama.cpp with its own prefix reuse.
    """
    folder = bench.folder / "work"
    size = {"candidates": 4} if bench.quick else {}
    whole = work.job(**size)
    count, few = len(whole["prompts"]), min(24, len(whole["prompts"]))
    everything = work.write(folder / f"job-{count}.json", whole)
    part = work.write(folder / f"job-{count}-part.json", work.job(**size, limit=few))
    trial = work.write(folder / f"job-{count}-trial.json", work.job(**size, firsts=2))
    # Every weight type in batches of five, and every way to batch the type of our measurement.
    kinds = [(f"{kind}.gguf", 5, "on") for kind in ("q8_0", "q4_k", "bf16")]
    kinds += [("q8_0.gguf", group, flash) for group, flash in ((1, "on"), (15, "on"), (5, "off"))]

    def ours_on(path: Path, prompts: int) -> list[Command]:
        return [ours(bench, "q8_0.gguf", precision, prompts, work=path) for precision in quick_precisions(bench)]

    def llama_on(path: Path, prompts: int) -> list[Command]:
        return [llama_cpp(bench, file, prompts, work=path, group=group, flash=flash) for file, group, flash in kinds]

    batches = [transformers(bench, "bf16", few, work=part, batch=batch) for batch in (1, 4, 8)]
    ways = {"ours": ours_on(everything, count), "llama.cpp": llama_on(everything, count), "transformers": batches}
    tried = 2 * count // len(whole["candidates"])
    trials = {"ours": ours_on(trial, tried), "llama.cpp": llama_on(trial, tried)}
    title = f"the job: {count} comparisons of one item's candidates, ours in Q8_0 `fast`; transformers {few} of them"
    targets = [Target("llama.cpp", 3.0, 5.0), Target("transformers", 12.0, 20.0)]
    return Row(title, "prompts/s", ways, targets, trials=trials, once=True)


def best_way(engine: str, row: Row, say: Callable[[str], None]) -> tuple[Command, dict[str, object]]:
    """The fastest way of an engine in one trial each, and the results of the trials."""
    ways = row.ways[engine]
    if len(ways) == 1:
        return ways[0], {}
    rates: dict[str, object] = {}
    for way, trial in zip(ways, row.trials.get(engine, ways), strict=True):
        try:
            rates[way.label] = run(trial, 1)["rate"]
        except Failed as error:
            rates[way.label] = str(error)
        say(f"  {engine}, {way.label}: {show(rates[way.label])} {row.unit}")
    good = [way for way in ways if isinstance(rates[way.label], float)]
    if not good:
        raise Failed(f"no way worked: {rates[ways[0].label]}")
    return max(good, key=lambda way: rates[way.label]), rates


def measure(bench: Bench, row: Row, say: Callable[[str], None]) -> dict:
    """Measures a row in rounds, engine after engine, with the machine's peak rates before each round."""
    start, load = time.time(), getloadavg()[0]
    engines: dict[str, dict] = {}
    chosen: dict[str, Command] = {}
    for engine in row.ways:
        engines[engine] = {"rounds": []}
        try:
            chosen[engine], engines[engine]["trials"] = best_way(engine, row, say)
            engines[engine]["way"] = chosen[engine].label
            engines[engine]["model_bytes"] = model_bytes(chosen[engine])
        except Failed as error:
            engines[engine]["error"] = str(error)
    rounds = []
    for index in range(bench.rounds):
        rounds.append(peaks(bench))
        for engine, command in list(chosen.items()):
            try:
                result = run(command, 1 if row.once else bench.repetitions)
                engines[engine]["about"] = result.pop("about")
                engines[engine]["answers"] = result.pop("answers")
                engines[engine]["rounds"].append(result)
                say(f"  round {index + 1}: {engine}, {command.label}: {show(result['rate'])} {row.unit}")
            except Failed as error:
                engines[engine]["error"] = str(error)
                del chosen[engine]
                say(f"  round {index + 1}: {engine} failed: {error}")
    result = {"title": row.title, "unit": row.unit, "peak": row.peak, "engines": engines, "peaks": rounds, "load_average_before": load}
    result["targets"] = [vars(target) | {"ratio": ratio(engines, target.peer)} for target in row.targets]
    result["agreement"] = agreement(engines)
    return result | {"date": datetime.now(UTC).isoformat(timespec="seconds"), "seconds": time.time() - start, "rounds": bench.rounds}


def ratio(engines: dict[str, dict], peer: str) -> float | None:
    """The median over the rounds of the ratio of ours to theirs in the same round."""
    pairs = zip(engines["ours"]["rounds"], engines[peer]["rounds"], strict=False)
    ratios = [mine["rate"] / theirs["rate"] for mine, theirs in pairs]
    return statistics.median(ratios) if ratios else None


def agreement(engines: dict[str, dict]) -> dict[str, float]:
    """The largest difference between our label log-probabilities and each peer's, which shows that the engines did the
    same work."""
    answers = {engine: result.pop("answers", None) for engine, result in engines.items()}
    mine = answers.pop("ours")
    differences = {}
    for engine, theirs in answers.items():
        if mine and theirs:
            both = zip(mine, theirs, strict=False)
            differences[engine] = max(abs(a - b) for x, y in both for a, b in zip(x, y, strict=True))
    return differences


def model_bytes(command: Command) -> int | None:
    """The bytes of a model's weights."""
    path = command.model
    return path and sum(file.stat().st_size for file in (path.glob("*.safetensors") if path.is_dir() else [path]))


def show(value: object) -> str:
    """A rate with three digits, or why there is none."""
    return f"{value:.3g}" if isinstance(value, float) and value < 1000 else f"{value:.0f}" if isinstance(value, float) else str(value)
