"""Asking the configuration query daemons (``ganeti-confd``).

For programs that need a fact of the configuration and must not depend on the master: monitoring,
guest interfaces, the watcher. :mod:`ganeti.confd.protocol` has the datagrams, :mod:`~.queries` the
answers (both pure), :mod:`~.client` asks several daemons at once and takes the newest answer.
"""

from ganeti.confd.client import Answer, Client

__all__ = ["Answer", "Client"]
