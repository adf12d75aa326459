"""The fixture ``assert_not_worse``, which compares a run with a baseline in a test.

::

    def test_summaries_are_not_worse(assert_not_worse):
        run = probity.gpt_score("summaries.jsonl", model="smollm2-135m-instruct", attribute="coherence", out="now")
        assert_not_worse(run, "baseline", tolerance=0.02)

The test fails if an attribute is worse or has lost scores, and shows the difference and its interval. Outcomes that are
undecided, or within the judge's own noise, are reported at the end; with ``strict=True`` they fail the test.
``probity help gate`` explains the outcomes.
"""

import pytest

from ._errors import ProbityError
from ._run import gate

_LINES = pytest.StashKey[list]()


def assert_not_worse(run, baseline=None, *, strict=False, **options):
    """Fails the test if a run is worse than a baseline, or one of its candidates than another. Returns the result of
    ``probity.gate``.

    Parameters
    ----------
    run, baseline, **options
        The arguments of ``probity.gate``: ``candidates``, ``attribute``, ``tolerance``, ``minimum_effect``,
        ``allow_unlike``, ``allow_missing``.
    strict
        Also fail if an outcome is undecided or noise, or if a run calls its judge unreliable.

    Examples
    --------
    >>> import probity
    >>> from probity.pytest_plugin import assert_not_worse
    >>> run = probity.metrics(probity.demo_rows(), metric="levenshtein-source", progress=False)
    >>> len(assert_not_worse(run, run))
    2
    """
    __tracebackhide__ = True
    try:
        gated = gate(run, baseline, strict=strict, **options)
    except ProbityError as error:
        pytest.fail(str(error), pytrace=False)
    if not gated.passed:
        pytest.fail("\n".join([*map(line, gated), *gated.caveats]), pytrace=False)
    return gated


def line(one):
    """The result for an attribute in one line."""
    interval = one.get("interval")
    within = f" [{interval['low']:.3f}, {interval['high']:.3f}]" if interval else ""
    wanted = one.get("items_to_decide")
    wanted = f"; about {wanted:,} items would decide it" if wanted else ""
    missing = f"; {one['missing']:,} texts lost their score" if one["missing"] else ""
    held = "no item has a score in both"
    if one["means"]:
        before, now = one["means"]
        held = f"{one['difference']:+.3f}{within} over {one['items']:,} items ({before:.3f} before, {now:.3f} now)"
    return f"{one['name']}: {one['outcome']}, {held}{missing}{wanted}"


@pytest.fixture(name="assert_not_worse")
def _fixture(request):
    def held(*arguments, **options):
        __tracebackhide__ = True
        lines = request.config.stash.setdefault(_LINES, [])
        gated = assert_not_worse(*arguments, **options)
        lines.extend(f"{request.node.nodeid}: {line(one)}" for one in gated)
        return gated

    return held


def pytest_terminal_summary(terminalreporter):
    """Prints all comparisons, including undecided ones, which fail no test."""
    lines = terminalreporter.config.stash.get(_LINES, [])
    if lines:
        terminalreporter.section("probity gate")
        for told in lines:
            terminalreporter.line(told)
