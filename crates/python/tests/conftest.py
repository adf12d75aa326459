"""The tests run in a folder of their own, with the model that the project's other tests use."""

import os
import pathlib

import pytest

import probity

MODEL = "smollm2-135m-instruct"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def model():
    """A model in memory; tests that ask one are skipped where its weights are not there."""
    try:
        return probity.Model.load(MODEL, progress=False)
    except probity.ProbityError as error:
        if os.environ.get("PROBITY_MODELS") and pathlib.Path(os.environ["PROBITY_MODELS"], MODEL).is_dir():
            raise
        pytest.skip(str(error).split("\n")[0])


@pytest.fixture
def rows():
    """Two texts of a context each, in columns."""
    return [
        {"doc": row["context"], "a": row["candidates"][0]["text"], "b": row["candidates"][1]["text"]}
        for row in probity.demo_rows()
    ]


MAP = {"context": "doc", "candidate": ["a", "b"]}
