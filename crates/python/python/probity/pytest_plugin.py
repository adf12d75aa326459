"""A run held against a baseline in a test: the fixture ``assert_not_worse``.

::

    def test_summaries_are_not_worse(assert_not_worse):
        run = probity.compare("summaries.jsonl", model="qwen2.5-coder-1.5b-instruct", attribute="coherence", out="now")
        assert_not_worse(run, "baseline", tolerance=0.02)

What is worse fails the test with the difference and its interval; what is undecided, or within the judge's own noise, is
told at the end and fails with ``strict=True``. ``probity help gate`` tells what the outcomes mean.
"""

import pytest

from ._run import gate

_LINES = pytest.StashKey[list]()


def assert_not_worse(
    run,
    baseline=None,
    *,
    candidates=None,
    attribute=(),
    tolerance=0.0,
    minimum_effect=0.0,
    allow_unlike=False,
    strict=False,
):
    """Fails where a run is worse than a baseline, or one of its candidates than another; what was said of each
    attribute.

    Parameters
    ----------
    run, baseline
        Runs, their folders, or tables of scores.
    candidates
        In the place of a baseline: two candidates of the run, the new one and the old one.
    attribute
        Only these attributes or metrics.
    tolerance
        A loss up to this is none.
    minimum_effect
        A gain up to this is none.
    allow_unlike
        Whether runs are held against each other that another method, model or precision made, or that are not at their
        end.
    strict
        Whether what is undecided, or noise, fails too.

    Examples
    --------
    >>> import probity
    >>> from probity.pytest_plugin import assert_not_worse
    >>> run = probity.metrics(probity.demo_rows(), metric="levenshtein-source", progress=False)
    >>> len(assert_not_worse(run, run))
    2
    """
    __tracebackhide__ = True
    gated = gate(
        run,
        baseline,
        candidates=candidates,
        attribute=attribute,
        tolerance=tolerance,
        minimum_effect=minimum_effect,
        allow_unlike=allow_unlike,
    )
    fails = {"worse", "undecided", "noise"} if strict else {"worse"}
    wrong = [one for one in gated if one["outcome"] in fails]
    if wrong:
        pytest.fail("\n".join(map(line, wrong)), pytrace=False)
    return gated


def line(one):
    """What is said of an attribute, on one line."""
    interval = one.get("interval")
    within = f" [{interval['low']:.3f}, {interval['high']:.3f}]" if interval else ""
    wanted = one.get("items_to_decide")
    wanted = f"; about {wanted:,} items would decide it" if wanted else ""
    before, now = one["means"][0], one["means"][1]
    return (f"{one['name']}: {one['outcome']}, {one['difference']:+.3f}{within} over {one['items']:,} items "
            f"({before:.3f} before, {now:.3f} now){wanted}")


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
