"""Opening the console of an instance, as the master describes it.

The description is an ``InstanceConsole``: of kind ``msg`` (a text), ``ssh`` (a command on a node),
``vnc`` or ``spice`` (a place a viewer can connect to). A command replaces this process, so that the
console has the terminal for itself. In a virtual cluster all nodes are on this machine and there is
no SSH: the command is run as it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from ganeti import errors
from ganeti.cli import failures, terminal
from ganeti.platform import machine, paths
from ganeti.utils import text

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from typing import Any

    from ganeti.luxi import client as luxi


def open_console(console: Mapping[str, Any], client: luxi.Client, *, show_command: bool) -> int:
    """Show or open a console.

    :param client: asked for the cluster's name, under which SSH knows the nodes' keys.
    :returns: the exit code, unless this process became the console.
    :raises OpExecError: of a kind this program does not know, or the command cannot be run.
    """
    kind = console.get("kind")
    if kind == "msg":
        terminal.out(str(console["message"]))
    elif kind == "vnc":
        display = console.get("display")
        terminal.out(
            f"Instance {console['instance']} has VNC listening on"
            f" {console['host']}:{console['port']}"
            + (f" (display {display})" if display is not None else "")
            + f", URL <vnc://{console['host']}:{console['port']}/>"
        )
    elif kind == "spice":
        terminal.out(
            f"Instance {console['instance']} has SPICE listening on"
            f" {console['host']}:{console['port']},"
            f" URL <spice://{console['host']}:{console['port']}/>"
        )
    elif kind == "ssh":
        argv = console_argv(console, client)
        if show_command:
            terminal.out(text.shell_join(argv))
        else:
            _become(argv, str(console["instance"]))
    else:
        raise errors.OpExecError(f"cannot open a console of kind '{kind}'")
    return failures.EXIT_SUCCESS


def console_argv(console: Mapping[str, Any], client: luxi.Client) -> list[str]:
    """The command that opens a console of kind ``ssh``."""
    command = console["command"]
    if not machine.current().has_ssh:
        return list(command) if isinstance(command, list) else ["/bin/sh", "-c", command]
    remote = command if isinstance(command, str) else text.shell_join(command)
    (cluster_name,) = client.query_config_values(["cluster_name"])
    port = console.get("port")
    return [
        "ssh",
        "-oEscapeChar=none",
        "-oHashKnownHosts=no",
        f"-oGlobalKnownHostsFile={paths.current().known_hosts_file}",
        "-oUserKnownHostsFile=/dev/null",
        "-oCheckHostIp=no",
        "-oConnectTimeout=10",
        f"-oHostKeyAlias={cluster_name}",
        "-q",
        *([f"-oPort={port}"] if port else []),
        "-oBatchMode=yes",
        "-oStrictHostKeyChecking=yes",
        "-t",
        "-t",
        f"{console['user']}@{console['host']}",
        remote,
    ]


def _become(argv: Sequence[str], instance: str) -> None:
    """Replace this process.

    :raises OpExecError: there is no such program.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(argv[0], list(argv))
    except OSError as err:
        raise errors.OpExecError(
            f"cannot open the console of instance {instance}: {argv[0]}: {err.strerror}. The"
            f" command is: {text.shell_join(argv)}"
        ) from err
