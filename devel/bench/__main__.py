"""Start of the program: ``python -m devel.bench``."""

import sys

from devel.bench.program import main

sys.exit(main())
