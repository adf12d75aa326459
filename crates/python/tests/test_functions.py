"""Functions are those of the registry, with the same options, and each has an example that runs."""

import doctest
import inspect
import json
import pathlib
import subprocess
import sys

import pytest

import probity
from probity import _probity

ROOT = pathlib.Path(__file__).parents[3]
KINDS = _probity.kinds()


def names():
    return [kind["name"].replace("-", "_") for kind in KINDS]


def test_everything_that_can_be_run_is_a_function():
    assert len(KINDS) >= 16
    assert set(names()) <= set(probity.__all__)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["name"])
def test_options_are_keywords_with_their_defaults_and_their_help(kind):
    function = getattr(probity, kind["name"].replace("-", "_"))
    parameters = inspect.signature(function).parameters
    for option in kind["options"]:
        name = "from_" if option["field"] == "from" else option["field"]
        if option["key"]:
            # Accepted, but listed only as a key of the option that holds it.
            assert name not in parameters
            continue
        parameter = parameters[name]
        is_needed = option["required"] and option["field"] != "model"
        assert parameter.default == (parameter.empty if is_needed else option["default"])
        if name != "data":
            assert option["help"].split("\n")[0] in function.__doc__
    assert function.__doc__.startswith(kind["about"])


@pytest.mark.parametrize("name", [name for name in probity.__all__ if name not in ("ProbityError", "Table")])
def test_examples_run(name, request, tmp_path, monkeypatch):
    examples = [test for test in doctest.DocTestFinder().find(getattr(probity, name), name) if test.examples]
    assert examples, f"{name} has no example"
    if any("smollm2" in example.source for test in examples for example in test.examples):
        request.getfixturevalue("model")
    if any("./reward-model" in example.source for test in examples for example in test.examples):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "reward-model").symlink_to(ROOT / "tests/goldens/classifiers/llama-reward")
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in examples:
        assert runner.run(test).failed == 0, f"{test.name}: what failed was printed"


def test_the_stubs_are_as_the_definitions():
    subprocess.run([sys.executable, ROOT / "scripts/python-stubs", "--check"], check=True)


def test_the_command_comes_with_the_module():
    told = subprocess.run([sys.executable, "-m", "probity", "--version"], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == f"probity {probity.__version__}"
    wrong = subprocess.run([sys.executable, "-m", "probity", "nothing"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "nothing" in wrong.stderr


def test_a_run_of_python_and_of_the_command_have_the_same_bytes(model, rows, folder):
    lines = [
        {"id": str(place), "context": row["doc"],
         "candidates": [{"id": "a", "text": row["a"]}, {"id": "b", "text": row["b"]}]}
        for place, row in enumerate(rows)
    ]
    pathlib.Path("data.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    here = probity.compare(rows, model=model, attribute="coherence", map={"context": "doc", "candidate": ["a", "b"]},
                           progress=False)
    command = [sys.executable, "-m", "probity", "compare", "--data", "data.jsonl", "--model", "smollm2-135m-instruct",
               "--attribute", "coherence", "--out", "there"]
    subprocess.run(command, check=True, capture_output=True)
    for name in ["scores.jsonl", "comparisons.jsonl", "samples.jsonl", "summary.json"]:
        assert (here.path / name).read_bytes() == pathlib.Path("there", name).read_bytes(), name


def test_the_blocks_of_the_page_run(model, capsys):
    page = (ROOT / "docs/python.md").read_text("utf-8")
    blocks = [part.split("```")[0] for part in page.split("```python\n")[1:]]
    names = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
    told = capsys.readouterr().out
    assert len(blocks) >= 4 and "UNRELIABLE" in told and told.endswith("True\n")
