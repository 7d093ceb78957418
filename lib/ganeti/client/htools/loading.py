"""Reading the cluster from where the user says."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ganeti import errors
from ganeti.client.htools import options
from ganeti.client.htools.options import Values
from ganeti.client.htools.program import Failure, err
from ganeti.htools import cluster as model
from ganeti.htools.cluster import Cluster
from ganeti.htools.instance import Load
from ganeti.htools.loading import text

_SOURCES = ("master", "luxi", "text_data", "ialloc_src", "simulate")
_LOAD_FIELDS = 5


def load(values: Values) -> Cluster:
    """Read and prepare the cluster; prints what is inconsistent in it.

    :raises Failure: the cluster cannot be read.
    """
    given = [name for name in _SOURCES if name in values.given]
    if len(given) > 1:
        raise Failure("Only one of the rapi, luxi, and data files options should be given.")
    utilisation = _utilisation(values)
    try:
        if not given:
            raise Failure("No backend selected! Exiting.")
        cluster = _read(given[0], values)
        warnings = model.prepare(cluster, _options(values, utilisation))
    except errors.GenericError as failure:
        raise Failure(f"failed to load data, aborting: {failure}") from failure
    print_warnings(warnings)
    return cluster


def print_warnings(warnings: Sequence[str]) -> None:
    """Print what is inconsistent in a cluster."""
    if warnings:
        err("Warning: cluster has inconsistent data:")
        err("\n".join(f"  - {one}" for one in warnings) + "\n")


def refuse_monitoring(values: Values) -> None:
    """Refuse the options which ask monitoring daemons for the load of instances.

    :raises Failure: one of them is given.
    """
    for name in ("mond", "mond_data", "exit_missing_mond", "mond_xen"):
        if values.options.get(name):
            option = next(one.long for one in options.ALL.values() if one.dest == name)
            raise Failure(
                f"--{option} is not supported: this version reads the load of instances only"
                " from a file, see --dynu-file"
            )


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


def read_file(name: str) -> str:
    """Read a file, or standard input for ``-``.

    :raises ParseError: it cannot be read.
    """
    try:
        if name == "-":
            return sys.stdin.read()
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise errors.ParseError(f"cannot read {name}: {failure}") from failure


def _read(source: str, values: Values) -> Cluster:
    if source == "text_data":
        return text.parse(read_file(values.text_data))
    if source == "simulate":
        from ganeti.htools.loading import simulation

        return simulation.make(values.simulate)
    if source == "ialloc_src":
        from ganeti.htools.loading import request

        return request.parse(read_file(values.ialloc_src)).cluster
    if source == "master":
        from ganeti.client.htools import rest

        return rest.load(values.master, kvm_memory=values.options.get("kvm_memory", 0))
    from ganeti.client.htools import luxi

    return luxi.load(values.luxi, kvm_memory=values.options.get("kvm_memory", 0))


def _utilisation(values: Values) -> dict[str, Load] | None:
    name = values.options.get("dynu_file")
    if not name:
        return None
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
