#!/usr/bin/env python3
"""Kills runs at random times, makes their system calls fail, and checks that nothing is lost or silently wrong.

Seven commands on the tiny model (see tiny_model.py) are killed with SIGKILL: during start, in the middle, while writing
tables, while a resume clears the output of a finished run, and just before a system call that writes, renames or
removes a file. Killed runs are resumed, and most are killed again. After every kill

  - the manifest is complete; if it says `finished`, every file equals that of an undisturbed run;
  - the database of answers is intact, each answer equals that of an undisturbed run, and none is lost;
  - each complete line of a table equals that of an undisturbed run;

and after the last resume everything is byte-identical, and `probity check` confirms it. If single system calls fail
(strace --inject), a run succeeds or reports the reason, exits normally, and can be resumed.

usage: kill.py [--probity BINARY] [--model SMOLLM2.gguf] [--kills 1000] [--faults 200] [--seed 1] [--folder FOLDER] [--out TABLE.json]
"""

import argparse
import collections
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import runs

PHASES = {"start": (0.0, 0.25), "middle": (0.25, 0.8), "tables": (0.8, 1.1)}
CALLS = "openat,write,pwrite64,fsync,fdatasync,rename,unlink,ftruncate"
FAULTS = {
    "write": ["ENOSPC", "EIO"], "pwrite64": ["ENOSPC", "EIO"], "fsync": ["EIO"], "fdatasync": ["EIO"], "rename": ["EACCES", "EIO"],
    "unlink": ["EACCES", "EIO"], "mmap": ["ENOMEM"], "openat": ["EMFILE", "EACCES"], "ftruncate": ["EIO"],
}


class Wrong(Exception):
    """Data were lost or are wrong."""


def check_manifest(job: runs.Job, out: Path) -> None:
    path = out / "run/manifest.json"
    if not path.exists():
        return
    try:
        status = json.loads(path.read_text())["status"]
    except ValueError as error:
        raise Wrong(f"the manifest is broken: {error}") from error
    if status == "finished":
        # The next run's partial output may be beside it.
        check_results(job, out, but=".part")
    elif status not in ("running", "interrupted", "failed"):
        raise Wrong(f"the manifest says {status}")


def check_results(job: runs.Job, out: Path, but: str = "no such file") -> None:
    found = {name: content for name, content in runs.results(out).items() if not name.endswith(but)}
    for name in job.expected.keys() | found.keys():
        if job.expected.get(name) != found.get(name):
            raise Wrong(f"{name} is {'not there' if name not in found else 'another'}")


def check_lines(job: runs.Job, out: Path) -> None:
    for path in out.rglob("*.jsonl"):
        whole = path.read_bytes().rpartition(b"\n")
        expected = job.expected.get(str(path.relative_to(out)), b"")
        if not expected.startswith(whole[0] + whole[1]):
            raise Wrong(f"a line of {path.name} is another")


def check_answers(job: runs.Job, out: Path, scratch: Path, known: dict, before: dict) -> dict:
    database = out / job.answers if job.answers else None
    if database is None or not database.exists():
        if before:
            raise Wrong("the answers are gone")
        return {}
    try:
        found = runs.answers(database, scratch)
    except Exception as error:
        raise Wrong(f"the answers cannot be read: {error}") from error
    for key, row in found.items():
        if known.get(key) != row:
            raise Wrong(f"{key[0]} {key[1]!r} is another: {row} and not {known.get(key)}")
    if lost := before.keys() - found.keys():
        raise Wrong(f"{len(lost)} rows of answers are gone")
    return found


def check_words(ran: subprocess.CompletedProcess, well: bool) -> None:
    if "panicked" in ran.stderr or (ran.returncode < 0 and ran.returncode != -signal.SIGKILL):
        raise Wrong(f"it ended by {ran.returncode}: {ran.stderr}")
    if well and ran.returncode != 0:
        raise Wrong(f"it ended with {ran.returncode}: {ran.stderr}")


class Bench:
    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self.probity, self.folder, self.random = given.probity.resolve(), folder, random.Random(given.seed)
        model = runs.tiny(given.model, folder)
        self.jobs = runs.methods(model, *runs.write_data(folder))
        self.known: dict[str, dict] = {}
        self.calls: dict[str, dict[str, int]] = {}
        self.loaders: dict[str, dict[str, int]] = {}
        for job in self.jobs:
            out = self.fresh("expected")
            begun = time.monotonic()
            check_words(runs.run(self.probity, job, out), well=True)
            job.seconds = time.monotonic() - begun
            job.expected = runs.results(out)
            self.known[job.name] = runs.answers(out / job.answers, folder / "scratch") if job.answers else {}
            self.calls[job.name] = self.count_calls(job)
            print(f"{job.name}: {job.seconds:.2f} s, {len(job.expected)} files, {len(self.known[job.name])} rows of answers", flush=True)

    def fresh(self, name: str) -> Path:
        out = self.folder / name
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        return out

    def count_calls(self, job: runs.Job) -> dict[str, int]:
        """The number of each system call in an undisturbed run."""
        log = self.folder / "calls"
        # The last one is made after the system's loader has finished.
        traced = ["strace", "-f", "-o", str(log), "-e", f"trace={CALLS},mmap,set_robust_list"]
        check_words(runs.run(self.probity, job, self.fresh("counted"), before=traced), well=True)
        found = re.findall(r"^\d+ +(\w+)\(", log.read_text(errors="replace"), re.MULTILINE)
        self.loaders[job.name] = dict(collections.Counter(found[: found.index("set_robust_list")]))
        return dict(collections.Counter(found))

    def kill(self, job: runs.Job, out: Path, phase: str, more: list[str]) -> bool:
        """Kills a process; returns whether it was still running."""
        command = [str(self.probity), "--quiet", *(part.format(out=out) for part in job.arguments), *more]
        if phase == "call":
            name = self.random.choice([name for name in CALLS.split(",") if name in self.calls[job.name]])
            turn = self.random.randint(1, self.calls[job.name][name])
            command = ["strace", "-f", "-o", "/dev/null", "-e", f"trace={name}", "-e", f"inject={name}:signal=KILL:when={turn}", *command]
            ran = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120)
            if "panicked" in ran.stderr:
                raise Wrong(ran.stderr)
            return ran.returncode != 0
        first, last = PHASES.get(phase, (0.0, 1.0))
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
        try:
            process.wait(job.seconds * self.random.uniform(first, last))
        except subprocess.TimeoutExpired:
            pass
        killed = process.poll() is None
        process.kill()
        said = process.communicate()[1]
        if "panicked" in said or (not killed and process.returncode != 0):
            raise Wrong(f"it ended with {process.returncode}: {said}")
        return killed

    def finish(self, job: runs.Job, out: Path) -> None:
        """Resumes to the end and compares everything with an undisturbed run."""
        check_words(runs.run(self.probity, job, out, more=self.resume(job, out)), well=True)
        check_results(job, out)
        if job.answers and check_answers(job, out, self.folder / "scratch", self.known[job.name], {}) != self.known[job.name]:
            raise Wrong("answers are missing")
        if (out / "run").exists():
            manifest = json.loads((out / "run/manifest.json").read_text())
            held = {f"run/{name}" for name in manifest.get("contents", {})}
            if manifest["status"] != "finished" or held != {name for name in job.expected if name.endswith((".json", ".jsonl")) and name != "run/manifest.json"}:
                raise Wrong(f"the manifest says {manifest['status']} and knows what {sorted(held)} hold")
            checked = subprocess.run([str(self.probity), "check", str(out / "run")], capture_output=True, text=True)
            if checked.returncode != 0:
                raise Wrong(f"check says {checked.stdout}{checked.stderr}")

    def resume(self, job: runs.Job, out: Path) -> list[str]:
        """The command that continues; if nothing was written yet, the original command."""
        return job.resume if any(out.iterdir()) else []

    def chain(self, job: runs.Job, phase: str, most: int) -> collections.Counter:
        """Kills and resumes a run up to `most` times."""
        out = self.fresh("killed")
        counted: collections.Counter = collections.Counter()
        if phase == "resume":
            check_words(runs.run(self.probity, job, out), well=True)
        before: dict = {}
        for _ in range(self.random.randint(1, most)):
            again = self.random.choice(list(PHASES)) if counted and phase != "call" else phase
            if not self.kill(job, out, again, self.resume(job, out)):
                counted["too late"] += 1
                continue
            counted[again] += 1
            check_manifest(job, out)
            if phase != "resume":
                check_lines(job, out)
            before = check_answers(job, out, self.folder / "scratch", self.known[job.name], before)
        self.finish(job, out)
        return counted

    def fault(self, job: runs.Job) -> tuple[str, str]:
        """Makes one system call of a run fail; returns how the run ended."""
        name = self.random.choice([name for name in FAULTS if self.calls[job.name].get(name, 0) > self.loaders[job.name].get(name, 0)])
        # A failure in the loader ends the process before any of our code runs.
        first = self.loaders[job.name].get(name, 0) + 1
        turn, error = self.random.randint(first, self.calls[job.name][name]), self.random.choice(FAULTS[name])
        out = self.fresh("faulty")
        traced = ["strace", "-f", "-o", "/dev/null", "-e", f"trace={name}", "-e", f"inject={name}:error={error}:when={turn}"]
        self.told = f"{name} fails with {error}, time {turn}"
        ran = runs.run(self.probity, job, out, before=traced)
        # Rust aborts if a thread gets no memory before its first line of code.
        aborted = "failed to allocate an alternative stack" in ran.stderr
        if not aborted:
            check_words(ran, well=False)
        if ran.returncode == 0:
            check_results(job, out)
        elif "error" not in ran.stderr and not aborted:
            raise Wrong(f"it ended with {ran.returncode} and said {ran.stderr!r}")
        check_manifest(job, out)
        check_answers(job, out, self.folder / "scratch", self.known[job.name], {})
        self.finish(job, out)
        return name, "aborted" if aborted else "well" if ran.returncode == 0 else "said"


def main() -> int:
    parser = runs.arguments(__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--out", type=Path, help="write the counts to this file as JSON")
    given = parser.parse_args()
    folder = runs.workplace(given)
    bench = Bench(given, folder)
    kills: dict[str, collections.Counter] = {job.name: collections.Counter() for job in bench.jobs}
    wrong = []

    def done() -> int:
        return sum(count for counter in kills.values() for phase, count in counter.items() if phase != "too late")

    phases = [*PHASES, "resume", "call"]
    turn = 0
    while done() < given.kills:
        job, phase = bench.jobs[turn % len(bench.jobs)], phases[turn // len(bench.jobs) % len(phases)]
        turn += 1
        try:
            kills[job.name] += bench.chain(job, phase, most=4)
        except Wrong as why:
            wrong.append(f"{job.name}, killed in {phase}, turn {turn}: {why}")
            print(wrong[-1], flush=True)
            shutil.copytree(folder / "killed", folder / f"wrong-{len(wrong)}", dirs_exist_ok=True)
            kills[job.name][phase] += 1
        if turn % 50 == 0:
            print(f"{done()} kills, {len(wrong)} wrong", flush=True)
    faults: collections.Counter = collections.Counter()
    for turn in range(given.faults):
        job = bench.jobs[turn % len(bench.jobs)]
        try:
            faults[bench.fault(job)] += 1
        except Wrong as why:
            wrong.append(f"{job.name}, {bench.told}: {why}")
            print(wrong[-1], flush=True)
            shutil.copytree(folder / "faulty", folder / f"wrong-{len(wrong)}", dirs_exist_ok=True)
    print(runs.table("command", phases, {f"`{name}`": counter for name, counter in kills.items()}))
    ends = {"well": "run ended well", "said": "run said why", "aborted": "a thread was not begun"}
    by_call = {f"`{name}`": {ends[how]: faults[name, how] for how in ends} for name in FAULTS}
    print(runs.table("call", list(ends.values()), by_call))
    print(f"{done()} kills, {sum(faults.values())} failed calls, {len(wrong)} wrong")
    if given.out:
        counts = {"kills": kills, "faults": {" ".join(key): count for key, count in faults.items()}, "wrong": wrong}
        given.out.write_text(json.dumps(counts, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
