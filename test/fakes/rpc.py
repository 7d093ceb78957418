"""Node calls without nodes: remembers every call, keeps which guest runs where, fails on request.

Arguments and answers go through the real call table, encoded and decoded as on the wire, so a call
with wrong arguments fails here as it would there.

``errors["instance_start"] = NodeUnreachable(...)`` makes a call fail on all nodes,
``errors["instance_start", "node2.example.com"]`` on one. A text becomes a ``NodeCallFailed``.
``answers`` gives other answers than the built-in ones: a value or a function of (node name,
arguments). For a call which is about several disks it is the answer for each of them, which gets
``disk`` as a further argument; an exception is the failure of that disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fakes.config import FakeConfig
from ganeti import FULL_VERSION, errors
from ganeti.config import ssconf
from ganeti.constants.rpc import PROTOCOL_VERSION
from ganeti.objects import BlockDevStatus, ConfigData, Disk, MigrationStatus
from ganeti.objects.halt import Halt
from ganeti.rpc import Question, Result
from ganeti.wire import calls
from ganeti.wire.calls import Call
from ganeti.wire.calls.base import EachResult

FREE_MIB = 4096


class FakeRpc:
    """Runner and nodes in one."""

    def __init__(self, config: FakeConfig) -> None:
        self.config = config
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.answers: dict[str, Any] = {}
        self.errors: dict[str | tuple[str, str], errors.RpcError | str] = {}
        # (instance name, node name) -> state as a hypervisor tells it
        self.running: dict[tuple[str, str], int] = {}
        # The same -> why the guest lives and does not run.
        self.halts: dict[tuple[str, str], Halt] = {}
        # The same of those which have sent the guest.
        self.sent: set[tuple[str, str]] = set()
        self.free_mib: dict[str, int] = {}
        # Names of nodes which have not mounted the directory of shared files.
        self.unmounted: set[str] = set()
        # Names of nodes which see one directory, whatever its path; others have their own.
        self.one_directory: set[str] = set()
        # Names of nodes of a release before this one, and the calls which that release lacks.
        self.former: set[str] = set()
        self.lacking: set[str] = set()
        self._marked: set[tuple[str, str]] = set()
        self.files: set[str] = set()
        # Names of nodes which answer although they are marked offline.
        self.alive: set[str] = set()
        self._facts: tuple[ConfigData, dict[str, str]] | None = None
        # UUIDs of nodes which may work for a job that has no call there any more.
        self.unsure: set[str] = set()
        # Node name -> PEM of the certificate which it shows.
        self.shown: dict[str, str] = {}
        # What the caller has asked to be checked: address -> pins.
        self.expected: dict[str, Any] = {}
        # For each ``call_together`` the names of its calls.
        self.together: list[list[str]] = []

    # -- what tests ask ------------------------------------------------------------

    def names(self, *, hooks: bool = False) -> list[str]:
        """Names of the calls, in order."""
        return [name for name, _node, _args in self.calls if hooks or name != "hooks_runner"]

    def acting(self) -> list[str]:
        """As :meth:`names`, without those that only ask."""
        return [name for name in self.names() if name not in ASKING]

    def of(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """Node and arguments of all calls of a name."""
        return [(node, args) for called, node, args in self.calls if called == name]

    def hooks(self) -> list[tuple[str, str, str]]:
        """(directory, phase, node) of every hook call."""
        return [(args["hpath"], args["phase"], node) for node, args in self.of("hooks_runner")]

    def run(self, instance: str, node: str) -> None:
        """Let an instance run on a node."""
        self.running[f"{instance}.example.com", f"{node}.example.com"] = 0

    def where(self, instance: str) -> list[str]:
        """Nodes on which an instance runs."""
        return sorted(n.split(".")[0] for i, n in self.running if i == f"{instance}.example.com")

    # -- the runner's interface ----------------------------------------------------

    def call(self, call: Call, node_uuid: str, **args: Any) -> Result:
        node = self.config.node(node_uuid)
        if node.offline and not call.offline_ok:
            return Result(node.name, failure=errors.NodeOffline(node.name, call.name))
        return self._answer(call, node.name, args)

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
        found = {}
        for uuid in node_uuids:
            node = self.config.node(uuid)
            own = {**args, **(per_node or {}).get(uuid, {})}
            if node.offline and even_offline:
                found[uuid] = self._probe(call, node.name, own)
            else:
                found[uuid] = self.call(call, uuid, **own)
        return found

    def _probe(self, call: Call, node_name: str, args: dict[str, Any]) -> Result:
        if node_name in self.alive:
            return self._answer(call, node_name, args)
        failure = self.errors.get((call.name, node_name)) or errors.NodeUnreachable(
            node_name, call.name, "no route to host"
        )
        assert not isinstance(failure, str)
        return Result(node_name, failure=failure)

    def call_together(self, questions: Sequence[Question]) -> list[dict[str, Result]]:
        self.together.append([question.call.name for question in questions])
        return [
            self.call_many(call, uuids, even_offline=even_offline, **args)
            for call, uuids, args, even_offline in questions
        ]

    def for_job(self, job_id: int | None, feedback: Any) -> FakeRpc:
        return self

    def call_addresses(
        self, call: Call, addresses: Mapping[str, str], **args: Any
    ) -> dict[str, Result]:
        return {name: self._answer(call, name, args) for name in addresses}

    def expect_keys(self, pins: Mapping[str, Any]) -> None:
        self.expected.update(pins)

    def first_contact(
        self, call: Call, addresses: Mapping[str, str], **args: Any
    ) -> dict[str, Result]:
        found = self.call_addresses(call, addresses, **args)
        for name, answer in found.items():
            answer.certificate = self.shown.get(name, "")
        return found

    def show_keys(self, node_uuids: Iterable[str]) -> dict[str, Result]:
        found = self.call_many(calls.VERSION, node_uuids)
        for answer in found.values():
            answer.certificate = self.shown.get(answer.node_name, "")
        return found

    # -- the nodes -----------------------------------------------------------------

    def _answer(self, call: Call, node_name: str, args: dict[str, Any]) -> Result:
        decoded = call.decode_args(call.encode_args(args, self.config))
        if call is not calls.HOOKS_PRESENT:
            # Whether hooks are asked for or run makes no difference to any test but one.
            self.calls.append((call.name, node_name, decoded))
        failure = self.errors.get((call.name, node_name), self.errors.get(call.name))
        if node_name in self.former:
            failure = failure or self._refusal_of_former(call, node_name, decoded)
        if isinstance(failure, str):
            failure = errors.NodeCallFailed(node_name, call.name, failure)
        if failure is not None:
            return Result(node_name, failure=failure)
        if isinstance(call.result, EachResult):
            value = [
                self._value(call, node_name, {**decoded, "disk": disk}) for disk in decoded["disks"]
            ]
        else:
            value = self._value(call, node_name, decoded)
        if isinstance(value, errors.RpcError):
            return Result(node_name, failure=value)
        return Result(node_name, call.result.decode(call.result.encode(value)))

    def _refusal_of_former(
        self, call: Call, node_name: str, args: dict[str, Any]
    ) -> errors.RpcError | None:
        """Why a node of the release before refuses a call; see :mod:`ganeti.wire.neighbour`."""
        if call.name in self.lacking:
            return errors.NodeLacksCall(node_name, call.name, f"unknown procedure {call.name}")
        # What has a default was added to the call later.
        if any(args[arg.name] for arg in call.args if arg.has_default):
            return errors.NodeCallFailed(node_name, call.name, "too many arguments")
        return None

    def _value(self, call: Call, node_name: str, args: dict[str, Any]) -> Any:
        """What a node answers; to a call for several disks, about ``args["disk"]``."""
        if call.name in self.answers:
            answer = self.answers[call.name]
            return answer(node_name, args) if callable(answer) else answer
        handler: Callable[[str, dict[str, Any]], Any] | None = getattr(self, f"_{call.name}", None)
        return None if handler is None else handler(node_name, args)

    def _jobqueue_inventory(self, node: str, args: dict[str, Any]) -> dict[str, Any]:
        return {
            "live": {},
            "plain": {"serial": None, "version": None},
            "drained": False,
            "archive": {},
            "archived": {str(part): {} for part in args["parts"]},
        }

    def _version(self, node: str, args: dict[str, Any]) -> int:
        return PROTOCOL_VERSION

    def _node_info(self, node: str, args: dict[str, Any]) -> list[Any]:
        free = self.free_mib.get(node, FREE_MIB)
        facts = {
            "memory_free": free,
            "memory_total": 8192,
            "memory_dom0": 512,
            "cpu_total": 4,
            "cpu_dom0": 1,
        }
        return ["boot-id", [], [dict(facts) for _ in args["hv_specs"]]]

    def _guest_details(self, node: str, args: dict[str, Any]) -> dict[str, Any]:
        return {
            name: {"started": 1000.0, "addresses": [["192.0.2.7", "lease"]]}
            for name in args["guests"]
        }

    def _node_work(self, node: str, args: dict[str, Any]) -> list[Any]:
        return []

    def _x509_cert_create(self, node: str, args: dict[str, Any]) -> list[str]:
        return [f"key-of-{node}", f"certificate of {node}"]

    def _node_has_ip_address(self, node: str, args: dict[str, Any]) -> bool:
        return True

    def _export_details(self, node: str, args: dict[str, Any]) -> dict[str, Any]:
        return {}

    def _export_list(self, node: str, args: dict[str, Any]) -> list[str]:
        return []

    def _facts_of(self, instance: str, node: str) -> dict[str, Any]:
        state = self.running.get((instance, node))
        if state is None:
            return {}
        facts = {"memory": 128, "state": state, "time": 1.0, "vcpus": 1}
        found = self.halts.get((instance, node))
        return facts if found is None else {**facts, **found.to_facts()}

    def _export_find(self, node: str, args: dict[str, Any]) -> list[Any]:
        return [None, []]

    def _export_remove(self, node: str, args: dict[str, Any]) -> bool:
        return True

    def _blockdev_reachable_multi(self, node: str, args: dict[str, Any]) -> bool:
        return True

    def _directory_mark(self, node: str, args: dict[str, Any]) -> dict[str, Any]:
        self._marked.add((args["token"], args["key"]))
        return dict.fromkeys(args["directories"])

    def _directory_space(self, node: str, args: dict[str, Any]) -> dict[str, Any]:
        return dict.fromkeys(args["files"], 1 << 50)

    def _export_sizes(self, node: str, args: dict[str, Any]) -> int:
        return int(args["disk"].size) << 20

    def _directory_seen(self, node: str, args: dict[str, Any]) -> dict[str, Any]:
        return {
            path: [
                key
                for key in args["keys"]
                if self._same_directory(path, node, self.config.node(key).name)
                and (args["token"], key) in self._marked
            ]
            for path in args["directories"]
        }

    def _same_directory(self, path: str, one: str, other: str) -> bool:
        if one == other:
            return True
        shared = self.config.cluster().shared_file_storage_dir
        if shared and path.startswith(shared):
            return not self.unmounted & {one, other}
        return {one, other} <= self.one_directory

    def _instance_info(self, node: str, args: dict[str, Any]) -> dict[str, Any]:
        return self._facts_of(args["instance_name"], node)

    def _all_instances_info(self, node: str, args: dict[str, Any]) -> dict[str, Any]:
        return {
            instance: self._facts_of(instance, node)
            for instance, where in self.running
            if where == node
        }

    def _instance_continue(self, node: str, args: dict[str, Any]) -> dict[str, Any]:
        self.halts.pop((args["instance"].name, node), None)
        return self._facts_of(args["instance"].name, node)

    def _instance_start(self, node: str, args: dict[str, Any]) -> None:
        self.running[args["instance"].name, node] = 0

    def _instance_shutdown(self, node: str, args: dict[str, Any]) -> None:
        self.running.pop((args["instance"].name, node), None)
        self.halts.pop((args["instance"].name, node), None)

    def _accept_instance(self, node: str, args: dict[str, Any]) -> None:
        self.running[args["instance"].name, node] = 1

    def _instance_get_migration_status(self, node: str, args: dict[str, Any]) -> MigrationStatus:
        if (args["instance"].name, node) in self.sent:
            return MigrationStatus(status="completed", transferred_ram=100, total_ram=100)
        return MigrationStatus(status="none")

    def _instance_migrate(self, node: str, args: dict[str, Any]) -> None:
        self.sent.add((args["instance"].name, node))

    def _instance_finalize_migration_src(self, node: str, args: dict[str, Any]) -> None:
        if args["success"]:
            self.running.pop((args["instance"].name, node), None)

    def _instance_finalize_migration_dst(self, node: str, args: dict[str, Any]) -> None:
        if args["success"]:
            self.running[args["instance"].name, node] = 0
        else:
            self.running.pop((args["instance"].name, node), None)

    def _blockdev_create_multi(self, node: str, args: dict[str, Any]) -> None:
        self.files.add(args["disk"].logical_id[1])

    def _blockdev_remove_multi(self, node: str, args: dict[str, Any]) -> None:
        self.files.discard(args["disk"].logical_id[1])

    def _blockdev_assemble_multi(self, node: str, args: dict[str, Any]) -> list[Any]:
        return [args["disk"].logical_id[1], "/run/link", None]

    def _blockdev_find(self, node: str, args: dict[str, Any]) -> BlockDevStatus:
        return BlockDevStatus(dev_path=args["disk"].logical_id[1])

    _blockdev_find_multi = _blockdev_find

    def _blockdev_getmirrorstatus_multi(self, node: str, args: dict[str, Any]) -> list[Any]:
        state = BlockDevStatus(dev_path="/dev/0", is_degraded=False, ldisk_status=1)
        return [(True, state) for _ in args["disks"]]

    def _blockdev_getdimensions(self, node: str, args: dict[str, Any]) -> list[Any]:
        return [
            [disk.size << 20, None] if self._is_there(node, disk) else None
            for disk in args["disks"]
        ]

    def _is_there(self, node: str, disk: Disk) -> bool:
        """Whether a node has a device, by the configuration."""
        known = self.config.node_by_name(node)
        found = [
            (one, device)
            for one in self.config.snapshot().disks.values()
            for device in one.walk()
            if device.logical_id == disk.logical_id
        ]
        return any(not top.nodes or (known and known.uuid in top.nodes) for top, _device in found)

    def _blockdev_snapshot_list(self, node: str, args: dict[str, Any]) -> list[Any]:
        return [[] for _disk in args["disks"]]

    def _helper_status(self, node: str, args: dict[str, Any]) -> dict[str, Any]:
        return {
            "running": False,
            "known": False,
            "contact": False,
            "started": False,
            "exit_code": None,
        }

    def _helper_stop(self, node: str, args: dict[str, Any]) -> dict[str, Any]:
        return {"lines": [], "log_file": ""}

    def _os_validate(self, node: str, args: dict[str, Any]) -> bool:
        return True

    def _os_diagnose(self, node: str, args: dict[str, Any]) -> list[Any]:
        return [["noop", "/usr/share/ganeti/os/noop", True, "", [], [], [20], True]]

    def _hooks_present(self, node: str, args: dict[str, Any]) -> list[bool]:
        return [True] * len(args["wanted"])

    def _hooks_runner(self, node: str, args: dict[str, Any]) -> list[Any]:
        return []

    def _node_crypto_tokens(self, node: str, args: dict[str, Any]) -> list[list[str]]:
        return [["ssl", f"CC:{node}"]]

    def _node_verify_light(self, node: str, args: dict[str, Any]) -> dict[str, Any]:
        return self._node_verify(node, args)

    def _checksum(self, path: str) -> str:
        """Of a file which is as it should be."""
        _directory, prefix, key = path.rpartition("/ssconf_")
        if not prefix:
            return "sum"
        data = self.config.snapshot()
        if self._facts is None or self._facts[0] is not data:
            self._facts = data, ssconf.values(data)
        return hashlib.sha1(self._facts[1][key].encode(), usedforsecurity=False).hexdigest()

    def _node_verify(self, node: str, args: dict[str, Any]) -> dict[str, Any]:
        known = self.config.node_by_name(node)
        good: dict[str, Any] = {
            "version": [PROTOCOL_VERSION, FULL_VERSION],
            "time": self.answers.get("time", lambda _node: None)(node),
            "filelist": {
                path: self._checksum(path) for path in args["checks"].get("filelist") or ()
            },
            "hypervisor": {name: None for name in args["checks"].get("hypervisor") or ()},
            "node-net-test": {},
            "nodesetup": [],
            "oslist": self._os_diagnose(node, {}),
            "client-cert": [
                None,
                self.config.cluster().candidate_certs.get(known.uuid) if known else "",
            ],
            "bridges": [],
        }
        return {key: good.get(key) for key in args["checks"]}


ASKING = frozenset(
    call.name
    for call in (
        calls.ALL_INSTANCES_INFO,
        calls.BLOCKDEV_FIND,
        calls.BLOCKDEV_FIND_MULTI,
        calls.BLOCKDEV_GETDIMENSIONS,
        calls.BLOCKDEV_GETMIRRORSTATUS_MULTI,
        calls.BLOCKDEV_REACHABLE_MULTI,
        calls.BLOCKDEV_SNAPSHOT_LIST,
        calls.BRIDGES_EXIST,
        calls.DIRECTORY_MARK,
        calls.DIRECTORY_SPACE,
        calls.DIRECTORY_SEEN,
        calls.DIRECTORY_UNMARK,
        calls.EXPORT_FIND,
        calls.EXPORT_INFO,
        calls.EXPORT_SIZES,
        calls.EXPORT_LIST,
        calls.HELPER_STATUS,
        calls.HOTPLUG_SUPPORTED,
        calls.HYPERVISOR_VALIDATE_PARAMS,
        calls.IALLOCATOR_RUNNER,
        calls.INSTANCE_GET_MIGRATION_STATUS,
        calls.INSTANCE_INFO,
        calls.INSTANCE_MIGRATABLE,
        calls.MIGRATION_INFO,
        calls.NODE_CRYPTO_TOKENS,
        calls.NODE_HAS_IP_ADDRESS,
        calls.NODE_INFO,
        calls.NODE_VERIFY,
        calls.NODE_VERIFY_LIGHT,
        calls.OS_DIAGNOSE,
        calls.OS_VALIDATE,
        calls.VERSION,
    )
)
