"""The program of the simulated nodes: ``serve``, and a command for each fault."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence

from devel.simnodes import control
from devel.simnodes.server import Delays, SimServer
from devel.simnodes.state import DEFAULT_SYNC_MIB_S, Fleet, SimNode
from ganeti import errors
from ganeti.backend.node import verify
from ganeti.config import ssconf
from ganeti.configfile import files as configfile
from ganeti.objects import ConfigData, codec
from ganeti.platform import hosts, paths
from ganeti.utils import x509
from ganeti.wire import json
from ganeti.wire.calls import base


def load(
    config_file: str,
    except_nodes: Sequence[str],
    certificate: str,
    *,
    root: str | None = None,
    seed: int = 0,
    sync_mib_s: float = DEFAULT_SYNC_MIB_S,
) -> Fleet:
    """Make the fleet of a configuration.

    :param except_nodes: names of nodes which are not simulated, because real daemons run there.
    :param certificate: PEM file with key and certificate of the cluster.
    :param root: root directory of the master; nodes have its other files, such as certificates.
    :raises ConfigurationError: the configuration cannot be read.
    """
    text = configfile.read(config_file)
    data = codec.from_dict(ConfigData, json.loads(text))
    fleet = Fleet(x509.digest_file(certificate), seed=seed, sync_mib_s=sync_mib_s)
    for node in data.nodes.values():
        if node.name not in except_nodes:
            fleet.nodes[node.uuid] = SimNode(fleet, node.uuid, node.name, node.primary_ip)
    if root is not None:
        here = paths.Paths(root)
        fleet.common_file = lambda path: verify.checksum(here.to_local(path))
    fleet.fill(data, text, ssconf.values(data, ssconf.InstanceList(data)))
    return fleet


async def _serve(options: argparse.Namespace) -> None:
    fleet = load(
        options.config,
        options.except_node,
        options.certificate,
        root=options.root,
        seed=options.seed,
        sync_mib_s=options.sync_mib_s,
    )
    gc.collect()
    gc.freeze()
    per_call = dict(text.partition("=")[::2] for text in options.call_delay)
    delays = Delays(
        options.delay_ms / 1e3,
        options.jitter_ms / 1e3,
        {name: float(ms) / 1e3 for name, ms in per_call.items()},
    )
    server = SimServer(fleet, x509.server_context(options.certificate), options.port, delays)
    await server.start()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(options.control)
    controlling = await control.serve(server, options.control)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    print(f"{len(fleet.nodes)} nodes answer at port {options.port}", flush=True)
    await ended.wait()
    controlling.close()
    await server.stop()
    os.unlink(options.control)


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="simnodes", description="Simulated nodes: one process answers for a thousand nodes."
    )
    commands = made.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="answer node calls until a signal")
    serve.add_argument("--config", required=True, metavar="FILE", help="the configuration")
    serve.add_argument(
        "--certificate", required=True, metavar="FILE", help="server.pem of the cluster"
    )
    serve.add_argument(
        "--except-node",
        action="append",
        default=[],
        metavar="NAME",
        help="a node with a real daemon (may be repeated)",
    )
    serve.add_argument("--root", metavar="DIR", help="root directory of the master")
    serve.add_argument("--port", type=int, default=hosts.NODED_PORT, metavar="N")
    serve.add_argument(
        "--delay-ms", type=float, default=0.0, metavar="MS", help="delay of each answer"
    )
    serve.add_argument(
        "--jitter-ms", type=float, default=0.0, metavar="MS", help="random further delay, at most"
    )
    serve.add_argument(
        "--call-delay",
        action="append",
        default=[],
        metavar="CALL=MS",
        help="delay of one call instead of --delay-ms (may be repeated)",
    )
    serve.add_argument(
        "--sync-mib-s",
        type=float,
        default=DEFAULT_SYNC_MIB_S,
        metavar="N",
        help="rate of synchronisations, in MiB/s (default: %(default)g)",
    )
    serve.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the jitter")
    for name, text in control.COMMANDS.items():
        one = commands.add_parser(name, help=text, description=text)
        one.add_argument(
            "nodes", nargs="*", help="names or patterns such as 'node7*'; none for all nodes"
        )
        if name in ("fail", "stall"):
            one.add_argument(
                "--calls", default="*", metavar="PATTERN", help="only these calls (%(default)s)"
            )
        if name == "stall":
            one.add_argument("--seconds", type=float, metavar="S", help="once, for so long")
    for one in commands.choices.values():
        one.add_argument(
            "--control", required=True, metavar="SOCKET", help="the control socket of the process"
        )
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    options = parser().parse_args(argv)
    logging.basicConfig(level=logging.WARNING)
    base.prepare()
    try:
        if options.command == "serve":
            asyncio.run(_serve(options))
            return 0
        answer = control.ask(
            options.control,
            {
                "do": options.command,
                "nodes": options.nodes,
                "calls": getattr(options, "calls", None),
                "seconds": getattr(options, "seconds", None),
            },
        )
    except (errors.GenericError, OSError) as err:
        print(f"simnodes: {err}", file=sys.stderr)
        return 1
    if options.command == "show":
        print(json.dumps_pretty(answer["nodes"]), end="")
    else:
        print(f"{options.command}: {len(answer['nodes'])} nodes")
    return 0
