"""Tables of nodes, instances and score components, as the programs print them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ganeti.htools import score
from ganeti.htools.formats import fixed, number, table
from ganeti.htools.instance import NO_NODE, Instance
from ganeti.htools.node import Node
from ganeti.utils.records import NamedTuple

_GIB = 1024


class Field(NamedTuple):
    """A column of the table of nodes."""

    header: str
    numeric: bool
    text: Callable[[Node], str]


def _status(node: Node) -> str:
    return "-" if node.offline else "*" if node.failing else " "


def _numbers(values: Sequence[int]) -> str:
    return "[" + ",".join(str(value) for value in values) + "]"


def _peers(node: Node) -> str:
    peers = sorted(node.peers.items(), key=lambda item: (-item[1], -item[0]))
    return "[" + ",".join(f"({peer},{memory})" for peer, memory in peers) + "]"


def _tags(node: Node) -> str:
    return ",".join(f"{tag}={count}" for tag, count in sorted(node.primary_tags.items()))


FIELDS: dict[str, Field] = {
    "idx": Field("Index", True, lambda n: f"{n.index:4d}"),
    "name": Field("Name", False, lambda n: n.alias),
    "fqdn": Field("Name", False, lambda n: n.name),
    "status": Field("F", False, _status),
    "tmem": Field("t_mem", True, lambda n: f"{fixed(n.total_memory, 0):>5}"),
    "nmem": Field("n_mem", True, lambda n: f"{n.own_memory:5d}"),
    "xmem": Field("x_mem", True, lambda n: f"{n.unaccounted_memory:5d}"),
    "fmem": Field("f_mem", True, lambda n: f"{n.free_memory:5d}"),
    "umem": Field("u_mem", True, lambda n: f"{n.unallocated_memory:5d}"),
    "imem": Field("i_mem", True, lambda n: f"{n.instance_memory:5d}"),
    "rmem": Field("r_mem", True, lambda n: f"{n.reserved_memory:5d}"),
    "amem": Field("a_mem", True, lambda n: f"{n.available_memory:5d}"),
    "tdsk": Field("t_dsk", True, lambda n: f"{fixed(n.total_disk / _GIB, 0):>5}"),
    "fdsk": Field("f_dsk", True, lambda n: f"{n.real.free_disk // _GIB:5d}"),
    "tcpu": Field("pcpu", True, lambda n: f"{fixed(n.total_cpus, 0):>4}"),
    "ucpu": Field("vcpu", True, lambda n: f"{n.real.vcpus:4d}"),
    "pcnt": Field("pcnt", True, lambda n: f"{len(n.real.primaries) + n.outside.primaries:3d}"),
    "scnt": Field("scnt", True, lambda n: f"{len(n.real.secondaries) + n.outside.secondaries:3d}"),
    "plist": Field("primaries", True, lambda n: _numbers(n.real.primaries)),
    "slist": Field("secondaries", True, lambda n: _numbers(n.real.secondaries)),
    "pfmem": Field("p_fmem", True, lambda n: f"{fixed(n.memory_ratio, 4):>6}"),
    "pfdsk": Field("p_fdsk", True, lambda n: f"{fixed(n.disk_ratio, 4):>6}"),
    "rcpu": Field("r_cpu", True, lambda n: f"{fixed(n.vcpu_ratio, 2):>5}"),
    "cload": Field("lCpu", True, lambda n: f"{fixed(n.load.cpu, 3):>5}"),
    "mload": Field("lMem", True, lambda n: f"{fixed(n.load.memory, 3):>5}"),
    "dload": Field("lDsk", True, lambda n: f"{fixed(n.load.disk, 3):>5}"),
    "nload": Field("lNet", True, lambda n: f"{fixed(n.load.net, 3):>5}"),
    "ptags": Field("PrimaryTags", False, _tags),
    "peermap": Field("PeerMap", False, _peers),
    "spindle_count": Field("NodeSpindles", True, lambda n: str(n.total_spindles)),
    "hi_spindles": Field("MaxSpindles", True, lambda n: number(n.max_spindles)),
    "inst_spindles": Field("InstSpindles", True, lambda n: number(n.real.spindles)),
}

UNKNOWN = Field("<unknown field>", False, lambda node: "<unknown field>")

DEFAULT_FIELDS = (
    "status", "name", "tmem", "nmem", "imem", "xmem", "fmem", "umem", "rmem", "tdsk", "fdsk",
    "tcpu", "ucpu", "pcnt", "scnt", "pfmem", "pfdsk", "rcpu", "cload", "mload", "dload", "nload",
)  # fmt: skip


def wanted_fields(text: str | None) -> list[str]:
    """Return the columns of a list such as ``name,pcnt``.

    A leading ``+`` adds to the usual ones.
    """
    if not text:
        return list(DEFAULT_FIELDS)
    if text.startswith("+"):
        return [*DEFAULT_FIELDS, *text[1:].split(",")]
    return text.split(",")


def nodes(listed: Sequence[Node], wanted: Sequence[str]) -> str:
    """Return the table of nodes; every line begins with a space."""
    fields = [FIELDS.get(name, UNKNOWN) for name in wanted]
    rows = [[field.header for field in fields]]
    for node in listed:
        rows.append([field.text(node) for field in fields])
    return "\n".join(f" {line}" for line in table(rows, [field.numeric for field in fields]))


_INSTANCE_HEADERS = (
    "F", "Name", "Pri_node", "Sec_node", "Auto_bal", "vcpu", "mem", "dsk", "lCpu", "lMem", "lDsk",
    "lNet",
)  # fmt: skip


def instances(listed: Sequence[Instance], cluster_nodes: Sequence[Node]) -> str:
    """Return the table of instances; every line begins with a space."""
    rows = [list(_INSTANCE_HEADERS)]
    for one in listed:
        second = "" if one.secondary == NO_NODE else cluster_nodes[one.secondary].name
        rows.append(
            [
                "R" if one.running else " ",
                one.name,
                cluster_nodes[one.primary].name,
                second,
                "Y" if one.auto_balance else "N",
                f"{one.vcpus:3d}",
                f"{one.memory:5d}",
                f"{one.disk // _GIB:5d}",
                *(fixed(value, 3) for value in one.load),
            ]
        )
    numeric = [False] * 5 + [True] * 7
    return "\n".join(f" {line}" for line in table(rows, numeric))


def components(values: Sequence[float]) -> str:
    """Return the table of the components of the score; only its header for no values."""
    rows = [["Field", "Value", "Weight"]]
    for component, value in zip(score.COMPONENTS, values, strict=False):
        rows.append([component.name, fixed(value, 8), f"x{component.weight:.2f}"])
    return "\n".join(f"   {line}" for line in table(rows, [False, True, True]))
