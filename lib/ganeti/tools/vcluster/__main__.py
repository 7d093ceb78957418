"""``python -m ganeti.tools.vcluster``."""

import sys

from ganeti.tools.vcluster.command import main

sys.exit(main())
