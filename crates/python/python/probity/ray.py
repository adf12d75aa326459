"""Judging on many machines with Ray Data.

``judge`` gives the run that one machine would have made: workers answer the questions of their batches, and the run is
made of all answers, byte for byte. ``Stage`` is for a pipeline of one's own: ``Dataset.map_batches`` takes it with a pool
of actors, and a batch becomes its rows of scores.

A worker that dies is begun again by Ray, and so is the batch that it had; answers do not depend on who gave them, nor on
what else was in the batch.
"""

import os
import pathlib
import tempfile

from . import _functions, _probity
from ._errors import told
from ._model import Model, pairs

#: What the answers of a batch are called among the columns of what a worker returns.
_ANSWERS = "answers"


class Stage:
    """One method as a stage of a data set: ``dataset.map_batches(Stage, fn_constructor_kwargs=…, concurrency=2)``.

    The model is loaded once for each actor. A batch becomes the rows of its table ``scores``. What a method computes over
    all samples of a run (the debiasing of ``compare``) it computes over the batch here; ``judge`` does it over all.

    Parameters
    ----------
    method
        A method's name: ``compare``, ``checklist`` …
    table
        The table that a batch becomes.
    **options
        Those of the method's function; ``map`` has to name the samples' ids.

    Examples
    --------
    ::

        scores = dataset.map_batches(
            probity.ray.Stage, batch_format="pyarrow", batch_size=64, concurrency=2,
            fn_constructor_kwargs={"method": "checklist", "model": "qwen2.5-coder-0.5b-instruct",
                                   "attribute": "coherence", "map": {"id": "key", "context": "doc", "candidate": "text"}},
        )
    """

    def __init__(self, method, table="scores", **options):
        self.method, self.table = _method(method), table
        _with_ids(options)
        loading = {option["field"] for option in _probity.model_options()}
        of_model = {field: value for field, value in options.items() if field in loading and value is not None}
        self.options = {field: value for field, value in options.items() if field not in loading}
        if of_model:
            of_model["model"] = os.fspath(of_model.get("model", ""))
            self.options["model"] = Model.load(progress=False, **of_model)

    def __call__(self, batch):
        import pyarrow

        with tempfile.TemporaryDirectory(prefix="probity-ray-") as folder:
            run = self._run(batch, folder)
            return pyarrow.table(run.tables[self.table])

    def _run(self, batch, folder):
        options = {**self.options, "out": os.path.join(folder, "run"), "progress": False}
        return self.method(batch, **options)


class _Answers(Stage):
    """The same, with the batch's answers in the place of its scores."""

    def __call__(self, batch):
        import pyarrow

        with tempfile.TemporaryDirectory(prefix="probity-ray-") as folder:
            run = self._run(batch, folder)
            return pyarrow.table({_ANSWERS: [(run.path / "answers.sqlite").read_bytes()]})


def judge(method, dataset, *, out, concurrency=2, batch_size=64, num_cpus=None, num_gpus=None, **options):
    """The run of a method over a data set of Ray, judged by a pool of workers; a :class:`probity.Run` in ``out``.

    The driver needs the model's files too: they are hashed for the manifest. It computes nothing that a worker has
    answered.

    Parameters
    ----------
    method
        A method's name that asks a model.
    dataset
        A data set of Ray; its rows are samples, which ``map`` explains.
    out
        The run's folder on the driver's machine.
    concurrency
        How many workers there are; each holds the model.
    batch_size
        How many samples a worker takes at a time: what is lost where one dies.
    num_cpus, num_gpus
        What each worker needs, as Ray has it.
    **options
        Those of the method's function.
    """
    function = _method(method)
    _with_ids(options)
    resources = {name: value for name, value in [("num_cpus", num_cpus), ("num_gpus", num_gpus)] if value is not None}
    if num_cpus is not None:
        # Without a number of threads a worker would take all processors. Of a key given twice the last value counts.
        if "threads" not in options:
            options["compute"] = [f"threads={max(1, int(num_cpus))}", *pairs(options.get("compute", []))]
    dataset = dataset.materialize()
    parts = dataset.map_batches(
        _Answers, fn_constructor_kwargs={"method": method, **options}, batch_format="pyarrow", batch_size=batch_size,
        concurrency=concurrency, **resources,
    )
    with tempfile.TemporaryDirectory(prefix="probity-ray-") as folder:
        files = []
        for number, row in enumerate(parts.iter_rows()):
            file = pathlib.Path(folder, f"{number}.sqlite")
            file.write_bytes(row[_ANSWERS])
            files.append(file)
        cache = pathlib.Path(folder, "cache")
        _probity.gather_answers(files, cache)
        samples = _rows(dataset)
        return function(samples, **{**options, "out": out, "cache": cache})


def _rows(dataset):
    """The data set as one stream of Arrow."""
    import pyarrow

    batches = dataset.iter_batches(batch_format="pyarrow", batch_size=8192)
    tables = [pyarrow.table(batch) for batch in batches]
    if not tables:
        raise told("ray.Dataset has no rows", "give one row at least: a context with candidates")
    return pyarrow.concat_tables(tables, promote_options="default")


def _method(name):
    functions = {kind["name"]: kind for kind in _probity.kinds() if kind["model"] and kind["samples"]}
    name = name.replace("_", "-")
    if name not in functions:
        raise ValueError(f"there is no method {name!r} that asks a model about samples; there are {', '.join(functions)}")
    return _functions._function(functions[name])


def _with_ids(options):
    mapping = options.get("map")
    if mapping is None:
        return
    fields = mapping if isinstance(mapping, dict) else [str(entry).partition("=")[0] for entry in mapping]
    if "id" not in fields:
        raise ValueError("map: rows of several batches need ids of their own: map={'id': COLUMN, …}")
