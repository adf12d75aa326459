"""Example samples."""

import json

from . import _probity


def demo_rows():
    """Five short texts about everyday matters with four summaries each, scored by one person.

    Examples
    --------
    >>> import probity
    >>> rows = probity.demo_rows()
    >>> len(rows), sorted(rows[0])
    (5, ['candidates', 'context', 'id'])
    """
    return [json.loads(line) for line in _probity.demo().splitlines()]
