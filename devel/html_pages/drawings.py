"""Extension of Sphinx: drawings made from text, with the colours of the page.

A page names a drawing as an image, ``.. image:: ../drawings/job.dot``. Graphviz makes an SVG of
the text while the pages are built; it becomes a part of the page, so that it follows a dark theme.
Without Graphviz the page has the text for readers who do not see the image, and the build says so.
"""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

_log = logging.getLogger(__name__)

#: What all drawings have in common: ``currentColor`` is the colour of the text of the page.
_COMMON = (
    "-Gbgcolor=transparent", "-Gpad=0.1", "-Gnodesep=0.35", "-Granksep=0.45",
    "-Nshape=box", "-Nstyle=rounded", "-Nfontname=sans-serif", "-Nfontsize=12", "-Ncolor=#808080",
    "-Nmargin=0.15,0.08", "-Efontname=sans-serif", "-Efontsize=11", "-Ecolor=#808080",
)  # fmt: skip


def svg(source: Path) -> str | None:
    """Return the drawing of a text of Graphviz as an element ``svg``; None without Graphviz.

    :raises ExtensionError: the text has an error.
    """
    if shutil.which("dot") is None:
        return None
    done = subprocess.run(
        ["dot", "-Tsvg", *_COMMON, str(source)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ExtensionError(f"{source}: {done.stderr.strip()}")
    found = done.stdout[done.stdout.index("<svg") :]
    # Titles of elements would show internal names under the mouse; identifiers must be unique.
    found = re.sub(r"<title>.*?</title>\n", "", found)
    found = re.sub(r"<!--.*?-->\n", "", found, flags=re.DOTALL)
    return re.sub(r' id="[^"]*"', "", found)


class Drawings(SphinxTransform):
    """Replaces images which are texts of Graphviz."""

    default_priority = 390

    def apply(self, **kwargs: Any) -> None:
        """Change the present page."""
        page = Path(self.env.doc2path(self.env.docname))
        for image in list(self.document.findall(nodes.image)):
            if not image["uri"].endswith(".dot"):
                continue
            source = (page.parent / image["uri"]).resolve()
            self.env.note_dependency(str(source))
            drawing, alt = svg(source), image.get("alt", "")
            if drawing is None:
                _log.info("graphviz is not installed: %s has no drawing", self.env.docname)
                image.replace_self(nodes.paragraph("", alt))
                continue
            text = (
                f'<div class="drawing" role="img" aria-label="{html.escape(alt, quote=True)}">'
                f"{drawing}</div>"
            )
            image.replace_self(nodes.raw("", text, format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_transform(Drawings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
