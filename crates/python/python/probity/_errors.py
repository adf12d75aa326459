"""Errors with hints."""

import contextlib
import re

from ._probity import ProbityError


def told(what, *hints):
    """An error whose text is ``what`` with the hints behind it."""
    lines = [f"hint: {hint}" for hint in hints]
    error = ProbityError("\n".join([f"{what}\n", *lines]) if lines else what)
    error.hint = "\n".join(hints) or None
    return error


@contextlib.contextmanager
def in_python(options):
    """Errors name options as they are called here, and not as they are typed."""
    try:
        yield
    except ProbityError as error:
        text, _, hint = _named(str(error), options).partition("\n\nhint: ")
        raise told(text, *(hint.split("\nhint: ") if hint else [])) from None


def _named(text, options):
    def named(option):
        name = option[1].replace("-", "_")
        return next((known for known in (name, f"{name}_") if known in options), option[0])

    return re.sub(r"--([a-z][a-z0-9-]*)", named, text)
