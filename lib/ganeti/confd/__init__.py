"""The configuration query daemon (``ganeti-confd``): its protocol, its answers, its client.

The client is for programs that need a value of the configuration and must not depend on the master:
monitoring, guest interfaces, the watcher. :mod:`ganeti.confd.protocol` has the datagrams,
:mod:`~.queries` the answers, :mod:`~.responder` the checks of requests (all three pure);
:mod:`~.client` asks several daemons at once and takes the newest answer. The process is
:mod:`ganeti.server.confd`.
"""

from ganeti.confd.client import Answer, Client

__all__ = ["Answer", "Client"]
