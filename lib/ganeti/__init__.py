"""A cluster manager for virtual machines.

Its packages are layers, which ``doc/architecture.rst`` lists from the lowest to the highest one; a
package imports only from lower layers. This file imports nothing, because every ``gnt-*``
command loads it, and a command has 100 ms from its start to its first request.
"""

#: The version of Ganeti with which this project is compatible. Programs read it.
VERSION = (3, 1, 0)
__version__ = "3.1.0"
#: The release of this project; the file ``NEWS.md`` has its changes. People read it.
RELEASE = "0.9.0"
#: Both, as people see them.
FULL_VERSION = f"{__version__}, release {RELEASE} of Ganeti in Python"
#: Type checkers take this name for true. A command which loads ``typing`` for it starts a tenth
#: slower.
TYPE_CHECKING = False
