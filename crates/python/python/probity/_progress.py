"""Shows progress in a terminal or in a notebook cell, or not at all."""

import html
import sys
import time
import warnings

from . import _probity
from ._fork import computes


def observer_of(progress, what):
    """A context manager that shows messages and progress: ``with observer_of(...) as observer``."""
    computes()
    if not progress:
        return _Quiet()
    return _Notebook(what) if _in_notebook() else _Terminal(what)


def _in_notebook():
    # Only a kernel has cells; IPython in a terminal does not.
    shell = sys.modules.get("IPython")
    shell = shell.get_ipython() if shell is not None else None
    return shell is not None and hasattr(shell, "kernel")


class _Observer:
    # Not a generator, so that tracebacks contain only the work.
    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.end()

    def end(self):
        pass


class _Quiet(_Observer):
    """Shows nothing, but turns warnings into Python warnings."""

    def message(self, kind, text):
        if kind == "warning":
            # The line of the caller: the observer, two internal functions and the method are in between.
            warnings.warn(text, stacklevel=4)

    def progress(self, what, done, total, share):
        pass


class _Shown(_Observer):
    def __init__(self, what):
        self.what = what
        self.began = time.monotonic()

    def text(self, what, done, total, share):
        """``compare: 1,200 of 24,000, 5%, about 40 s left``"""
        of = f"{done:,}" if total is None else f"{done:,} of {total:,}"
        part = share if share is not None else (done / total if total else None)
        if part is None:
            return f"{what}: {of}"
        passed = time.monotonic() - self.began
        left = "" if part <= 0 or part >= 1 or passed < 1 else f", about {_seconds(passed * (1 - part) / part)} left"
        return f"{what}: {of}, {100 * part:.0f}%{left}"


def _seconds(seconds):
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class _Terminal(_Shown):
    """Updates a line of a terminal; without a terminal, prints only messages."""

    def __init__(self, what):
        super().__init__(what)
        self.is_terminal = bool(getattr(sys.stderr, "isatty", lambda: False)())
        self.width = 0

    def message(self, kind, text):
        self._clear()
        text = _probity.visible(text)
        print(text if kind == "message" else f"{kind}: {text}".replace("error: error: ", "error: "), file=sys.stderr)

    def progress(self, what, done, total, share):
        if not self.is_terminal:
            return
        text = self.text(what, done, total, share)
        sys.stderr.write("\r" + text.ljust(self.width))
        sys.stderr.flush()
        self.width = len(text)

    def _clear(self):
        if self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            self.width = 0

    def end(self):
        self._clear()
        sys.stderr.flush()


class _Notebook(_Shown):
    """Updates an output of the cell."""

    def __init__(self, what):
        super().__init__(what)
        self.messages = []
        self.line = ""
        self.handle = None

    def message(self, kind, text):
        self.messages.append(text if kind == "message" else f"{kind}: {text}")
        self._show()

    def progress(self, what, done, total, share):
        self.line = self.text(what, done, total, share)
        self._show()

    def _show(self):
        from IPython.display import HTML, display

        lines = [*self.messages, self.line] if self.line else self.messages
        shown = HTML("<pre>" + html.escape("\n".join(lines)) + "</pre>")
        if self.handle is None:
            self.handle = display(shown, display_id=True)
        else:
            self.handle.update(shown)

    def end(self):
        self.line = ""
        if self.handle is not None:
            self._show()
