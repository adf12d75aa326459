"""Tables of samples written by pyarrow and pandas: Parquet in every compression that probity reads, CSV, TSV, gzip and
zstd.

`expected.jsonl` contains the expected samples of each, for the tests of crates/data. The texts are our own.
"""

import gzip
import json

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
from provenance import ROOT, versions, write_json

CONTEXTS = ["The lake froze\r\nin \"January\".", "Bees, wasps;\tand ants.", "", "naïve 日本 हिन्दी 😀", "A plain line."]
COMPRESSIONS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]


def samples() -> list[dict]:
    """Candidates with and without scores, preferences of every kind, zero to two references."""
    result = []
    for index, context in enumerate(CONTEXTS):
        candidates = [
            {"id": "first", "text": f"Candidate one of {index}, with \"quotes\",\nand a second line.", "scores": {"fluency": 1.5 + index}},
            {"id": "second", "text": "the same text for all", "scores": {"fluency": -0.25 * index, "coherence": 3.0}},
        ]
        sample = {"id": f"s{index}", "context": context, "candidates": candidates}
        if index % 2:
            sample["instruction"] = f"Answer question {index}."
        if index:
            sample["references"] = [f"reference {index}.{k}" for k in range(1 + index % 2)]
        if index != 4:
            sample["preference"] = ["first", "second", "tie", "first"][index]
        result.append(sample)
    return result


def nested(rows: list[dict]) -> pa.Table:
    """Our own format as columns: list<struct<id, text, scores: struct>>; absent scores are nulls."""
    scores = pa.struct([("fluency", pa.float64()), ("coherence", pa.float64())])
    candidate = pa.struct([("id", pa.string()), ("text", pa.string()), ("scores", scores)])
    schema = pa.schema([
        ("id", pa.string()), ("context", pa.string()), ("instruction", pa.string()), ("candidates", pa.list_(candidate)),
        ("references", pa.list_(pa.string())), ("preference", pa.string()),
    ])
    return pa.Table.from_pylist(rows, schema=schema)


def lists(rows: list[dict]) -> pa.Table:
    """Parallel lists in a struct, integers for ids and preferences, floats of 32 bits."""
    table = []
    for index, row in enumerate(rows):
        table.append({
            "number": index,
            "input": {"text": row["context"], "turns": [row["instruction"]] if "instruction" in row else []},
            "names": [c["id"] for c in row["candidates"]],
            "texts": [c["text"] for c in row["candidates"]],
            "coh": [c["scores"].get("coherence") for c in row["candidates"]],
            "flu": [c["scores"]["fluency"] for c in row["candidates"]],
            "gold": row.get("references"),
            "label": {"first": 0, "second": 1, "tie": 2, None: None}[row.get("preference")],
            "unused": [{"bytes": b"\xff\xfe", "path": None}],
        })
    schema = pa.schema([
        ("number", pa.int64()), ("input", pa.struct([("text", pa.string()), ("turns", pa.list_(pa.string()))])),
        ("names", pa.list_(pa.dictionary(pa.int32(), pa.string()))), ("texts", pa.large_list(pa.large_string())),
        ("coh", pa.list_(pa.float32())), ("flu", pa.list_(pa.float32())), ("gold", pa.list_(pa.string())), ("label", pa.int8()),
        ("unused", pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))),
    ])
    return pa.Table.from_pylist(table, schema=schema)


def wide(rows: list[dict]) -> pandas.DataFrame:
    """One row per sample."""
    def row(sample: dict) -> dict:
        first, second = sample["candidates"]
        references = sample.get("references", [])
        return {
            "id": sample["id"], "article": sample["context"], "prompt": sample.get("instruction"),
            "summary": first["text"], "baseline": second["text"],
            "flu_1": first["scores"]["fluency"], "flu_2": second["scores"]["fluency"], "coh_2": second["scores"]["coherence"],
            "gold_1": references[0] if references else None, "gold_2": references[1] if len(references) > 1 else None,
            "winner": sample.get("preference"),
        }
    return pandas.DataFrame([row(sample) for sample in rows])


def long(rows: list[dict]) -> pandas.DataFrame:
    """One row per candidate, all first candidates before all second ones."""
    table = []
    for place in range(2):
        for sample in rows:
            candidate = sample["candidates"][place]
            references = sample.get("references", [])
            table.append({
                "doc": sample["id"], "article": sample["context"], "prompt": sample.get("instruction"), "system": candidate["id"],
                "text": candidate["text"], "fluency": candidate["scores"]["fluency"], "coherence": candidate["scores"].get("coherence"),
                "gold": references[place] if len(references) > place else None, "winner": sample.get("preference"),
            })
    return pandas.DataFrame(table)


def train() -> pa.Table:
    """Responses with the names of their models, and a label that is an index among them."""
    def response(text: str, model: str, rating: float) -> dict:
        return {"text": text, "model": model, "rating": rating}

    return pa.table({
        "prompt": ["Why is the sky blue?", "Name a prime."],
        "responses": [
            [response("Air scatters blue light most.", "large", 4.5), response("It is a mirror of the sea.", "small", 1.0)],
            [response("Nine.", "small", 1.0), response("Seven.", "large", 5.0)],
        ],
        "label": [0, 1],
    })


def main() -> None:
    folder = ROOT / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    rows = samples()
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "expected.jsonl").write_text(lines, encoding="utf-8", newline="")
    for compression in COMPRESSIONS:
        pq.write_table(nested(rows), folder / f"nested-{compression}.parquet", compression=compression, row_group_size=2)
    pq.write_table(nested(rows), folder / "nested-plain-v2.parquet", use_dictionary=False, data_page_version="2.0", data_page_size=64)
    pq.write_table(lists(rows), folder / "lists.parquet", row_group_size=3)
    pq.write_table(train(), folder / "train.parquet")
    wide(rows).to_parquet(folder / "wide.parquet")
    wide(rows).to_csv(folder / "wide.csv")
    wide(rows).to_csv(folder / "wide-semicolon.csv", sep=";", index=False, encoding="utf-8-sig", lineterminator="\r\n")
    wide(rows).to_csv(folder / "wide.tsv", sep="\t", index=False)
    with pa.output_stream(folder / "long.csv.zst", compression="zstd") as packed:
        packed.write(long(rows).to_csv(index=False).encode())
    long(rows).to_json(folder / "long.jsonl", orient="records", lines=True)
    with gzip.GzipFile(folder / "own.jsonl.gz", "wb", mtime=0) as packed:
        packed.write(lines.encode())
    with pa.output_stream(folder / "own.jsonl.zst", compression="zstd") as packed:
        packed.write(lines.encode())
    write_json(folder / "made_with.json", {"made_with": versions("pandas", "pyarrow")})


if __name__ == "__main__":
    main()
