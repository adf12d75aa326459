"""The notebook of the docs, run as a reader runs it."""

import json
import pathlib
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("nbconvert")
pytest.importorskip("ipykernel")
pytest.importorskip("pandas")

NOTEBOOK = pathlib.Path(__file__).parents[3] / "docs/python.ipynb"


def test_it_runs_and_says_the_verdict(model, folder):
    # It runs where it lies, and leaves its runs there.
    notebook = shutil.copy(NOTEBOOK, folder)
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", notebook]
    subprocess.run(command, check=True, capture_output=True)
    cells = json.loads(pathlib.Path(notebook).read_text("utf-8"))["cells"]
    outputs = [cell.get("outputs", []) for cell in cells if cell["cell_type"] == "code"]
    assert not [one for cell in outputs for one in cell if one["output_type"] == "error"]
    result = next(one for one in outputs[1] if one["output_type"] == "execute_result")
    shown = "".join(result["data"]["text/html"])
    assert shown.startswith("<p><b>") and "the ids a and b are positions, not systems" in shown and "its tables: comparisons, samples, scores" in shown
    # Progress and messages are one output that was written over, and the bar is gone at the end.
    progress = ["".join(one["data"]["text/html"]) for one in outputs[1] if one["output_type"] == "display_data"]
    assert len(progress) == 2 and "loaded in" in progress[0] and "results are in" in progress[1]
    scores = "".join(next(one for one in outputs[2] if one["output_type"] == "execute_result")["data"]["text/html"])
    assert scores.count("<tr") >= 6 and "ferry" in scores
    assert "report.html" in "".join(outputs[3][0]["data"]["text/plain"])
