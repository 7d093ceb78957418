"""What the steps of an upgrade do, on this master and over SSH on the other nodes."""

from __future__ import annotations

import contextlib
import os
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence

from ganeti import errors
from ganeti.cli.remote import NodeFailed, RemoteNode, RemoteNodes
from ganeti.cli.verify_errors import parse_verify
from ganeti.config import releases
from ganeti.constants import job
from ganeti.luxi import client as luxi
from ganeti.platform import paths, versions
from ganeti.runbook import commands, quiet
from ganeti.upgrading.record import Record
from ganeti.utils import fs, process
from ganeti.wire import json

_PAUSE_S = 24 * 3600.0
_POLL_S = 1.0
# A master daemon which has just been started loads its configuration and its queue.
_ANSWER_S = 120.0
_DAEMON_UTIL = "daemon-util"


class Programs:
    """The programs of the versions which are installed on this node.

    :param known: the versions, by name.
    """

    def __init__(self, known: dict[str, versions.Version]) -> None:
        self._known = known

    def path(self, series: str, name: str) -> str:
        """Return the path of a program of a version.

        :raises ConfigurationError: the version is not installed on this node.
        """
        version = self._known.get(series)
        if version is None:
            raise errors.ConfigurationError(
                f"version {series} is not installed on this node;"
                f" {versions.known_text(self._known)}"
            )
        return version.program(name)


class ClusterWork:
    """The steps on a cluster.

    :param known: how each node is reached.
    :param programs: the programs of both versions, at the same paths on all nodes.
    :param connect: makes a client of the master daemon.
    :param say: prints a line for people.
    :param pause: waits for seconds.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        known: dict[str, RemoteNode],
        programs: Programs,
        *,
        connect: Callable[[], luxi.Client],
        say: Callable[[str], object] = print,
        pause: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._known = known
        self._nodes = RemoteNodes(known)
        self._programs = programs
        self._connect = connect
        self._say = say
        self._pause = pause
        self._clock = clock

    # -- programs ----------------------------------------------------------------------------------

    def _command(self, series: str, name: str, *argv: str, check: bool = True) -> process.Completed:
        """Run a program of a version on this node.

        :raises OpExecError: it cannot be started; with ``check``, it failed.
        """
        return commands.run(
            [self._programs.path(series, name), *argv],
            shown=process.show([name, *argv]),
            check=check,
        )

    def _util(self, names: Sequence[str], series: str, *argv: str) -> None:
        """Run ``daemon-util`` of a version on nodes, at the same time.

        :raises OpExecError: it failed on a node; the message has the reasons of all.
        """
        program = self._programs.path(series, _DAEMON_UTIL)

        def one(name: str) -> str:
            try:
                self._nodes.run(name, [self._known[name].path(program), *argv])
            except NodeFailed as err:
                return f"{name}: {err}"
            return ""

        failed = [text for _name, text in self._nodes.each(names, one) if text]
        if failed:
            raise errors.OpExecError("\n".join(["", *failed]))

    # -- before ------------------------------------------------------------------------------------

    def _found(self, series: str) -> dict[str, str]:
        done = self._command(series, "gnt-cluster", "verify", "--error-codes", check=False)
        return parse_verify(done.stdout)

    def inspect(self, record: Record) -> None:
        """Record what verification finds before anything is changed."""
        found = self._found(record.origin)
        quiet.say_findings(found, self._say)
        record.verified = tuple(found)

    def drain(self, record: Record) -> None:
        """Pause the watcher and drain the queue; return when no job is left.

        :raises GenericError: the master daemon does not answer.
        """
        client = self._connect()
        client.set_watcher_pause(self._clock() + _PAUSE_S)
        client.set_queue_drain_flag(True)

        def unfinished() -> list[str]:
            rows = client.query_jobs(None, ["id", "status"])
            return [str(number) for number, status in rows if status not in job.FINALIZED]

        quiet.wait_for_jobs(unfinished, self._say, self._pause, _POLL_S)

    def stop(self, record: Record) -> None:
        """Stop the daemons on all nodes: first those which would move the role of the master.

        :raises OpExecError: a daemon cannot be stopped, or a node is not reached.
        """
        names = list(record.nodes)
        # After an interruption, machines may have started daemons of either version.
        switched = "switch" in (*record.done, record.step)
        for series in (record.origin, *([record.target] if switched else [])):
            self._util(names, series, "stop", "ganeti-failoverd")
            self._util([record.master], series, "stop-master")
            self._util(names, series, "stop-all")

    def backup(self, record: Record) -> None:
        """Archive the data of the master in ``/var/backups/ganeti``; the archive is kept.

        :raises OpExecError: it cannot be written.
        """
        here = paths.current()
        directory = archive_dir()
        path = f"{directory}/{record.number}-{record.origin}-to-{record.target}.tar.gz"
        if os.path.exists(path):
            return
        try:
            fs.make_dirs(directory, 0o700)
            write_archive(path, here.data_dir, leave_out=_not_archived())
        except OSError as err:
            raise errors.OpExecError(f"cannot write {path}: {err.strerror or err}") from err
        except tarfile.TarError as err:
            raise errors.OpExecError(f"cannot write {path}: {err}") from err
        self._say(f"  {path}")

    def convert_back(self, record: Record) -> None:
        """Give the configuration the form of the earlier version, which says what it can read.

        :raises OpExecError: it has settings which the earlier version does not have.
        """
        facts = self.facts(record.target)
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as stream:
            stream.write(releases.facts_text(facts))
            stream.flush()
            self._command(
                record.origin, "cfgupgrade", "-f", "--no-verify", f"--back-to={stream.name}"
            )

    def facts(self, series: str) -> releases.Facts:
        """Ask a version which is installed here what it can read.

        :raises OpExecError: it does not say that.
        """
        done = self._command(series, "cfgupgrade", "--facts")
        try:
            return releases.parse_facts(done.stdout)
        except errors.ParseError as err:
            raise errors.OpExecError(f"cfgupgrade --facts of version {series}: {err}") from err

    def switch(self, record: Record) -> None:
        """Let all nodes use the other version, the master last.

        :raises OpExecError: the link of a node cannot be changed.
        """
        others = [name for name in record.nodes if name != record.master]
        for names in (others, [record.master]):
            self._util(names, record.target, "use-version", record.target)

    # -- after -------------------------------------------------------------------------------------

    def convert(self, record: Record) -> None:
        """Give the configuration the form of the later version.

        :raises OpExecError: it cannot be converted; nothing was written.
        """
        self._command(record.target, "cfgupgrade", "-f", "--no-verify")

    def start(self, record: Record) -> None:
        """Start the daemons on all nodes, on the master last; those which run are replaced.

        :raises OpExecError: a daemon does not start, or one which runs does not end.
        """
        others = [name for name in record.nodes if name != record.master]
        for names in (others, [record.master]):
            # One which runs was started by its machine, maybe as the other version.
            self._util(names, record.target, "stop-all")
            self._util(names, record.target, "start-all")

    def serve(self, record: Record) -> None:
        """Open the queue, and distribute the configuration.

        :raises GenericError: the master daemon does not answer, or the job failed.
        """
        self._wait_for_master().set_queue_drain_flag(False)
        self._command(record.target, "gnt-cluster", "redist-conf")
        if record.stopped_at:
            without_s = self._clock() - record.stopped_at
            self._say(f"  the cluster was without a master for {without_s:.0f} s")

    def _wait_for_master(self) -> luxi.Client:
        def ask() -> luxi.Client:
            client = self._connect()
            client.query_cluster_info()
            return client

        return quiet.wait_for_master(ask, self._pause, _POLL_S, _ANSWER_S)

    def verify(self, record: Record) -> None:
        """Check that all daemons have the version, and that verification finds nothing new.

        :raises OpExecError: a daemon is older than the change of its node's version, a node does
            not answer, or verification finds more than before.
        """
        wrong = []
        for name, answer in self.versions_of(list(record.nodes), record.target).items():
            if isinstance(answer, str):
                wrong.append(f"{name}: {answer}")
            elif isinstance(older := answer.get("older_daemons"), list) and older:
                wrong.append(
                    f"{name}: these daemons were started before the node was switched:"
                    f" {' '.join(map(str, older))}. Restart each of them there, with"
                    f" 'daemon-util restart {older[0]}'"
                )
        if wrong:
            raise errors.OpExecError("\n".join(["", *wrong]))
        found = self._found(record.target)
        quiet.require_nothing_new(found, record.verified, (), self._say)

    def finish(self, record: Record) -> None:
        """Let the queue and the watcher be as they were before.

        :raises GenericError: the master daemon does not answer.
        """
        client = self._connect()
        still = record.paused_until > self._clock()
        client.set_watcher_pause(record.paused_until if still else None)
        if record.was_drained:
            client.set_queue_drain_flag(True)

    # -- other uses --------------------------------------------------------------------------------

    def versions_of(self, names: Sequence[str], series: str) -> dict[str, dict[str, object] | str]:
        """Ask nodes for their versions.

        :param series: a version which should be on all of them; its program answers.
        :returns: name of a node -> ``active`` and ``installed``, or a text: why it has no answer.
        """
        program = self._programs.path(series, _DAEMON_UTIL)

        def ask(name: str) -> dict[str, object] | str:
            try:
                done = self._nodes.run(name, [self._known[name].path(program), "versions"])
            except NodeFailed as err:
                return str(err)
            return parse_versions(done.stdout)

        return dict(self._nodes.each(names, ask))

    def restart_as(self, name: str, before: str, series: str) -> None:
        """Switch a single node, while the cluster works.

        :param before: the version which the node uses now.
        :raises OpExecError: it cannot be done.
        """
        self._util([name], before, "stop-all")
        self._util([name], series, "use-version", series)
        self._util([name], series, "start-all")


def parse_versions(text: str) -> dict[str, object] | str:
    """Read what ``daemon-util versions`` prints.

    :returns: a dictionary with ``active`` and ``installed``, or a text: what is wrong.
    """
    try:
        found = json.loads(text)
    except errors.ParseError:
        return f"daemon-util said: {text.strip()[-200:]}"
    if not isinstance(found, dict) or not {"active", "installed"} <= found.keys():
        return f"daemon-util said: {text.strip()[-200:]}"
    return found


def archive_dir() -> str:
    """Return the directory of the archives on this node."""
    return paths.current().to_local("/var/backups/ganeti")


def _not_archived() -> tuple[str, ...]:
    here = paths.current()
    return here.export_dir, here.helper_dir


def archived_bytes() -> int:
    """Return the size of what an archive of this node would have, before compression."""
    total = 0
    for top, directories, names in os.walk(paths.current().data_dir):
        directories[:] = [
            name for name in directories if os.path.join(top, name) not in _not_archived()
        ]
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(top, name)).st_size
    return total


def write_archive(path: str, directory: str, leave_out: Sequence[str] = ()) -> None:
    """Write a directory into a compressed archive, which is complete and on the disk at the end.

    :param leave_out: directories in it whose content is left out.
    :raises OSError: it cannot be written.
    """

    def wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        inside = os.path.join(os.path.dirname(directory), member.name)
        return None if any(inside.startswith(f"{one}/") for one in leave_out) else member

    new = f"{path}.new"
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
            with tarfile.open(fileobj=stream, mode="w:gz") as archive:
                archive.add(directory, arcname=os.path.basename(directory), filter=wanted)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        # A part of an archive is of no use, and the disk may be full.
        fs.remove_file(new)
        raise
    os.replace(new, path)
    fs.flush_dir(os.path.dirname(path))
