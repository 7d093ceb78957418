"""The logical volumes of the node, from ``lvs``.

Source: lvs(8); the keys are published, and sizes are in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ganeti import errors
from ganeti.mond import report
from ganeti.mond.report import Collector, CollectorError, Questions
from ganeti.utils import process

#: Column of lvs -> key of the report.
_FIELDS: Final = {
    "lv_uuid": "uuid",
    "lv_name": "name",
    "lv_attr": "attr",
    "lv_major": "major",
    "lv_minor": "minor",
    "lv_kernel_major": "kernel_major",
    "lv_kernel_minor": "kernel_minor",
    "lv_size": "size",
    "seg_count": "seg_count",
    "lv_tags": "tags",
    "lv_modules": "modules",
    "vg_uuid": "vg_uuid",
    "vg_name": "vg_name",
    "segtype": "segtype",
    "seg_start": "seg_start",
    "seg_start_pe": "seg_start_pe",
    "seg_size": "seg_size",
    "seg_tags": "seg_tags",
    "seg_pe_ranges": "seg_pe_ranges",
    "devices": "devices",
}
_NUMBERS: Final = frozenset(
    ("major", "minor", "kernel_major", "kernel_minor", "seg_count", "seg_start_pe")
)
_SIZES: Final = frozenset(("size", "seg_start", "seg_size"))
#: The node daemon gives each volume a tag with this beginning and the name of its instance.
_OWNER_TAG: Final = "originstname+"
_SEPARATOR: Final = ";"
_ARGV: Final = (
    "lvs", "--noheadings", "--units", "B", "--separator", _SEPARATOR, "-o", ",".join(_FIELDS),
)  # fmt: skip
_TIMEOUT_S: Final = 60.0


def parse(text: str, instances: Mapping[str, str]) -> list[dict[str, Any]]:
    """Read the output of lvs: a line for each segment of a volume.

    :param instances: ``volume group/logical volume`` -> name of its instance; for other volumes
        their tag counts.
    :raises CollectorError: a line has another form; the message has the line.
    """
    found = []
    for line in text.splitlines():
        words = line.strip().split(_SEPARATOR)
        if words == [""]:
            continue
        if len(words) != len(_FIELDS):
            raise CollectorError(f"expected {len(_FIELDS)} columns of lvs, found {line!r:.200}")
        try:
            volume = {
                key: _value(key, word) for key, word in zip(_FIELDS.values(), words, strict=True)
            }
        except ValueError as err:
            raise CollectorError(f"expected a number of lvs ({err}), found {line!r:.200}") from err
        volume["instance"] = instances.get(f"{volume['vg_name']}/{volume['name']}") or _owner(
            volume["tags"]
        )
        found.append(volume)
    return found


def _owner(tags: str) -> str | None:
    """Return the instance of a volume from the tag which the node daemon gives it."""
    for tag in tags.split(","):
        if tag.startswith(_OWNER_TAG):
            return tag.removeprefix(_OWNER_TAG)
    return None


def _value(key: str, word: str) -> Any:
    """Return a value with its type.

    :raises ValueError: it is not a number.
    """
    if key in _SIZES:
        return int(word.removesuffix("B"))
    return int(word) if key in _NUMBERS else word


def collect(_questions: Questions) -> list[dict[str, Any]]:
    """Ask lvs of this node."""
    try:
        done = process.run(_ARGV, timeout_s=_TIMEOUT_S, log=False)
    except errors.GenericError as err:
        raise CollectorError(f"lvs failed: {err}") from err
    return parse(done.stdout, {})


COLLECTOR: Final = Collector("lv", report.STORAGE, report.PERFORMANCE, collect)
