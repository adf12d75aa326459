"""The folder of goldens, and the versions that are recorded with every golden value."""

import json
import platform
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "tests" / "goldens"


def versions(*packages: str) -> dict[str, str]:
    """Installed versions of packages, and of Python."""
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def metadata(max_abs_difference: float, seed: int | None = None, *packages: str) -> dict[str, str]:
    """A safetensors file's metadata: one key, since the library writes several in no fixed order."""
    record = {"made_with": versions(*packages), "max_abs_difference": max_abs_difference}
    return {"golden": json.dumps(record | ({} if seed is None else {"seed": seed}))}


def write_json(path: Path, value: object) -> None:
    """Writes a golden file that is readable in a diff: two levels are indented, deeper ones stay on their line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_pretty(value, 0) + "\n", encoding="utf-8")


def _pretty(value: object, depth: int) -> str:
    if depth >= 2 or not isinstance(value, (dict, list)) or not value:
        return json.dumps(value, ensure_ascii=True)
    pad, end = "  " * (depth + 1), "  " * depth
    if isinstance(value, dict):
        items = [f"{pad}{json.dumps(k)}: {_pretty(v, depth + 1)}" for k, v in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{end}}}"
    if not any(isinstance(v, (dict, list)) for v in value):
        return json.dumps(value)
    return "[\n" + ",\n".join(pad + _pretty(v, depth + 1) for v in value) + f"\n{end}]"
