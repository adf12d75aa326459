"""A process that was forked from one that has computed: its threads stayed behind, and waiting for them would never end."""

import os

from ._errors import told

_state = {"computed": False, "forked": False}


def computes():
    """Called before anything is computed."""
    if _state["forked"]:
        raise told(
            "this process was forked from one that has computed with probity, whose threads it has not",
            "start it another way: multiprocessing.get_context('spawn')",
        )
    _state["computed"] = True


def _in_child():
    _state["forked"] = _state["computed"]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
