"""No option is accepted and forgotten: its command reads it, and a unit reads each parameter.

This reads the sources and knows nothing of what is done with a value; tests of the commands and
units do. It finds what was declared because others have it, and then never looked at.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

from ganeti import client, opcodes
from ganeti.opcodes.base import OpCode

LIB = Path(__file__).parents[2] / "lib/ganeti"

#: Parameters which nothing reads, and why that is right.
SILENT = {
    ("OP_CLUSTER_RENEW_CRYPTO", "debug"): "every step is in the job's log anyway",
    ("OP_CLUSTER_SET_PARAMS", "gluster_storage_dir"): "disk_templates.directory_fields() names it",
    ("OP_CLUSTER_SET_PARAMS", "shared_file_storage_dir"): "likewise",
    ("OP_TEST_DUMMY", "messages"): "no unit executes it, the master refuses it",
    ("OP_TEST_DUMMY", "submit_jobs"): "likewise",
}


def sources(*places: str) -> str:
    files = [
        path
        for place in places
        for path in (
            [LIB / place] if place.endswith(".py") else sorted((LIB / place).rglob("*.py"))
        )
    ]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


FRONT = sources("client", "cli")
UNITS = sources("cmdlib", "cmdlib/processor.py", "jqueue")
OPTIONS = sorted(
    {
        (name, command.name, option.dest)
        for name in client.PROGRAMS
        for command in importlib.import_module(client.PROGRAMS[name]).PROGRAM.commands.values()
        for option in command.options
        if option.dest and not option.dest.startswith("_")
    }
)


def opcode_classes() -> list[type[OpCode]]:
    found = []
    for module in pkgutil.iter_modules(opcodes.__path__, "ganeti.opcodes."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, OpCode) and value is not OpCode:
                found.append(value)
    return sorted(set(found), key=lambda cls: cls.OP_ID)


def test_options() -> None:
    assert len(OPTIONS) > 500
    forgotten = [
        option
        for option in OPTIONS
        if not re.search(rf"""values\.{option[2]}\b|["']{option[2]}["']""", FRONT)
    ]
    assert forgotten == []


@pytest.mark.parametrize("cls", opcode_classes(), ids=lambda cls: cls.OP_ID)
def test_parameters(cls: type[OpCode]) -> None:
    forgotten = [
        name
        for name in cls.PARAMS
        if name not in OpCode.PARAMS
        and (cls.OP_ID, name) not in SILENT
        and not re.search(rf"""\bop\.{name}\b|["']{name}["']""", UNITS)
    ]
    assert forgotten == []
