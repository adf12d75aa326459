"""Errors with hints."""

from ._probity import ProbityError


def told(what, *hints):
    """An error whose text is ``what`` with the hints behind it."""
    lines = [f"hint: {hint}" for hint in hints]
    error = ProbityError("\n".join([f"{what}\n", *lines]) if lines else what)
    error.hint = "\n".join(hints) or None
    return error
