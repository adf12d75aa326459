#!/usr/bin/env python3
"""Changes a model's files at random, thousands of times, and checks the reaction.

A fifth each changes a GGUF, a safetensors file, config.json, tokenizer.json and the chat template of tiny models. Some
changes are blind (bits, bytes, truncation), some use the format (another number, a repeated key, a value of another
type, a tensor at another offset). One sample is compared with each changed model, and then

  - the process has exited normally, with 0 or 2: no panic, no abort;
  - it used under 2 GB and 20 s;
  - if the model was rejected, the error names the file;
  - if it was accepted and the answers are unchanged, all is well;
  - if the answers differ, it is another model, and the manifest has another fingerprint, because no number in a file of weights is wrong in itself. Its answers must still be probabilities.

usage: mutate.py [--probity BINARY] [--model SMOLLM2.gguf] [--count 10000] [--seed 1] [--folder FOLDER]
"""

import collections
import copy
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import threading
from pathlib import Path

import runs

HUGGING_FACE = runs.ROOT / "tests/goldens/models/llama"
WORDS = [line.split('"', 1)[1].rsplit('"', 1)[0] for line in (runs.ROOT / "fuzz/dictionaries/template.dict").read_text().splitlines() if line.startswith('"')]
NUMBERS = [0, 1, -1, 2, 3, 7, 31, 255, 256, 4096, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 0.5, 1e-300, 1e38, 1e308, -0.0]
VALUES = [None, True, False, "", "a", [], {}, [[]], "\u0000", "a" * 1000, *NUMBERS]
LIMITS = {"bytes": 2 << 30, "seconds": 20}


def blind(drawn: random.Random, data: bytes, most: int) -> bytes:
    """Flips bits, sets bytes, and removes, doubles or moves spans in the first `most` bytes."""
    data = bytearray(data)
    for _ in range(drawn.choice([1, 1, 1, 2, 4])):
        end = max(1, min(most, len(data)))
        at, size = drawn.randrange(end), drawn.choice([1, 2, 4, 8, 100])
        match drawn.randrange(6):
            case 0:
                data[at] ^= 1 << drawn.randrange(8)
            case 1:
                data[at] = drawn.choice([0, 1, 0x7F, 0x80, 0xFF, drawn.randrange(256)])
            case 2:
                del data[at : at + size]
            case 3:
                data[at:at] = data[at : at + size]
            case 4:
                data[at : at + 8] = struct.pack("<Q", drawn.choice([n for n in NUMBERS if isinstance(n, int) and n >= 0]))
            case 5:
                if drawn.random() < 0.2:
                    del data[drawn.randrange(len(data)) :]
                else:
                    other = drawn.randrange(end)
                    data[at : at + size] = data[other : other + size]
        if not data:
            return b""
    return bytes(data)


def places(value, path=()):
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        # Elements of long lists are similar.
        for at in {*range(min(4, len(value))), *range(max(0, len(value) - 2), len(value))}:
            yield from places(value[at], (*path, at))


def structured(drawn: random.Random, document) -> bytes:
    """A JSON document with values removed, replaced, moved or repeated, or with a repeated key."""
    document = copy.deepcopy(document)
    twice = False
    for _ in range(drawn.choice([1, 1, 2, 3])):
        path = drawn.choice([path for path in places(document) if path] or [()])
        if not path:
            break
        holder = document
        for step in path[:-1]:
            holder = holder[step]
        key = path[-1]
        match drawn.randrange(6):
            case 0:
                del holder[key]
            case 1 | 2:
                holder[key] = drawn.choice(VALUES)
            case 3 if isinstance(holder[key], (int, float)) and not isinstance(holder[key], bool):
                holder[key] = drawn.choice([holder[key] + 1, holder[key] - 1, holder[key] * 2, -holder[key], *NUMBERS])
            case 3 | 4:
                other = document
                for step in drawn.choice(list(places(document))):
                    other = other[step]
                holder[key] = copy.deepcopy(other)
            case 5 if isinstance(holder, dict):
                twice = True
                holder[f"{key}\u0000twice"] = drawn.choice(VALUES)
            case 5:
                holder[key:key] = [copy.deepcopy(holder[key])] * drawn.choice([1, 3, 1000])
    text = json.dumps(document)
    return (text.replace("\\u0000twice", "") if twice else text).encode()


def gguf(drawn: random.Random, data: bytes) -> bytes:
    header = 60_000
    if drawn.random() < 0.5:
        return blind(drawn, data, header if drawn.random() < 0.9 else len(data))
    # Around the name of a field or tensor, near its type, sizes and offset.
    names = [b"llama.", b"general.", b"tokenizer.ggml.", b"blk.", b"token_embd", b"output_norm"]
    found = []
    for name in names:
        at = data.find(name)
        while at >= 0:
            found.append(at)
            at = data.find(name, at + 1)
    at = drawn.choice(found)
    end = at + struct.unpack_from("<Q", data, at - 8)[0]
    place = drawn.choice([at - 8, end, end + 4, end + 4, end + 12, end + 16, end + 24])
    form, number = drawn.choice(["<I", "<Q", "<f"]), drawn.choice(NUMBERS)
    try:
        new = struct.pack(form, number if form == "<f" else int(number) % (1 << (32 if form == "<I" else 64)))
    except (OverflowError, struct.error):
        new = bytes(4)
    return data[:place] + new + data[place + len(new) :]


def safetensors(drawn: random.Random, data: bytes) -> bytes:
    size = struct.unpack_from("<Q", data)[0]
    if drawn.random() < 0.4:
        return blind(drawn, data, size + 8)
    header = structured(drawn, json.loads(data[8 : 8 + size]))
    return struct.pack("<Q", len(header)) + header + data[8 + size :]


def as_json(drawn: random.Random, data: bytes) -> bytes:
    return blind(drawn, data, len(data)) if drawn.random() < 0.3 else structured(drawn, json.loads(data))


def template(drawn: random.Random, data: bytes) -> bytes:
    if drawn.random() < 0.2:
        return blind(drawn, data, len(data))
    text = data.decode()
    for _ in range(drawn.choice([1, 2, 3, 6])):
        at = drawn.randrange(len(text) + 1)
        kind = drawn.randrange(3)
        if kind == 0:
            text = text[:at] + " " + drawn.choice(WORDS) + " " + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + drawn.randrange(12) :]
        else:
            text = text[:at] + "{{ " + drawn.choice(["messages", "bos_token", "'a' * 9", "range(99999)", "ns"]) + drawn.choice(WORDS) + " }}" + text[at:]
    return text.encode()


def one(bench, folder: Path):
    """Runs the sample with a model: exit code, output, kilobytes, seconds, answers and fingerprint."""
    shutil.rmtree(bench["out"], ignore_errors=True)
    command = [bench["probity"], "--quiet", "compare", "--model", folder, "--data", bench["data"], "--attribute", "quality", "--format", "chat", "--out", bench["out"]]
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    timer = threading.Timer(60, process.kill)
    timer.start()
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    timer.cancel()
    process.stdout.close()
    process.stderr.close()
    process.returncode = code = os.waitstatus_to_exitcode(status)
    answers = fingerprint = None
    if code == 0:
        rows = [json.loads(line) for line in (bench["out"] / "comparisons.jsonl").read_text().splitlines()]
        answers = json.dumps(rows)
        fingerprint = json.loads((bench["out"] / "manifest.json").read_text())["model"]["fingerprint"]
        for row in rows:
            numbers = [value for value in row.values() if isinstance(value, float)]
            if any(not math.isfinite(number) for number in numbers) or any(not 0 <= row[name] <= 1 for name in ("p", "mass") if row[name] is not None):
                answers = "no probabilities"
    return code, said.decode(errors="replace"), used.ru_maxrss * 1024, used.ru_utime + used.ru_stime, answers, fingerprint


def main() -> int:
    parser = runs.arguments(__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    given = parser.parse_args()
    folder = runs.workplace(given)
    candidates = [{"id": "a", "text": "b c"}, {"id": "b", "text": "d"}]
    (folder / "data.jsonl").write_text(json.dumps({"id": "s", "context": "a b", "candidates": candidates}))
    bench = {"probity": given.probity.resolve(), "data": folder / "data.jsonl", "out": folder / "run"}
    tiny = runs.tiny(given.model, folder)
    llama = folder / "llama"
    shutil.copytree(HUGGING_FACE, llama, dirs_exist_ok=True)
    configuration = json.loads((llama / "tokenizer_config.json").read_text())
    if "chat_template" in configuration:
        (llama / "chat_template.jinja").write_text(configuration.pop("chat_template"))
        (llama / "tokenizer_config.json").write_text(json.dumps(configuration))
    kinds = {
        "GGUF": (tiny, tiny, gguf),
        "safetensors": (llama, llama / "model-00001-of-00002.safetensors", safetensors),
        "config.json": (llama, llama / "config.json", as_json),
        "tokenizer.json": (llama, llama / "tokenizer.json", as_json),
        "chat template": (llama, llama / "chat_template.jinja", template),
    }
    expected = {kind: one(bench, model) for kind, (model, _, _) in kinds.items()}
    assert all(result[0] == 0 for result in expected.values()), expected
    counts = {kind: collections.Counter() for kind in kinds}
    most = {"bytes": 0, "seconds": 0.0}
    wrong = []
    for turn in range(given.count):
        kind = list(kinds)[turn % len(kinds)]
        model, path, change = kinds[kind]
        drawn = random.Random(given.seed * 1_000_003 + turn)
        original = path.read_bytes()
        changed = change(drawn, original)
        path.write_bytes(changed)
        try:
            code, said, size, seconds, answers, fingerprint = one(bench, model)
        finally:
            path.write_bytes(original)
        most = {"bytes": max(most["bytes"], size), "seconds": max(most["seconds"], seconds)}
        why = None
        if code not in (0, 2) or "panicked" in said:
            why = f"ended by {code}: {said[-300:]}"
        elif size > LIMITS["bytes"] or seconds > LIMITS["seconds"]:
            why = f"took {size >> 20} MiB and {seconds:.1f} s"
        elif code == 2 and not ("error" in said and (path.name in said or model.name in said)):
            why = f"refused without a reason: {said!r}"
        elif code == 0 and answers == "no probabilities":
            why = "answers are no probabilities"
        elif code == 0 and answers != expected[kind][4] and fingerprint == expected[kind][5]:
            why = "answers otherwise under the same fingerprint"
        if code == 2:
            counts[kind]["refused"] += 1
        elif code == 0:
            counts[kind]["the same answers" if answers == expected[kind][4] else "another model"] += 1
        if why:
            wrong.append(f"{kind}, turn {turn}: {why}")
            (folder / f"wrong-{turn}").write_bytes(changed)
            print(wrong[-1], flush=True)
        elif code == 0 and answers != expected[kind][4]:
            (folder / "accepted").mkdir(exist_ok=True)
            (folder / "accepted" / f"{turn}-{kind.replace(' ', '-')}").write_bytes(changed)
        if (turn + 1) % 500 == 0:
            print(f"{turn + 1} changes, {len(wrong)} wrong", flush=True)
    print(runs.table("file", ["refused", "the same answers", "another model"], counts))
    print(f"{given.count} changes, {len(wrong)} wrong; at most {most['bytes'] >> 20} MiB and {most['seconds']:.1f} s of processor time")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
