"""Transfers of disks from or to this node, and the keys for them.

A transfer is a separate process (:mod:`ganeti.helpers.import_export`), which continues when the
node daemon is restarted. A directory below ``RUN_DIR/import-export``, which only root may read,
has its process number, its status, the certificate which it trusts, and the secret word of the
transfer (magic). The master names a transfer by the name of this directory.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from ganeti import errors, storage
from ganeti.backend.backup import exports
from ganeti.backend.instance import os as os_definitions
from ganeti.backend.registry import attempt, serves
from ganeti.constants.cli import EXIT_FAILURE
from ganeti.objects import codec
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance
from ganeti.objects.transfer import ImportExportOptions, ImportExportStatus
from ganeti.platform import machine, paths
from ganeti.storage import busy, node_work
from ganeti.utils import clock, fs, process, shortage, text, x509
from ganeti.wire import json
from ganeti.wire.calls import backup as calls

_STATUS, _PID, _CA, _MAGIC = "status", "pid", "ca", "magic"
_KEY, _CERT = "key", "cert"
_EXPORT, _IMPORT = "export", "import"

_NAME = re.compile(r"^[a-zA-Z0-9][a-zA-Z0-9._-]*$")
_DAY_S = 86400
_MIB = 1 << 20
_LONGEST_VALIDITY_S = 100 * 365 * _DAY_S
# Inside a cluster connections are quick; between clusters a person may pass on the addresses.
_LOCAL_TIMEOUT_S = 60
_REMOTE_ATTEMPT_S = 20
_REMOTE_RETRIES = 10
# Who waits for a transfer reads its last status within seconds. What is older than this when its
# process has ended is that of a dead master.
_STALE_S = 3600.0
# The same for keys, which the master uses until all disks have been sent.
_STALE_KEYS_S = 2 * _DAY_S
# Time for an aborted process to end, in seconds.
_ABORT_S = 5.0
_ABORT_POLL_S = 0.05


# -- keys ----------------------------------------------------------------------------------------


@serves(calls.X509_CERT_CREATE)
def x509_cert_create(validity_s: int) -> list[str]:
    """Make a key and a certificate for transfers.

    :returns: the name of the key, and the certificate in PEM. The key stays on this node.
    :raises ParameterError: a certificate cannot be valid for so long.
    """
    if not 0 < validity_s <= _LONGEST_VALIDITY_S:
        raise errors.ParameterError(
            f"a certificate for transfers is valid for 1 to {_LONGEST_VALIDITY_S} seconds"
        )
    here = paths.current()
    fs.make_dirs(here.crypto_keys_dir, 0o700)
    _purge(_old(here.crypto_keys_dir, _STALE_KEYS_S))
    name = f"x509-{time.strftime('%Y%m%d%H%M%S', time.gmtime())}-{secrets.token_hex(6)}"
    days = max(1, -(-validity_s // _DAY_S))
    # Version 3.0 of the original wants the common name, version 3.1 the name of this machine.
    names = [x509.DEFAULT_COMMON_NAME, machine.current().hostname()]
    pem = x509.create_self_signed(validity_days=days, host_names=names)
    certificate = x509.certificate_part(pem)
    directory = _crypto_dir(name)
    os.mkdir(directory, 0o700)
    # No transfer survives a crash of the machine, so that nothing has to be flushed.
    fs.write_file(f"{directory}/{_KEY}", pem.replace(certificate, ""), mode=0o400, sync=False)
    fs.write_file(f"{directory}/{_CERT}", certificate, mode=0o400, sync=False)
    return [name, certificate]


@serves(calls.X509_CERT_REMOVE)
def x509_cert_remove(name: str) -> None:
    """Remove a key and its certificate; a missing key is not an error."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(_crypto_dir(name))


def leftovers() -> Iterator[str]:
    """Yield the directories of transfers which have ended, and for which nobody waits."""
    return _old(paths.current().import_export_dir, _STALE_S)


def _old(directory: str, age_s: float) -> Iterator[str]:
    """Yield the old directories below a directory, unless their process still runs."""
    limit = clock.now() - age_s
    for name in fs.list_visible(directory) if os.path.isdir(directory) else ():
        path = f"{directory}/{name}"
        with contextlib.suppress(FileNotFoundError):
            if os.path.getmtime(path) < limit and not process.is_alive(_pid(path)):
                yield path


def _purge(found: Iterable[str]) -> None:
    """Remove directories."""
    for path in found:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)
            logging.info("removed the old directory %s", path)


def _crypto_dir(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise errors.OpExecError(f"{name!r:.80} is not the name of a key")
    return f"{paths.current().crypto_keys_dir}/{name}"


# -- starting ------------------------------------------------------------------------------------


class _Endpoint(NamedTuple):
    """Source or target of a transfer: arguments, the environment of its script, and the disk."""

    words: list[str]
    env: dict[str, str]
    disk: Disk | None = None


@serves(calls.IMPORT_START)
def import_start(
    options: ImportExportOptions, instance: FilledInstance, component: str, target: tuple[str, Any]
) -> str:
    """Start a transfer which listens for data; its status has the port."""
    endpoint = _endpoint(_IMPORT, instance, component, target)
    words = ["--bind", _address_to_bind(options)]
    words += ["--connect-timeout", str(options.connect_timeout or _LOCAL_TIMEOUT_S)]
    return _start(_IMPORT, options, instance, component, words, endpoint)


@serves(calls.EXPORT_START)
def export_start(
    options: ImportExportOptions,
    host: str,
    port: int,
    instance: FilledInstance,
    component: str,
    source: tuple[str, Any],
) -> str:
    """Start a transfer which sends data to a listening one."""
    _require_plain("host", host)
    if not 0 < port < 1 << 16:
        raise errors.ParameterError("the port of the other end is not a number from 1 to 65535")
    endpoint = _endpoint(_EXPORT, instance, component, source)
    words = ["--host", host, "--port", str(port)]
    if options.connect_timeout is None:
        words += ["--connect-timeout", str(_LOCAL_TIMEOUT_S)]
    else:
        words += [
            "--connect-timeout",
            str(_REMOTE_ATTEMPT_S),
            "--connect-retries",
            str(_REMOTE_RETRIES),
        ]
    return _start(_EXPORT, options, instance, component, words, endpoint)


def _check(options: ImportExportOptions, component: str) -> None:
    """Check what becomes a part of a command line, of a file or of its name.

    :raises ParameterError: it cannot; nothing was done.
    """
    _require_plain("component", component)
    for name in ("compress", "key_name"):
        _require_plain(name, getattr(options, name) or "")
    if not options.key_name or not options.ca_pem:
        # Every node has the key of the cluster's certificate, so that it proves nothing.
        raise errors.ParameterError(
            "a transfer needs a key of its own and the certificate of the other end. The master is"
            " of an older version, which used the certificate of the cluster; update it."
        )
    if not options.ca_pem.isascii():
        raise errors.ParameterError("the certificate of the other end is not a PEM text")
    if options.magic is not None and not text.is_transfer_magic(options.magic):
        raise errors.ParameterError("the magic word of a transfer has a wrong form")
    timeout_s = options.connect_timeout
    if timeout_s is not None and not 0 < timeout_s <= _DAY_S:
        raise errors.ParameterError(
            f"the other end can have 1 to {_DAY_S} seconds to connect, no other time"
        )


def _require_plain(what: str, value: str) -> None:
    if not (value.isascii() and value.isprintable()) or value.startswith("-"):
        raise errors.ParameterError(f"{what} {value!r:.80} of a transfer has a wrong form")


def _address_to_bind(options: ImportExportOptions) -> str:
    return "::" if options.ipv6 else "0.0.0.0"  # noqa: S104 - certificates decide who may send


def _endpoint(
    mode: str, instance: FilledInstance, component: str, what: tuple[str, Any]
) -> _Endpoint:
    kind, detail = what
    if kind == calls.FILE:
        path = exports.local_path(detail)
        if mode == _IMPORT:
            fs.make_dirs(os.path.dirname(path), 0o750)
            return _Endpoint(["--file", path, "--receipt"], {})
        if not os.path.isfile(path):
            raise errors.OpExecError(f"file {path} does not exist")
        sha256 = exports.recorded_checksum(path)
        return _Endpoint(["--file", path, *(["--expected-sha256", sha256] if sha256 else [])], {})
    if kind == calls.RAW:
        return _raw(mode, detail)
    disk, index = detail
    return _script(mode, instance, component, disk, index)


def _device_path(mode: str, disk: Disk) -> str:
    """Return the path of the device of a disk.

    :raises BlockDeviceError: the disk is to be read, and may lack writes which were confirmed.
    """
    device = storage.device(disk)
    if mode == _EXPORT:
        if disk.is_volume:
            # A snapshot of a volume is not activated with it.
            device.assemble()
        device.require_latest_data()
    return device.path


def _raw(mode: str, disk: Disk) -> _Endpoint:
    path = _device_path(mode, disk)
    words = ["--device", path]
    if mode == _EXPORT:
        size = _content_bytes(disk)
        words += ["--bytes", str(size), "--expected-size", f"{size / _MIB:.3f}"]
    return _Endpoint(words, {}, disk)


def _content_bytes(disk: Disk) -> int:
    """Return how many bytes of its device belong to a disk.

    The device of the administrator, or an image, may end within a MiB, and the end of a disk has
    the second copy of its partition table. LVM makes volumes larger than what uses them.

    :raises BlockDeviceError: the device is smaller than the disk.
    """
    device = storage.device(disk)
    size = device.size_bytes()
    if -(-size // _MIB) < disk.size:
        raise device.fail(f"has {size} bytes, fewer than the {disk.size} MiB of the disk")
    return min(size, disk.size * _MIB)


@serves(calls.EXPORT_SIZES)
def export_sizes(instance: FilledInstance, disks: Sequence[Disk]) -> list[int | None | Exception]:
    """Return how many bytes the export of each disk will have; None when a script makes its data.

    A disk which is not active has the size that is recorded.
    """
    definition = os_definitions.require(instance.os) if instance.os else None
    if definition is not None and definition.export_script is not None:
        return [None] * len(disks)
    return [attempt(_export_bytes, disk) for disk in disks]


def _export_bytes(disk: Disk) -> int:
    try:
        return _content_bytes(disk)
    except errors.BlockDeviceError:
        return disk.size * _MIB


def _script(
    mode: str, instance: FilledInstance, component: str, disk: Disk, index: int
) -> _Endpoint:
    """Use the script of the OS definition; without one, copy the disk as it is."""
    definition = os_definitions.require(instance.os) if instance.os else None
    script = None
    if definition is not None:
        script = definition.export_script if mode == _EXPORT else definition.import_script
    if definition is None or script is None:
        return _raw(mode, disk)
    path = _device_path(mode, disk)
    prefix = mode.upper()
    env = os_definitions.instance_env(definition, instance)
    env |= {f"{prefix}_DEVICE": path, f"{prefix}_DISK_PATH": path, f"{prefix}_INDEX": str(index)}
    uri = storage.device(disk).uri(instance.hypervisor)
    if uri is not None:
        env[f"{prefix}_DISK_URI"] = uri
    directory = paths.current().log_os_dir
    fs.make_dirs(directory, 0o750)
    log = os_definitions.log_name(
        mode, instance.os, f"{instance.name}-{component.replace('/', '_')}", time.localtime()
    )
    return _Endpoint(["--script", script, "--log", f"{directory}/{log}"], env, disk)


def _start(
    mode: str,
    options: ImportExportOptions,
    instance: FilledInstance,
    component: str,
    words: list[str],
    endpoint: _Endpoint,
) -> str:
    _check(options, component)
    here = paths.current()
    fs.make_dirs(here.import_export_dir, 0o755)
    _purge(leftovers())
    safe = re.sub(r"[^a-zA-Z0-9._-]", "_", f"{mode}-{instance.name}-{component}")
    name = f"{safe}-{secrets.token_hex(6)}"
    directory = _directory(name)
    os.mkdir(directory, 0o700)
    try:
        argv = [
            sys.executable,
            "-m",
            "ganeti.helpers.import_export",
            f"{directory}/{_STATUS}",
            mode,
            *_credentials(options, directory),
            "--ipv6" if options.ipv6 else "--ipv4",
            "--compress",
            options.compress or "none",
            *words,
            *endpoint.words,
        ]
        if options.magic is not None:
            # Every user of the machine can read command lines.
            fs.write_file(f"{directory}/{_MAGIC}", options.magic, mode=0o400, sync=False)
            argv += ["--magic-file", f"{directory}/{_MAGIC}"]
        logging.info("starting transfer %s: %s", name, process.show(argv))
        disks = [] if endpoint.disk is None else [endpoint.disk]
        # The process inherits the lock of its disk, and keeps it until it ends.
        with busy.working_on(*disks, doing=f"in use by an {mode}") as work:
            argv += [word for fd in work.fds for word in ("--lock-fd", str(fd))]
            pid = _spawn(argv, endpoint.env, work.fds)
            node_work.started_transfer(name)
        fs.write_file(f"{directory}/{_PID}", f"{pid}\n", mode=0o600, sync=False)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return name


def _credentials(options: ImportExportOptions, directory: str) -> list[str]:
    assert options.key_name is not None and options.ca_pem is not None
    key_dir, ca_file = _crypto_dir(options.key_name), f"{directory}/{_CA}"
    if not os.path.exists(f"{key_dir}/{_KEY}"):
        raise errors.OpExecError(f"there is no key {options.key_name} on this node")
    fs.write_file(ca_file, options.ca_pem, mode=0o400, sync=False)
    return ["--key", f"{key_dir}/{_KEY}", "--cert", f"{key_dir}/{_CERT}", "--ca", ca_file]


def _spawn(argv: list[str], script_env: dict[str, str], keep_fds: Sequence[int]) -> int:
    """Start a process which continues when this process ends.

    :param keep_fds: files which it inherits.
    """
    env = {**os.environ, **script_env}
    # The program is a module of this package.
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    process.require_possible(argv, argv, env)
    start = partial(
        subprocess.Popen,
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        env=env,
        pass_fds=keep_fds,
    )
    child = shortage.outlast(start, timeout_s=process.SHORTAGE_S, what="starting a transfer")
    # No process waits for it: this process answers the call and ends.
    child.returncode = 0
    return child.pid


# -- watching and ending -------------------------------------------------------------------------


def _directory(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise errors.OpExecError(f"{name!r:.80} is not the name of a transfer")
    return f"{paths.current().import_export_dir}/{name}"


@serves(calls.IMPEXP_STATUS)
def impexp_status(names: list[str]) -> list[ImportExportStatus | None]:
    """Return the status of transfers; None for an unknown one, or one without a status yet."""
    return [_status(name) for name in names]


def _status(name: str) -> ImportExportStatus | None:
    directory = _directory(name)
    alive = process.is_alive(_pid(directory))
    # In this order, so that the last status of an ended process is read.
    try:
        status = codec.from_any_release(
            ImportExportStatus, json.loads(fs.read_file(f"{directory}/{_STATUS}"))
        )
    except FileNotFoundError:
        status = None
    if alive or (status is not None and status.exit_status is not None):
        return status
    if not os.path.isdir(directory):
        return None
    return ImportExportStatus(
        exit_status=EXIT_FAILURE,
        error_message="its process ended without a reason",
        connected=bool(status and status.connected),
        ctime=clock.now(),
        mtime=clock.now(),
    )


def _pid(directory: str) -> int:
    try:
        return int(fs.read_file(f"{directory}/{_PID}"))
    except (FileNotFoundError, ValueError):
        return 0


@serves(calls.IMPEXP_ABORT)
def impexp_abort(name: str) -> None:
    """Ask a transfer to end; an ended transfer is not an error."""
    pid = _pid(_directory(name))
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


@serves(calls.IMPEXP_CLEANUP)
def impexp_cleanup(name: str) -> None:
    """End a transfer with its scripts, and remove its directory.

    The scripts may have survived the process of the transfer; they hold the lock of the disk.
    """
    directory = _directory(name)
    pid = _pid(directory)
    if pid:
        _end(pid)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(directory)


def _end(pid: int) -> None:
    """End all processes of a transfer, whose process leads the group which they belong to."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + _ABORT_S
        while process.group_members(pid) and time.monotonic() < deadline:
            time.sleep(_ABORT_POLL_S)
