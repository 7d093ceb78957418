"""Completing the history of the configuration on a node which becomes master.

A candidate has the same history as the master, unless it has just become a candidate or did not get
some changes. Then other nodes have what it lacks: the former master, or another candidate.
"""

from __future__ import annotations

from collections.abc import Sequence

from ganeti import errors
from ganeti.config import Config
from ganeti.configfile import history_files
from ganeti.configfile.history_files import Section, State
from ganeti.platform import paths
from ganeti.rpc import RpcRunner
from ganeti.wire.calls import CONFIG_HISTORY_DIGESTS, CONFIG_HISTORY_READ


def complete(config: Config, rpc: RpcRunner, node_uuids: Sequence[str]) -> list[str]:
    """Fetch records which lead further back than those of this node.

    :param node_uuids: the nodes which are asked; this one and those without a history do no harm.
    :returns: warnings about what could not be fetched; a gap in the history prevents nothing else.
    """
    directory = paths.current().cluster_conf_history_dir
    data = config.snapshot()
    present: State = (data.serial_no, data.mtime)
    warnings = []
    try:
        reached = history_files.reach(directory, present)
        for node_uuid, names in _sources(rpc, node_uuids, reached):
            older = _fetch(rpc, node_uuid, names, reached)
            if older:
                history_files.put_below(directory, present, older)
                reached = history_files.reach(directory, present)
        config.reopen_history()
    except (errors.GenericError, OSError) as err:
        warnings.append(
            f"the history of the configuration has a gap before serial number {present[0]}: {err}"
        )
    return warnings


def _sources(
    rpc: RpcRunner, node_uuids: Sequence[str], reached: State
) -> list[tuple[str, list[str]]]:
    """Return the nodes which have older records, those with the oldest ones first.

    :returns: UUID of a node and the names of its files which may have such records.
    """
    found = []
    for uuid, answer in rpc.call_many(CONFIG_HISTORY_DIGESTS, node_uuids).items():
        names = sorted(
            name
            for name in (answer.data if answer.failure is None else ())
            if history_files.first_serial(name) <= reached[0]
        )
        if names:
            found.append((names[0], uuid, names))
    return [(uuid, names) for _oldest, uuid, names in sorted(found)]


def _fetch(
    rpc: RpcRunner, node_uuid: str, names: Sequence[str], point: State
) -> list[tuple[str, Section]]:
    """Return the records of a node which lead back from a state, the oldest first."""
    found: list[tuple[str, Section]] = []
    for name in reversed(names):
        text: str = rpc.call(CONFIG_HISTORY_READ, node_uuid, name=name).payload()
        section = history_files.section_of(text.encode())
        kept, before = history_files.joined(section, point)
        if kept.lines:
            found.insert(0, (name, kept))
        if section.lines and section.lines[:1] != kept.lines[:1]:
            break
        point = before
    return found
