"""What a node tells its guests: the metadata daemon's inside, and how to talk to it.

:mod:`~ganeti.metad.guests` keeps what is known of each guest, in memory only; the other modules
are doors to it. :mod:`~ganeti.metad.web` answers guests over HTTP, :mod:`~ganeti.metad.control`
takes what the node daemon says over a local socket, :mod:`~ganeti.metad.dhcp` gives guests their
address. :mod:`~ganeti.metad.client` is the other end of the control socket. The process around them
is :mod:`ganeti.server.metad`.
"""
