"""Turns reports into metrics of OpenMetrics, as Prometheus reads them.

Names begin with ``ganeti_node_`` for this machine and with ``ganeti_cluster_`` for the cluster.
They end in the unit, and counters in ``_total``. Labels are few and bounded: devices, minors and
guests of this node.

Source: OpenMetrics 1.0.0; the naming conventions of Prometheus.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"

_SECTOR_BYTES: Final = 512
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")

Labels = Mapping[str, str]


@dataclasses.dataclass(slots=True)
class Family:
    """The metrics of one name.

    :ivar samples: labels and value of each; a value of None is left out.
    :ivar histograms: labels, numbers by class, and sum of each histogram.
    :ivar bounds: the upper bounds of the classes; the last class has none.
    """

    name: str
    kind: str
    help: str
    unit: str = ""
    samples: list[tuple[Labels, float | None]] = dataclasses.field(default_factory=list)
    histograms: list[tuple[Labels, Sequence[int], float]] = dataclasses.field(default_factory=list)
    bounds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        assert _NAME.fullmatch(self.name), self.name
        assert not self.unit or self.name.endswith(f"_{self.unit}"), self.name

    def add(self, value: float | None, **labels: str) -> None:
        """Add a sample."""
        self.samples.append((labels, value))


def render(families: Iterable[Family]) -> str:
    """Return the text of all families which have samples."""
    lines = []
    for family in families:
        samples = [(labels, value) for labels, value in family.samples if value is not None]
        if not samples and not family.histograms:
            continue
        lines += [f"# TYPE {family.name} {family.kind}"]
        if family.unit:
            lines.append(f"# UNIT {family.name} {family.unit}")
        lines.append(f"# HELP {family.name} {_escape(family.help)}")
        suffix = "_total" if family.kind == COUNTER else ""
        for labels, value in samples:
            lines.append(f"{family.name}{suffix}{_labels(labels)} {_number(value)}")
        for labels, counts, total in family.histograms:
            lines += _histogram(family, labels, counts, total)
    return "\n".join([*lines, "# EOF\n"])


def _histogram(
    family: Family, labels: Labels, counts: Sequence[int], total: float
) -> Iterator[str]:
    sum_so_far = 0
    for bound, count in zip((*family.bounds, math.inf), counts, strict=True):
        sum_so_far += count
        shown = {**labels, "le": _number(float(bound))}
        yield f"{family.name}_bucket{_labels(shown)} {sum_so_far}"
    yield f"{family.name}_count{_labels(labels)} {sum_so_far}"
    yield f"{family.name}_sum{_labels(labels)} {_number(total)}"


def of_master(metrics: Iterable[Mapping[str, Any]]) -> list[Family]:
    """Return the metrics which the master daemon has measured (``QueryMetrics`` of LUXI)."""
    found = []
    for one in metrics:
        unit = "seconds" if one["kind"] == HISTOGRAM else ""
        family = Family(one["name"], one["kind"], one["help"], unit)
        family.bounds = tuple(one.get("bounds", ()))
        for values, *numbers in one["series"]:
            labels = dict(zip(one["labels"], values, strict=True))
            if one["kind"] == HISTOGRAM:
                family.histograms.append((labels, *numbers))
            else:
                family.add(numbers[0], **labels)
        found.append(family)
    return found


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _number(value: float) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(value)


def of_reports(reports: Sequence[Mapping[str, Any]]) -> list[Family]:
    """Return the metrics of these reports; a report of another kind has none."""
    found: list[Family] = []
    for one in reports:
        make = _MAKERS.get(one["name"])
        if make is not None:
            found += make(one["data"])
    return found


def of_durations(durations_s: Mapping[str, float]) -> list[Family]:
    """Return how long the last collection of each collector took."""
    family = Family(
        "ganeti_node_collector_duration_seconds",
        GAUGE,
        "Time which the last collection of a collector took",
        "seconds",
    )
    for name, seconds in sorted(durations_s.items()):
        family.add(round(seconds, 6), collector=name)
    return [family]


def _cpu(data: Mapping[str, Any]) -> list[Family]:
    load = Family(
        "ganeti_node_cpu_load_ratio",
        GAUGE,
        "Average share of the time in which a processor was busy, over at most ten minutes",
        "ratio",
    )
    for number, value in enumerate(data["cpus"]):
        load.add(value, cpu=str(number))
    return [load]


def _disks(data: Sequence[Mapping[str, Any]]) -> list[Family]:
    read = Family("ganeti_node_disk_read_bytes", COUNTER, "Bytes read from a device", "bytes")
    written = Family(
        "ganeti_node_disk_written_bytes", COUNTER, "Bytes written to a device", "bytes"
    )
    reads = Family("ganeti_node_disk_reads", COUNTER, "Reads which a device has completed")
    writes = Family("ganeti_node_disk_writes", COUNTER, "Writes which a device has completed")
    busy = Family("ganeti_node_disk_busy_seconds", COUNTER, "Time a device was busy", "seconds")
    for disk in data:
        if not any((disk["readsNum"], disk["writes"])):
            continue  # Unused loop and RAM devices would be most of the text.
        name = disk["name"]
        read.add(disk["secRead"] * _SECTOR_BYTES, device=name)
        written.add(disk["secWritten"] * _SECTOR_BYTES, device=name)
        reads.add(disk["readsNum"], device=name)
        writes.add(disk["writes"], device=name)
        busy.add(disk["timeIO"] / 1000, device=name)
    return [read, written, reads, writes, busy]


def _drbd(data: Mapping[str, Any]) -> list[Family]:
    status = Family(
        "ganeti_node_drbd_status",
        GAUGE,
        "Worst state of the mirrored devices: 0 well, 1 it mends itself, 2 unknown, 4 bad",
    )
    status.add(data["status"]["code"])
    connected = Family(
        "ganeti_node_drbd_connected", GAUGE, "Whether a mirrored device has its peer"
    )
    fresh = Family(
        "ganeti_node_drbd_up_to_date", GAUGE, "Whether the replica of this node is up to date"
    )
    out = Family(
        "ganeti_node_drbd_out_of_sync_bytes", GAUGE, "Data which the replicas do not share", "bytes"
    )
    progress = Family(
        "ganeti_node_drbd_synchronised_ratio", GAUGE, "Progress of a synchronisation", "ratio"
    )
    for device in data["deviceInfos"]:
        if "localState" not in device:
            continue
        labels = {"minor": str(device["minor"]), "instance": device.get("instance") or ""}
        alone = device["remoteRole"] == "Unknown"
        connected.add(int(not alone), **labels)
        fresh.add(int(device["localState"] == "UpToDate"), **labels)
        missing_kib = device["perfIndicators"].get("outOfSync")
        out.add(None if missing_kib is None else missing_kib * 1024, **labels)
        sync = device.get("syncStatus")
        progress.add(sync["percentage"] / 100 if sync else None, **labels)
    return [status, connected, fresh, out, progress]


def _volumes(data: Sequence[Mapping[str, Any]]) -> list[Family]:
    count = Family("ganeti_node_logical_volumes", GAUGE, "Logical volumes of a volume group")
    size = Family(
        "ganeti_node_logical_volumes_bytes", GAUGE, "Size of all logical volumes", "bytes"
    )
    groups: dict[str, dict[str, int]] = {}
    for volume in data:
        # A volume has a line for each of its segments.
        groups.setdefault(volume["vg_name"], {})[volume["uuid"]] = volume["size"]
    for name, sizes in sorted(groups.items()):
        count.add(len(sizes), group=name)
        size.add(sum(sizes.values()), group=name)
    return [count, size]


def _xen_load(data: Mapping[str, float]) -> list[Family]:
    family = Family(
        "ganeti_node_xen_guest_load_ratio",
        GAUGE,
        "Processors which a guest of Xen keeps busy on average, over at most ten minutes",
        "ratio",
    )
    for name, load in sorted(data.items()):
        family.add(load, guest=name)
    return [family]


def _xen_status(data: Mapping[str, Any]) -> list[Family]:
    family = Family(
        "ganeti_node_xen_instances", GAUGE, "Instances of this node under Xen, by their state"
    )
    states = [one["actualState"] for one in data["instances"]]
    for state in sorted(set(states)):
        family.add(states.count(state), state=state)
    return [family]


_MAKERS: Final[dict[str, Callable[[Any], list[Family]]]] = {
    "cpu-avg-load": _cpu,
    "diskstats": _disks,
    "drbd": _drbd,
    "inst-status-xen": _xen_status,
    "lv": _volumes,
    "xen-cpu-avg-load": _xen_load,
}
