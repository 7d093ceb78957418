"""``python -m devel.html_pages DIRECTORY``: writes the documentation as HTML pages, with a search.

The first page is ``DIRECTORY/index.html``. Warnings of Sphinx are errors.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from sphinx.cmd.build import build_main

TOP = Path(__file__).resolve().parents[2]
_START = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Ganeti in Python</title>
<meta http-equiv="refresh" content="0; url=doc/index.html"></head>
<body><p><a href="doc/index.html">Documentation</a></p></body></html>
"""


def main(argv: Sequence[str]) -> int:
    """Build the pages; returns the exit code of Sphinx, or 2 without a directory."""
    if len(argv) != 1:
        print("usage: python -m devel.html_pages DIRECTORY", file=sys.stderr)
        return 2
    target = Path(argv[0])
    code = build_main(
        ["-q", "-E", "-W", "--keep-going", "-c", str(Path(__file__).parent), "-b", "html",
         "-d", f"{target}.doctrees", str(TOP), str(target)]
    )  # fmt: skip
    if code == 0:
        (target / "index.html").write_text(_START, encoding="utf-8")
        print(f"{target}/index.html")
    return code


sys.exit(main(sys.argv[1:]))
