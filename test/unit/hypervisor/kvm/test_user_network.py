"""The interface to the node: QEMU's own network, and the host's end of a real one."""

from __future__ import annotations

import ipaddress
import shlex
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.hypervisor.kvm import devices, nics, user_network
from ganeti.hypervisor.net import connect
from ganeti.platform import paths

NIC = {
    "name": "ganeti:communication:web1",
    "ip": "169.254.3.7",
    "mac": "52:54:00:00:00:07",
    "uuid": "nic-uuid-1-2-3",
    "nicparams": {"mode": "routed", "link": "communication_rt"},
    "hvinfo": {"driver": "virtio-net-pci", "id": "nic-1", "bus": "pci.0", "addr": "0x8"},
}
HVPARAMS = {"nic_type": "paravirtual"}


def backend(words: list[str]) -> str:
    return words[words.index("-netdev") + 1]


def test_in_a_virtual_cluster_qemu_carries_it(tmp_path: Path) -> None:
    with paths.override(paths.Paths(str(tmp_path / "with space"))):
        assert nics.host_nics([NIC], "web1") == [None]  # neither root nor the program ip is needed
        forward = user_network.forwarder()
        found = backend(devices.nic_argv(NIC, HVPARAMS, None, bootable=False, forward=forward))
    head, _, command = found.partition("guestfwd=")
    assert head == (
        "type=user,id=nic-1,net=169.254.0.0/16,host=169.254.255.254,"
        "dns=169.254.255.253,dhcpstart=169.254.3.7,restrict=on,"
    )
    rule, _, program = command.partition("-cmd:")
    assert rule == "tcp:169.254.169.254:80"
    # QEMU splits it like a shell, after it has undoubled the commas.
    words = shlex.split(program.replace(",,", ","))
    assert words[-2:] == [
        f"{tmp_path}/with space/var/run/ganeti/socket/ganeti-metad-guests",
        "169.254.3.7",
    ]
    assert Path(words[-3]).name == "metad_forward.py" and Path(words[-3]).exists()


@pytest.mark.parametrize("ip", ["169.254.255.254", "169.254.255.253", "169.254.0.1"])
def test_qemu_takes_no_address_of_others(ip: str) -> None:
    options = dict(user_network.netdev_options({**NIC, "ip": ip}, "forward"))
    own = [ipaddress.IPv4Address(options[key]) for key in ("host", "dns")]
    assert len({*own, ipaddress.IPv4Address(ip), ipaddress.IPv4Address("169.254.169.254")}) == 4


@pytest.mark.parametrize("ip", [None, "", "fe80::1", "pool"])
def test_a_nic_needs_an_address(ip: str | None) -> None:
    with pytest.raises(errors.HypervisorError, match="no IPv4 address"):
        user_network.netdev_options({**NIC, "ip": ip}, "forward")


def test_other_nics_of_qemus_network_get_no_rule() -> None:
    words = devices.nic_argv(
        {**NIC, "name": "lan"}, HVPARAMS, None, bootable=False, forward="forward"
    )
    assert backend(words) == "type=user,id=nic-1"


def test_on_a_real_node_the_network_has_two_ends() -> None:
    assert not user_network.is_communication(NIC)
    assert connect.up_argvs("gnt.com.0", NIC)[-3:] == [
        ["ip", "link", "set", "gnt.com.0", "up"],
        ["ip", "address", "replace", "169.254.169.254/32", "dev", "gnt.com.0"],
        ["ip", "route", "replace", "169.254.3.7/32", "dev", "gnt.com.0", "src", "169.254.169.254"],
    ]
    with pytest.raises(errors.HypervisorError, match="no IP address"):
        connect.up_argvs("gnt.com.0", {**NIC, "ip": None})
