"""Runs with their verdicts, tables and reports."""

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
    """Suggests the nearest name for a misspelt option."""

    @functools.wraps(function)
    def called(*args, **given):
        try:
            inspect.signature(function).bind(*args, **given)
        except TypeError as error:
            raise better(function.__name__, list(inspect.signature(function).parameters), given, error) from None
        return function(*args, **given)

    return called


class Run:
    """A run. ``summary`` has its results; its tables are attributes such as ``scores``.

    Printed or shown in a notebook, it starts with its verdict and how far to trust it.

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
            raise told(f"{path} is not a run: manifest.json is missing", "pass the folder of a run")
        #: ``finished``, ``interrupted``, or ``planned`` after ``dry_run``.
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
        """The content of ``summary.json``; for a dry run the estimated cost."""
        return self._summary

    @property
    def manifest(self):
        """The arguments, model, seeds and machine."""
        return json.loads((self._folder() / "manifest.json").read_text("utf-8"))

    @property
    def verdict(self):
        """The conclusions for each attribute, and how far to trust them."""
        return (self._summary or {}).get("verdict", [])

    @property
    def tables(self):
        """The tables by name."""
        if self.path is None:
            return {}
        files = sorted(self.path.glob("*.jsonl"))
        return {file.stem: _probity.open_table(file) for file in files}

    def __getattr__(self, name):
        # Called only for unknown attributes, which may be names of tables.
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
        """Writes a report of this run as a self-contained HTML file; returns its path."""
        return report([self], html, **options)

    def _folder(self):
        if self.path is None:
            raise told("this run has no folder", "set one: out='DIR'")
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
        """The number of samples by outcome, if some have no score."""
        outcomes = (self._summary or {}).get("outcomes") or {}
        found = ", ".join(f"{count:,} {name}" for name, count in outcomes.items() if count)
        return [f"Outcomes: {found}"] if any(name != "scored" and count for name, count in outcomes.items()) else []

    def _what(self):
        """The method, and the status of an unfinished run."""
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
    """Opens the run in a folder, whether it was made with Python or the command.

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
    """Writes a report of one or more runs, side by side, as one HTML file; returns its path.

    Parameters
    ----------
    runs
        A run, its folder, or a list of them. The others are compared with the first.
    html
        The file; by default ``report.html`` in the folder of the first run.
    title
        The title of the page.
    samples
        The number of samples to show with their texts.

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
        raise told("there is no run to report on", "pass at least one run")
    html = pathlib.Path(html) if html is not None else folders[0] / "report.html"
    _probity.report(folders, html, title, samples)
    return html


class Gated(list):
    """A dict for each attribute or metric. ``passed`` is the verdict, ``caveats`` are its limitations."""

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
    """Compares a run with a baseline.

    Returns a list with a dict for each attribute: its ``outcome`` (missing, worse, better, same, undecided, noise), the
    difference and its interval. The list's ``passed`` says whether a build should pass. Its ``caveats`` are limitations
    of the verdict, which are also warnings.

    Parameters
    ----------
    run, baseline
        Runs, their folders, or tables of scores (files, tables of runs, frames), of the same items.
    candidates
        Instead of a baseline: two candidates of the run, the new one and the old one.
    attribute
        Only these attributes or metrics.
    tolerance
        Losses up to this size are ignored, on the scale of the scores.
    minimum_effect
        Gains up to this size are ignored.
    strict
        Also fail if an outcome is undecided or noise, or if a run calls its judge unreliable.
    allow_unlike
        Allow comparing runs with different models, precisions or texts, and unfinished runs.
    allow_missing
        Do not fail if texts lost their score.

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
            raise TypeError("gate(): candidates must be two ids, the new one and the old one: ('new', 'old')")
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
    """The path of a run or of a table of scores."""
    if isinstance(run, Run):
        return run._folder()
    if isinstance(run, _probity.Table):
        return run.path
    if is_frame(run):
        return pathlib.Path(written(run, name, folder, frames))
    return pathlib.Path(run)
