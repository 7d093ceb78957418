"""The program ``confd-client``: tests and measures a configuration query daemon (confd).

It sends each kind of query that needs no name, and prints the answers. Then it measures the time of
a number of pings, which it sends one after the other. The exit code is 1 when a query failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from ganeti import errors
from ganeti.confd import Client
from ganeti.constants import confd as const
from ganeti.platform import machine, paths
from ganeti.tools.entry import reports_errors
from ganeti.utils import fs, net
from ganeti.wire import json

_QUERIES: tuple[tuple[str, int, Any], ...] = (
    ("version of the configuration", const.REQ_PING, None),
    (
        "master",
        const.REQ_CLUSTER_MASTER,
        {const.KEY_FIELDS: [const.FIELD_NAME, const.FIELD_CLUSTER_IP, const.FIELD_MASTER_IP]},
    ),
    ("addresses of the nodes", const.REQ_NODE_IPS, None),
    ("addresses of the master candidates", const.REQ_CANDIDATE_IPS, None),
    ("addresses of instances on the default link", const.REQ_INSTANCE_IPS, None),
    ("data collectors", const.REQ_DATA_COLLECTORS, None),
)


def make_parser() -> argparse.ArgumentParser:
    """Describe the options of the program."""
    parser = argparse.ArgumentParser(
        prog="confd-client", description="Test and measure a configuration query daemon."
    )
    add_address_options(parser, default="localhost")
    parser.add_argument(
        "-r",
        "--requests",
        type=int,
        default=100,
        metavar="<REQUESTS>",
        help="number of pings to measure (default: %(default)s)",
    )
    return parser


def add_address_options(parser: argparse.ArgumentParser, *, default: str) -> None:
    """Add the options which say which daemon is asked, and with which key."""
    parser.add_argument(
        "--hmac",
        metavar="<KEY>",
        help="HMAC key of the cluster; other users of this machine can see it in the list of"
        " processes. Without this option the key file of this node is read",
    )
    parser.add_argument(
        "-a",
        "--address",
        dest="mc",
        default=default,
        metavar="<ADDRESS>",
        help="address or name of the node whose daemon is queried (default: %(default)s)",
    )


def client(options: argparse.Namespace) -> Client:
    """Return a client for the daemon which the options name.

    :raises ConfdClientError: the key cannot be read.
    """
    address = options.mc if net.is_ip(options.mc) else machine.current().resolve(options.mc)
    if options.hmac is not None:
        key = options.hmac.encode("utf-8")
    else:
        path = paths.current().hmac_key
        try:
            key = fs.read_bytes(path)
        except OSError as err:
            raise errors.ConfdClientError(f"cannot read {path}: {err.strerror}") from err
    return Client(key, [address])


def run(options: argparse.Namespace) -> int:
    """Send the queries and the pings, and print the answers and the time.

    :returns: the exit code.
    :raises ConfdClientError: the daemon does not answer, or the key cannot be read.
    """
    asked = client(options)
    failed = False
    for what, kind, query in _QUERIES:
        answer = asked.query(kind, query)
        failed |= not answer.ok
        shown = json.dumps(answer.answer) if answer.ok else f"error {answer.answer}"
        print(f"{what}: {shown} (serial {answer.serial})")
    started = time.monotonic()
    for _ in range(options.requests):
        asked.query(const.REQ_PING)
    took_s = time.monotonic() - started
    if options.requests > 0:
        print(
            f"{options.requests} pings in {took_s:.3f} s, "
            f"{took_s * 1000 / options.requests:.2f} ms each"
        )
    return 1 if failed else 0


@reports_errors("confd-client")
def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run(make_parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
