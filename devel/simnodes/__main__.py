"""Serves simulated nodes, or tells them what to do wrong: ``python -m devel.simnodes --help``."""

import sys

from devel.simnodes.program import main

if __name__ == "__main__":
    sys.exit(main())
