"""Runs the engines: every measurement is a separate process that prints JSON lines."""

import json
import os
import statistics
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

TIMEOUT = 3 * 3600
TORCH_WITHOUT_AMX = "AVX512_CORE_BF16"


class Failed(Exception):
    """A process gave no figures; the text is the reason."""


@dataclass
class Bench:
    """Paths and settings of the measurement."""

    root: Path
    python: Path
    threads: int = 2
    rounds: int = 5
    repetitions: int = 3
    quick: bool = False
    amx: bool = True
    """Whether engines may use AMX; where not, they are told or built not to."""

    @property
    def folder(self) -> Path:
        """The folder of generated files: models, work, environments, runs."""
        return self.root / "target" / "bench"

    @property
    def models(self) -> Path:
        return self.folder / "models"

    def binary(self, name: str) -> Path:
        return self.root / "target" / "release" / name


@dataclass
class Command:
    """A command that runs an engine with `count` units of work (tokens, steps, prompts) per repetition."""

    engine: str
    label: str
    arguments: list[str]
    count: int
    environment: dict[str, str] = field(default_factory=dict)
    model: Path | None = None


def ours(bench: Bench, model: str, precision: str, count: int, **options: object) -> Command:
    """The `throughput` example; `model` is a name in the models' folder."""
    path = bench.models / model
    limit = {} if bench.amx else {"isa": "avx512"}
    settings = {"model": path, "precision": precision, "threads": bench.threads, **limit, **options}
    label = " ".join([precision, *(f"{name} {value}" for name, value in options.items() if name not in ("work", "decode"))])
    return Command("ours", f"{Path(model).stem} {label}", [str(bench.binary("examples/throughput")), *flags(settings)], count, model=path)


def llama_cpp(bench: Bench, model: str, count: int, **options: object) -> Command:
    """llama.cpp, in the build with or without AMX."""
    settings = {"model": bench.models / model, "threads": bench.threads, **options}
    arguments = [str(bench.python), str(bench.root / "scripts/bench/peer_llama_cpp.py"), *flags(settings)]
    label = " ".join([Path(model).stem, *(f"{name} {value}" for name, value in options.items() if name not in ("work", "decode"))])
    build = bench.folder / ("llama-native" if bench.amx else "llama-no-amx")
    return Command("llama.cpp", label, arguments, count, {"PYTHONPATH": str(build)}, bench.models / model)


def transformers(bench: Bench, model: str, count: int, **options: object) -> Command:
    """transformers on torch, optionally without AMX in oneDNN."""
    settings = {"model": bench.models / model, "threads": bench.threads, **options}
    arguments = [str(bench.python), str(bench.root / "scripts/bench/peer_transformers.py"), *flags(settings)]
    label = " ".join([model, *(f"{name} {value}" for name, value in options.items() if name not in ("work", "decode"))])
    environment = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    if not bench.amx:
        environment["ONEDNN_MAX_CPU_ISA"] = TORCH_WITHOUT_AMX
    return Command("transformers", label, arguments, count, environment, bench.models / model)


def flags(settings: dict[str, object]) -> list[str]:
    """`--name value` for each."""
    return [text for name, value in settings.items() for text in (f"--{name.replace('_', '-')}", str(value))]


def lines(arguments: list[str], environment: dict[str, str] | None = None, cwd: Path | None = None) -> list[dict]:
    """The JSON lines that a process prints."""
    try:
        result = subprocess.run(
            arguments, env=os.environ | (environment or {}), cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from error
    if result.returncode != 0:
        last = [line for line in result.stderr.splitlines() if line.strip()][-3:]
        raise Failed(f"{Path(arguments[0]).name} ended with {result.returncode}: {' / '.join(last)}")
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def run(command: Command, repetitions: int) -> dict:
    """Runs one process; returns its description and the units of work per second of each repetition."""
    build = command.environment.get("PYTHONPATH")
    if build and not (Path(build) / "made-with").exists():
        raise Failed(f"{command.engine} was not built")
    about, *samples = lines([*command.arguments, "--repetitions", str(repetitions)], command.environment)
    if not samples:
        raise Failed("no figures")
    return {
        "about": about,
        "seconds": [sample["seconds"] for sample in samples],
        "rate": command.count / statistics.median(sample["seconds"] for sample in samples),
        "tokens": samples[-1].get("tokens"),
        "peak_rss_bytes": samples[-1].get("peak_rss_bytes"),
        "answers": samples[-1].get("answers"),
    }


def peaks(bench: Bench) -> dict[str, float]:
    """The machine's peak rates, with all threads of the measurement and with one."""
    found = lines([str(bench.binary("examples/peak")), str(bench.threads)])
    return {f"{line['peak']}, {line['threads']} thread{'s' * (line['threads'] > 1)}": line["rate"] for line in found}


def onednn(bench: Bench) -> str:
    """The instruction set that torch's oneDNN reports for a bf16 layer."""
    probe = "import torch; x = torch.ones(64, 512, dtype=torch.bfloat16); torch.nn.functional.linear(x, torch.ones(512, 512, dtype=torch.bfloat16))"
    environment = {"ONEDNN_VERBOSE": "1"} | ({} if bench.amx else {"ONEDNN_MAX_CPU_ISA": TORCH_WITHOUT_AMX})
    result = subprocess.run([str(bench.python), "-c", probe], env=os.environ | environment, capture_output=True, text=True, check=False)
    fields = [line.split(",") for line in result.stdout.splitlines()]
    return next((line[6] for line in fields if line[3:4] == ["exec"] and len(line) > 6), "unknown")
