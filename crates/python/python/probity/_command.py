"""The command ``probity``."""

import pathlib
import signal
import sys

from . import _probity


def main():
    """Runs the command line of the process."""
    # The command handles Ctrl-C itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_probity.command([_called(), *sys.argv[1:]]))


def _called():
    """The script that calls this, because generated scripts cannot call the bare interpreter."""
    called = pathlib.Path(sys.argv[0]).absolute()
    script = pathlib.Path(sys.executable).with_name("probity") if called.name == "__main__.py" else called
    return str(script) if script.is_file() else "probity"


if __name__ == "__main__":
    main()
