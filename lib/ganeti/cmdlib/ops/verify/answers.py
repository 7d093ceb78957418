"""The shapes of the answers to the checks of ``gnt-cluster verify``.

One node with another version, or with a fault, must not end the verification of its group. An
answer of another shape is reported and left out; the checks then say that it is missing.
"""

from __future__ import annotations

from typing import Any, Final

from ganeti import ht
from ganeti.cmdlib.ops.verify.findings import Findings
from ganeti.constants import node_verify as nv
from ganeti.objects import device_names, disk_templates
from ganeti.wire.calls.instance import OS_ROWS
from ganeti.wire.calls.storage import LISTED_VOLUME

_NUMBER: Final = ht.Or(ht.Int, ht.Float)
_TEXTS: Final = ht.ListOf(ht.Str)
_PROBLEMS: Final = ht.DictOf(ht.Str, ht.Maybe(ht.Str))
_PHYSICAL: Final = ht.Tuple(
    ht.Str, ht.Maybe(ht.Str), _NUMBER, _NUMBER, ht.Maybe(ht.Str), ht.ListOf(ht.Str)
)


def _is_connection(value: Any) -> bool:
    """Tell whether this is what a node says about a DRBD minor."""
    if not isinstance(value, dict) or not ht.NonNegInt(value.get("minor")):
        return False
    return bool(value.get("problem")) or {"storage", "local", "remote", "secret"} <= value.keys()


# A text in place of a list says why there is none.
_SHAPES: Final[dict[str, ht.Type]] = {
    nv.ACCEPTED_STORAGE_PATHS: _TEXTS,
    nv.BRIDGES: _TEXTS,
    nv.CLIENT_CERT: ht.Tuple(ht.Maybe(ht.Str), ht.Str),
    nv.CONFIG_JOURNAL: ht.Tuple(ht.Str, _TEXTS),
    nv.DAEMON_USER: ht.NonNegInt,
    nv.DEVICES: ht.DictOf(ht.NonEmptyString, ht.Or(ht.Str, device_names.WIRE)),
    nv.DRBDCONNECTIONS: ht.Or(ht.Str, ht.ListOf(ht.Type("connection", _is_connection))),
    nv.DRBDHELPER: ht.Tuple(ht.Bool, ht.Str),
    nv.DRBDLIST: ht.Or(ht.Str, ht.ListOf(ht.Int)),
    nv.DRBDMINORS: ht.Maybe(ht.NonNegInt),
    nv.DRBDVERSION: ht.Or(ht.Str, ht.ListOf(ht.Or(ht.Int, ht.Str))),
    nv.EXCLUSIVEPVS: ht.Or(ht.Str, ht.ListOf(ht.Tuple(ht.Str, _TEXTS))),
    nv.FILELIST: ht.DictOf(ht.Str, ht.Str),
    nv.HVPARAMS: ht.ListOf(ht.Tuple(ht.Str, ht.Str, ht.Str)),
    nv.HYPERVISOR: _PROBLEMS,
    nv.LVLIST: ht.Or(ht.Str, ht.DictOf(ht.Str, ht.Or(LISTED_VOLUME, ht.Str))),
    nv.MASTERIP: ht.Bool,
    nv.NODENETTEST: _PROBLEMS,
    nv.NODESETUP: _TEXTS,
    nv.OOB_PATHS: ht.ListOf(ht.Maybe(ht.Str)),
    nv.OPENVSWITCH: ht.Str,
    nv.OSLIST: ht.ListOf(OS_ROWS),
    nv.PVLIST: ht.Or(ht.Str, ht.ListOf(_PHYSICAL)),
    nv.SSH_CLUTTER: _TEXTS,
    nv.SSH_SETUP: _TEXTS,
    nv.TIME: ht.Tuple(_NUMBER, _NUMBER),
    **{check.name: ht.Str for check in disk_templates.directory_checks().values()},
    nv.USERSCRIPTS: _TEXTS,
    nv.VERSION: ht.Tuple(ht.Int, ht.Str),
    nv.VGDUPLICATES: ht.Or(ht.Str, _TEXTS),
    nv.VGLIST: ht.Or(ht.Str, ht.DictOf(ht.Str, _NUMBER)),
    nv.WATCHER: ht.Tuple(ht.ListOf(ht.Tuple(ht.Str, ht.Int, _NUMBER)), ht.Maybe(_NUMBER)),
}


def understood(findings: Findings, node_name: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answers of a node which have the right shape; report the others."""
    kept = {}
    for check, value in answer.items():
        shape = _SHAPES.get(check)
        if value is None or shape is None or shape(value):
            kept[check] = value
        else:
            findings.report(
                "ENODERPC",
                node_name,
                f"its answer to the check {check} cannot be understood: {value!r:.100}",
            )
    return kept
