"""The command ``probity``."""

import signal
import sys

from . import _probity


def main():
    """Runs the command line that the process was given."""
    # The command has its own way to end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_probity.command(["probity", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
