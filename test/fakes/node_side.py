"""A whole cluster in one process: master and nodes with their real code, but no daemon between.

A node call goes through the real call table and the real handler, with the node's own directory as
its root, so guests (of the fake hypervisor) and disk files really come and go. Only programs are
not run: the scripts of operating systems succeed, and transfers between nodes are plain copies.

:class:`NodeSide` is a runner as logical units want it. A test lets it break at the *n*-th call:

``kill``  the master dies instead of making the call; nothing that follows reaches anything
``lost``  the call is carried out, and the master dies before it hears of it
``fail``  the node refuses, without having done anything
``cut``   the node does it, its answer is lost
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fakes.config import FakeConfig
from fakes.master import Master
from ganeti import errors, storage
from ganeti.backend import registry
from ganeti.hypervisor.fake.guests import RUNS
from ganeti.objects import ConfigData, Disk
from ganeti.objects.transfer import ImportExportStatus
from ganeti.opcodes.base import OpCode
from ganeti.platform import paths
from ganeti.rpc import Question, Result
from ganeti.utils import shared_dir
from ganeti.wire import errors as wire_errors
from ganeti.wire.calls import Call

BREAKS = ("kill", "lost", "fail", "cut")
FREE_MIB = 4096
SHARED = "srv/ganeti/shared-file-storage"
LOCAL = "srv/ganeti/file-storage"


class Killed(BaseException):
    """The master died. Not an ``Exception``: nobody catches it."""


class NodeSide:
    """Runner and nodes; ``made`` counts the calls."""

    def __init__(self, config: FakeConfig, directory: Path) -> None:
        self.config = config
        self.directory = directory
        self.calls: list[tuple[str, str]] = []
        self.break_at: int | None = None
        self.how = ""
        self.dead = False
        # Names of nodes which answer although they are marked offline.
        self.alive: set[str] = set()
        self._handlers = registry.handlers()
        self._transfers: dict[str, ImportExportStatus] = {}
        self._awaited: dict[str, tuple[str, str]] = {}
        (directory / "shared").mkdir()
        for node in config.nodes():
            root = self.root(node.name)
            (root / LOCAL).mkdir(parents=True)
            os.symlink(directory / "shared", root / SHARED)

    def root(self, node_name: str) -> Path:
        """Directory of a node."""
        return self.directory / node_name

    def restart(self) -> None:
        """A new master: the old one's death is over."""
        self.calls, self.break_at, self.how, self.dead = [], None, "", False

    # -- the runner's interface ----------------------------------------------------

    def call(self, call: Call, node_uuid: str, **args: Any) -> Result:
        return self.call_many(call, [node_uuid], **args)[node_uuid]

    def call_many(
        self,
        call: Call,
        node_uuids: Iterable[str],
        *,
        per_node: Mapping[str, Mapping[str, Any]] | None = None,
        even_offline: bool = False,
        patient: bool = True,
        **args: Any,
    ) -> dict[str, Result]:
        return {
            uuid: self._probe(call, uuid, {**args, **(per_node or {}).get(uuid, {})})
            if even_offline and self.config.node(uuid).offline
            else self._one(call, uuid, {**args, **(per_node or {}).get(uuid, {})})
            for uuid in node_uuids
        }

    def _probe(self, call: Call, uuid: str, args: dict[str, Any]) -> Result:
        """A call of a node which is marked offline."""
        if self.dead:
            raise Killed
        name = self.config.node(uuid).name
        if name not in self.alive:
            return Result(name, failure=errors.NodeUnreachable(name, call.name, "no route to host"))
        self.calls.append((call.name, name))
        return self._answer(call, name, call.decode_args(call.encode_args(args, self.config)))

    def call_together(self, questions: Iterable[Question]) -> list[dict[str, Result]]:
        return [
            self.call_many(call, uuids, even_offline=even_offline, **args)
            for call, uuids, args, even_offline in questions
        ]

    def _one(self, call: Call, uuid: str, args: dict[str, Any]) -> Result:
        if self.dead:
            raise Killed
        node = self.config.node(uuid)
        if node.offline and not call.offline_ok:
            return Result(node.name, failure=errors.NodeOffline(node.name, call.name))
        breaks = len(self.calls) == self.break_at
        self.calls.append((call.name, node.name))
        if breaks and self.how == "kill":
            self.dead = True
            raise Killed
        if breaks and self.how == "fail":
            return Result(
                node.name,
                failure=errors.NodeCallFailed(node.name, call.name, "the test lets it fail"),
            )
        body = call.encode_args(args, self.config)
        result = self._answer(call, node.name, call.decode_args(body))
        if breaks and self.how == "lost":
            self.dead = True
            raise Killed
        if breaks and self.how == "cut":
            return Result(
                node.name,
                failure=errors.NodeUnreachable(node.name, call.name, "the connection was cut"),
            )
        return result

    #: UUIDs of nodes which may work for a job that has no call there any more.
    unsure: frozenset[str] = frozenset()

    def for_job(self, job_id: int | None, feedback: Any) -> NodeSide:
        return self

    def call_addresses(
        self, call: Call, addresses: Mapping[str, str], **args: Any
    ) -> dict[str, Result]:
        """Likewise, whether the nodes are marked offline or not."""
        found = {}
        for name in addresses:
            node = next(node for node in self.config.nodes() if node.name == name)
            ask = self._probe if node.offline else self._one
            found[name] = ask(call, node.uuid, args)
        return found

    # -- the nodes -----------------------------------------------------------------

    def _answer(self, call: Call, node_name: str, args: dict[str, Any]) -> Result:
        handler = getattr(self, f"_{call.name}", None) or self._handlers[call.name]
        with paths.override(paths.Paths(str(self.root(node_name)))):
            try:
                value = call.result.encode(handler(**args))
            except errors.GenericError as err:
                return Result(
                    node_name,
                    failure=errors.NodeCallFailed(
                        node_name,
                        call.name,
                        str(err),
                        cause=wire_errors.decode(wire_errors.encode(err)),
                    ),
                )
        return Result(node_name, call.result.decode(value))

    def _node_info(self, storage_units: Any, hv_specs: Any) -> list[Any]:
        facts = {
            "memory_free": FREE_MIB,
            "memory_total": 8192,
            "memory_dom0": 512,
            "cpu_total": 4,
            "cpu_dom0": 1,
        }
        return ["boot-id", [], [dict(facts) for _ in hv_specs]]

    def _hooks_present(self, wanted: list[list[str]]) -> list[bool]:
        return [False] * len(wanted)

    def _os_validate(self, **args: Any) -> bool:
        return True

    def _instance_os_add(self, **args: Any) -> None:
        """What an operating system would do takes nothing from the master."""

    def _instance_run_rename(self, **args: Any) -> None:
        """Likewise."""

    def _bridges_exist(self, **args: Any) -> None:
        """All bridges are there."""

    # -- transfers: done at once, when the sending end starts ------------------------

    def _import_start(self, options: Any, instance: Any, component: str, target: Any) -> str:
        name = f"import-{len(self._transfers)}"
        path = storage.device(target[1]).path
        self._transfers[name] = ImportExportStatus(listen_port=1)
        self._awaited[options.magic] = (name, path)
        return name

    def _export_sizes(self, instance: Any, disks: Sequence[Disk]) -> list[int]:
        # The nodes have no operating systems, and no script of one.
        return [disk.size << 20 for disk in disks]

    def _export_start(
        self, options: Any, host: str, port: int, instance: Any, component: str, source: Any
    ) -> str:
        name = f"export-{len(self._transfers)}"
        receiver, path = self._awaited[options.magic]
        # As much as the real sender sends, and no more than the real receiver can write.
        content = Path(storage.device(source[1]).path).read_bytes()[: source[1].size << 20]
        if len(content) > os.path.getsize(path):
            raise errors.OpExecError(f"no space left on device {path}")
        with open(path, "r+b") as stream:
            stream.write(content)
        self._transfers[name] = self._transfers[receiver] = ImportExportStatus(exit_status=0)
        return name

    def _impexp_status(self, names: list[str]) -> list[ImportExportStatus | None]:
        return [self._transfers.get(name) for name in names]

    def _impexp_abort(self, name: str) -> None:
        self._transfers[name] = ImportExportStatus(exit_status=1, error_message="aborted")

    def _impexp_cleanup(self, name: str) -> None:
        self._transfers.pop(name, None)

    # -- what is there -------------------------------------------------------------

    def running(self) -> dict[str, list[str]]:
        """Instance name to the nodes where it runs."""
        return self._guests(lambda number: number == RUNS)

    def migrating(self) -> dict[str, list[str]]:
        """Instance name to the nodes where it waits for its guest, or which have sent it."""
        return self._guests(lambda number: number != RUNS)

    def _guests(self, wanted: Callable[[int], bool]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for node in self.config.nodes():
            with paths.override(paths.Paths(str(self.root(node.name)))):
                directory = Path(paths.current().fake_root)
                # A file whose writer died before the rename is not visible to the driver either.
                for path in sorted(directory.glob("[!.]*")) if directory.is_dir() else ():
                    if wanted(int(path.read_text().split()[0])):
                        found.setdefault(path.name, []).append(node.name.split(".")[0])
        return found

    def stored(self) -> set[str]:
        """Disk files and their directories: ``node1:web/disk``, ``shared:web``.

        Without :meth:`marks`.
        """
        places = {"shared": self.directory / "shared"}
        for node in self.config.nodes():
            places[node.name.split(".")[0]] = self.root(node.name) / LOCAL
        return {
            f"{name}:{path.relative_to(top)}"
            for name, top in places.items()
            for path in top.rglob("*")
            if path.parent != top or not path.name.startswith(shared_dir.PREFIX)
        }

    def marks(self) -> list[Path]:
        """What interrupted comparisons left in the directories of all instances.

        A comparison there removes it an hour later. In the directory of one instance there may be
        no other comparison, so that a mark there counts as left behind.
        """
        tops = [
            self.directory / "shared",
            *(self.root(n.name) / LOCAL for n in self.config.nodes()),
        ]
        return [path for top in tops for path in top.glob(f"{shared_dir.PREFIX}*")]

    def recorded(self) -> set[str]:
        """What :meth:`stored` should say by the configuration."""
        return self.recorded_files(self.config.snapshot().disks.values())

    def recorded_files(self, disks: Iterable[Disk]) -> set[str]:
        """The same, of some disks which are files."""
        found: set[str] = set()
        names = {node.uuid: node.name.split(".")[0] for node in self.config.nodes()}
        for disk in disks:
            if disk.dev_type == "sharedfile":
                name, top = "shared", "/" + SHARED
            else:
                name, top = names[disk.nodes[0]], "/" + LOCAL
            relative = Path(disk.logical_id[1]).relative_to(top)
            found |= {f"{name}:{relative}", f"{name}:{relative.parent}"}
        return found


class MortalConfig(FakeConfig):
    """A configuration which a dead master cannot write."""

    node_side: NodeSide | None = None

    def transaction(self) -> Any:
        if self.node_side is not None and self.node_side.dead:
            raise Killed
        return super().transaction()


class Cluster(Master):
    """A master with such nodes."""

    rpc: NodeSide  # type: ignore[assignment]

    def __init__(self, data: ConfigData, directory: Path) -> None:
        super().__init__(data)
        self._directory = directory
        self.config = MortalConfig(data)
        self.rpc = self.config.node_side = NodeSide(self.config, directory)
        # Some things of the fake cluster are simpler than a real one's.
        self._known = set(self.config.verify())
        self._new_master()

    def _new_master(self) -> None:
        fresh = Master(self.config.snapshot())
        self.locks = fresh.locks
        fresh.context.config = self.config  # type: ignore[assignment]
        fresh.context.rpc = self.rpc  # type: ignore[assignment]
        self.context, self.processor = fresh.context, fresh.processor

    def broken(self, op: OpCode, at: int, how: str) -> BaseException | None:
        """Run an opcode which breaks at a call; afterwards a new master is there.

        :returns: how it ended.
        """
        self.rpc.calls, self.rpc.break_at, self.rpc.how = [], at, how
        ended: BaseException | None = None
        try:
            self.processor.execute(op, self.new_job())
        except (Killed, errors.GenericError) as err:
            ended = err
        if self.rpc.dead:
            self._new_master()
        self.rpc.restart()
        return ended

    def check(self) -> None:
        """What must hold at every moment, however things broke."""
        twice = {name: nodes for name, nodes in self.rpc.running().items() if len(nodes) > 1}
        assert not twice, f"runs twice: {twice}"
        # The fakes' uuids are names.
        problems = sorted(
            problem
            for problem in set(self.config.verify()) - self._known
            if not problem.endswith("is not a uuid")
        )
        assert not problems, problems

    def check_clean(self) -> None:
        """What must hold when everything is over: nothing is left, nothing is missing."""
        self.check()
        assert not self.rpc.migrating(), f"a migration is left: {self.rpc.migrating()}"
        left = self.rpc.stored() - self.rpc.recorded()
        missing = self.rpc.recorded() - self.rpc.stored()
        assert not left, f"left behind: {sorted(left)}"
        assert not missing, f"missing: {sorted(missing)}"
        names = {instance.name: instance for instance in self.config.instances()}
        for name, nodes in self.rpc.running().items():
            assert name in names, f"{name} runs and is nobody's"
            primary = self.config.node(names[name].primary_node).name.split(".")[0]
            assert nodes == [primary], f"{name} runs on {nodes}, its primary node is {primary}"
        for name, instance in names.items():
            if instance.admin_state == "up":
                assert name in self.rpc.running(), f"{name} shall run"
            else:
                assert name not in self.rpc.running(), f"{name} shall not run"
        assert self.locks.owners() == [], "locks are left behind"
