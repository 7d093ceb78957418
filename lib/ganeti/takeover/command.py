"""The program ``ganeti-takeover``: makes a cluster of the original Ganeti one of ours, and back.

``check`` reads only. ``run`` and ``back`` go through the steps of :mod:`ganeti.takeover.steps`, and
can be repeated after any failure; ``status`` shows how far they are.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from ganeti import errors
from ganeti.cli import remote, terminal
from ganeti.cli.remote import NodeFailed
from ganeti.config import upgrade
from ganeti.constants.cli import EXIT_CONFIRMATION, EXIT_FAILURE, EXIT_SUCCESS, EXIT_USAGE
from ganeti.platform import machine, paths
from ganeti.runbook.steps import CLUSTER, MASTER, StepFailed
from ganeti.takeover import archive, facts, features, findings, remote_nodes, steps
from ganeti.takeover.cluster import Cluster
from ganeti.takeover.findings import Finding, Member
from ganeti.takeover.state import BACK, RUN, Progress, State, StateFile
from ganeti.tools import config_files
from ganeti.utils import clock, fs, log, process
from ganeti.wire import json

PROGRAM = "ganeti-takeover"
COMMANDS = ("check", "run", "back", "status")
_AT_ONCE = 16
_PACKAGE_PATH = f"{facts.STATE_DIR}/{facts.PACKAGE}.deb"
_SHORT_S = 60.0
# Where the original looks for OS definitions, without the directory of our package.
_OS_PLACES = ("/srv/ganeti/os", "/usr/local/lib/ganeti/os", "/usr/share/ganeti/os")


def make_parser() -> argparse.ArgumentParser:
    """Describe the options of the program."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        allow_abbrev=False,
        description="Take over a running cluster of the original Ganeti, or give it back.",
    )
    add = parser.add_argument
    add("command", choices=COMMANDS, help="check, run, back or status")
    add("--package", metavar="FILE", default="",
        help="the package to install; without it, apt gets it from its sources")  # fmt: skip
    add("--leave-out", metavar="NODE", action="append", default=[],
        help="do not touch this node now; can be repeated")  # fmt: skip
    add("--include", metavar="NODE", action="append", default=[],
        help="take over this node although it is offline; can be repeated")  # fmt: skip
    add("--at-once", metavar="NUMBER", type=int, default=_AT_ONCE,
        help="on how many nodes work goes on at the same time (default: %(default)s)")  # fmt: skip
    add("--dry-run", action="store_true", help="show what would be done, and change nothing")
    add("-f", "--force", action="store_true", help="do not ask for confirmation")
    add("--output", choices=("text", "json"), default="text",
        help="form of what check and status print")  # fmt: skip
    add("-d", "--debug", action="store_true", help="print debug messages")
    return parser


class Takeover:
    """What the program knows about the cluster of this master.

    :param options: of the command line.
    :raises ConfigurationError: this machine is not the master, or the configuration cannot be read.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.here = paths.current()
        self.file = StateFile()
        config_files.refuse_elsewhere(self.here.data_dir)
        self.raw = config_files.read_raw(self.here.cluster_conf_file)
        self.version = upgrade.version_of(self.raw) // 10_000 * 10_000
        try:
            self.members = findings.members(self.raw)
        except (LookupError, TypeError, AttributeError) as err:
            raise errors.ConfigurationError(
                f"the configuration has no usable nodes: {err}"
            ) from err
        self.master = machine.current().hostname()
        given = {*options.leave_out, *options.include}
        unknown = given - {node.name for node in self.members}
        if unknown:
            raise errors.ConfigurationError(f"these are not nodes: {', '.join(sorted(unknown))}")
        if self.master in options.leave_out:
            raise errors.ConfigurationError("the master cannot be left out")
        if given and set(options.leave_out) & set(options.include):
            raise errors.ConfigurationError("a node cannot be left out and included")

    def active(self) -> list[Member]:
        """Return the nodes which are neither offline nor left out, and those which are included."""
        return [
            node
            for node in self.members
            if node.name in self.options.include
            or (not node.offline and node.name not in self.options.leave_out)
        ]

    @contextlib.contextmanager
    def reach(self) -> Iterator[remote_nodes.Nodes]:
        """Make connections to the nodes possible, with the host keys of the original.

        :raises OSError: a temporary file cannot be written.
        """
        text = remote_nodes.known_hosts_text(
            _text(os.path.expanduser("~/.ssh/known_hosts")),
            _text(self.here.known_hosts_file),
            str(self.raw["cluster"].get("cluster_name", "")),
            [(node.name, node.ssh_port) for node in self.members],
        )
        with tempfile.NamedTemporaryFile("w", prefix="ganeti-takeover-", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            known = {
                node.name: remote.RemoteNode(
                    node.name, node.address, port=node.ssh_port, known_hosts=file.name
                )
                for node in self.members
            }
            yield remote_nodes.Nodes(known, self.options.at_once)

    def check(self) -> tuple[list[Finding], dict[str, facts.Facts]]:
        """Judge the cluster; nothing is changed.

        :returns: the findings, and the facts about each node which was reached.
        :raises GenericError: the check itself cannot be done.
        """
        found = list(findings.version_findings(self.raw))
        wanted = self._dependencies()
        cluster: dict[str, Any] = {}
        if not any(one.severity == findings.REFUSAL for one in found):
            more, cluster = self._check_configuration()
            found += more
        active = self.active()
        found += findings.majority_findings(len(active), len(self.members))
        found += findings.left_out_findings([one for one in self.members if one not in active])
        hypervisors = cluster.get("enabled_hypervisors") or ()
        asked = facts.questions(
            [name for group in wanted for name in group] + self._original_names(),
            kvm=cluster["hvparams"]["kvm"]["kvm_path"] if "kvm" in hypervisors else None,
            xen=any(name.startswith("xen") for name in hypervisors),
        )
        now = clock.now()
        known, unreachable = self._ask_nodes(facts.probe_argv(asked))
        found += unreachable
        for name, one in known.items():
            found += findings.node_findings(
                name,
                one,
                now=now,
                wanted=wanted,
                hypervisors=hypervisors,
                uses_drbd="drbd" in (cluster.get("enabled_disk_templates") or ()),
                from_file=bool(self.options.package),
            )
        found += findings.differing(known)
        return found, known

    def _check_configuration(self) -> tuple[list[Finding], dict[str, Any]]:
        """Judge the configuration.

        :returns: the findings, and its cluster as this release has it, empty if it is wrong.
        """
        try:
            upgraded = upgrade.upgrade(self.raw)
            problems = config_files.problems_of(upgraded)[1]
        except errors.ConfigurationError as err:
            unreadable = Finding(
                findings.REFUSAL,
                "configuration",
                "",
                f"the configuration cannot be read: {err}",
                "gnt-cluster verify of the original may name the cause.",
            )
            return [unreadable], {}
        unfinished = config_files.unfinished_jobs(self.here.data_dir)
        found = [
            *findings.configuration_findings(upgraded, problems, unfinished),
            *findings.toolstack_findings(self.raw),
            *findings.features_findings(),
        ]
        taken_over = self.file.read()
        if taken_over is not None and taken_over.direction == RUN:
            found += findings.in_use_findings(self._in_the_way(taken_over))
        return found, upgraded["cluster"]

    def _ask_nodes(self, argv: list[str]) -> tuple[dict[str, facts.Facts], list[Finding]]:
        """Run the probe on all active nodes; return what they say, and which do not answer."""
        known = {}
        with self.reach() as reach:

            def ask(name: str) -> str:
                try:
                    known[name] = facts.parse_answers(reach.run(name, argv).stdout)
                except (NodeFailed, errors.ParseError) as err:
                    return str(err)
                return ""

            outcomes = reach.each([node.name for node in self.active()], ask)
            return known, [
                findings.unreachable(name, reason) for name, reason in outcomes if reason
            ]

    def _dependencies(self) -> list[list[str]]:
        """Return the dependencies of our package, as its file or the source of apt says; else none.

        :raises ConfigurationError: the file is another package, or none.
        """
        path = self.options.package
        if path:
            done = process.run(
                ["dpkg-deb", "-f", path, "Package", "Depends"], timeout_s=_SHORT_S, check=False
            )
            fields = facts.parse_control(done.stdout)
            if done.failed or fields.get("Package") != facts.PACKAGE:
                raise errors.ConfigurationError(f"{path} is not a package of {facts.PACKAGE}")
        else:
            done = process.run(
                ["apt-cache", "show", "--no-all-versions", facts.PACKAGE],
                timeout_s=_SHORT_S,
                check=False,
            )
            fields = facts.parse_control(done.stdout)
        return facts.parse_depends(fields.get("Depends", ""))

    def _original_names(self) -> list[str]:
        done = process.run(
            facts.questions((), kvm=None, xen=False)["commands"]["packages"],
            timeout_s=_SHORT_S,
            check=False,
        )
        return [name for name in facts.parse_packages(done.stdout) if facts.is_original(name)]

    # -- the two directions ------------------------------------------------------------------------

    def run(self) -> int:
        """Take the cluster over, or go on with that; returns the exit code.

        :raises GenericError: it cannot be done, or a step failed.
        """
        state = self.file.read()
        if state is not None and state.direction == BACK and not state.done:
            raise errors.OpPrereqError(
                f"the way back is not complete; repeat '{PROGRAM} back' first", errors.ECODE_STATE
            )
        if state is None or state.direction == BACK:
            state = self._new_takeover()
            if state is None:
                return EXIT_FAILURE
            if self.options.dry_run:
                return self._show_plan(RUN, [node.name for node in self.active()])
            if not self._confirmed("Take this cluster over now? Guests run on."):
                return EXIT_CONFIRMATION
            if self.options.package:
                fs.make_dirs(facts.STATE_DIR, 0o700)
                fs.write_file(_PACKAGE_PATH, fs.read_bytes(self.options.package), mode=0o644)
            self.file.write(state)
        _require_same_master(state, self.master)
        active = {node.name for node in self.active()}
        state.left_out = tuple(node.name for node in self.members if node.name not in active)
        if self.options.dry_run:
            return self._show_plan(RUN, [node.name for node in self.active()])
        return self._execute(state, [node.name for node in self.active()], state.number)

    def _new_takeover(self) -> State | None:
        """Check the cluster; returns None, and prints the report, when it cannot be taken over."""
        found, known = self.check()
        for line in findings.report_text(found):
            terminal.out(line)
        if any(one.severity == findings.REFUSAL for one in found):
            return None
        own = known[self.master]
        if own.ours is not None:
            raise errors.OpPrereqError(
                f"{facts.PACKAGE} is installed here, and there is no record of a takeover",
                errors.ECODE_STATE,
            )
        return State(
            number=int(clock.now()),
            direction=RUN,
            master=self.master,
            original=own.original,
            config_version=self.version,
            separate_users=own.separate_users,
            package=_PACKAGE_PATH if self.options.package else "",
        )

    def back(self) -> int:
        """Give the cluster back to the original, or go on with that; returns the exit code.

        :raises GenericError: it cannot be done, or a step failed.
        """
        before = self.file.read()
        if before is None:
            raise errors.OpPrereqError(
                "there is no record of a takeover on this node. doc/takeover.rst has the steps by"
                " hand, which need no record",
                errors.ECODE_STATE,
            )
        if before.direction == BACK:
            if before.done:
                raise errors.OpPrereqError("the cluster was given back already", errors.ECODE_STATE)
            state, taken_over = before, self.file.takeover_before(before)
        else:
            state, taken_over = _way_back(before, self.master, int(clock.now())), before
        _require_same_master(state, self.master)
        # Nodes which the takeover has left out still have the original.
        never = [name for name in taken_over.left_out if name not in taken_over.nodes]
        names = [node.name for node in self.active() if node.name not in never]
        state.left_out = tuple(one.name for one in self.members if one.name not in names)
        if not state.is_complete("downgrade", self.master) and not self._may_go_back(taken_over):
            return EXIT_FAILURE
        if self.options.dry_run:
            return self._show_plan(BACK, names)
        if before.direction == RUN:
            if not self._confirmed("Give this cluster back to the original now? Guests run on."):
                return EXIT_CONFIRMATION
            self.file.write(state)
        return self._execute(state, names, taken_over.number)

    def _may_go_back(self, taken_over: State) -> bool:
        """Return True if nothing stands in the way back; otherwise it is printed."""
        if taken_over.config_version not in findings.WAYS_BACK:
            terminal.err(
                f"{PROGRAM}: a configuration cannot be converted back to version"
                f" {upgrade.version_text(taken_over.config_version)}"
            )
            return False
        found = self._in_the_way(taken_over)
        for text, remedy in found:
            terminal.out(f"in use: {text}\n    {remedy}")
        if found:
            terminal.err(
                f"{PROGRAM}: the original does not have this. Nothing was changed. Give these"
                " features up first."
            )
        return not found

    def _in_the_way(self, taken_over: State) -> list[tuple[str, str]]:
        """Return what stands in the way back: text, and what to do.

        The nodes are asked for snapshots.
        """
        config = upgrade.upgrade(self.raw)
        users = _text(self.here.rapi_users_file)
        argv = facts.probe_argv(features.questions(config))
        snapshots: dict[str, list[tuple[str, str]] | str] = {}
        # Nodes which the takeover has left out have the original, which takes none.
        names = [node.name for node in self.active() if node.name in taken_over.nodes]
        with self.reach() as reach:

            def ask(name: str) -> str:
                try:
                    answers = json.loads(reach.run(name, argv).stdout)
                    snapshots[name] = features.kept_snapshots(config, answers)
                except (NodeFailed, errors.ParseError, ValueError) as err:
                    return str(err)
                return ""

            for name, reason in reach.each(names, ask):
                if reason:
                    snapshots[name] = reason
        in_order = {name: snapshots[name] for name in names}
        return [
            *features.in_the_way(config, users, taken_over.config_version),
            *features.own_definitions(config, _kept_definitions()),
            *features.snapshots_in_the_way(in_order),
        ]

    def _confirmed(self, question: str) -> bool:
        if self.options.force or terminal.confirm(question):
            return True
        terminal.err(f"{PROGRAM}: nothing was changed")
        return False

    def _show_plan(self, direction: str, names: Sequence[str]) -> int:
        for number, step in enumerate(steps.PLANS[direction], 1):
            where = {CLUSTER: "", MASTER: f": {self.master}"}.get(
                step.place, f": {', '.join(names)}"
            )
            terminal.out(f"[{number}/{len(steps.PLANS[direction])}] {step.text}{where}")
        terminal.out("Dry run: nothing was changed.")
        return EXIT_SUCCESS

    def _execute(self, state: State, names: Sequence[str], taken_over: int) -> int:
        remote_nodes.keep_program()
        if not remote_nodes.runs_from_copy():
            _continue_in_copy(self.options)
        for name in names:
            state.nodes.setdefault(name, Progress())
        terminal.out(f"If this is interrupted, '{remote_nodes.STARTER} {state.direction}' goes on.")
        with self.reach() as reach:
            steps.Run(
                state,
                reach,
                Cluster(say=terminal.out),
                save=self.file.write,
                taken_over=taken_over,
                digest=archive.digest(state.package) if state.package else "",
                say=terminal.out,
            ).execute(names)
            # So that the way back can begin on another node, when that is the master.
            for name, reason in reach.each(names, lambda name: _copy_record(reach, name)):
                if reason:
                    terminal.err(f"{name}: the record was not copied: {reason}")
        if state.left_out:
            terminal.out(f"Left out: {', '.join(state.left_out)}")
        word = "was taken over" if state.direction == RUN else "belongs to the original again"
        terminal.out(f"The cluster {word}.")
        return EXIT_SUCCESS


def _copy_record(reach: remote_nodes.Nodes, name: str) -> str:
    try:
        reach.copy(name, StateFile().path)
    except NodeFailed as err:
        return str(err)
    return ""


def _require_same_master(state: State, master: str) -> None:
    if state.master != master:
        raise errors.OpPrereqError(
            f"this run began on {state.master}; repeat the command there", errors.ECODE_STATE
        )


def _way_back(taken_over: State, master: str, number: int) -> State:
    """Return the record of a new way back from a takeover, also from one which is not complete."""
    state = State(
        number=number,
        direction=BACK,
        master=master,
        original=taken_over.original,
        config_version=taken_over.config_version,
        separate_users=taken_over.separate_users,
        verified=taken_over.verified,
        unverified=taken_over.unverified,
    )
    if taken_over.is_complete("stop", taken_over.master) and not taken_over.is_complete("open"):
        # No daemon runs which could verify, or have jobs.
        state.without_daemons = True
        state.stopped_at = taken_over.stopped_at
        for step in ("inspect", "drain"):
            state.complete(step)
    return state


def _continue_in_copy(options: argparse.Namespace) -> None:
    """Start the program again from its lasting copy, because its package will be replaced."""
    argv = [
        sys.executable,
        "-P",
        "-m",
        "ganeti.takeover.command",
        options.command,
        "-f",
        f"--at-once={options.at_once}",
    ]
    argv += [f"--leave-out={name}" for name in options.leave_out]
    argv += [f"--include={name}" for name in options.include]
    sys.stdout.flush()
    os.execve(argv[0], argv, {**os.environ, "PYTHONPATH": facts.PROGRAM_DIR})


def _kept_definitions() -> set[str]:
    """Return the names of the OS definitions which no package of ours has, on this node."""
    return {os.path.basename(path) for place in _OS_PLACES for path in glob.glob(f"{place}/*")}


def _text(path: str) -> str:
    try:
        return fs.read_file(path)
    except OSError:
        return ""


def _check(takeover: Takeover) -> int:
    found, _known = takeover.check()
    if takeover.options.output == "json":
        terminal.out_data(json.dumps_pretty(findings.report_data(found)).rstrip("\n"))
    else:
        for line in findings.report_text(found):
            terminal.out(line)
    return EXIT_FAILURE if any(one.severity == findings.REFUSAL for one in found) else EXIT_SUCCESS


def _status(options: argparse.Namespace) -> int:
    state = StateFile().read()
    if options.output == "json":
        terminal.out_data(json.dumps_pretty(None if state is None else status_data(state)).rstrip())
        return EXIT_SUCCESS
    if state is None:
        terminal.out("There is no record of a takeover on this node.")
        return EXIT_SUCCESS
    data = status_data(state)
    terminal.out(f"{state.direction}: {'complete' if state.done else 'not complete'}")
    for step in data["steps"]:
        missing = f", missing on {', '.join(step['missing'])}" if step["missing"] else ""
        terminal.out(f"  {step['name']}: {'done' if step['done'] else 'to do'}{missing}")
    for name in state.left_out:
        terminal.out(f"  left out: {name}")
    return EXIT_SUCCESS


def status_data(state: State) -> dict[str, Any]:
    """Return what ``status`` prints for programs: the direction, and for each step whether it is
    done.
    """
    found = []
    for step in steps.PLANS[state.direction]:
        chosen = {CLUSTER: [], MASTER: [state.master]}.get(step.place, [*state.nodes])
        missing = [name for name in chosen if not state.is_complete(step.name, name)]
        done = not missing if chosen else state.is_complete(step.name)
        found.append({"name": step.name, "done": done, "missing": missing if not done else []})
    return {
        "direction": state.direction,
        "done": state.done,
        "left_out": list(state.left_out),
        "steps": found,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program.

    :returns: the exit code: 1 after a failure or a refusal, 13 if the user did not confirm.
    """
    options = make_parser().parse_args(argv)
    log.setup(PROGRAM, debug=int(options.debug), stderr=options.debug)
    if options.at_once < 1:
        terminal.err(f"{PROGRAM}: --at-once must be at least 1")
        return EXIT_USAGE
    try:
        if machine.current().neighbour_dir(machine.current().hostname()) is not None:
            raise errors.OpPrereqError(
                "a virtual cluster has no packages which could be replaced", errors.ECODE_INVAL
            )
        if options.command == "status":
            return _status(options)
        takeover = Takeover(options)
        if options.command == "check":
            return _check(takeover)
        return takeover.run() if options.command == "run" else takeover.back()
    except StepFailed as err:
        terminal.err(f"{PROGRAM}: {err}")
        again = f"{remote_nodes.STARTER} {options.command}"
        terminal.err(f"Mend that, and repeat it: '{again}' goes on there.")
    except errors.OpPrereqError as err:
        terminal.err(f"{PROGRAM}: {err.args[0]}")
    except (errors.GenericError, OSError) as err:
        terminal.err(f"{PROGRAM}: {err}")
    return EXIT_FAILURE


if __name__ == "__main__":
    sys.exit(main())
