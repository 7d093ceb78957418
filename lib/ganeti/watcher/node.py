"""The duties on every node: hooks, daemons, and the guests of a node that is marked offline."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from ganeti import errors, hypervisor
from ganeti.backend.node import hooks as hook_scripts
from ganeti.confd import Client as ConfdClient
from ganeti.config.ssconf import SimpleStore
from ganeti.constants import confd as confd_c
from ganeti.constants import hooks as hooks_c
from ganeti.constants import ssconf as ssconf_c
from ganeti.constants.cli import EXIT_SUCCESS
from ganeti.platform import machine, paths
from ganeti.storage.drbd import leftover
from ganeti.tools import daemon_units, daemon_util
from ganeti.utils import clock, x509

_log = logging.getLogger(__name__)


def run_hooks(*, dry_run: bool) -> None:
    """Run the scripts of the administrator, with the environment of this process.

    They are executable files in ``hooks/watcher`` of the configuration directory. A script which
    fails is reported, and stops nothing.
    """
    directory = f"{paths.current().hooks_base_dir}/{hooks_c.NAME_WATCHER}"
    if dry_run:
        if os.path.isdir(directory) and os.listdir(directory):
            print(f"The scripts in {directory} would run.")
        return
    try:
        rows = hook_scripts.run_scripts(hooks_c.NAME_WATCHER, directory, None)
    except errors.HooksFailure as err:
        _log.error("%s", err)
        return
    for name, status, output in rows:
        if status == hooks_c.RESULT_SKIP:
            _log.debug("hook %s is not a program, and does not run", name)
        elif status == hooks_c.RESULT_FAIL:
            _log.error("hook %s has failed: %s", name, output)
        else:
            _log.info("hook %s has run%s", name, f": {output}" if output else "")


def start_daemons(*, dry_run: bool) -> None:
    """Start the daemons of this node which should run, except those of the master.

    One which systemd is starting is not waited for. Soon after the start of the machine that may
    take long, and instances wait for the other duties.
    """
    for daemon in daemon_util.installed():
        if daemon in daemon_util.MASTER_DAEMONS or not daemon_util.wanted(daemon):
            continue
        if not daemon_util.is_running(daemon) and daemon_units.is_starting(daemon):
            _log.info("systemd is starting %s", daemon)
            continue
        start_daemon(daemon, dry_run=dry_run)


def start_daemon(daemon: str, *, dry_run: bool) -> bool:
    """Start a daemon if it does not run; an error is reported, and stops nothing.

    :returns: whether the daemon runs now.
    """
    if daemon_util.is_running(daemon):
        return True
    if dry_run:
        print(f"The daemon {daemon} would be started.")
        return False
    _log.warning("%s does not run, and is started", daemon)
    try:
        code = daemon_util.start(daemon)
    except (errors.GenericError, OSError) as err:
        _log.error("%s cannot be started: %s", daemon, err)
        return False
    if code != EXIT_SUCCESS:
        _log.error(
            "%s cannot be started (exit code %d); see %s",
            daemon,
            code,
            paths.current().log_file(daemon),
        )
    return code == EXIT_SUCCESS


def report_certificates() -> None:
    """Report the certificates of this node which have expired, or will soon.

    Nodes go on with expired ones (:func:`ganeti.utils.x509.ignore_dates`), so that nobody may
    notice before an older program, or a browser, refuses them.
    """
    here = paths.current()
    for path in (here.noded_cert_file, here.noded_client_cert_file, here.rapi_cert_file):
        if not os.path.exists(path):
            continue
        try:
            severity, text = x509.check_expiry(x509.read_pem(path), clock.now(), path)
        except errors.X509CertError as err:
            _log.error("%s", err)
            continue
        if severity is not None:
            level = logging.WARNING if severity == x509.SEVERITY_WARNING else logging.ERROR
            _log.log(level, "%s; see 'gnt-cluster renew-crypto' in gnt-cluster(8)", text)


def is_marked_offline(make_client: Callable[[], ConfdClient] = ConfdClient.of_this_node) -> bool:
    """Ask the configuration query daemons of the candidates whether this node is marked offline.

    :returns: False also when nobody answers, or does not know this node.
    """
    name = machine.current().hostname()
    try:
        answer = make_client().query(confd_c.REQ_NODE_ROLE, name)
    except errors.ConfdClientError as err:
        _log.warning("cannot ask whether this node is marked offline: %s", err)
        return False
    return answer.ok and bool(answer.answer == confd_c.ROLE_OFFLINE)


def maintain_health(*, dry_run: bool, is_offline: Callable[[], bool] = is_marked_offline) -> None:
    """Stop all guests of this node, and take its DRBD devices down, if it is marked offline.

    Only clusters with the parameter ``maintain_node_health`` want that: the instances of such a
    node may have been started on other nodes.
    """
    store = SimpleStore(paths.current())
    if not store.get(ssconf_c.MAINTAIN_NODE_HEALTH) == "True" or not is_offline():
        return
    for name in store.get_list(ssconf_c.HYPERVISOR_LIST):
        _stop_guests(hypervisor.of(name), dry_run=dry_run)
    if dry_run:
        print("All DRBD devices would be taken down, because this node is marked offline.")
        return
    for minor, problem in leftover.take_down_all():
        if problem is None:
            _log.warning("DRBD minor %d: taken down, because this node is marked offline", minor)
        else:
            _log.error("DRBD minor %d cannot be taken down: %s", minor, problem)


def _stop_guests(driver: hypervisor.base.Hypervisor, *, dry_run: bool) -> None:
    for instance in driver.list_instances():
        if dry_run:
            print(f"Instance {instance} would be stopped, because this node is marked offline.")
            continue
        _log.warning("instance %s is stopped, because this node is marked offline", instance)
        try:
            driver.stop(instance, {}, force=True)
            driver.cleanup(instance)
        except errors.HypervisorError as err:
            _log.error("instance %s cannot be stopped: %s", instance, err)
