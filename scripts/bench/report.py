"""Writes docs/benchmarks.md and its plots from the raw figures; measures nothing."""

import json
import statistics
from pathlib import Path

import gpu
import plot
from rows import HEAD_WEIGHTS, LAYER_WEIGHTS, PREFILL, show

BLOCKS = {
    "amx": ("With all instruction sets", "Every engine may use all instruction sets of the machine."),
    "no-amx": (
        "Without AMX",
        "As on machines with AVX-512 but without AMX: ours with `--isa avx512`, llama.cpp built without AMX, torch with "
        "`ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16`.",
    ),
    "other": ("On a machine without AMX", "Every engine may use all instruction sets of that machine."),
}
# The limit of a row's products: with AMX, and without.
LIMITS = {
    "int8": ("int8 tiles, AMX", "int8 dot, AVX-512 VNNI"),
    "bf16": ("bf16 tiles, AMX", "bf16 dot, AVX-512"),
    "f32": ("f32 FMA, AVX-512", "f32 FMA, AVX-512"),
    "memory": ("memory read", "memory read"),
}
INTRODUCTION = """\
# Benchmarks

`scripts/bench/run` measured every figure on this page and wrote it ([how it measures](../scripts/bench/README.md)). [benchmarks.json](benchmarks.json)
contains all figures. Engines run alternately on the same weights, each in a separate process. A ratio is the median over the rounds of ours to
theirs in the same round. Only ratios are comparable: absolute figures depend on the machine and the day.
"""


def median(values: list[float]) -> float:
    return statistics.median(values)


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines) + "\n"


def rate(engine: dict | None, unit: str) -> str:
    """The median rate of an engine, or why there is none."""
    if engine is None:
        return ""
    if not engine["rounds"]:
        return "failed"
    value = median([result["rate"] for result in engine["rounds"]])
    return f"{show(value)} {unit}"


def ratios(block: dict) -> str:
    """Targets and measured ratios."""
    rows = []
    for row in block.values():
        engines = row["engines"]
        for target in row["targets"]:
            ratio = target["ratio"]
            verdict = "–" if ratio is None else f"**{ratio:.2f}×**" if ratio >= target["least"] else f"{ratio:.2f}× (missed)"
            mine, theirs = rate(engines["ours"], row["unit"]), rate(engines[target["peer"]], row["unit"])
            rows.append([row["title"], target["peer"], mine, theirs, verdict, f"{target['least']:g}×", f"{target['aim']:g}×"])
    return table(["work", "peer", "ours", "theirs", "ratio", "at least", "aim"], rows)


def details(block: dict) -> str:
    """The measured way of each engine, its memory, the range over the rounds, and the agreement with ours."""
    rows = []
    for row in block.values():
        for name, engine in row["engines"].items():
            if not engine["rounds"]:
                rows.append([row["title"], name, engine.get("way", ""), f"failed: {engine.get('error', '')}", "", "", ""])
                continue
            rates = [result["rate"] for result in engine["rounds"]]
            rss = max(result["peak_rss_bytes"] or 0 for result in engine["rounds"]) / 2**20
            spread = f"{show(min(rates))} – {show(max(rates))}"
            difference = f"{row['agreement'][name]:.2g}" if name in row["agreement"] else ""
            rows.append([row["title"], name, engine["way"], rate(engine, row["unit"]), spread, f"{rss:.0f}", difference])
    head = ["work", "engine", "way", "median", "slowest – quickest", "peak RSS, MiB", "largest Δ log P"]
    note = "Δ log P: difference between the engine's and our log-probabilities of the labels, over all prompts that both answered, in the listed ways.\n"
    return table(head, rows) + "\n" + note


def limiting(peak: str, way: str) -> str:
    """The limit that applies to an engine: bf16 tiles or 32-bit products if it uses them, whatever the weights' type.
    """
    if peak == "int8" and "tiles" in way:
        return "bf16"
    return "f32" if peak == "bf16" and "exact" in way else peak


def roofline(name: str, block: dict) -> str:
    """Each engine's share of the machine's limit, as measured before the rounds of the row."""
    rows = []
    for row in block.values():
        if row["peak"] is None:
            continue
        for engine, result in row["engines"].items():
            rates = [sample["rate"] for sample in result["rounds"]]
            limit = LIMITS[limiting(row["peak"], result.get("way", ""))][0 if name == "amx" else 1]
            measured = [value for peaks in row["peaks"] for peak, value in peaks.items() if peak.startswith(f"{limit}, ") and not peak.endswith(" 1 thread")]
            if not rates or not measured:
                continue
            if row["peak"] == "memory":
                used, unit = median(rates) * result["model_bytes"] / 1e9, "GB/s"
            else:
                used, unit = median(rates) * (2 * LAYER_WEIGHTS + 2 * HEAD_WEIGHTS / PREFILL) / 1e9, "Gop/s"
            most = median(measured) / 1e9
            rows.append([row["title"], engine, f"{used:.0f} {unit}", f"{limit}: {most:.0f}", f"{used / most:.0%}"])
    note = (
        "Prefill counts only the products with weights, without attention; decoding counts the bytes of the weights' file. The limit is the median of the "
        "results of `cargo run --release -p probity-kernels --example peak` before each round.\n"
    )
    return table(["work", "engine", "rate", "limit", "share"], rows) + "\n" + note


def peaks(block: dict) -> str:
    """The machine's peak rates, over all rounds of all rows."""
    found: dict[str, list[float]] = {}
    for row in block.values():
        for sample in row["peaks"]:
            for name, value in sample.items():
                found.setdefault(name, []).append(value / 1e9)
    rows = [[name, f"{median(values):.0f}", f"{min(values):.0f} – {max(values):.0f}"] for name, values in found.items()]
    return table(["limit", "median, Gop/s or GB/s", "lowest – highest"], rows)


def instruction_sets(block: dict, onednn: str) -> str:
    """The instruction sets that each engine reports."""
    said = {"transformers": f"oneDNN's {onednn}"}
    for row in block.values():
        for name, engine in row["engines"].items():
            about = engine.get("about", {})
            if name == "ours" and "isa" in about:
                said[name] = about["isa"]
            elif name == "llama.cpp" and "system_info" in about:
                on = [part.split("=")[0].strip() for part in about["system_info"].split("|") if part.strip().endswith("= 1")]
                said[name] = ", ".join(on).replace("CPU : ", "")
    return "\n".join(f"- {name}: {text}" for name, text in said.items()) + "\n"


def measured(results: dict, command: str) -> str:
    """Dates, commits and the last command of the figures. Tables may have different ages, and rows that the last
    command does not name are from an earlier one."""
    commits = sorted({result["commit"] for result in results.values()})
    dates = sorted(result["date"] for result in results.values())
    return f"- measured: {dates[0]} to {dates[-1]} at commit {', '.join(commits)}\n- last command: `{command}`"


def extras(found: dict, folder: Path) -> str:
    """Memory, loading, tokens, growth, and the data set."""
    parts = []
    memory, load, tokens, data = (found.get(name, {}) for name in ("memory", "load", "tokens", "summeval"))
    rows = []
    if "ratio" in memory:
        peak = median(memory["peak_rss_bytes"]) / 2**20
        budget = f"{memory['weights_bytes'] / 2**20:.0f} + {memory['cache_budget_bytes'] / 2**20:.0f} MiB"
        rows.append(["peak memory of the job / (weights + cache budget)", f"{peak:.0f} MiB / ({budget})", f"{memory['ratio']:.2f}", "≤ 1.2", "≤ 1.1"])
    if "median" in load:
        rows.append(["load to first token, SmolLM2, warm disk cache, whole process", "", f"{load['median']:.2f} s", "≤ 1.0", "0.3"])
    if "ratio" in tokens:
        count = f"{tokens['computed']:,} of {tokens['unshared']:,} / {tokens['optimum']:,}"
        rows.append(["tokens computed on a SummEval article / optimum of a prefix tree", count, f"{tokens['ratio']:.3f}", "1.0", "1.0"])
    if rows:
        parts.append("## Memory, loading, tokens\n\n" + table(["what", "figures", "value", "at least", "aim"], rows))
    if "points" in found.get("growth", {}):
        parts.append(growth(found["growth"]["points"], folder))
    if "cost" in data:
        parts.append(data_set(data))
    failed = [f"- {name}: {result['error']}" for name, result in found.items() if "error" in result]
    if failed:
        parts.append("## Not measured\n\n" + "\n".join(failed) + "\n")
    return "\n".join(parts)


def growth(points: list[dict], folder: Path) -> str:
    """Plots and tables over each axis."""
    parts = ["## How time grows\n\nThe job in Q8_0 with more candidates (context 400 tokens) and with longer contexts (16 candidates). One run each. Without prefix sharing every prompt "
             "costs the same, so 12 prompts were run and the time scaled.\n"]
    for axis, label in (("candidates", "candidates"), ("context", "tokens of context")):
        here = [point for point in points if point["axis"] == axis and "seconds" in point]
        engines = list(dict.fromkeys(point["engine"] for point in here))
        if not here:
            continue
        for field, unit in (("seconds", "seconds"), ("tokens", "tokens computed")):
            series = {engine: [(point["value"], point[field]) for point in here if point["engine"] == engine] for engine in engines}
            name = f"growth-{axis}-{field}.svg"
            (folder / name).write_text(plot.chart(f"The job by {label}: {unit}", label, unit, series))
            parts.append(f"![{unit} by {label}]({name})")
        values = sorted({point["value"] for point in here})
        cell = {(point["value"], point["engine"]): f"{point['seconds']:.1f} s, {point['tokens']:,}" for point in here}
        cell |= {(point["value"], point["engine"]): "failed" for point in points if point["axis"] == axis and "error" in point}
        rows = [[str(value), *(cell.get((value, engine), "not run") for engine in engines)] for value in values]
        parts.append("\n" + table([label, *(f"{engine}: time, tokens" for engine in engines)], rows))
    return "\n".join(parts)


def data_set(data: dict) -> str:
    """The run over all articles."""
    cost, quality = data["cost"], data["quality"]
    seconds = data["seconds"]
    rows = [
        ["queries", f"{cost['requests']:,}"],
        ["time", f"{seconds:.0f} s"],
        ["tokens computed, of all tokens of the prompts", f"{cost['tokens_computed']:,} of {cost['tokens_unshared']:,}"],
        ["tokens computed per second", f"{cost['tokens_computed'] / seconds:,.0f}"],
        ["peak memory", f"{data['peak_rss_bytes'] / 2**20:.0f} MiB"],
        ["P(A): share won by the candidate shown first", f"{quality['position']['p_a']:.3f}"],
    ]
    for name, label in (("as_judged", "as judged"), ("debiased", "debiased")):
        spearman, pairwise = quality[name]["spearman"]["mean"], quality[name]["pairwise"]["accuracy"]
        rows.append([f"compared with gold, {label}: Spearman per context; pairwise accuracy", f"{spearman:.3f}; {pairwise:.3f}"])
    return "## All of SummEval: SmolLM2-135M-Instruct, coherence\n\n" + table(["what", "value"], rows) + f"\n`{data['signature']}`\n"


def described(machine: dict) -> str:
    """The machine in one line."""
    size = f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}"
    return f"{size}; {', '.join(machine['instruction_sets'])}"


def render(state: dict, path: Path) -> None:
    """Writes the document."""
    machine = state["machine"] or state["others"]
    parts = [INTRODUCTION]
    results = [row for block in state["blocks"].values() for row in block.values()] + list(state["extras"].values())
    versions = sorted({str(e["about"]["version"]) for r in results if "engines" in r for e in r["engines"].values() if "version" in e.get("about", {})})
    parts.append(
        f"- machine: {described(machine)}\n"
        f"- peers: {'; '.join(versions)}; {machine['rustc']}, gcc {machine['gcc']}\n"
        "- model, unless another is named: a llama of 0.85 billion seeded random weights (hidden 2048, 16 layers, 32/8 heads, feed-forward 5632, vocabulary "
        f"32,000); {state['threads']} threads\n"
        if results
        else ""
    )
    for name, (title, note) in BLOCKS.items():
        block = state["blocks"].get(name)
        if block:
            where = f"- machine: {described(state['others'])}\n" if name == "other" else ""
            sections = [f"## {title}\n\n{note}\n\n{where}{measured(block, state['commands'][name])}", instruction_sets(block, state["onednn"][name]), ratios(block), "### Share of the machine's limits\n", roofline(name, block)]
            sections += ["### What was measured\n", details(block), "### The machine's limits\n", peaks(block)]
            parts.append("\n".join(sections))
    if state["extras"]:
        parts.append(f"## Other measurements\n\n{measured(state['extras'], state['commands']['extras'])}\n")
    parts.append(extras(state["extras"], path.parent))
    device = path.with_name("gpu.json")
    if device.exists():
        parts.append(gpu.section(json.loads(device.read_text())))
    path.write_text("\n".join(part for part in parts if part))
