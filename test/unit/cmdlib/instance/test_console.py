"""The console of an instance: a command, an address or a message."""

from __future__ import annotations

import pytest

from fakes.config import cluster_of, instance_of
from fakes.master import Master
from ganeti.opcodes.instance import OpInstanceConsole

KERNEL = {"kernel_path": "/boot/vmlinuz"}


def console_of(hvparams, **changes):
    web = instance_of("web", hypervisor="kvm", hvparams={**KERNEL, **hvparams}, **changes)
    master = Master(cluster_of(1, (web,)))
    master.rpc.run("web", "node1")
    return master.run(OpInstanceConsole(instance_name="web"))


def test_a_serial_console_is_a_command_on_the_node():
    console = console_of({"serial_console": True})
    assert console["kind"] == "ssh"
    assert console["host"] == "node1.example.com"
    command = console["command"]
    assert command[0].endswith("/tools/kvm-console-wrapper")
    assert command[2] == "web.example.com"
    assert command[-1].startswith("UNIX-CONNECT:/")
    assert command[-1].endswith("/ctrl/web.example.com.serial")


def test_a_vnc_console_is_an_address():
    off = {"serial_console": False, "vnc_bind_address": "0.0.0.0"}
    console = console_of(off, network_port=11005)
    assert (console["kind"], console["port"], console["display"]) == ("vnc", 11005, 5105)


@pytest.fixture
def master():
    return Master(cluster_of(1, (instance_of("web"),)))


def test_no_console_is_a_message(master):
    master.rpc.run("web", "node1")
    console = master.run(OpInstanceConsole(instance_name="web"))
    assert console["kind"] == "msg"
    assert "fake" in console["message"]
    assert console_of({"serial_console": False})["kind"] == "msg"


def test_a_stopped_instance_has_no_console(master):
    assert "is not running" in master.failed(OpInstanceConsole(instance_name="web"))
