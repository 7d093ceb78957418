"""Queries on the master: the configuration, and live data from the nodes where a field needs it.

The tables of fields and the filter language are in :mod:`ganeti.query` and ask no node; this module
brings the data. All nodes concerned are asked at the same time, and only when a wanted field (or
the filter) needs it. No locks are taken: a query shows the state of this moment.

:func:`query` and :func:`query_fields` answer ``Query`` and ``QueryFields`` of LUXI and
the opcodes of the same names; :func:`query_values` answers the older ``QueryInstances``,
``QueryNodes`` and so on, which return plain values.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.ops.guest import console as guest_console
from ganeti.cmdlib.ops.os import definitions
from ganeti.constants import disk as disk_c
from ganeti.constants import query as query_c
from ganeti.objects import disk_templates, fill
from ganeti.objects import storage_units as units
from ganeti.platform import paths
from ganeti.query import engine, resources
from ganeti.query import filter as query_filter
from ganeti.query.field import HOSTNAME, NODATA, OFFLINE, Mark, Resource, Source
from ganeti.query.resources import instance as instance_fields
from ganeti.query.resources import node as node_fields
from ganeti.query.view import View, prefixes
from ganeti.utils import clock, fs, suggest
from ganeti.utils.effort import Effort
from ganeti.utils.text import natural_key
from ganeti.wire.calls import (
    ALL_INSTANCES_INFO,
    EXPORT_DETAILS,
    EXPORT_LIST,
    EXTSTORAGE_DIAGNOSE,
    GUEST_DETAILS,
    NODE_INFO,
    OS_DIAGNOSE,
)

if TYPE_CHECKING:
    from ganeti.cmdlib.base import MasterContext
    from ganeti.objects import Cluster, ConfigData, Instance, Node
    from ganeti.rpc import Result

log = logging.getLogger(__name__)

# Kinds of objects which users name. Jobs and locks come and go without the user, and a node which
# does not answer may have the export.
_NAMED = (query_c.INSTANCE, query_c.NODE, query_c.GROUP, query_c.NETWORK, query_c.FILTER)


def query(
    context: MasterContext,
    what: str,
    fields: Sequence[str],
    qfilter: Any = None,
    effort: Effort | None = None,
) -> engine.QueryAnswer:
    """Answer ``Query``.

    :param what: kind of object, one of ``constants.query.RESOURCES``.
    :param fields: names of fields; an unknown one gives cells of status unknown.
    :param qfilter: the JSON form of a filter; None for everything. A filter which only chooses
        names may also have UUIDs in their place.
    :param effort: the work of the request, which ends when its client has gone.
    :returns: ``{"fields": definitions, "data": rows of [status, value]}``.
    :raises errors.OpPrereqError: no such kind of object, or the filter only chooses names, and one
        of them is unknown (unknown_entity).
    :raises errors.ParameterError: the filter is malformed, or takes too much work.
    """
    resource = resources.lookup(what)
    effort = effort or Effort()
    qfilter, view = prepare(context, resource, fields, qfilter)
    if resource.name in _NAMED:
        names = query_filter.requested_names(qfilter, resource.name_field)
        if names:
            # A named object must exist; other filters may find nothing.
            items, _ = engine.select(resource, view, (), qfilter, LiveData(context), effort)
            _refuse_unknown(resource, view, items, names)
    return engine.run(resource, view, fields, qfilter, LiveData(context), effort)


def prepare(
    context: MasterContext, resource: Resource, fields: Sequence[str], qfilter: Any
) -> tuple[Any, View]:
    """Check a query; return its filter, with names in the place of UUIDs, and what it works on.

    :param fields: those which rows need, for resources which are made of rows.
    :raises errors.OpPrereqError: the fields are not a list of names.
    :raises errors.ParameterError: the filter is malformed.
    """
    _check_names(fields)
    query_filter.check_size(qfilter)
    qfilter = _with_names(context, resource, qfilter)
    return qfilter, _view(context, resource, fields, qfilter)


def query_fields(what: str, names: Sequence[str] | None = None) -> engine.FieldsAnswer:
    """Answer ``QueryFields``: ``{"fields": definitions}`` of these fields, or of all.

    :raises errors.OpPrereqError: no such kind of object.
    """
    _check_names(names or ())
    return engine.definitions(resources.lookup(what), names)


def _check_names(names: Any) -> None:
    """Refuse a value which is not a list of field names; the older LUXI methods check no types."""
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise errors.OpPrereqError("fields must be a list of names", errors.ECODE_INVAL)


def query_values(
    context: MasterContext,
    what: str,
    names: Sequence[str | int] | None,
    fields: Sequence[str],
    effort: Effort | None = None,
) -> list[list[Any]]:
    """Answer the older queries: plain values, None where there is none.

    :param names: names or UUIDs of the wanted objects; none means all.
    :param effort: the work of the request, which ends when its client has gone.
    :raises errors.OpPrereqError: no such kind of object (wrong_input), an unknown field
        (wrong_input), an unknown name, or the first part of several names (unknown_entity).
        Commands which change objects find them with these queries.
    """
    resource = _with_fields(what, fields)
    names = _names_of(context.config.snapshot(), resource, names or ())
    qfilter = query_filter.names_filter(names, resource.name_field)
    view = _view(context, resource, fields, qfilter)
    return _values(resource, view, fields, names, LiveData(context), effort or Effort())


def past_values(
    data: ConfigData,
    what: str,
    names: Sequence[str | int],
    fields: Sequence[str],
    effort: Effort,
) -> list[list[Any]]:
    """Return what :func:`query_values` would have returned in an earlier state.

    Fields which need live data are None, because nobody kept them.

    :param data: the earlier state.
    :raises errors.OpPrereqError: as :func:`query_values`.
    """
    resource = _with_fields(what, fields)
    names = _names_of(data, resource, names)
    kept = [name for name in fields if not engine.live_needs(resource, (name,))]
    rows = _values(resource, View(data), kept, names, _NothingLive(), effort)
    place = {name: number for number, name in enumerate(kept)}
    return [[row[place[name]] if name in place else None for name in fields] for row in rows]


def _with_fields(what: str, fields: Sequence[str]) -> Resource:
    """Return a kind of object which must have these fields.

    :raises errors.OpPrereqError: no such kind of object, or an unknown field (wrong_input).
    """
    resource = resources.lookup(what)
    _check_names(fields)
    unknown = [name for name in fields if resource.field(name) is None]
    if unknown:
        raise errors.OpPrereqError(
            f"unknown fields of {what}: {', '.join(unknown)}", errors.ECODE_INVAL
        )
    return resource


def _values(
    resource: Resource,
    view: View,
    fields: Sequence[str],
    names: Sequence[str | int],
    source: Source,
    effort: Effort,
) -> list[list[Any]]:
    """Return plain values of the fields; names which the caller gave must exist."""
    qfilter = query_filter.names_filter(names, resource.name_field)
    items, columns = engine.select(resource, view, fields, qfilter, source, effort)
    if names:
        _refuse_unknown(resource, view, items, names)
        _refuse_ambiguous(resource, view, items, names)
    getters = [column.get for column in columns if column is not None]
    engine.check_cells(len(items), len(getters))
    effort.renew()
    rows = []
    for item in items:
        effort.spend(len(getters))
        values = [get(view, item) for get in getters]
        rows.append([None if isinstance(value, Mark) else value for value in values])
    return rows


def check_guests(context: MasterContext) -> None:
    """Ask all nodes for the state of the guests, and hand it to ``context.live_seen``.

    A node which does not answer has no effect on the others.
    """
    view = View(context.config.snapshot())
    instances = resources.lookup(query_c.INSTANCE).items(view)
    if instances:
        LiveData(context).collect(view, frozenset((instance_fields.LIVE,)), instances)


def _with_names(context: MasterContext, resource: Resource, qfilter: Any) -> Any:
    """Return a filter with names where it chooses objects by their UUIDs instead.

    Alone, or joined with conditions from other options of a command.
    """
    if isinstance(qfilter, (list, tuple)) and qfilter and qfilter[0] == query_filter.OP_AND:
        parts = (_choice_with_names(context, resource, part) for part in qfilter[1:])
        return [query_filter.OP_AND, *parts]
    return _choice_with_names(context, resource, qfilter)


def _choice_with_names(context: MasterContext, resource: Resource, qfilter: Any) -> Any:
    names = query_filter.requested_names(qfilter, resource.name_field)
    if names is None:
        return qfilter
    found = _names_of(context.config.snapshot(), resource, names)
    return qfilter if found == names else query_filter.names_filter(found, resource.name_field)


def _names_of(data: ConfigData, resource: Resource, names: Sequence[str | int]) -> list[str | int]:
    """Return names of objects; where a UUID is given, the name of the object which has it.

    Every request which names nodes, instances, node groups or networks comes here or to
    :meth:`ganeti.config.view.Questions.expand_node` and its like, so that both are accepted by all
    commands.
    """
    if resource.name not in _NAMED or not resource.table:
        return list(names)
    table = getattr(data, resource.table)
    return [table[name].name if name in table else name for name in names]


def _refuse_unknown(
    resource: Resource, view: View, items: Sequence[Any], names: Sequence[str | int]
) -> None:
    field = resource.fields[resource.name_field]
    found = set()
    for item in items:
        value = str(field.get(view, item))
        found.add(value)
        if field.compare == HOSTNAME:
            found.update(prefixes(value))
    for name in names:
        if str(name) not in found:
            known = [str(field.get(view, item)) for item in resource.items(view)]
            hint = suggest.did_you_mean(str(name), known)
            raise errors.OpPrereqError(
                f"{resource.name} {name!r} is not known{'.' if hint else ''}{hint}",
                errors.ECODE_NOENT,
            )


def _refuse_ambiguous(
    resource: Resource, view: View, items: Sequence[Any], names: Sequence[str | int]
) -> None:
    """Refuse a name which stands for several objects, because it is the first part of theirs."""
    field = resource.fields[resource.name_field]
    if field.compare != HOSTNAME:
        return
    stands_for: dict[str, list[str]] = {}
    found = [str(field.get(view, item)) for item in items]
    for one in found:
        for short in prefixes(one):
            stands_for.setdefault(short, []).append(one)
    for name in set(map(str, names)).difference(found):
        likely = stands_for[name]
        if len(likely) > 1:
            raise errors.OpPrereqError(
                f"{resource.name} name '{name}' is not unique: it matches {', '.join(likely[:5])}",
                errors.ECODE_NOENT,
            )


# -- what a query works on -----------------------------------------------------------------------


def _view(context: MasterContext, resource: Resource, fields: Sequence[str], qfilter: Any) -> View:
    """Return a view of the present configuration, with rows from elsewhere for resources made of
    rows.
    """
    # A malformed filter must be refused before rows are collected.
    condition = query_filter.compile_filter(qfilter, resource)
    wanted = set(fields) | (condition.field_names if condition is not None else frozenset())
    wanted &= set(resource.fields)
    view = View(context.config.snapshot())
    collect = _ROWS.get(resource.name)
    if collect is not None:
        view.facts["rows"] = collect(context, wanted, qfilter)
    elif resource.name == query_c.CLUSTER:
        view.facts.update(
            drain_flag=bool(context.queue.drained),
            watcher_pause=watcher_pause(),
            architecture=architecture(),
        )
    return view


def watcher_pause() -> float | None:
    """Return the end of the watcher's pause in seconds since the epoch; None without a pause."""
    try:
        until = float(fs.read_file(paths.current().watcher_pausefile))
    except FileNotFoundError:
        return None
    except ValueError:
        log.warning("the watcher's pause file holds no time")
        return None
    return until if until > clock.now() else None


def architecture() -> list[str]:
    """Return word size and machine, as ``["64bits", "x86_64"]``."""
    return [f"{struct.calcsize('P') * 8}bits", os.uname().machine]


def _job_rows(context: MasterContext, wanted: set[str], qfilter: Any) -> list[dict[str, Any]]:
    names = query_filter.requested_names(qfilter, "id")
    ids = None if names is None else sorted({int(name) for name in names})
    return job_rows(context, wanted, ids, archived="archived" in wanted)


def job_rows(
    context: MasterContext,
    fields: Iterable[str],
    ids: Sequence[int] | None,
    *,
    archived: bool = False,
) -> list[dict[str, Any]]:
    """Return values of fields of jobs, by the names of the fields, without unknown jobs.

    :param ids: None for all jobs.
    :param archived: with `ids` None also the archived jobs.
    """
    known = set(resources.lookup(query_c.JOB).fields)
    wanted = sorted(known.intersection(fields) | {"id"})
    rows = context.queue.query(ids, wanted, archived=archived)
    return [dict(zip(wanted, row, strict=True)) for row in rows if row is not None]


def _lock_rows(context: MasterContext, wanted: set[str], qfilter: Any) -> list[dict[str, Any]]:
    rows = [
        {
            "name": row.name,
            "mode": row.mode,
            "owner": [owner.label for owner in row.owners] or None,
            "pending": [[mode, [owner.label for owner in owners]] for mode, owners in row.pending]
            or None,
        }
        for row in context.locks.table()
    ]
    return sorted(rows, key=lambda row: natural_key(str(row["name"])))


def _askable_nodes(config: ConfigData) -> list[Node]:
    nodes = [node for node in config.nodes.values() if node.vm_capable and not node.offline]
    return sorted(nodes, key=lambda node: natural_key(node.name))


def _os_rows(context: MasterContext, wanted: set[str], qfilter: Any) -> list[dict[str, Any]]:
    config = context.config.snapshot()
    cluster = config.cluster
    answers = context.rpc.call_many(OS_DIAGNOSE, [node.uuid for node in _askable_nodes(config)])
    return [
        {
            "name": found.name,
            "valid": found.valid,
            "hidden": found.hidden,
            "blacklisted": found.blacklisted,
            "variants": found.variants,
            "parameters": [list(pair) for pair in found.parameters],
            "api_versions": found.api_versions,
            "trusted": found.trusted,
            "node_status": {
                config.nodes[uuid].name: state
                for uuid, state in found.node_status.items()
                if uuid in config.nodes
            },
            "os_hvp": found.os_hvp,
            "osparams": found.osparams,
        }
        for found in definitions.collect(cluster, answers)
    ]


def _export_rows(context: MasterContext, wanted: set[str], qfilter: Any) -> list[dict[str, Any]]:
    from ganeti.query.resources import export as export_fields  # loaded for this kind only

    config = context.config.snapshot()
    nodes = sorted(config.nodes.values(), key=lambda node: natural_key(node.name))
    answers = context.rpc.call_many(EXPORT_LIST, [node.uuid for node in nodes])
    rows: list[dict[str, Any]] = []
    for node in nodes:
        answer = answers[node.uuid]
        if answer.failure is not None:
            rows.append({"node": node.name, **dict.fromkeys(export_fields.OF_NODES, _mark(answer))})
        else:
            rows.extend(
                {"node": node.name, "export": name} for name in sorted(answer.data, key=natural_key)
            )
    if wanted & set(export_fields.DETAILS):
        _add_details(context, nodes, rows)
    return rows


def _add_details(
    context: MasterContext, nodes: Sequence[Node], rows: Sequence[dict[str, Any]]
) -> None:
    """Add what the descriptions of exports say to their rows."""
    from ganeti.query.resources import export as export_fields  # loaded for this kind only

    config = context.config.snapshot()
    # Those of the other nodes are not known.
    found = [row for row in rows if "size" not in row]
    uuids = {node.name: node.uuid for node in nodes}
    asked = dict.fromkeys(uuids[row["node"]] for row in found)
    answers = context.rpc.call_many(EXPORT_DETAILS, list(asked))
    for row in found:
        answer = answers[uuids[row["node"]]]
        # A node of the release before does not know the call.
        known = {} if answer.failure is not None else answer.data.get(row["export"], {})
        for name in export_fields.DETAILS:
            value = known.get(name)
            row[name] = _mark(answer) if value is None else value
        if known.get("size") is not None:
            row["size"] = -(-known["size"] // 2**20)
        source = config.nodes.get(known.get("source") or "")
        if source is not None:
            row["source"] = source.name


def _extstorage_rows(
    context: MasterContext,
    wanted: set[str],
    qfilter: Any,
) -> list[dict[str, Any]]:
    config = context.config.snapshot()
    nodes = _askable_nodes(config)
    answers = context.rpc.call_many(EXTSTORAGE_DIAGNOSE, [node.uuid for node in nodes])
    answered = [node for node in nodes if answers[node.uuid].failure is None]
    found: dict[str, dict[str, list[Any]]] = {}
    for node in answered:
        for name, *state in answers[node.uuid].data:
            found.setdefault(name, {}).setdefault(node.uuid, []).append(state)
    rows = []
    for name in sorted(found, key=natural_key):
        by_node = found[name]
        # A state is [path, valid, message, parameters]; a node uses the first one.
        firsts = [by_node[node.uuid][0] for node in answered if node.uuid in by_node]
        groups: dict[str, bool] = {}
        for node in answered:
            group = config.nodegroups[node.group].name
            good = node.uuid in by_node and bool(by_node[node.uuid][0][1])
            groups[group] = groups.get(group, True) and good
        rows.append(
            {
                "name": name,
                "node_status": {node.name: by_node.get(node.uuid, []) for node in answered},
                "nodegroup_status": groups,
                "parameters": [
                    parameter
                    for parameter in firsts[0][3]
                    if all(parameter in state[3] for state in firsts)
                ],
            }
        )
    return rows


_ROWS: dict[str, Callable[[Any, set[str], Any], list[dict[str, Any]]]] = {
    query_c.JOB: _job_rows,
    query_c.LOCK: _lock_rows,
    query_c.OS: _os_rows,
    query_c.EXPORT: _export_rows,
    query_c.EXTSTORAGE: _extstorage_rows,
}


# -- live data -----------------------------------------------------------------------------------


def _mark(answer: Result) -> Mark:
    return OFFLINE if answer.offline else NODATA


class _NothingLive:
    """Stands for the nodes where no field needs them."""

    def collect(self, view: View, kinds: frozenset[str], items: list[Any]) -> None:
        """Collect nothing."""


class LiveData:
    """Collects live data from the nodes; see :class:`ganeti.query.field.Source`."""

    def __init__(self, context: MasterContext) -> None:
        self._context = context

    def collect(self, view: View, kinds: frozenset[str], items: list[Any]) -> None:
        """Put the live data of `kinds` for `items` into the view."""
        if node_fields.LIVE in kinds:
            view.live[node_fields.LIVE] = self._nodes(view, items)
        if instance_fields.LIVE in kinds:
            view.live[instance_fields.LIVE] = self._instances(view, items)
            if self._context.live_seen is not None:
                self._context.live_seen(view, items)
        if instance_fields.CONSOLES in kinds:
            view.live[instance_fields.CONSOLES] = self._consoles(view, items)
        if instance_fields.DETAILS in kinds:
            view.live[instance_fields.DETAILS] = self._details(view, items)

    def _nodes(self, view: View, nodes: list[Node]) -> dict[str, Any]:
        cluster = view.cluster
        asked = [node for node in nodes if node.vm_capable]
        groups = units.volume_groups(cluster, view.config.disks)
        wanted, questions = {}, {}
        for node in asked:
            ndparams = view.filled_nd(node)
            exclusive = bool(ndparams.get("exclusive_storage", False))
            first = storage_units(cluster, ndparams)
            wanted[node.uuid] = units.units(cluster, groups, exclusive=exclusive)
            more = units.questions(wanted[node.uuid], exclusive=exclusive)
            questions[node.uuid] = [*first, *(unit for unit in more if unit not in first)]
        answers = self._context.rpc.call_many(
            NODE_INFO,
            [node.uuid for node in asked],
            patient=False,
            per_node={
                uuid: {
                    "storage_units": questions[uuid],
                    "hv_specs": fill.default_hv_specs(view.config, uuid),
                }
                for uuid in questions
            },
        )
        return {uuid: _node_facts(answer, wanted[uuid]) for uuid, answer in answers.items()}

    def _instances(
        self,
        view: View,
        instances: list[Instance],
    ) -> dict[str, instance_fields.LiveInstance]:
        concerned = {
            uuid
            for instance in instances
            if not instance.forthcoming
            for uuid in (instance.primary_node, *view.secondary_nodes(instance))
            if uuid in view.config.nodes
        }
        answers = self._context.rpc.call_many(
            ALL_INSTANCES_INFO,
            sorted(concerned),
            patient=False,
            per_node=fill.hypervisor_arguments(view.config, concerned),
            apart=True,
        )
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for uuid, answer in answers.items():
            if answer.failure is None:
                for name, info in answer.data.items():
                    found.setdefault(name, {})[uuid] = info
        return {
            instance.uuid: _live_instance(instance, answers, found.get(instance.name, {}))
            for instance in instances
        }

    def _details(self, view: View, instances: list[Instance]) -> dict[str, Any]:
        by_node: dict[str, list[Instance]] = {}
        for instance in instances:
            if not instance.forthcoming and instance.primary_node in view.config.nodes:
                by_node.setdefault(instance.primary_node, []).append(instance)
        answers = self._context.rpc.call_many(
            GUEST_DETAILS,
            sorted(by_node),
            patient=False,
            per_node={
                uuid: {
                    "guests": {
                        instance.name: [
                            instance.hypervisor,
                            [nic.mac for nic in instance.nics if nic.mac],
                        ]
                        for instance in those
                    }
                }
                for uuid, those in by_node.items()
            },
        )
        return {
            instance.uuid: (
                _mark(answers[uuid])
                if answers[uuid].failure is not None
                else answers[uuid].data.get(instance.name)
            )
            for uuid, those in by_node.items()
            for instance in those
        }

    def _consoles(self, view: View, instances: list[Instance]) -> dict[str, Any]:
        return {
            instance.uuid: guest_console.describe(view.config, instance)
            for instance in instances
            if not instance.forthcoming and instance.primary_node in view.config.nodes
        }


def _live_instance(
    instance: Instance, answers: dict[str, Result], found: dict[str, dict[str, Any]]
) -> instance_fields.LiveInstance:
    primary = answers.get(instance.primary_node)
    if instance.forthcoming:
        return instance_fields.LiveInstance()
    if primary is not None and primary.offline:
        return instance_fields.LiveInstance(offline=True)
    if primary is None or primary.failure is not None:
        return instance_fields.LiveInstance(failed=True)
    if instance.primary_node in found:
        return instance_fields.LiveInstance(info=found[instance.primary_node])
    if instance.hypervisor in primary.data.problems:
        return instance_fields.LiveInstance(failed=True)
    for info in found.values():
        return instance_fields.LiveInstance(info=info, wrong_node=True)
    return instance_fields.LiveInstance()


def storage_units(cluster: Cluster, ndparams: dict[str, Any]) -> list[list[Any]]:
    """Return the storage units to ask a node about: ``[type, key, arguments]`` each.

    The size and free space of the first one stand for the node: it is where the first enabled disk
    template keeps its disks. Spindles are included where disks are LVM volumes.
    """
    units: list[list[Any]] = []
    exclusive = bool(ndparams.get("exclusive_storage", False))
    keys: dict[str, tuple[str | None, list[Any]]] = {
        disk_c.ST_LVM_VG: (cluster.volume_group_name, [exclusive]),
    }
    for kind, directory in cluster.directories_of_types().items():
        keys[kind] = (directory, [])
    for template in cluster.enabled_disk_templates:
        kind = disk_templates.of(template).storage_type
        key, arguments = keys.get(kind, (None, []))
        if key:
            units.append([kind, key, arguments])
            break
    if cluster.volume_group_name and disk_templates.LVM_BASED & set(cluster.enabled_disk_templates):
        units.append([disk_c.ST_LVM_PV, cluster.volume_group_name, [exclusive]])
    return units


def _node_facts(answer: Result, wanted: list[list[Any]]) -> Any:
    """Return the answer of ``node_info`` by the names of the fields, or a mark."""
    if answer.failure is not None:
        return _mark(answer)
    boot_id, storage, hypervisors = answer.data
    facts: dict[str, Any] = dict(hypervisors[0]) if hypervisors and hypervisors[0] else {}
    facts["bootid"] = boot_id
    facts["storage"] = units.described(wanted, storage or ())
    for place, unit in enumerate(storage or ()):
        if unit.get("type") == disk_c.ST_LVM_PV:
            facts["spindles_free"] = unit.get("storage_free")
            facts["spindles_total"] = unit.get("storage_size")
        elif place == 0:
            facts["storage_free"] = unit.get("storage_free")
            facts["storage_size"] = unit.get("storage_size")
    return facts
