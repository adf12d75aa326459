"""Measures beside the ratios: memory, loading, tokens compared with the optimum, growth, and a whole data set."""

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import work
from engines import Bench, Command, Failed, lines, llama_cpp, ours, run
from rows import model_bytes, quick_precisions

Say = Callable[[str], None]
SMOLLM2 = "smollm2-135m-instruct"
CACHE_BUDGET = 256 << 20
PEER_UP_TO = {"candidates": 16, "context": 1000}
"""How far the peer goes along: beyond, a point takes it many minutes and adds nothing to the picture."""


@dataclass
class Ran:
    """A finished command."""

    output: str
    seconds: float
    """Wall clock, the process's start and end included."""
    peak_rss_bytes: int


def probity(bench: Bench, *arguments: object) -> Ran:
    """Runs the binary."""
    command = [str(bench.binary("probity")), *(str(argument) for argument in arguments)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode != 0:
            raise Failed(f"probity {arguments[0]} ended with {process.returncode}: {' / '.join(err.read().splitlines()[-3:])}")
        return Ran(out.read(), seconds, usage.ru_maxrss * 1024)


def smollm2(bench: Bench) -> Path:
    """The model's file, downloaded if missing."""
    folder = Path(probity(bench, "model", "get", SMOLLM2).output.strip())
    return next(folder.glob("*.gguf"))


def memory(bench: Bench, _: Path | None, say: Say) -> dict:
    """Peak memory of the job, compared with the weights' file plus the cache budget."""
    whole = work.job(**({"candidates": 4} if bench.quick else {}))
    path = work.write(bench.folder / "work" / f"job-{len(whole['prompts'])}.json", whole)
    command = ours(bench, "q8_0.gguf", quick_precisions(bench)[0], len(whole["prompts"]), work=path, cache_budget=CACHE_BUDGET)
    peaks = [run(command, 1)["peak_rss_bytes"] for _ in range(min(3, bench.rounds))]
    weights = model_bytes(command)
    result = {"peak_rss_bytes": peaks, "weights_bytes": weights, "cache_budget_bytes": CACHE_BUDGET}
    result["ratio"] = statistics.median(peaks) / (weights + CACHE_BUDGET)
    say(f"  peak {statistics.median(peaks) / 2**20:.0f} MiB, ratio {result['ratio']:.3f}")
    return result


def load(bench: Bench, _: Path | None, say: Say) -> dict:
    """Time of a whole process that queries SmolLM2 for one probability, with its file in the disk cache."""
    smollm2(bench)
    request = bench.folder / "work" / "one.jsonl"
    request.parent.mkdir(parents=True, exist_ok=True)
    request.write_text('{"id": "1", "prompt": "The capital of France is", "labels": {"Paris": [" Paris"], "London": [" London"]}}\n')
    arguments = ["logprobs", "--model", SMOLLM2, "--input", request, "--precision", "fast", "--threads", bench.threads]
    probity(bench, *arguments)
    seconds = [probity(bench, *arguments).seconds for _ in range(2 * bench.rounds)]
    say(f"  {statistics.median(seconds):.3f} s")
    return {"seconds": seconds, "median": statistics.median(seconds)}


def compare(bench: Bench, summeval: Path | None, name: str, limit: int) -> tuple[Path, Path, dict, Ran]:
    """Runs `compare` over articles of SummEval; returns the data, the run folder, its summary, and the process."""
    if summeval is None:
        raise Failed("needs --summeval FILE")
    runs = bench.folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    data = runs / "summeval.jsonl"
    if not data.exists():
        probity(bench, "import", "summeval", summeval, "--out", data)
    settings = ["--model", SMOLLM2, "--data", data, "--attribute", "coherence", "--precision", "fast", "--threads", bench.threads]
    ran = probity(bench, "compare", *settings, "--limit", limit, "--out", runs / name, "--overwrite", "--quiet")
    summary, manifest = (json.loads((runs / name / file).read_text()) for file in ("summary.json", "manifest.json"))
    return data, runs / name, summary | {"cost": manifest["cost"]}, ran


def tokens(bench: Bench, summeval: Path | None, say: Say) -> dict:
    """Tokens computed for one article, compared with the number of distinct prefixes of its prompts."""
    model = smollm2(bench)
    data, folder, summary, _ = compare(bench, summeval, "one-article", 1)
    here = bench.root / "scripts" / "bench"
    template = bench.root / "crates/methods/src/prompts/compare_1.j2"
    arguments = ["--data", data, "--model", model, "--template", template, "--run", folder]
    counted = lines([str(bench.python), str(here / "optimum.py"), *map(str, arguments)])[-1]
    computed = summary["cost"]["tokens_computed"]
    say(f"  {computed} computed, {counted['optimum']} needed")
    return counted | {"computed": computed, "ratio": computed / counted["optimum"]}


def data_set(bench: Bench, summeval: Path | None, say: Say) -> dict:
    """All articles of SummEval, one attribute."""
    smollm2(bench)
    _, _, summary, ran = compare(bench, summeval, "summeval", 1 if bench.quick else 100)
    before, after = (summary["values"]["prompts"][0]["gold"][name] for name in ("as_judged", "debiased"))
    cost = summary["cost"]
    say(f"  {ran.seconds:.0f} s, {cost['tokens_computed'] / ran.seconds:.0f} tokens/s")
    quality = {"as_judged": before, "debiased": after, "position": summary["values"]["prompts"][0]["before"]}
    return {
        "seconds": ran.seconds,
        "cost": cost,
        "quality": quality,
        "peak_rss_bytes": ran.peak_rss_bytes,
        "signature": summary["signature_line"],
    }


def growth(bench: Bench, _: Path | None, say: Say) -> dict:
    """Time and tokens of the job with more candidates, and with longer contexts."""
    axes = {"candidates": [4, 8, 16, 32], "context": [100, 200, 400, 1000, 2000, 4000]}
    if bench.quick:
        axes = {name: values[:2] for name, values in axes.items()}
    points = []
    for axis, values in axes.items():
        for value in values:
            job = work.job(**{axis: value})
            part = work.job(**{axis: value}, limit=12)
            folder, count = bench.folder / "work", len(job["prompts"])
            path = work.write(folder / f"{axis}-{value}.json", job)
            few = work.write(folder / f"{axis}-{value}-part.json", part)
            commands = {
                "ours": ours(bench, "q8_0.gguf", quick_precisions(bench)[0], count, work=path),
                "ours, nothing shared": ours(bench, "q8_0.gguf", quick_precisions(bench)[0], len(part["prompts"]), work=few, sharing="off"),
            }
            if value <= PEER_UP_TO[axis]:
                commands["llama.cpp, prefixes reused"] = llama_cpp(bench, "q8_0.gguf", count, work=path, group=5, flash="on")
            for engine, command in commands.items():
                points.append({"axis": axis, "value": value, "engine": engine, "prompts": count} | point(command, count, say))
    return {"points": points}


def point(command: Command, count: int, say: Say) -> dict:
    """One run. Without prefix sharing, some of the prompts represent all."""
    try:
        result = run(command, 1)
    except Failed as error:
        say(f"  {command.engine} failed: {error}")
        return {"error": str(error)}
    say(f"  {command.engine}, {command.label}, {count} prompts: {count / result['rate']:.1f} s")
    return {"seconds": count / result["rate"], "tokens": round(result["tokens"] * count / command.count), "measured_prompts": command.count}


EXTRAS = {"memory": memory, "load": load, "tokens": tokens, "growth": growth, "summeval": data_set}
