"""Tools that know nothing of clusters: paths, files, processes, clocks, text, addresses, daemons.

Each module is imported by name (``from ganeti.utils import fs``); this file imports none of them,
so that a command pays only for what it uses.
"""
