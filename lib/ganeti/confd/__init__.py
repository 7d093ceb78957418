"""The configuration query daemon (``ganeti-confd``): its protocol, its answers, its client.

The client is for programs that need a value of the configuration and must not depend on the master:
monitoring, guest interfaces, the watcher.

================= ==================================================================
:mod:`.protocol`  datagrams of the protocol, as both ends use them; pure functions
:mod:`.queries`   the answers, as pure functions of a configuration
:mod:`.responder` checks requests and answers them, without sockets, files or clocks
:mod:`.source`    the files from which the daemon answers
:mod:`.client`    asks several daemons and takes the newest answer
================= ==================================================================

The process is :mod:`ganeti.server.confd`.
"""

from ganeti.confd.client import Answer, Client

__all__ = ["Answer", "Client"]
