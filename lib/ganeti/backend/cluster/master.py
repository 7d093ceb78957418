"""The daemons and the address of the master, on the master node.

The address is an additional one on a network device, which moves with the role. In
127.0.0.0/8 (a virtual cluster) the machine answers for every address, so nothing is done.
With ``use_external_mip_script`` a script of the administrator does the work
(``CONF_DIR/scripts/master-ip-setup start|stop``).
"""

from __future__ import annotations

import ipaddress
import logging
import os

from ganeti import errors
from ganeti.backend.registry import serves
from ganeti.constants import net as net_c
from ganeti.objects.transfer import MasterNetworkParameters
from ganeti.platform import machine, paths
from ganeti.utils import net, process
from ganeti.wire import calls

EXTERNAL_SCRIPT = "master-ip-setup"
_COMMAND_TIMEOUT_S = 30.0
_SCRIPT_TIMEOUT_S = 240.0
_DAEMON_TIMEOUT_S = 280.0
_PROBE_TIMEOUT_S = 2.0
_ENSURE_TIMEOUT_S = 50.0
_ANNOUNCEMENTS = 3


def add_argv(params: MasterNetworkParameters) -> list[str]:
    """Build the command that adds the address.

    ``preferred_lft 0`` makes connections of this machine use its other addresses.
    """
    return [
        "ip",
        "address",
        "add",
        f"{params.ip}/{params.netmask}",
        "dev",
        params.netdev,
        "label",
        f"{params.netdev}:0",
        "preferred_lft",
        "0",
    ]


def remove_argv(params: MasterNetworkParameters) -> list[str]:
    """Build the command that removes the address."""
    return ["ip", "address", "del", f"{params.ip}/{params.netmask}", "dev", params.netdev]


def announce_argv(params: MasterNetworkParameters) -> list[str]:
    """Build the command that announces the new place of the address to the network."""
    if params.ip_family == net_c.IP6_FAMILY:
        return ["ndisc6", "-q", "-r", str(_ANNOUNCEMENTS), params.ip, params.netdev]
    return [
        "arping",
        "-q",
        "-U",
        "-c",
        str(_ANNOUNCEMENTS),
        "-I",
        params.netdev,
        "-s",
        params.ip,
        params.ip,
    ]


def external_env(params: MasterNetworkParameters) -> dict[str, str]:
    """Build the environment of the script of the administrator."""
    version = net_c.IP6_VERSION if params.ip_family == net_c.IP6_FAMILY else net_c.IP4_VERSION
    return {
        "PATH": process.DEFAULT_PATH,
        "MASTER_NETDEV": params.netdev,
        "MASTER_IP": params.ip,
        "MASTER_NETMASK": str(params.netmask),
        "CLUSTER_IP_VERSION": str(version),
    }


def _check(params: MasterNetworkParameters) -> bool:
    """Check the parameters; return whether the address must be configured at all.

    :raises ConfigurationError: address or netmask is malformed.
    """
    try:
        address = ipaddress.ip_address(params.ip)
    except ValueError:
        raise errors.ConfigurationError(
            f"master address {params.ip!r:.80} is not an IP address"
        ) from None
    if not 0 < params.netmask <= address.max_prefixlen:
        raise errors.ConfigurationError(f"netmask {params.netmask} does not fit {params.ip}")
    return not address.is_loopback


@serves(calls.NODE_ACTIVATE_MASTER_IP)
def activate_ip(master_params: MasterNetworkParameters, use_external_mip_script: bool) -> None:
    """Configure the address of the master on this node; no error when it is there already.

    :raises OpExecError: another machine answers for the address, or it cannot be added.
    """
    needed = _check(master_params)
    if use_external_mip_script:
        _run_external("start", master_params)
        return
    if not needed or _is_ours(master_params.ip):
        return
    if net.tcp_ping(master_params.ip, machine.current().noded_port(), _PROBE_TIMEOUT_S):
        raise errors.OpExecError(f"master address {master_params.ip} is in use on another machine")
    try:
        process.run(add_argv(master_params), timeout_s=_COMMAND_TIMEOUT_S)
    except errors.CommandError as err:
        raise errors.OpExecError(f"cannot add master address {master_params.ip}: {err}") from err
    try:
        process.run(announce_argv(master_params), timeout_s=_COMMAND_TIMEOUT_S)
    except errors.CommandError as err:
        # The address works; other machines learn it when their caches expire.
        logging.warning("cannot announce master address %s: %s", master_params.ip, err)


@serves(calls.NODE_DEACTIVATE_MASTER_IP)
def deactivate_ip(master_params: MasterNetworkParameters, use_external_mip_script: bool) -> None:
    """Remove the address of the master from this node.

    :raises OpExecError: the address cannot be removed.
    """
    needed = _check(master_params)
    if use_external_mip_script:
        _run_external("stop", master_params)
        return
    if not needed or not _is_ours(master_params.ip):
        return
    try:
        process.run(remove_argv(master_params), timeout_s=_COMMAND_TIMEOUT_S)
    except errors.CommandError as err:
        raise errors.OpExecError(f"cannot remove master address {master_params.ip}: {err}") from err


def _is_ours(address: str) -> bool:
    return machine.current().owns_address(address)


def _run_external(action: str, params: MasterNetworkParameters) -> None:
    script = f"{paths.current().user_scripts_dir}/{EXTERNAL_SCRIPT}"
    if not os.access(script, os.X_OK):
        raise errors.OpExecError(f"script {script} does not exist or is not executable")
    try:
        process.run(
            [script, action], timeout_s=_SCRIPT_TIMEOUT_S, env=external_env(params), exact_env=True
        )
    except errors.CommandError as err:
        raise errors.OpExecError(
            f"cannot {action} master address {params.ip} by script: {err}"
        ) from err


@serves(calls.NODE_START_MASTER_DAEMONS)
def start_master_daemons(no_voting: bool) -> None:
    """Start the daemons of the master.

    :param no_voting: the master daemon must not ask other nodes whether it may be master.
    :raises OpExecError: a daemon does not start; the text has its error output.
    """
    argv = [paths.daemon_util(), "start-master"]
    if no_voting:
        argv = [paths.daemon_util(), "start", "ganeti-masterd", "--no-voting", "--yes-do-it"]
    _run_daemon_util(argv, "start")
    if no_voting:
        _run_daemon_util([paths.daemon_util(), "start-master"], "start")


@serves(calls.NODE_STOP_MASTER)
def stop_master() -> None:
    """Stop the daemons of the master.

    :raises OpExecError: a daemon does not stop.
    """
    _run_daemon_util([paths.daemon_util(), "stop-master"], "stop")


#: Daemons which this call may start and stop; the others always run, or run with the master.
_OPTIONAL_DAEMONS = frozenset(("ganeti-failoverd", "ganeti-kvmd", "ganeti-watchdogd"))


@serves(calls.NODE_ENSURE_DAEMON)
def ensure_daemon(daemon: str, run: bool) -> None:
    """Start or stop a daemon which only some clusters need.

    :raises OpExecError: the daemon is not such a daemon, or does not start or stop.
    """
    if daemon not in _OPTIONAL_DAEMONS:
        raise errors.OpExecError(
            f"'{daemon:.80}' is not a daemon which the master may start or stop"
        )
    verb = "start" if run else "stop"
    try:
        process.run([paths.daemon_util(), verb, daemon], timeout_s=_ENSURE_TIMEOUT_S)
    except errors.CommandError as err:
        raise errors.OpExecError(f"cannot {verb} {daemon}: {err}") from err


def _run_daemon_util(argv: list[str], verb: str) -> None:
    try:
        process.run(argv, timeout_s=_DAEMON_TIMEOUT_S)
    except errors.CommandError as err:
        raise errors.OpExecError(f"cannot {verb} the daemons of the master: {err}") from err
