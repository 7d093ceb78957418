"""The pages about fields and output say what the tables say."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from devel import field_list
from ganeti import client
from ganeti.cli.options import DATA_FORMATS, FORMATS

DOC = Path(__file__).resolve().parents[2] / "doc"


def test_the_list_of_fields_is_that_of_the_tables() -> None:
    assert (DOC / "query-fields.rst").read_text(encoding="utf-8") == field_list.page(), (
        "run: make pages"
    )


def test_every_command_with_formats_is_documented() -> None:
    text = (DOC / "output.rst").read_text(encoding="utf-8")
    assert all(f"``{name}``" in text for name in FORMATS)
    lists = {"list", "list-fields", "locks", "top"}
    for name, module in client.PROGRAMS.items():
        for command in importlib.import_module(module).PROGRAM.commands.values():
            has = any(
                option.dest == "output_format" or option.completion == "fields"
                for option in command.options
            )
            if has and command.name not in lists:
                wanted = command.name if command.name == "list-tags" else f"{name} {command.name}"
                assert f"``{wanted}``" in text, wanted


def test_no_command_knows_only_some_of_the_formats() -> None:
    """Commands ask for DATA_FORMATS; a list of their own would miss the next one."""
    for path in (DOC.parent / "lib/ganeti/client").rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"""\(["']json["'], ["']yaml["']""", source), path
    assert set(DATA_FORMATS) < set(FORMATS)
