"""The metadata daemon (``ganeti-metad``): it gives the guests of a node their metadata.

:mod:`~ganeti.metad.guests` keeps the descriptions of the guests, in memory only. Three modules give
access to them: :mod:`~ganeti.metad.web` answers guests over HTTP, :mod:`~ganeti.metad.control`
takes descriptions from the node daemon over a local socket, :mod:`~ganeti.metad.dhcp` gives guests
their address. :mod:`~ganeti.metad.client` is the other end of the control socket,
:mod:`~ganeti.metad.describe` makes the descriptions. The process is :mod:`ganeti.server.metad`.

"""
