"""Functions created from the definitions of methods, with the names, defaults, help and errors of the command line."""

import inspect
import keyword
import os
import tempfile
from typing import Any

from . import _frames, _probity
from ._errors import ProbityError, better, in_python
from ._model import Model, pairs
from ._progress import observer_of
from ._run import Run

#: The first parameter, which may be positional.
_DATA = "data"


def all_functions():
    """A function for every kind of run."""
    return [_function(kind) for kind in _probity.kinds()]


def _function(kind):
    options = {_named(option): option for option in kind["options"]}
    has_data = _DATA in options

    def function(*args, **given):
        # Keys of `compute` are also accepted as options.
        keys = {name: given.pop(name) for name in list(given) if name in options and options[name]["key"]}
        try:
            bound = signature.bind(*args, **given)
        except TypeError as error:
            raise better(function.__name__, [*options, "progress"], given, error) from None
        arguments = dict(bound.arguments) | keys
        progress = arguments.pop("progress", True)
        data = arguments.pop(_DATA, None)
        return _run(kind, options, data, arguments, progress)

    signature = _signature(options, has_data)
    function.__name__ = function.__qualname__ = kind["name"].replace("-", "_")
    function.__module__ = "probity"
    function.__signature__ = signature
    function.__doc__ = _doc(kind, options, has_data)
    return function


def _named(option):
    """The name of the parameter: Python keywords get a trailing underscore."""
    return option["field"] + "_" * keyword.iskeyword(option["field"])


def _signature(options, has_data):
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    parameters = []
    if has_data:
        is_needed = options[_DATA]["required"]
        parameters.append(
            inspect.Parameter(
                _DATA,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if is_needed else None,
                annotation=Any,
            )
        )
    others = [option for name, option in options.items() if name != _DATA and not option["key"]]
    for option in sorted(others, key=lambda option: not option["required"]):
        default = inspect.Parameter.empty if _is_needed(option) else option["default"]
        parameters.append(inspect.Parameter(_named(option), keyword_only, default=default, annotation=annotation(option)))
    parameters.append(inspect.Parameter("progress", keyword_only, default=True, annotation=bool))
    return inspect.Signature(parameters, return_annotation=Run)


def _is_needed(option):
    # The user's configuration may set a default model.
    return option["required"] and option["field"] != "model"


def annotation(option):
    """The type of an option's value, as text."""
    one = {"flag": "bool", "integer": "int", "number": "float"}.get(option["kind"], "str")
    if option["kind"] == "choice":
        one = "Literal[" + ", ".join(repr(choice) for choice in option["choices"]) + "]"
    if option["field"] == "model":
        one = "str | os.PathLike[str] | Model"
    elif option["field"] == "compute":
        return "_Compute | Sequence[str]"
    elif option["field"] == "map":
        return "dict[str, str | Sequence[str]] | Sequence[str]"
    elif "FILE" in option["form"]:
        one = "str | os.PathLike[str] | Run | Table | Frame"
    elif "DIR" in option["form"]:
        one = "str | os.PathLike[str] | Run"
    if option["list"]:
        one = f"{one} | Sequence[{one}]"
    is_open = option["default"] is None and not _is_needed(option)
    return f"{one} | None" if is_open else one


def _doc(kind, options, has_data):
    lines = [kind["about"] + "."]
    rest = kind["long_about"].removeprefix(kind["about"]).lstrip(".").strip()
    if rest:
        lines += ["", rest]
    lines += ["", "Parameters", "----------"]
    if has_data:
        lines += [
            "data",
            "    The samples: a DataFrame of pandas or polars, a Hugging Face data set, an object with the Arrow C",
            "    stream interface, dicts, or the path of a file. `map` assigns columns to fields.",
        ]
    for field, option in options.items():
        if field != _DATA and not option["key"]:
            lines += [field] + ["    " + line if line else "" for line in option["help"].split("\n")]
    lines += ["progress", "    Whether progress and messages are shown.", "", "Returns", "-------", "Run"]
    example = _example(kind, options, has_data)
    return "\n".join(lines + ["", "Examples", "--------", *example]) + "\n"


#: Values of required options in examples.
_EXAMPLES = {"attribute": "quality", "model": "smollm2-135m-instruct", "metric": "levenshtein-source", "target": "compare"}

#: Further options in examples.
_BESIDES = {
    "attack": {"attack": ["verified"]},
    "checklist": {"attribute": "coherence", "no_gold": True},
    "judge": {"verdict": "label"},
    "learn": {"attribute": "quality"},
    "reviseval": {"mode": "pointwise", "scale": "1..5", "attribute": "quality", "revision_tokens": 40, "limit": 1},
    "revision": {"model": "smollm2-135m-instruct", "limit": 1},
    "reward": {"model": "./reward-model"},
}

#: Examples of methods with other input than samples with candidates.
_OWN_EXAMPLES = {
    "learned": [
        ">>> learnt = probity.learn(",
        "...     probity.demo_rows(), attribute='quality', model='smollm2-135m-instruct', progress=False)",
        ">>> run = probity.learned(",
        "...     probity.demo_rows(), head=learnt.head, model='smollm2-135m-instruct', progress=False)",
    ],
    "meta": [
        ">>> scored = probity.metrics(probity.demo_rows(), metric='levenshtein-source', progress=False)",
        ">>> run = probity.meta(scores=scored, progress=False)",
    ],
    "metacritique": [
        ">>> rows = [{",
        "...     'context': '', 'texts': {'question': 'Why is the sky blue?', 'answer': 'It mirrors the sea.'},",
        "...     'candidates': [{'id': 'a', 'text': 'The answer is wrong: air scatters blue light most.'}],",
        "...     'references': ['The answer is wrong: it is scattering.'], 'id': '1'}]",
        ">>> run = probity.metacritique(rows, model='smollm2-135m-instruct', progress=False)",
    ],
    "refeval": [
        ">>> documents = [{'id': 'ferry', 'text': 'The island bought an electric ferry. It crosses every hour.'}]",
        ">>> run = probity.refeval(documents=documents, model='smollm2-135m-instruct', evaluated='smollm2-135m-instruct',",
        "...     progress=False)",
    ],
}


def _example(kind, options, has_data):
    name = kind["name"].replace("-", "_")
    needed = [option["field"] for option in options.values() if option["required"]]
    given = {field: _EXAMPLES[field] for field in needed if field in _EXAMPLES} | {"limit": 2} | _BESIDES.get(kind["name"], {})
    given = ", ".join(f"{field}={value!r}" for field, value in given.items())
    own = [f">>> run = probity.{name}(probity.demo_rows(), {given}, progress=False)"]
    lines = _OWN_EXAMPLES.get(kind["name"], own)
    return [">>> import probity", *lines, ">>> run.summary['method']", repr(kind["name"])]


def _run(kind, options, data, arguments, progress):
    if arguments.get("resume") and not arguments.get("out"):
        raise TypeError(f"{kind['name']}: resume requires the folder of the run: out='DIR'")
    model = arguments.get("model")
    if isinstance(model, Model):
        arguments = _of_loaded(kind, model, arguments)
    with tempfile.TemporaryDirectory(prefix="probity-") as folder:
        given, frames = {}, {}
        for name, value in arguments.items():
            value = _given(options[name], value, folder, frames)
            if value is not None:
                given[options[name]["field"]] = value
        table = None
        if data is not None:
            given[_DATA], table = _frames.table_of(data, arguments.get("map"), arguments.get("limit"))
        native = model._native if isinstance(model, Model) else None
        with observer_of(progress, kind["name"]) as observer:
            try:
                ended = _probity.run_stage(kind["name"], given, table, native, observer)
            except ProbityError as error:
                raise in_python(error, options, frames) from None
    return Run._of(ended["folder"], ended["result"], ended["ended"])


def _of_loaded(kind, model, arguments):
    loaded = {option["field"] for option in _probity.model_options()}
    both = sorted(field for field in loaded - {"model"} if field in arguments)
    if both:
        names = ", ".join(both)
        raise TypeError(f"{kind['name']}: a loaded model already has these options: pass {names} to Model.load instead")
    return {**arguments, **model._native.given}


def _given(option, value, folder, frames):
    """An option's value in the form of the command line."""
    if value is None:
        return None
    if option["field"] == "map" and isinstance(value, dict):
        value = [f"{field}={column}" for field, columns in value.items() for column in _each(columns)]
    if option["field"] == "compute":
        return pairs(value)
    if option["list"]:
        return [_one(option, item, folder, frames) for item in _each(value)]
    if isinstance(value, (list, tuple)) and "," in option["form"]:
        return ",".join(str(item) for item in value)
    return _one(option, value, folder, frames)


def _each(value):
    return list(value) if isinstance(value, (list, tuple)) and not _frames.is_rows(value) else [value]


def _one(option, value, folder, frames):
    if isinstance(value, Run):
        if value.path is None:
            raise TypeError(f"{option['field']}: this run has no folder")
        # The gold scores are in the run's samples.
        return str(value.path / "samples.jsonl") if option["field"] == "gold" else str(value.path)
    if isinstance(value, _probity.Table):
        return str(value.path)
    if "FILE" in option["form"] and _frames.is_frame(value):
        return _frames.written(value, option["field"], folder, frames)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    # Sizes and similar options are texts for the command line and may be numbers here.
    if option["kind"] in ("text", "choice") and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return value
