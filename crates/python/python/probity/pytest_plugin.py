"""A run held against a baseline in a test: the fixture ``assert_not_worse``.

::

    def test_summaries_are_not_worse(assert_not_worse):
        run = probity.gpt_score("summaries.jsonl", model="smollm2-135m-instruct", attribute="coherence", out="now")
        assert_not_worse(run, "baseline", tolerance=0.02)

What is worse, or has lost scores, fails the test with the difference and its interval; what is undecided, or within the
judge's own noise, is told at the end and fails with ``strict=True``. ``probity help gate`` tells what the outcomes mean.
"""

import pytest

from ._errors import ProbityError
from ._run import gate

_LINES = pytest.StashKey[list]()


def assert_not_worse(run, baseline=None, *, strict=False, **options):
    """Fails where a run is worse than a baseline, or one of its candidates than another; what was said of each
    attribute.

    Parameters
    ----------
    run, baseline, **options
        As ``probity.gate`` takes them: ``candidates``, ``attribute``, ``tolerance``, ``minimum_effect``,
        ``allow_unlike``, ``allow_missing``.
    strict
        Whether what is undecided, or noise, fails too, and a run that calls its judge unreliable.

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
    """What is said of an attribute, on one line."""
    interval = one.get("interval")
    within = f" [{interval['low']:.3f}, {interval['high']:.3f}]" if interval else ""
    wanted = one.get("items_to_decide")
    wanted = f"; about {wanted:,} items would decide it" if wanted else ""
    missing = f"; {one['missing']:,} texts have lost their score" if one["missing"] else ""
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
    """Says what was held against what: also what is undecided, which fails no test."""
    lines = terminalreporter.config.stash.get(_LINES, [])
    if lines:
        terminalreporter.section("probity gate")
        for told in lines:
            terminalreporter.line(told)
