"""Judging on many machines with Ray Data.

``judge`` creates a run that is byte-identical to that of one machine: workers answer the queries of their batches, and the
run is computed from all answers. ``Stage`` is for custom pipelines: pass it to ``Dataset.map_batches`` with a pool of
actors, and each batch becomes its rows of scores.

If a worker dies, Ray restarts it with its batch. Answers do not depend on the worker or on the other samples in the batch.
"""

import os
import pathlib
import tempfile

from . import _functions, _probity
from ._errors import told
from ._model import Model, pairs

#: The column with the answers of a batch.
_ANSWERS = "answers"


class Stage:
    """A method as a stage of a data set: ``dataset.map_batches(Stage, fn_constructor_kwargs=…, concurrency=2)``.

    Each actor loads the model once. A batch becomes the rows of its table ``scores``. Computations over all samples of a
    run, such as the debiasing of ``compare``, use only the batch; ``judge`` uses all samples.

    Parameters
    ----------
    method
        The name of a method, such as ``compare`` or ``checklist``.
    table
        The table to return for a batch.
    **options
        The options of the method's function; ``map`` must name the samples' ids.

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
    """Returns the batch's answers instead of its scores."""

    def __call__(self, batch):
        import pyarrow

        with tempfile.TemporaryDirectory(prefix="probity-ray-") as folder:
            run = self._run(batch, folder)
            return pyarrow.table({_ANSWERS: [(run.path / "answers.sqlite").read_bytes()]})


def judge(method, dataset, *, out, concurrency=2, batch_size=64, num_cpus=None, num_gpus=None, **options):
    """Runs a method over a Ray data set with a pool of workers; returns the :class:`probity.Run` in ``out``.

    The driver also needs the model's files, to hash them for the manifest. It reuses the workers' answers.

    Parameters
    ----------
    method
        The name of a method that needs a model.
    dataset
        A Ray data set. Its rows are samples; ``map`` assigns columns to fields.
    out
        The run's folder on the driver's machine.
    concurrency
        The number of workers; each loads the model.
    batch_size
        The number of samples per batch, which is recomputed if a worker dies.
    num_cpus, num_gpus
        Ray's resources for each worker.
    **options
        The options of the method's function.
    """
    function = _method(method)
    _with_ids(options)
    resources = {name: value for name, value in [("num_cpus", num_cpus), ("num_gpus", num_gpus)] if value is not None}
    if num_cpus is not None:
        # By default a worker would use all processors. If a key is repeated, the last value counts.
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
    """The data set as one Arrow table."""
    import pyarrow

    batches = dataset.iter_batches(batch_format="pyarrow", batch_size=8192)
    tables = [pyarrow.table(batch) for batch in batches]
    if not tables:
        raise told("ray.Dataset has no rows", "add at least one row: a context with candidates")
    return pyarrow.concat_tables(tables, promote_options="default")


def _method(name):
    functions = {kind["name"]: kind for kind in _probity.kinds() if kind["model"] and kind["samples"]}
    name = name.replace("_", "-")
    if name not in functions:
        raise ValueError(f"no method {name!r} queries a model about samples; known are {', '.join(functions)}")
    return _functions._function(functions[name])


def _with_ids(options):
    mapping = options.get("map")
    if mapping is None:
        return
    fields = mapping if isinstance(mapping, dict) else [str(entry).partition("=")[0] for entry in mapping]
    if "id" not in fields:
        raise ValueError("map: rows of several batches need unique ids: map={'id': COLUMN, …}")
