"""The program ``node-daemon-setup``: makes this machine a node, with credentials from its input.

``gnt-node add`` runs it over SSH. The input is a JSON object with the name of the cluster, its
credentials, and the ssconf values; nothing of it is ever on a command line. The program refuses a
machine of another cluster. When a step fails, everything is as before; otherwise it prints the
digest of the certificate which the machine has made for itself. ``--undo`` stops the daemons and
removes the credentials; it is for a machine which the master did not add. ``--force-join``
removes the machine from another cluster first, without informing that cluster.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial

from ganeti import errors, ht
from ganeti.bootstrap import node_state, remote
from ganeti.constants.cli import EXIT_SUCCESS
from ganeti.platform import machine, paths
from ganeti.tools.entry import reports_errors
from ganeti.utils import x509
from ganeti.utils.undo import UndoStack
from ganeti.wire import json

_DAEMONS = (node_state.NODED, node_state.CONFD)

_SHAPES: dict[str, ht.Type] = {
    remote.CLUSTER_NAME: ht.NonEmptyString,
    remote.NODE_NAME: ht.NonEmptyString,
    remote.CERTIFICATE: ht.NonEmptyString,
    remote.HMAC: ht.NonEmptyString,
    remote.RAPI: ht.NonEmptyString,
    remote.DOMAIN_SECRET: ht.NonEmptyString,
    remote.SSCONF: ht.DictOf(ht.NonEmptyString, ht.Str),
    remote.START: ht.Bool,
}


def parse(text: str) -> dict[str, object]:
    """Read and check the input.

    :returns: the values, by the keys of :mod:`ganeti.bootstrap.remote`.
    :raises OpPrereqError: the input is wrong; the message contains no secret.
    """
    try:
        found = json.loads(text)
    except errors.ParseError:
        raise errors.OpPrereqError("the input is not JSON", errors.ECODE_INVAL) from None
    if not isinstance(found, dict) or set(found) != set(_SHAPES):
        raise errors.OpPrereqError(
            "the input does not have the expected keys; the master runs another release",
            errors.ECODE_INVAL,
        )
    for key, shape in _SHAPES.items():
        if not shape(found[key]):
            raise errors.OpPrereqError(f"the input's {key} is not {shape}", errors.ECODE_INVAL)
    facts = found[remote.SSCONF]
    if (
        any("/" in key for key in facts)
        or facts.get("cluster_name", "").strip() != found[remote.CLUSTER_NAME]
    ):
        raise errors.OpPrereqError(
            "the ssconf values of the input belong to another cluster, or have wrong names",
            errors.ECODE_INVAL,
        )
    try:
        pem = found[remote.CERTIFICATE]
        x509.verify_signed(pem, pem, "the cluster's certificate")
    except errors.X509CertError as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err
    return found


def check_machine(
    credentials: dict[str, object], here: paths.Paths, *, force_join: bool = False
) -> bool:
    """Check that the credentials are for this machine, and that it is in no other cluster.

    :param force_join: accept a machine of another cluster.
    :returns: whether the machine belongs to another cluster.
    :raises OpPrereqError: the machine is refused.
    """
    own = machine.current().hostname()
    if own != str(credentials[remote.NODE_NAME]).lower():
        raise errors.OpPrereqError(
            f"this machine is {own}, not {credentials[remote.NODE_NAME]}", errors.ECODE_ENVIRON
        )
    if os.path.exists(here.noded_cert_file):
        present = x509.digest_file(here.noded_cert_file)
        if present != x509.digest(str(credentials[remote.CERTIFICATE])):
            if force_join:
                return True
            facts = credentials[remote.SSCONF]
            assert isinstance(facts, dict)
            if node_state.is_own_node(here, str(credentials[remote.NODE_NAME]), facts):
                # It was off while the secrets of the cluster were renewed.
                node_state.require_no_master(here)
                return False
            raise errors.OpPrereqError(
                f"{own} belongs to another cluster: {here.noded_cert_file} exists. Use"
                " --force-join to remove it from that cluster.",
                errors.ECODE_STATE,
            )
    return False


def set_up(credentials: dict[str, object], here: paths.Paths) -> str:
    """Write the credentials and ssconf values, and start the daemons.

    :returns: the digest of the new client certificate.
    :raises OpExecError: a daemon does not start; all files are as before.
    """
    shared = node_state.Credentials(
        *(
            str(credentials[key])
            for key in (remote.CERTIFICATE, remote.RAPI, remote.HMAC, remote.DOMAIN_SECRET)
        )
    )
    facts = credentials[remote.SSCONF]
    assert isinstance(facts, dict)
    with UndoStack() as undo:
        name = str(credentials[remote.NODE_NAME])
        digest = node_state.equip(here, shared, name, facts, undo)
        for daemon in _DAEMONS if credentials[remote.START] else ():
            # A running daemon may still use other certificates.
            node_state.daemon_util("stop", daemon)
            undo.add(daemon, partial(node_state.daemon_util, "stop", daemon))
            node_state.daemon_util("start", daemon)
        undo.commit()
    return digest


def take_back(here: paths.Paths) -> None:
    """Undo :func:`set_up`.

    :raises OpPrereqError: the master daemon runs here.
    """
    node_state.leave_other_cluster(here)


def make_parser() -> argparse.ArgumentParser:
    """Describe the options of the program."""
    parser = argparse.ArgumentParser(
        prog="node-daemon-setup",
        description="Make this machine a node, with credentials from standard input.",
    )
    parser.add_argument("-d", "--debug", action="count", default=0, help="accepted, without effect")
    parser.add_argument("-v", "--verbose", action="store_true", help="accepted, without effect")
    parser.add_argument(
        "--dry-run", action="store_true", help="check the input and the machine, and change nothing"
    )
    parser.add_argument(
        "--force-join", action="store_true", help="remove this machine from another cluster first"
    )
    parser.add_argument(
        "--sign-again",
        action="store_true",
        help="sign the key of this node with the certificate of the cluster which it has now",
    )
    parser.add_argument(
        "--undo", action="store_true", help="stop the daemons and remove the credentials"
    )
    return parser


@reports_errors("node-daemon-setup")
def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    options = make_parser().parse_args(argv)
    here = paths.current()
    if options.undo:
        take_back(here)
        return EXIT_SUCCESS
    if options.sign_again:
        print(f"{remote.PRINTED} {node_state.sign_again(here)}")
        return EXIT_SUCCESS
    credentials = parse(sys.stdin.read())
    foreign = check_machine(credentials, here, force_join=options.force_join)
    if foreign and not options.dry_run:
        node_state.leave_other_cluster(here)
    if not options.dry_run:
        print(f"{remote.PRINTED} {set_up(credentials, here)}")
    return EXIT_SUCCESS


if __name__ == "__main__":
    sys.exit(main())
