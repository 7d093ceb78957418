"""Tools which know nothing of clusters: files, processes, clocks, text, addresses, certificates.

Each module is imported by its name (``from ganeti.utils import fs``). This file imports none of
them, so that a command loads only the modules that it uses.
"""
