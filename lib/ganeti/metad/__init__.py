"""The metadata daemon (``ganeti-metad``): it gives the guests of a node their metadata.

================ ===========================================================
:mod:`.guests`   keeps the descriptions of the guests, in memory only
:mod:`.describe` makes the description of an instance
:mod:`.web`      answers guests over HTTP
:mod:`.nocloud`  answers cloud-init, with the data source NoCloud
:mod:`.dhcp`     gives guests their address
:mod:`.control`  takes descriptions from the node daemon over a local socket
:mod:`.client`   is the other end of that socket
================ ===========================================================

The process is :mod:`ganeti.server.metad`.
"""
