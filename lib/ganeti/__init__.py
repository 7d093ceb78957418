"""A cluster manager for virtual machines.

Its packages stand in an order, which ``doc/architecture.rst`` lists from the bottom to the top; a
package imports only from packages below it. This file imports nothing, because every ``gnt-*``
command loads it, and a command has 100 ms from its start to its first request.
"""

VERSION = (3, 1, 0)
__version__ = "3.1.0"
