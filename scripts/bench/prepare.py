"""Prepares the measurement: the peers, our release build, the model, and a description of the machine."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from engines import Bench, Failed

LLAMA = "llama-cpp-python==0.3.36"
# GGML's names of the machine's instruction sets, besides those of its default.
GGML = {
    "avx_vnni": "GGML_AVX_VNNI",
    "avx512f": "GGML_AVX512",
    "avx512vbmi": "GGML_AVX512_VBMI",
    "avx512_vnni": "GGML_AVX512_VNNI",
    "avx512_bf16": "GGML_AVX512_BF16",
}
FLAGS = ["fma", "avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16"]


def output(*arguments: str, cwd: Path | None = None) -> str:
    """The output of a command; empty if it fails."""
    try:
        return subprocess.run(arguments, capture_output=True, text=True, cwd=cwd, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def cpu(field: str) -> str:
    """A field of the first processor in /proc/cpuinfo."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(field)), "")


def has_amx() -> bool:
    """Whether the machine has AMX with int8."""
    return "amx_int8" in cpu("flags").split()


def commit(root: Path) -> str:
    """The measured commit, marked if files other than the documentation differ from it."""
    changed = output("git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs", cwd=root)
    return output("git", "rev-parse", "--short=12", "HEAD", cwd=root) + ("+changes" if changed else "")


def machine(root: Path) -> dict[str, object]:
    """Properties of the machine that affect figures."""
    flags = cpu("flags").split()
    return {
        "processor": cpu("model name") or platform.processor(),
        "cores": os.cpu_count(),
        "instruction_sets": [flag for flag in FLAGS if flag in flags],
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.system(),
        "rustc": output("rustc", "--version", cwd=root),
        "gcc": output("gcc", "-dumpfullversion"),
    }


def step(say: Callable[[str], None], what: str, *arguments: object, **environment: str) -> None:
    """Runs a command and shows its output."""
    say(what)
    result = subprocess.run([str(argument) for argument in arguments], env=os.environ | environment, stdout=sys.stderr, check=False)
    if result.returncode != 0:
        raise Failed(f"{what}: ended with {result.returncode}")


def prepare(bench: Bench, tokenizer: Path | None, given_python: bool, blocks: list[bool], say: Callable[[str], None]) -> None:
    """Creates whatever is missing for measuring with or without AMX, according to `blocks`."""
    here = bench.root / "scripts" / "bench"
    bench.folder.mkdir(parents=True, exist_ok=True)
    if not given_python and not bench.python.exists():
        step(say, "making a Python environment", sys.executable, "-m", "venv", bench.python.parents[1])
        step(say, "installing torch and transformers", bench.python, "-m", "pip", "install", "-q", "-r", here / "requirements.txt")
    if True in blocks:
        llama_cpp(bench, "llama-native", f"-DCMAKE_CXX_FLAGS=-include\\ {here / 'tile_config.h'}", say)
    if False in blocks:
        flags = cpu("flags").split()
        sets = " ".join(f"-D{option}=ON" for flag, option in GGML.items() if flag in flags)
        llama_cpp(bench, "llama-no-amx", f"-DGGML_NATIVE=OFF {sets}", say)
    packages = ["-p", "probity", "-p", "probity-runtime", "-p", "probity-kernels"]
    targets = ["--bin", "probity", "--example", "throughput", "--example", "peak"]
    step(say, "building probity", "cargo", "build", "--release", "--manifest-path", bench.root / "Cargo.toml", *packages, *targets)
    if tokenizer is None:
        tokenizer = bench.folder / "tokenizers" / "mistral-v0.1"
        if not (tokenizer / "tokenizer.json").exists():
            step(say, "fetching a tokenizer", bench.root / "scripts/get-tokenizers", tokenizer.parent)
    environment = {"PYTHONPATH": str(bench.folder / ("llama-native" if True in blocks else "llama-no-amx"))}
    step(say, "making the model where it is missing", bench.python, here / "models.py", bench.models, "--tokenizer", tokenizer, **environment)


def llama_cpp(bench: Bench, name: str, options: str, say: Callable[[str], None]) -> None:
    """Builds llama.cpp from the package index's source into a separate folder, which takes precedence over the
    environment's packages."""
    folder = bench.folder / name
    made_with = folder / "made-with"
    if made_with.exists() and made_with.read_text() == f"{LLAMA} {options}":
        return
    arguments = ["install", "-q", "--no-cache-dir", "--no-deps", "--upgrade", "--no-binary", "llama-cpp-python", "--target", folder, LLAMA]
    try:
        step(say, f"building {name}", bench.python, "-m", "pip", *arguments, CMAKE_ARGS=f"-DLLAVA_BUILD=OFF {options}")
        made_with.write_text(f"{LLAMA} {options}")
    except Failed as error:
        say(f"  {error}: its rows will be without llama.cpp")
