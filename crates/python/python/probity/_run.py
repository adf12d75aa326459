"""Runs: what they say, their tables, and what can be made of them."""

import functools
import html
import inspect
import json
import os
import pathlib
import tempfile
import warnings

from . import _probity
from ._errors import ProbityError, better, in_python, told
from ._frames import is_frame, written


def _named_options(function):
    """Tells what a misspelt option may have meant."""

    @functools.wraps(function)
    def called(*args, **given):
        try:
            inspect.signature(function).bind(*args, **given)
        except TypeError as error:
            raise better(function.__name__, list(inspect.signature(function).parameters), given, error) from None
        return function(*args, **given)

    return called


class Run:
    """A run: ``summary`` is what it found, ``scores`` and the like are its tables.

    Shown in a notebook or printed, it says its verdict first and then how far to trust it.

    Examples
    --------
    >>> import probity
    >>> run = probity.metrics(probity.demo_rows(), metric="levenshtein-source", progress=False)
    >>> run.scores
    <Table scores: 40 rows; item, candidate, index, metric, score, outcome>
    >>> next(iter(run.scores))["item"]
    'ferry'
    """

    def __init__(self, path):
        path = pathlib.Path(path)
        self.path = path
        summary = path / "summary.json"
        self._summary = json.loads(summary.read_text("utf-8")) if summary.is_file() else None
        if not (path / "manifest.json").is_file():
            raise told(f"{path} is no run: it has no manifest.json", "give the folder that a run has left")
        #: ``finished``, ``interrupted``, ``planned`` by ``dry_run`` …
        self.status = _status(self.manifest)

    @classmethod
    def _of(cls, folder, result, status):
        run = cls.__new__(cls) if folder is None else cls(folder)
        if folder is None:
            run.path, run._summary, run.status = None, None, status
        if result is not None and (folder is None or run._summary is None):
            run._summary = result
        return run

    @property
    def summary(self):
        """What it found, as ``summary.json`` has it; of a dry run what it would cost."""
        return self._summary

    @property
    def manifest(self):
        """What it was made with: arguments, model, seeds, machine."""
        return json.loads((self._folder() / "manifest.json").read_text("utf-8"))

    @property
    def verdict(self):
        """What it says of each attribute, and how far to trust it."""
        return (self._summary or {}).get("verdict", [])

    @property
    def tables(self):
        """Its tables by name."""
        if self.path is None:
            return {}
        files = sorted(self.path.glob("*.jsonl"))
        return {file.stem: _probity.open_table(file) for file in files}

    def __getattr__(self, name):
        # Asked for only where there is no attribute of that name: tables are called by theirs.
        if not name.startswith("_") and self.__dict__.get("path") is not None:
            file = self.path / f"{name}.jsonl"
            if file.is_file():
                return _probity.open_table(file)
            raise AttributeError(f"this run has no table {name!r}; it has {', '.join(self._names()) or 'none'}")
        raise AttributeError(name)

    def __dir__(self):
        return [*super().__dir__(), *self._names()]

    def _names(self):
        return [] if self.path is None else sorted(file.stem for file in self.path.glob("*.jsonl"))

    def report(self, html=None, **options):
        """Writes the report of this run as one HTML file that needs nothing else; where it lies."""
        return report([self], html, **options)

    def _folder(self):
        if self.path is None:
            raise told("this run has left no folder", "give one: out='DIR'")
        return self.path

    def __repr__(self):
        where = "" if self.path is None else f" in {self.path}"
        lines = [f"<Run{where}: {self._what()}>"]
        for part in (self._summary or {}).get("parts", []):
            lines.append(f"{part['questions']:,} questions to {part['model']}, about {part['seconds']:.0f} s")
        for one in self.verdict:
            about = f"{one['about']}: " if one.get("about") else ""
            lines += [f"{about}{one['says']}", *filter(None, [one.get("agreement")]),
                      f"{str(one['trust']).upper()}: {one['because']}"]
        lines += self._unscored()
        return _probity.visible("\n".join(lines))

    def _unscored(self):
        """How many samples came to which outcome, where some are without a score."""
        outcomes = (self._summary or {}).get("outcomes") or {}
        found = ", ".join(f"{count:,} {name}" for name, count in outcomes.items() if count)
        return [f"Outcomes: {found}"] if any(name != "scored" and count for name, count in outcomes.items()) else []

    def _what(self):
        """The method, or what became of it."""
        method = (self._summary or {}).get("method") or (self.manifest["command"] if self.path else "")
        return method if self.status == "finished" else f"{method} {self.status}".strip()

    def _repr_html_(self):
        parts = []
        for one in self.verdict:
            about = f"{one['about']}: " if one.get("about") else ""
            agreement = f"{_shown(one['agreement'])}<br>" if one.get("agreement") else ""
            parts.append(f"<p><b>{_shown(about + one['says'])}</b><br>{agreement}"
                         f"{_shown(str(one['trust']).upper())}: {_shown(one['because'])}</p>")
        parts += [f"<p>{_shown(line)}</p>" for line in self._unscored()]
        sections = (self._summary or {}).get("sections", [])
        for section in [section for section in sections if section.get("columns")][:1]:
            parts.append(_table(section))
        where = "" if self.path is None else f" in {self.path}; its tables: {', '.join(self._names())}"
        parts.append(f"<p>{_shown(self._what() + where)}</p>")
        return "".join(parts)


def _shown(text):
    return html.escape(_probity.visible(text))


def _status(manifest):
    status = manifest.get("status")
    return next(iter(status)) if isinstance(status, dict) and status else status or "unknown"


def _table(section):
    def row(cells, tag):
        return "<tr>" + "".join(f"<{tag}>{_shown(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    rows = "".join(row(cells, "td") for cells in section["rows"][:20])
    head = row(section["columns"], "th")
    return f"<p>{_shown(section['title'])}</p><table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def open_run(path):
    """The run in a folder, as any way of asking has left it.

    Examples
    --------
    >>> import probity
    >>> run = probity.metrics(probity.demo_rows(), metric="levenshtein-source", progress=False)
    >>> probity.open_run(run.path).summary == run.summary
    True
    """
    return Run(path)


@_named_options
def report(runs, html=None, *, title=None, samples=None):
    """Writes the report of one run or several, side by side, as one HTML file; where it lies.

    Parameters
    ----------
    runs
        A run, its folder, or a list of them; of several the first is the one that others are held against.
    html
        The file; ``report.html`` in the folder of the first run where it is left out.
    title
        What stands above it.
    samples
        How many samples are shown with their texts.

    Examples
    --------
    >>> import probity
    >>> run = probity.metrics(probity.demo_rows(), metric="levenshtein-source", progress=False)
    >>> probity.report(run, "runs/report.html").name
    'report.html'
    """
    runs = [runs] if isinstance(runs, (Run, str, os.PathLike)) else list(runs)
    folders = [run._folder() if isinstance(run, Run) else pathlib.Path(run) for run in runs]
    if not folders:
        raise told("there is no run to report on", "give one run at least")
    html = pathlib.Path(html) if html is not None else folders[0] / "report.html"
    _probity.report(folders, html, title, samples)
    return html


class Gated(list):
    """What was said of each attribute or metric, a dict each; ``passed`` is the verdict, ``caveats`` say why it may say
    less than it seems to."""

    def __init__(self, gated, strict):
        super().__init__(gated["attributes"])
        self.caveats = gated["caveats"]
        fails = {"missing", "worse", "undecided", "noise"} if strict else {"missing", "worse"}
        is_distrusted = strict and gated["unreliable"]
        self.passed = not is_distrusted and not any(one["outcome"] in fails for one in self)


@_named_options
def gate(
    run,
    baseline=None,
    *,
    candidates=None,
    attribute=(),
    tolerance=0.0,
    minimum_effect=0.0,
    strict=False,
    allow_unlike=False,
    allow_missing=False,
):
    """Whether a run is worse than a baseline: a list with a dict for each attribute, with ``outcome`` (missing, worse,
    better, same, undecided, noise), the difference and its interval. Its ``passed`` is whether a build should pass; why
    that may say less than it seems to is in ``caveats``, and a warning.

    Parameters
    ----------
    run, baseline
        Runs, their folders, or tables of scores (files, tables of runs, frames), of the same items.
    candidates
        In the place of a baseline: two candidates of the run, the new one and the old one.
    attribute
        Only these attributes or metrics.
    tolerance
        A loss up to this is none, on the scale of the scores.
    minimum_effect
        A gain up to this is none.
    strict
        Whether what is undecided, or noise, fails too, and a run that calls its judge unreliable.
    allow_unlike
        Whether runs are held against each other that another model or precision made, whose items are about other texts,
        or that are not at their end.
    allow_missing
        Whether texts that have lost their score fail nothing.

    Examples
    --------
    >>> import probity
    >>> run = probity.metrics(probity.demo_rows(), metric="levenshtein-source", progress=False)
    >>> gated = probity.gate(run, run)
    >>> gated.passed, [one["outcome"] for one in gated]
    (True, ['same', 'same'])
    """
    attribute = [attribute] if isinstance(attribute, str) else list(attribute)
    if isinstance(candidates, str):
        candidates = candidates.split(",")
    if candidates is not None:
        candidates = tuple(candidates)
        if len(candidates) != 2:
            raise TypeError("gate(): candidates are two ids, the new one and the old one: ('new', 'old')")
    with tempfile.TemporaryDirectory(prefix="probity-") as folder:
        frames = {}
        run = _place(run, "run", folder, frames)
        baseline = None if baseline is None else _place(baseline, "baseline", folder, frames)
        bounds, allowed = (tolerance, minimum_effect), (allow_unlike, allow_missing)
        try:
            gated = _probity.gate(run, baseline, candidates, attribute, bounds, allowed)
        except ProbityError as error:
            known = list(inspect.signature(gate).parameters)
            raise in_python(error, known, frames) from None
    for caveat in gated["caveats"]:
        warnings.warn(caveat, stacklevel=3)
    return Gated(gated, strict)


def _place(run, name, folder, frames):
    """Where a run, or a table of scores, lies."""
    if isinstance(run, Run):
        return run._folder()
    if isinstance(run, _probity.Table):
        return run.path
    if is_frame(run):
        return pathlib.Path(written(run, name, folder, frames))
    return pathlib.Path(run)
