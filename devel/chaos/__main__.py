"""``python -m devel.chaos``."""

import os
import sys

from devel.chaos.program import main

if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
