"""Reading the cluster from where the user says."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ganeti import errors
from ganeti.client.htools import options
from ganeti.client.htools.options import Values
from ganeti.client.htools.program import Failure, err, read_file
from ganeti.htools import cluster as model
from ganeti.htools.cluster import Cluster
from ganeti.htools.instance import Load

_SOURCES = ("master", "luxi", "text_data", "ialloc_src", "simulate")
_LOAD_FIELDS = 5


def load(values: Values, *, one_group: bool = False) -> Cluster:
    """Read and prepare the cluster; prints what is inconsistent in it.

    :param one_group: the option ``--group`` chooses a part of the cluster. Other programs with this
        option need the whole one, except when they look at a changed cluster.
    :raises Failure: the cluster cannot be read.
    """
    given = [name for name in _SOURCES if name in values.given]
    if len(given) > 1:
        raise Failure("Only one of the rapi, luxi, and data files options should be given.")
    utilisation = _utilisation(values)
    try:
        if not given and not _reaches_master(values):
            raise Failure("No backend selected! Exiting.")
        cluster = _read(given[0] if given else "luxi", values)
        warnings = model.prepare(cluster, _options(values, utilisation))
    except errors.GenericError as failure:
        raise Failure(f"failed to load data, aborting: {failure}") from failure
    unknown = [
        name for name in values.options.get("offline") or () if cluster.find_node(name) is None
    ]
    if unknown:
        raise Failure(f"wrong node name(s) set as offline: {', '.join(unknown)}")
    apply_monitoring(values, cluster)
    # The nodes of a virtual cluster share the memory of one machine, so sums never agree there.
    if values.verbose > 0 and warnings and not _shares_memory(given):
        print_warnings(warnings)
    changes = values.options.get("what_if")
    group = values.options.get("group")
    if group is not None and (one_group or changes):
        try:
            cluster = model.one_group(cluster, group)
        except errors.ParseError as failure:
            raise Failure(str(failure)) from failure
    return _what_if(values, cluster) if changes else cluster


def _shares_memory(given: Sequence[str]) -> bool:
    """Return True if the cluster was read from the master daemon of a virtual cluster."""
    from ganeti.platform import machine

    return given in ([], ["luxi"]) and not machine.current().has_own_system


def _reaches_master(values: Values) -> bool:
    """Return True if the master daemon runs on this machine; it is read then as with ``--luxi``.

    The option counts as given then.
    """
    from ganeti.luxi import client

    if not os.path.exists(client.default_address()):
        return False
    values.options["luxi"] = ""
    values.given.add("luxi")
    return True


def _what_if(values: Values, cluster: Cluster) -> Cluster:
    """Make the changes which the user asks about, and say what they lead to on standard error.

    :raises Failure: a change is not understood, or would have to be carried out.
    """
    from ganeti.htools import what_if

    if values.options.get("exec"):
        raise Failure("--what-if only answers a question; leave out --exec")
    try:
        result = what_if.apply(cluster, values.what_if)
    except errors.GenericError as failure:
        raise Failure(str(failure)) from failure
    values.changes += result.changes
    for change in result.changes:
        err(f"What if {change.text}: {len(change.moved)} instances move")
        if change.without_place:
            err(f"  no place for: {', '.join(change.without_place)}")
    return result.cluster


def print_warnings(warnings: Sequence[str]) -> None:
    """Print what is inconsistent in a cluster."""
    if warnings:
        err("Warning: cluster has inconsistent data:")
        err("\n".join(f"  - {one}" for one in warnings) + "\n")


def apply_monitoring(values: Values, cluster: Cluster) -> None:
    """Give a prepared cluster the load which monitoring daemons report, if the user wants that.

    :raises Failure: the file with their answers is not valid, or data is missing and the user wants
        to stop then.
    """
    if not values.options.get("mond") or values.options.get("ignore_dynu"):
        return
    from ganeti.client.htools import monitoring

    name = values.options.get("mond_data")
    try:
        found = None if name is None else read_file(name)
    except errors.ParseError as failure:
        raise Failure(f"can't parse MonD data: {failure}") from failure
    monitoring.apply(values, cluster, found)


def _options(values: Values, utilisation: dict[str, Load] | None) -> model.Options:
    have = values.options
    return model.Options(
        offline=frozenset(have.get("offline") or ()),
        exclusion_tags=have.get("exclusion_tags") or (),
        load=utilisation,
        ignore_load=bool(have.get("ignore_dynu")),
        selected=have.get("select_instances"),
        excluded=have.get("exclude_instances") or (),
        min_disk=have.get("min_disk"),
        max_cpu=have.get("max_cpu"),
    )


def _read(source: str, values: Values) -> Cluster:
    # An allocator reads a request only, and starts often.
    if source == "text_data":
        from ganeti.htools.loading import text

        return text.parse(read_file(values.text_data))
    if source == "simulate":
        from ganeti.htools.loading import simulation

        return simulation.make(values.simulate)
    if source == "ialloc_src":
        from ganeti.htools.loading import request

        return request.parse(read_file(values.ialloc_src)).cluster
    if source == "master":
        from ganeti.client.htools import rest

        return rest.load(
            values.master,
            kvm_memory=values.options.get(
                "kvm_memory", options.ALL["static-kvm-node-memory"].default
            ),
        )
    from ganeti.client.htools import luxi

    return luxi.load(
        values.luxi,
        kvm_memory=kvm_memory(values),
    )


def kvm_memory(values: Values) -> int:
    """MiB which a node with KVM needs for itself, also for a program without an option for it."""
    default = options.ALL["static-kvm-node-memory"].default
    return int(values.options.get("kvm_memory", default))


def _utilisation(values: Values) -> dict[str, Load] | None:
    name = values.options.get("dynu_file")
    if name is None:
        return None
    from ganeti.htools.loading import text

    found: dict[str, Load] = {}
    try:
        for line in read_file(name).splitlines():
            fields = line.split()
            if len(fields) != _LOAD_FIELDS:
                raise errors.ParseError(f"Cannot parse line {line}")
            numbers = [text.parse_number(fields[0], one, float) for one in fields[1:]]
            found[fields[0]] = Load(*numbers)
    except errors.GenericError as failure:
        raise Failure(f"can't parse utilisation data: {failure}") from failure
    return found
