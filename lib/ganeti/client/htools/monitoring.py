"""Asking the monitoring daemons of the nodes for the load of processors (``--mond``)."""

from __future__ import annotations

import http.client
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ganeti import errors
from ganeti.client.htools import program as prog
from ganeti.client.htools.options import Values
from ganeti.htools.cluster import Cluster
from ganeti.htools.loading import monitoring
from ganeti.platform import machine
from ganeti.wire import json

PORT = 1815
_TIMEOUT_S = 10.0
_AT_ONCE = 32
#: The longest answer which is read, in bytes.
_LONGEST = 1 << 24


def apply(values: Values, cluster: Cluster, text: str | None) -> None:
    """Give a prepared cluster the load which is reported; incomplete data is not used.

    :param text: the content of the file ``--mond-data``; None to ask the daemons.
    :raises Failure: the file is not valid, or data is missing and the user wants to stop then.
    """
    xen = bool(values.options.get("mond_xen"))
    try:
        reports = _ask(cluster, xen=xen) if text is None else monitoring.parse(text)
    except errors.GenericError as failure:
        raise prog.Failure(f"can't parse MonD data: {failure}") from failure
    missing = monitoring.apply(cluster, reports, xen=xen)
    if not missing:
        return
    prog.err(
        f"Didn't receive an answer by all MonDs, {monitoring.collector(xen=xen)}'s data will be"
        " ignored."
    )
    if values.verbose > 1:
        prog.err(f"Missing: {', '.join(missing)}")
    if values.options.get("exit_missing_mond"):
        raise prog.Failure("Not all required data available")


def _ask(cluster: Cluster, *, xen: bool) -> dict[str, list[dict[str, Any]]]:
    """Ask all nodes which are online at once; one which does not answer is left out."""
    names = [node.name for node in cluster.nodes if not node.offline]
    path = f"/1/report/default/{monitoring.collector(xen=xen)}"
    with ThreadPoolExecutor(min(_AT_ONCE, max(1, len(names)))) as pool:
        answers: Sequence[dict[str, Any] | None] = list(
            pool.map(lambda name: _report(name, path), names)
        )
    return {name: [one] for name, one in zip(names, answers, strict=True) if one is not None}


def _report(node: str, path: str) -> dict[str, Any] | None:
    """Ask one node for one report; None when it gives none."""
    try:
        connection = http.client.HTTPConnection(
            machine.current().resolve(node),
            machine.current().service_port("ganeti-mond", PORT),
            timeout=_TIMEOUT_S,
        )
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read(_LONGEST)
        finally:
            connection.close()
        if response.status != http.client.OK:
            return None
        return monitoring.check_reports(node, [json.loads(body.decode("utf-8"))])[0]
    except (errors.GenericError, http.client.HTTPException, OSError, UnicodeDecodeError):
        return None
