"""The configuration of the cluster: its objects and their parameters.

One process owns it, the master daemon; other processes and nodes have copies. Logical units and
daemons use :mod:`.api`. Below it, :mod:`.store` keeps the file and makes changes durable,
:mod:`.copies` brings them to the other nodes, :mod:`.transaction` has the operations which change a
state, by kind of object (:mod:`.instance_changes`, :mod:`.disk_changes`, :mod:`.cluster_changes`),
:mod:`.draft` is the state which they build, :mod:`.view` answers questions about a state,
:mod:`.reservations` keeps names and addresses for jobs that have not finished, :mod:`.verify`
searches for contradictions, :mod:`.upgrade` reads files of older versions, and :mod:`.ssconf`
extracts the values which every node needs.

The package does not send anything to other nodes itself: the caller passes a function which
distributes.
"""

from __future__ import annotations

from ganeti.utils import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ganeti.config.api import Config as Config
    from ganeti.config.sending import Distribution as Distribution
    from ganeti.config.sending import DistributionFailure as DistributionFailure
    from ganeti.config.transaction import Transaction as Transaction
    from ganeti.config.view import View as View

# Imported when first used: commands import ganeti.config.ssconf and need nothing else.
_HOME = {
    "Config": "api",
    "Distribution": "sending",
    "DistributionFailure": "sending",
    "Transaction": "transaction",
    "View": "view",
}

__getattr__ = lazy.names(__name__, _HOME)
