"""Judging by workers of Ray, one of which is killed."""

import os

import pytest

import probity
import probity.ray
from conftest import MODEL

ray = pytest.importorskip("ray")

OPTIONS = {"model": MODEL, "attribute": "quality", "map": {"id": "key", "context": "doc", "candidate": ["a", "b"]},
           "no_gold": True, "threads": 1}


@pytest.fixture(scope="module")
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


def samples():
    rows = probity.demo_rows()
    return [
        {"key": f"{n}-{row['id']}", "doc": row["context"], "a": row["candidates"][n % 4]["text"],
         "b": row["candidates"][(n + 1) % 4]["text"]}
        for n in range(2) for row in rows
    ]


def test_a_worker_that_is_killed_changes_nothing(model, cluster, folder, monkeypatch):
    one = probity.compare(samples(), out="one", progress=False, **OPTIONS)
    mark = folder / "killed"

    class Dies(probity.ray._Answers):
        def __call__(self, batch):
            if "1-ferry" in batch["key"].to_pylist() and not mark.exists():
                mark.write_text(str(os.getpid()))
                os.kill(os.getpid(), 9)
            return super().__call__(batch)

    monkeypatch.setattr(probity.ray, "_Answers", Dies)
    many = probity.ray.judge("compare", ray.data.from_items(samples()), out="many", concurrency=2, batch_size=3, progress=False, **OPTIONS)
    assert mark.exists(), "no worker was killed"
    for name in ["comparisons.jsonl", "scores.jsonl", "samples.jsonl", "summary.json"]:
        assert (many.path / name).read_bytes() == (one.path / name).read_bytes(), name


def test_a_stage_gives_the_rows_of_its_batches(model, cluster, folder):
    options = {**OPTIONS, "debias": "none", "text_flags": "off"}
    one = probity.compare(samples(), out="one", progress=False, **options)
    scores = ray.data.from_items(samples()).map_batches(
        probity.ray.Stage, fn_constructor_kwargs={"method": "compare", **options}, batch_format="pyarrow", batch_size=3,
        concurrency=2)
    found = sorted(scores.take_all(), key=lambda row: (row["item"], row["index"]))
    assert found == sorted(one.scores, key=lambda row: (row["item"], row["index"]))


def test_what_cannot_be_judged_so_is_refused():
    with pytest.raises(ValueError, match="no method 'nothing'"):
        probity.ray.Stage("nothing")
    with pytest.raises(ValueError, match="need unique ids"):
        probity.ray.Stage("compare", model=MODEL, attribute="x", map={"context": "doc"})
