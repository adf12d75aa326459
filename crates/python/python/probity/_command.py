"""The command ``probity``."""

import pathlib
import signal
import sys

from . import _probity


def main():
    """Runs the command line that the process was given."""
    # The command has its own way to end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_probity.command([_called(), *sys.argv[1:]]))


def _called():
    """The script that calls this: what is written for others to run must not name the interpreter alone."""
    called = pathlib.Path(sys.argv[0]).absolute()
    script = pathlib.Path(sys.executable).with_name("probity") if called.name == "__main__.py" else called
    return str(script) if script.is_file() else "probity"


if __name__ == "__main__":
    main()
