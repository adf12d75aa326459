"""Detects forks of a process that has computed: threads are not forked, so waiting for them would never end."""

import os

from ._errors import told

_state = {"computed": False, "forked": False}


def computes():
    """Must be called before computing; fails in a forked process."""
    if _state["forked"]:
        raise told(
            "this process was forked after probity had computed, and has none of its threads",
            "start the process with multiprocessing.get_context('spawn')",
        )
    _state["computed"] = True


def _in_child():
    _state["forked"] = _state["computed"]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
