"""Makes a cluster of simulated nodes: a virtual cluster with one real node, its master.

The configuration is written directly, because creating 20,000 instances with jobs would take longer
than all measurements. Each instance has a mirrored disk on two nodes of one group, and runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from devel.simnodes import control
from ganeti import errors, vcluster
from ganeti.config import Config
from ganeti.config.text import ConfigText
from ganeti.configfile.files import write_config_file
from ganeti.constants import disk as disk_const
from ganeti.objects import Cluster, ConfigData, Disk, Instance, Nic, Node, NodeGroup
from ganeti.platform import hosts, paths
from ganeti.utils import fs, process, x509
from ganeti.vcluster import network

_STEP_S = 600.0
_DOMAIN = "example.com"
_VG = "xenvg"
# Above the range from which the cluster takes ports, which has only 4,000 of them.
_PORTS_FROM = 20000
_TEMPLATES = (disk_const.DRBD8, disk_const.PLAIN, disk_const.DISKLESS)
#: Size of the disk of an instance and of the metadata of its mirror, its memory: in MiB.
DISK_MIB = 1024
META_MIB = 128
MEMORY_MIB = 1024


class Size(NamedTuple):
    """The size of a cluster.

    :ivar nodes: simulated nodes; the master is one more.
    :ivar candidates: master candidates, without the master.
    """

    nodes: int
    instances: int
    groups: int
    candidates: int


class SimulatedCluster(NamedTuple):
    """A running cluster.

    :ivar cluster: the virtual cluster with the real node.
    :ivar control: path of the control socket of the simulated nodes.
    :ivar pid: their process.
    """

    cluster: vcluster.VirtualCluster
    size: Size
    control: str
    pid: int

    def tell(self, what: str, *nodes: str, **more: Any) -> dict[str, Any]:
        """Tell nodes what to do, see :mod:`.control`."""
        return control.ask(self.control, {"do": what, "nodes": list(nodes), **more})

    def daemon(self, action: str, name: str = "ganeti-masterd") -> None:
        """Start, stop or restart a daemon of the master."""
        process.run(
            [f"{self.cluster.directory}/bin/daemon-util", action, name],
            timeout_s=_STEP_S,
            env=self.environment(),
            log=False,
        )

    def environment(self) -> dict[str, str]:
        """Return the environment of programs on the master."""
        return vcluster.environment(self.cluster, self.cluster.nodes[0])

    def paths(self) -> paths.Paths:
        """Return the paths of the master."""
        return self.cluster.paths(self.cluster.nodes[0])


def _uuid(rng: random.Random) -> str:
    digits = f"{rng.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def _addresses(count: int) -> list[str]:
    """Return free addresses.

    :raises ConfigurationError: none were found.
    """
    for second in random.sample(range(1, 255), 100):
        found = [f"127.{second}.{1 + n // 250}.{1 + n % 250}" for n in range(count)]
        if all(network.is_free(address, hosts.NODED_PORT) for address in found):
            return found
    raise errors.ConfigurationError("found no free addresses for simulated nodes")


def node_name(number: int) -> str:
    """Return the name of a simulated node; numbers begin with 1."""
    return f"sim{number}.{_DOMAIN}"


def filled(data: ConfigData, size: Size, digest: str, *, seed: int = 0) -> ConfigData:
    """Return a configuration of this size, made from that of a cluster with one node.

    :param digest: digest of the certificate of the cluster, with which simulated nodes call.
    """
    rng = random.Random(seed)
    now = data.cluster.ctime
    (master,) = data.nodes.values()
    groups = [*data.nodegroups.values(), *_more_groups(rng, size, now)]
    nodes = _nodes(rng, size, groups, now)
    instances, disks = _instances(rng, size, nodes, now)
    return dataclasses.replace(
        data,
        cluster=_larger_cluster(data.cluster, size, nodes, digest),
        nodegroups={group.uuid: group for group in groups},
        nodes={
            master.uuid: dataclasses.replace(master, vm_capable=False),
            **{node.uuid: node for node in nodes},
        },
        instances=instances,
        disks=disks,
        serial_no=data.serial_no + 1000,
    )


def _stamp(now: float) -> dict[str, Any]:
    return {"ctime": now, "mtime": now, "serial_no": 1}


def _more_groups(rng: random.Random, size: Size, now: float) -> list[NodeGroup]:
    return [
        NodeGroup(
            name=f"group{number}",
            alloc_policy="preferred",
            ndparams={},
            diskparams={},
            networks={},
            ipolicy={},
            uuid=_uuid(rng),
            **_stamp(now),
        )
        for number in range(2, size.groups + 1)
    ]


def _nodes(rng: random.Random, size: Size, groups: Sequence[NodeGroup], now: float) -> list[Node]:
    return [
        Node(
            name=node_name(number),
            primary_ip=address,
            secondary_ip=address,
            master_candidate=number <= size.candidates,
            offline=False,
            drained=False,
            group=groups[number % size.groups].uuid,
            master_capable=True,
            vm_capable=True,
            ndparams={},
            powered=True,
            uuid=_uuid(rng),
            **_stamp(now),
        )
        for number, address in enumerate(_addresses(size.nodes), 1)
    ]


def _instances(
    rng: random.Random, size: Size, nodes: Sequence[Node], now: float
) -> tuple[dict[str, Instance], dict[str, Disk]]:
    """Return mirrored instances, spread over all nodes, and their disks; both by UUID."""
    by_group: dict[str, list[Node]] = {}
    for node in nodes:
        by_group.setdefault(node.group, []).append(node)
    minors = dict.fromkeys((node.uuid for node in nodes), 0)
    instances: dict[str, Instance] = {}
    disks: dict[str, Disk] = {}
    for number in range(1, size.instances + 1):
        primary = nodes[number % size.nodes]
        others = by_group[primary.group]
        step = 1 + number // size.nodes % max(1, len(others) - 1)
        secondary = others[(others.index(primary) + step) % len(others)]
        instance, disk = make_instance(
            rng, number, primary.uuid, secondary.uuid, minors, _PORTS_FROM + number, now
        )
        instances[instance.uuid] = instance
        disks[disk.uuid] = disk
    return instances, disks


def _larger_cluster(cluster: Cluster, size: Size, nodes: Sequence[Node], digest: str) -> Cluster:
    return dataclasses.replace(
        cluster,
        candidate_pool_size=size.candidates + 1,
        candidate_certs={
            **cluster.candidate_certs,
            **{node.uuid: digest for node in nodes if node.master_candidate},
        },
        enabled_disk_templates=_TEMPLATES,
        ipolicy={
            **cluster.ipolicy,
            "disk-templates": list(_TEMPLATES),
            "spindle-ratio": 128.0,
        },
        enabled_hypervisors=("fake",),
        volume_group_name=_VG,
        drbd_usermode_helper="/bin/true",
    )


def make_instance(
    rng: random.Random,
    number: int,
    primary: str,
    secondary: str,
    minors: dict[str, int],
    port: int,
    now: float,
) -> tuple[Instance, Disk]:
    """Make an instance with a mirrored disk and a network interface.

    :param minors: the next DRBD minor of each node, by UUID; is changed.
    """
    uuid, disk_uuid = _uuid(rng), _uuid(rng)
    pair = (minors[primary], minors[secondary])
    for node in (primary, secondary):
        minors[node] += 1
    volumes = tuple(
        Disk(
            dev_type=disk_const.PLAIN,
            logical_id=(_VG, f"{disk_uuid}.disk0_{part}"),
            nodes=(primary, secondary),
            size=size,
            uuid=_uuid(rng),
            serial_no=1,
            ctime=now,
            mtime=now,
        )
        for part, size in (("data", DISK_MIB), ("meta", META_MIB))
    )
    disk = Disk(
        dev_type=disk_const.DRBD8,
        logical_id=(primary, secondary, port, *pair, f"{rng.getrandbits(160):040x}"),
        children=volumes,
        nodes=(primary, secondary),
        iv_name="disk/0",
        size=DISK_MIB,
        uuid=disk_uuid,
        serial_no=1,
        ctime=now,
        mtime=now,
    )
    low = number.to_bytes(3, "big")
    nic = Nic(mac=f"aa:00:11:{low[0]:02x}:{low[1]:02x}:{low[2]:02x}", nicparams={}, uuid=_uuid(rng))
    instance = Instance(
        name=f"instance{number}.{_DOMAIN}",
        primary_node=primary,
        os="debian+default",
        hypervisor="fake",
        beparams={"maxmem": MEMORY_MIB, "minmem": MEMORY_MIB, "vcpus": 1},
        admin_state="up",
        admin_state_source="admin",
        disks_active=True,
        nics=(nic,),
        disks=(disk_uuid,),
        uuid=uuid,
        serial_no=1,
        ctime=now,
        mtime=now,
    )
    return instance, disk


def _name_addresses(cluster: vcluster.VirtualCluster, data: ConfigData) -> None:
    """Let the names of nodes and instances resolve on the master."""
    path = f"{cluster.directory}/hosts"
    lines = [f"{node.primary_ip}\t{node.name}\n" for node in data.nodes.values()]
    fs.write_file(path, fs.read_file(path) + "".join(lines), mode=0o644)


@contextlib.contextmanager
def running(
    directory: str,
    size: Size,
    *,
    options: tuple[str, ...] = (),
    seed: int = 0,
) -> Iterator[SimulatedCluster]:
    """Run a cluster during the block.

    :param directory: must not exist.
    :param options: further options of ``devel.simnodes serve``.
    """
    cluster = vcluster.create(
        directory, vcluster.Plan(1, hypervisor="fake"), say=lambda _line: None
    )
    nodes: subprocess.Popen[str] | None = None
    try:
        first = cluster.nodes[0]
        here = cluster.paths(first)
        made = SimulatedCluster(cluster, size, f"{directory}/simnodes", 0)
        made.daemon("stop")
        with paths.override(here):
            before = Config.open(here.cluster_conf_file).snapshot()
            digest = x509.digest_file(here.noded_cert_file)
            data = filled(before, size, digest, seed=seed)
            write_config_file(here.cluster_conf_file, ConfigText(data).render(data, ()))
        _name_addresses(cluster, data)
        nodes = start_nodes(made, options)
        made = made._replace(pid=nodes.pid)
        made.daemon("start")
        yield made
    finally:
        if nodes is not None:
            nodes.terminate()
            nodes.wait()
            if nodes.stdout is not None:
                nodes.stdout.close()
        vcluster.destroy(directory)


def start_nodes(made: SimulatedCluster, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start the process of the simulated nodes; it serves when this returns.

    :raises OpExecError: it ended at once.
    """
    here = made.paths()
    nodes = subprocess.Popen(
        [
            sys.executable, "-m", "devel.simnodes", "serve",
            "--config", here.cluster_conf_file,
            "--certificate", here.noded_cert_file,
            "--root", made.cluster.root(made.cluster.nodes[0]),
            "--except-node", made.cluster.nodes[0].name,
            "--control", made.control,
            *options,
        ],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **made.environment(), "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    )  # fmt: skip
    assert nodes.stdout is not None
    if not nodes.stdout.readline():
        nodes.wait()
        raise errors.OpExecError("the simulated nodes ended at once")
    return nodes
