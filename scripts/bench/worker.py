"""Code shared by the peers' workers: arguments, timing and output, one JSON object per line like the `throughput`
example."""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

PROMPT = list(range(300, 316))
"""What a text is decoded after; the same tokens as in the `throughput` example."""


def parser(description: str) -> argparse.ArgumentParser:
    """The arguments of every worker."""
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--model", required=True)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--repetitions", type=int, default=3)
    arguments.add_argument("--work", type=Path, help="JSON file of token prompts; without it, decode")
    arguments.add_argument("--decode", type=int, default=0, help="decoding steps")
    return arguments


def read_work(path: Path | None) -> dict | None:
    """The work that `work.py` wrote."""
    return json.loads(path.read_text()) if path else None


def peak_rss_bytes() -> int | None:
    """Peak memory of this process, if the system reports it."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)


def emit(**fields: object) -> None:
    """Writes a line of output."""
    print(json.dumps(fields), flush=True)


def repeat(repetitions: int, run: Callable[[], dict], warm_up: Callable[[], dict]) -> None:
    """Warms up, then times each repetition. A run that measures its own time returns `seconds`."""
    warm_up()
    for _ in range(repetitions):
        start = time.perf_counter()
        fields = run()
        seconds = fields.pop("seconds", time.perf_counter() - start)
        emit(seconds=seconds, **fields, peak_rss_bytes=peak_rss_bytes())
