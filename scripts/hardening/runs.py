"""Code shared by the scripts: the runs to disturb, and their expected results."""

import argparse
import atexit
import json
import random
import shutil
import sqlite3
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import tiny_model

ROOT = Path(__file__).resolve().parents[2]
WORDS = "the a river court ruled on water rights in three states after years of drought and farmers say prices rose again".split()


@dataclass
class Job:
    """A command and its output: `{out}` is a new folder."""

    name: str
    arguments: list[str]
    resume: list[str]
    """What is added to go on after a kill."""
    answers: str | None = "answers.sqlite"
    """The database of answers below the folder."""
    expected: dict[str, bytes] = field(default_factory=dict)
    seconds: float = 0.0


def arguments(about: str) -> argparse.ArgumentParser:
    """The options of every script."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probity", type=Path, default=ROOT / "target/release/probity", help="the binary [default: target/release/probity]")
    smollm2 = ROOT / "target/models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf"
    parser.add_argument("--model", type=Path, default=smollm2, help="SmolLM2's GGUF, from which the tiny model is made [default: that of the tests]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="work in this folder and keep it [default: a temporary folder]")
    return parser


def workplace(given: argparse.Namespace) -> Path:
    """The working folder; a temporary one is deleted at exit."""
    if given.folder:
        given.folder.mkdir(parents=True, exist_ok=True)
        return given.folder
    temporary = tempfile.TemporaryDirectory()
    atexit.register(temporary.cleanup)
    return Path(temporary.name)


def table(first: str, columns: list[str], rows: dict[str, dict]) -> str:
    """Counts by row and column, as Markdown."""
    lines = [f"| {first} | " + " | ".join(columns) + " |", "|---|" + "--:|" * len(columns)]
    lines += [f"| {name} | " + " | ".join(str(counts.get(column, 0)) for column in columns) + " |" for name, counts in rows.items()]
    return "\n" + "\n".join(lines) + "\n"


def methods(model: Path, data: Path, prompts: Path) -> list[Job]:
    def method(name: str, *options: str) -> Job:
        arguments = [name, "--model", str(model), "--data", str(data), "--attribute", "coherence", *options, "--out", "{out}/run"]
        return Job(name, arguments, ["--resume"], "run/answers.sqlite")

    label = ["--mode", "pointwise", "--verdict", "label"]
    generate = ["generate", "--model", str(model), "--input", str(prompts), "--out", "{out}/answers.jsonl", "--cache", "{out}/cache"]
    metrics = ["metrics", "--data", str(data), "--metric", "bleu,chrf,ter,rouge-l,meteor", "--out", "{out}/run"]
    return [
        method("compare"),
        method("g-eval"),
        method("judge", *label),
        method("revise", "--mode", "pointwise", "--max-tokens", "24"),
        method("reviseval", *label, "--max-tokens", "24"),
        Job("generate", generate, ["--overwrite"], "cache/answers.sqlite"),
        Job("metrics", metrics, ["--overwrite"], None),
    ]


def write_data(folder: Path) -> tuple[Path, Path]:
    """Writes seeded samples and prompts."""
    drawn = random.Random(3)

    def text(words: int) -> str:
        return " ".join(drawn.choice(WORDS) for _ in range(words)).capitalize() + "."

    def sample(at: int) -> dict:
        candidates = [{"id": name, "text": text(15), "scores": {"coherence": drawn.randint(1, 5)}} for name in "abc"]
        return {"id": f"s{at}", "context": text(60), "references": [text(20)], "candidates": candidates}

    data, prompts = folder / "samples.jsonl", folder / "prompts.jsonl"
    data.write_text("".join(json.dumps(sample(at)) + "\n" for at in range(12)))
    prompts.write_text("".join(json.dumps({"id": f"p{at}", "prompt": text(30), "max_tokens": 24}) + "\n" for at in range(24)))
    return data, prompts


def tiny(source: Path, folder: Path) -> Path:
    path = folder / "tiny.gguf"
    path.write_bytes(tiny_model.make(source))
    return path


def results(out: Path) -> dict[str, bytes]:
    """The bytes of a run's files; empty for its manifest, which has times, and its databases."""
    files = [path for path in sorted(out.rglob("*")) if path.is_file()]
    kept = {str(path.relative_to(out)): path.read_bytes() for path in files if path.name != "manifest.json" and "sqlite" not in path.name}
    return kept | {str(path.relative_to(out)): b"" for path in files if path.name == "manifest.json" or path.suffix == ".sqlite"}


def answers(database: Path, scratch: Path) -> dict:
    """The rows of a database after a kill, read from a copy."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    for path in database.parent.glob(database.name + "*"):
        shutil.copy(path, scratch / path.name)
    connection = sqlite3.connect(scratch / database.name)
    try:
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            return {}
        whole = connection.execute("PRAGMA integrity_check").fetchone()
        assert whole == ("ok",), f"{database}: {whole}"
        found = {("answer", key): rest for key, *rest in connection.execute("SELECT key, kind, question, outcome, answer FROM answers")}
        found |= {("request", at): rest for at, *rest in connection.execute("SELECT position, request, key FROM requests")}
        return found
    finally:
        connection.close()


def run(probity: Path, job: Job, out: Path, more: list[str] = [], before: list[str] = [], limit: float = 120) -> subprocess.CompletedProcess:
    """Runs the job to its end."""
    command = [*before, str(probity), "--quiet", *(part.format(out=out) for part in job.arguments), *more]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=limit)
