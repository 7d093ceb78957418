"""Writes the pages of the manual which are generated from tables (``make pages``).

``doc/manual/reference-opcodes.rst`` has every opcode with its parameters,
``doc/manual/reference-parameters.rst`` the parameters which objects inherit, and
``doc/manual/reference-luxi.rst`` the methods of the master's socket. A test compares the pages with
the tables.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ganeti import opcodes
from ganeti.constants import hv, instance, net, node
from ganeti.luxi import methods
from ganeti.luxi.methods import Arg, Method, Right
from ganeti.objects import disk_templates, hvparams
from ganeti.opcodes.base import CHANGE, OpCode, Param

FOLDER = Path(__file__).resolve().parents[1] / "doc" / "manual"
_GENERATED = ".. Generated from {} by devel/reference_pages.py; changes here are lost.\n"
_KINDS = {CHANGE: "changes the cluster", "query": "changes nothing", "test": "for developers"}


def pages() -> dict[str, str]:
    """Return the text of each page, by the name of its file."""
    return {
        "reference-opcodes.rst": _opcodes(),
        "reference-parameters.rst": _parameters(),
        "reference-luxi.rst": _luxi(),
    }


def _title(text: str, line: str = "=") -> list[str]:
    return [text, line * len(text), ""]


def _plain(text: str) -> str:
    """Return a text in which no character has a meaning for reStructuredText."""
    for special in "\\*_`|":
        text = text.replace(special, f"\\{special}")
    return text


def _value(value: Any) -> str:
    return f"``{json.dumps(value, sort_keys=True)}``"


# -- opcodes --------------------------------------------------------------------------------------


def _opcodes() -> str:
    lines = [
        _GENERATED.format("the declarations of the opcodes"),
        "=======",
        "Opcodes",
        "=======",
        "",
    ]
    lines += [
        "An opcode is one operation of a job. Programs submit jobs over LUXI or REST; the",
        "``gnt-*`` commands do the same.",
        "Each opcode is written as a JSON object with the key ``OP_ID`` and its parameters.",
        "``gnt-debug submit-job`` submits a file with a list of such objects.",
        "",
        *_title("Parameters of all opcodes"),
        *_definitions(_common().values()),
    ]
    common = set(_common())
    for op_id in opcodes.op_ids():
        cls = opcodes.lookup(op_id)
        doc = " ".join((cls.__doc__ or "").split())
        lines += [*_title(op_id), f"{_escaped_doc(doc)} This opcode {_verb(cls)}.", ""]
        lines += _definitions(one for name, one in cls.PARAMS.items() if name not in common)
    return "\n".join(lines).rstrip() + "\n"


def _verb(cls: type[OpCode]) -> str:
    kind = _KINDS[cls.KIND]
    return kind if kind.startswith("changes") else f"is {kind}"


def _escaped_doc(text: str) -> str:
    """Return a docstring, whose literals stay literals."""
    parts = text.split("``")
    return "``".join(
        part if index % 2 else part.replace("*", "\\*").replace("|", "\\|")
        for index, part in enumerate(parts)
    )


def _common() -> Mapping[str, Param]:
    return OpCode.PARAMS


def _definitions(params: Iterable[Param]) -> list[str]:
    lines = []
    for one in sorted(params, key=lambda param: (not param.required, param.name)):
        need = "required" if one.required else f"default {_value(one.default)}"
        lines += [
            f"``{one.name}`` ({_plain(str(one.type))}; {need})",
            f"    {_plain(one.doc.rstrip('.'))}.",
            "",
        ]
    return lines


# -- parameters -----------------------------------------------------------------------------------


def _parameters() -> str:
    lines = [
        _GENERATED.format("the tables of parameters"),
        "==========",
        "Parameters",
        "==========",
        "",
    ]
    lines += [
        "Most parameters are inherited: the nearest owner which sets a value decides. In a",
        "command, ``default`` removes the own value of an object, which then inherits it again.",
        "``gnt-cluster info``, ``gnt-group info``, ``gnt-node info`` and ``gnt-instance info``",
        "show which values are own ones.",
        "",
        *_table(
            ("Parameters", "Option", "Owners, the nearest one last"),
            [
                ("backend", "``-B``", "program, cluster, instance"),
                ("NIC", "``-N``, ``--net``", "program, cluster, NIC"),
                ("node", "``--node-parameters``", "program, cluster, node group, node"),
                ("disk", "``-D``", "program, cluster, node group, disk"),
                ("hypervisor", "``-H``", "program, cluster, OS on the cluster, instance"),
                ("OS", "``-O``", "cluster for an OS, for its variant, instance"),
                ("instance policy", "``--ipolicy-...``", "program, cluster, node group"),
            ],
        ),
        "",
        "In a definition, *required* means that the value cannot be empty.",
        "",
    ]
    lines += _title("Backend parameters")
    lines += _simple(instance.BE_DEFAULTS, instance.BE_PARAM_TYPES)
    lines += _title("Parameters of NICs")
    lines += _simple(net.NIC_DEFAULTS, net.NIC_PARAM_TYPES)
    lines += _title("Node parameters")
    lines += [
        "Not for a single node: "
        + ", ".join(f"``{name}``" for name in sorted(node.ND_GLOBALS))
        + ".",
        "",
    ]
    lines += _simple(node.ND_DEFAULTS, node.ND_PARAM_TYPES)
    lines += _title("Disk parameters")
    lines += ["Rates are in KiB for each second, delays in tenths of a second.", ""]
    for template, defaults in disk_templates.all_defaults().items():
        if defaults:
            lines += _title(template, "-")
            lines += _simple(defaults, disk_templates.parameter_types())
    lines += _title("Parameters of hypervisors")
    lines += [
        "The cluster only sets these, not an instance: "
        + ", ".join(f"``{name}``" for name in sorted(hv.GLOBAL_PARAMS))
        + ".",
        "See **ganeti-kvm**\\ (7), **ganeti-xen**\\ (7), **ganeti-lxc**\\ (7) and",
        "**ganeti-chroot**\\ (7).",
        "",
    ]
    for name, table in hvparams.TABLES.items():
        if table:
            lines += _title(name, "-")
            lines += _table(
                ("Parameter", "Type", "Default", "Values"),
                [
                    (
                        f"``{key}``",
                        one.type + (", required" if one.required else ""),
                        _value(one.default),
                        ", ".join(f"``{value}``" for value in one.one_of if value != ""),
                    )
                    for key, one in sorted(table.items())
                ],
            )
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _simple(defaults: Mapping[str, Any], types: Mapping[str, str]) -> list[str]:
    rows = [(f"``{name}``", types[name], _value(value)) for name, value in sorted(defaults.items())]
    return [*_table(("Parameter", "Type", "Default"), rows), ""]


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    rule = " ".join("=" * width for width in widths)
    shown = [
        " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]
    return [rule, shown[0], rule, *shown[1:], rule]


# -- LUXI -----------------------------------------------------------------------------------------


def _luxi() -> str:
    lines = [
        _GENERATED.format("the table of methods of LUXI"),
        "===============",
        "Methods of LUXI",
        "===============",
        "",
        "LUXI is the protocol of the master's local socket, which the ``gnt-*`` commands and the",
        "REST daemon use. A request is a JSON object with ``method`` and ``args``, a list of the",
        "arguments in this order; the byte 3 ends each message. The answers have the order of the",
        "requests. A request whose connection breaks may have been carried out: a program may",
        "repeat it, unless this page says that it must not be repeated.",
        "",
    ]
    published = [method for method in methods.TABLE.values() if method.published]
    own = [method for method in methods.TABLE.values() if not method.published]
    for title, group in (("Methods of every master", published), ("Extensions of ours", own)):
        lines += _title(title)
        for method in sorted(group, key=lambda method: method.name):
            lines += [
                f"``{method.name}`` ({', '.join(map(_argument, method.args)) or 'no arguments'})",
                f"    {_escaped_doc(method.summary)}.{_remarks(method)}",
                "",
            ]
    return "\n".join(lines).rstrip() + "\n"


def _argument(arg: Arg) -> str:
    default = "" if arg.required else f", default {_value(arg.default)}"
    return f"``{arg.name}``: {_plain(str(arg.type))}{default}"


def _remarks(method: Method) -> str:
    remarks = " It must not be repeated." if method.changes else ""
    if method.right is Right.ADMINISTRATOR:
        remarks += " Only for root and the user of the master daemon."
    return remarks


def main() -> int:
    """Write the pages."""
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
