"""The program ``ganeti-cleaner``: removes files which nobody needs any more.

A timer starts it once a day on every node, with ``node`` and with ``master``. ``node`` removes old
keys and certificates of transfers, old logs of commands and consoles, and the files of processes
which were killed. ``master`` removes jobs
which were archived long ago; a node which is not the master keeps its copies one day longer, so
that a copy never lacks a job which the master still has.

Source: ganeti-cleaner(8).
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Iterable, Iterator, Sequence

from ganeti import errors, hypervisor
from ganeti.backend import leftovers
from ganeti.config.ssconf import SimpleStore
from ganeti.hypervisor import console_log
from ganeti.jobstore import files
from ganeti.platform import machine, paths
from ganeti.tools.entry import reports_errors
from ganeti.utils import clock, fs, log, x509
from ganeti.utils.filelock import FileLock

NAME = "ganeti-cleaner"
#: Days for which archived jobs and logs are kept.
KEEP_DAYS = 21

_DAY_S = 86400
# Keys of transfers without a certificate that can be read.
_KEEP_KEYS_S = 7 * _DAY_S
_CERTIFICATE = "cert"

_log = logging.getLogger(__name__)


@reports_errors(NAME)
def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    options = make_parser().parse_args(argv)
    here = paths.current()
    try:
        log.setup(NAME, logfile=here.log_file(NAME), debug=options.debug, stderr=True)
        if not os.path.exists(here.noded_cert_file):
            return 0
        with FileLock(here.cleaner_lock_file) as lock:
            lock.acquire(timeout_s=0)
            return clean(options.part, dry_run=options.dry_run)
    except errors.LockError:
        _log.info("another %s is running; nothing was done", NAME)
        return 0


def make_parser() -> argparse.ArgumentParser:
    """Describe the options of the program."""
    parser = argparse.ArgumentParser(
        prog=NAME,
        description="Remove old archived jobs, keys and certificates of transfers, and logs of"
        " commands.",
        epilog="Example: ganeti-cleaner --dry-run node",
    )
    parser.add_argument("-d", "--debug", action="count", default=0, help="log more, and also here")
    parser.add_argument(
        "-n",
        "--dry-run",
        action="store_true",
        help="print what would be removed, and remove nothing",
    )
    parser.add_argument(
        "part",
        choices=("node", "master"),
        help="node: keys, certificates and logs of this node; master: old archived jobs",
    )
    return parser


def clean(part: str, *, dry_run: bool, now: float | None = None) -> int:
    """Remove what is too old.

    :param part: ``node`` or ``master``.
    :param now: seconds since 1970; None for the present time.
    :returns: 1 when something could not be removed, else 0.
    """
    here = paths.current()
    present = clock.now() if now is None else now
    if part == "node":
        found = [
            *_old_keys(here.crypto_keys_dir, present),
            *_old_files([*_logs(here), *_console_logs()], present - KEEP_DAYS * _DAY_S),
            *(
                link
                for directory in console_log.link_directories()
                for link in _dangling_links(directory)
            ),
            *leftovers.found(),
            *(path for place in _state_directories(here) for path in fs.abandoned_files(place)),
        ]
    else:
        days = KEEP_DAYS if _is_master() else KEEP_DAYS + 1
        found = list(_old_files(_archived_jobs(here), present - days * _DAY_S))
    return _remove(found, dry_run=dry_run)


def _is_master() -> bool:
    return SimpleStore(paths.current()).master_node().lower() == machine.current().hostname()


def _old_keys(directory: str, now: float) -> Iterator[str]:
    """Yield the directories with keys and certificates of transfers which are not valid any
    more.
    """
    for name in _list(directory):
        path = f"{directory}/{name}"
        try:
            pem = fs.read_file(f"{path}/{_CERTIFICATE}")
            expired = x509.describe(pem, f"{path}/{_CERTIFICATE}").not_after < now
        except (OSError, errors.X509CertError):
            expired = _changed(path) < now - _KEEP_KEYS_S
        if expired:
            yield path


def _logs(here: paths.Paths) -> Iterator[str]:
    """Yield the logs of OS scripts, transfers and external storage: one file for each command."""
    for directory in (here.log_os_dir, here.log_extstorage_dir):
        for name in _list(directory):
            yield f"{directory}/{name}"


def _console_logs() -> list[str]:
    """Return the logs of consoles which belong to no guest that runs here."""
    running = [
        guest for name in hypervisor.known() for guest in hypervisor.of(name).list_instances()
    ]
    return console_log.unused(running)


def _dangling_links(directory: str) -> Iterator[str]:
    """Links to logs of consoles which were removed."""
    for name in _list(directory):
        path = f"{directory}/{name}"
        if os.path.islink(path) and not os.path.exists(path):
            yield path


def _state_directories(here: paths.Paths) -> Iterator[str]:
    """Yield the directories with the state of the cluster, which processes replace atomically."""
    yield here.data_dir
    for directory in (here.data_dir, here.queue_archive_dir):
        for name in _list(directory):
            path = f"{directory}/{name}"
            if os.path.isdir(path) and not os.path.islink(path):
                yield path


def _archived_jobs(here: paths.Paths) -> Iterator[str]:
    for part in _list(here.queue_archive_dir):
        directory = f"{here.queue_archive_dir}/{part}"
        for name in _list(directory):
            if files.job_id_of(name) is not None:
                yield f"{directory}/{name}"


def _list(directory: str) -> list[str]:
    try:
        return fs.list_visible(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _old_files(candidates: Iterable[str], limit: float) -> Iterator[str]:
    """Yield the regular files which were changed last before a time in seconds since 1970."""
    for path in candidates:
        if os.path.isfile(path) and not os.path.islink(path) and _changed(path) < limit:
            yield path


def _changed(path: str) -> float:
    """When a file was changed last; a missing file counts as changed just now."""
    try:
        return os.lstat(path).st_mtime
    except FileNotFoundError:
        return float("inf")


def _remove(found: Sequence[str], *, dry_run: bool) -> int:
    failed = 0
    for path in found:
        if dry_run:
            print(path)
            continue
        try:
            leftovers.remove(path)
            _log.debug("removed %s", path)
        except OSError as err:
            failed += 1
            _log.error("cannot remove %s: %s", path, err.strerror)
    if found and not dry_run:
        _log.info("removed %d files and directories", len(found) - failed)
    return 1 if failed else 0
