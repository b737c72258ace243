"""`python -m purectrl` is `purectrl`."""

import sys

from purectrl.cli import main

if __name__ == "__main__":
    sys.exit(main())
