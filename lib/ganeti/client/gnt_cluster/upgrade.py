"""The command ``gnt-cluster upgrade``: switch the cluster to another version."""

from __future__ import annotations

from ganeti import FULL_VERSION, TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Command, Option, Values

if TYPE_CHECKING:
    from ganeti.platform.versions import Version
    from ganeti.runbook.record import RecordFile
    from ganeti.upgrading.checks import Member
    from ganeti.upgrading.record import Record
    from ganeti.upgrading.work import ClusterWork

_INTERRUPTED = """\
Interrupted at the step '{step}'. The upgrade is not complete, and the daemons may be stopped. Go on
with 'gnt-cluster upgrade --resume', or go back with '--to={origin}'. The record of the upgrade is
in {path}."""
# Set for the program of the other version: it goes on at once, so that no machine can have started.
_CONTINUES = "GANETI_UPGRADE_CONTINUES"
_AGAIN = """\
Mend that and repeat the command with --resume, or go back with --to={origin}. The record of the
upgrade is in {path}."""


def upgrade(values: Values, arguments: list[str]) -> int:
    """Switch the cluster to another version which is installed on all nodes (``upgrade``).

    :raises OpPrereqError: not exactly one of ``--to`` and ``--resume``, the version cannot be used,
        or something stands in the way; nothing was changed.
    :raises OpExecError: a step failed; ``--resume`` goes on there.
    """
    if values.to is None and not values.resume:
        return _say_what_is_possible()
    if values.to is not None and values.resume:
        raise errors.OpPrereqError("give either --to or --resume", errors.ECODE_INVAL)
    if values.resume and (values.simulate or values.leave_out):
        raise errors.OpPrereqError("--resume takes no other options", errors.ECODE_INVAL)
    if values.to is not None and _is_compatible(values.to):
        return _compare_compatible(values.to)
    from ganeti.platform import paths
    from ganeti.upgrading.record import record_file
    from ganeti.utils import filelock, fs

    if values.simulate:
        return _simulate(values)
    fs.make_dirs(paths.current().lock_dir)
    with filelock.FileLock(f"{paths.current().lock_dir}/ganeti-upgrade.lock") as lock:
        try:
            lock.acquire(timeout_s=0)
        except errors.LockError:
            raise errors.OpPrereqError(
                "another 'gnt-cluster upgrade' runs on this node", errors.ECODE_STATE
            ) from None
        file = record_file()
        record = file.read()
        if values.resume:
            if record is None:
                terminal.out(f"There is no upgrade to resume{_elsewhere()}.")
                return failures.EXIT_SUCCESS
        else:
            record = _new_record(values, file, record)
            if record is None:
                return failures.EXIT_SUCCESS
        return _execute(file, record)


def _say_what_is_possible() -> int:
    """Answer a command which names no version: the versions, or the upgrade which is not complete.

    :raises OpPrereqError: always; the text has the answer.
    """
    from ganeti.platform import versions
    from ganeti.upgrading.record import record_file

    before = record_file().read()
    if before is not None:
        raise errors.OpPrereqError(_not_complete(before), errors.ECODE_INVAL)
    raise errors.OpPrereqError(
        f"give either --to=VERSION or --resume; {versions.known_text(versions.installed())}",
        errors.ECODE_INVAL,
    )


def _not_complete(before: Record) -> str:
    return (
        f"an upgrade from version {before.origin} to {before.target} is not complete. Go on with"
        f" --resume, or go back with --to={before.origin}"
    )


def _elsewhere() -> str:
    """Say that another node is the master, which has the record of an upgrade; empty if not."""
    from ganeti.constants import ssconf
    from ganeti.platform import machine, paths
    from ganeti.utils import fs

    try:
        master = fs.read_file(paths.current().ssconf_file(ssconf.MASTER_NODE)).strip()
    except OSError:
        return ""
    own = machine.current().hostname()
    return "" if master in ("", own) else f" on {own}; the master is {master}"


def _is_compatible(text: str) -> bool:
    """Return True if a version is the one of Ganeti with which this release is compatible."""
    from ganeti.constants import cluster as const

    return text.split(".")[:2] == [str(const.CONFIG_MAJOR), str(const.CONFIG_MINOR)]


def _compare_compatible(text: str) -> int:
    from ganeti.constants import cluster as const

    info = jobs.connect().query_cluster_info()
    if info["config_version"] != const.CONFIG_VERSION:
        terminal.err(
            f"The master daemon has version {info['software_version']}, this program"
            f" {const.RELEASE_VERSION}. Restart the daemons on every node."
        )
        return failures.EXIT_FAILURE
    terminal.out(
        f"This is version {FULL_VERSION}. The master daemon is compatible with version {text}, too."
    )
    return failures.EXIT_SUCCESS


def _members() -> list[Member]:
    from ganeti.upgrading.checks import Member

    fields = ["name", "pip", "master", "offline", "uuid"]
    return [
        Member(name, ip, bool(master), bool(offline), uuid)
        for name, ip, master, offline, uuid in jobs.connect().query_nodes([], fields, False)
    ]


def _work(nodes: dict[str, str]) -> ClusterWork:
    from ganeti.cli.remote import RemoteNode
    from ganeti.platform import versions
    from ganeti.upgrading.work import ClusterWork, Programs

    return ClusterWork(
        {name: RemoteNode(name, address) for name, address in nodes.items()},
        Programs(versions.installed()),
        connect=jobs.connect,
        say=terminal.out,
    )


def _target(values: Values) -> tuple[str, Version]:
    """Return the version in use and the wanted one.

    :raises OpPrereqError: one of them is not installed, or this program has another one.
    """
    from ganeti.platform import versions
    from ganeti.upgrading import checks

    known = versions.installed()
    target = checks.find_target(values.to, known)
    origin = versions.active()
    if origin is None or origin not in known:
        raise errors.OpPrereqError(
            f"{versions.link_path()} leads to no version. 'daemon-util use-version' sets it",
            errors.ECODE_ENVIRON,
        )
    if origin != versions.OWN:
        raise errors.OpPrereqError(
            f"this program has version {versions.OWN}, and this node uses version {origin}",
            errors.ECODE_STATE,
        )
    return origin, target


def _new_record(values: Values, file: RecordFile[Record], before: Record | None) -> Record | None:
    """Check everything, and return the record of a new upgrade; None if nothing is left to do.

    :raises OpPrereqError: something stands in the way.
    """
    from ganeti.platform import machine
    from ganeti.upgrading import checks
    from ganeti.upgrading.work import archive_dir, archived_bytes
    from ganeti.utils import clock

    if before is not None:
        return _turned(values, before)
    origin, target = _target(values)
    checks.require_neighbour(origin, target.series)
    client = jobs.connect()
    info = client.query_cluster_info()
    members = _members()
    (master,) = [one for one in members if one.is_master]
    if master.name != machine.current().hostname():
        raise errors.OpPrereqError(
            f"the master is {master.name}; use the command there", errors.ECODE_INVAL
        )
    checks.require_daemon_version(info)
    checks.require_no_watchdog(info)
    leave_out = [_full_name(name, members) for name in values.leave_out or []]
    nodes = {one.name: one.address for one in checks.chosen(members, leave_out)}
    work = _work(nodes)
    problems = checks.problems_of_nodes(work, list(nodes), origin, target)
    if problems:
        raise errors.OpPrereqError(
            "\n".join(["not all nodes are ready:", *problems]), errors.ECODE_STATE
        )
    if target.series == origin:
        _switch_others(work, nodes, target)
        return None
    _require_known_settings(work, origin, target.series)
    checks.require_space(archive_dir(), archived_bytes())
    drained, pause = client.query_config_values(["drain_flag", "watcher_pause"])
    from ganeti.upgrading.record import Record

    return Record(
        number=int(clock.now()),
        origin=origin,
        target=target.series,
        master=master.name,
        nodes=nodes,
        left_out=tuple(one.name for one in members if one.offline),
        was_drained=bool(drained),
        paused_until=float(pause or 0.0),
    )


def _full_name(name: str, members: list[Member]) -> str:
    from ganeti.utils import text

    for one in members:
        if name == one.uuid:
            return one.name
    return text.match_name_component(name, [one.name for one in members]) or name


def _require_known_settings(work: ClusterWork, origin: str, target: str) -> None:
    """Check that an earlier version has everything which the configuration uses.

    :raises OpPrereqError: it does not; the message names the settings.
    """
    from ganeti.configfile import files
    from ganeti.platform import paths, versions
    from ganeti.upgrading import checks
    from ganeti.wire import json

    if versions.number_of(target) > versions.number_of(origin):
        return
    raw = json.loads(files.read(paths.current().cluster_conf_file))
    lost = checks.lost_settings(raw, work.facts(target))
    if lost:
        raise errors.OpPrereqError(
            "\n".join([f"version {target} does not have this. Give it up first:", *lost]),
            errors.ECODE_STATE,
        )


def _turned(values: Values, before: Record) -> Record:
    """Return the record of the way back from an upgrade which is not complete.

    :raises OpPrereqError: another way than back to where it began is wanted.
    """
    from ganeti.platform import versions
    from ganeti.upgrading import checks
    from ganeti.utils import clock

    wanted = checks.find_target(values.to, versions.installed()).series
    if wanted != before.origin:
        raise errors.OpPrereqError(_not_complete(before), errors.ECODE_STATE)
    return before.turned(int(clock.now()))


def _switch_others(work: ClusterWork, nodes: dict[str, str], target: Version) -> None:
    """Switch nodes which do not have the version of the master yet, one after the other."""
    found = work.versions_of(list(nodes), target.series)
    left = {
        name: str(answer["active"])
        for name, answer in found.items()
        if not isinstance(answer, str) and answer["active"] != target.series
    }
    for name, before in left.items():
        terminal.out(f"Switching {name} from version {before} to {target.series}")
        work.restart_as(name, before, target.series)
    terminal.out(f"The cluster has version {target.series}, release {target.release}.")


def _execute(file: RecordFile[Record], record: Record) -> int:
    import os

    from ganeti.runbook.steps import StepFailed
    from ganeti.upgrading import steps

    def hand_over(series: str) -> None:
        os.environ[_CONTINUES] = str(record.number)
        _continue_as(series)

    try:
        complete = steps.Upgrade(
            record,
            _work(record.nodes),
            save=file.write,
            hand_over=hand_over,
            say=terminal.out,
            interrupted=os.environ.pop(_CONTINUES, "") != str(record.number),
        ).execute()
    except StepFailed as err:
        terminal.err(f"Failure: {err}")
        terminal.err(_AGAIN.format(origin=record.origin, path=file.path))
        return failures.EXIT_FAILURE
    except KeyboardInterrupt:
        terminal.err(_INTERRUPTED.format(step=record.step, origin=record.origin, path=file.path))
        return failures.EXIT_FAILURE
    if complete:
        file.remove()
        if record.left_out:
            terminal.out(f"Left out, because they are offline: {', '.join(record.left_out)}")
        terminal.out(f"The cluster has version {record.target}.")
    return failures.EXIT_SUCCESS


def _continue_as(series: str) -> None:
    """Replace this process by the same command of another version.

    :raises ConfigurationError: the version is not installed on this node.
    """
    import os
    import sys

    from ganeti.platform import versions

    known = versions.installed()
    if series not in known:
        raise errors.ConfigurationError(
            f"version {series} is not installed on this node; {versions.known_text(known)}"
        )
    program = known[series].program("gnt-cluster")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, program, "upgrade", "--resume"])


def _simulate(values: Values) -> int:
    from ganeti.platform import paths
    from ganeti.upgrading import checks, simulation

    origin, target = _target(values)
    if target.series == origin:
        raise errors.OpPrereqError(f"this cluster has version {origin} already", errors.ECODE_INVAL)
    checks.require_neighbour(origin, target.series)
    return simulation.simulate(
        paths.current().cluster_conf_file, origin, target.series, say=terminal.out
    )


UPGRADE = Command(
    "upgrade",
    upgrade,
    [],
    [
        Option(
            "--to",
            kind="string",
            metavar="VERSION",
            completion="version",
            help="wanted version, such as 0.9",
        ),
        opt.flag("--resume", help="continue an interrupted upgrade"),
        opt.flag(
            "--simulate",
            help="try it on a virtual cluster like this one, and change nothing here",
        ),
        opt.node(
            "--leave-out", action="append", help="let a node which is offline keep its version"
        ),
    ],
    "Switch the cluster to another version which is installed on all nodes",
)
