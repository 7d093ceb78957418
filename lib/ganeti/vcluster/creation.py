"""Creates virtual clusters, and adds nodes to them."""

from __future__ import annotations

import glob
import logging
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from ganeti import errors
from ganeti.platform import hosts, paths
from ganeti.utils import fs, process
from ganeti.vcluster import like, watcher_timer
from ganeti.vcluster.description import (
    CLUSTER_NAME,
    COMMAND_S,
    DOMAIN,
    MOST_NODES,
    NAME,
    Node,
    VirtualCluster,
    locked,
    master,
    read,
    run_in,
    write,
    write_programs,
)
from ganeti.vcluster.network import claimed_network, is_free
from ganeti.vcluster.operation import destroy, end_processes, remove_directory, start, stop
from ganeti.wire import json

# Guests of virtual clusters are small; the usual minimum of 1 GiB for a disk would refuse them.
_BOUNDS = (
    "min:cpu-count=1,disk-count=0,disk-size=1,memory-size=1,nic-count=0,spindle-use=1"
    "/max:cpu-count=8,disk-count=16,disk-size=1048576,memory-size=32768,nic-count=8,spindle-use=12"
)
_STD = "cpu-count=1,disk-count=1,disk-size=16,memory-size=128,nic-count=1,spindle-use=1"


def qemu_path() -> str | None:
    """Return the path of QEMU for the architecture of this machine, or None."""
    return shutil.which(f"qemu-system-{platform.machine()}") or shutil.which("kvm")


def _make_node(cluster: VirtualCluster, node: Node, *, ssh: bool) -> None:
    """Make the directory of a node, without credentials.

    ``gnt-cluster init`` and ``gnt-node add`` write the credentials.

    :param ssh: make a host key, as an SSH server has it.
    """
    here = cluster.paths(node)
    for directory, mode in (
        (here.data_dir, 0o755),
        (here.run_dir, 0o1775),
        (here.log_dir, 0o1770),
        (here.lock_dir, 0o755),
        (here.conf_dir, 0o755),
        (here.hooks_base_dir, 0o755),
        (here.to_local("/srv/ganeti/os"), 0o755),
        (here.to_local(paths.DEFAULT_FILE_STORAGE_DIR), 0o750),
    ):
        fs.make_dirs(directory, mode)
    os.symlink(f"{cluster.directory}/shared", here.to_local(paths.DEFAULT_SHARED_FILE_STORAGE_DIR))
    fs.write_file(
        here.file_storage_paths_file,
        "# Directories which may contain disks of instances.\n"
        f"{paths.DEFAULT_FILE_STORAGE_DIR}\n{paths.DEFAULT_SHARED_FILE_STORAGE_DIR}\n",
        mode=0o644,
    )
    if ssh:
        fs.make_dirs(here.ssh_host_key_dir)
        process.run(
            [
                "ssh-keygen",
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-C",
                f"root@{node.name}",
                "-f",
                f"{here.ssh_host_key_dir}/ssh_host_ed25519_key",
            ],
            timeout_s=COMMAND_S,
            log=False,
        )
    if os.path.isdir(f"{cluster.directory}/os/tiny"):
        os.symlink(f"{cluster.directory}/os/tiny", here.to_local("/srv/ganeti/os/tiny"))
    # With it, "gnt-instance add --image" works as on machines with the package.
    image = f"{paths.project_dir() or ''}/doc/examples/os/image"
    if os.path.isdir(image):
        os.symlink(image, here.to_local("/srv/ganeti/os/image"))


def _install_tiny(cluster: VirtualCluster, *, build: bool) -> bool:
    """Install the OS definition "tiny" and its boot image in the directory of the cluster.

    :param build: build the boot image if this checkout has none yet; this may download packages.
    :returns: whether the OS definition is installed.
    :raises CommandError: the image could not be built.
    """
    top = paths.project_dir()
    if top is None or not os.access(f"{top}/devel/tiny-image", os.X_OK):
        return False
    image = f"{cluster.directory}/tiny"
    ready = f"{top}/build/tiny"
    if os.path.exists(f"{ready}/boot.json"):
        shutil.copytree(ready, image)
    elif not build:
        return False
    process.run(
        [f"{top}/devel/tiny-image", "-o", image, "--install-os", f"{cluster.directory}/os/tiny"],
        timeout_s=COMMAND_S,
        log=False,
    )
    return True


def kvm_parameters(cluster: VirtualCluster, qemu: str) -> dict[str, str]:
    """Return the hypervisor parameters for guests of an ordinary user on this machine."""
    found = {"kvm_path": qemu, "security_model": "none", "kernel_path": "", "initrd_path": ""}
    boot_file = f"{cluster.directory}/tiny/boot.json"
    if os.path.exists(boot_file):
        boot = json.loads(fs.read_file(boot_file))
        found.update({key: str(value) for key, value in boot.items()})
        # The image may have been copied from the directory in which it was built.
        found["kernel_path"] = f"{cluster.directory}/tiny/vmlinux"
        found["initrd_path"] = f"{cluster.directory}/tiny/initrd"
    return found


def _has_ssh(cluster: VirtualCluster) -> bool:
    """Check whether the cluster was created with ``--ssh``."""
    return os.path.isdir(cluster.paths(cluster.nodes[0]).ssh_host_key_dir)


def init_argv(cluster: VirtualCluster, qemu: str | None) -> list[str]:
    """Build the command line of ``gnt-cluster init`` for a virtual cluster.

    :param qemu: path of QEMU, or None.
    """
    hypervisors = ["fake"] if qemu is None else ["kvm", "fake"]
    if cluster.hypervisor == "fake":
        hypervisors.reverse()
    argv = [
        "gnt-cluster", "init",
        *([] if _has_ssh(cluster) else ["--no-ssh-init"]), "--no-etc-hosts",
        "--master-netdev", "lo",
        "--enabled-hypervisors", ",".join(hypervisors),
        "--enabled-disk-templates", "diskless,file,sharedfile",
        "--file-storage-dir", paths.DEFAULT_FILE_STORAGE_DIR,
        "--shared-file-storage-dir", paths.DEFAULT_SHARED_FILE_STORAGE_DIR,
        "--candidate-pool-size", "10",
        "--nic-parameters", "mode=user,link=",
        "--ipolicy-bounds-specs", _BOUNDS,
        "--ipolicy-std-specs", _STD,
        "--ipolicy-vcpu-ratio", "64",
        "--backend-parameters", "maxmem=128,minmem=96,vcpus=1",
    ]  # fmt: skip
    if qemu is not None:
        parameters = kvm_parameters(cluster, qemu)
        pairs = ",".join(f"{key}={value}" for key, value in sorted(parameters.items()))
        argv += ["--hypervisor-parameters", f"kvm:{pairs}"]
    return [*argv, cluster.cluster_name]


@dataclass(frozen=True)
class Plan:
    """What a new virtual cluster has.

    :ivar nodes: number of nodes.
    :ivar hypervisor: the default hypervisor, ``kvm`` or ``fake``; None means kvm if QEMU is
        installed.
    :ivar tiny: the OS definition "tiny" is installed; None: it is if the hypervisor is kvm.
    :ivar ssh: the cluster manages SSH keys, in the directories of the nodes.
    :ivar watch_every_s: seconds between two runs of the watcher; 0 for no runs.
    :ivar monitoring: the monitoring daemon runs on each node.
    :ivar names: the names of the nodes; empty for the usual ones.
    """

    nodes: int
    hypervisor: str | None = None
    tiny: bool | None = None
    ssh: bool = False
    watch_every_s: int = 0
    monitoring: bool = False
    cluster_name: str = CLUSTER_NAME
    names: tuple[str, ...] = ()

    def node_names(self) -> tuple[str, ...]:
        """Return the names of the nodes.

        :raises ParameterError: the plan has too many nodes, or a wrong name.
        """
        if not 1 <= self.nodes <= MOST_NODES:
            raise errors.ParameterError(
                f"a virtual cluster has 1 to {MOST_NODES} nodes, not {self.nodes}"
            )
        found = self.names or tuple(f"node{one}.{DOMAIN}" for one in range(1, self.nodes + 1))
        name = self.cluster_name
        wrong = name in found or not self.names and name.startswith("node")
        if not NAME.fullmatch(name) or wrong:
            raise errors.ParameterError(f"'{name}' cannot be the name of a virtual cluster")
        return found


def create(
    directory: str,
    plan: Plan,
    *,
    keep_failed: bool = False,
    say: Callable[[str], None] = print,
) -> VirtualCluster:
    """Create a virtual cluster and start it.

    :param directory: must not exist, or must be empty.
    :param keep_failed: keep the directory when the creation fails; otherwise nothing remains.
    :param say: called with each line of progress.
    :raises ParameterError: an argument is wrong.
    :raises OpExecError: a step failed; the message has its output.
    """
    names = plan.node_names()
    qemu = qemu_path()
    if plan.hypervisor == "kvm" and qemu is None:
        raise errors.ParameterError(
            "QEMU is not installed. Install qemu-system-x86, or use '--hypervisor fake'."
        )
    chosen = plan.hypervisor or ("fake" if qemu is None else "kvm")
    directory = os.path.realpath(directory)
    existed = os.path.isdir(directory)
    if existed and os.listdir(directory) or os.path.lexists(directory) and not existed:
        raise errors.ParameterError(f"{directory} exists and is not empty")
    with claimed_network(plan.nodes) as network:
        members = tuple(Node(name, f"{network}.{number}") for number, name in enumerate(names, 1))
        cluster = VirtualCluster(
            directory, plan.cluster_name, network, chosen, members, plan.watch_every_s
        )
        try:
            if plan.monitoring:
                fs.make_dirs(directory)
                fs.write_file(f"{directory}/{paths.VIRTUAL_MONITORING}", b"")
            _create(cluster, plan, qemu, say)
        except BaseException:
            if keep_failed:
                say(f"the creation failed; {directory} is kept")
                raise
            say(f"the creation failed; removing {directory}")
            end_processes(cluster)
            remove_directory(directory, keep_top=existed)
            raise
    return cluster


def _create(
    cluster: VirtualCluster, plan: Plan, qemu: str | None, say: Callable[[str], None]
) -> None:
    tiny = cluster.hypervisor == "kvm" if plan.tiny is None else plan.tiny
    fs.make_dirs(cluster.directory)
    with locked(cluster.directory):
        # The description comes first, so that "destroy" works even if this process is killed.
        write(cluster)
        fs.make_dirs(f"{cluster.directory}/shared", 0o750)
        if _install_tiny(cluster, build=tiny):
            say("the OS definition 'tiny' is ready")
        build = _build_dir()
        if build is not None:
            _copy_facts(build, cluster.directory)
        for node in cluster.nodes:
            _make_node(cluster, node, ssh=plan.ssh)
        write_programs(cluster)
        first = cluster.nodes[0]
        run_in(cluster, first, *init_argv(cluster, qemu))
        say(f"created {cluster.cluster_name} with its master {first.name} at {first.ip}")
        for node in cluster.nodes[1:]:
            _add(cluster, node)
            say(f"added {node.name} at {node.ip}")
        if plan.monitoring:
            for node in cluster.nodes:
                run_in(cluster, node, "daemon-util", "start", "ganeti-mond")
        if build is not None:
            _copy_facts(cluster.directory, build)
        watcher_timer.start(cluster)


def create_like(
    directory: str, path: str, *, keep_failed: bool = False, say: Callable[[str], None] = print
) -> VirtualCluster:
    """Create and start a virtual cluster with the nodes and instances of a configuration.

    Instances have the hypervisor ``fake``, and neither disks nor NICs; they are not started.

    :param directory: must not exist, or must be empty.
    :param path: a file ``config.data``; it is only read.
    :raises ParameterError: an argument is wrong.
    :raises ConfigurationError: the file is not a configuration of this or an earlier version.
    :raises OpExecError: a step failed; the message has its output.
    """
    model = like.read_model(path)
    plan = Plan(
        len(model.nodes),
        hypervisor="fake",
        tiny=False,
        cluster_name=model.cluster_name,
        names=tuple(model.nodes),
    )
    cluster = create(directory, plan, keep_failed=keep_failed, say=say)
    try:
        stop(directory)
        like.put_in(cluster, model)
        start(directory)
        chief = cluster.nodes[0]
        run_in(cluster, chief, "gnt-cluster", "redist-conf")
    except BaseException:
        if not keep_failed:
            say(f"the creation failed; removing {directory}")
            destroy(directory)
        raise
    say(f"{len(model.config['instances'])} instances like those of the configuration")
    return cluster


def _build_dir() -> str | None:
    """Return the directory of files which all virtual clusters share; None without a checkout."""
    top = paths.project_dir()
    return None if top is None else f"{top}/build"


def _copy_facts(source: str, target: str) -> None:
    """Copy the results of probing QEMU, which takes seconds on machines without KVM.

    The results contain the program and the start of the machine for which they are valid.
    """
    try:
        for path in glob.glob(f"{source}/.qemu-*"):
            known = f"{target}/{os.path.basename(path)}"
            content = fs.read_file(path)
            if not os.path.exists(known) or fs.read_file(known) != content:
                fs.make_dirs(target)
                fs.write_file(known, content, mode=0o644, sync=False)
    except OSError as err:
        # The checkout may belong to another user; then QEMU is probed again.
        logging.debug("cannot copy the results of probing QEMU: %s", err)


def _add(cluster: VirtualCluster, node: Node) -> None:
    chief = master(cluster)
    if chief is None:
        raise errors.ConfigurationError(f"the virtual cluster in {cluster.directory} has no master")
    run_in(cluster, chief, "gnt-node", "add", "--no-ssh-key-check", node.name)


def add_node(directory: str, *, join: bool = True) -> Node:
    """Add a node to a virtual cluster; after a failure the cluster is as before.

    :param join: False only makes the directory of the node, so that the administrator can add it.
    :raises ConfigurationError: no address is free.
    :raises OpExecError: ``gnt-node add`` failed; the message has its output.
    """
    cluster = read(directory)
    with locked(cluster.directory):
        cluster = read(directory)
        number = 1 + max(int(node.ip.rpartition(".")[2]) for node in cluster.nodes)
        if number > MOST_NODES:
            raise errors.ConfigurationError(
                f"the network of the virtual cluster in {directory} has no free address"
            )
        node = Node(f"node{number}.{DOMAIN}", f"{cluster.network}.{number}")
        if not is_free(node.ip, hosts.NODED_PORT):
            raise errors.ConfigurationError(f"port {hosts.NODED_PORT} of {node.ip} is in use")
        bigger = cluster._replace(nodes=(*cluster.nodes, node))
        try:
            _make_node(bigger, node, ssh=_has_ssh(bigger))
            write(bigger)
            write_programs(bigger)
            if join:
                _add(bigger, node)
        except BaseException:
            end_processes(bigger, only=node)
            write(cluster)
            remove_directory(bigger.root(node))
            raise
    return node
