"""The configuration of the cluster: its objects and their parameters.

One process owns it, the master daemon; other processes and nodes have copies.

======================== ===========================================================================
:mod:`.api`              the configuration, as logical units and daemons use it
:mod:`.store`            keeps the present state and its file, and makes changes durable
:mod:`.transaction`      the operations which change a state
:mod:`.instance_changes` its operations on instances
:mod:`.disk_changes`     its operations on disks
:mod:`.cluster_changes`  its operations on all other objects
:mod:`.draft`            the state which a transaction builds, and what every operation checks
:mod:`.index`            values which at most one object may have, such as names and addresses
:mod:`.index_keys`       the kinds of these values
:mod:`.ports`            the TCP ports which the cluster gives away
:mod:`.reservations`     keeps names and addresses for jobs that have not finished
:mod:`.view`             answers questions about a state
:mod:`.verify`           searches for contradictions
:mod:`.recent_changes`   which objects the last changes concerned
:mod:`.access_records`   sessions, tokens and other proofs of the identity of users
:mod:`.documents`        the documents which programs keep in the cluster
:mod:`.history`          what was changed, when, and by which job
:mod:`.text`             the text of a configuration, kept in pieces
:mod:`.local_file`       the file on the disk of the master
:mod:`.damaged`          sets entries aside which cannot be understood
:mod:`.upgrade`          converts configurations of older versions
:mod:`.newer_values`     values of known settings which versions of the original do not have
:mod:`.releases`         what a release can read, and the way back to an earlier one
:mod:`.copies`           what the other nodes have of the configuration, and how they get the newest
:mod:`.sending`          messages to other nodes, and the wait for those who need them
:mod:`.role`             decides which node may be master, and which changes are committed
:mod:`.witness`          the document of a witness, the third voter beside two candidates
:mod:`.members`          reads the nodes of the cluster from the file, and nothing else
:mod:`.ssconf`           values which every node needs, in small text files
======================== ===========================================================================

The package does not send anything to other nodes itself: the caller passes a function which
distributes.
"""

from __future__ import annotations

from ganeti import TYPE_CHECKING
from ganeti.utils import lazy

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
