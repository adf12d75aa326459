"""Measurements of `scripts/gpu/run`: models of known shapes, with ours and transformers on the same weights, one after
the other."""

import json
import multiprocessing
import os
import re
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import seeded
from kit import ROOT, DeviceMemory, Failed, Kit, Skipped, say

sys.path.insert(0, str(ROOT / "scripts" / "bench"))
import work

PREFILL, DECODE, REPETITIONS = 512, 128, 3


@dataclass
class Shape:
    """A shape, the formats to measure, and the length of a prompt that exceeds its window."""

    name: str
    formats: list[str] = field(default_factory=lambda: ["bf16"])
    long: int = 0


SHAPES = [Shape("llama-8b", ["bf16", "q4_k"]), Shape("flan-t5-xl"), Shape("mistral-7b", long=6000)]


class Makers:
    """Creates models in another process while other parts run, in the order in which they are measured."""

    def __init__(self, kit: Kit) -> None:
        self.pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
        wanted = [(shape.name, form) for shape in SHAPES for form in shape.formats]
        self.made = {key: self.pool.submit(seeded.make, *key, kit.folder / "models", kit.small) for key in wanted}

    def path(self, kit: Kit, shape: str, form: str) -> Path:
        """The path of a model; waits until it is created."""
        try:
            return self.made[shape, form].result(timeout=kit.left(300))
        except TimeoutError:
            raise Failed(f"{shape} in {form} was not made in time") from None
        except OSError as error:
            raise Failed(f"{shape} in {form} was not made: {error}") from None

    def end(self) -> None:
        """Stops; an unfinished model is abandoned."""
        for process in list((self.pool._processes or {}).values()):
            process.kill()
        self.pool.shutdown(wait=False, cancel_futures=True)


def tasks(kit: Kit, shape: Shape) -> dict[str, tuple[Path | None, int]]:
    """The work by name: its file, and its prompts or steps."""
    folder, labels = kit.folder / "work", seeded.labels(seeded.config(shape.name, kit.small))
    job = work.job(candidates=4) if kit.small else work.job()
    works = {f"prefill {PREFILL}": work.single(PREFILL), "job": job}
    if shape.long:
        length = shape.long // 10 if kit.small else shape.long
        works[f"prefill {length}"] = work.single(length)
    found: dict[str, tuple[Path | None, int]] = {}
    for name, todo in works.items():
        todo["labels"] = labels
        path = work.write(folder / f"{shape.name}-{name.replace(' ', '-')}-{len(todo['prompts'])}.json", todo)
        found[name] = path, len(todo["prompts"])
    return found | {f"decode {DECODE}": (None, DECODE)}


def unit_of(name: str) -> str:
    """The unit of a work's rate."""
    return "prompts/s" if name == "job" else "tokens/s"


def rate(name: str, count: int, seconds: float) -> float:
    """Tokens or prompts per second."""
    return (int(name.split()[1]) if name.startswith("prefill") else count) / seconds


def rows(kit: Kit, shape: Shape, form: str, engine: str, timed: dict[str, list[float]], counts: dict[str, int], **more: object) -> None:
    """Records a row for each work."""
    for name, seconds in timed.items():
        value = rate(name, counts[name], statistics.median(seconds))
        kit.row("speeds", shape=shape.name, format=form, engine=engine, work=name, rate=value, unit=unit_of(name), seconds=seconds, **more)
        say(f"  {shape.name} {form:5} {engine:13} {name:12} {value:10.1f} {unit_of(name)}")


def told(kit: Kit, path: Path, todo: dict[str, tuple[Path | None, int]]) -> int | None:
    """Bytes that a dry run reports for the job."""
    prompts = json.loads(todo["job"][0].read_text())["prompts"]
    asked = kit.folder / "work" / "asked.jsonl"
    requests = [{"id": str(index), "tokens": prompt, "labels": {"A": ["A"], "B": ["B"]}} for index, prompt in enumerate(prompts)]
    asked.write_text("".join(json.dumps(request) + "\n" for request in requests))
    command = [kit.probity, "--quiet", "logprobs", "--model", path, "--device", kit.device, "--precision", "fast", "--input", asked, "--dry-run"]
    found = re.search(r"^memory +([0-9.]+) (kB|MB|GB)", kit.call(*command, limit=60).stdout, re.MULTILINE)
    return round(float(found[1]) * {"kB": 1e3, "MB": 1e6, "GB": 1e9}[found[2]]) if found else None


def ours(kit: Kit, shape: Shape, form: str, path: Path, todo: dict[str, tuple[Path | None, int]]) -> dict[str, list]:
    """Runs our runtime; returns the answers to each work."""
    memory_told = told(kit, path, todo)
    files = ",".join(str(file) for file, _ in todo.values() if file)
    repetitions = 0 if kit.no_run else REPETITIONS
    command = [kit.program("throughput"), "--model", path, "--device", kit.device, "--precision", "fast", "--work", files, "--decode", 1 if kit.no_run else DECODE]
    command += ["--threads", len(os.sched_getaffinity(0)), "--draft", "off", "--warm-up", "first" if kit.no_run else "whole", "--repetitions", repetitions]
    with DeviceMemory(kit) as memory:
        about, *lines = kit.call(*command, limit=120).lines
    if kit.no_run:
        return {}
    timed = {name: [line["seconds"] for line in lines[at * repetitions : (at + 1) * repetitions]] for at, name in enumerate(todo)}
    counts = {name: count for name, (_, count) in todo.items()}
    name = f"decode {DECODE}"
    counts[name] = lines[-1]["tokens"]
    held = memory.bytes if kit.on_cuda else max(line["peak_rss_bytes"] for line in lines)
    rows(kit, shape, form, "ours", timed, counts, bytes_held=held, bytes_told=memory_told, load_seconds=about["load_seconds"], file_bytes=size(path), weights=seeded.parameters(shape.name, kit.small))
    return {name: lines[at * repetitions].get("answers") for at, name in enumerate(todo)}


def size(path: Path) -> int:
    """Bytes of a model."""
    return sum(file.stat().st_size for file in path.iterdir() if file.suffix == ".safetensors") if path.is_dir() else path.stat().st_size


def peer(kit: Kit, shape: Shape, path: Path, todo: dict[str, tuple[Path | None, int]]) -> dict[str, list]:
    """Runs transformers on the same weights."""
    if not kit.has_torch:
        raise Skipped("not measured: there is no PyTorch with transformers here")
    listed = kit.folder / "work" / f"{shape.name}-tasks.json"
    batches = {"job": [4] if kit.small else [16, 48]}
    listed.write_text(json.dumps([
        {"name": name, "work": str(file), "batches": batches.get(name, [1])} if file else {"name": name, "decode": count} for name, (file, count) in todo.items()
    ]))
    if kit.no_run:
        kit.call(kit.python, ROOT / "scripts/gpu/peer.py", "--help", limit=60)
        return {}
    device = kit.device if kit.on_cuda else "cpu"
    with DeviceMemory(kit) as memory:
        command = [kit.python, ROOT / "scripts/gpu/peer.py", "--model", path, "--device", device, "--tasks", listed, "--repetitions", 2]
        about, *lines = kit.call(*command, limit=150).lines
    failed = [line for line in lines if "error" in line]
    done = {line["name"]: line for line in lines if "seconds" in line}
    counts = {name: count for name, (_, count) in todo.items()}
    timed = {name: line["seconds"] for name, line in done.items()}
    rows(kit, shape, "bf16", "transformers", timed, counts, bytes_held=memory.bytes, version=about["version"], attention=about["attention"], batch=done.get("job", {}).get("batch"))
    if failed:
        raise Failed("; ".join(f"{line['name']}: {line['error']}" for line in failed))
    return {name: line.get("answers") for name, line in done.items()}


def furthest(mine: dict[str, list], theirs: dict[str, list]) -> dict[str, float]:
    """The largest difference of a label's log-probability, by work."""
    found = {}
    for name, answers in theirs.items():
        pairs = [(a, b) for x, y in zip(mine.get(name) or [], answers or [], strict=False) for a, b in zip(x or [], y or [], strict=False)]
        if pairs:
            found[name] = max(abs(a - b) for a, b in pairs)
    return found


def measure(kit: Kit, shape: Shape, makers: Makers) -> None:
    """Measures a shape in its formats, and the peer on its bf16 weights."""
    todo, answers, problems = tasks(kit, shape), {}, []
    for form in shape.formats:
        path = makers.path(kit, shape.name, form)
        for engine, run in (("ours", lambda: ours(kit, shape, form, path, todo)), ("transformers", lambda: peer(kit, shape, path, todo))):
            if engine == "transformers" and form != "bf16":
                continue
            try:
                answers[engine, form] = run()
            except Skipped as skipped:
                kit.row("missing", shape=shape.name, format=form, engine=engine, reason=str(skipped))
                say(f"  {shape.name} {form:5} {engine}: {skipped}")
            except Failed as failed:
                kit.row("missing", shape=shape.name, format=form, engine=engine, reason=f"failed: {failed}")
                problems.append(f"{engine} in {form}: {failed}")
        remove(path)
    reference = answers.get(("transformers", "bf16"), {})
    for form in shape.formats:
        for name, difference in furthest(answers.get(("ours", form), {}), reference).items():
            kit.row("agreement", shape=shape.name, format=form, work=name, difference=difference)
    if problems:
        raise Failed("; ".join(problems))


def remove(path: Path) -> None:
    """Deletes a measured model, to make room for the next."""
    for file in [*path.iterdir(), path] if path.is_dir() else [path]:
        file.rmdir() if file.is_dir() else file.unlink()


def peaks(kit: Kit) -> None:
    """The device's peak rates, measured with torch."""
    if not kit.has_torch:
        raise Skipped("not measured: there is no PyTorch here")
    script = ROOT / "scripts/gpu/peer.py"
    if kit.no_run:
        kit.call(kit.python, script, "--help", limit=60)
        return
    for line in kit.call(kit.python, script, "--peaks", "--device", kit.device if kit.on_cuda else "cpu", limit=90).lines:
        kit.row("peaks", **line)
        say(f"  {line['peak']}: {line['rate'] / 1e12:.3g} T/s")
