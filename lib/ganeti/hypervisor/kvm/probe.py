"""Probing whether the installed QEMU knows the hardware which the hypervisor parameters name.

There are hundreds of processors, machines, sound devices and migration capabilities, which change
with each version, so QEMU itself is asked: it is started with this hardware and without a guest,
and then ended. That takes a fifth of a second, and is done only if a parameter names something.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.hypervisor import host
from ganeti.hypervisor.kvm import argv
from ganeti.hypervisor.kvm.facts import QemuFacts
from ganeti.utils import process
from ganeti.wire import json

_TIMEOUT_S = 60.0
_COMMANDS = "".join(
    json.dumps({"execute": command}) + "\n"
    for command in ("qmp_capabilities", "query-migrate-capabilities", "quit")
)
# Parameters which can be probed without the rest of the guest.
_PROBED = ("machine_version", "cpu_type", "soundhw", "vga", "usb_devices", "keymap")


def check_hardware(hvparams: Mapping[str, Any], qemu: QemuFacts) -> None:
    """Check that QEMU knows the hardware and the capabilities of migrations in the parameters.

    :raises HypervisorError: names the probed parameters and has QEMU's error.
    """
    probed = [
        name
        for name in _PROBED
        if hvparams.get(name) and (name != "keymap" or _has_keymap(hvparams))
    ]
    wanted = [name for name in (hvparams.get("migration_caps") or "").split(":") if name]
    if not probed and not wanted:
        return
    command = probe_argv(hvparams, qemu)
    done = process.run(command, stdin=_COMMANDS, timeout_s=_TIMEOUT_S, check=False)
    if done.exit_code != 0:
        names = ", ".join(f"{name}={hvparams[name]}" for name in probed)
        raise errors.HypervisorError(
            f"parameters {names}: {qemu.program} says: {host.last_lines(done.stderr)}"
        )
    unknown = sorted(set(wanted) - _capabilities(done.stdout)) if wanted else []
    if unknown:
        raise errors.HypervisorError(
            f"parameter migration_caps: {qemu.program} has no capability {unknown[0]}"
        )


def probe_argv(hvparams: Mapping[str, Any], qemu: QemuFacts) -> list[str]:
    """Return the command of a QEMU with the hardware which the parameters name, and nothing
    else.
    """
    machine = argv.machine_type(hvparams, qemu)
    # QEMU reads the file of the keys for VNC only, also when VNC does not listen.
    screen = ["-vnc", "none", "-k", hvparams["keymap"]] if _has_keymap(hvparams) else []
    return [
        qemu.program,
        "-S",
        "-nodefaults",
        "-no-user-config",
        *(screen or ["-display", "none"]),
        "-m",
        "64",
        "-machine",
        f"{machine},accel={argv.accelerator(hvparams, qemu)}",
        "-usb",
        *argv.hardware_argv(hvparams, sound="none"),
        "-qmp",
        "stdio",
    ]


def _has_keymap(hvparams: Mapping[str, Any]) -> bool:
    return bool(hvparams.get("keymap") and hvparams.get("vnc_bind_address"))


def _capabilities(output: str) -> set[str]:
    """Return the names in the answer to ``query-migrate-capabilities``."""
    for line in output.splitlines():
        try:
            answer = json.loads(line)
        except errors.ParseError:
            continue
        found = answer.get("return") if isinstance(answer, dict) else None
        if isinstance(found, list):
            return {str(one.get("capability")) for one in found if isinstance(one, dict)}
    return set()
