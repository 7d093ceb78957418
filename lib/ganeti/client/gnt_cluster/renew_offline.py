"""``gnt-cluster renew-crypto --offline``: one certificate of the cluster for all nodes, over SSH.

A renewal needs node daemons which accept each other. Where nodes have different certificates of the
cluster (files were restored from backups, or a disk was damaged), this command gives all nodes the
one of the master. Each node signs its own key anew; the keys stay, so the master knows the nodes
again, and the ordinary renewal works. Neither the master daemon nor a node daemon is needed.
"""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, terminal

if TYPE_CHECKING:
    from ganeti.cli.command import Values
    from ganeti.cli.remote import RemoteNode
    from ganeti.platform.paths import Paths

_NODED = "ganeti-noded"


def _require_usable(here: Paths) -> None:
    """Check that this node is the master, and that its own certificates are good.

    :raises OpPrereqError: they are not, or another node is the master.
    """
    from ganeti.config.ssconf import SimpleStore
    from ganeti.platform import machine
    from ganeti.utils import x509

    store = SimpleStore(here)
    master = store.master_node()
    if master != machine.current().hostname():
        raise errors.OpPrereqError(
            f"the master is {master}: run this command there", errors.ECODE_STATE
        )
    try:
        client = x509.read_pem(here.noded_client_cert_file)
        x509.verify_signed(client, x509.read_pem(here.noded_cert_file), here.noded_client_cert_file)
    except errors.X509CertError as err:
        raise errors.OpPrereqError(
            f"{err}. The certificates of this node cannot be given to others. Let another candidate"
            " take the role of the master with 'gnt-cluster master-failover', and add this node"
            " again.",
            errors.ECODE_ENVIRON,
        ) from err
    if x509.digest(client) not in store.candidate_certs().values():
        raise errors.OpPrereqError(
            f"{here.noded_client_cert_file} is not the certificate which the cluster knows for this"
            " node, so the other nodes would refuse it. Restore it from a backup, or let another"
            " candidate take the role of the master with 'gnt-cluster master-failover'.",
            errors.ECODE_ENVIRON,
        )


def _others(here: Paths) -> list[RemoteNode]:
    """Return the other nodes which are not marked offline."""
    from ganeti.cli.remote import RemoteNode
    from ganeti.config.ssconf import SimpleStore
    from ganeti.platform import machine

    store = SimpleStore(here)
    addresses = store.node_primary_ips()
    own = machine.current().hostname()
    return [RemoteNode(name, addresses[name]) for name in store.online_nodes() if name != own]


def _give(node: RemoteNode, here: Paths) -> str:
    """Give the certificate of the cluster to a node; return what failed, empty for nothing."""
    import shlex

    from ganeti.constants import ssconf as ssconf_const
    from ganeti.platform import paths

    # The old files may not be writable, and the node must not trust an older certificate any more.
    old = [node.path(path) for path in (here.noded_cert_file, here.server_ca_file)]
    steps = [
        ["rm", "-f", "--", *old],
        here.noded_cert_file,
        here.ssconf_file(ssconf_const.MASTER_CANDIDATES_CERTS),
        [paths.node_daemon_setup(), "--sign-again"],
        ["daemon-util", "start", _NODED],
    ]
    try:
        for step in steps:
            if isinstance(step, str):
                node.copy(step)
                continue
            program, *rest = step
            if program == "daemon-util":
                program = paths.daemon_util()
            done = node.run(shlex.join([program, *rest]))
            if done.failed:
                return done.output.strip()[-500:] or done.fail_reason
    except errors.CommandError as err:
        return err.problem
    return ""


def renew_offline(values: Values) -> int:
    """Give all nodes the certificate of the cluster which this node has, over SSH.

    :returns: the exit code: 1 when a node could not get it; the others have it.
    :raises OpPrereqError: this node is not the master, or its own certificates are damaged.
    """
    from ganeti.cli import remote
    from ganeti.platform import paths

    here = paths.current()
    _require_usable(here)
    nodes = _others(here)
    names = ", ".join(node.name for node in nodes)
    if values.dry_run:
        terminal.out(f"These nodes would get the certificate of the cluster: {names}")
        return failures.EXIT_SUCCESS
    if not values.force and not terminal.confirm(
        f"The certificate of the cluster which this node has will be copied to {names}, over SSH."
        " Continue?"
    ):
        return failures.EXIT_CONFIRMATION
    code = failures.EXIT_SUCCESS
    for node, problem in remote.on_each(nodes, lambda node: _give(node, here)):
        if problem:
            code = failures.EXIT_FAILURE
            terminal.err(f"Node {node.name} does not have the certificate: {problem}")
        else:
            terminal.out(f"Node {node.name} has the certificate of the cluster.")
    terminal.out(
        'Start the master daemon if it does not run. Then run "gnt-cluster renew-crypto'
        ' --new-cluster-certificate", which makes new certificates for all nodes.'
    )
    return code
