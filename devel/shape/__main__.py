"""Start of the program: ``python -m devel.shape``."""

import sys

from devel.shape.program import main

sys.exit(main())
