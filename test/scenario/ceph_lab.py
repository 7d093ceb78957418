"""A guest whose disks QEMU opens in a Ceph cluster itself, with a real monitor and a real OSD.

A program for ``unshare`` like ``gluster_lab.py``, whose guest does the same here. The objects are
in the memory of the OSD. Everything about images is done by the real ``rbd``, except what needs the
module rbd of the kernel, which not every machine has: a program in front of it gives out the files
of ``rbd-fuse`` as block devices (``map``, ``unmap`` and ``showmapped``).
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from gluster_lab import life, run, wait_until
from kvm_node import Node

from ganeti import errors
from ganeti.objects.instance import FilledInstance
from ganeti.storage import device
from ganeti.wire import json

NAME = "ceph.example.com"
POOL = "guests"
CONFIG = """[global]
fsid = {fsid}
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
mon_host = v1:127.0.0.1:6789
ms_bind_msgr2 = false
run_dir = {top}
admin_socket = {top}/$name.$pid.asok
log_file = {top}/$name.log
pid_file = {top}/$name.pid
mon_data = {top}/mon
osd_data = {top}/osd
osd_objectstore = memstore
memstore_device_bytes = 1073741824
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
"""
#: In the place of the kernel's part of "rbd"; everything else is the real program.
KERNEL = """#!{python}
import json, os, subprocess, sys

TOP, PROGRAM, POOL = {top!r}, {program!r}, {pool!r}
STATE, FILES = TOP + "/mapped.json", TOP + "/images"
words = sys.argv[1:]
verb = words[0] if words else ""
if verb not in ("map", "unmap", "showmapped"):
    os.execv(PROGRAM, [PROGRAM, *words])
found = json.load(open(STATE)) if os.path.exists(STATE) else []
if verb == "showmapped":
    print(json.dumps(found))
elif verb == "map":
    assert words[1:3] == ["-p", POOL], words
    # With a mount for each image, it is closed when it is unmapped.
    place = FILES + "/" + words[3]
    os.makedirs(place, exist_ok=True)
    subprocess.run(["rbd-fuse", "-p", POOL, "-r", words[3], place], check=True)
    path = place + "/" + words[3]
    if not os.path.exists(path):
        subprocess.run(["umount", place])
        sys.exit("rbd: error opening image " + words[3])
    argv = ["losetup", "-f", "--show", path]
    made = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    entry = dict(id=str(len(found)), pool=POOL, name=words[3], snap="-", device=made)
    json.dump([*found, entry], open(STATE, "w"))
    print(entry["device"])
else:
    (one,) = [one for one in found if one["device"] == words[1]]
    subprocess.run(["losetup", "-d", words[1]], check=True)
    subprocess.run(["umount", FILES + "/" + one["name"]], check=True)
    json.dump([other for other in found if other is not one], open(STATE, "w"))
"""


def serve(top: Path) -> None:
    """Start a cluster with one pool; it ends with the namespace."""
    run("ip", "link", "set", "lo", "up")
    fsid, osd = str(uuid.uuid4()), str(uuid.uuid4())
    for name in ("mon", "osd", "etc", "images", "bin"):
        (top / name).mkdir()
    (top / "etc/ceph.conf").write_text(CONFIG.format(fsid=fsid, top=top))
    os.makedirs("/etc/ceph", exist_ok=True)
    run("mount", "--bind", str(top / "etc"), "/etc/ceph")
    address = "[v1:127.0.0.1:6789]"
    monitors = str(top / "monmap")
    run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, monitors)
    run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monitors)
    run("ceph-mon", "-i", "a")
    run("ceph", "osd", "new", osd)
    run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
    # A monitor which has just begun may refuse it for a moment.
    start = ["ceph-osd", "-i", "0"]
    wait_until(
        lambda: subprocess.run(start, capture_output=True, check=False).returncode == 0,
        "the OSD starts",
    )
    wait_until(lambda: "1 up" in run("ceph", "osd", "stat"), "the OSD is up")
    run("ceph", "osd", "pool", "create", POOL, "8", "8")
    run("rbd", "pool", "init", POOL)
    program = top / "bin/rbd"
    text = KERNEL.format(python=sys.executable, top=str(top), program="/usr/bin/rbd", pool=POOL)
    program.write_text(text)
    program.chmod(0o755)
    os.environ["PATH"] = f"{top}/bin:{os.environ['PATH']}"


def on_ceph(guest: FilledInstance) -> FilledInstance:
    """The guest with its disks in the pool, which QEMU opens itself."""
    params = {"access": "userspace", "pool": POOL, "user-id": "admin"}
    disks = tuple(
        replace(disk, dev_type="rbd", logical_id=("rbd", f"{disk.uuid}.rbd.disk0"), params=params)
        for disk in guest.disks_info
    )
    return replace(guest, disks_info=disks, disk_template="rbd")


def images() -> dict[str, int]:
    """Name of each image -> its size in bytes, as Ceph says."""
    names = json.loads(run("rbd", "ls", "-p", POOL, "--format", "json"))
    infos = [json.loads(run("rbd", "info", "-p", POOL, one, "--format", "json")) for one in names]
    return {one["name"]: one["size"] for one in infos}


def storage_alone(guest: FilledInstance) -> dict[str, Any]:
    """The operations on an image, without a guest."""
    (disk,) = guest.disks_info
    own = device(replace(disk, logical_id=("rbd", "alone")))
    seen: dict[str, Any] = {"absent": own.exists()}
    own.create(64)
    own.assemble()
    own.assemble()
    seen["mapped"] = run("blockdev", "--getsize64", own.path).strip()
    own.shutdown()
    own.grow(32, dry_run=False, backing_store=True)
    seen["grown"] = images()["alone"]
    seen["snapshot"] = own.snapshot("before", 96)
    try:
        own.create(64)
    except errors.BlockDeviceError as err:
        seen["twice"] = f"{type(err).__name__}: {err}"
    run("rbd", "snap", "rm", f"{POOL}/alone@before")
    own.remove()
    seen["left"] = images()
    return seen


def main(directory: str, image: str) -> None:
    top = Path(directory)
    serve(top)
    nodes = [Node(top / name, Path(image)) for name in ("a", "b")]
    guest = on_ceph(nodes[0].instance(NAME, disks=1))
    try:
        alone = storage_alone(guest)
        print(json.dumps({**life(*nodes, guest, ("rbd", "extra.rbd.disk1")), "alone": alone}))
    finally:
        for node in nodes:
            node.end_all()
        for one in json.loads(run("rbd", "showmapped", "--format", "json")):
            run("rbd", "unmap", one["device"])


if __name__ == "__main__":
    main(*sys.argv[1:])
