"""Judge generated text with language models on your own machine.

Each method of probity is a function here, with the options of its command::

    import pandas, probity

    frame = pandas.DataFrame({"doc": [...], "a": [...], "b": [...]})
    run = probity.compare(
        frame, model="qwen2.5-coder-1.5b-instruct", attribute="coherence",
        map={"context": "doc", "candidate": ["a", "b"]},
    )
    run                 # the verdict, and how far to trust it
    run.scores          # a table: pandas.DataFrame(run.scores), polars.DataFrame(run.scores) …
    run.report("report.html")

The package does not use the network. A model is a known name that was downloaded before (``probity model get NAME``), a
file, or a folder. ``Model.load`` keeps a model in memory between calls.
"""

from . import _functions
from ._demo import demo_rows
from ._model import Model
from ._probity import ProbityError, Table, version as _version
from ._run import Run, gate, open_run, report

__version__ = _version()
__all__ = ["Model", "ProbityError", "Run", "Table", "demo_rows", "gate", "open_run", "report"]

# Registered methods appear here automatically.
for _function in _functions.all_functions():
    globals()[_function.__name__] = _function
    __all__.append(_function.__name__)
del _function
