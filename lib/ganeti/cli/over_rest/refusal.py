"""The commands which need the master node itself, and why.

Every other command works over the REST interface. What a command asks of the master and no resource
answers is refused by :class:`.master.RestMaster`.
"""

from __future__ import annotations

from ganeti import errors
from ganeti.cli.over_rest.address import VARIABLE

_KEYS = "it uses the SSH keys of root on the master"
_HERE = "it works on the machine on which it is typed"
_REACH = "it decides how the REST interface is reached"
_ROOT = "it works as root on the nodes"
_SECRETS = "it reads earlier states of the configuration, with their secrets"
_DEVELOPERS = "it is for developers"

#: Program and command -> why it needs the master.
NEEDS_MASTER = {
    "gnt-cluster activate-master-ip": _REACH,
    "gnt-cluster command": _KEYS,
    "gnt-cluster copyfile": _KEYS,
    "gnt-cluster deactivate-master-ip": _REACH,
    "gnt-cluster destroy": _ROOT,
    "gnt-cluster epo": "it ends the node on which the REST interface runs",
    "gnt-cluster init": _HERE,
    "gnt-cluster master-failover": _HERE,
    "gnt-cluster master-ping": _HERE,
    "gnt-cluster rename": _REACH,
    "gnt-cluster renew-crypto": _ROOT,
    "gnt-cluster renumber": _ROOT,
    "gnt-cluster undo": _SECRETS,
    "gnt-cluster upgrade": _ROOT,
    "gnt-debug delay": _DEVELOPERS,
    "gnt-debug iallocator": _DEVELOPERS,
    "gnt-debug metad": _HERE,
    "gnt-debug submit-job": _DEVELOPERS,
    "gnt-debug test-jobqueue": _DEVELOPERS,
    "gnt-debug test-osparams": _DEVELOPERS,
    "gnt-debug wconfd": _DEVELOPERS,
    "gnt-instance import": "it reads the files of another system on the master",
    "gnt-instance undo": _SECRETS,
    "gnt-node add": _KEYS,
    "gnt-node list-drbd": "it asks the configuration daemons with the key of the cluster",
    "gnt-node remove": _ROOT,
    "gnt-node restricted-command": _ROOT,
}


def check(program: str, command: str) -> None:
    """Refuse a command which needs the master.

    :raises OpPrereqError: it needs the master; says why.
    """
    why = NEEDS_MASTER.get(f"{program} {command}")
    if why is not None:
        raise errors.OpPrereqError(
            f"'{program} {command}' does not work over the REST interface ({VARIABLE} is set),"
            f" because {why}. Run it on the master.",
            errors.ECODE_ENVIRON,
        )
