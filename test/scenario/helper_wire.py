"""A real communication interface: a node with root in name spaces of its own, a helper guest in it.

``unshare --net --mount python helper_wire.py IMAGE HELPER_IMAGE``: prints what the guest wrote. The
directories of a node are hidden below empty ones, and there is no network but that to the guest.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "lib"))

import kvm_node  # noqa: E402  (the path is set above)

from ganeti.backend.instance import helper  # noqa: E402
from ganeti.metad import client  # noqa: E402
from ganeti.objects.instance import FilledNic  # noqa: E402
from ganeti.platform import paths  # noqa: E402
from ganeti.server import daemon  # noqa: E402
from ganeti.utils import fs  # noqa: E402

OTHER = "169.254.0.9"
SCRIPT = f"""\
#!/bin/sh
base=http://169.254.169.254/ganeti/latest
ip -o -4 addr show dev eth0
wget -q -O - $base/meta_data.json
ping -c 1 -w 5 169.254.169.254 >/dev/null && echo the node answers
ip addr del 169.254.0.7/16 dev eth0
ip addr add {OTHER}/16 dev eth0
ping -c 1 -w 2 169.254.169.254 >/dev/null || echo not to another address
ip addr del {OTHER}/16 dev eth0
ip addr add 169.254.0.7/16 dev eth0
"""


def hide_directories() -> None:
    """Give this process directories of its own, and the view of its own network."""
    for directory in ("/var/lib", "/run", "/var/log", "/srv"):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", directory], check=True)
    subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)
    os.makedirs("/run/lock")


def main(image: str, helper_image: str) -> None:
    hide_directories()
    node = kvm_node.Node(Path("/"), Path(image))
    here = paths.current()
    daemon.ensure_runtime_dirs(here)
    fs.write_file(here.noded_cert_file, "a node")
    definition = Path(here.os_search_path[0]) / "wire"
    definition.mkdir(parents=True)
    for name, text, mode in (
        ("ganeti_api_version", "20\n", 0o644),
        ("parameters.list", "", 0o644),
        ("verify", "#!/bin/sh\n", 0o755),
        ("create_untrusted", SCRIPT, 0o755),
    ):
        (definition / name).write_text(text)
        (definition / name).chmod(mode)
    wire = FilledNic(
        mac="52:54:00:11:22:33",
        ip="169.254.0.7",
        uuid="nic-uuid",
        name="ganeti:communication:web1.example.com",
        nicparams={"mode": "routed", "link": "communication_rt", "vlan": ""},
    )
    guest = dataclasses.replace(node.instance("web1.example.com"), os="wire", nics=(wire,))
    node.create_disks(guest)
    node.assemble(guest)
    metad = subprocess.Popen([sys.executable, TOP / "daemons/ganeti-metad", "-f"])
    try:
        # The node daemon would start one; this one ends with us.
        kvm_node.wait_until(lambda: os.path.exists(here.metad_socket), "the daemon listens")
        assert client.echo("hello") == "hello"
        helper.start(guest, "install", helper_image, True, {}, False, 0)
        kvm_node.wait_until(lambda: not helper.status(guest)["running"], "the helper guest is off")
        print(f"exit code {helper.status(guest)['exit_code']}")
        print("\n".join(helper.stop(guest, "install")["lines"]))
        left = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
        print(f"interfaces left: {left.stdout.count('gnt.com')}")
    finally:
        helper.stop(guest, "install")
        metad.terminate()
        metad.wait(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
