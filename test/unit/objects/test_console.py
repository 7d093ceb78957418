"""Ways to the console of an instance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ganeti.objects import console, hvparams
from ganeti.utils import paths


def of(hypervisor: str = "kvm", port: int | None = 11000, **changes: Any) -> dict[str, Any]:
    params = {**hvparams.defaults("kvm"), **changes}
    made = console.console("web1", hypervisor, params, port, "node2")
    return {name: getattr(made, name) for name in ("kind", "host", "port", "display", "message",
                                                   "command") if getattr(made, name) is not None}


def test_serial() -> None:
    assert of() == {"kind": "ssh", "host": "node2", "command": [
        "/usr/lib/ganeti/tools/kvm-console-wrapper", "socat", "web1",
        "/var/run/ganeti/kvm-hypervisor/ctrl/web1.monitor", "STDIO,raw,echo=0,escape=0x1d",
        "UNIX-CONNECT:/var/run/ganeti/kvm-hypervisor/ctrl/web1.serial"]}


def test_serial_in_a_virtual_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.ENV_VCLUSTER, "/vc")
    with paths.override(paths.Paths("/vc/node1")):
        command = of()["command"]
    assert Path(command[0]).name == "kvm-console-wrapper" and Path(command[0]).exists()
    assert command[-1] == "UNIX-CONNECT:/vc/node2/var/run/ganeti/kvm-hypervisor/ctrl/web1.serial"


@pytest.mark.parametrize("changes, wanted", [
    ({"vnc_bind_address": "0.0.0.0"},
     {"kind": "vnc", "host": "node2", "port": 11000, "display": 5100}),
    ({"vnc_bind_address": "192.0.2.1"},
     {"kind": "vnc", "host": "192.0.2.1", "port": 11000, "display": 5100}),
    ({"spice_bind": "192.0.2.1"}, {"kind": "spice", "host": "192.0.2.1", "port": 11000}),
])
def test_graphics(changes: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert of(serial_console=False, **changes) == wanted


def test_none() -> None:
    assert of(serial_console=False)["kind"] == "msg"
    assert of(serial_console=False, vnc_bind_address="/run/vnc")["kind"] == "msg"
    assert of("fake") == {"kind": "msg", "message": "Console not available for fake hypervisor"}
