"""``python -m ganeti.vcluster``."""

import sys

from ganeti.vcluster.command import main

sys.exit(main())
