"""A guest whose disks QEMU opens on a Gluster volume itself, with a real Gluster server.

A program for ``unshare --net --mount --pid --fork --mount-proc --kill-child``: ``python
gluster_lab.py DIRECTORY IMAGE`` prints what was seen as one JSON object. The server, its files and
its address are of this namespace alone. One guest starts from the volume, gets a second disk while
it runs, moves to another node and is stopped there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "lib"))

from kvm_node import Node, move, status, wait_until  # noqa: E402  (the path must be set first)

from ganeti.backend.instance import hotplug  # noqa: E402
from ganeti.backend.instance import os as os_definitions  # noqa: E402
from ganeti.backend.storage import blockdev  # noqa: E402
from ganeti.hypervisor.kvm.qmp import Qmp  # noqa: E402
from ganeti.objects.disk import Disk  # noqa: E402
from ganeti.objects.instance import FilledInstance  # noqa: E402
from ganeti.objects.transfer import OS  # noqa: E402
from ganeti.platform import paths  # noqa: E402
from ganeti.storage import device  # noqa: E402
from ganeti.wire import json  # noqa: E402

NAME = "gluster.example.com"
ADDRESS = "192.0.2.7"
VOLUME = "gv0"
#: Directories of the server, which are the machine's own otherwise.
STATE = ("/var/lib/glusterd", "/var/run/gluster", "/var/log/glusterfs")


def run(*argv: str, check: bool = True) -> str:
    """What a program says."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    if check and done.returncode != 0:
        raise SystemExit(f"{' '.join(argv)}: {done.stdout}{done.stderr}")
    return done.stdout if done.returncode == 0 else ""


def serve(directory: Path) -> None:
    """Start a server with one volume; it ends with the namespace."""
    for command in (
        "ip link set lo up",
        "ip link add gl0 type veth peer name gl1",
        "ip link set gl1 up",
        f"ip address add {ADDRESS}/24 dev gl0",
        "ip link set gl0 up",
    ):
        run(*command.split())
    for number, path in enumerate(STATE):
        own = directory / f"state{number}"
        own.mkdir()
        os.makedirs(path, exist_ok=True)
        run("mount", "--bind", str(own), path)
    brick = directory / "brick"
    brick.mkdir()
    subprocess.Popen(
        ["glusterd", "--no-daemon", f"--pid-file={directory}/glusterd.pid"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    gluster = ("gluster", "--mode=script")
    wait_until(lambda: run(*gluster, "pool", "list", check=False), "the server answers")
    run(*gluster, "volume", "create", VOLUME, f"{ADDRESS}:{brick}", "force")
    run(*gluster, "volume", "start", VOLUME)


def on_gluster(guest: FilledInstance, access: str) -> FilledInstance:
    """The guest with its disks on the volume."""
    params = {"access": access, "host": ADDRESS, "port": 24007, "volume": VOLUME}
    disks = tuple(
        replace(
            disk,
            dev_type="gluster",
            logical_id=("loop", f"ganeti/{disk.uuid}.gluster.disk"),
            params=params,
        )
        for disk in guest.disks_info
    )
    return replace(guest, disks_info=disks, disk_template="gluster")


def opened(node: Node, guest: FilledInstance) -> list[str]:
    """How QEMU has opened the disks, as it names their files."""
    with Qmp(node.socket(guest, "qmp"), guest.name) as control:
        found = control.execute("query-block")
    return sorted(one["inserted"]["file"] for one in found if "inserted" in one)


def create(node: Node, disk: Disk, name: str) -> Path:
    """Make a disk; its file in the volume as this node's kernel sees it."""
    with paths.override(node.paths):
        blockdev.create(disk, disk.size, name, True, "", False)
        return Path(device(disk).path)


def size_by_address(node: Node, guest: FilledInstance) -> int:
    """The size in bytes that a script of an OS definition finds at ``DISK_0_URI``."""
    tiny = OS(name="tiny", path=str(TOP / "doc/examples/os/tiny"), api_versions=(20,))
    with paths.override(node.paths):
        env = os_definitions.instance_env(tiny, replace(guest, os="tiny"))
    found = json.loads(run("qemu-img", "info", "--output=json", env["DISK_0_URI"]))
    return int(found["virtual-size"])


def life(
    first: Node, second: Node, guest: FilledInstance, extra_id: tuple[str, str]
) -> dict[str, Any]:
    """What a guest and its nodes have seen; its disk does not exist yet.

    :param extra_id: ``logical_id`` of a second disk, which it gets while it runs.
    """
    seen: dict[str, Any] = {}
    path = create(first, guest.disks_info[0], guest.name)
    installed = subprocess.run(
        [str(TOP / "doc/examples/os/tiny/create")],
        env={
            "PATH": "/sbin:/bin:/usr/sbin:/usr/bin",
            "OS_API_VERSION": "20",
            "OSP_IMAGE_DIR": str(first.image),
            "INSTANCE_NAME": guest.name,
            "DISK_COUNT": "1",
            "DISK_0_PATH": str(path),
        },
        cwd=TOP / "doc/examples/os/tiny",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if installed.returncode != 0:
        raise SystemExit(installed.stdout + installed.stderr)
    seen["size"] = guest.disks_info[0].size
    seen["size by address"] = size_by_address(first, guest)
    first.start(guest)
    first.wait_booted(guest)
    seen["opened"] = opened(first, guest)
    # A second disk while it runs.
    disk = replace(
        guest.disks_info[0],
        uuid=f"ffffffff{guest.disks_info[0].uuid[8:]}",
        logical_id=extra_id,
    )
    create(first, disk, guest.name)
    with paths.override(first.paths):
        _device, link, uri = blockdev.assemble(disk, guest, True, 1)
        hotplug.hotplug_device(guest, "hotadd", "disk", disk, [link, uri], 1)
    guest = replace(guest, disks_info=(*guest.disks_info, disk))
    seen["plugged"] = len(opened(first, guest))
    seen["moved"] = move(first, second, guest)
    seen["status"] = status(second, guest)
    seen["opened there"] = len(opened(second, guest))
    with paths.override(second.paths):
        hotplug.hotplug_device(guest, "hotremove", "disk", disk, None, 1)
    seen["unplugged"] = len(opened(second, guest))
    second.shutdown(guest, 0)
    seen["left"] = first.leftovers() + second.leftovers()
    return seen


def main(directory: str, image: str) -> None:
    top = Path(directory)
    serve(top)
    nodes = [Node(top / name, Path(image)) for name in ("a", "b")]
    for node in nodes:
        ssconf = Path(node.paths.ssconf_file("gluster_storage_dir"))
        ssconf.parent.mkdir(parents=True, exist_ok=True)
        ssconf.write_text("/var/run/ganeti/gluster\n")
    try:
        guest = on_gluster(nodes[0].instance(NAME, disks=1), "userspace")
        print(json.dumps(life(*nodes, guest, ("loop", "ganeti/extra.gluster.disk"))))
    finally:
        for node in nodes:
            node.end_all()


if __name__ == "__main__":
    main(*sys.argv[1:])
