"""Output of a dry run: the plan of an operation that was not carried out, as text and as data.

:class:`ganeti.cmdlib.processor.Processor` calls :func:`plan_of` after the checks and the pre hooks.
The plan has the locks, the checks which passed (:func:`ganeti.cmdlib.prereq.recorded`), the nodes
of the locks and of the hooks, and the values of the plan. The steps come from
:meth:`~ganeti.cmdlib.base.LogicalUnit.steps`; for a unit without it, from the docstring of the unit
and the values of the plan. :func:`text_of` makes the text of it.

It has no secrets: of a plan only names, numbers, words and choices, and never a field whose name
contains a word such as ``key`` or ``passw``. ``doc/design-dry-run.rst`` explains why the text is
in the job's log, and who gets the data.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeGuard

from ganeti.cmdlib.hooks import POST, PRE
from ganeti.cmdlib.locks import lock_label
from ganeti.locking import ALL, BGL, Level
from ganeti.luxi.answers import OperationPlan, PlannedHook, PlannedLock
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


def plan_of(unit: AnyUnit, plan: object, passed: Sequence[str]) -> OperationPlan:
    """Describe the plan as data.

    :param passed: the checks which passed.
    """
    config = unit.config.snapshot()
    steps = unit.steps(plan)
    return {
        "summary": unit.asked.summary(),
        "asked": _asked(unit.asked),
        "locks": _locks(unit, config),
        "checks": list(dict.fromkeys(passed)),
        "nodes": _node_names(unit, config),
        "hooks": _hooks(unit, config),
        "decided": _values(plan, config) if steps is None else [],
        "steps": list(_default_steps(unit, plan) if steps is None else steps),
    }


def text_of(found: OperationPlan) -> str:
    """Describe the plan in some lines of text."""
    steps = [f"{place}. {step}" for place, step in enumerate(found["steps"], start=1)]
    return "\n".join(
        [
            f"Plan of {found['summary']}, which was not carried out:",
            *_section("asked", [_asked_line(*one) for one in found["asked"].items()]),
            *_section("locks", _lock_lines(found["locks"])),
            *_section("checked", found["checks"]),
            *_section("nodes", _shortened(found["nodes"])),
            *_section("hooks", [_hook_line(one) for one in found["hooks"]]),
            *_section("decided", found["decided"]),
            *_section("steps", steps),
        ]
    )


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"  {title}:", *(f"    {line}" for line in lines)] if lines else []


def _shortened(words: Sequence[str]) -> list[str]:
    """Shorten a long list: the first words, and the number of the others."""
    if len(words) <= _SHOWN + 1:
        return list(words)
    return [*words[:_SHOWN], f"and {len(words) - _SHOWN} more"]


def _asked(op: OpCode) -> dict[str, object]:
    """Return the parameters which differ from their defaults, without secrets."""
    found: dict[str, object] = {}
    for name, value in op.to_dict(redact=True).items():
        declared = op.PARAMS.get(name)
        if declared is None or name in COMMON_PARAMS or value is None:
            continue
        if declared.required or value != declared.default:
            found[name] = value
    return found


def _asked_line(name: str, value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return f"{name}: {text if len(text) <= _WIDTH else f'{text[:_WIDTH]}...'}"


def _locks(unit: AnyUnit, config: ConfigData) -> list[PlannedLock]:
    found: list[PlannedLock] = [
        {"level": Level.CLUSTER.label, "name": BGL, "shared": not unit.REQ_BGL, "new": False}
    ]
    for level in Level:
        if level not in unit.needed_locks:
            continue
        wanted, shared = unit.needed_locks[level], level in unit.shared_levels
        if wanted is ALL:
            found.append({"level": level.label, "name": None, "shared": shared, "new": False})
            continue
        added = unit.added_locks.get(level, ())
        named = [
            (lock_label(config, f"{level.label}/{key}").partition("/")[2], key in added)
            for key in wanted
        ]
        for name, new in sorted(named, key=lambda one: natural_key(one[0])):
            found.append({"level": level.label, "name": name, "shared": shared, "new": new})
    return found


def _lock_lines(locks: Sequence[PlannedLock]) -> list[str]:
    """Return a line for each lock; of many locks of a level, only the first ones have a line."""
    lines: list[str] = []
    for _level, same in itertools.groupby(locks, key=lambda one: one["level"]):
        lines += _shortened([_lock_line(one) for one in same])
    return lines


def _lock_line(lock: PlannedLock) -> str:
    name = ": all" if lock["name"] is None else f"/{lock['name']}"
    new, shared = " (new)" if lock["new"] else "", " (shared)" if lock["shared"] else ""
    return f"{lock['level']}{name}{new}{shared}"


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


def _hooks(unit: AnyUnit, config: ConfigData) -> list[PlannedHook]:
    if unit.HOOKS is None or unit.hooks is None:
        return []
    found: list[PlannedHook] = []
    for phase, uuids in zip((PRE, POST), unit.hooks.nodes, strict=True):
        names = [config.nodes[uuid].name for uuid in dict.fromkeys(uuids) if uuid in config.nodes]
        if names:
            name = f"{unit.HOOKS.directory}-{phase}"
            found.append({"name": name, "phase": phase, "nodes": names})
    return found


def _hook_line(hook: PlannedHook) -> str:
    # A dry run calls the hooks which may refuse the operation.
    when = ", run now" if hook["phase"] == PRE else ""
    return f"{hook['name']}{when} on {', '.join(_shortened(hook['nodes']))}"


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
