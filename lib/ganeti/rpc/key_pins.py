"""The key of each node, by which the master knows it.

All nodes have the key of the cluster (``server.pem``), and can make any certificate with it. So a
certificate of the cluster says only that a machine is *some* node. What no other node has is the
key in ``client.pem``; its node daemon shows it, and the configuration has its pin
(:func:`ganeti.utils.x509.key_pin`). A machine at the address of a node which shows another key gets
no call: the result is :class:`~ganeti.errors.NodeKeyMismatch`.

See ``doc/design-node-keys.rst``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ganeti import errors
from ganeti.objects import Node
from ganeti.platform import machine, paths
from ganeti.utils import x509


def pin_of(certificate: str, here: paths.Paths | None = None) -> str | None:
    """Return the pin of the key which a node has shown.

    :param certificate: in PEM; empty if it is not known.
    :returns: None for the key of the cluster, which is not the node's own: its daemon is of an
        older version, or its own certificate cannot be used.
    :raises X509CertError: a certificate cannot be read.
    """
    if not certificate:
        return None
    pin = x509.key_pin(certificate)
    path = (here or paths.current()).trust_file()
    shared = x509.certificates(x509.read_pem(path), path)
    return None if pin in [x509.key_pin(pem, path) for pem in shared] else pin


def expected(nodes: Iterable[Node], here: paths.Paths | None = None) -> dict[str, tuple[str, ...]]:
    """Return the pins for :meth:`ganeti.rpc.runner.AddressRunner.expect_keys`: address -> pins.

    This node itself may also have the key which is in its own files, because they are at hand: so a
    master which got new files can be started.
    """
    known = [node for node in nodes if node.key_pins]
    return expected_at(
        {node.name: node.primary_ip for node in known},
        {node.name: node.key_pins or () for node in known},
        here,
    )


def expected_at(
    addresses: Mapping[str, str],
    pins: Mapping[str, Sequence[str]],
    here: paths.Paths | None = None,
) -> dict[str, tuple[str, ...]]:
    """Do the same with the addresses and the pins of nodes, by their names.

    :returns: address -> pins, for each address; no pins where none are known.
    """
    found = {}
    own = machine.current().hostname()
    for name, address in addresses.items():
        known = tuple(pins.get(name, ()))
        extra = _own_pins(here or paths.current()) if known and name.lower() == own else ()
        found[address] = (*known, *extra)
    return found


def _own_pins(here: paths.Paths) -> tuple[str, ...]:
    try:
        path = here.noded_client_cert_file
        return (x509.key_pin(x509.read_pem(path), path),)
    except errors.X509CertError:
        return ()
