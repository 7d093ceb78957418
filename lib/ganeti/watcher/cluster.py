"""The duties of the watcher on the master: daemons, old jobs, a process for each node group."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.config.ssconf import SimpleStore
from ganeti.constants import job as job_c
from ganeti.constants import query as query_c
from ganeti.constants import ssconf as ssconf_c
from ganeti.platform import machine, paths
from ganeti.rapi import client as rapi
from ganeti.tools import daemon_util
from ganeti.utils import clock, fs, process, shortage
from ganeti.watcher import node

if TYPE_CHECKING:
    from ganeti.luxi.client import Client

_log = logging.getLogger(__name__)

_MASTER, _RAPI = "ganeti-masterd", "ganeti-rapi"
_RAPI_TIMEOUT_S = 20


def is_master() -> bool:
    """Return whether this node is the master, as its own files say."""
    master = SimpleStore(paths.current()).get(ssconf_c.MASTER_NODE)
    return master.lower() == machine.current().hostname()


def start_daemons(rapi_address: str | None, *, dry_run: bool) -> bool:
    """Start the daemons of the master which do not run, and restart a REST daemon which does not
    answer.

    :param rapi_address: where the REST daemon is asked; None for the address which it serves by
        default.
    :returns: whether the master daemon runs.
    """
    runs = node.start_daemon(_MASTER, dry_run=dry_run)
    if _RAPI in daemon_util.installed() and runs:
        ran = daemon_util.is_running(_RAPI)
        if node.start_daemon(_RAPI, dry_run=dry_run) and ran and not dry_run:
            _restart_hanging_rapi(rapi_address)
    return runs


def _restart_hanging_rapi(address: str | None) -> None:
    here = machine.current()
    where = address or here.default_bind_address()
    where = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(where, where)  # noqa: S104  compared only
    client = rapi.GanetiRapiClient(
        where,
        port=here.service_port(_RAPI, rapi.GANETI_RAPI_PORT),
        curl_config_fn=rapi.GenericCurlConfig(timeout=_RAPI_TIMEOUT_S),
    )
    try:
        client.GetVersion()
    except rapi.GanetiApiError as err:
        # Any answer proves that the daemon works; it may demand a user even for this resource.
        if err.code is not None:
            return
        _log.warning("%s on %s does not answer (%s), and is restarted", _RAPI, where, err)
        daemon_util.stop(_RAPI)
        node.start_daemon(_RAPI, dry_run=False)


def archive_jobs(client: Client, age_s: int, *, dry_run: bool) -> None:
    """Move jobs which ended more than `age_s` seconds ago to the archive; a negative age moves
    none.

    :param dry_run: only print how many jobs these are.
    :raises errors.LuxiError: the master does not answer.
    """
    if age_s < 0:
        return
    if dry_run:
        _print_old_jobs(client, age_s)
        return
    archived, left = client.auto_archive_jobs(age_s)
    if archived or left:
        _log.info("%d jobs were archived, %d are left for the next run", archived, left)


def _print_old_jobs(client: Client, age_s: int) -> None:
    ended = ["|", *(["=", "status", one] for one in sorted(job_c.FINALIZED))]
    limit = clock.now() - age_s
    count = 0
    for ((_status, end),) in client.query(query_c.JOB, ["end_ts"], ended)["data"]:
        count += bool(end) and end[0] < limit
    if count:
        print(f"{count} jobs which ended more than {age_s} seconds ago would be archived.")


def groups() -> dict[str, str]:
    """Return the node groups which this node knows: UUID -> name."""
    return SimpleStore(paths.current()).get_map(ssconf_c.NODEGROUPS, " ")


def start_groups(words: Sequence[str]) -> list[subprocess.Popen[bytes]]:
    """Start a watcher for each node group, as a process of its own: one that hangs delays no other.

    :param words: options for all of them.
    """

    def start(uuid: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, sys.argv[0], f"--node-group={uuid}", *words], stdin=subprocess.DEVNULL
        )

    return [
        shortage.outlast(
            partial(start, uuid), timeout_s=process.SHORTAGE_S, what="starting a watcher"
        )
        for uuid in groups()
    ]


def merge_status() -> None:
    """Write the states of the instances of all groups to the status file of the cluster.

    :raises OSError: the file cannot be written.
    """
    here = paths.current()
    lines: list[str] = []
    for uuid in groups():
        try:
            lines += fs.read_file(here.watcher_status_file(uuid)).splitlines(keepends=True)
        except FileNotFoundError:
            continue  # the watcher of this group has not run yet
    fs.write_file(here.instance_status_file, "".join(sorted(lines)), mode=0o644, sync=False)


def connect(make: type[Client]) -> Client | None:
    """Return a client of the master which answers; None when it does not."""
    client = make()
    try:
        client.query_config_values(["master_node"])
    except errors.LuxiError as err:
        _log.error("the master daemon does not answer: %s", err)
        client.close()
        return None
    return client
