"""Open the console of an instance, for ``gnt-instance console``.

The master describes the console with an ``InstanceConsole`` of kind ``msg`` (a text), ``ssh`` (a
command on a node), ``vnc`` or ``spice`` (the address for a viewer). A command replaces this
process, so that only the console uses the terminal. In a virtual cluster all nodes are on this
machine, and the command is run without SSH.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, terminal
from ganeti.cli.over_rest import address
from ganeti.platform import machine, paths
from ganeti.utils import text

if TYPE_CHECKING:
    from typing import Any

    from ganeti.luxi import client as luxi


def open_console(console: Mapping[str, Any], client: luxi.Client, *, show_command: bool) -> int:
    """Show or open a console.

    :param console: the ``InstanceConsole`` as a dictionary.
    :param client: used for the name of the cluster, under which SSH knows the keys of the nodes.
    :param show_command: only print the command instead of running it.
    :returns: the exit code 0, unless the console replaces this process: also for a console of kind
        ``msg``, which says why there is none, or how else it is reached.
    :raises OpExecError: unknown kind of console, or the command cannot be run.
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
        if address.is_given() and not show_command:
            raise errors.OpPrereqError(
                f"the console of {console['instance']} is reached over SSH as root of its node,"
                " with the keys of the cluster: use the command on the master. 'gnt-instance"
                f" console --log {console['instance']}' shows here what the instance writes.",
                errors.ECODE_ENVIRON,
            )
        if show_command:
            terminal.out(text.shell_join(argv))
        else:
            _become(argv, str(console["instance"]))
    else:
        raise errors.OpExecError(
            f"cannot open the console of instance {console.get('instance')}: unknown kind '{kind}'"
        )
    return failures.EXIT_SUCCESS


def console_argv(console: Mapping[str, Any], client: luxi.Client) -> list[str]:
    """Return the command that opens a console of kind ``ssh``."""
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
    """Replace this process by the program of the console.

    :raises OpExecError: the program cannot be run.
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
