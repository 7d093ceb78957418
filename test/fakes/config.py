"""A configuration in memory: the real one, without file and distribution.

:func:`cluster_of` makes a small cluster. ``FakeConfig.errors["instances.add"]`` makes the operation
of that name fail, ``errors["transaction"]`` every transaction; ``writes`` has, for each commit, the
names of its operations.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import typing
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

from ganeti import ht
from ganeti.config import Config, Transaction
from ganeti.config.local_file import LocalFile
from ganeti.config.store import ConfigStore
from ganeti.constants import cluster as cluster_c
from ganeti.constants import disk as disk_c
from ganeti.constants.instance import BE_DEFAULTS
from ganeti.constants.net import NIC_DEFAULTS
from ganeti.constants.node import ND_DEFAULTS
from ganeti.objects import (
    Cluster,
    ConfigData,
    Disk,
    FilledInstance,
    Instance,
    Nic,
    Node,
    NodeGroup,
    disk_templates,
    fill,
    hvparams,
    ipolicy,
)

GROUP = "group-1"


def uuid_of(name: str) -> str:
    """The uuid which the fake gives to an object of a name."""
    return f"uuid-{name}"


def node_of(number: int, **changes: Any) -> Node:
    """Node ``nodeN.example.com`` with address 192.0.2.N."""
    values: dict[str, Any] = {
        "name": f"node{number}.example.com",
        "primary_ip": f"192.0.2.{number}",
        "secondary_ip": f"192.0.2.{number}",
        "master_candidate": True,
        "offline": False,
        "drained": False,
        "group": GROUP,
        "master_capable": True,
        "vm_capable": True,
        "ndparams": {},
        "powered": True,
        "uuid": uuid_of(f"node{number}"),
        "serial_no": 1,
    }
    return Node(**{**values, **changes})


def instance_of(name: str, primary: str = "node1", **changes: Any) -> Instance:
    """An instance without disks, marked down, with one NIC."""
    values: dict[str, Any] = {
        "name": f"{name}.example.com",
        "primary_node": uuid_of(primary),
        "os": "noop",
        "hypervisor": "fake",
        "hvparams": {},
        "beparams": {},
        "osparams": {},
        "osparams_private": ht.PrivateDict(),
        "admin_state": "down",
        "admin_state_source": "admin",
        "nics": (
            Nic(mac=f"aa:00:00:00:00:{len(name):02x}", nicparams={}, uuid=uuid_of(f"{name}-nic")),
        ),
        "disks": (),
        "disks_active": False,
        "uuid": uuid_of(name),
        "serial_no": 1,
    }
    return Instance(**{**values, **changes})


def disk_of(
    instance_name: str, index: int = 0, template: str = disk_c.SHARED_FILE, node: str = "node1"
) -> Disk:
    """A file disk of 1 GiB for an instance."""
    kind = "shared-file-storage" if template == disk_c.SHARED_FILE else "file-storage"
    return Disk(
        dev_type=template,
        logical_id=(
            "loop",
            f"/srv/ganeti/{kind}/{instance_name}.example.com/{index}.{template}.disk{index}",
        ),
        iv_name=f"disk/{index}",
        size=1024,
        nodes=() if template == disk_c.SHARED_FILE else (uuid_of(node),),
        uuid=uuid_of(f"{instance_name}-disk{index}"),
        serial_no=1,
    )


def cluster_of(
    nodes: int = 3,
    instances: tuple[Instance, ...] = (),
    disks: tuple[Disk, ...] = (),
    *,
    node_changes: dict[int, dict[str, Any]] | None = None,
    **cluster_changes: Any,
) -> ConfigData:
    """A cluster of some nodes in one group; the first is the master. The hypervisor is ``fake``."""
    members = [
        node_of(number, **(node_changes or {}).get(number, {})) for number in range(1, nodes + 1)
    ]
    values: dict[str, Any] = {
        "serial_no": 1,
        "rsahostkeypub": "",
        "highest_used_port": 11000,
        "tcpudp_port_pool": (),
        "mac_prefix": "aa:00:00",
        "reserved_lvs": (),
        "master_node": members[0].uuid,
        "master_ip": "192.0.2.100",
        "master_netdev": "lo",
        "master_netmask": 32,
        "use_external_mip_script": False,
        "cluster_name": "cluster.example.com",
        "file_storage_dir": "/srv/ganeti/file-storage",
        "shared_file_storage_dir": "/srv/ganeti/shared-file-storage",
        "gluster_storage_dir": "/run/ganeti/gluster",
        "enabled_hypervisors": ("fake", "kvm"),
        "hvparams": {name: hvparams.defaults(name) for name in ("fake", "kvm")},
        "os_hvp": {},
        "beparams": {"default": dict(BE_DEFAULTS)},
        "osparams": {},
        "osparams_private_cluster": ht.PrivateDict(),
        "nicparams": {"default": dict(NIC_DEFAULTS)},
        "ndparams": dict(ND_DEFAULTS),
        "diskparams": {name: dict(disk_templates.defaults(name)) for name in disk_templates.ALL},
        "candidate_pool_size": 10,
        "modify_etc_hosts": False,
        "modify_ssh_setup": False,
        "maintain_node_health": False,
        "uid_pool": (),
        "default_iallocator": "",
        "default_iallocator_params": {},
        "hidden_os": (),
        "blacklisted_os": (),
        "primary_ip_family": 2,
        "prealloc_wipe_disks": False,
        "ipolicy": ipolicy.defaults(),
        "enabled_disk_templates": (disk_c.DISKLESS, disk_c.FILE, disk_c.SHARED_FILE),
        "candidate_certs": {node.uuid: f"AA:{number:02}" for number, node in enumerate(members)},
        "max_running_jobs": 20,
        "max_tracked_jobs": 25,
        "install_image": "",
        "instance_communication_network": "",
        "zeroing_image": "",
        "compression_tools": (),
        "enabled_user_shutdown": False,
        "data_collectors": {},
        "ssh_key_type": "rsa",
        "ssh_key_bits": 2048,
        "uuid": uuid_of("cluster"),
    }
    group = NodeGroup(
        name="default",
        alloc_policy="preferred",
        ipolicy={},
        diskparams={},
        ndparams={},
        networks={},
        uuid=GROUP,
        serial_no=1,
    )
    return ConfigData(
        version=cluster_c.CONFIG_VERSION,
        cluster=Cluster(**{**values, **cluster_changes}),
        nodes={node.uuid: node for node in members},
        nodegroups={GROUP: group},
        instances={instance.uuid: instance for instance in instances},
        networks={},
        disks={disk.uuid: disk for disk in disks},
        filters={},
        serial_no=1,
    )


class _Operations:
    """The operations on one kind of object; a function carries them out, by their names."""

    def __init__(self, kind: str, carry_out: Callable[..., Any]) -> None:
        self._kind = kind
        self._carry_out = carry_out

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return functools.partial(self._carry_out, f"{self._kind}.{name}")


def _operations(carry_out: Callable[..., Any]) -> dict[str, _Operations]:
    """All operations of a transaction."""
    return {kind: _Operations(kind, carry_out) for kind in typing.get_type_hints(Transaction)}


class _Recorder:
    """A transaction which remembers the names of its operations, and can let one of them fail."""

    def __init__(self, change: Transaction, failures: dict[str, Exception]) -> None:
        vars(self).update(_operations(self._carry_out))
        self._change = change
        self._failures = failures
        self.names: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._change, name)

    def _carry_out(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if name in self._failures:
            raise self._failures[name]
        self.names.append(f"{name} {args[1]}" if name == "instances.mark" else name)
        return operator.attrgetter(name)(self._change)(*args, **kwargs)


class FakeConfig(Config):
    """The real configuration, kept in memory only."""

    def __init__(self, data: ConfigData) -> None:
        super().__init__(ConfigStore(LocalFile("config.data", lambda path, text: None), data))
        self.writes: list[str] = []
        self.errors: dict[str, Exception] = {}
        self.released: list[str] = []

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        if "transaction" in self.errors:
            raise self.errors["transaction"]
        with super().transaction() as change:
            recorder = _Recorder(change, self.errors)
            yield cast(Transaction, recorder)
        self.writes.append(", ".join(recorder.names))

    def release_reservations(self) -> None:
        self.released.append(self._execution)
        super().release_reservations()

    # -- for wire encodings ------------------------------------------------------

    def filled_instance(self, instance: Instance, **overrides: Any) -> FilledInstance:
        """As the real runner's filler."""
        return fill.filled_instance(self.snapshot(), instance, **overrides)

    def annotated_disk(self, disk: Disk, instance: Instance | FilledInstance) -> Disk:
        """As the real runner's filler."""
        group = self.group(self.node(instance.primary_node).group)
        return fill.annotated_disk(
            disk, fill.fill_diskparams(self.cluster().diskparams, group.diskparams)
        )


def commit(config: Config) -> Transaction:
    """The operations of a transaction, where each one becomes a commit of its own."""

    def carry_out(name: str, *args: Any, **kwargs: Any) -> Any:
        with config.transaction() as change:
            return operator.attrgetter(name)(change)(*args, **kwargs)

    return cast(Transaction, SimpleNamespace(**_operations(carry_out)))
