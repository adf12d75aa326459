"""A run held against a baseline in a test."""

import subprocess
import sys

import probity

SUITE = """
import probity

WORSE = [{"id": str(n), "context": "a b c d e f", "candidates": [{"id": "x", "text": "z " * (n % 3 + 4)}]} for n in range(30)]
GOOD = [{"id": str(n), "context": "a b c d e f", "candidates": [{"id": "x", "text": "a b c d e f"}]} for n in range(30)]


def scored(rows):
    return probity.metrics(rows, metric="levenshtein-source", progress=False)


def test_worse(assert_not_worse):
    assert_not_worse(scored(WORSE), scored(GOOD))


def test_same(assert_not_worse):
    run = scored(GOOD)
    assert {one["outcome"] for one in assert_not_worse(run, run)} == {"same"}
"""


def test_what_is_worse_fails_and_what_is_said_is_told_at_the_end(folder):
    (folder / "test_suite.py").write_text(SUITE)
    is_installed = probity.__file__.startswith(sys.prefix)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_suite.py"]
    plugin = [] if is_installed else ["-p", "probity.pytest_plugin"]
    told = subprocess.run(command + plugin, capture_output=True, text=True)
    assert told.returncode == 1 and "1 failed, 1 passed" in told.stdout, told.stdout
    assert "worse, " in told.stdout and "over 30 items" in told.stdout
    assert "probity gate" in told.stdout and "test_same: " in told.stdout
