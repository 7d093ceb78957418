"""Output of a dry run: the plan of an operation that was not carried out, as text.

:class:`ganeti.cmdlib.processor.Processor` calls :func:`plan_text` after the checks and the pre
hooks. The text has the locks, the checks which passed (:func:`ganeti.cmdlib.prereq.recorded`), the
nodes of the locks and of the hooks, and the values of the plan. The steps come from
:meth:`~ganeti.cmdlib.base.LogicalUnit.steps`; for a unit without it, from the docstring of the unit
and the values of the plan.

The text has no secrets: of a plan only names, numbers, words and choices, and never a field whose
name contains a word such as ``key`` or ``passw``. ``doc/design-dry-run.rst`` explains why it is a
text in the job's log.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeGuard

from ganeti.cmdlib.locks import lock_label
from ganeti.locking import ALL, BGL, Level
from ganeti.objects import Cluster, ConfigData, Disk, Instance, Network, Node, NodeGroup
from ganeti.opcodes.base import COMMON_PARAMS, OpCode
from ganeti.utils.text import natural_key
from ganeti.wire import json

if TYPE_CHECKING:
    from ganeti.cmdlib.base import AnyUnit

_SHOWN = 10
_SECRET = re.compile("secret|private|osparam|passw|token|digest|cert|key")
_NAMED = (Node, Instance, NodeGroup, Network)
_KINDS = {Node: "node", Instance: "instance", NodeGroup: "node group", Network: "network"}
_WIDTH = 200
_NODE_LEVELS = (Level.NODE, Level.NODE_RES)


def plan_text(unit: AnyUnit, plan: object, passed: Sequence[str]) -> str:
    """Describe the plan in some lines of text.

    :param passed: the checks which passed.
    """
    config = unit.config.snapshot()
    parts = [f"Plan of {unit.asked.summary()}, which was not carried out:"]
    parts += _section("asked", _asked(unit.asked))
    parts += _section("locks", _locks(unit, config))
    parts += _section("checked", list(dict.fromkeys(passed)))
    parts += _section("nodes", _shortened(_node_names(unit, config)))
    parts += _section("hooks", _hooks(unit, config))
    steps = unit.steps(plan)
    if steps is None:
        parts += _section("decided", _values(plan, config))
        steps = _default_steps(unit, plan)
    parts += _section("steps", [f"{place}. {step}" for place, step in enumerate(steps, start=1)])
    return "\n".join(parts)


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"  {title}:", *(f"    {line}" for line in lines)] if lines else []


def _shortened(words: Sequence[str]) -> list[str]:
    """Shorten a long list: the first words, and the number of the others."""
    if len(words) <= _SHOWN + 1:
        return list(words)
    return [*words[:_SHOWN], f"and {len(words) - _SHOWN} more"]


def _asked(op: OpCode) -> list[str]:
    """Return the parameters which differ from their defaults, without secrets."""
    lines = []
    for name, value in op.to_dict(redact=True).items():
        declared = op.PARAMS.get(name)
        if declared is None or name in COMMON_PARAMS or value is None:
            continue
        if declared.required or value != declared.default:
            text = value if isinstance(value, str) else json.dumps(value)
            lines.append(f"{name}: {text if len(text) <= _WIDTH else f'{text[:_WIDTH]}...'}")
    return lines


def _locks(unit: AnyUnit, config: ConfigData) -> list[str]:
    lines = [f"{Level.CLUSTER.label}/{BGL}{'' if unit.REQ_BGL else ' (shared)'}"]
    for level in Level:
        if level not in unit.needed_locks:
            continue
        wanted = unit.needed_locks[level]
        how = " (shared)" if level in unit.shared_levels else ""
        if wanted is ALL:
            lines.append(f"{level.label}: all{how}")
            continue
        added = unit.added_locks.get(level, ())
        labels = sorted(
            (
                f"{lock_label(config, f'{level.label}/{key}')}{' (new)' if key in added else ''}"
                for key in wanted
            ),
            key=natural_key,
        )
        lines += [f"{label}{how}" if "/" in label else label for label in _shortened(labels)]
    return lines


def _node_names(unit: AnyUnit, config: ConfigData) -> list[str]:
    """Return the names of the nodes whose locks the operation asked for."""
    uuids: set[str] = set()
    for level in _NODE_LEVELS:
        if level in unit.needed_locks:
            wanted = unit.needed_locks[level]
            uuids.update(config.nodes if wanted is ALL else wanted)
    return sorted(
        (config.nodes[uuid].name for uuid in uuids if uuid in config.nodes), key=natural_key
    )


def _hooks(unit: AnyUnit, config: ConfigData) -> list[str]:
    if unit.HOOKS is None or unit.hooks is None:
        return []
    before, after = (
        [config.nodes[uuid].name for uuid in dict.fromkeys(uuids) if uuid in config.nodes]
        for uuids in unit.hooks.nodes
    )
    name = unit.HOOKS.directory
    lines = []
    if before:
        lines.append(f"{name}-pre, run now on {', '.join(_shortened(before))}")
    if after:
        lines.append(f"{name}-post on {', '.join(_shortened(after))}")
    return lines


# -- units without ``steps`` -----------------------------------------------------------------------


def _default_steps(unit: AnyUnit, plan: object) -> list[str]:
    jobs = _jobs(plan)
    if jobs:
        return [f"submit a job: {', '.join(op.summary() for op in job)}" for job in jobs]
    doc = " ".join((type(unit).__doc__ or type(unit.op).__doc__ or "").split())
    sentence = re.split(r"[.;](?:\s|$)", doc, maxsplit=1)[0]
    return [sentence[:1].lower() + sentence[1:]] if sentence else []


def _jobs(plan: object) -> list[list[OpCode]]:
    """Return the jobs of a plan which consists of jobs to submit; else an empty list."""
    if not isinstance(plan, list) or not plan:
        return []
    if all(isinstance(op, OpCode) for op in plan):
        return [plan]
    found = [
        job
        for job in plan
        if isinstance(job, list) and job and all(isinstance(op, OpCode) for op in job)
    ]
    return found if len(found) == len(plan) else []


def _values(plan: object, config: ConfigData) -> list[str]:
    """Return the plan's values which can be shown, a line each."""
    if _jobs(plan):
        return []
    if isinstance(plan, Cluster):
        return []
    if isinstance(plan, _NAMED):
        return [f"{_KINDS[type(plan)]}: {plan.name}"]
    if dataclasses.is_dataclass(plan) and not isinstance(plan, Disk):
        pairs = [(field.name, getattr(plan, field.name)) for field in dataclasses.fields(plan)]
    elif isinstance(plan, tuple) and hasattr(plan, "_fields"):
        pairs = list(zip(plan._fields, plan, strict=True))
    else:
        text = _value(plan, config)
        return [text] if text else []
    lines = []
    for name, value in pairs:
        text = None if _SECRET.search(name) else _value(value, config)
        if text:
            lines.append(f"{name.replace('_', ' ')}: {text}")
    return lines


def _value(value: object, config: ConfigData) -> str | None:
    """One value as text; None for a value which is not shown."""
    if isinstance(value, _NAMED):
        return value.name
    if isinstance(value, Disk):
        return f"{value.dev_type} disk of {value.size} MiB"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, enum.Enum):
        return value.name.lower()
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, str):
        return _named(value, config)
    if isinstance(value, dict):
        return _listed(
            f"{key}={text}"
            for key, inner in value.items()
            if not _SECRET.search(str(key))
            and isinstance(inner, (str, int, float))
            and (text := _value(inner, config))
        )
    if _are_pairs(value):
        return _listed(f"{name}={inner}" for name, inner in value if not _SECRET.search(name))
    if isinstance(value, (list, tuple, set, frozenset)):
        return _listed(text for inner in value if (text := _value(inner, config)))
    return None


def _are_pairs(value: object) -> TypeGuard[list[tuple[str, object]]]:
    """Return True if a value is a list of names with values, as logical units report changes."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(pair, tuple)
            and len(pair) == 2
            and isinstance(pair[0], str)
            and isinstance(pair[1], (str, int, float, type(None)))
            for pair in value
        )
    )


def _listed(words: Iterable[str]) -> str | None:
    return ", ".join(_shortened(list(words))) or None


def _named(text: str, config: ConfigData) -> str:
    for table in (config.nodes, config.instances, config.nodegroups, config.networks):
        if text in table:
            return str(table[text].name)
    return text
