"""The control socket of the simulated nodes: one JSON object in a line, and one in return.

``{"do": "fail", "nodes": ["node7"], "calls": "node_info"}`` -> ``{"ok": true, "nodes": [names]}``,
or ``{"ok": false, "error": text}``. The commands are in :data:`COMMANDS`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any, Final

from devel.simnodes.server import SimServer
from devel.simnodes.state import FAULTS, Fault
from ganeti import errors
from ganeti.wire import json

#: Name of a command -> what it does with the chosen nodes.
COMMANDS: Final = {
    "fail": "let calls fail",
    "stall": "give no answer, for --seconds or until the node is well again",
    "off": "switch the machine off: connections break, guests end",
    "lie": "answer with false content: too much free memory, no guests, degraded disks",
    "refuse-epoch": "refuse the master, as if another one had been promised",
    "well": "end every fault; a machine which was off starts, without its guests",
    "lose-disk": "lose all volumes, and the local side of mirrored disks",
    "keep-old": "remember the present copies of configuration, queue, ssconf and epoch",
    "old-data": "come back with the copies which keep-old has remembered",
    "show": "print guests, volumes, epoch, serial number, and the answered calls",
}
_REQUEST_BYTES = 1 << 20


async def carry_out(server: SimServer, request: dict[str, Any]) -> dict[str, Any]:
    """Carry out a request.

    :raises ParameterError: the command or a node is unknown.
    """
    what = request.get("do")
    nodes = server.fleet.chosen(request.get("nodes") or ["all"])
    if what in FAULTS:
        for node in nodes:
            await server.tell(
                node, Fault(what, request.get("calls") or "*", request.get("seconds"))
            )
    elif what == "well":
        for node in nodes:
            await server.tell(node, None)
    elif what in ("lose-disk", "keep-old", "old-data"):
        for node in nodes:
            {"lose-disk": node.lose_disk, "keep-old": node.keep_old, "old-data": node.restore_old}[
                what
            ]()
    elif what == "show":
        return {
            "ok": True,
            "nodes": {
                node.name: {
                    "fault": node.fault.kind if node.fault else None,
                    "epoch": str(node.copies.epoch),
                    "config_bytes": len(node.copies.config_text),
                    "guests": sorted(node.guests),
                    "volumes": len(node.volumes),
                    "mirrored": len(node.replicas),
                    "answered": node.answered,
                    "received": node.received,
                }
                for node in nodes
            },
        }
    else:
        raise errors.ParameterError(f"unknown command '{what}'")
    return {"ok": True, "nodes": [node.name for node in nodes]}


async def serve(server: SimServer, path: str) -> asyncio.Server:
    """Serve the control socket; only the user of this process can connect.

    :raises OSError: the socket cannot be made.
    """

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        try:
            answer = await carry_out(server, json.loads(line))
        except (errors.GenericError, OSError) as err:
            answer = {"ok": False, "error": str(err)}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()
        writer.close()

    before = os.umask(0o177)
    try:
        return await asyncio.start_unix_server(handle, path, limit=_REQUEST_BYTES)
    finally:
        os.umask(before)


def ask(path: str, request: dict[str, Any]) -> dict[str, Any]:
    """Send a request to the process, and return the answer.

    :raises ParameterError: the process refuses it.
    :raises OSError: no process serves the socket.
    """
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        client.sendall(json.dumps(request).encode() + b"\n")
        received = b""
        while not received.endswith(b"\n"):
            chunk = client.recv(1 << 16)
            if not chunk:
                break
            received += chunk
    answer: dict[str, Any] = json.loads(received)
    if not answer["ok"]:
        raise errors.ParameterError(str(answer["error"]))
    return answer
