#!/usr/bin/env python3
"""Flips single bits in the stored answers of a run or of a shared cache, and checks the effect.

Half of the bits are flipped in `answers.sqlite` of a finished run, which is then checked, shown and resumed. The other
half are flipped in a folder for `--cache`, from which a new run takes its answers. Each must be rejected (exit code 2,
naming the file, with the run unchanged), repaired (the answer is recomputed, with a message) or without effect: tables
and summary are byte-identical.

usage: flip.py [--probity BINARY] [--model SMOLLM2.gguf] [--count 1000] [--seed 1] [--folder FOLDER]
"""

import collections
import random
import shutil
import subprocess
import sys
from pathlib import Path

import runs


def turn(path: Path, drawn: random.Random) -> int:
    data = bytearray(path.read_bytes())
    bit = drawn.randrange(len(data) * 8)
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    return bit


def main() -> int:
    parser = runs.arguments(__doc__)
    parser.add_argument("--count", type=int, default=1000)
    given = parser.parse_args()
    folder = runs.workplace(given)
    probity, drawn = given.probity.resolve(), random.Random(given.seed)
    job = runs.methods(runs.tiny(given.model, folder), *runs.write_data(folder))[0]
    whole = folder / "whole"
    shutil.rmtree(whole, ignore_errors=True)
    whole.mkdir()
    first = runs.run(probity, job, whole, more=["--cache", str(whole / "cache")])
    assert first.returncode == 0, first.stderr

    def found(out: Path) -> dict[str, bytes]:
        return {name: content for name, content in runs.results(out).items() if name.startswith("run/")}

    expected = found(whole)
    reads = [["check", "run"], ["show", "run"], ["show", "run", "s3"]]
    shown = [subprocess.run([str(probity), *read], cwd=whole, capture_output=True, check=True).stdout for read in reads]
    counts = {"answers.sqlite": collections.Counter(), "--cache": collections.Counter()}
    wrong = []
    for at in range(given.count):
        place = list(counts)[at % 2]
        out = folder / "turned"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(whole, out)
        if place == "--cache":
            shutil.rmtree(out / "run")
            bit = turn(out / "cache/answers.sqlite", drawn)
            ran = runs.run(probity, job, out, more=["--cache", str(out / "cache")])
        else:
            bit = turn(out / "run/answers.sqlite", drawn)
            checked = None
            for read, said in zip(reads, shown):
                ran = subprocess.run([str(probity), *read], cwd=out, capture_output=True)
                if ran.returncode not in (0, 1, 2) or b"panicked" in ran.stderr:
                    wrong.append(f"{place}, bit {bit}: {read} ended by {ran.returncode}: {ran.stderr}")
                if ran.returncode == 0 and ran.stdout != said:
                    wrong.append(f"{place}, bit {bit}: {read} says something else")
                checked = ran.returncode if read[0] == "check" else checked
            ran = runs.run(probity, job, out, more=["--resume"])
        if ran.returncode == 2 and "answers.sqlite" in ran.stderr and "panicked" not in ran.stderr:
            counts[place]["refused"] += 1
            if place == "answers.sqlite" and found(out) != expected:
                wrong.append(f"{place}, bit {bit}: what cannot be gone on with was cleared away")
        elif ran.returncode == 0:
            if found(out) != expected:
                wrong.append(f"{place}, bit {bit}: results differ")
            healed = "recomputed" in ran.stderr
            counts[place]["healed" if healed else "without effect"] += 1
            if place == "answers.sqlite" and healed and checked != 1:
                wrong.append(f"{place}, bit {bit}: check saw nothing and ended with {checked}")
        else:
            wrong.append(f"{place}, bit {bit}: ended by {ran.returncode}: {ran.stderr}")
        if (at + 1) % 200 == 0:
            print(f"{at + 1} bits, {len(wrong)} wrong", flush=True)
    print(runs.table("bits of", ["refused", "healed", "without effect"], {f"`{place}`": counter for place, counter in counts.items()}))
    print("\n".join([f"{given.count} bits, {len(wrong)} wrong", *wrong[:20]]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
