"""Start of the program: ``python -m devel.completion DIRECTORY``."""

import sys

from devel.completion import main

sys.exit(main())
