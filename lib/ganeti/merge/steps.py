"""The steps of a merge, in their order.

Everything before the start of the master daemon with the merged configuration is taken back when a
step fails: the configuration is not changed, the daemons of the other cluster and the guests which
were stopped are started again. After that start nothing is taken back; the nodes of the other
cluster are in the configuration as offline nodes, and the error names the commands which go on.

What has begun is in the record (:mod:`~ganeti.merge.record`) before it begins, and what is taken
back is read from there; so it makes no difference whether a step failed or the program was killed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence, Sized
from dataclasses import asdict, dataclass
from functools import partial

from ganeti import errors
from ganeti.bootstrap import node_state
from ganeti.constants import instance as instance_c
from ganeti.merge import conflicts
from ganeti.merge.combine import Merged, combine, ssh_port
from ganeti.merge.other_cluster import LoginError, OtherCluster, parse_config
from ganeti.merge.record import Guest, Record, record_file
from ganeti.objects import ConfigData, Node, codec
from ganeti.platform import paths
from ganeti.runbook import commands, quiet
from ganeti.runbook.steps import Step, execute
from ganeti.tools import config_files
from ganeti.utils import clock, fs, process
from ganeti.utils.undo import UndoStack

#: Values of ``--restart``.
ALL, UP, NONE = "all", "up", "none"
RESTARTS = (ALL, UP, NONE)
_POLL_S = 1.0
# The steps which are taken back when one of them fails, and those behind the point of no return.
_POINT = "start"
_TAKEN_BACK = (
    Step("drain", "Pausing the watchers and draining the queues of both clusters"),
    Step("stop_instances"),
    Step("stop_daemons"),
    Step("write"),
    Step(_POINT, "Starting the master daemon with the merged configuration"),
)
_KEPT = (
    Step("add_nodes"),
    Step("distribute"),
    Step("start_instances"),
    Step("verify", "Verifying the cluster"),
)
_LIST = ("--no-headers", "--separator=|", "-o")


@dataclass(frozen=True)
class Choices:
    """The options of the program.

    :ivar pause_s: seconds for which the watchers of both clusters pause.
    :ivar groups: what happens to groups with the same name (:data:`conflicts.GROUPS`), or None.
    :ivar parameters: what differing parameters mean (:data:`conflicts.PARAMETERS`).
    :ivar restart: which instances of the other cluster are started (:data:`RESTARTS`).
    :ivar stop_instances: stop the running instances; otherwise there must be none.
    :ivar keep_running: stop only instances of which a port changes.
    :ivar dry_run: only check.
    """

    pause_s: int = 1800
    groups: str | None = None
    parameters: str = conflicts.STRICT
    restart: str = ALL
    stop_instances: bool = True
    keep_running: bool = False
    dry_run: bool = False


def parse_guests(text: str) -> list[Guest]:
    """Read the output of ``gnt-instance list -o name,oper_state,admin_state``.

    :param text: one instance per line, fields separated by ``|``; ``Y`` for one which runs. A
        state which is not known, as on a node that does not answer, counts as not running.
    """
    found = []
    for line in text.splitlines():
        name, state, wanted = (line.strip().split("|") + ["", ""])[:3]
        if name:
            found.append(Guest(name, state == "Y", wanted == instance_c.ADMIN_UP))
    return found


class MergeIncompleteError(errors.OpExecError):
    """The configuration is merged, but something that follows failed; nothing is taken back."""


class Merge:
    """The merge of one other cluster.

    :param record: the record of a merge which was interrupted, which :meth:`resume` handles.
    :param asked: the other cluster as the administrator has named it.
    :param run: runs a program on this machine.
    :param say: prints a line for people.
    :param pause: waits for seconds.
    """

    def __init__(
        self,
        other: OtherCluster,
        choices: Choices,
        *,
        record: Record | None = None,
        asked: str = "",
        run: Callable[..., process.Completed] = process.run,
        say: Callable[[str], object] = print,
        pause: Callable[[float], object] = time.sleep,
        here: paths.Paths | None = None,
    ) -> None:
        self._other = other
        self._choices = choices
        self._run = run
        self._say = say
        self._pause = pause
        self._here = here or paths.current()
        self._file = record_file(self._here.data_dir)
        # Commands which failed and which the administrator has to repeat.
        self._todo: list[str] = []
        self._record = record or Record(
            asked=asked or other.name,
            name=other.name,
            master=other.master.name,
            choices=asdict(choices),
        )

    def _note(self, **changes: object) -> None:
        """Write down what begins now."""
        self._record = self._file.note(self._record, **changes)

    def _command(self, *argv: str, check: bool = True, terminal: bool = False) -> process.Completed:
        return commands.run(argv, start=self._run, check=check, terminal=terminal)

    # -- checks ------------------------------------------------------------------------------------

    def check(self) -> None:
        """Compare the clusters, and print what will happen. Nothing is changed.

        :raises OpPrereqError: the clusters cannot be merged, or nodes cannot be reached; the
            message has all reasons.
        """
        own, other = self._own_config(), self._other.read()
        choices = self._choices
        found = conflicts.forbidden(own, other, groups=choices.groups)
        differ = [] if found else conflicts.differences(own, other, groups=choices.groups)
        if choices.parameters == conflicts.STRICT:
            found += [f"parameter {text}" for text in differ]
        addresses, ssh_ports = _reached(other)
        master = self._other.master
        if ssh_ports.get(master.name, master.port) != master.port:
            found.append(
                f"node {master.name}: SSH uses port {master.port}, and its parameter ssh_port is"
                f" {ssh_ports[master.name]}; correct it there with 'gnt-node modify"
                f" --node-parameters ssh_port={master.port} {master.name}'"
            )
        if found:
            hint = ""
            if differ and choices.parameters == conflicts.STRICT:
                hint = (
                    "\nWith --parameter-conflicts=warn the parameters of this cluster hold, and"
                    " instances keep their own."
                )
            raise errors.OpPrereqError(
                f"{self._other.name} cannot be merged:\n"
                + "\n".join(f"  - {text}" for text in found)
                + hint,
                errors.ECODE_STATE,
            )
        for text in differ:
            self._say(f"Warning: parameter {text}")
        merged = combine(own, other, groups=choices.groups, now=clock.now())
        self._report(own, other, merged)
        self._other.know(addresses, ssh_ports)
        closed = []
        for node in _online(other):
            try:
                self._other.run("true", node=node.name)
            except LoginError as err:
                closed.append(str(err))
        if closed:
            raise errors.OpPrereqError("\n".join(closed), errors.ECODE_ENVIRON)

    def _report(self, own: ConfigData, other: ConfigData, merged: Merged) -> None:
        self._say(
            f"{self._other.name}: {_count(other.nodes, 'node')},"
            f" {_count(other.instances, 'instance')}, {_count(other.nodegroups, 'node group')} and"
            f" {_count(other.networks, 'network')} join {own.cluster.cluster_name}"
        )
        for name, new in sorted(merged.groups.items()):
            self._say(f"  node group {name} becomes {new}")
        for name, ports in sorted(merged.ports.items()):
            changes = ", ".join(f"{old} becomes {new}" for old, new in sorted(ports.items()))
            self._say(f"  instance {name}: port {changes}")
        for name, kept in sorted(merged.kept.items()):
            self._say(f"  instance {name} keeps {', '.join(kept)}")
        for node in other.nodes.values():
            if node.offline:
                self._say(f"  node {node.name} is offline and stays so")

    def _own_config(self) -> ConfigData:
        raw = config_files.read_raw(self._here.cluster_conf_file)
        return config_files.problems_of(raw)[0]

    # -- the merge ---------------------------------------------------------------------------------

    def execute(self) -> None:
        """Check, and merge.

        :raises OpPrereqError: the clusters cannot be merged; nothing was changed.
        :raises OpExecError: a step failed, and everything before it was taken back.
        :raises MergeIncompleteError: a step behind the point of no return failed.
        """
        self.check()
        if self._choices.dry_run:
            self._say("Dry run: nothing was changed.")
            return
        other = self._other.read()
        addresses, ssh_ports = _reached(other)
        self._note(addresses=addresses, ssh_ports=ssh_ports)
        try:
            execute(_TAKEN_BACK, self)
        except BaseException as err:
            self._take_back(err)
            raise
        execute(_KEPT, self)

    def is_complete(self, step: Step) -> bool:
        """Return True if a step does not have to be done again after an interruption.

        The master daemon is started again, and each of the steps behind that knows what is left.
        """
        return self._record.merged and step in _TAKEN_BACK and step.name != _POINT

    def begin(self, step: Step, label: str) -> bool:
        """Say what is being done; the step itself records what it begins."""
        if step.text:
            self._say(step.text)
        return True

    def carry_out(self, step: Step) -> None:
        """Do a step."""
        getattr(self, step.name)()

    def resume(self) -> bool:
        """Take back what an interrupted merge has begun, or complete it.

        :returns: whether the other cluster is merged now; otherwise everything is as before.
        :raises OpExecError: something could not be taken back, or a step failed.
        :raises MergeIncompleteError: the merge is complete except for the commands in the message.
        """
        if not self._record.merged:
            self._say(f"The merge of {self._other.name} was interrupted; taking it back")
            self._take_back(None)
            self._say("Both clusters are as before.")
            return False
        self._say(f"The merge of {self._other.name} was interrupted; it goes on")
        self._stop_again()
        execute((*_TAKEN_BACK, *_KEPT), self)
        return True

    def _stop_again(self) -> None:
        """Stop the daemons on the nodes which are not added yet, as well as that is possible.

        Their machines may have started again since they were stopped, and serve the former cluster.
        A node which cannot be reached is named when it is added.
        """
        for name in self._record.daemons:
            if name in self._record.added:
                continue
            try:
                self._other.run(paths.daemon_util(), "stop-all", node=name)
            except errors.GenericError as err:
                self._say(f"The daemons of {name} cannot be stopped: {err}")

    def _take_back(self, error: BaseException | None) -> None:
        """Take back everything that the record says has begun.

        :raises OpExecError: something is left; the next run tries again.
        """
        record, other = self._record, self._other
        both: tuple[tuple[bool, Callable[..., process.Completed]], ...] = (
            (record.here, self._command),
            (record.there, other.run),
        )
        undo = UndoStack()
        for begun, run in both:
            if begun:
                undo.add("a paused watcher", partial(run, "gnt-cluster", "watcher", "continue"))
                undo.add("a drained queue", partial(run, "gnt-cluster", "queue", "undrain"))
        if record.stopped:
            startup = ("gnt-instance", "startup", "--force-multiple", "--no-remember")
            undo.add(
                f"stopped instances of {other.name}", partial(other.run, *startup, *record.stopped)
            )
            undo.add("a drained queue", partial(other.run, "gnt-cluster", "queue", "undrain"))
        for name in record.daemons:
            start = partial(other.run, paths.daemon_util(), "start-all", node=name)
            undo.add(f"stopped daemons on {name}", start)
        if record.master_stopped:
            undo.add("the stopped daemons of the master", lambda: self._daemon_util("start-master"))
        if record.own:
            path = self._here.cluster_conf_file
            undo.add(f"the merged configuration in {path}", self._restore)
        if record.merged:
            # From now on the next run must take back, too.
            undo.add(f"the record {self._file.path}", lambda: self._note(merged=False))
        left = undo.take_back()
        if left:
            raise errors.OpExecError(
                f"{error or 'the merge was interrupted'}; left behind: {', '.join(left)}."
                " Mend the cause, and run the same command again."
            ) from error
        self._file.remove()

    def _restore(self) -> None:
        """Put the former configuration of this cluster in the place of the merged one."""
        if not any(uuid in self._own_config().nodes for uuid in self._before().nodes):
            return
        # The start of the daemon may have failed for the program, and not for the daemon.
        self._daemon_util("stop-master")
        config_files.refuse_while_master_runs(self._here.data_dir)
        config_files.write(self._here.cluster_conf_file, config_files.read_raw(self._record.own))

    def _before(self) -> ConfigData:
        """Return the configuration of the other cluster before the merge."""
        return parse_config(fs.read_file(self._record.other), self._other.name)

    def drain(self) -> None:
        """Pause the watchers, and drain the queues of both clusters."""
        other = self._other
        runs: tuple[tuple[str, Callable[..., process.Completed]], ...] = (
            ("here", self._command),
            ("there", other.run),
        )
        for side, run in runs:
            self._note(**{side: True})
            run("gnt-cluster", "watcher", "pause", str(self._choices.pause_s))
            run("gnt-cluster", "queue", "drain")
            self._wait_for_jobs(run)

    def stop_instances(self) -> None:
        """Stop those instances of the other cluster that must not run during the merge."""
        other = self._other
        done = other.run("gnt-instance", "list", *_LIST, "name,oper_state,admin_state")
        guests = parse_guests(done.stdout)
        stopped = self._to_stop(guests)
        self._note(guests=tuple(guests), stopped=tuple(stopped))
        if stopped:
            self._say(f"Stopping {_count(stopped, 'instance')} of {other.name}")
            # The queue of the other cluster takes jobs only while it is not drained.
            other.run("gnt-cluster", "queue", "undrain")
            other.run("gnt-instance", "shutdown", "--force-multiple", "--no-remember", *stopped)
            other.run("gnt-cluster", "queue", "drain")
            self._wait_for_jobs(other.run)

    def stop_daemons(self) -> None:
        """Stop the daemons of the other cluster, on its master first."""
        other = self._other
        nodes = [node.name for node in _online(other.read())]
        self._say(f"Stopping the daemons of {_count(nodes, 'node')} of {other.name}")
        for name in [other.master.name, *(name for name in nodes if name != other.master.name)]:
            self._note(daemons=(*self._record.daemons, name))
            other.run(paths.daemon_util(), "stop-all", node=name)

    def _to_stop(self, guests: Sequence[Guest]) -> list[str]:
        """Return the names of the instances which have to be stopped.

        :raises OpPrereqError: one runs, although none should.
        """
        running = [guest.name for guest in guests if guest.running]
        if self._choices.keep_running:
            merged = combine(
                self._own_config(), self._other.read(), groups=self._choices.groups, now=clock.now()
            )
            return [name for name in running if name in merged.ports]
        if running and not self._choices.stop_instances:
            raise errors.OpPrereqError(
                f"these instances of {self._other.name} run: {', '.join(running)}. Stop them, or"
                " leave --skip-stop-instances out.",
                errors.ECODE_STATE,
            )
        return running

    def _wait_for_jobs(self, run: Callable[..., process.Completed]) -> None:
        def unfinished() -> list[str]:
            return quiet.parse_unfinished(run("gnt-job", "list", *_LIST, "id,status").stdout)

        quiet.wait_for_jobs(unfinished, self._say, self._pause, _POLL_S)

    def _daemon_util(self, *words: str) -> None:
        self._command(paths.daemon_util(), *words)

    def write(self) -> None:
        """Stop the master daemon and write the merged configuration."""
        here, path = self._here, self._here.cluster_conf_file
        self._note(master_stopped=True)
        self._daemon_util("stop-master")
        config_files.refuse_while_master_runs(here.data_dir)
        config_files.refuse_unfinished_jobs(here.data_dir)
        own = self._own_config()
        text = self._other.read_text()
        other = self._other.read()
        merged = combine(own, other, groups=self._choices.groups, now=clock.now())
        kept = f"{path}.merged-{self._other.name}"
        fs.write_file(kept, text, mode=0o600)
        saved = config_files.backup(path, f"before-{self._other.name}")
        self._say(f"The former configurations are {os.path.basename(saved)} and")
        self._say(f"  {os.path.basename(kept)} in {here.data_dir}")
        self._note(own=saved, other=kept, changed_ports=tuple(sorted(merged.ports)))
        config_files.write(path, codec.to_dict(merged.data))

    def start(self) -> None:
        """Start the master daemon with the merged configuration."""
        self._note(merged=True)
        no_voting = _needs_no_voting(self._own_config(), self._before())
        words = ("--no-voting", "--yes-do-it") if no_voting else ()
        self._daemon_util("start", node_state.MASTER, *words)

    def add_nodes(self) -> None:
        """Add the nodes of the other cluster; one that fails is left to the administrator."""
        before = self._before()
        self._wait_for_master()
        self._command("gnt-cluster", "queue", "undrain")
        for node in _online(before):
            if node.name in self._record.added:
                continue
            self._say(f"Adding node {node.name}")
            # Not earlier: when a node is added, the file of the cluster is written anew.
            self._other.trust(node)
            command = ("gnt-node", "add", "--readd", "--force-join", node.name)
            done = self._command(*command, check=False, terminal=True)
            if done.failed:
                self._say(done.output.strip())
                self._todo.append(process.show(command))
                continue
            if node.drained:
                self._try("gnt-node", "modify", "--drained=yes", node.name)
            self._note(added=(*self._record.added, node.name))

    def distribute(self) -> None:
        """Let all nodes know the merged cluster."""
        if _needs_no_voting(self._own_config(), self._before()) and not self._todo:
            # With the nodes of both clusters it is elected in the usual way.
            self._daemon_util("restart", node_state.MASTER)
            self._wait_for_master()
        self._daemon_util("start-master")
        self._try("gnt-cluster", "redist-conf")

    def start_instances(self) -> None:
        """Start instances of the other cluster, and let the watcher work again."""
        names = self._to_start()
        if names:
            self._say(f"Starting {_count(names, 'instance')}")
            self._try("gnt-instance", "startup", "--force-multiple", *names)
        self._try("gnt-cluster", "watcher", "continue")

    def verify(self) -> None:
        """Verify the merged cluster; the merge is complete with any result.

        :raises MergeIncompleteError: it finds errors, or commands before it failed.
        """
        verified = self._command("gnt-cluster", "verify", "--error-codes", check=False)
        self._file.remove()
        if self._todo:
            raise MergeIncompleteError(
                f"{self._other.name} is merged, but not everything worked. Mend the cause and"
                " run:\n" + "\n".join(f"  {line}" for line in self._todo)
            )
        if verified.failed:
            self._say(verified.output.strip())
            raise MergeIncompleteError(
                f"{self._other.name} is merged, and 'gnt-cluster verify' finds errors (above)"
            )
        self._say(f"{self._other.name} is merged, and verification finds no errors.")

    def _try(self, *argv: str) -> None:
        """Run a command; one that fails is left to the administrator."""
        done = self._command(*argv, check=False)
        if done.failed:
            self._say(done.output.strip())
            self._todo.append(process.show(argv))

    def _wait_for_master(self) -> None:
        self._command("gnt-cluster", "queue", "info")

    def _to_start(self) -> list[str]:
        """Return the names of the instances to be started, on nodes which were added."""
        if self._choices.restart == NONE:
            return []
        record, kept = self._record, self._choices.keep_running
        data = self._own_config()
        here = {
            one.name for one in data.instances.values()
            if data.nodes[one.primary_node].name in record.added and not one.forthcoming
        }  # fmt: skip
        return [
            guest.name
            for guest in record.guests
            if guest.name in here
            and not (kept and guest.running and guest.name not in record.changed_ports)
            and (self._choices.restart == ALL or guest.running or guest.wanted)
        ]


def _count(things: Sized, noun: str) -> str:
    """Return a number with its noun: ``1 node``, ``2 nodes``."""
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def _reached(data: ConfigData) -> tuple[dict[str, str], dict[str, int]]:
    """Return the primary IP address of each node, and the TCP port of its SSH server."""
    nodes = data.nodes.values()
    return (
        {node.name: node.primary_ip for node in nodes},
        {node.name: ssh_port(data, node) for node in nodes},
    )


def _online(data: ConfigData) -> list[Node]:
    return [node for node in data.nodes.values() if not node.offline]


def _needs_no_voting(merged: ConfigData, other: ConfigData) -> bool:
    """Return True if the nodes of this cluster alone are not a majority of all nodes.

    The nodes of the other cluster do not answer before they are added again.
    """
    everybody = merged.nodes
    answering = sum(not node.offline for uuid, node in everybody.items() if uuid not in other.nodes)
    return 2 * answering <= len(everybody)
