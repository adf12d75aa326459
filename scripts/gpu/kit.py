"""Code shared by all parts of `scripts/gpu/run`: programs, time limits, and results that are written after each part.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
UNDERSTOOD = "understood"
"""What a check is where nothing is computed."""


class Failed(Exception):
    """A failure; the text is the reason."""


class Skipped(Exception):
    """Something is not possible here; the text is the reason."""


@dataclass
class Part:
    """A part of the run, with its time limit in seconds."""

    name: str
    what: str
    limit: float
    run: Callable[["Kit"], None]


@dataclass
class Answer:
    """The output of a program."""

    stdout: str
    stderr: str
    seconds: float

    @property
    def lines(self) -> list[dict]:
        """Its JSON lines."""
        return [json.loads(line) for line in self.stdout.splitlines() if line.startswith("{")]


@dataclass
class Kit:
    """Paths, time limits and results."""

    programs: Path
    folder: Path
    models: Path
    device: str
    small: bool
    no_run: bool
    out: Path
    seconds: float
    python: str = sys.executable
    started: float = field(default_factory=time.monotonic)
    results: dict = field(default_factory=dict)
    part_ends: float = 0.0
    part: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def on_cuda(self) -> bool:
        """Whether the device is an NVIDIA card."""
        return self.device.startswith("cuda")

    @property
    def probity(self) -> Path:
        """The program itself; in a package for CUDA the launcher is called `probity`."""
        packed = self.programs / "probity-cuda"
        return packed if packed.exists() else self.programs / "probity"

    def program(self, name: str) -> Path:
        """A program of the kit."""
        return self.programs / "kit" / name

    @property
    def smollm2(self) -> Path:
        """SmolLM2's GGUF, or a golden checkpoint if nothing is computed."""
        if self.no_run:
            return ROOT / "tests/goldens/models/tiny-gguf/model.gguf"
        found = sorted(self.models.glob("smollm2-135m-instruct/*.gguf"))
        if not found:
            raise Skipped(f"no SmolLM2 in {self.models}/smollm2-135m-instruct")
        return found[0]

    @property
    def has_torch(self) -> bool:
        """Whether peers are available."""
        return importlib.util.find_spec("torch") is not None and importlib.util.find_spec("transformers") is not None

    def environment(self) -> dict[str, str]:
        """Environment of all programs: paths of test data and of CUDA's libraries."""
        variables = os.environ | {
            "PROBITY_TEST_DEVICE": self.device,
            "PROBITY_TEST_GOLDENS": str(ROOT / "tests/goldens"),
            "PROBITY_MODELS": str(self.models),
            "HF_HUB_OFFLINE": "1",
            "RUST_BACKTRACE": "0",
        }
        # Products of 32-bit floats must not use TF32.
        variables.pop("NVIDIA_TF32_OVERRIDE", None)
        libraries = [str(self.programs / "lib")] if (self.programs / "lib").is_dir() else torch_libraries()
        if self.on_cuda and libraries:
            variables["LD_LIBRARY_PATH"] = ":".join([*libraries, *filter(None, [variables.get("LD_LIBRARY_PATH")])])
        return variables

    def left(self, limit: float) -> float:
        """The remaining seconds of the part, at most `limit`."""
        return max(0.0, min(limit, self.part_ends - time.monotonic()))

    def call(self, *command: object, limit: float = 120, variables: dict[str, str] | None = None, codes: tuple[int, ...] = (0,)) -> Answer:
        """Runs a program until it ends or its time is up; the error is its last output."""
        own, limit = limit, self.left(limit)
        if limit < 1:
            raise Skipped("no time was left")
        started = time.monotonic()
        words = [str(word) for word in command]
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            env=self.environment() | (variables or {}), start_new_session=True, cwd=ROOT,
        )
        try:
            stdout, stderr = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            if limit < own:
                raise Skipped("no time was left") from None
            raise Failed(f"{name_of(words)} did not end within {limit:.0f} s") from None
        finally:
            # Also if this script is interrupted.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        if process.returncode not in codes:
            said = [line.strip() for line in (stderr + stdout).splitlines() if line.strip()]
            failed = [line for line in said if "panicked" in line or "differs" in line or line.startswith("error")]
            raise Failed(f"{name_of(words)} ended with {process.returncode}: {' / '.join((failed or said)[-3:])[:400]}")
        return Answer(stdout, stderr, time.monotonic() - started)

    def row(self, kind: str, **values: object) -> None:
        """Records and prints a row of a part."""
        with self.lock:
            self.results["parts"][self.part].setdefault(kind, []).append(values)
        if kind == "checks" and not self.no_run:
            figure = values.get("figure") or values.get("reason") or ""
            say(f"  {values['status']:8} {values['check']}{f': {figure}' if figure else ''}")

    def check(self, number: int | None, check: str, run: Callable[[], str]) -> None:
        """Runs a check, which passes unless it raises, and returns its figure."""
        started = time.monotonic()
        status, figure, reason = UNDERSTOOD if self.no_run else PASSED, "", ""
        try:
            figure = run()
        except Failed as error:
            status, reason = FAILED, str(error)
        except Skipped as error:
            status, reason = SKIPPED, str(error)
        seconds = round(time.monotonic() - started, 1)
        self.row("checks", number=number, check=check, status=status, figure=figure, reason=reason, seconds=seconds)

    def do(self, part: Part) -> None:
        """Runs a part within its time limit; failures are recorded, and the next part continues."""
        now = time.monotonic()
        # A processor takes longer, and has no limit of ten minutes.
        limit = part.limit if self.on_cuda else 3 * part.limit
        self.part, self.part_ends = part.name, min(now + limit, self.started + self.seconds)
        kept = self.results["parts"].setdefault(part.name, {"what": part.what})
        say(f"== {part.name}: {part.what} [{now - self.started:.0f} s]")
        try:
            if self.part_ends - now < 3:
                raise Skipped("no time was left")
            part.run(self)
            failed = any(check["status"] == FAILED for check in kept.get("checks", []))
            kept["status"] = FAILED if failed else UNDERSTOOD if self.no_run else PASSED
        except Skipped as error:
            kept |= {"status": SKIPPED, "reason": str(error)}
        except Failed as error:
            kept |= {"status": FAILED, "reason": str(error)}
        except Exception as error:  # a defect in one part must not stop the others
            kept |= {"status": FAILED, "reason": repr(error)}
        if "reason" in kept:
            say(f"  {kept['status']}: {kept['reason']}")
        kept["seconds"] = round(time.monotonic() - now, 1)
        self.write()

    def write(self) -> None:
        """Writes the results, without paths of the machine."""
        self.out.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.results, indent=1)
        for folder in (self.folder, self.models, self.programs, ROOT):
            text = text.replace(f"{folder}/", "")
        part = self.out.with_name(f"{self.out.name}.part")
        part.write_text(text + "\n")
        part.rename(self.out)


def name_of(words: list[str]) -> str:
    """A short form of a command."""
    first = Path(words[0]).name
    if first.startswith("python") and len(words) > 1:
        return Path(words[1]).name
    return f"{first} {words[1]}" if len(words) > 1 and not words[1].startswith("-") else first


def say(text: str) -> None:
    """Prints progress."""
    print(text, flush=True)


def torch_libraries() -> list[str]:
    """The folders of the CUDA libraries of PyTorch and of a toolkit."""
    spec = importlib.util.find_spec("nvidia")
    places = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    return [str(folder) for place in places for folder in sorted(place.glob("*/lib"))] + ["/usr/local/cuda/lib64"]


class DeviceMemory:
    """The peak memory of a card according to the driver, above that in use before."""

    def __init__(self, kit: Kit) -> None:
        self.index = kit.device.partition(":")[2] or "0"
        self.wanted = kit.on_cuda
        self.before = self.most = 0

    def look(self) -> int:
        """Bytes in use now."""
        command = ["nvidia-smi", f"--id={self.index}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        return int(subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.split()[0]) << 20

    def __enter__(self) -> "DeviceMemory":
        if self.wanted:
            try:
                self.before = self.most = self.look()
            except (OSError, subprocess.SubprocessError, ValueError, IndexError):
                self.wanted = False
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self) -> None:
        """Polls repeatedly."""
        while self.wanted and not self.ended.wait(0.1):
            try:
                self.most = max(self.most, self.look())
            except (OSError, subprocess.SubprocessError, ValueError, IndexError):
                return

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()

    @property
    def bytes(self) -> int | None:
        """The peak, or None if unknown."""
        return self.most - self.before if self.wanted else None
