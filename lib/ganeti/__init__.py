"""A cluster manager for virtual machines.

The package is laid out in rooms, listed bottom-up in ``doc/architecture.rst``; a room imports only
from the rooms below it. Nothing is imported here: the ``gnt-*`` commands have 100 ms from start to
first request, and every one of them passes through this file.
"""

VERSION = (3, 1, 0)
__version__ = "3.1.0"
