"""The nodes on which a command works: those which the user names and which are not offline."""

from __future__ import annotations

from ganeti import TYPE_CHECKING
from ganeti.cli import terminal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ganeti.luxi import client as luxi


def online_nodes(
    client: luxi.Client, names: Sequence[str], group: str | None, field: str = "name"
) -> list[tuple[str, Any, bool]]:
    """Return the named nodes which are not offline; print the names of the offline ones.

    :param names: names or UUIDs of nodes; an empty sequence means all nodes.
    :param group: name or UUID; take only nodes of this node group.
    :param field: a further field to query.
    :returns: for each node its name, the value of the field, and whether it is the master.
    :raises OpPrereqError: unknown node or group.
    """
    rows = client.query_nodes(list(names), ["name", field, "master", "offline", "group"], False)
    if group is not None:
        # A wrong name is an error, and a UUID becomes a name.
        ((group,),) = client.query_groups([group], ["name"], False)
    wanted = [row for row in rows if group is None or row[4] == group]
    offline = [row[0] for row in wanted if row[3]]
    if offline:
        terminal.err(f"Note: skipping offline node(s): {', '.join(offline)}")
    return [(name, value, bool(master)) for name, value, master, is_off, _ in wanted if not is_off]
