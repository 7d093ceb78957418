"""The manual page explains every code of ``gnt-cluster verify``, with the kind of its object."""

from __future__ import annotations

import re
from pathlib import Path

from ganeti.constants import verify

PAGE = Path(__file__).resolve().parents[2] / "man" / "gnt-cluster.rst"


def test_every_code_is_explained() -> None:
    rows = re.findall(
        r"^``(E[A-Z0-9]+)`` \(([a-z]+)\)\n    \S", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert dict(rows) == verify.OBJECT_OF
    assert [code for code, _kind in rows] == sorted(verify.OBJECT_OF)
