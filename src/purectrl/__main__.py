"""The program `purectrl`, also `python -m purectrl`: handles signals first, then imports the rest."""

import sys

from purectrl import signals


def main() -> int:
    """Runs the command line and returns the exit status."""
    signals.install()
    from purectrl.cli import main as command_line

    status = command_line()
    signals.finish(status)
    return status


if __name__ == "__main__":
    sys.exit(main())
