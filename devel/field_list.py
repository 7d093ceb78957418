"""Prints ``doc/query-fields.rst``, the fields of every kind of object (``make pages``).

The page is generated from the tables which answer queries; a test compares the page with them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence

from ganeti.constants import query as const
from ganeti.query import resources
from ganeti.query.field import Field, Resource
from ganeti.utils.text import natural_key

_HEAD = """\
.. Generated from the tables of fields by devel/field_list.py; changes here are lost.

======================
Fields of the lists
======================

The names of the fields are the same everywhere: in the ``list`` commands with ``-o``, in filters,
in the objects which ``--output=json`` prints (``doc/output.rst``), and in queries over LUXI and
REST. ``/N`` stands for a number from 0. *Live* fields need a request to the nodes; the other fields
come from the configuration or the queue.

The kinds and their JSON types: *text* string; *number* and *float* number; *unit* number of MiB;
*timestamp* seconds since 1970; *bool* true or false; *other* a list, an object or null, as the
description says.
"""
_WHERE = {
    const.CLUSTER: "LUXI only (``gnt-cluster info`` shows more).",
    const.EXPORT: "``gnt-backup list``",
    const.EXTSTORAGE: "LUXI only (``gnt-storage diagnose`` shows them).",
    const.FILTER: "``gnt-filter list``",
    const.GROUP: "``gnt-group list``",
    const.INSTANCE: "``gnt-instance list``",
    const.JOB: "``gnt-job list``",
    const.LOCK: "``gnt-debug locks``",
    const.NETWORK: "``gnt-network list``",
    const.NODE: "``gnt-node list``",
    const.OS: "``gnt-os list -o``",
}
_INDEX = re.compile(r"/\d+$")


def page() -> str:
    """Return the text of the page."""
    parts = [_HEAD]
    for what in const.RESOURCES:
        resource = resources.lookup(what)
        parts += ["", what, "=" * max(3, len(what)), "", _WHERE[what], "", *_table(resource)]
    return "\n".join(parts) + "\n"


def _table(resource: Resource) -> list[str]:
    rows = [("Field", "Kind", "Live", "Meaning")]
    rows += [
        (f"``{name}``", field.kind, "yes" if field.live else "", field.doc.replace("*", "\\*"))
        for name, field in _collapsed(resource.fields.values())
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    rule = " ".join("=" * width for width in widths)
    lines = [
        " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return [rule, lines[0], rule, *lines[1:], rule]


def _collapsed(fields: Iterable[Field]) -> list[tuple[str, Field]]:
    """List the fields by name; ``disk.size/0``, ``disk.size/1`` ... become ``disk.size/N``."""
    found: dict[str, Field] = {}
    for field in sorted(fields, key=lambda field: natural_key(field.name)):
        name = _INDEX.sub("/N", field.name)
        found.setdefault(name, field)
    return list(found.items())


def main(argv: Sequence[str] | None = None) -> int:
    """Print the page."""
    sys.stdout.write(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
