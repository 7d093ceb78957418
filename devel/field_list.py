"""Writes ``doc/query-fields.rst``, the fields of every kind of object; ``field-list``.

The page is made from the same tables that answer queries, so it is never wrong for long: a test
compares it with them.
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

What the ``list`` commands show with ``-o``, what filters compare, and the members of the objects
which ``--output=json`` prints (``doc/output.rst``): the same names everywhere, also in queries over
LUXI and REST. ``/N`` stands for a number from 0. *Live* fields ask the nodes; all others come from
the configuration or the queue alone.

Kinds and what they are in JSON: *text* string; *number* and *float* number; *unit* number of MiB;
*timestamp* seconds since 1970; *bool* true or false; *other* whatever the description says (a list,
an object, or null where that is a value).
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
    """The whole page."""
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
    """Fields by name; of ``disk.size/0``, ``disk.size/1`` ... the first, as ``disk.size/N``."""
    found: dict[str, Field] = {}
    for field in sorted(fields, key=lambda field: natural_key(field.name)):
        name = _INDEX.sub("/N", field.name)
        found.setdefault(name, field)
    return list(found.items())


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page to standard output."""
    sys.stdout.write(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
