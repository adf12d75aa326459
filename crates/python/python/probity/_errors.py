"""Errors with hints."""

import difflib
import re

from ._probity import ProbityError


def told(what, *hints):
    """An error with the text ``what``, followed by the hints."""
    lines = [f"hint: {hint}" for hint in hints]
    error = ProbityError("\n".join([f"{what}\n", *lines]) if lines else what)
    error.hint = "\n".join(hints) or None
    return error


def in_python(error, options, frames=None):
    """The error with Python names instead of command-line options. ``frames`` maps paths of temporary files to the names
    of the tables in them."""
    text = _named(str(error), options)
    for path, name in (frames or {}).items():
        if path in text:
            # Rows are counted from 0, lines of files from 1.
            text = re.sub(r"\bline (\d+)\b", lambda found: f"index {int(found[1]) - 1}", text).replace(path, name)
    text, _, hint = text.partition("\n\nhint: ")
    return told(text, *(hint.split("\nhint: ") if hint else []))


def _named(text, options):
    def named(option):
        name = option[1].replace("-", "_")
        return next((known for known in (name, f"{name}_") if known in options), option[0])

    return re.sub(r"--([a-z][a-z0-9-]*)", named, text)


def better(name, known, given, error):
    """The error of an invalid call, with the nearest option for a misspelt one."""
    for field in given:
        if field not in known:
            near = difflib.get_close_matches(field, known, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            return TypeError(f"{name}() has no option {field!r}{meant}")
    return TypeError(f"{name}(): {error}")
