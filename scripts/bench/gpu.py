"""The section of docs/benchmarks.md about GPUs, from the results of `scripts/gpu/run`."""

import statistics

from rows import show

ENGINES = {"ours": "ours, `fast`", "transformers": "transformers, bf16, SDPA"}
# Targets and their measurements.
PRODUCT, MEMORY = "bf16 product", "memory, both directions of a copy"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]) + "\n"


def all_rows(results: dict, kind: str) -> list[dict]:
    """Rows of a kind, from all parts."""
    return [row for part in results["parts"].values() for row in part.get(kind, [])]


def gigabytes(count: int | None) -> str:
    """Bytes for people."""
    return "" if count is None else f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def share(row: dict, limits: dict[str, float]) -> str:
    """The share of the device's peak that a row of ours reaches: products with weights, or reading the weights for each
    token."""
    if row["engine"] != "ours":
        return ""
    if row["work"].startswith("prefill") and PRODUCT in limits and not row["shape"].startswith("flan"):
        return f"{row['rate'] * 2 * row['weights'] / limits[PRODUCT]:.0%} of the product rate"
    if row["work"].startswith("decode") and MEMORY in limits and not row["shape"].startswith("flan"):
        return f"{row['rate'] * row['file_bytes'] / limits[MEMORY]:.0%} of the memory rate"
    return ""


def speeds(results: dict) -> str:
    """Rates of all engines, and the ratio of ours to the peer's."""
    measured = all_rows(results, "speeds")
    limits = {row["peak"]: row["rate"] for row in all_rows(results, "peaks")}
    peers = {(row["shape"], row["work"]): row["rate"] for row in measured if row["engine"] != "ours"}
    rows = []
    for row in measured:
        theirs = peers.get((row["shape"], row["work"]))
        ratio = f"{row['rate'] / theirs:.2f}×" if row["engine"] == "ours" and theirs else ""
        each = [row["rate"] * statistics.median(row["seconds"]) / seconds for seconds in row["seconds"]]
        spread = f"{show(min(each))} – {show(max(each))}"
        engine = ENGINES[row["engine"]] if row.get("attention", "sdpa") == "sdpa" else f"transformers, bf16, {row['attention']}"
        cells = [row["shape"] + (", small" if results["small"] else ""), row["format"], row["work"], engine, f"{show(row['rate'])} {row['unit']}", spread, ratio]
        rows.append([*cells, share(row, limits), gigabytes(row.get("bytes_held")), gigabytes(row.get("bytes_told"))])
    missing = [f"- {row['shape']}, {row['format']}, {row['engine']}: {row['reason']}" for row in all_rows(results, "missing")]
    head = ["shape", "weights", "work", "engine", "median", "slowest – quickest", "to transformers", "share", "peak memory", "dry run"]
    agreement = [f"{row['shape']} {row['format']}, {row['work']}: {row['difference']:.2g}" for row in all_rows(results, "agreement")]
    parts = [table(head, rows)] if rows else []
    if limits:
        parts.append("The device, by torch: " + "; ".join(f"{name} {rate / 1e12:.3g} T{'B' if name == MEMORY else 'FLOP'}/s" for name, rate in limits.items()) + ".\n")
    if agreement:
        parts.append(f"Largest Δ log P of the labels, ours to transformers: {'; '.join(agreement)}.\n")
    return "\n".join([*parts, *(["Not measured:\n", *missing, ""] if missing else [])])


def checks(results: dict) -> str:
    """Passed and failed checks."""
    rows = [
        [str(check["number"] or ""), check["check"], check["status"], check["figure"] or check["reason"]] for check in all_rows(results, "checks")
    ]
    rows += [["", part["what"], part["status"], part["reason"]] for part in results["parts"].values() if "reason" in part]
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return table(["", "check", "", "figure"], cells)


def section(results: dict) -> str:
    """The whole section."""
    machine = results["machine"]
    where = "; ".join(machine["cards"]) or machine["processor"]
    small = " Small models only test that everything works; their figures mean nothing." if results["small"] else ""
    return (
        f"## On a device: {results['device']}\n\nWritten by `scripts/gpu/run`: seeded random weights of known shapes, one process per engine, on the same weights in the same run; "
        f"the job is that of the tables above.{small}\n\n"
        f"- device: {where}; {machine['cores']} cores, {machine['memory_gib']} GiB\n- measured: {results['date']} at commit {results['commit']}\n\n"
        f"{speeds(results)}\n### Checks on {results['device']}\n\n{checks(results)}"
    )
