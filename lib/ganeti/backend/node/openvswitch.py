"""The Open vSwitch which the parameters ``ovs``, ``ovs_name`` and ``ovs_link`` of a node name.

Source: ovs-vsctl(8); manual page **gnt-node**, *add*.
"""

from __future__ import annotations

import os
import re
import shutil

from ganeti import errors
from ganeti.backend.registry import serves
from ganeti.hypervisor import host
from ganeti.hypervisor.net.openvswitch import PROGRAM
from ganeti.utils import process
from ganeti.wire import calls

_NET_DIR = "/sys/class/net"
_TIMEOUT_S = 60
# Of ovs-vsctl for "there is no such object".
_ABSENT = 2
_INTERFACE = re.compile(r"[A-Za-z0-9_.:-]{1,15}", re.ASCII)


@serves(calls.NODE_CONFIGURE_OVS)
def configure(ovs_name: str, ovs_link: str | None) -> None:
    """Make the switch and connect its interface; what is there already is kept.

    :param ovs_link: an interface of this machine which becomes a port; None or empty for none.
    :raises ConfigurationError: a name is not possible, the interface does not exist or has an
        address of this node, or ovs-vsctl failed; nothing was changed.
    """
    for name in (ovs_name, ovs_link):
        if name and not _INTERFACE.fullmatch(name):
            raise errors.ConfigurationError(f"'{name:.40}' is not the name of a network interface")
    argv = [PROGRAM, f"--timeout={_TIMEOUT_S}", "--may-exist", "add-br", ovs_name]
    if ovs_link:
        if _switch_of(ovs_link) != ovs_name:
            _check_link(ovs_name, ovs_link)
        # In one transaction with the switch.
        argv += ["--", "--may-exist", "add-port", ovs_name, ovs_link]
    try:
        process.run(argv, timeout_s=_TIMEOUT_S + 10)
    except errors.CommandError as err:
        raise errors.ConfigurationError(
            f"cannot make Open vSwitch {ovs_name}: {err}. Check that the package"
            " openvswitch-switch is installed and its service runs."
        ) from err


def problem(ovs_name: str, ovs_link: str | None) -> str | None:
    """Say what the switch lacks, or None; nothing is changed."""
    if shutil.which(PROGRAM, path=process.DEFAULT_PATH) is None:
        return f"the program {PROGRAM} is missing (package openvswitch-switch)"
    done = _ask("br-exists", ovs_name)
    if done.exit_code == _ABSENT:
        return f"there is no Open vSwitch {ovs_name}"
    if done.failed:
        return f"Open vSwitch does not answer: {host.last_lines(done.output)}"
    if ovs_link:
        switch = _switch_of(ovs_link)
        if switch != ovs_name:
            where = "no switch" if switch is None else f"switch {switch}"
            return f"interface {ovs_link} is a port of {where}, and not of {ovs_name}"
    return None


def _check_link(ovs_name: str, ovs_link: str) -> None:
    if not os.path.isdir(f"{_NET_DIR}/{ovs_link}"):
        raise errors.ConfigurationError(
            f"interface {ovs_link}, which is to be a port of Open vSwitch {ovs_name}, does not"
            " exist"
        )
    try:
        address = host.interface_address(ovs_link, 0)
    except errors.HypervisorError:
        return
    raise errors.ConfigurationError(
        f"interface {ovs_link} has the address {address}, which could not be reached any more when"
        f" the interface is a port of Open vSwitch {ovs_name}. Move the address to an interface of"
        " the switch first."
    )


def _switch_of(interface: str) -> str | None:
    done = _ask("port-to-br", interface)
    return None if done.failed else done.stdout.strip()


def _ask(*words: str) -> process.Completed:
    return process.run(
        [PROGRAM, f"--timeout={_TIMEOUT_S}", *words], timeout_s=_TIMEOUT_S + 10, check=False
    )
