"""The program ``vcluster``."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence

from ganeti.platform import paths
from ganeti.tools.entry import reports_errors
from ganeti.vcluster import watcher_timer
from ganeti.vcluster.creation import Plan, add_node, create, create_like
from ganeti.vcluster.description import CLUSTER_NAME, say
from ganeti.vcluster.operation import destroy, exports, run, show, start, stop
from ganeti.vcluster.side_by_side import add_version


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="vcluster",
        description="Create and manage clusters of many nodes on this machine, without root.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, words: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")

    _add_create_options(command("create", "create a cluster and start it"))
    for name, words in (
        ("start", "start the daemons which do not run"),
        ("stop", "stop the daemons; guests continue to run"),
        ("show", "show the nodes with their daemons and guests"),
        ("watch", "run ganeti-watcher on each node again and again; 'start' starts this"),
        ("destroy", "end guests and daemons, and remove the directory"),
    ):
        command(name, words).add_argument("directory")
    one = command("add-node", "add a node to the cluster, and print its name in the last line")
    one.add_argument("directory")
    one.add_argument(
        "--machine-only",
        action="store_true",
        help="make the node, and do not add it to the cluster",
    )
    one = command("add-version", "let the nodes have another version of the programs, too")
    one.add_argument("directory")
    one.add_argument("version", metavar="PLACE", help="a checkout, or the directory of a version")
    for name, words in (
        ("env", 'print exports for a shell: eval "$(vcluster env DIRECTORY)"'),
        ("run", "run a program on a node of the cluster"),
    ):
        one = command(name, words)
        one.add_argument("--node", help="node of the program (default: the master)")
        one.add_argument("directory")
        if name == "run":
            one.add_argument("argv", nargs=argparse.REMAINDER, metavar="PROGRAM [ARGUMENT...]")
    return parser


def _add_create_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-n", "--nodes", type=int, default=3, help="number of nodes (default: 3)")
    add(
        "--hypervisor",
        choices=("kvm", "fake"),
        help="default hypervisor (default: kvm if QEMU is installed)",
    )
    add("--name", default=CLUSTER_NAME, help="name of the cluster (default: %(default)s)")
    add(
        "--tiny",
        action=argparse.BooleanOptionalAction,
        help="install the OS definition 'tiny' (default: with kvm only)",
    )
    add("--ssh", action="store_true", help="let the cluster manage the SSH keys of the nodes")
    add("--keep-failed", action="store_true", help="keep the directory when the creation fails")
    add(
        "--watch-every",
        type=int,
        default=watcher_timer.DEFAULT_S,
        metavar="SECONDS",
        help="time between two runs of ganeti-watcher on each node; 0 for no runs"
        " (default: %(default)s)",
    )
    add("--monitoring", action="store_true", help="run the monitoring daemon on each node")
    add(
        "--like",
        metavar="CONFIG",
        help="make the nodes, groups and instances of this file config.data, with the hypervisor"
        " 'fake'; of the other options only --keep-failed has an effect then",
    )
    add("directory")


@reports_errors("vcluster")
def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = make_parser()
    words = sys.argv[1:] if argv is None else list(argv)
    if not words:
        parser.print_help()
        return 1
    options = parser.parse_args(words)
    # The program may run in a shell of another virtual cluster.
    for name in (paths.ENV_ROOT, paths.ENV_HOSTNAME, paths.ENV_VCLUSTER):
        os.environ.pop(name, None)
    try:
        _dispatch(parser, options)
    except KeyboardInterrupt:
        print("vcluster: interrupted", file=sys.stderr)
        return 130
    return 0


def _dispatch(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    started = time.monotonic()
    directory = options.directory
    if options.command == "create" and options.like:
        create_like(directory, options.like, keep_failed=options.keep_failed, say=say)
    elif options.command == "create":
        plan = Plan(
            options.nodes,
            hypervisor=options.hypervisor,
            tiny=options.tiny,
            ssh=options.ssh,
            watch_every_s=options.watch_every,
            monitoring=options.monitoring,
            cluster_name=options.name,
        )
        cluster = create(directory, plan, keep_failed=options.keep_failed, say=say)
        say(f"{options.nodes} nodes in {time.monotonic() - started:.1f} s. To use them:")
        program = shlex.quote(watcher_timer.program())
        say(f'    eval "$({program} env {shlex.quote(cluster.directory)})"')
    elif options.command == "add-node":
        say(add_node(directory, join=not options.machine_only).name)
    elif options.command == "add-version":
        added = add_version(directory, options.version)
        say(f"version {added.series}: release {added.release}")
    elif options.command == "show":
        say(show(directory))
    elif options.command == "env":
        say(exports(directory, options.node))
    elif options.command == "run":
        if not options.argv:
            parser.error("'run' needs a program")
        run(directory, options.argv, options.node)
    else:
        {"start": start, "stop": stop, "destroy": destroy, "watch": watcher_timer.watch}[
            options.command
        ](directory)
