"""The program ``ensure-dirs``: sets the modes and owners of the files and directories of a node.

It runs before the daemons start. It makes directories that are missing, and ignores files that are
missing. The owners follow from the users of the daemons (:mod:`ganeti.platform.users`): each daemon
can read and write the files that it needs, and no other ones. Symbolic links are never followed.
``--full-run`` includes every job file.

Source: Ganeti design 2.2, *Privilege separation*.
"""

from __future__ import annotations

import argparse
import glob
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ganeti import errors
from ganeti.constants import ssconf
from ganeti.constants.cli import EXIT_SUCCESS
from ganeti.platform import paths, users
from ganeti.platform.users import CONFD, DAEMONS, MASTERD, METAD, MOND, NODED, RAPI, Users
from ganeti.tools.entry import reports_errors
from ganeti.utils import fs


class Entry(NamedTuple):
    """A file or directory with its mode; owner and group are roles of :class:`Users`."""

    path: str
    mode: int
    owner: str
    group: str
    directory: bool = False
    make: bool = False  # make an empty file if it is missing


def _dir(path: str, mode: int, owner: str, group: str) -> Entry:
    return Entry(path, mode, owner, group, directory=True)


def table(here: paths.Paths, *, full: bool = False) -> Iterator[Entry]:
    """List all files and directories, each directory before its content.

    :param full: include every job file.
    """
    yield from _data_files(here)
    yield from _queue_files(here)
    if full:
        yield from _jobs(here.queue_dir)
    # The node daemon or the master daemon would make these; they need the right owner before.
    yield Entry(here.master_epoch_lock_file, 0o600, MASTERD, MASTERD, make=True)
    yield Entry(here.config_copy_lock_file, 0o600, MASTERD, MASTERD, make=True)
    yield Entry(here.master_state_file, 0o640, MASTERD, MASTERD)
    # It stays from a master daemon which had another user.
    yield Entry(here.config_serial_file, 0o600, MASTERD, MASTERD)
    yield _dir(here.rapi_data_dir, 0o750, RAPI, MASTERD)
    yield Entry(here.rapi_users_file, 0o640, RAPI, MASTERD)
    yield Entry(here.rapi_roles_file, 0o640, RAPI, MASTERD)
    yield Entry(here.rapi_oidc_file, 0o640, RAPI, MASTERD)
    yield from _run_files(here)
    yield from _logs(here)


def _data_files(here: paths.Paths) -> Iterator[Entry]:
    """Yield the directory of the configuration, the keys and the certificates."""
    yield _dir(here.data_dir, 0o755, MASTERD, MASTERD)
    yield Entry(here.cluster_domain_secret, 0o640, MASTERD, MASTERD)
    yield Entry(here.witness_auth_file, 0o440, MASTERD, MASTERD)
    yield Entry(here.witness_ca_file, 0o440, MASTERD, MASTERD)
    yield Entry(here.cluster_conf_file, 0o640, MASTERD, CONFD)
    # Those which were set aside, too.
    for journal in glob.glob(f"{glob.escape(here.cluster_conf_journal)}*"):
        yield Entry(journal, 0o640, MASTERD, CONFD)
    yield from _own_files(here.cluster_conf_history_dir)
    yield Entry(here.hmac_key, 0o440, CONFD, MASTERD)
    yield Entry(here.known_hosts_file, 0o644, MASTERD, MASTERD)
    yield Entry(here.rapi_cert_file, 0o440, RAPI, MASTERD)
    yield Entry(here.spice_cert_file, 0o440, NODED, MASTERD)
    yield Entry(here.spice_cacert_file, 0o440, NODED, MASTERD)
    yield Entry(here.noded_cert_file, 0o440, MASTERD, MASTERD)
    yield Entry(here.noded_client_cert_file, 0o440, MASTERD, MASTERD)
    yield Entry(here.watcher_pausefile, 0o644, MASTERD, MASTERD)
    if os.path.isdir(here.data_dir):
        for name in fs.list_visible(here.data_dir):
            if name.startswith(ssconf.FILE_PREFIX):
                yield Entry(f"{here.data_dir}/{name}", ssconf.FILE_MODE, NODED, NODED)


def _queue_files(here: paths.Paths) -> Iterator[Entry]:
    """Yield the directories of the job queue and its own files, without the files of jobs."""
    yield _dir(here.queue_dir, 0o750, MASTERD, DAEMONS)
    yield Entry(here.queue_drain_file, 0o644, MASTERD, DAEMONS)
    yield Entry(here.queue_lock_file, 0o640, MASTERD, DAEMONS)
    yield Entry(here.queue_serial_file, 0o640, MASTERD, DAEMONS)
    yield Entry(here.queue_version_file, 0o640, MASTERD, DAEMONS)
    yield _dir(here.queue_archive_dir, 0o750, MASTERD, DAEMONS)
    if os.path.isdir(here.queue_dir):
        for name in fs.list_visible(here.queue_dir):
            if name.startswith("journal-"):
                yield Entry(f"{here.queue_dir}/{name}", 0o640, MASTERD, DAEMONS)


def _run_files(here: paths.Paths) -> Iterator[Entry]:
    """Yield the directory of what does not outlast a start of the machine."""
    yield _dir(here.run_dir, 0o1775, MASTERD, DAEMONS)
    yield _dir(here.socket_dir, 0o1770, MASTERD, DAEMONS)
    yield Entry(here.master_socket, 0o660, MASTERD, DAEMONS)
    yield Entry(here.query_socket, 0o660, MASTERD, DAEMONS)
    yield Entry(here.metad_socket, 0o600, METAD, DAEMONS)
    yield _dir(here.livelock_dir, 0o750, MASTERD, DAEMONS)
    yield _dir(here.bdev_cache_dir, 0o755, NODED, MASTERD)
    yield _dir(here.uid_pool_dir, 0o750, NODED, MASTERD)
    yield _dir(here.instance_disks_dir, 0o755, NODED, MASTERD)
    yield _dir(here.disk_locks_dir, 0o700, NODED, MASTERD)
    yield _dir(here.node_work_dir, 0o700, NODED, MASTERD)
    yield _dir(here.crypto_keys_dir, 0o700, NODED, MASTERD)
    yield _dir(here.import_export_dir, 0o755, NODED, MASTERD)
    yield _dir(here.instance_reason_dir, 0o755, NODED, NODED)


def _logs(here: paths.Paths) -> Iterator[Entry]:
    """Yield the log files and their directories."""
    yield _dir(here.log_dir, 0o1770, MASTERD, DAEMONS)
    for daemon, role in (
        ("ganeti-masterd", MASTERD),
        ("ganeti-confd", CONFD),
        ("ganeti-noded", NODED),
        ("ganeti-kvmd", NODED),
        ("ganeti-failoverd", NODED),
        ("ganeti-watchdogd", NODED),
        ("ganeti-rapi", RAPI),
        ("ganeti-mond", MOND),
    ):
        yield Entry(here.log_file(daemon), 0o600, role, MASTERD)
    yield Entry(here.mond_access_log_file, 0o600, MOND, MASTERD)
    yield Entry(here.log_file("ganeti-metad"), 0o600, METAD, METAD)
    yield Entry(here.metad_access_log_file, 0o600, METAD, METAD)
    yield Entry(here.log_jobs_file, 0o600, MASTERD, MASTERD)
    yield Entry(here.log_audit_file, 0o600, MASTERD, MASTERD)
    # All users who may run commands write to it.
    yield Entry(here.log_commands_file, 0o660, MASTERD, DAEMONS)
    yield Entry(here.rapi_access_log_file, 0o600, RAPI, MASTERD)
    for path in (here.log_os_dir, here.log_xen_dir, here.log_kvm_dir, here.log_lxc_dir):
        yield _dir(path, 0o750, NODED, DAEMONS)


def _own_files(directory: str) -> Iterator[Entry]:
    """Yield a directory of the master daemon and its files, which no other daemon reads."""
    if os.path.isdir(directory):
        yield _dir(directory, 0o700, MASTERD, MASTERD)
        for name in fs.list_visible(directory):
            yield Entry(f"{directory}/{name}", 0o600, MASTERD, MASTERD)


def _jobs(queue_dir: str) -> Iterator[Entry]:
    for top, directories, names in os.walk(queue_dir):
        for name in directories:
            yield _dir(f"{top}/{name}", 0o750, MASTERD, DAEMONS)
        for name in names:
            if name.startswith("job-"):
                yield Entry(f"{top}/{name}", 0o640, MASTERD, DAEMONS)


def apply(entry: Entry, who: Users) -> bool:
    """Make one path if it is missing, and set its mode and owner.

    :returns: whether anything was changed.
    :raises ConfigurationError: a directory is a file or the reverse, or the owner does not exist.
    :raises OSError: the path cannot be changed.
    """
    uid, gid = users.ids(who.roles[entry.owner].user, who.group(entry.group))
    try:
        # Links are not followed, because other users can make them in their directories.
        fd = os.open(entry.path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        if entry.directory:
            fs.make_dirs(entry.path, entry.mode, uid=uid, gid=gid)
        elif entry.make:
            fs.make_dirs(os.path.dirname(entry.path))
            fs.write_file(entry.path, "", mode=entry.mode, uid=uid, gid=gid)
        return entry.directory or entry.make
    try:
        found = os.fstat(fd)
        if stat.S_ISLNK(found.st_mode) or stat.S_ISDIR(found.st_mode) != entry.directory:
            wanted = "directory" if entry.directory else "file"
            raise errors.ConfigurationError(f"{entry.path} is not a {wanted}")
        changed = False
        # This refers to the open file, even if another user replaces the path now.
        name = f"/proc/self/fd/{fd}"
        if (uid not in (-1, found.st_uid)) or (gid not in (-1, found.st_gid)):
            os.chown(name, uid, gid)
            changed = True
        # Changing the owner may have cleared bits, so the mode comes second.
        if stat.S_IMODE(os.fstat(fd).st_mode) != entry.mode:
            os.chmod(name, entry.mode)
            changed = True
        return changed
    finally:
        os.close(fd)


def ensure(here: paths.Paths, who: Users, *, full: bool = False) -> list[str]:
    """Set the modes and owners of all files and directories of a node.

    :param full: include every job file.
    :returns: the paths which were changed.
    :raises ConfigurationError: see :func:`apply`; the paths before were changed.
    :raises OSError: see :func:`apply`.
    """
    return [entry.path for entry in table(here, full=full) if apply(entry, who)]


def make_parser() -> argparse.ArgumentParser:
    """Describe the options of the program."""
    parser = argparse.ArgumentParser(
        prog="ensure-dirs", description="Set modes and owners of the files of this node."
    )
    parser.add_argument(
        "-d", "--debug", action="count", default=0, help="print the paths that were changed"
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print the paths that were changed"
    )
    parser.add_argument("-f", "--full-run", action="store_true", help="include every job file")
    return parser


@reports_errors("ensure-dirs")
def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    options = make_parser().parse_args(argv)
    changed = ensure(paths.current(), users.current(), full=options.full_run)
    if options.verbose or options.debug:
        for path in changed:
            print(path)
    return EXIT_SUCCESS


if __name__ == "__main__":
    sys.exit(main())
