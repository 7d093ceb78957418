"""Checks of this machine for ``gnt-cluster verify``.

A request names the checks, each with its argument; the answer has the same keys (published names,
in
:mod:`ganeti.constants.node_verify`). A check reports facts, and the master compares them. For
checks which look for problems, an empty answer (None, an empty list or dictionary) means that there
are none. A check which cannot be carried out fails the whole call, so that a missing answer never
counts as a good one.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from ganeti import FULL_VERSION, errors, ht, hypervisor
from ganeti.backend.cluster import ssh as ssh_files
from ganeti.backend.instance import os as os_definitions
from ganeti.backend.node import info as node_facts
from ganeti.backend.node import openvswitch, verify_storage
from ganeti.backend.registry import serves
from ganeti.configfile import files as configfile
from ganeti.constants import node_verify as nv
from ganeti.constants import rpc
from ganeti.objects import disk_templates
from ganeti.platform import machine, paths, users, watcher_files
from ganeti.storage import file as file_storage
from ganeti.utils import clock, net, x509
from ganeti.wire import calls

_PING_TIMEOUT_S = 5.0
_PING_THREADS = 32
_READ_BYTES = 1 << 20


class _Request(NamedTuple):
    """Facts for a check, besides its own argument."""

    checks: Mapping[str, Any]
    all_hvparams: Mapping[str, Mapping[str, Any]]

    @property
    def vm_capable(self) -> bool:
        """True if this node may run guests; the request lists the nodes which may not."""
        return machine.current().hostname() not in (self.checks.get(nv.NONVMNODES) or ())


_Check = Callable[[Any, _Request], Any]


@serves(calls.NODE_VERIFY)
def node_verify(
    checks: dict[str, Any], cluster_name: str, all_hvparams: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Carry out the checks.

    :param all_hvparams: filled parameters of each hypervisor.
    :raises ParameterError: a check is unknown, or its argument has another type; no check was
        carried out.
    """
    unknown = sorted(checks.keys() - _CHECKS.keys())
    if unknown:
        raise errors.ParameterError(f"unknown checks of a node: {', '.join(unknown)}")
    for name, argument in checks.items():
        shape = _CHECKS[name][0]
        if not shape(argument):
            raise errors.ParameterError(
                f"argument of check {name} is {argument!r:.200}, not {shape}"
            )
    request = _Request(checks, all_hvparams)
    return {name: _CHECKS[name][1](argument, request) for name, argument in checks.items()}


@serves(calls.NODE_VERIFY_LIGHT)
def node_verify_light(
    checks: dict[str, Any], cluster_name: str, all_hvparams: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Carry out the checks, without parameters of hypervisors; see :func:`node_verify`."""
    return node_verify(checks, cluster_name, all_hvparams)


def checksum(path: str) -> str | None:
    """Return the SHA1 digest of a file in hexadecimal; None when it cannot be read."""
    digest = hashlib.sha1(usedforsecurity=False)
    try:
        with open(path, "rb") as stream:
            while chunk := stream.read(_READ_BYTES):
                digest.update(chunk)
    except OSError:
        return None
    return digest.hexdigest()


def _files(argument: Any, _request: _Request) -> dict[str, str]:
    here = paths.current()
    found = {path: _checksum_of(here.to_local(path)) for path in argument}
    return {path: digest for path, digest in found.items() if digest is not None}


def _checksum_of(path: str) -> str | None:
    if path != paths.current().cluster_conf_file:
        return checksum(path)
    try:
        # Nodes with the same configuration may have different parts of it in their journals.
        with configfile.opened(path) as found:
            return found.digest("sha1")
    except OSError:
        return None


def _config_journal(_argument: Any, _request: _Request) -> list[Any]:
    """Look at the journal of the configuration.

    :returns: ``[problem or "", [paths of journals which were set aside]]``.
    """
    here = paths.current()
    problem = ""
    try:
        with configfile.opened(here.cluster_conf_file):
            pass
    except FileNotFoundError:
        if os.path.lexists(here.cluster_conf_journal):
            problem = f"{here.cluster_conf_journal} is there, and its file is missing"
    except OSError as err:
        problem = f"cannot read {err.filename or here.cluster_conf_file}: {err.strerror}"
    return [problem, sorted(configfile.set_aside_journals(here.cluster_conf_file))]


def _net_test(argument: Any, _request: _Request) -> dict[str, str]:
    """Try the addresses of nodes.

    :param argument: ``[[name, primary ip, secondary ip], ...]``.
    :returns: name of a node -> why its addresses do not answer.
    """
    port = machine.current().noded_port()
    targets = []
    for name, primary, secondary in argument:
        targets.append((name, "primary", primary))
        if secondary and secondary != primary:
            targets.append((name, "secondary", secondary))
    if not targets:
        return {}
    with ThreadPoolExecutor(min(_PING_THREADS, len(targets))) as pool:
        answers = list(
            pool.map(lambda target: net.tcp_listens(target[2], port, _PING_TIMEOUT_S), targets)
        )
    problems: dict[str, list[str]] = {}
    for (name, kind, address), reached in zip(targets, answers, strict=True):
        if not reached:
            problems.setdefault(name, []).append(
                f"its node daemon does not answer at the {kind} address {address}"
            )
    return {name: "; ".join(texts) for name, texts in problems.items()}


def _master_ip(argument: Any, _request: _Request) -> bool:
    """Return whether the address of the master answers; the argument is ``[name, ip]``."""
    _, address = argument
    return net.tcp_ping(address, machine.current().noded_port(), _PING_TIMEOUT_S)


def _hypervisors(argument: Any, request: _Request) -> dict[str, str | None]:
    if not request.vm_capable:
        return {}
    found: dict[str, str | None] = {}
    for name in argument:
        try:
            found[name] = hypervisor.of(name).verify(request.all_hvparams.get(name))
        except errors.HypervisorError as err:
            found[name] = str(err)
    return found


def _hvparams(argument: Any, request: _Request) -> list[list[str]]:
    """Check parameters of hypervisors.

    :param argument: ``[[source, hypervisor, parameters], ...]``.
    :returns: ``[source, hypervisor, reason]`` for each that does not work.
    """
    if not request.vm_capable:
        return []
    problems = []
    for source, name, params in argument:
        try:
            hypervisor.of(name).validate_parameters(params)
        except errors.HypervisorError as err:
            problems.append([source, name, str(err)])
    return problems


def _instance_list(argument: Any, request: _Request) -> list[str]:
    if not request.vm_capable:
        return []
    return [instance for name in argument for instance in hypervisor.of(name).list_instances()]


def _hv_info(argument: Any, request: _Request) -> dict[str, Any]:
    if not request.vm_capable:
        return {}
    return hypervisor.of(argument).node_info(request.all_hvparams.get(argument))


def _daemon_user(_argument: Any, _request: _Request) -> int:
    """Return the user id of the node daemon, which guests keep unless a parameter names another."""
    return os.geteuid()


def _version(_argument: Any, _request: _Request) -> list[Any]:
    return [rpc.PROTOCOL_VERSION, FULL_VERSION]


def _time(_argument: Any, _request: _Request) -> list[int]:
    return list(clock.split(time.time()))


def _os_list(_argument: Any, request: _Request) -> list[list[Any]]:
    return os_definitions.os_diagnose() if request.vm_capable else []


def _bridges(argument: Any, _request: _Request) -> list[str]:
    return node_facts.missing_bridges(list(argument))


def _openvswitch(argument: Any, _request: _Request) -> str | None:
    """Return what the switch of this node lacks; None when it has all, or is to have none."""
    wanted = argument.get(machine.current().hostname())
    return None if wanted is None else openvswitch.problem(*wanted)


def _user_scripts(argument: Any, _request: _Request) -> list[str]:
    here = paths.current()
    return [path for path in argument if not _executable(here.to_local(path))]


def _oob_paths(argument: Any, _request: _Request) -> list[str | None]:
    """Return, for each program, None or why it cannot be used."""
    found: list[str | None] = []
    for path in argument:
        if not os.path.isfile(path):
            found.append(f"program {path} does not exist")
        else:
            found.append(None if _executable(path) else f"program {path} is not executable")
    return found


def _storage_path(argument: Any, request: _Request) -> str | None:
    """Return why a directory cannot hold the files of disks, or None."""
    path: str = argument
    if not request.vm_capable:
        return None
    try:
        file_storage.check_acceptable(path)
    except errors.FileStoragePathError as err:
        return str(err)
    local = paths.current().to_local(path)
    if not os.path.isdir(local):
        return f"{path} is not a directory"
    if not os.access(local, os.W_OK | os.X_OK):
        return f"directory {path} is not writable"
    return None


def _accepted_paths(argument: Any, _request: _Request) -> list[str]:
    """Return the entries of the list of storage directories which are never allowed.

    Only the node which the argument names checks its list.
    """
    here = paths.current()
    if argument != machine.current().hostname():
        return []
    try:
        with open(here.file_storage_paths_file, encoding="utf-8") as stream:
            entries = file_storage.parse_storage_paths(stream.read())
    except FileNotFoundError:
        return []
    return [
        entry
        for entry in (here.to_virtual(entry) for entry in entries)
        if file_storage.wrong_storage_dir(entry) is not None
    ]


def _client_cert(_argument: Any, _request: _Request) -> list[str | None]:
    """Check the client certificate: ``[None, digest]``, or ``[severity, text]`` of a problem."""
    here = paths.current()
    path = here.noded_client_cert_file
    try:
        pem = x509.read_pem(path)
        x509.verify_signed(pem, x509.read_pem(here.noded_cert_file), path)
        severity, text = x509.check_expiry(pem, clock.now(), path)
    except errors.X509CertError as err:
        return [x509.SEVERITY_ERROR, str(err)]
    if severity is not None:
        return [severity, text]
    return [None, x509.digest(pem, path)]


def _setup(_argument: Any, _request: _Request) -> list[str]:
    """Return what this machine lacks to be a node."""
    problems = [
        f"{directory} is not mounted"
        for directory, probe in (("/proc", "/proc/sys"), ("/sys", "/sys/class/net"))
        if not os.path.isdir(probe)
    ]
    here = paths.current()
    for directory in (here.data_dir, here.run_dir, here.log_dir):
        if not os.access(directory, os.W_OK | os.X_OK):
            problems.append(f"directory {directory} is not writable")
    try:
        missing = users.missing_accounts(users.current())
    except errors.ConfigurationError as err:
        return [*problems, str(err)]
    problems += [f"{here.defaults_file}: {problem}" for problem in missing]
    return problems


def _ssh_setup(argument: Any, _request: _Request) -> list[str]:
    """Compare SSH keys.

    :param argument: ``[authorized keys, known hosts, public keys, candidates]``.
    """
    return ssh_files.problems(argument)


def _ssh_clutter(argument: Any, _request: _Request) -> list[str]:
    """Return SSH keys which name a node and were not distributed; the argument has all names."""
    return ssh_files.clutter(argument)


def _watcher(_argument: Any, _request: _Request) -> list[Any]:
    """Return what the watcher of this node does.

    :returns: ``[runs, seconds since the last complete run or None]``; a run is ``[UUID of its node
        group or "", process, seconds for which it has worked]``. A paused watcher has None.
    """
    here = paths.current()
    runs = [[group, *one] for group, one in sorted(watcher_files.running(here).items())]
    return [
        runs,
        None if _is_paused() else watcher_files.since_complete_s(here.watcher_complete_file),
    ]


def _is_paused() -> bool:
    try:
        until = node_facts.watcher_pause()
    except errors.ParseError:
        return False  # the watcher works as if it was not paused
    return until is not None and until > clock.now()


def _ignored(_argument: Any, _request: _Request) -> None:
    """Return nothing: the names of nodes without guests are an argument for other checks."""


def _executable(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


_NAMES = ht.ListOf(ht.NonEmptyString)
_PATH = ht.Type("absolute path", lambda value: isinstance(value, str) and value[:1] == "/")
_PATHS = ht.ListOf(_PATH)

#: Name of a check -> (type of its argument, function).
_CHECKS: dict[str, tuple[ht.Type, _Check]] = {
    nv.ACCEPTED_STORAGE_PATHS: (ht.NonEmptyString, _accepted_paths),
    nv.BRIDGES: (_NAMES, _bridges),
    nv.CLIENT_CERT: (ht.Any, _client_cert),
    nv.CONFIG_JOURNAL: (ht.Any, _config_journal),
    nv.DAEMON_USER: (ht.Any, _daemon_user),
    nv.FILELIST: (_PATHS, _files),
    nv.HVINFO: (ht.NonEmptyString, _hv_info),
    nv.HVPARAMS: (ht.ListOf(ht.Tuple(ht.Str, ht.NonEmptyString, ht.Dict)), _hvparams),
    nv.HYPERVISOR: (_NAMES, _hypervisors),
    nv.INSTANCELIST: (_NAMES, _instance_list),
    nv.MASTERIP: (ht.Tuple(ht.Str, ht.NonEmptyString), _master_ip),
    nv.NODENETTEST: (
        ht.ListOf(ht.Tuple(ht.NonEmptyString, ht.NonEmptyString, ht.Maybe(ht.Str))),
        _net_test,
    ),
    nv.NODESETUP: (ht.Any, _setup),
    nv.NONVMNODES: (_NAMES, _ignored),
    nv.OOB_PATHS: (_PATHS, _oob_paths),
    nv.OSLIST: (ht.Any, _os_list),
    nv.SSH_CLUTTER: (_NAMES, _ssh_clutter),
    nv.SSH_SETUP: (ht.Tuple(_NAMES, ht.Str, ht.Str, _NAMES), _ssh_setup),
    nv.TIME: (ht.Any, _time),
    nv.OPENVSWITCH: (ht.DictOf(ht.Str, ht.Tuple(ht.Str, ht.Maybe(ht.Str))), _openvswitch),
    nv.USERSCRIPTS: (_PATHS, _user_scripts),
    nv.VERSION: (ht.Any, _version),
    nv.WATCHER: (ht.Any, _watcher),
    **{check.name: (_PATH, _storage_path) for check in disk_templates.directory_checks().values()},
    **verify_storage.CHECKS,
}
