"""The program ``mon-collector``: runs one collector of the monitoring daemon once.

Each collector can read a file in place of this node's own source, so a recorded state can be
examined elsewhere. The exit code is 1 when the collector has no data.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti import __version__, errors
from ganeti.cli import terminal
from ganeti.mond import report
from ganeti.mond.collectors import diskstats, drbd, logical_volumes, xen
from ganeti.mond.configuration import ConfdQuestions
from ganeti.mond.report import Collector
from ganeti.platform import machine
from ganeti.utils import fs
from ganeti.wire import json

_XEN: Final = "inst-status-xen"
_COLLECTORS: Final = {
    one.name: one for one in (diskstats.COLLECTOR, drbd.COLLECTOR, logical_volumes.COLLECTOR)
}


def _collector(name: str) -> Collector:
    if name != _XEN:
        return _COLLECTORS[name]
    from ganeti.hypervisor.xen import monitored

    return Collector(
        _XEN, report.INSTANCE, report.STATUS, xen.status(monitored.guests), xen.HYPERVISORS
    )


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="mon-collector", description="Run one collector of the monitoring daemon, once."
    )
    parser.add_argument(
        "-V", "--version", action="version", version=f"mon-collector (ganeti) version {__version__}"
    )
    parser.add_argument(
        "--help-completion", action="store_true", help="show the collectors, for a shell"
    )
    commands = parser.add_subparsers(dest="collector", required=True, metavar="COLLECTOR")
    for name, words in (
        ("diskstats", "counters of block devices"),
        ("drbd", "state of mirrored devices"),
        (_XEN, "instances under Xen and their states"),
        ("lv", "logical volumes"),
    ):
        one = commands.add_parser(name, help=words, description=f"Show the {words}.")
        if name == _XEN:
            one.set_defaults(file=None)
        elif name != "drbd":
            one.add_argument("-f", "--file", metavar="FILE", help="read this file, not the node")
        else:
            one.add_argument(
                "-s", "--drbd-status", dest="file", metavar="FILE", help="read this file, not /proc"
            )
            one.add_argument(
                "-p",
                "--drbd-pairing",
                metavar="FILE",
                help="file with the minors and their instances, as confd answers",
            )
        if name == "lv":
            one.add_argument(
                "-i",
                "--instances",
                metavar="FILE",
                help="file with instances and their disks, as a list of pairs of objects",
            )
            # Published, and of no use: the tags of the volumes have the names.
            one.add_argument("-a", "--address", help=argparse.SUPPRESS)
            one.add_argument("-p", "--port", type=int, help=argparse.SUPPRESS)
    return parser


def _read(path: str) -> str:
    """Return the content of a file.

    :raises OpPrereqError: it cannot be read.
    """
    try:
        return fs.read_file(path)
    except OSError as err:
        raise errors.OpPrereqError(f"cannot read {path}: {err.strerror}") from err


def _rows(path: str) -> list[list[Any]]:
    """Return the rows of a JSON file.

    :raises OpPrereqError: it has another form.
    """
    rows = json.loads(_read(path))
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise errors.OpPrereqError(f"{path}: expected a list of lists")
    return rows


def _minors(options: argparse.Namespace) -> Mapping[int, str]:
    if options.drbd_pairing is None:
        return ConfdQuestions(machine.current().hostname()).drbd_minors()
    try:
        return {int(row[1]): str(row[2]) for row in _rows(options.drbd_pairing)}
    except (LookupError, TypeError, ValueError) as err:
        raise errors.OpPrereqError(f"{options.drbd_pairing}: a row has another form") from err


def _volumes(path: str) -> dict[str, str]:
    """Return ``volume group/logical volume`` -> instance, from a file with instances and disks."""
    found: dict[str, str] = {}

    def add(disk: Any, name: str) -> None:
        if disk.get("dev_type") == "plain" and isinstance(disk.get("logical_id"), list):
            found["/".join(map(str, disk["logical_id"]))] = name
        for child in disk.get("children") or ():
            add(child, name)

    try:
        for instance, disks in _rows(path):
            for disk in disks:
                add(disk, instance["name"])
    except (AttributeError, LookupError, TypeError, ValueError) as err:
        raise errors.OpPrereqError(f"{path}: an instance has another form") from err
    return found


def _from_file(options: argparse.Namespace) -> Any:
    """Return the data of a recorded state."""
    text = _read(options.file)
    readers: dict[str, Callable[[], Any]] = {
        "diskstats": lambda: diskstats.parse(text),
        "drbd": lambda: drbd.parse(text, _minors(options)),
        "lv": lambda: logical_volumes.parse(
            text, _volumes(options.instances) if options.instances else {}
        ),
    }
    return readers[options.collector]()


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Return the report of a collector.

    :raises GenericError: it has no data.
    """
    collector = _collector(options.collector)
    data = (
        _from_file(options)
        if options.file
        else collector.collect(ConfdQuestions(machine.current().hostname()))
    )
    return report.build(collector, data)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if "--help-completion" in words:
        terminal.out_data(f"choices={','.join(_COLLECTORS)} 1 1")
        return 0
    options = make_parser().parse_args(words)
    try:
        terminal.out_data(json.dumps(run(options)))
    except errors.GenericError as err:
        terminal.err(f"mon-collector: {err}")
        return 1
    return 0
