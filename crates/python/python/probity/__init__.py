"""Judge generated text with language models on your own machine.

Each method of probity is a function here, with the options of its command::

    import pandas, probity

    frame = pandas.DataFrame({"doc": [...], "a": [...], "b": [...]})
    run = probity.compare(
        frame, model="qwen2.5-coder-1.5b-instruct", attribute="coherence",
        map={"context": "doc", "candidate": ["a", "b"]},
    )
    run                 # what it says, and how far to trust it
    run.scores          # a table: pandas.DataFrame(run.scores), polars.DataFrame(run.scores) …
    run.report("report.html")

Nothing goes over the network: a model is a known name that was fetched before (``probity model get NAME``), a file, or a
folder. ``Model.load`` keeps one in memory from one call to the next.
"""

from . import _functions
from ._demo import demo_rows
from ._model import Model
from ._probity import ProbityError, Table, version as _version
from ._run import Run, gate, open_run, report

__version__ = _version()
__all__ = ["Model", "ProbityError", "Run", "Table", "demo_rows", "gate", "open_run", "report"]

# A method that joins the registry is here without another line.
for _function in _functions.all_functions():
    globals()[_function.__name__] = _function
    __all__.append(_function.__name__)
del _function
